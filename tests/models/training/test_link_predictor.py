"""Link prediction from end to end: a graph with a structure is learned, and bad input ends in one line."""

import json
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from lightning.pytorch import Trainer
from omegaconf import open_dict

import train as train_module
from loader.datamodules.links import LinkDataModule
from loader.datasets import DatasetError, NodeDataset
from loader.graph import Graph
from loader.samplers import FusedSampler, LinkSampler, Negatives
from models.ranking import auc, hits, mrr, ranks
from models.training.link_predictor import LinkPredictor

CONF = Path(train_module.__file__).parent / "conf"


@pytest.fixture
def composed(tmp_path):
    with initialize_config_dir(str(CONF), version_base="1.3"):

        def make(*overrides):
            fast = (
                "task=link",
                "dataset=synthetic",
                "num_threads=1",
                "device=cpu",
                "callbacks.progress.refresh_rate=0",
            )
            cfg = compose(
                "train",
                overrides=[f"hydra.runtime.output_dir={tmp_path}", f"data_dir={tmp_path / 'data'}", *fast, *overrides],
                return_hydra_config=True,
            )
            cfg.run_dir, cfg.checkpoint_dir = str(tmp_path), str(tmp_path / "checkpoints")
            with open_dict(cfg):
                del cfg["hydra"]
            return cfg

        yield make


def test_a_job_learns_and_prints_its_metrics(composed, capsys):
    cfg = composed(
        "dataset.num_nodes=400",
        "dataset.num_features=16",
        "dataset.mean_degree=10",
        "trainer.max_epochs=4",
        "datamodule.batch_size=256",
    )
    score = train_module.train(cfg)
    assert 0.5 < score <= 1
    told = capsys.readouterr().out
    for measure in ("auc", "ap", "mrr", "hits@1", "hits@10"):
        assert measure in told


def test_narrow_weights_have_exact_measures(composed, tmp_path):
    size = ("dataset.num_nodes=200", "dataset.mean_degree=8", "trainer.max_epochs=1", "callbacks=quiet")
    train_module.train(composed(*size, "trainer.precision=bf16-true"))
    found = json.loads((tmp_path / "result.json").read_text())["metrics"]
    values = torch.tensor([found[f"{split}/{name}"] for split in ("val", "test") for name in ("auc", "ap", "mrr")])
    assert (values != values.bfloat16()).all()


def test_scores_of_narrow_embeddings_are_float32(random_graph):
    datamodule = links_of(random_graph(100, 600))
    embedded = torch.rand(100, 32, generator=torch.Generator().manual_seed(0)).bfloat16()

    class Fixed(LinkPredictor):
        def embed(self, graph, features, *, progress=False):
            return embedded

    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.test(Fixed(4), datamodule=datamodule, verbose=False)
    (held,) = datamodule.test_dataloader()
    positive, negative = (
        (embedded[pairs[:, 0]].float() * embedded[pairs[:, 1]].float()).sum(-1)
        for pairs in (held.links, held.negatives)
    )
    assert trainer.callback_metrics["test/auc"] == pytest.approx(auc(positive, negative), abs=1e-6)


@pytest.mark.parametrize("callbacks", ["default", "quiet"])
def test_curves_are_drawn_unless_a_run_is_quiet(composed, tmp_path, callbacks):
    size = ("dataset.num_nodes=100", "dataset.mean_degree=6", "trainer.max_epochs=1", "logger=none")
    train_module.train(composed(*size, f"callbacks={callbacks}", "callbacks.early_stopping=null"))
    assert (tmp_path / "curves.png").is_file() == (callbacks == "default")


def test_a_foreign_metric_is_refused(composed):
    with pytest.raises(
        ValueError, match="optimized_metric is 'val/acc'; it must be one of train/loss, val/auc, val/ap"
    ):
        train_module.train(composed("optimized_metric=val/acc"))


@pytest.mark.parametrize(("option", "message"), [({"lr": 0}, "lr is 0"), ({"weight_decay": -1}, "weight_decay is -1")])
def test_bad_options_are_refused(option, message):
    with pytest.raises(ValueError, match=message):
        LinkPredictor(3, **option)


def test_scores_are_inner_products(random_graph):
    graph = random_graph(50, 300)
    sampler = LinkSampler(FusedSampler([-1, -1], num_threads=1), Negatives("triplet", 2))
    links = sampler.sample(graph, torch.tensor([[1, 2], [3, 4], [1, 2]]))
    model = LinkPredictor(4, hidden_channels=8, out=6).eval()
    with pytest.raises(ValueError, match="the links have no features"):
        model(links)
    x = torch.rand(50, 4)
    links = links.with_rows({"node": x[links.nodes.long()]})
    embedded = model.net(links.around.blocks, links.around.x).detach()
    ends, truth = links.pairs()
    assert truth.tolist() == [1] * 3 + [0] * 6
    want = [float(embedded[u] @ embedded[v]) for u, v in ends.t().tolist()]
    assert torch.allclose(model(links), torch.tensor(want), atol=1e-6)


def links_of(graph):
    splits = {split: torch.empty(0, dtype=torch.int64) for split in ("train", "val", "test")}
    nodes = graph.num_nodes
    data = NodeDataset("links", graph, torch.randn(nodes, 4), torch.full((nodes,), -1), splits, num_classes=0)
    return LinkDataModule(data, FusedSampler([-1, -1], num_threads=1), val=0.2)


def quiet_trainer(folder, **options):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return Trainer(accelerator="cpu", default_root_dir=folder, **quiet, **options)


@pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers")
def test_links_of_a_full_node_end_no_training(tmp_path):
    """Which has no other node to rank them among: the test would find out after the training."""
    ends = torch.arange(30)
    graph = Graph.from_edges(torch.zeros(29, dtype=torch.int64), ends[1:], 30)  # a star
    trainer = quiet_trainer(tmp_path, max_epochs=1, limit_val_batches=0)
    with pytest.raises(DatasetError, match="dataset links: node 0 has an edge to every other node, so it has no nega"):
        trainer.fit(LinkPredictor(4), links_of(graph))
    assert trainer.global_step == 0


def test_scores_in_bfloat16_have_all_digits(tmp_path, random_graph):
    module, model = links_of(random_graph(60, 500)), LinkPredictor(4)
    trainer = quiet_trainer(tmp_path, precision="bf16-true")
    (found,) = trainer.validate(model, module, verbose=False)
    held = module.held_out("val")
    embedded = model.embed(held.graph, held.features).float()

    def score(pairs):
        return (embedded[pairs[..., 0]] * embedded[pairs[..., 1]]).sum(-1)

    among = torch.stack((held.links[:, :1].expand_as(held.targets), held.targets), -1)
    placed = ranks(score(held.links), score(among))
    wanted = {"auc": auc(score(held.links), score(held.negatives)), "mrr": mrr(placed), "hits@10": hits(placed, 10)}
    assert {name: found[f"val/{name}"] for name in wanted} == pytest.approx(wanted, rel=1e-6)

"""`WalkDataModule`, and an embedding that is trained by it: what resumes, resumes exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from loader.datamodules.walks import WalkDataModule
from loader.datasets import NodeDataset
from loader.graph import Graph
from loader.loaders.whole_graph import WholeGraph
from loader.samplers import FusedSampler, WalkSampler
from loader.samples import Walks
from models.training.embedder import NodeEmbedder

COMMUNITIES, SIZE = 4, 25


def dataset(multilabel: bool = False, val: int = 20) -> NodeDataset:
    """Communities, each a dense random graph, with a few edges between them."""
    g = torch.Generator().manual_seed(0)
    n = COMMUNITIES * SIZE
    of = torch.arange(n) // SIZE
    a = torch.randint(n, (1500,), generator=g)
    inside = of[a] * SIZE + torch.randint(SIZE, (1500,), generator=g)
    b = torch.where(torch.rand(1500, generator=g) < 0.95, inside, torch.randint(n, (1500,), generator=g))
    graph = Graph.from_edges(torch.cat([a, b]), torch.cat([b, a]), n)
    order = torch.randperm(n, generator=g)
    parts = order.split([40, val, n - 40 - val])
    splits = {name: part.sort().values for name, part in zip(("train", "val", "test"), parts, strict=True)}
    labels = torch.stack([of == 0, of < 2, of % 2 == 1], 1).float() if multilabel else of
    return NodeDataset("toy", graph, torch.zeros(n, 1), labels, splits, 3 if multilabel else 4, multilabel)


def make(**changes: Any) -> WalkDataModule:
    law = {"negative_exponent": changes.pop("negative_exponent", 0)}
    sampler = WalkSampler(10, p=0.5, q=2, num_negatives=1, seed=1, num_threads=1, **law)
    data = dataset(changes.pop("multilabel", False), changes.pop("val", 20))
    arguments: dict[str, Any] = {"batch_size": 64, "walks_per_node": 3, "seed": 2, **changes}
    return WalkDataModule(data, sampler, **arguments)


def trainer(folder: Path, **options: Any) -> Trainer:
    return Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=folder, num_sanity_val_steps=0, **{"enable_checkpointing": False, **options},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("multilabel", "objective"), [(False, "torch_geometric"), (True, "torch_geometric"), (True, "word2vec")]
)
def test_an_embedding_knows_the_communities(multilabel: bool, objective: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    exponent = 0.75 if objective == "word2vec" else 0
    datamodule = make(multilabel=multilabel, walks_per_node=10, negative_exponent=exponent)
    datamodule.prepare_data()
    model = NodeEmbedder(**datamodule.sizes, dim=16, context_size=4, lr=0.05, objective=objective)
    runs = trainer(tmp_path, max_epochs=6)
    runs.fit(model, datamodule=datamodule)
    first = dict(runs.callback_metrics)
    assert first["val/acc"] > 0.8
    assert first["train/loss"] < 1.6 + (objective == "word2vec")  # which begins at 6 log 2, not 2 log 2
    runs.test(model, datamodule=datamodule, verbose=False)
    assert runs.callback_metrics["test/test_acc"] > 0.8
    assert ("test/test_macro_f1" in runs.callback_metrics) is multilabel
    assert "gather" not in datamodule.placement()
    datamodule.close()


def test_what_walks_have_not_is_refused() -> None:
    for name in ("eval_sampler", "features", "edge_features", "eval_batch_size"):
        with pytest.raises(ValueError, match=f"{name} is 3; walks have no such choice: leave it null"):
            make(**{name: 3})


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.parametrize("lr_decay", [False, True])
def test_a_resumed_run_equals_an_uninterrupted_one(lr_decay: bool, tmp_path: Path) -> None:
    def fit(folder: Path, checkpoint: Path | None = None, **options: Any) -> tuple[NodeEmbedder, float]:
        torch.manual_seed(0)
        model = NodeEmbedder(100, 4, dim=8, context_size=3, lr_decay=lr_decay)
        saves = ModelCheckpoint(folder, "{step}", every_n_train_steps=7, save_top_k=-1, enable_version_counter=False)
        runs = trainer(folder, callbacks=[saves], enable_checkpointing=True, **options)
        runs.fit(model, datamodule=make(), ckpt_path=checkpoint)
        return model, float(runs.callback_metrics.get("train/loss", -1))

    whole, loss = fit(tmp_path / "whole", max_epochs=2)  # of 5 mini-batches
    begun = tmp_path / "whole"  # a rate that falls has to know of all steps
    if not lr_decay:
        begun = tmp_path / "begun"
        fit(begun, max_steps=7)
    resumed, again = fit(begun, begun / "step=7.ckpt", max_epochs=2)
    assert torch.equal(whole.net().detach(), resumed.net().detach())
    assert again == pytest.approx(loss, rel=1e-6)


def test_the_rate_falls_to_zero(tmp_path: Path) -> None:
    rates = []

    class Rates(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    model = NodeEmbedder(100, 4, dim=8, context_size=3, lr=0.5, lr_decay=True)
    trainer(tmp_path, max_epochs=2, callbacks=[Rates()]).fit(model, datamodule=make())
    assert rates == pytest.approx([0.5 * (1 - step / 10) for step in range(10)])
    with pytest.raises(ValueError, match=r"set trainer\.max_epochs or trainer\.max_steps"):
        trainer(tmp_path, max_epochs=-1).fit(model, datamodule=make())


def test_loaders_walk_in_training_and_evaluate_whole() -> None:
    datamodule = make()
    datamodule.prepare_data()
    datamodule.setup()
    batches = list(datamodule.train_dataloader())
    assert len(batches) == 5
    assert all(isinstance(batch, Walks) for batch in batches)
    starts = torch.cat([batch.starts for batch in batches])
    assert torch.equal(starts.sort().values, torch.arange(100, dtype=torch.int32).repeat_interleave(3))
    whole = datamodule.val_dataloader()
    assert isinstance(whole, WholeGraph)
    assert whole.splits is datamodule.test_dataloader().splits
    assert make(val=0).dataset.splits["val"].numel() == 0
    without = make(val=0)
    without.setup()
    assert without.val_dataloader() == []
    with pytest.raises(ValueError, match="nothing to predict"):
        datamodule.predict_dataloader()
    datamodule.close()


def test_walks_per_node_set_later_count() -> None:
    made = make()
    made.setup()
    before = len(made.train_dataloader())
    made.walks_per_node = 6
    assert len(made.train_dataloader()) == 2 * before
    made.close()


def test_bad_arguments_are_refused() -> None:
    for name, value in (("eval_sampler", FusedSampler([2])), ("features", len), ("eval_batch_size", 3)):
        with pytest.raises(ValueError, match=f"{name} is .* leave it null"):
            make(**{name: value})
    with pytest.raises(TypeError, match="sampler=walks"):
        WalkDataModule(dataset(), FusedSampler([2]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="walks_per_node is 0"):
        make(walks_per_node=0)
    with pytest.raises(ValueError, match="lr is 0"):
        NodeEmbedder(3, 2, lr=0)
    with pytest.raises(TypeError, match="lr_decay is 'no'"):
        NodeEmbedder(3, 2, lr_decay="no")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="c is 0"):
        NodeEmbedder(3, 2, probe_c=0)
    walks = Walks(torch.zeros(2, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"sampler\.num_negatives"):
        NodeEmbedder(3, 2, context_size=2).training_step(walks, 0)

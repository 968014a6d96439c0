"""What a run has trained is used: predictions and evaluations, with the options of that run."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import callbacks
from omegaconf import OmegaConf
from torch import nn
from train_runs import FAST, Composer, composer, in_process

from loader import Graph
from loader.datasets import DatasetError
from models.inference import layerwise_inference
from models.training.checkpoints import read_checkpoint
from models.training.errors import Interrupted
from models.training.link_predictor import LinkPredictor
from models.training.module import NodeClassifier
from models.training.past_run import options_of_past_run, with_choices_of_past_run
from models.training.predict_job import _evaluate
from models.training.trainer import _changed_since

parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Composer]:
    with composer(tmp_path / "new") as make:
        yield make


def write_graph(path: Path, seed: int = 0, **more: Any) -> Path:
    """40 nodes in two classes, whose features tell them apart."""
    rng = np.random.default_rng(seed)
    labels = np.arange(40) % 2
    arrays = {
        "edge_index": rng.integers(0, 40, (2, 200)),
        "features": (labels[:, None] + rng.normal(0, 0.3, (40, 5))).astype(np.float32),
        "labels": labels,
        "train": np.arange(0, 24),
        "val": np.arange(24, 32),
        "test": np.arange(32, 40),
    }
    np.savez(path, **(arrays | more))
    return path


def trained(tmp_path: Path, composed: Composer, *overrides: str) -> Path:
    """The folder of a run, as Hydra keeps its options there."""
    folder = tmp_path / "old"
    chosen = ["callbacks.progress=null", *overrides]
    if not any(one.startswith("dataset=") for one in overrides):
        chosen += ["dataset=npz", f"dataset.path={write_graph(tmp_path / 'graph.npz')}"]
    in_process(composed, f"run_dir={folder}", *chosen)
    (folder / ".hydra").mkdir()
    OmegaConf.save(composed(*FAST, *chosen), folder / ".hydra" / "config.yaml")
    groups = dict(one.split("=") for one in chosen if one.split("=")[0] in ("dataset", "task", "model"))
    OmegaConf.save({"hydra": {"runtime": {"choices": groups}}}, folder / ".hydra" / "hydra.yaml")
    return folder


def use(composed: Composer, folder: Path, mode: str, *overrides: str) -> float:
    import train

    arguments = [f"mode={mode}", f"ckpt_path={folder}/checkpoints/best.ckpt", *overrides]
    return train.train(composed(*with_choices_of_past_run(arguments)))


def rows(tmp_path: Path) -> dict[str, list[Any]]:
    table: dict[str, list[Any]] = parquet.read_table(tmp_path / "new" / "predictions.parquet").to_pydict()
    return table


@pytest.mark.parametrize(
    ("mode", "given", "later"),
    [("predict", [], True), ("predict", ["dataset.later_rows=false"], False), ("evaluate", [], False)],
)
def test_predictions_see_later_rows_unless_told_otherwise(
    tmp_path: Path, composed: Composer, mode: str, given: list[str], later: bool
) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / ".hydra").mkdir()
    (path := tmp_path / "checkpoints" / "best.ckpt").touch()
    chosen = ["dataset=relational", "dataset.path=tables", "dataset.task=again", "model=rsage"]
    OmegaConf.save(composed(*chosen), tmp_path / ".hydra" / "config.yaml")
    cfg = composed(*chosen, f"mode={mode}", f"ckpt_path={path}", *given)
    assert options_of_past_run(cfg, [f"mode={mode}", f"ckpt_path={path}", *given]).dataset.later_rows is later


def test_predictions_are_those_of_the_exact_evaluation(tmp_path: Path, composed: Composer) -> None:
    folder = trained(tmp_path, composed, "model.hidden_channels=8")
    assert use(composed, folder, "predict", "embeddings=true") == 40
    found = rows(tmp_path)
    saved = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)

    from loader.datasets import NpzDataset
    from models.training.module import NodeClassifier

    data = NpzDataset(tmp_path / "graph.npz", cache_dir=tmp_path / "cache").load()
    model = NodeClassifier(5, 2, hidden_channels=8)
    model.load_state_dict(saved["state_dict"])
    logits = layerwise_inference(model.net, data.graph, data.features, progress=False)
    assert found["id"] == list(range(40))
    assert found["prediction"] == logits.argmax(-1).tolist()
    assert found["p_1"] == logits.softmax(-1)[:, 1].tolist()
    assert len([name for name in found if name.startswith("emb_")]) == 8
    assert not list((tmp_path / "new").glob("*.ckpt"))


@pytest.mark.parametrize(("precision", "dtype"), [("64-true", torch.float64), ("bf16-true", torch.bfloat16)])
def test_predictions_have_the_precision_of_the_run(
    tmp_path: Path, composed: Composer, precision: str, dtype: torch.dtype
) -> None:
    folder = trained(tmp_path, composed, "model.hidden_channels=8", f"trainer.precision={precision}")
    use(composed, folder, "predict")
    saved = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)

    from loader.datasets import NpzDataset
    from models.training.module import NodeClassifier

    data = NpzDataset(tmp_path / "graph.npz", cache_dir=tmp_path / "cache").load()
    model = NodeClassifier(5, 2, hidden_channels=8).to(dtype)
    model.load_state_dict(saved["state_dict"])
    logits = layerwise_inference(model.net, data.graph, data.features, progress=False)
    assert logits.dtype == dtype
    assert rows(tmp_path)["p_1"] == logits.float().softmax(-1)[:, 1].tolist()


def test_weights_alone_predict_and_stay_the_best(tmp_path: Path, composed: Composer) -> None:
    options = ("+callbacks.best.save_weights_only=true", "callbacks.step.every_n_train_steps=1")
    folder = trained(tmp_path, composed, *options)
    assert "optimizer_states" not in torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)
    assert use(composed, folder, "predict") == 40
    assert use(composed, folder, "evaluate") >= 0
    best, step = str(folder / "checkpoints" / "best.ckpt"), read_checkpoint(folder / "checkpoints" / "step.ckpt")
    assert _changed_since(best, step["global_step"]) is None
    with pytest.raises(ValueError, match=r"best.ckpt, which holds no optimizer_states, so training cannot go on from"):
        read_checkpoint(Path(best))
    torch.save({"hyper_parameters": {}}, best)
    with pytest.raises(ValueError, match=r"best.ckpt, which holds no state_dict, so there is no model in it; give"):
        use(composed, folder, "predict")


def test_predictions_of_sampled_neighbors_have_every_node_once(tmp_path: Path, composed: Composer) -> None:
    use(composed, trained(tmp_path, composed), "predict", "exact_test=false", "datamodule.eval_batch_size=7")
    assert rows(tmp_path)["id"] == list(range(40))


AVERAGE = "+callbacks.average._target_=lightning.pytorch.callbacks.EMAWeightAveraging"
averages = pytest.mark.skipif(not hasattr(callbacks, "EMAWeightAveraging"), reason="Lightning has it from 2.6 on")


def metrics_of(folder: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads((folder / "result.json").read_text())["metrics"]
    return found


@averages
def test_a_run_tests_averaged_weights_as_saved(tmp_path: Path, composed: Composer) -> None:
    best = ("callbacks.best.monitor=train/loss", "callbacks.best.mode=min")  # weights of a late epoch
    folder = trained(tmp_path, composed, AVERAGE, *best, "model.lr=0.1", "trainer.max_epochs=5")
    use(composed, folder, "evaluate")
    ways = (folder / "result.json", tmp_path / "new" / "metrics.json")
    run, evaluated = (json.loads(path.read_text())["metrics"] for path in ways)
    assert {name: run[name] for name in evaluated} == evaluated


@averages
def test_averages_are_not_saved_as_weights_alone(tmp_path: Path, composed: Composer) -> None:
    with pytest.raises(
        ValueError, match="save_weights_only is true beside WeightAveraging, with which Lightning saves"
    ):
        trained(tmp_path, composed, AVERAGE, "+callbacks.best.save_weights_only=true")


@averages
def test_an_ended_run_goes_on_from_its_weights(tmp_path: Path, composed: Composer) -> None:
    data = ["dataset=npz", f"dataset.path={write_graph(tmp_path / 'graph.npz')}", "callbacks.progress=null"]
    options = [*data, AVERAGE, "callbacks.step.every_n_train_steps=1", "callbacks.best=null", "logger=none"]
    for folder, epochs in (("whole", 6), ("ended", 3), ("ended", 6)):
        step = tmp_path / folder / "checkpoints" / "step.ckpt"
        resumed = [f"ckpt_path={step}"] if step.is_file() else []
        in_process(composed, f"run_dir={tmp_path / folder}", f"trainer.max_epochs={epochs}", *options, *resumed)
    assert metrics_of(tmp_path / "whole") == metrics_of(tmp_path / "ended")


@averages
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.filterwarnings("ignore:You're using the WeightAveraging callback, but loading a checkpoint outside")
def test_averages_are_not_trained(tmp_path: Path, composed: Composer, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = trained(tmp_path, composed, AVERAGE)
    options = f"dataset.path={tmp_path / 'graph.npz'}", f"ckpt_path={folder / 'checkpoints' / 'step.ckpt'}"
    with pytest.raises(ValueError, match="of a run with WeightAveraging, so without it training would go on from the"):
        in_process(composed, "dataset=npz", *options)
    monkeypatch.setattr(NodeClassifier, "configure_callbacks", lambda _: callbacks.EMAWeightAveraging())
    assert in_process(composed, "dataset=npz", *options) > 0


class PressingAtTheEnd(callbacks.Callback):
    """Presses Ctrl-C in the last step of a run of three epochs, which is not one that is saved."""

    def on_before_optimizer_step(self, trainer: Any, *_: Any) -> None:
        if trainer.current_epoch == 2 and trainer.is_last_batch:
            signal.raise_signal(signal.SIGINT)


@averages
@pytest.mark.usefixtures("ctrl_c")
def test_weights_survive_ctrl_c_in_the_last_step(tmp_path: Path, composed: Composer) -> None:
    data = ["dataset=npz", f"dataset.path={write_graph(tmp_path / 'graph.npz')}", "callbacks.progress=null"]
    watched = ["optimized_metric=train/acc", "callbacks.best=null", "callbacks.early_stopping=null"]
    options = [*data, AVERAGE, *watched, "logger=none", "trainer.limit_val_batches=0", "model.lr=0.1"]
    in_process(composed, f"run_dir={tmp_path / 'whole'}", *options, "trainer.max_epochs=6")
    cut, press = f"run_dir={tmp_path / 'cut'}", f"+callbacks.press._target_={__name__}.PressingAtTheEnd"
    with pytest.raises(Interrupted):
        in_process(composed, cut, press, *options, "trainer.max_epochs=3")
    step = tmp_path / "cut" / "checkpoints" / "step.ckpt"
    in_process(composed, cut, *options, "trainer.max_epochs=6", f"ckpt_path={step}")
    assert metrics_of(tmp_path / "whole") == metrics_of(tmp_path / "cut")


class Pressing(callbacks.Callback):
    """Presses Ctrl-C in a hook of the second validation."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, self.press)

    def press(self, trainer: Any, *_: Any) -> None:
        if trainer.current_epoch == 1:
            raise KeyboardInterrupt


@averages
@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("hook", ["batch_start", "epoch_start", "epoch_end"])
def test_averages_survive_ctrl_c_in_a_validation(tmp_path: Path, composed: Composer, hook: str, order: str) -> None:
    data = ["dataset=npz", f"dataset.path={write_graph(tmp_path / 'graph.npz')}", "callbacks.progress=null"]
    options = [*data, "logger=none", "callbacks.best=null", "trainer.max_epochs=5"]
    in_process(composed, f"run_dir={tmp_path / 'whole'}", *options, AVERAGE)
    cut = f"run_dir={tmp_path / 'cut'}"
    press = f"+callbacks.press={{_target_: {__name__}.Pressing, hook: on_validation_{hook}}}"
    with pytest.raises(Interrupted):
        in_process(composed, cut, *options, *((press, AVERAGE) if order == "before" else (AVERAGE, press)))
    in_process(composed, cut, *options, AVERAGE, f"ckpt_path={tmp_path / 'cut' / 'checkpoints' / 'step.ckpt'}")
    assert metrics_of(tmp_path / "whole") == metrics_of(tmp_path / "cut")


def test_an_evaluation_has_the_metrics_of_the_test(tmp_path: Path, composed: Composer, capsys: Any) -> None:
    folder = trained(tmp_path, composed)
    capsys.readouterr()
    use(composed, folder, "evaluate")
    kept = json.loads((tmp_path / "new" / "metrics.json").read_text())["metrics"]
    assert sorted(kept) == ["test/test_acc", "test/train_acc", "test/val_acc"]
    assert f"test/val_acc: {kept['test/val_acc']:.4f}" in capsys.readouterr().out
    use(composed, folder, "evaluate", "model.metrics=[f1,confusion]")
    kept = json.loads((tmp_path / "new" / "metrics.json").read_text())["metrics"]
    assert {"test/test_f1", "test/test_acc"} <= set(kept)
    assert (tmp_path / "new" / "confusion.csv").is_file()


@pytest.mark.parametrize(
    ("optimized", "metrics", "reached"),
    [
        ("val/acc", {"test/train_acc": 0.9, "test/val_acc": 0.8, "test/test_acc": 0.7}, 0.7),
        ("train/loss", {"test/train_acc": 0.9, "test/val_acc": 0.8, "test/test_acc": 0.7}, 0.7),
        ("test/val_acc", {"test/train_acc": 0.9, "test/val_acc": 0.8, "test/test_acc": 0.7}, 0.8),
        ("val/mae", {"test/loss": 3.0, "test/r2": 0.5, "test/mae": 2.0}, 2.0),
    ],
)
def test_a_sweep_compares_the_test_split(
    tmp_path: Path, optimized: str, metrics: dict[str, float], reached: float
) -> None:
    trainer: Any = SimpleNamespace(callback_metrics=metrics, test=lambda *args, **options: None)
    options = {"exact_test": False, "task": "node", "run_dir": str(tmp_path), "ckpt_path": "best.ckpt"}
    cfg = OmegaConf.create({**options, "optimized_metric": optimized})
    model: Any = nn.Identity()
    assert _evaluate(cfg, trainer, model, SimpleNamespace(data=None)) == reached


@pytest.mark.parametrize("option", ["run_dir", "hydra.run.dir"])
def test_the_folder_of_a_run_is_kept(tmp_path: Path, option: str, capsys: Any) -> None:
    given = ["mode=predict", f"ckpt_path={tmp_path}/run/checkpoints/best.ckpt", f"{option}={tmp_path}/run"]
    with pytest.raises(SystemExit):
        with_choices_of_past_run(given)
    message = f"error: {option} is {tmp_path}/run, the folder of the run that ckpt_path is of; its options would be"
    assert capsys.readouterr().err.startswith(message)


def test_options_that_would_be_ignored_are_refused(tmp_path: Path, composed: Composer) -> None:
    import train

    folder = trained(tmp_path, composed)
    with pytest.raises(ValueError, match=r"new_links is 5, but only mode=predict of task=link writes links; leave it"):
        use(composed, folder, "predict", "new_links=5")
    with pytest.raises(
        ValueError, match=r"embeddings is true, but only mode=predict of classes, with exact_test=true, adds"
    ):
        use(composed, folder, "evaluate", "embeddings=true")
    with pytest.raises(ValueError, match=r"embeddings is true, but only mode=predict of classes, with exact_test=true"):
        use(composed, folder, "predict", "embeddings=true", "exact_test=false")
    with pytest.raises(ValueError, match=r"embeddings is true, but only mode=predict"):
        train.train(composed("embeddings=true"))


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_best_new_links_are_written(tmp_path: Path, composed: Composer, precision: str) -> None:
    folder = trained(tmp_path, composed, "task=link", "datamodule.batch_size=64", f"trainer.precision={precision}")
    use(composed, folder, "predict", "new_links=3")
    found = rows(tmp_path)
    assert len(found["source"]) == 120
    assert found["source"] == [node for node in range(40) for _ in range(3)]
    links = np.load(tmp_path / "graph.npz")["edge_index"]
    known = set(zip(*links.tolist(), strict=True))
    assert not {*known, *((v, u) for u, v in known)} & set(zip(found["source"], found["target"], strict=True))
    assert all(0 <= score <= 1 for score in found["score"])


def test_links_are_scored_by_the_graph_of_training(tmp_path: Path, composed: Composer) -> None:
    """Which has all links in both directions, once, without loops; the file lists directed edges."""
    folder = trained(tmp_path, composed, "task=link", "datamodule.batch_size=64")
    use(composed, folder, "predict", "new_links=3")
    found = rows(tmp_path)
    with np.load(tmp_path / "graph.npz") as arrays:
        edges, features = (torch.from_numpy(arrays[name]) for name in ("edge_index", "features"))
    saved = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)
    model = LinkPredictor(**saved["hyper_parameters"])
    model.load_state_dict(saved["state_dict"])
    near = torch.zeros(40, 40, dtype=torch.bool)
    near[tuple(edges)] = True
    ends = (near | near.t()).fill_diagonal_(False).nonzero().t()
    embedded = model.embed(Graph.from_edges(ends[0], ends[1], 40), features)
    scores = (embedded @ embedded.t()).sigmoid()[found["source"], found["target"]]
    torch.testing.assert_close(scores, torch.tensor(found["score"]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "change"),
    [
        (["task=link", "datamodule.batch_size=64"], "seed=3"),
        (["task=link", "datamodule.batch_size=64"], "datamodule.val=0.2"),
        (["dataset.split=[0.5,0.25,0.25]"], "dataset.split_seed=4"),
    ],
)
def test_another_split_is_no_test_of_a_checkpoint(
    tmp_path: Path, composed: Composer, options: list[str], change: str
) -> None:
    """Whose test part may have been trained on."""
    path = write_graph(tmp_path / "graph.npz")
    if "dataset.split" in options[0]:
        with np.load(path) as arrays:
            left = {name: arrays[name] for name in ("edge_index", "features", "labels")}
        np.savez(path, **left)
    folder = trained(tmp_path, composed, "dataset=npz", f"dataset.path={path}", *options)
    assert use(composed, folder, "evaluate") >= 0
    with pytest.raises(ValueError, match="which learned from another train split than this one, so val and test may"):
        use(composed, folder, "evaluate", change)


def test_embeddings_of_walks_are_written(tmp_path: Path, composed: Composer) -> None:
    folder = trained(tmp_path, composed, "model=node2vec", "model.dim=6", "datamodule.batch_size=64")
    use(composed, folder, "predict")
    found = rows(tmp_path)
    weights = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    table = next(value for value in weights.values() if value.shape == (40, 6))
    assert [found[f"emb_{i}"] for i in range(6)] == table.t().tolist()


def test_walks_do_not_depend_on_features(tmp_path: Path, composed: Composer) -> None:
    folder = trained(tmp_path, composed, "model=node2vec", "model.dim=6", "datamodule.batch_size=64")
    path = tmp_path / "graph.npz"
    with np.load(path) as arrays:
        np.savez(path, **{**arrays, "features": 2 * arrays["features"][:, :1]})
    assert use(composed, folder, "evaluate") >= 0
    with np.load(path) as arrays:
        np.savez(path, **{**arrays, "labels": arrays["labels"][::-1]})
    with pytest.raises(ValueError, match=r"of dataset graph whose digest is \w+, but this is dataset graph"):
        use(composed, folder, "evaluate")


def test_a_checkpoint_of_another_dataset_is_refused(tmp_path: Path, composed: Composer) -> None:
    folder = trained(tmp_path, composed)
    other = write_graph(tmp_path / "other.npz", seed=1)
    with pytest.raises(ValueError, match=r"of dataset graph whose name is graph, but this is dataset other"):
        use(composed, folder, "predict", f"dataset.path={other}")
    write_graph(tmp_path / "graph.npz", seed=1)
    with pytest.raises(ValueError, match=r"of dataset graph whose digest is \w+, but this is dataset graph"):
        use(composed, folder, "predict")
    assert not (tmp_path / "new" / "predictions.parquet").exists()


def test_options_of_a_training_are_refused(tmp_path: Path, composed: Composer) -> None:
    folder = trained(tmp_path, composed, "optimized_metric=val/loss")
    for option in (
        f"result_path={tmp_path / 'result.json'}", "timeline=true", "optimized_metric=val/acc", "logger=tensorboard",
        "logger.csv.version=b", "callbacks.early_stopping.patience=3", "+callbacks.own._target_=builtins.dict",
        "trainer.strategy=ddp",
    ):  # fmt: skip
        kind = "trainer.strategy" if option.startswith("trainer") else re.split(r"[.=]", option.lstrip("+"))[0]
        refused = f"{option} does not go with mode=evaluate: {kind} is of a training, and this run has none; leave it"
        with pytest.raises(ValueError, match=f"^{re.escape(refused)}"):
            use(composed, folder, "evaluate", option)
    as_it_was = "optimized_metric=val/loss", "result_path=null", "timeline=false", "logger=none"
    use(composed, folder, "evaluate", *as_it_was, "callbacks.progress=null", "trainer.strategy=auto")


def test_what_cannot_be_done_is_refused_at_once(tmp_path: Path, composed: Composer) -> None:
    import train

    with pytest.raises(ValueError, match=r"mode=predict needs the checkpoint of a run; add ckpt_path="):
        train.train(composed("mode=predict"))
    with pytest.raises(ValueError, match=r"mode is 'predit'; it must be one of train, predict, evaluate"):
        train.train(composed("mode=predit"))
    with pytest.raises(FileNotFoundError, match=r"there is no such file"):
        use(composed, tmp_path, "predict")
    folder = trained(tmp_path, composed)
    with pytest.raises(
        ValueError, match=r"model=node2vec does not go with mode=predict: model is that of .*leave it out"
    ):
        use(composed, folder, "predict", "model=node2vec")
    with pytest.raises(ValueError, match=r"trainer.devices=2 does not go with mode=evaluate: it is one process"):
        use(composed, folder, "evaluate", "trainer.devices=2")
    with pytest.raises(ValueError, match=r"hidden_channels was 256 and is 16"):
        use(composed, folder, "predict", "model.hidden_channels=16")
    (folder / ".hydra" / "config.yaml").unlink()
    with pytest.raises(ValueError, match=r"which has the options of its run, is not there"):
        use(composed, folder, "predict")


@pytest.mark.parametrize("name", ["config.yaml", "hydra.yaml"])
def test_options_that_others_write_are_refused(tmp_path: Path, composed: Composer, name: str) -> None:
    """They name what is called, so they are code; a choice may be an override of anything."""
    folder = trained(tmp_path, composed)
    kept = folder / ".hydra" / name
    planted = {"config.yaml": "model: {_target_: os.abort}", "hydra.yaml": "hydra: {runtime: {choices: {a: b}}}"}
    kept.write_text(planted[name])
    kept.chmod(0o666)
    with pytest.raises(ValueError, match=f"ckpt_path: {kept} is not trusted: others .* so they are code"):
        use(composed, folder, "predict")
    arguments = ["mode=predict", f"ckpt_path={folder / 'checkpoints' / 'best.ckpt'}"]
    assert (with_choices_of_past_run(arguments) == arguments) == (name == "hydra.yaml")


def test_a_dataset_that_is_gone_is_said(tmp_path: Path, composed: Composer) -> None:
    folder = trained(tmp_path, composed)
    (tmp_path / "graph.npz").unlink()
    with pytest.raises((FileNotFoundError, ValueError, DatasetError), match=r"graph\.npz"):
        use(composed, folder, "predict")


def write_tables(folder: Path) -> None:
    """40 people with text ids, of whom 15 have no segment yet."""
    rng = np.random.default_rng(0)
    kinds = np.arange(40) % 2
    rows = [f"p{i},{kinds[i] + rng.normal(0, 0.3):.3f},{'' if i >= 25 else 'ab'[kinds[i]]}" for i in range(40)]
    (folder / "nodes.csv").write_text("\n".join(["person,height,segment", *rows]) + "\n")
    edges = [f"p{a},p{b}" for a, b in rng.integers(0, 40, (200, 2))]
    (folder / "edges.csv").write_text("\n".join(["from,to", *edges]) + "\n")


def test_tables_give_ids_and_classes(tmp_path: Path, composed: Composer) -> None:
    write_tables(tmp_path)
    tables = [f"dataset.{name}={tmp_path}/{name}.csv" for name in ("edges", "nodes")]
    folder = trained(tmp_path, composed, "dataset=edge_list", *tables, "dataset.label=segment")
    use(composed, folder, "predict")
    found = rows(tmp_path)
    assert found["id"] == [f"p{i}" for i in range(40)]
    assert set(found["prediction"]) <= {"a", "b"}
    assert list(found) == ["id", "split", "prediction", "p_a", "p_b"]


@pytest.mark.parametrize("sampled", [False, True])
def test_predictions_tell_the_split_of_each_node(
    tmp_path: Path, composed: Composer, capsys: Any, monkeypatch: pytest.MonkeyPatch, sampled: bool
) -> None:
    import models.training.predict_job

    monkeypatch.setattr(models.training.predict_job, "_ROWS", 10)  # some parts have no split at all
    labels = np.where(np.arange(40) < 20, np.arange(40) % 2, -1)
    arrays = {"labels": labels, "train": np.arange(3, 9), "val": np.arange(12, 15), "test": np.arange(15, 17)}
    graph = write_graph(tmp_path / "graph.npz", **arrays)
    folder = trained(tmp_path, composed, "dataset=npz", f"dataset.path={graph}")
    capsys.readouterr()
    use(composed, folder, "predict", *(["exact_test=false", "datamodule.eval_batch_size=7"] if sampled else []))
    assert "column split has their split, and is null for nodes without a label" in capsys.readouterr().out
    found = dict(zip(rows(tmp_path)["id"], rows(tmp_path)["split"], strict=True))
    of = ["none" if label >= 0 else None for label in labels]
    for split in ("train", "val", "test"):
        for node in arrays[split]:
            of[node] = split
    assert [found[node] for node in range(40)] == of


def append(path: Path, *rows: str) -> None:
    path.write_text(path.read_text() + "".join(f"{row}\n" for row in rows))


def of_tables(tmp_path: Path) -> list[str]:
    tables = [f"dataset.{name}={tmp_path}/{name}.csv" for name in ("edges", "nodes")]
    return ["dataset=edge_list", *tables, "dataset.label=segment"]


@pytest.mark.parametrize("model", [["model=graphsage"], ["model=gcn", "datamodule.eval_batch_size=7"]])
def test_appended_rows_are_predicted_without_training(tmp_path: Path, composed: Composer, model: list[str]) -> None:
    """As the exact inference on a graph by hand, whose features have the means and deviations of training."""
    if model[0] == "model=gcn":
        pytest.importorskip("torch_geometric")
    write_tables(tmp_path)
    folder = trained(tmp_path, composed, *of_tables(tmp_path), *model, "model.hidden_channels=8")
    append(tmp_path / "nodes.csv", "p40,7.5,", "new one,,b", "p41,-3,")
    append(tmp_path / "edges.csv", "p40,p3", "p40,new one", "p5,p41")
    assert use(composed, folder, "predict") == 43
    found = rows(tmp_path)

    from hydra.utils import instantiate

    from loader import Graph
    from loader.loaders.whole_graph import WholeGraph

    people = [line.split(",") for line in (tmp_path / "nodes.csv").read_text().splitlines()[1:]]
    number = {row[0]: i for i, row in enumerate(people)}
    heights = np.array([float(row[1] or "nan") for row in people])
    known = heights[:40]
    features = np.nan_to_num((heights - known.mean()) / known.std()).astype(np.float32)[:, None]
    pairs = [line.split(",") for line in (tmp_path / "edges.csv").read_text().splitlines()[1:]]
    both = {(number[a], number[b]) for a, b in pairs if a != b} | {(number[b], number[a]) for a, b in pairs if a != b}
    graph = Graph.from_edges(*torch.tensor(sorted(both)).t(), 43)
    net = instantiate(composed(*model, "model.hidden_channels=8").model, num_features=1, num_classes=2).eval()
    net.load_state_dict(torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"])
    with torch.no_grad():
        logits, _ = net.infer(WholeGraph(graph, torch.from_numpy(features), torch.zeros(43), {}))
    assert found["id"] == [row[0] for row in people]
    assert found["prediction"] == ["ab"[i] for i in logits.argmax(-1).tolist()]
    assert found["p_b"] == logits.softmax(-1)[:, 1].tolist()


def test_new_links_of_appended_nodes_are_written(tmp_path: Path, composed: Composer) -> None:
    write_tables(tmp_path)
    folder = trained(tmp_path, composed, *of_tables(tmp_path), "task=link", "datamodule.batch_size=64")
    append(tmp_path / "nodes.csv", "p40,0.5,")
    append(tmp_path / "edges.csv", "p40,p3")
    use(composed, folder, "predict", "new_links=2")
    assert rows(tmp_path)["source"].count("p40") == 2


def test_appended_rows_are_no_test_of_a_checkpoint(tmp_path: Path, composed: Composer) -> None:
    write_tables(tmp_path)
    folder = trained(tmp_path, composed, *of_tables(tmp_path))
    append(tmp_path / "nodes.csv", "p40,0.5,a")
    with pytest.raises(ValueError, match="whose num_nodes is 40, but this is dataset edges whose num_nodes is 41"):
        use(composed, folder, "evaluate")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("nodes", "p3,", "q3,", "the ids of the first 40 rows are not those that the checkpoint's training had there"),
        ("nodes", "p39,", "p39x,", "the ids of the first 40 rows are not those"),
        ("edges", "from,to\n", "from,to\np1,p2\n", "the edges of the first 200 rows are not those"),
        ("nodes", ",a\n", ",b\n", "the labels of the first 40 rows are not those"),
        ("nodes", "person,height", "person,size", "has no column 'height'"),
    ],
)
def test_tables_of_another_training_are_refused(
    tmp_path: Path, composed: Composer, file: str, old: str, new: str, message: str
) -> None:
    write_tables(tmp_path)
    folder = trained(tmp_path, composed, *of_tables(tmp_path))
    append(tmp_path / "nodes.csv", "p40,0.5,")
    path = tmp_path / f"{file}.csv"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DatasetError, match=message):
        use(composed, folder, "predict")
    assert not (tmp_path / "new" / "predictions.parquet").exists()


def test_columns_are_read_by_their_names(tmp_path: Path, composed: Composer) -> None:
    """A table whose columns have another order, or a category another frequency, gives the features of training."""
    write_tables(tmp_path)
    nodes = (tmp_path / "nodes.csv").read_text().splitlines()
    header, *people = [line.split(",") for line in nodes]

    def write(order: list[int], more: str = "") -> None:
        table = [[*header, "city", "age"]]
        table += [[*row, "x" if i % 3 else "y", str(i)] for i, row in enumerate(people)]
        (tmp_path / "nodes.csv").write_text("\n".join(",".join(row[at] for at in order) for row in table) + more + "\n")

    write([0, 1, 2, 3, 4])
    folder = trained(tmp_path, composed, *of_tables(tmp_path))
    use(composed, folder, "predict")
    before = rows(tmp_path)
    write([0, 4, 2, 3, 1], "\n" + "\n".join(f"q{i},7,,y,0.1" for i in range(30)))  # now y is more frequent
    use(composed, folder, "predict")
    assert rows(tmp_path)["p_a"][:40] == pytest.approx(before["p_a"], abs=1e-5)


def test_callbacks_without_progress_show_none(tmp_path: Path, composed: Composer, capsys: Any) -> None:
    folder = trained(tmp_path, composed)
    capsys.readouterr()
    use(composed, folder, "predict", "callbacks=quiet")
    assert "Inference" not in capsys.readouterr().out
    assert len(rows(tmp_path)["id"]) == 40


@pytest.mark.parametrize("exact", ["true", "false"])
def test_confusion_names_the_classes_of_tables(tmp_path: Path, composed: Composer, exact: str) -> None:
    nodes = [f"{node},{node % 5},{[7, 30, 4][node % 3]}" for node in range(40)]
    (tmp_path / "n.csv").write_text("\n".join(["id,x,label", *nodes, ""]))
    (tmp_path / "e.csv").write_text("\n".join(["a,b", *(f"{node},{node + 3}" for node in range(37)), ""]))
    tables = f"dataset.edges={tmp_path / 'e.csv'}", f"dataset.nodes={tmp_path / 'n.csv'}", "dataset.label=label"
    options = "dataset=edge_list", *tables, "model.metrics=[confusion]", f"exact_test={exact}"
    folder = trained(tmp_path, composed, *options)
    written = (folder / "confusion.csv").read_text()
    assert [line.split(",")[0] for line in written.splitlines()] == ["true class", "4", "7", "30"]
    assert written.startswith("true class,4,7,30\n")
    use(composed, folder, "evaluate")
    assert (tmp_path / "new" / "confusion.csv").read_text() == written

"""torch_geometric's models in train.py: sampled and exact tests, predictions, mixed precision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from train_runs import FAST, Composer, in_process

from loader.machine import optional
from models.pyg import ARCHITECTURES
from models.training.checkpoints import read_checkpoint
from models.training.predict_job import use_past_run
from models.training.pyg_classifier import PyGClassifier

parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("torch_geometric")

SIZES = (
    "model.hidden_channels=16",
    "trainer.max_epochs=4",
    "model.lr=0.02",
    "datamodule.batch_size=10",
    "callbacks=quiet",
)


@pytest.fixture
def graph(tmp_path: Path) -> str:
    """60 nodes of two classes, whose features tell them apart, as `dataset.path`."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    source = rng.integers(0, 60, 240)
    target = (source + 2 * rng.integers(0, 30, 240)) % 60  # of the same class
    arrays = {
        "edge_index": np.stack((source, target)),
        "features": (labels[:, None] + rng.normal(0, 0.3, (60, 5))).astype(np.float32),
        "labels": labels,
        **{name: np.arange(60)[part] for name, part in (("train", slice(30)), ("val", slice(30, 40)))},
        "test": np.arange(40, 60),
    }
    np.savez(tmp_path / "graph.npz", **arrays)
    return f"dataset.path={tmp_path / 'graph.npz'}"


def use(composed: Composer, tmp_path: Path, *overrides: str) -> Any:
    """The metrics of an evaluation, or the rows of a prediction, with the checkpoint of the run in `tmp_path`."""
    path = tmp_path / "checkpoints" / "best.ckpt"
    cfg = composed(*FAST, *SIZES, "dataset=npz", *overrides, f"ckpt_path={path}", f"run_dir={tmp_path / 'used'}")
    use_past_run(cfg, "asked for", read_checkpoint(path))
    if cfg.mode == "evaluate":
        return json.loads((tmp_path / "used" / "metrics.json").read_text())["metrics"]
    return parquet.read_table(tmp_path / "used" / "predictions.parquet").to_pydict()


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("model", ARCHITECTURES)
def test_a_model_is_trained_tested_and_used(
    composed: Composer, tmp_path: Path, graph: str, model: str, precision: str
) -> None:
    options = [graph, f"model={model}", f"trainer.precision={precision}", "sampler.fanouts=-1"]
    trained = in_process(composed, *SIZES, "dataset=npz", *options, "optimized_metric=test/test_acc")
    assert trained > 0.6
    exact = use(composed, tmp_path, "mode=evaluate", *options)
    assert exact["test/test_acc"] == pytest.approx(trained)
    sampled = use(composed, tmp_path, "mode=evaluate", "exact_test=false", *options)
    if precision == "32-true":
        assert sampled["test/acc"] == pytest.approx(trained)
    found = use(composed, tmp_path, "mode=predict", "embeddings=true", *options)
    assert len([name for name in found if name.startswith("emb_")]) == 16
    labels = np.arange(60) % 2
    assert np.mean(np.array(found["prediction"])[40:] == labels[40:]) == pytest.approx(trained)
    some = use(composed, tmp_path, "mode=predict", "exact_test=false", *options)
    near = 1e-5 if precision == "32-true" else 0.05
    np.testing.assert_allclose(some["p_1"], found["p_1"], atol=near)


def test_bfloat16_in_full_trains(composed: Composer, tmp_path: Path, graph: str) -> None:
    for model in ("gcn", "pna"):
        folder = f"run_dir={tmp_path / model}"
        run = [graph, f"model={model}", "trainer.precision=bf16-true", "optimized_metric=test/test_acc", folder]
        assert in_process(composed, *SIZES, "dataset=npz", *run) > 0.5


def test_pna_knows_the_degrees_of_the_graph(composed: Composer, tmp_path: Path, graph: str) -> None:
    in_process(composed, *SIZES, "dataset=npz", graph, "model=pna", "dataset.undirected=false")
    saved = torch.load(tmp_path / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    degrees = np.bincount(np.load(tmp_path / "graph.npz")["edge_index"][1], minlength=60)
    for name, value in saved.items():
        if name.endswith("avg_deg_lin"):
            assert float(value) == pytest.approx(degrees.mean(), rel=0.1)  # loops and parallel edges are removed


def test_a_missing_package_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> Any:
        raise ModuleNotFoundError(f"No module named '{module}'", name="torch_geometric")

    monkeypatch.setattr(optional.importlib, "import_module", missing)
    with pytest.raises(ImportError, match=r"^model=gin needs the package torch_geometric; pip install 'gnn-loader\["):
        PyGClassifier(1, 2, architecture="gin")


def test_links_are_not_predicted_by_it(composed: Composer) -> None:
    with pytest.raises(ValueError, match="model=gat does not go with task=link, which trains GraphSAGE"):
        in_process(composed, "task=link", "model=gat")

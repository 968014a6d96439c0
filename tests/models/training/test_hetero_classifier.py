"""Models for types in train.py: trained, tested, resumed amid an epoch, used for predictions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hetero_datasets import make_hetero, write_hetero
from hydra.errors import InstantiationException
from train_runs import FAST, Composer, in_process

from loader.datamodules.nodes import GraphDataModule
from loader.samplers import FusedSampler
from models.training.checkpoints import read_checkpoint
from models.training.hetero_classifier import HGTClassifier, ToHeteroClassifier
from models.training.predict_job import use_past_run
from models.training.rgat_classifier import RGATClassifier
from models.training.rgcn_classifier import RGCNClassifier

pytest.importorskip("torch_geometric")

ROWS = ("model=rgcn model.trained_rows=8 model.weight_decay=1e-3", "model=rgcn model.trained_rows=one-hot")
MODELS = ("model=to_hetero", "model=hgt", "model=rgcn", *ROWS, "model=rgat")
SMALL = "dataset=hetero_npz", "model.hidden_channels=8", "model.lr=0.02", "datamodule.batch_size=8", "callbacks=quiet"


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write_hetero(tmp_path)


def weights(path: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = read_checkpoint(path)["state_dict"]
    return found


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(value, b[name]) for name, value in a.items())


def same_state(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(torch.as_tensor(a[name]), torch.as_tensor(b[name])) for name in a)


@pytest.mark.parametrize(
    "base",
    [
        "model=to_hetero",
        "model=to_hetero model.base=gat model.heads=2 model.norm=layer",
        "model=hgt",
        "model=rgcn",
        "model=rgcn model.bases=2 model.norm=layer",
        *ROWS,
        "model=rgat",
        "model=rgat model.heads=2 model.norm=layer",
    ],
)
def test_a_model_learns_and_writes_its_result(composed: Composer, tmp_path: Path, data: str, base: str) -> None:
    value = in_process(composed, *SMALL, data, *base.split(), "trainer.max_epochs=12")
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["metric"] == value > 0.8
    assert result["metrics"]["test/acc"] > 0.7
    assert result["metrics"]["test/macro_f1"] > 0.7


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.parametrize("model", MODELS)
def test_a_resumed_run_ends_as_unbroken_ones(composed: Composer, tmp_path: Path, data: str, model: str) -> None:
    options = [*SMALL, data, *model.split(), "logger=none", "callbacks.step.every_n_train_steps=2"]
    for name in "first", "second":
        in_process(composed, *options, f"run_dir={tmp_path / name}")
    first, second = (weights(tmp_path / name / "checkpoints" / "step.ckpt") for name in ("first", "second"))
    assert same(first, second)
    first_path = tmp_path / "first" / "checkpoints" / "step.ckpt"
    in_process(composed, *options, "trainer.max_steps=6", f"run_dir={tmp_path / 'cut'}")
    cut = tmp_path / "cut" / "checkpoints" / "step.ckpt"
    assert read_checkpoint(cut)["global_step"] == 6  # of 4 mini-batches per epoch
    assert not same(weights(cut), first)
    in_process(composed, *options, f"run_dir={tmp_path / 'cut'}", f"ckpt_path={cut}")
    assert read_checkpoint(cut)["global_step"] == 8
    assert same(weights(cut), first)
    moments = [read_checkpoint(path)["optimizer_states"][0]["state"] for path in (cut, first_path)]
    assert all(same_state(mine, moments[1][i]) for i, mine in moments[0].items())


def use(composed: Composer, tmp_path: Path, *overrides: str) -> Any:
    path = tmp_path / "checkpoints" / "best.ckpt"
    cfg = composed(*FAST, *SMALL, *overrides, f"ckpt_path={path}", f"run_dir={tmp_path / 'used'}")
    use_past_run(cfg, "asked for", read_checkpoint(path))


@pytest.mark.parametrize("model", MODELS)
def test_a_past_run_evaluates_and_predicts(composed: Composer, tmp_path: Path, data: str, model: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    options = [data, *model.split(), "sampler.fanouts=-1"]  # all neighbors, whatever the mini-batch
    in_process(composed, *SMALL, *options)
    tested = json.loads((tmp_path / "result.json").read_text())["metrics"]
    use(composed, tmp_path, "mode=evaluate", *options)
    again = json.loads((tmp_path / "used" / "metrics.json").read_text())["metrics"]
    assert again["test/acc"] == pytest.approx(tested["test/acc"])
    use(composed, tmp_path, "mode=predict", *options)
    rows = parquet.read_table(tmp_path / "used" / "predictions.parquet").to_pydict()
    assert rows["id"] == list(range(60))
    assert np.mean(np.array(rows["prediction"])[40:] == np.arange(40, 60) % 2) == pytest.approx(tested["test/acc"])
    with pytest.raises(ValueError, match=r"exact_test is true, but .*Classifier has no layer\(i, x, block\)"):
        use(composed, tmp_path, "mode=evaluate", "exact_test=true", *options)


def test_macro_f1_is_the_mean_over_classes(composed: Composer, tmp_path: Path, data: str) -> None:
    from sklearn.metrics import f1_score

    parquet = pytest.importorskip("pyarrow.parquet")
    options = [data, "model=hgt", "sampler.fanouts=-1", "model.lr=0.001", "datamodule.eval_batch_size=7"]
    in_process(composed, *SMALL, *options)
    tested = json.loads((tmp_path / "result.json").read_text())["metrics"]
    use(composed, tmp_path, "mode=predict", *options)
    predicted = parquet.read_table(tmp_path / "used" / "predictions.parquet").to_pydict()["prediction"]
    expected = f1_score(np.arange(40, 60) % 2, np.array(predicted)[40:], average="macro", zero_division=0)
    assert tested["test/macro_f1"] == pytest.approx(expected)


def test_macro_f1_leaves_out_a_class_without_nodes(composed: Composer, tmp_path: Path) -> None:
    typed = make_hetero()
    labels = typed.labels.clone()
    labels[0] = 2  # of a node of the train split
    data = write_hetero(tmp_path, replace(typed, labels=labels, num_classes=3))
    in_process(composed, *SMALL, data, "model=hgt", "model.metrics=[f1]")
    tested = json.loads((tmp_path / "result.json").read_text())["metrics"]
    assert tested["test/macro_f1"] == pytest.approx(tested["test/f1"])


@pytest.mark.parametrize("kind", [ToHeteroClassifier, HGTClassifier, RGCNClassifier, RGATClassifier])
def test_every_parameter_gets_a_gradient_or_is_frozen(kind: Any) -> None:
    module = GraphDataModule(make_hetero(), FusedSampler([1, 1]), batch_size=2)
    module.setup()
    model = kind(**module.sizes)
    loss, _ = model._loss(next(iter(module.train_dataloader())))
    loss.backward()
    assert all((p.grad is not None) == p.requires_grad for p in model.parameters())
    # Of the last layer, for papers and terms, unless one parameter has all types.
    assert kind is RGCNClassifier or any(not p.requires_grad for p in model.parameters())
    module.close()


@pytest.mark.parametrize("model", ["rgat", "hgt"])
def test_chunks_of_an_exact_test_are_refused(composed: Composer, tmp_path: Path, model: str, data: str) -> None:
    options = data, f"run_dir={tmp_path}", f"model={model}", "+model.inference_chunk_mib=64"
    with pytest.raises(InstantiationException, match=r"inference_chunk_mib is 64, but .* is tested with sampled"):
        in_process(composed, *SMALL, *options)


def test_rows_where_all_types_have_features_are_refused(composed: Composer, tmp_path: Path) -> None:
    typed = make_hetero()
    data = write_hetero(tmp_path, replace(typed, features={**typed.features, "paper": torch.ones(40, 2)}))
    with pytest.raises(InstantiationException, match=r"trained_rows is 8, but all node types \(.*\) have features"):
        in_process(composed, *SMALL, data, "model=rgcn", "model.trained_rows=8")

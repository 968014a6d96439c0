"""Links between nodes of several types in train.py: trained, tested, resumed amid an epoch, used for predictions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hetero_datasets import make_purchases, write_hetero
from train_runs import FAST, Composer, in_process

from models.training.checkpoints import read_checkpoint
from models.training.predict_job import use_past_run

pytest.importorskip("torch_geometric")

LINKS = (
    "task=link", "dataset=hetero_npz", "datamodule.edge_type=user__buys__item",
    "datamodule.reverse=item__rev_buys__user", "datamodule.batch_size=64", "datamodule.eval_negatives=5",
    "model.hidden_channels=8", "model.out=8", "callbacks.early_stopping=null",
)  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write_hetero(tmp_path, make_purchases())


def test_a_model_learns_what_users_buy(composed: Composer, tmp_path: Path, data: str) -> None:
    """Three quarters of all pairs are of other groups; the best AUC is 0.875."""
    value = in_process(composed, *LINKS, data, "trainer.max_epochs=20")
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["metric"] == value > 0.75
    assert result["metrics"]["test/auc"] > 0.75
    assert {f"test/{name}" for name in ("ap", "mrr", "hits@1", "hits@3", "hits@10")} <= result["metrics"].keys()


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.filterwarnings("ignore:.*could not find the monitored key:UserWarning")  # of the run that is cut
def test_a_resumed_run_ends_as_unbroken_ones(composed: Composer, tmp_path: Path, data: str) -> None:
    options = [*LINKS, data, "logger=none", "callbacks.step.every_n_train_steps=2"]
    for name in "first", "second":
        in_process(composed, *options, f"run_dir={tmp_path / name}")
    in_process(composed, *options, "trainer.max_steps=4", f"run_dir={tmp_path / 'cut'}")
    cut = tmp_path / "cut" / "checkpoints" / "step.ckpt"
    assert read_checkpoint(cut)["global_step"] == 4
    in_process(composed, *options, f"ckpt_path={cut}", f"run_dir={tmp_path / 'cut'}")
    ended = [read_checkpoint(tmp_path / name / "checkpoints" / "step.ckpt") for name in ("first", "second", "cut")]
    assert ended[0]["global_step"] > 8
    for other in ended[1:]:
        assert other["global_step"] == ended[0]["global_step"]
        assert all(torch.equal(value, other["state_dict"][name]) for name, value in ended[0]["state_dict"].items())


def test_predictions_are_new_links(composed: Composer, tmp_path: Path, data: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    in_process(composed, *LINKS, data, "trainer.max_epochs=1")
    cfg = composed(*FAST, *LINKS, data, f"run_dir={tmp_path}", "new_links=3")
    path = tmp_path / "checkpoints" / "best.ckpt"
    cfg.mode, cfg.ckpt_path = "predict", str(path)
    assert use_past_run(cfg, "given", read_checkpoint(path)) == 120 * 3
    rows = parquet.read_table(tmp_path / "predictions.parquet").to_pydict()
    assert sorted(set(rows["source"])) == list(range(120))
    assert max(rows["target"]) < 80
    cfg = composed(*FAST, *LINKS, data, f"run_dir={tmp_path}", "mode=evaluate", f"ckpt_path={path}")
    assert 0 <= use_past_run(cfg, "given", read_checkpoint(path)) <= 1


def test_a_type_without_features_has_trained_rows(composed: Composer, data: str, tmp_path: Path) -> None:
    in_process(composed, *LINKS, data, "trainer.max_epochs=1", f"run_dir={tmp_path / 'run'}")
    (path,) = (tmp_path / "run" / "checkpoints").glob("best*.ckpt")
    weights = read_checkpoint(path)["state_dict"]
    assert {name: list(t.shape) for name, t in weights.items() if "rows" in name} == {"net.rows.item.weight": [80, 8]}


def test_a_plain_dataset_has_no_relation(composed: Composer) -> None:
    options = "task=link", "dataset=synthetic", "datamodule.exclude=self", "datamodule.edge_type=a__to__b"
    with pytest.raises(ValueError, match="has one type of nodes and edges"):
        in_process(composed, *options)

"""Tasks on tables in train.py: trained, tested, resumed amid an epoch, used for predictions."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hydra.errors import InstantiationException
from marks import needs_frame, needs_gpu
from shop import edit, write_shop
from train_runs import FAST, Composer, in_process

from loader.datasets import DatasetError
from models.training.checkpoints import read_checkpoint
from models.training.option_rules import check_rules, of_values
from models.training.predict_job import use_past_run
from models.training.relational_job import WrittenItems, watch_task

pytestmark = needs_frame
parquet = pytest.importorskip("pyarrow.parquet")

SMALL = (
    "dataset=relational", "model=rsage", "model.hidden_channels=8", "model.encoder_layers=1", "model.dropout=0",
    "sampler.fanouts=[8,4]", "datamodule.batch_size=32", "callbacks=quiet",
)  # fmt: skip


LEARNING = "trainer.max_epochs=15", "model.lr=0.01", "datamodule.batch_size=8"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write_shop(tmp_path / "shop")


def options(shop: Path, task: str = "again", *more: str) -> list[str]:
    return [*SMALL, f"dataset.path={shop}", f"dataset.task={task}", *more]


@pytest.mark.parametrize(
    ("task", "metric", "limit"), [("again", "auroc", 0.9), ("mood", "acc", 0.85), ("spent", "mae", 8.0)]
)
def test_a_task_is_learnt(
    composed: Composer,
    tmp_path: Path,
    shop: Path,
    capsys: pytest.CaptureFixture[str],
    task: str,
    metric: str,
    limit: float,
) -> None:
    value = in_process(composed, *options(shop, task, *LEARNING))
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["config"]["optimized_metric"] == f"val/{metric}"
    assert result["metric"] == value
    tested = result["metrics"][f"test/{metric}"]
    assert tested < limit if metric == "mae" else tested > limit
    assert f"task {task}" in capsys.readouterr().out


def weights(path: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = read_checkpoint(path)["state_dict"]
    return found


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_a_resumed_run_ends_as_an_unbroken_one(composed: Composer, tmp_path: Path, shop: Path) -> None:
    given = options(shop, "again", "logger=none", "callbacks.step.every_n_train_steps=2", "model.dropout=0.2")
    in_process(composed, *given, f"run_dir={tmp_path / 'whole'}")
    in_process(composed, *given, "trainer.max_steps=6", f"run_dir={tmp_path / 'cut'}")
    cut = tmp_path / "cut" / "checkpoints" / "step.ckpt"
    assert read_checkpoint(cut)["global_step"] == 6
    in_process(composed, *given, f"run_dir={tmp_path / 'cut'}", f"ckpt_path={cut}")
    whole = weights(tmp_path / "whole" / "checkpoints" / "step.ckpt")
    assert all(torch.equal(value, whole[name]) for name, value in weights(cut).items())


def use(composed: Composer, tmp_path: Path, *overrides: str) -> Any:
    path = tmp_path / "checkpoints" / "best.ckpt"
    cfg = composed(*FAST, *overrides, f"ckpt_path={path}", f"run_dir={tmp_path / 'used'}")
    use_past_run(cfg, "asked for", read_checkpoint(path))


@pytest.mark.parametrize(("task", "metric"), [("again", "acc"), ("mood", "acc"), ("spent", "mae")])
def test_a_past_run_evaluates_and_predicts(
    composed: Composer, tmp_path: Path, shop: Path, task: str, metric: str
) -> None:
    # All neighbors, whatever the mini-batch, and nothing after the beginning of test.
    given = options(shop, task, "sampler.fanouts=-1", "model.lr=0.02", "sampler.missing_times=never")
    edit(
        shop / "orders.csv", lambda text: "\n".join(line for line in text.splitlines() if "2020-04" not in line) + "\n"
    )
    in_process(composed, *given, "trainer.max_epochs=3")
    tested = json.loads((tmp_path / "result.json").read_text())["metrics"]
    use(composed, tmp_path, "mode=evaluate", *given)
    again = json.loads((tmp_path / "used" / "metrics.json").read_text())["metrics"]
    assert again == pytest.approx({name: value for name, value in tested.items() if name.startswith("test/")})
    use(composed, tmp_path, "mode=predict", *given)
    rows = parquet.read_table(tmp_path / "used" / "predictions.parquet").to_pandas()
    lines = [line.split(",") for line in (shop / "items.csv").read_text().splitlines()[1:]]
    items = [line for line in lines if line[1] >= "2020-04-01"]
    assert rows["who"].tolist() == [line[0] for line in items]
    assert [str(at) for at in rows["time"].to_numpy().astype("datetime64[s]")] == [line[1] for line in items]
    shares = {"again": ["p_1"], "spent": [], "mood": ["p_happy", "p_sad"]}[task]
    assert list(rows.columns) == ["who", "time", "prediction", *shares]
    column = {"again": 2, "spent": 3, "mood": 4}[task]
    labels = [line[column] for line in items]
    if task == "spent":
        assert np.abs(rows["prediction"] - np.array(labels, float)).mean() == pytest.approx(
            tested["test/mae"], rel=1e-4
        )
    else:
        assert np.mean(rows["prediction"].astype(str) == labels) == pytest.approx(tested[f"test/{metric}"])


def test_an_evaluation_picks_as_the_test_did(composed: Composer, tmp_path: Path, shop: Path) -> None:
    given = options(shop, "again", "sampler.fanouts=[2,1]")
    in_process(composed, *given, "trainer.max_epochs=2")
    tested = json.loads((tmp_path / "result.json").read_text())["metrics"]
    use(composed, tmp_path, "mode=evaluate", *given)
    again = json.loads((tmp_path / "used" / "metrics.json").read_text())["metrics"]
    assert again["test/loss"] == pytest.approx(tested["test/loss"], rel=1e-6)


def test_new_customers_and_orders_are_predicted_for(composed: Composer, tmp_path: Path, shop: Path) -> None:
    in_process(composed, *options(shop, "again", *LEARNING))
    edit(shop / "customers.csv", lambda text: text + "new_good,Rome,1979-01-11\nnew_bad,Rome,1979-01-11\n")
    orders, reviews = "", ""
    for who, first, amount, stars in (("new_good", 5000, 30, 5), ("new_bad", 6000, 10, 1)):
        for i in range(9):
            orders += f"{first + i},{who},x,{i % 5},{amount},2020-0{1 + i % 5}-0{1 + i}T00:00:00\n"
            reviews += f"{first + i},{stars},text\n" if i % 2 else ""
    edit(shop / "orders.csv", lambda text: text + orders)
    edit(shop / "reviews.csv", lambda text: text + reviews)
    (shop / "new.csv").write_text("who,at\nnew_bad,2020-05-20\nnew_good,2020-05-20\n")
    use(
        composed,
        tmp_path,
        "mode=predict",
        "dataset.later_rows=true",
        *options(shop, "again", f"dataset.items={shop / 'new.csv'}", *LEARNING[1:]),
    )
    found = parquet.read_table(tmp_path / "used" / "predictions.parquet").to_pydict()
    assert found["who"] == ["new_bad", "new_good"]
    assert found["p_1"][0] < 0.5 < found["p_1"][1]


def test_predictions_stay_in_the_trainings_range(composed: Composer, tmp_path: Path, shop: Path) -> None:
    given = options(shop, "spent", "sampler.fanouts=-1", "trainer.max_epochs=1")
    in_process(composed, *given)
    use(composed, tmp_path, "mode=predict", *given)
    wanted = parquet.read_table(tmp_path / "used" / "predictions.parquet")
    lines = [line.split(",") for line in (shop / "items.csv").read_text().splitlines()]
    early = [[*line[:3], str(float(line[3]) + 100), *line[4:]] for line in lines[1:] if line[1] < "2020-03-01"]
    late = [line for line in lines[1:] if line[1] >= "2020-03-01"]
    (shop / "items.csv").write_text("\n".join(",".join(line) for line in [lines[0], *early, *late]) + "\n")
    use(composed, tmp_path, "mode=predict", *given)
    assert parquet.read_table(tmp_path / "used" / "predictions.parquet").equals(wanted)


def test_what_an_experiment_watches_stays(composed: Composer, shop: Path) -> None:
    cfg = composed(*options(shop, "again", "callbacks=default", "callbacks.best.monitor=val/ap", "schedule=plateau"))
    watch_task(cfg, [])  # as if a file had said it, and not the command line
    assert (cfg.callbacks.best.monitor, cfg.callbacks.early_stopping.monitor) == ("val/ap", "val/auroc")
    assert (cfg.schedule.monitor, cfg.schedule.mode) == ("val/auroc", "max")


def test_a_checkpoint_of_another_task_is_refused(composed: Composer, tmp_path: Path, shop: Path) -> None:
    in_process(composed, *options(shop, "again", "trainer.max_epochs=1"))
    with pytest.raises(ValueError, match=r"ckpt_path is .*best\.ckpt, which .*task"):
        use(composed, tmp_path, "mode=predict", *options(shop, "spent"))
    for mode in ("predict", "evaluate"):
        with pytest.raises(
            ValueError, match=r"exact_test is true, but .*TaskPredictor has no infer\(whole\), so it can"
        ):
            use(composed, tmp_path, f"mode={mode}", *options(shop, "again", "exact_test=true"))
    cfg = composed("mode=predict", "embeddings=true", *options(shop, "again"))
    with pytest.raises(ValueError, match=r"^embeddings is true, but only mode=predict of classes, with"):
        check_rules(cfg, of_values)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["dataset=relational", "dataset.path={shop}", "dataset.task=again"],
            "has a task on tables, which model=rsage le",
        ),
        (
            ["dataset=digits", "model=rsage"],
            r"model=rsage learns a task on tables, and dataset is .*Digits; give dataset=",
        ),
        ([*SMALL, "dataset.path={shop}", "dataset.task=agian"], r"has no task 'agian'; .* did you mean again"),
        ([*SMALL, "dataset.path={shop}", "dataset.task=again", "task=link"], "model=.* does not go with task=link"),
        ([*SMALL, "dataset.path={shop}", "dataset.task=again", "model.num_layers=3"], r"has 2 entries for 3 layers"),
        (
            [*SMALL, "dataset.path={shop}", "dataset.task=again", "optimized_metric=val/aucroc"],
            "it must be one of .*did you",
        ),
        (
            [*SMALL, "dataset.path={shop}", "dataset.task=spent", "optimized_metric=val/auroc"],
            "is val/auroc, and task spent is a regression; .*val/mae",
        ),
        (
            [*SMALL, "dataset.path={shop}", "dataset.task=spent", "callbacks.best.monitor=val/ap"],
            r"callbacks\.best\.monitor is val/ap, and task spent is a regression; .*val/mae",
        ),
        (
            [*SMALL, "dataset.path={shop}", "dataset.task=again", "sampler.times=none"],
            "ignores them, so that items would",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    composed: Composer, tmp_path: Path, shop: Path, given: list[str], message: str
) -> None:
    with pytest.raises((ValueError, DatasetError, InstantiationException), match=message):
        in_process(composed, *(one.format(shop=shop) for one in given))
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("unique", ["true", "false"])
class TestOnGPU:
    pytestmark = needs_gpu

    def test_a_gpu_learns_it_too(self, composed: Composer, tmp_path: Path, shop: Path, unique: str) -> None:
        given = options(shop, "again", *LEARNING, "device=cuda", f"model.unique_rows={unique}")
        in_process(composed, *given)
        result = json.loads((tmp_path / "result.json").read_text())
        assert result["metrics"]["test/auroc"] > 0.9


@pytest.mark.parametrize("entity", ["time", "prediction", "p_1"])
def test_an_entity_called_as_a_prediction_is_refused(entity: str) -> None:
    with pytest.raises(
        ValueError, match=f"the entity of task again is in column {entity}, and predictions have the col"
    ):
        WrittenItems(SimpleNamespace(), SimpleNamespace(entity=entity, task="again"))  # type: ignore[arg-type]

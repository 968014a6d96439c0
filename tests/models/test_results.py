"""Tables of sweeps: which options differ, seeds in one row, resumed jobs once, the best job, the picture."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from PIL import Image

from models import results
from models.results import SweepResults, best_of, mean_and_deviation, read_jobs, rows, show


def write(folder: Path, value: float, *overrides: str, metric: str = "val/acc", **changes: Any) -> Path:
    """The result of a job, as `JobResult` writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    result = {
        "metric": value,
        "metrics": {"train/loss": 0.5, "test/test_acc": value - 0.1, "test/train_acc": 1.0},
        "seconds": 2.0,
        "overrides": list(overrides),
        "settings": "/".join(overrides),
        "config": {"optimized_metric": metric},
        **changes,
    }
    path = folder / "result.json"
    path.write_text(json.dumps(result))
    return path


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """2 samplers x 3 seeds."""
    values = {"fused": (0.80, 0.82, 0.84), "hopwise": (0.70, 0.80, 0.90)}
    for sampler, found in values.items():
        for seed, value in enumerate(found):
            overrides = f"sampler={sampler}", f"seed={seed}", "trainer.max_epochs=2", f"data_dir=/{seed}"
            write(tmp_path / "sweep" / f"{sampler}{seed}", value, *overrides)
    return tmp_path / "sweep"


def test_a_row_has_the_options_that_differ(sweep: Path) -> None:
    found = rows(read_jobs([sweep]))
    assert [row.options for row in found] == [{"sampler": "fused"}, {"sampler": "hopwise"}]
    assert [len(row.jobs) for row in found] == [3, 3]


def test_the_table_has_means_and_the_best_job(sweep: Path, capsys: Any) -> None:
    show([sweep])
    shown = capsys.readouterr().out
    for words in ("0.8200 ± 0.0200", "0.8000 ± 0.1000", "0.7200 ± 0.0200", "6 jobs", "val/acc", "test/test_acc", "2.0"):
        assert words in shown
    assert "test/train_acc" not in shown
    assert f"best: val/acc 0.9000 in {sweep / 'hopwise2'}" in shown
    with Image.open(sweep / "results.png") as picture:
        assert picture.width > 500


def test_jobs_without_a_result_are_named(sweep: Path, capsys: Any) -> None:
    for name, more in (
        ("fused2", ""),
        ("killed", ""),
        ("own", "result_path: ${run_dir}/result.json"),
        ("predicts", "mode: predict"),
        ("elsewhere", "result_path: /results/a.json"),
    ):
        (sweep / name / ".hydra").mkdir(parents=True)
        config = {"mode": "train", "optimized_metric": "val/acc", "result_path": None}
        OmegaConf.save(OmegaConf.merge(config, OmegaConf.create(more)), sweep / name / ".hydra" / "config.yaml")
    show([sweep])
    said = f"still run: jobs without a result, {sweep / 'killed'}, {sweep / 'own'}\n"
    assert said in capsys.readouterr().out


def test_a_resumed_job_counts_once(sweep: Path, tmp_path: Path) -> None:
    resumed = write(
        tmp_path / "outputs" / "later", 0.95, "sampler=fused", "seed=0", "trainer.max_epochs=2", "data_dir=/0"
    )
    os.utime(resumed, (2e9, 2e9))
    jobs = read_jobs([sweep, tmp_path / "outputs"])
    assert len(jobs) == 6
    assert {job.value for job in jobs} == {0.95, 0.82, 0.84, 0.70, 0.80, 0.90}


def test_jobs_of_other_configurations_are_no_seeds(tmp_path: Path) -> None:
    """Of equal command lines: a file of conf/ was edited, or it was another device. Neither is a seed."""
    for seed, (width, device) in enumerate([(64, "cpu"), (64, "cpu"), (256, "cpu"), (256, "cuda")]):
        config = {
            "optimized_metric": "val/acc",
            "device": device,
            "seed": seed,
            "model": {"width": width, "seed": seed},
        }
        write(tmp_path / str(seed), 0.5 + seed / 10, f"seed={seed}", config=config)
    found = rows(read_jobs([tmp_path]))
    assert [row.options for row in found] == [
        {"device": device, "model.width": width} for device, width in (("cpu", "64"), ("cpu", "256"), ("cuda", "256"))
    ]
    assert [len(row.jobs) for row in found] == [2, 1, 1]


def test_an_option_that_others_give_is_compared(tmp_path: Path) -> None:
    """Two jobs of another width in a file of conf/, which a third job gives on its command line."""
    for seed, (width, given) in enumerate([(64, []), (256, []), (8, ["model.width=8"]), (8, ["model.width=8"])]):
        config = {"optimized_metric": "val/acc", "model": {"width": width}, "logger": {"name": f"job{seed}"}}
        write(tmp_path / str(seed), 0.5, f"seed={seed}", "logger.name=job${seed}", *given, config=config)
    found = rows(read_jobs([tmp_path]))
    assert [(row.options, len(row.jobs)) for row in found] == [
        ({"model.width": "64"}, 1),
        ({"model.width": "256"}, 1),
        ({"model.width": "8"}, 2),
    ]


@pytest.mark.parametrize(("key", "column"), [("files", "files of the dataset"), ("code", "files of own classes")])
def test_jobs_of_other_files_are_not_resumed_ones(tmp_path: Path, key: str, column: str) -> None:
    for name, files in (("a", "1234567890"), ("b", "abcdefghij"), ("c", "abcdefghij")):
        write(tmp_path / name, 0.5, "seed=0", **{key: files})
    found = rows(read_jobs([tmp_path]))
    assert [(row.options, len(row.jobs)) for row in found] == [({column: "12345678"}, 1), ({column: "abcdefgh"}, 1)]


def test_an_option_that_jobs_lack_is_default(sweep: Path) -> None:
    write(sweep / "other", 0.5, "sampler=fused", "seed=0", "+model.width=3")
    found = [tuple(row.options.items()) for row in rows(read_jobs([sweep]))]
    assert len(found) == 3
    assert (("sampler", "fused"), ("trainer.max_epochs", "default"), ("model.width", "3")) in found
    assert (("sampler", "fused"), ("trainer.max_epochs", "2"), ("model.width", "default")) in found


def test_the_least_loss_is_the_best(tmp_path: Path) -> None:
    for value in (0.5, 0.2, float("nan")):
        write(tmp_path / str(value), value, f"model.lr={value}", metric="train/loss")
    jobs = read_jobs([tmp_path])
    best = best_of(jobs)
    assert best is not None
    assert best.value == 0.2
    write(tmp_path / "other", 0.9, "model.lr=7", metric="val/acc")
    assert best_of(read_jobs([tmp_path])) is None


@pytest.mark.parametrize(("metric", "best"), [("val/mae", 0.2), ("val/r2", 0.9), ("test/loss", 0.2)])
def test_the_least_error_is_the_best(tmp_path: Path, metric: str, best: float) -> None:
    for value in (0.5, 0.2, 0.9):
        write(tmp_path / str(value), value, f"model.lr={value}", metric=metric)
    found = best_of(read_jobs([tmp_path]))
    assert found is not None
    assert found.value == best


def test_callbacks_say_that_the_least_is_best(tmp_path: Path) -> None:
    watched = {"best": {"monitor": "val/rmse", "mode": "min"}, "curves": None}
    for value in (0.5, 0.2, 0.9):
        config = {"optimized_metric": "val/rmse", "callbacks": watched}
        write(tmp_path / str(value), value, f"model.lr={value}", config=config)
    found = best_of(read_jobs([tmp_path]))
    assert found is not None
    assert found.value == 0.2


@pytest.mark.parametrize(
    "given",
    [
        "callbacks.early_stopping.patience=3",
        "callbacks.best.monitor=val/loss",
        "callbacks=none",
        "~callbacks.early_stopping",
        "~schedule",
    ],
)
def test_what_decides_a_run_has_rows(tmp_path: Path, given: str) -> None:
    for seed in range(2):
        write(tmp_path / f"plain{seed}", 0.8, f"seed={seed}", f"callbacks.progress.refresh_rate={seed}")
        write(tmp_path / f"other{seed}", 0.7, f"seed={seed}", given)
    name, _, value = given.partition("=")
    found = rows(read_jobs([tmp_path]))
    assert [(row.options, len(row.jobs)) for row in found] == [({name: value or "left out"}, 2), ({name: "default"}, 2)]


@pytest.mark.parametrize("given", ["+callbacks.mine.decay", "+callbacks.mine._target_"])
def test_callbacks_of_other_classes_have_rows(tmp_path: Path, given: str) -> None:
    show_only = {"_target_": "models.training.callbacks.ProgressBar", "refresh_rate": 1}
    for seed in range(2):
        plain = {"optimized_metric": "val/acc", "callbacks": {"progress": {**show_only, "refresh_rate": seed}}}
        mine = {"_target_": "lightning.pytorch.callbacks.EMAWeightAveraging", "decay": 0.9}
        other = {**plain, "callbacks": {"progress": show_only, "mine": mine}}
        write(tmp_path / f"plain{seed}", 0.8, f"seed={seed}", config=plain)
        write(tmp_path / f"other{seed}", 0.7, f"seed={seed}", f"{given}={mine[given.split('.')[-1]]}", config=other)
    assert [len(row.jobs) for row in rows(read_jobs([tmp_path]))] == [2, 2]


def test_one_value_has_no_deviation() -> None:
    assert mean_and_deviation([]) == "-"
    assert mean_and_deviation([0.5]) == "0.5000"
    assert mean_and_deviation([0.5, float("nan")]) == "nan"


def test_the_callback_prints_when_a_sweep_ends(sweep: Path, capsys: Any, tmp_path: Path) -> None:
    SweepResults().on_multirun_end(OmegaConf.create({"hydra": {"sweep": {"dir": str(sweep)}}}))
    assert "best: val/acc" in capsys.readouterr().out
    (tmp_path / "none").mkdir()
    SweepResults().on_multirun_end(OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path / "none")}}}))
    assert capsys.readouterr().out == ""


def test_the_command_refuses_in_one_line(sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["results", str(tmp_path / "nowhere")])
    with pytest.raises(
        SystemExit, match=r"^error: there is no result.json below .*nowhere; give the folder of a sweep"
    ):
        results.main()
    (sweep / "fused0" / "result.json").write_text("[]")
    monkeypatch.setattr(sys, "argv", ["results", str(sweep)])
    with pytest.raises(SystemExit, match=r"^error: .*result.json is no result of a job; remove it, or give another"):
        results.main()


def test_a_command_without_folder_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["results"])
    with pytest.raises(SystemExit):
        results.main()
    assert capsys.readouterr().err.startswith("error: the following arguments are required: FOLDER; `python -m models.")

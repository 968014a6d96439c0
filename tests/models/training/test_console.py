"""The configuration of a run, saved."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from train_runs import Composer

from models.training.console import (
    announce,
    announce_resume,
    described,
    folders,
    leave_no_empty_folder,
    save_config,
    wrapped,
)


def test_saves_the_resolved_configuration_and_prints_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = OmegaConf.create(
        {"seed": 3, "sampler": {"seed": "${seed}"}, "datamodule": {"size": 2, "sampler": "${sampler}"}, "none": None}
    )
    path = save_config(cfg, tmp_path / "run")
    assert path == tmp_path / "run" / "config.yaml"
    assert capsys.readouterr().out == ""
    assert OmegaConf.load(path) == OmegaConf.create(
        {"seed": 3, "sampler": {"seed": 3}, "datamodule": {"size": 2, "sampler": {"seed": 3}}, "none": None}
    )


def test_a_value_that_does_not_resolve_saves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OmegaConfBaseException, match="elsewhere"):
        save_config(OmegaConf.create({"a": "${elsewhere}"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("first", [True, False])
def test_the_first_line_names_device_and_configuration(
    first: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    announce(OmegaConf.create({"device": "cpu", "run_dir": str(tmp_path)}), "asked for", first)
    shown = f"device: cpu (asked for); configuration: {tmp_path / 'config.yaml'}\n"
    assert capsys.readouterr().out == (shown if first else "")
    assert (tmp_path / "config.yaml").is_file() == (tmp_path / "README.txt").is_file() == first


def test_a_run_says_that_it_replaces_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replaced = f"{tmp_path} has the files of an earlier run: this one replaces them\n"
    options = {"device": "cpu", "run_dir": str(tmp_path)}
    for more, told in (({}, False), ({}, True), ({"ckpt_path": "/a/step.ckpt"}, False)):
        announce(OmegaConf.create({**options, **more}), "asked for", True)
        assert (replaced in capsys.readouterr().out) == told


def test_the_folder_says_what_its_files_are(composed: Composer) -> None:
    text = described(composed("callbacks=quiet", "checkpoint_dir=/a/checkpoints"))
    assert "step.ckpt\n    a state of the training: after step 1, 2, 4 and so on, then every 1000 steps, and on" in text
    assert "/a/checkpoints/best.ckpt\n    the weights with the best val/acc\n" in text
    assert "    ckpt_path=/a/checkpoints/step.ckpt\n" in text
    assert "    python train.py mode=predict ckpt_path=/a/checkpoints/best.ckpt\n" in text
    assert "csv/\n" in text
    assert "curves.png" not in text
    assert "timeline" not in text
    assert "confusion.csv" not in text
    more = described(composed("timeline=true", "model.metrics=[f1,confusion]"))
    for name in (
        "train.log\n",
        "curves.png\n    loss and accuracy of",
        "timeline.png, timeline.json\n",
        "confusion.csv\n",
    ):
        assert name in more
    assert "ckpt" not in described(composed("callbacks=none"))
    used = described(composed("mode=predict", "ckpt_path=/a/b.ckpt"))
    assert "predictions.parquet\n    what mode=predict found with /a/b.ckpt; columns:\n    id; split (train," in used
    assert "to go on" not in used.lower()


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        (["task=link"], "source; target; score,"),
        (["model=node2vec"], "id; emb_0, emb_1, ..., the embedding"),
        (["dataset=rel-f1", "dataset.task=driver-dnf", "model=rsage"], "the key of the row, under its name in the"),
    ],
)
def test_the_columns_of_predictions_are_named(composed: Composer, options: list[str], columns: str) -> None:
    text = described(composed("mode=predict", "ckpt_path=/a/b.ckpt", *options))
    assert f"what mode=predict found with /a/b.ckpt; columns:\n    {columns}" in text


@pytest.mark.parametrize("columns", [80, 120])
def test_lines_end_where_the_terminal_does(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/a-folder/" + 12 * "deep-er/" + "best.ckpt"
    line = ", ".join(f"test/metric_{i} 0.1234" for i in range(12))
    assert wrapped(line) == line  # in a file or a pipe
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    parts = wrapped(line).splitlines()
    assert 1 < len(parts) == len([part for part in parts if len(part) <= columns])
    assert " ".join(part.strip() for part in parts) == line
    assert path in wrapped(f"checkpoints: {path}").split()


def test_a_run_that_went_on_names_two_folders() -> None:
    cfg = OmegaConf.create({"run_dir": "/a/second", "checkpoint_dir": "/a/second/checkpoints"})
    assert folders(cfg) == "outputs: /a/second"
    cfg.checkpoint_dir = "/a/first/checkpoints"
    assert folders(cfg) == "outputs: /a/second; checkpoints: /a/first/checkpoints"


@pytest.mark.parametrize("kept", [None, "config.yaml", "train.log"])
def test_only_a_folder_without_results_is_removed(tmp_path: Path, kept: str | None) -> None:
    folder = tmp_path / "outputs" / "train" / "now"
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text("a: 1")
    (folder / "train.log").touch()
    if kept is not None:
        (folder / kept).write_text("something")
    leave_no_empty_folder(folder, tmp_path)
    assert folder.exists() == (kept is not None)
    assert (tmp_path / "outputs").exists() == (kept is not None)
    assert tmp_path.exists()


@pytest.mark.parametrize("kept", [None, "csv/metrics.csv", "checkpoints/step.ckpt", "notes.txt"])
def test_a_refused_run_leaves_no_folder(tmp_path: Path, kept: str | None) -> None:
    folder = tmp_path / "outputs" / "train" / "now"
    written = [
        ".hydra/config.yaml",
        "config.yaml",
        "train.log",
        "README.txt",
        "csv/hparams.yaml",
        *filter(None, [kept]),
    ]
    for name in written:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("something")
    (folder / "checkpoints").mkdir(exist_ok=True)
    leave_no_empty_folder(folder, tmp_path, refused=True)
    assert (tmp_path / "outputs").exists() == (kept is not None)
    assert all((folder / name).exists() == (kept is not None) for name in written)


def test_a_resumed_run_says_what_and_where(capsys: pytest.CaptureFixture[str]) -> None:
    cfg = OmegaConf.create({"ckpt_path": "/a/c/step.ckpt", "checkpoint_dir": "/a/c", "run_dir": "/b"})
    announce_resume(cfg, {"epoch": 3, "global_step": 17})
    assert capsys.readouterr().out == (
        "resumed: epoch 4, after step 17, from /a/c/step.ckpt; checkpoints go to /a/c, all else to /b\n"
    )


def test_options_of_runs_are_trusted_by_any_umask(tmp_path: Path) -> None:
    kept = tmp_path / "run" / ".hydra" / "config.yaml"
    kept.parent.mkdir(parents=True)
    kept.touch()
    kept.chmod(0o664)  # as Hydra writes it if the umask is 002
    save_config(OmegaConf.create({"seed": 1}), tmp_path / "run")
    assert kept.stat().st_mode & 0o777 == 0o644

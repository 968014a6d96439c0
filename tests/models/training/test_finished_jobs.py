"""A job's result in a file: written whole, read back, and only for a job of the same settings."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from models.training.callbacks.epoch_record import EpochRecord
from models.training.finished_jobs import JobResult


def config(folder: Path, **changes: object) -> DictConfig:
    return OmegaConf.create(
        {
            "seed": 1,
            "device": "cpu",
            "run_dir": str(folder),
            "data_dir": "data",
            "result_path": "${run_dir}/result.json",
            "dataset": {"name": "graph", "data_dir": "${data_dir}"},
            "callbacks": {"best": {"dirpath": "${run_dir}/checkpoints"}},
            **changes,
        }
    )


def test_without_a_path_a_job_always_runs(tmp_path: Path, capsys) -> None:
    for value in (0.5, 0.25):
        result = JobResult(config(tmp_path, result_path=None, optimized_metric="val/acc"))
        assert result.metric is None
        assert result.write(value, {"test/test_acc": 0.125, "val/acc": 1.0}, []) == value
        assert json.loads((tmp_path / "result.json").read_text())["metric"] == value
        assert capsys.readouterr().out == f"result: val/acc {value:.4f}, test/test_acc 0.1250\n"


def test_a_resumed_run_has_its_result_twice(tmp_path: Path) -> None:
    (tmp_path / "old" / ".hydra").mkdir(parents=True)
    checkpoint = str(tmp_path / "old" / "checkpoints" / "step.ckpt")
    JobResult(config(tmp_path / "new", result_path=None, ckpt_path=checkpoint)).write(0.5, {}, [])
    texts = [(tmp_path / folder / "result.json").read_text() for folder in ("old", "new")]
    assert texts[0] == texts[1]
    JobResult(config(tmp_path / "new", result_path=None, ckpt_path=str(tmp_path / "a" / "b" / "c.ckpt")))
    assert not (tmp_path / "a").exists()


def test_a_moved_finished_job_is_recognised(tmp_path: Path, capsys) -> None:
    first = JobResult(config(tmp_path / "a"))
    assert first.metric is None
    record = EpochRecord()
    record.epochs = [{"epoch": 0.0, "seconds": 1.5, "val/acc": 0.25}]
    assert first.write(0.75, {"test/test_acc": 0.5}, [object(), record]) == 0.75
    found = json.loads((tmp_path / "a" / "result.json").read_text())
    assert found["metric"] == 0.75
    assert found["metrics"] == {"test/test_acc": 0.5}
    assert found["epochs"] == record.epochs
    assert found["config"]["dataset"]["name"] == "graph"
    assert str(tmp_path) not in json.dumps(found)
    assert found["hardware"]["cpu"]
    assert found["versions"]["torch"]
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["result.json"]

    assert JobResult(config(tmp_path / "a")).metric == 0.75
    (tmp_path / "a").rename(tmp_path / "b")
    assert JobResult(config(tmp_path / "b", data_dir="elsewhere", debug=True)).metric == 0.75
    assert "finished before" in capsys.readouterr().out


@pytest.mark.parametrize(("path", "same"), [("mine.npz", False), ("/data/mine.npz", True), ("~/mine.npz", True)])
def test_data_dir_counts_for_a_relative_file(tmp_path: Path, path: str, same: bool) -> None:
    dataset = {"path": path, "data_dir": "${data_dir}"}
    JobResult(config(tmp_path, dataset=dataset)).write(0.75, {}, [])
    assert JobResult(config(tmp_path, dataset=dataset)).metric == 0.75
    other = JobResult(config(tmp_path, dataset=dataset, data_dir="elsewhere"))
    assert other.metric == (0.75 if same else None)


@pytest.mark.parametrize("names", [["g.npz"], ["edges.csv", "nodes.csv"]])
def test_a_job_of_changed_files_runs_again(tmp_path: Path, capsys, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_text("a,b\n1,2\n")
    keys = ("path",) if len(names) == 1 else ("edges", "nodes")
    kind = "NpzDataset" if len(names) == 1 else "TableDataset"
    files = {key: str(tmp_path / name) for key, name in zip(keys, names, strict=True)}
    dataset = {"_target_": f"loader.datasets.{kind}", **files}
    JobResult(config(tmp_path, dataset=dataset)).write(0.75, {}, [])
    assert JobResult(config(tmp_path, dataset=dataset)).metric == 0.75
    (tmp_path / names[-1]).write_text("a,b\n1,3\n")
    os.utime(tmp_path / names[-1], ns=(1, 1))
    capsys.readouterr()
    assert JobResult(config(tmp_path, dataset=dataset)).metric is None
    assert "files of the dataset have changed since" in capsys.readouterr().out
    (tmp_path / "result.json").write_text(
        json.dumps({**json.loads((tmp_path / "result.json").read_text()), "files": None})
    )
    assert JobResult(config(tmp_path, dataset=dataset)).metric == 0.75  # of an earlier release


@pytest.mark.parametrize("changes", [{"seed": 2}, {"device": "cuda"}, {"dataset": {"name": "other"}}])
def test_a_job_of_other_settings_runs_again(tmp_path: Path, capsys, changes) -> None:
    JobResult(config(tmp_path)).write(0.75, {}, [])
    assert JobResult(config(tmp_path, **changes)).metric is None
    assert "settings have changed" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"hello", b"[1]", b"{}", b"\xff\xfe", b'{"settings": "", "metric": null}'])
def test_a_foreign_file_is_no_result(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"result_path is .*result\.json, and that file is no result of a job; give"):
        JobResult(config(tmp_path))


def test_a_kill_while_writing_leaves_no_result(tmp_path: Path, monkeypatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        JobResult(config(tmp_path)).write(0.75, {}, [])
    monkeypatch.undo()
    assert JobResult(config(tmp_path)).metric is None


def test_the_configuration_itself_stays_as_it_is(tmp_path: Path) -> None:
    cfg = config(tmp_path)
    OmegaConf.set_struct(cfg, True)
    before = OmegaConf.to_yaml(cfg)
    JobResult(cfg)
    assert OmegaConf.to_yaml(cfg) == before


def test_a_result_that_others_write_is_refused(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        JobResult(config(tmp_path)).write(0.5, {}, [])
    finally:
        os.umask(before)
    assert JobResult(config(tmp_path)).metric == 0.5
    path = tmp_path / "result.json"
    path.chmod(0o664)
    with pytest.raises(ValueError, match=rf"result_path: {path} is not trusted: others can write .*another path"):
        JobResult(config(tmp_path))
    path.rename(tmp_path / "other")
    path.symlink_to(tmp_path / "other")
    with pytest.raises(ValueError, match=r"result_path: .* is a link"):
        JobResult(config(tmp_path))

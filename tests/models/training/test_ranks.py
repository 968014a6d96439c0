"""Which process of a run this is, and who starts the others."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from models.training import errors, ranks
from models.training.ranks import (
    be_quiet_unless_first,
    check_hosts,
    check_launch,
    number_of_devices,
    other_ranks,
    rank_here,
)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ranks._STARTED_BY_OTHERS, "RANK", "NODE_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("devices", "number"),
    [
        (1, 1), (4, 4), ("4", 4), ("0,2", 2), ("0, 2, 3", 3), ("1,", 1), ([0, 2], 2), ((5,), 1), ([], 0),
        (OmegaConf.create([1, 3]), 2), (-1, None), ("-1", None), ("auto", None), (None, None), (True, None),
        (1.5, None),
    ],
)  # fmt: skip
def test_devices_are_counted_without_torch(devices: Any, number: int | None) -> None:
    assert number_of_devices(devices) == number


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, 0),
        ({"RANK": "3"}, 0),  # of something else
        ({"RANK": "3", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "x"}, 3),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, 5),
        ({"LOCAL_RANK": "1"}, 1),
        ({"LOCAL_RANK": "1", "NODE_RANK": "2", "LOCAL_WORLD_SIZE": "4"}, 9),
    ],
)
def test_the_environment_says_which_rank(
    environment: dict[str, str], rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert rank_here() == rank


def test_torchrun_and_trainer_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    check_launch({"devices": 3})
    for name, value in (("TORCHELASTIC_RUN_ID", "x"), ("LOCAL_WORLD_SIZE", "2"), ("WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    for good in ({"devices": 2, "num_nodes": 2}, {"devices": "auto", "num_nodes": 1}):
        check_launch(good)
    with pytest.raises(
        ValueError, match=r"trainer.devices is 1 and trainer.num_nodes 1; give trainer.devices=2 trainer"
    ):
        check_launch({"devices": 1})


def program(code: str) -> list[str]:
    return [sys.executable, "-c", f"import os, sys, time; {code}"]


@pytest.mark.parametrize(
    "trainer", [{"devices": 1, "strategy": "auto"}, {"devices": 2, "strategy": "ddp"}, {"devices": 10**6}, "none", None]
)
def test_nobody_starts_without_need(trainer: Any, tmp_path: Path) -> None:
    with other_ranks(trainer, program(f"open({str(tmp_path / 'started')!r}, 'w')"), str(tmp_path)):
        assert "LOCAL_RANK" not in os.environ
    assert not list(tmp_path.iterdir())


def test_others_know_who_they_are(tmp_path: Path) -> None:
    code = "open(os.environ['LOCAL_RANK'], 'w').write(' '.join(os.environ[n] for n in ('WORLD_SIZE', 'NODE_RANK')))"
    with other_ranks({"devices": 3, "strategy": "auto", "num_nodes": 2}, program(code), str(tmp_path)):
        assert os.environ["LOCAL_RANK"] == "0"
        assert os.environ["LOCAL_WORLD_SIZE"] == "3"
    assert "LOCAL_RANK" not in os.environ
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"1": "6 0", "2": "6 0"}


def test_an_error_here_ends_the_others(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="here"),
        other_ranks({"devices": 2, "strategy": "auto"}, program("time.sleep(600)"), str(tmp_path)),
    ):
        raise ValueError("here")


def test_an_error_after_a_loss_is_the_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def lose() -> None:
        while not (tmp_path / "there").exists():
            pass
        raise RuntimeError("connection reset by peer")

    command = program("open('there', 'w'); os.kill(os.getpid(), 9)")
    with pytest.raises(SystemExit) as ended, other_ranks({"devices": 2, "strategy": "auto"}, command, str(tmp_path)):
        lose()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: process 1 of this run was ended by SIGKILL, so the run ends\n"


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LOCAL_RANK", "1")
    yield
    logging.disable(logging.NOTSET)


def test_only_the_first_one_warns_and_logs(second: None, caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings():
        be_quiet_unless_first()
        warnings.warn("of all", stacklevel=1)
    logging.getLogger("x").warning("of all")
    assert not caplog.records


def test_other_processes_leave_errors_to_the_first(
    second: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(errors.time, "sleep", waited.append)
    with pytest.raises(SystemExit):
        errors.fail("it is wrong")
    assert waited == [2 * ranks.GRACE]
    assert capsys.readouterr().err == "error: it is wrong (process 1 of the run)\n"
    with pytest.raises(SystemExit):
        errors.fail("interrupted", errors.INTERRUPTED, title="")
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("LOCAL_RANK", "0")  # the first of another host goes before the others there
    monkeypatch.setenv("NODE_RANK", "1")
    with pytest.raises(SystemExit):
        errors.fail("it is wrong")
    assert waited == [2 * ranks.GRACE, ranks.GRACE]


@pytest.mark.parametrize(
    ("trainer", "told", "refused"),
    [
        ({"devices": 1}, False, False),
        ({"devices": 2}, False, True),
        ({"devices": 1, "num_nodes": 2}, False, True),
        ({"devices": 2, "num_nodes": 2}, True, False),
    ],
)
def test_processes_have_to_know_their_host(
    trainer: dict[str, int], told: bool, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if told:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="start by torchrun") if refused else nullcontext():
        check_hosts(trainer)

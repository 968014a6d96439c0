"""Errors of the user are one line, errors of the program keep their traceback."""

from __future__ import annotations

import errno
import os
import re
import resource

import pytest
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf import OmegaConf
from torch.utils.data import DataLoader

from loader.datasets import DatasetError
from loader.machine.lost_processes import LostProcessError
from models.training import errors
from models.training.errors import Interrupted, one_line_errors


@pytest.mark.parametrize(
    "error", [ValueError("a is\n  [3]; it must be 1"), FileNotFoundError("x"), ImportError("x"), DatasetError("x")]
)
def test_an_error_is_one_line_and_status_one(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, one_line_errors():
        raise error
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"error: {' '.join(str(error).split())}\n"


def test_the_cause_of_a_failed_instantiation_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), one_line_errors():
        instantiate({"_target_": "fractions.Fraction", "_args_": ["a third"]})
    assert capsys.readouterr().err == "error: Invalid literal for Fraction: 'a third'\n"


@pytest.mark.parametrize(("split", "also"), [("val", " or trainer.overfit_batches"), ("test", "")])
def test_share_of_too_few_mini_batches_is_named(split: str, also: str, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = Trainer(**{f"limit_{split}_batches": 0.5}, logger=False, enable_checkpointing=False)
    model, one = BoringModel(), DataLoader(torch.zeros(1, 32))
    with pytest.raises(SystemExit), one_line_errors():
        trainer.validate(model, one, verbose=False) if split == "val" else trainer.test(model, one, verbose=False)
    what = f"error: trainer.limit_{split}_batches{also} is 0.5, less than one of 1 mini-batch of {split}; give a"
    assert what in capsys.readouterr().err


def test_a_reference_to_no_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    cfg = OmegaConf.create({"sampler": {"seed": "${sed}"}})
    with pytest.raises(SystemExit), one_line_errors():
        cfg.sampler.seed  # noqa: B018 - it is looked up
    line = "error: sampler.seed refers to ${sed}, but there is no option sed; name another, or give a value\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            MemoryError("Unable to allocate 72 TiB"),
            r"there is not enough memory \(Unable to allocate 72 TiB\); lower data",
        ),
        (
            RuntimeError("CUDA out of memory. Tried\nmore"),
            r"there is not enough memory \(CUDA out of memory. Tried\); ",
        ),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "the program that read the output has ended, so this one has; "),
        (FileNotFoundError(errno.ENOENT, "No such file"), "the folder in which this was started is no longer there"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "cannot use /x: Permission denied; check that path"),
        (
            TypeError("Net.__init__() got an unexpected keyword argument 'deep'"),
            "deep is no option of Net; leave it out",
        ),
    ],
)
def test_words_of_the_system_get_a_way_out(error: Exception, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), one_line_errors():
        raise error
    shown = capsys.readouterr().err
    assert re.match(f"error: {line}", shown)
    assert shown.count("\n") == 1


def test_an_unknown_option_is_named_by_its_key(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), one_line_errors():
        instantiate({"part": {"_target_": "loader.samplers.FusedSampler", "fanouts": [2], "fanuots": 3}})
    assert capsys.readouterr().err == "error: part.fanuots is no option of FusedSampler; did you mean fanouts?\n"
    with pytest.raises(SystemExit), one_line_errors():
        instantiate({"part": {"_target_": "loader.FullSampler"}})
    assert capsys.readouterr().err == "error: part gives no num_hops, which FullSampler needs; add part.num_hops=...\n"


def test_a_missing_class_is_named_by_its_key(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), one_line_errors():
        instantiate({"part": {"_target_": "mine.Part"}})
    assert capsys.readouterr().err.startswith(
        "error: part: mine.Part cannot be imported; give the full name of a class, and its folder in PYTHONPATH"
    )


def test_errors_of_the_trainer_name_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), one_line_errors():
        instantiate({"trainer": {"_target_": "lightning.pytorch.Trainer", "precision": "fp8", "accelerator": "cpu"}})
    assert capsys.readouterr().err.startswith("error: trainer: Precision 'fp8' is invalid. Allowed")


def test_errors_of_the_program_pass() -> None:
    with pytest.raises(RuntimeError, match="bug"), one_line_errors():
        raise RuntimeError("bug")
    with pytest.raises(InstantiationException), one_line_errors():
        instantiate({"_target_": "operator.truediv", "_args_": [1, 0]})


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyboardInterrupt(), "interrupted; what was under way is not kept"),
        (Interrupted("step 3; do so"), "step 3; do so"),
    ],
)
def test_an_interruption_is_one_line_and_status_130(
    error: BaseException, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, one_line_errors():
        raise error
    assert ended.value.code == 130
    assert capsys.readouterr().err == f"{line}\n"


def test_errors_of_lightning_are_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), one_line_errors():
        raise MisconfigurationException("no such thing")
    assert capsys.readouterr().err == "error: no such thing\n"


@pytest.mark.parametrize(
    ("number", "limit", "line"),
    [
        (
            errno.EFBIG,
            4096,
            "cannot write a.ckpt: it would be larger than 4096 bytes; raise that by `ulimit -f unlimited`",
        ),
        (
            errno.EFBIG,
            resource.RLIM_INFINITY,
            "cannot write a.ckpt: File too large; free some space, or set hydra.run.dir",
        ),
        (errno.ENOSPC, 4096, "cannot write a.ckpt: No space left on device; free some space, or set hydra.run.dir"),
    ],
)
def test_errors_of_the_system_have_a_remedy(
    number: int, limit: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    with pytest.raises(SystemExit), one_line_errors():
        raise OSError(number, os.strerror(number), "a.ckpt")
    assert capsys.readouterr().err.startswith(f"error: {line}")


def test_debug_keeps_every_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="x"), one_line_errors(debug=True):
        raise ValueError("x")
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(ValueError, match="x"), one_line_errors():
        raise ValueError("x")


def test_a_lost_process_ends_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[int] = []
    monkeypatch.setattr(errors.os, "_exit", ended.append)
    with pytest.raises(SystemExit), one_line_errors():
        raise LostProcessError("another process of this run ended")
    assert ended == [1]
    assert capsys.readouterr().err == "error: another process of this run ended\n"

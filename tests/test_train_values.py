"""Every option of a run is given values that it cannot have: each is one line, or is taken; none is a traceback."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import omegaconf.base
import pytest
from omegaconf import DictConfig, OmegaConf
from train_runs import FAST, Composer

import train as train_module
from models.training import node_job, train_and_test
from models.training.errors import one_line_errors

VALUES: tuple[Any, ...] = ("x", -1, 1.5, None, [1])
RUNS = {"nodes": (), "links": ("task=link",)}


class Reached(BaseException):
    """The run has its trainer, and would read data. No Exception, which `one_line_errors` would end."""


def names(part: DictConfig, prefix: str = "") -> Iterator[str]:
    for key in map(str, part):
        held = part._get_node(key)
        if isinstance(held, DictConfig) and not held._is_none() and not held._is_interpolation():
            yield from names(held, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_no_value_of_an_option_ends_in_traceback(
    composed: Composer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: str
) -> None:
    def reached(*_: Any, **__: Any) -> None:
        raise Reached

    monkeypatch.chdir(tmp_path)
    # The same interpolations are in all configurations: to read their grammar again takes a third of the time.
    monkeypatch.setattr(omegaconf.base, "parse", cache(omegaconf.base.parse))
    for job in (node_job, train_and_test):
        monkeypatch.setattr(job, "announce", reached)
    base = composed(*FAST, *RUNS[run])
    OmegaConf.set_struct(base, False)
    stored = pickle.dumps(base)  # read in a tenth of the time of a deep copy
    taken = refused = 0
    for name in names(base):
        for value in VALUES:
            cfg = pickle.loads(stored)
            OmegaConf.update(cfg, name, value, merge=False)
            OmegaConf.set_struct(cfg, True)
            try:
                with one_line_errors():
                    train_module.train(cfg)
            except Reached:
                taken += 1
            except SystemExit:
                error = capsys.readouterr().err
                assert error.startswith("error: "), (name, value)
                assert error.count("\n") == 1, (name, value, error)
                refused += 1
    assert taken > 50
    assert refused > 150

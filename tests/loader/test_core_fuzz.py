"""No call of the core ends the process, whatever shapes, lengths, types and sizes it is given."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import core_fuzz
import pytest
import torch

import loader
from loader import _core

NARROW = torch.int32


def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype)


def numbers(*values: int, dtype: torch.dtype = NARROW) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


WALK = (numbers(0), 0, 1, 1, 0, 0, (1, 2**32 - 1, 2, 2**33), [], zeros(2, dtype=NARROW), None)
# What is done, and what is said of it.
REFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: _core.order_by_weight(numbers(0, 1, 1, 2)[None], torch.rand(2), zeros(2, dtype=NARROW), 1),
        "indptr has 2 dimensions; it must have 1",
    ),
    (
        lambda: _core.make_weight_tables(numbers(0, 9, 2), torch.rand(2), zeros(2), zeros(2), 1),
        "indptr[2] is 2; it must be at least 9, the one before it",
    ),
    (
        lambda: _core.make_weight_tables(numbers(0, 2, 9), torch.rand(2), zeros(2), zeros(2), 1),
        "indptr[2] is 9; it must be len(weights) = 2",
    ),
    (
        lambda: _core.make_weight_tables(numbers(0, 2), torch.zeros(2), zeros(2), zeros(2), 1),
        "weights[0] is 0.000000; tables are made of weights that are finite and above 0",
    ),
    (
        lambda: _core.order_by_weight(numbers(0, 2), torch.rand(2), zeros(2, dtype=NARROW), 0),
        "num_threads is 0; it must be at least 1",
    ),
    (
        lambda: _core.negatives(2, 2, True, 1, 0, 0, zeros(1), None, zeros(1), numbers(0, 99, 99), numbers(1), True),
        "indptr says that the list of node",
    ),
    (
        lambda: _core.WalkEngine(numbers(0, 1), numbers(0), numbers(0), None, 0, 1).walk(*WALK),
        "extra is 8589934592 and back 1; with extra mass back is 2**32 - 1, and both below 2**64",
    ),
    (
        lambda: _core.FusedSampler(numbers(0, 1), numbers(0), [1], False, False, 1, 2**62),
        "part_edges is 4611686018427387904; it must be 1 to 1099511627776",
    ),
    (
        lambda: _core.items_at(2**62 + 1, 0, 0, 1, 1, zeros(1)),
        "num_items is 4611686018427387905; it must be at most 2**62",
    ),
    (
        lambda: _core.traverse_sssp((numbers(0, 1), numbers(0)), -torch.ones(1), numbers(0), 1.0, torch.zeros(1), 1),
        "weights[0] is -1.000000; a weight must be finite and at least 0",
    ),
    (
        lambda: _core.WalkEngine(numbers(0, 1), numbers(0), None, None, 0, 1).negatives(
            0, 1, 2**33, 2**31, 5, zeros(0, dtype=NARROW)
        ),
        "there are 2147483648 negatives of each of 8589934592 walkers",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_ended_the_process_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_the_largest_order_is_a_permutation() -> None:
    out = zeros(1000)
    _core.items_at(2**62, 7, 0, 1, 2**62 // 1000, out)
    assert 0 <= int(out.min()) <= int(out.max()) < 2**62
    assert len(set(out.tolist())) == 1000


def test_memory_that_was_freed_is_refused() -> None:
    gone = torch.rand(4, 2)
    gone.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="table has 4 elements and no memory: its storage was freed"):
        _core.Gatherer(1).gather(gone, numbers(0), torch.rand(1, 2))


PATIENCE = 600  # seconds of a process that makes all calls, before it counts as one that hangs


def run_from(begin: int, progress: Path) -> tuple[int, int, str]:
    """The status of a process that makes calls from `begin` on, the call that it made last, and what it said."""
    progress.write_bytes(begin.to_bytes(8, "little"))
    command = [sys.executable, core_fuzz.__file__, str(progress), str(begin)]
    paths = f"{Path(loader.__file__).parents[1]}:{Path(core_fuzz.__file__).parent}"
    try:
        done = subprocess.run(
            command, env={"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        status, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        status, said = -1000, "it hangs"
    return status, int.from_bytes(progress.read_bytes(), "little"), said


@pytest.mark.slow
def test_no_call_ends_the_process(tmp_path: Path) -> None:
    calls, begin, faults = core_fuzz.all_calls(), 0, []
    while begin < len(calls) and len(faults) < 20:
        status, last, said = run_from(begin, tmp_path / "progress")
        if status == 0:
            assert last == len(calls) - 1
            assert said == "", said
            break
        faults.append(f"{core_fuzz.shown(*calls[last])}: status {status}: {said.splitlines()[:1]}")
        begin = last + 1
    assert not faults, "\n".join(faults)

"""How often a gather over the bus finds out in which order its ids come; with notes that nobody's kernel writes."""

from __future__ import annotations

import pytest
import torch

from loader import _core

# What is tested is compiled with CUDA alone; it needs no GPU.
pytestmark = pytest.mark.skipif(not _core.with_cuda, reason="needs a CUDA build")

IDS, ROWS = 50_000, 1 << 21


class Gatherer:
    """Of rows of 400 bytes; `asks` tells whether the next gather finds out, whose ids lie in order or do not."""

    def __init__(self, placement: str) -> None:
        self._notes = torch.zeros(_core.cuda_notes_bytes // 8, dtype=torch.int64)
        self._some = torch.zeros(16)
        some = self._some.data_ptr()
        self.core = _core.CudaGatherer(
            placement,
            some,
            ROWS,
            100,
            4,
            "torch.float32",
            "torch.float32",
            some,
            self._notes.data_ptr(),
            *([some] * 3 if placement == "cached" else []),
        )

    def asks(self, in_order: bool) -> bool:
        asks = self.core.scratch_bytes(IDS) > 0
        if asks:
            self._notes[-1] = int(in_order)  # `Notes::in_order` of csrc/features/cuda/gather.h
        return asks


def test_without_a_cache_always() -> None:
    gatherer = Gatherer("host")
    assert all(gatherer.asks(True) for _ in range(100))


def test_with_a_cache_once_in_17_after_16_in_order() -> None:
    gatherer = Gatherer("cached")
    asked = [i for i in range(90) if gatherer.asks(True)]
    assert asked == [*range(16), 32, 49, 66, 83]
    assert [gatherer.asks(False) for _ in range(50)] == [False] * 10 + [True] * 40


def test_with_a_cache_always_while_they_are_in_no_order() -> None:
    gatherer = Gatherer("cached")
    assert all(gatherer.asks(False) for _ in range(100))


@pytest.mark.parametrize("period", range(2, 17))
def test_those_in_no_order_are_found_among_others(period: int) -> None:
    """Every so many-th gather has ids in no order, after a long time in which none had."""
    gatherer = Gatherer("cached")
    for _ in range(200):
        gatherer.asks(True)
    asked = []
    for i in range(40 * 17):
        asks = gatherer.asks(i % period > 0)
        if i % period == 0:
            asked.append(asks)
    assert all(asked[asked.index(True) :])  # there are never 16 in order in a row again


def test_whoever_wants_all_ordered_is_always_asked() -> None:
    gatherer = Gatherer("cached")
    gatherer.core.order_from = 0
    assert all(gatherer.asks(True) for _ in range(100))


@pytest.mark.parametrize(("placement", "ordered"), [("device", False), ("host", True), ("cached", True)])
def test_which_gathers_are_ordered(placement: str, ordered: bool) -> None:
    core = Gatherer(placement).core
    assert (core.scratch_bytes(IDS) > 4 * IDS) == ordered
    assert core.scratch_bytes(1000) == 0

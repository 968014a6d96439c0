"""How often a gather over the bus finds out in which order its ids come; with notes that nobody's kernel writes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_gpu import OnGPU

from loader import _core

IDS, ROWS = 50_000, 1 << 21


class Gatherer:
    """Of rows of 400 bytes; `asks` tells whether the next gather finds out, whose ids lie in order or do not."""

    def __init__(self, placement: str) -> None:
        self._notes = torch.zeros(_core.cuda_notes_bytes // 8, dtype=torch.int64)
        self._table: Any = torch.empty(ROWS, 100)  # nobody touches its pages
        if placement == "device":
            self._table = OnGPU(self._table)
        cache: dict[str, Any] = {
            "cache": OnGPU(torch.zeros(1, 100)),
            "slots": OnGPU(torch.empty(ROWS, dtype=torch.int32)),
            "hits": OnGPU(torch.zeros(1, dtype=torch.int64)),
        }
        self._raised: Any = OnGPU(torch.zeros(1, dtype=torch.int32))
        self.core = _core.CudaGatherer(
            self._table,
            self._table.data_ptr(),
            "torch.float32",
            raised=self._raised,
            notes=self._notes.view(torch.uint8),
            **(cache if placement == "cached" else {}),
        )

    def asks(self, in_order: bool) -> bool:
        asks = self.core.scratch_bytes(IDS) > 0
        if asks:
            self._notes[-1] = int(in_order)  # `Notes::in_order` of csrc/features/cuda/gather.h
        return asks


def test_uncached_gathers_always_ask() -> None:
    gatherer = Gatherer("host")
    assert all(gatherer.asks(True) for _ in range(100))


def test_cached_gathers_ask_once_in_17() -> None:
    gatherer = Gatherer("cached")
    asked = [i for i in range(90) if gatherer.asks(True)]
    assert asked == [*range(16), 32, 49, 66, 83]
    assert [gatherer.asks(False) for _ in range(50)] == [False] * 10 + [True] * 40


def test_cached_gathers_ask_while_unordered() -> None:
    gatherer = Gatherer("cached")
    assert all(gatherer.asks(False) for _ in range(100))


@pytest.mark.parametrize("period", range(2, 17))
def test_unordered_gathers_are_found_among_others(period: int) -> None:
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


def test_gathers_always_ask_if_all_are_ordered() -> None:
    gatherer = Gatherer("cached")
    gatherer.core.order_from = 0
    assert all(gatherer.asks(True) for _ in range(100))


def test_the_gatherer_refuses_bad_arguments() -> None:
    table, raised = torch.zeros(10, 4), OnGPU(torch.zeros(1, dtype=torch.int32))
    given: dict[str, Any] = {"raised": raised, "notes": torch.zeros(_core.cuda_notes_bytes, dtype=torch.uint8)}
    rows, slots = OnGPU(torch.zeros(3, 4)), OnGPU(torch.zeros(10, dtype=torch.int32))
    cache: dict[str, Any] = {"cache": rows, "slots": slots, "hits": OnGPU(torch.zeros(1, dtype=torch.int64))}
    _core.CudaGatherer(table, 0, "torch.float16", **given, **cache)
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"raised": torch.zeros(1, dtype=torch.int32)}, ValueError, "raised lies on cpu; it must lie on cuda"),
        ({"notes": given["notes"][:8]}, ValueError, "notes has 8 elements; it must have"),
        ({"slots": None}, ValueError, "cache, slots and hits belong together"),
        ({"slots": OnGPU(torch.zeros(9, dtype=torch.int32))}, ValueError, "slots has 9 elements; it must have 10"),
        ({"slots": OnGPU(torch.zeros(10))}, TypeError, r"slots has dtype torch\.float32; it must be torch\.int32"),
        ({"cache": OnGPU(torch.zeros(3, 5))}, ValueError, "cache has rows of 20 bytes, the table of 16"),
    ]
    for changes, error, message in wrong:
        with pytest.raises(error, match=message):
            _core.CudaGatherer(table, 0, "torch.float32", **{**given, **cache, **changes})
    with pytest.raises(TypeError, match=r"rows of torch\.float64 cannot be converted"):
        _core.CudaGatherer(table, 0, "torch.float64", **given)
    on_gpu: Any = OnGPU(table)
    with pytest.raises(ValueError, match="it must lie on cpu beside a cache"):
        _core.CudaGatherer(on_gpu, 0, "torch.float32", **given, **cache)


@pytest.mark.parametrize(("placement", "ordered"), [("device", False), ("host", True), ("cached", True)])
def test_only_large_gathers_from_host_memory_are_ordered(placement: str, ordered: bool) -> None:
    gatherer = Gatherer(placement)  # the core reads its notes
    assert (gatherer.core.scratch_bytes(IDS) > 4 * IDS) == ordered
    assert gatherer.core.scratch_bytes(1000) == 0

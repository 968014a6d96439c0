"""What is kept of graph and rows of several types: it fits, it is counted, and little that is better is left out."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.machine.gpu import counted_bytes
from loader.memory.hetero_split import HeteroSplit, split_types

Rows = dict[str, int]
Reads = dict[str, torch.Tensor]


def drawn(seed: int, count: int, most: int = 40) -> tuple[int, float, Rows, Reads]:
    """Bytes of lists and what is read of them, and bytes and reads of the rows of some types."""
    g = torch.Generator().manual_seed(seed)
    sizes = torch.randint(most + 1, (count,), generator=g).tolist()
    widths = torch.randint(1, 500, (count,), generator=g).tolist()
    rows = {f"t{i}": 4 * width for i, width in enumerate(widths)}
    reads = {
        f"t{i}": (torch.rand(n, generator=g, dtype=torch.float64) ** 4) * (torch.rand(n, generator=g) < 0.8)
        for i, n in enumerate(sizes)
    }
    lists = int(torch.randint(100_000, (1,), generator=g))
    return lists, float(torch.rand(1, generator=g)) * lists, rows, reads


def whole_bytes(lists: int, rows: Rows, reads: Reads) -> int:
    return counted_bytes(lists) + sum(counted_bytes(reads[name].numel() * row) for name, row in rows.items())


def taken(split: HeteroSplit, lists: int, rows: Rows, reads: Reads) -> int:
    """What torch's allocator counts."""
    found = counted_bytes(lists) if split.lists else 0
    for name, ids in split.rows.items():
        n = reads[name].numel()
        if ids is None:
            found += counted_bytes(n * rows[name])
        elif ids.numel():
            found += counted_bytes(ids.numel() * rows[name]) + counted_bytes(4 * n)
    return found


def lines(row_bytes: int) -> int:
    return -(-row_bytes // 128) * 128


def over_the_bus(split: HeteroSplit, list_reads: float, rows: Rows, reads: Reads) -> float:
    left = 0.0 if split.lists else list_reads
    for name, ids in split.rows.items():
        rest = torch.zeros_like(reads[name]) if ids is None else reads[name].index_fill(0, ids, 0)
        left += float(rest.sum()) * lines(rows[name])
    return left


@given(seed=st.integers(0, 10_000), count=st.integers(0, 5), shares=st.lists(st.floats(0, 1.1), min_size=2, max_size=5))
@settings(max_examples=80, deadline=None)
def test_splits_fit_and_more_memory_reads_no_more(seed: int, count: int, shares: list[float]) -> None:
    lists, list_reads, rows, reads = drawn(seed, count)
    everything = whole_bytes(lists, rows, reads)
    rooms = sorted(int(share * everything) for share in shares)
    splits = [split_types(room, lists, list_reads, rows, reads) for room in rooms]
    for room, split in zip(rooms, splits, strict=True):
        assert taken(split, lists, rows, reads) <= room
        assert split.bus == pytest.approx(over_the_bus(split, list_reads, rows, reads), abs=1e-6)
        assert split.bus <= split.bus_without + 1e-9
        if room >= everything:
            assert (split.lists, set(split.rows.values())) == (True, {None} if rows else set())
            assert split.bus == 0
    assert all(a.bus >= b.bus - 1e-6 for a, b in pairwise(splits))


@given(seed=st.integers(0, 10_000), room=st.integers(0, 40 * 2**20))
@settings(max_examples=20, deadline=None)
def test_arrays_of_mebibytes_fit_too(seed: int, room: int) -> None:
    g = torch.Generator().manual_seed(seed)
    reads = {name: torch.rand(n, generator=g, dtype=torch.float64) for name, n in (("a", 5000), ("b", 300))}
    rows, lists = {"a": 2048, "b": 4096}, 20 * 2**20 + 7
    split = split_types(room, lists, 1e6, rows, reads)
    assert taken(split, lists, rows, reads) <= room


@given(seed=st.integers(0, 10_000), share=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_no_choice_saves_twice_as_much(seed: int, share: float) -> None:
    """All choices: of each type any number of the most read rows, or the whole, and the graph or not."""
    lists, list_reads, rows, reads = drawn(seed, 3, most=5)
    room = int(share * whole_bytes(lists, rows, reads))
    split = split_types(room, lists, list_reads, rows, reads)
    ways = []
    for name, row in rows.items():
        n, best = reads[name].numel(), reads[name].sort(descending=True).values * lines(row)
        part = [(c * row + counted_bytes(4 * n) + 512, float(best[:c].sum())) for c in range(1, n + 1)]
        ways.append([(0, 0.0), (counted_bytes(n * row), float(best.sum())), *part])
    found = [
        sum(saved for _, saved in way)
        for way in product([(0, 0.0), (counted_bytes(lists), list_reads)], *ways)
        if sum(nbytes for nbytes, _ in way) <= room
    ]
    assert split.bus_without - split.bus >= 0.5 * max(found) - 1e-6


@given(seed=st.integers(0, 10_000), share=st.floats(0.2, 0.95))
@settings(max_examples=60, deadline=None)
def test_rows_that_are_left_out_are_worth_less(seed: int, share: float) -> None:
    _, _, rows, reads = drawn(seed, 4)
    split = split_types(int(share * whole_bytes(0, rows, reads)), 0, 0.0, rows, reads)
    kept, rest = [], []
    for name, ids in split.rows.items():
        if ids is None or not ids.numel():
            continue  # a type as a whole, or none of it, is another choice
        worth = reads[name] * lines(rows[name]) / rows[name]
        mask = torch.zeros(worth.numel(), dtype=torch.bool)
        mask[ids] = True
        kept.append(worth[mask])
        rest.append(worth[~mask])
    if kept:
        assert float(torch.cat(kept).min()) >= float(torch.cat(rest).max()) - 1e-12


def test_equal_reads_go_by_bytes_of_a_row() -> None:
    """A row of one line and a row of ten are read as often: the short one saves as much per byte, unless it is less
    than a line, which the bus carries whole.
    """
    reads = {name: torch.ones(1000, dtype=torch.float64) for name in ("short", "long")}
    split = split_types(40_000, 10**9, 0.0, {"short": 32, "long": 1280}, reads)
    assert split.rows["short"] is None
    assert split.rows["long"] is not None
    assert not split.lists
    assert split.row_bytes == {
        "short": 32_256,
        "long": 0 if not split.rows["long"].numel() else split.row_bytes["long"],
    }


def test_equal_rows_are_kept_in_part() -> None:
    reads = {"a": torch.ones(1000, dtype=torch.float64)}
    split = split_types(64_000, 10**9, 5.0, {"a": 128}, reads)
    assert split.rows["a"] is not None
    assert split.rows["a"].tolist() == list(range((64_000 - 4096 - 512) // 128))


def test_a_graph_that_is_read_much_comes_first() -> None:
    reads: dict[str, Any] = {"a": torch.full((1000,), 0.001, dtype=torch.float64)}
    split = split_types(60_000, 50_000, 1e6, {"a": 128}, reads)
    assert split.lists
    assert split.list_bytes == 50_000
    without = split_types(60_000, 50_000, 0.0, {"a": 128}, reads)
    assert not without.lists


@pytest.mark.parametrize("rows", [{}, {"a": 8}])
def test_nothing_to_keep_is_kept(rows: Rows) -> None:
    split = split_types(0, 0, 0.0, rows, {name: torch.zeros(0, dtype=torch.float64) for name in rows})
    assert (split.lists, split.rows, split.bus) == (True, dict.fromkeys(rows), 0)

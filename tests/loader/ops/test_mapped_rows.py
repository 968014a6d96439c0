"""Sums of products of distinct rows: against sums over the neighbors, one by one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader.ops import aggregate_sum
from loader.ops.hop_layout import Fixed, HopLayout, segments_of
from loader.ops.mapped_rows import MappedRows

SOURCES = [1, 0, 2]  # of the two relations into type 0, and of that into type 2; type 1 has none
SLOTS = [2, 0, 1]
UNIQUE = (3, 4, 5)
SIZES = [[2, 0, 1], [0, 3, 2], [4, 2, 0]]


def layout() -> HopLayout:
    """Two hops that are expanded; entries in no order, and some behind the last row."""
    g = torch.Generator().manual_seed(0)
    segments = segments_of(SIZES, SLOTS)
    every = [segment for of_hop in segments for segment in of_hop]
    firsts = [0, 3, 7, 12]
    row = torch.cat(
        [torch.randint(firsts[s.node_type], firsts[s.node_type + 1], (s.size,), generator=g) for s in every]
    )
    of_type = [[i for s in every if s.node_type == t for i in range(s.begin, s.begin + s.size)] for t in range(3)]
    relations = [
        r
        for s in every[:6]
        for _ in range(s.size)
        for r in range(sum(SLOTS[: s.node_type]), sum(SLOTS[: s.node_type]) + s.slots)
    ]
    lists = [[of_type[SOURCES[r]][i % len(of_type[SOURCES[r]])] for i in range(n % 4)] for n, r in enumerate(relations)]
    indptr = torch.tensor([0, *(len(of) for of in lists)]).cumsum(0).to(torch.int32)
    indices = torch.tensor([node for of in lists for node in of] + [0, 0], dtype=torch.int32)
    return HopLayout(segments, indptr, indices, row, UNIQUE, {}, ("a", "b", "c"), fixed=Fixed(1, torch.device("cpu")))


def test_sums_and_gradients_are_those_over_neighbors() -> None:
    g = torch.Generator().manual_seed(1)
    trees = layout()
    mapped = MappedRows(trees, 2, SOURCES)
    assert mapped.read == [[0, 4], [3, 1], [2, 5]]

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64).requires_grad_()

    x, own, relations = some(12, 6), some(3, 6, 5), some(3, 6, 5)
    indptr, indices = mapped.entries(trees, 2)
    found = aggregate_sum(mapped.products(x, mapped.weights(own, relations)), indptr, indices)
    wanted: list[Any] = []
    for part in trees.parts(2):
        t = part.node_type
        for i in range(part.size):
            node = part.begin + i
            total = x[trees.row[node]] @ own[t]
            for slot in range(part.slots):
                row = part.row + i * part.slots + slot
                for entry in trees.indices[trees.indptr[row] : trees.indptr[row + 1]].tolist():
                    total = total + x[trees.row[entry]] @ relations[sum(SLOTS[:t]) + slot]
            wanted.append(total)
    expected = torch.stack(wanted)
    torch.testing.assert_close(found, expected)
    mix = torch.randn(expected.shape, generator=g, dtype=torch.float64)
    mine, theirs = (torch.autograd.grad((of * mix).sum(), [x, own, relations]) for of in (found, expected))
    torch.testing.assert_close(mine, theirs)

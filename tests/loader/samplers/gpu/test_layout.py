"""The memory of a mini-batch that a GPU sampled, and the arrays that are cut out of it; on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loader.samplers.gpu.layout import Layout
from loader.samples import Block, MiniBatch

DTYPES = [(torch.int32, torch.int32), (torch.int32, torch.int64), (torch.int64, torch.int64)]


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Capacities, and sizes that fit them."""
    hops = draw(st.integers(1, 8))
    room = st.integers(0, 200)
    frontiers = sorted(draw(st.lists(room, min_size=hops + 1, max_size=hops + 1)))
    edges = draw(st.lists(room, min_size=hops, max_size=hops))
    return {
        "capacity": (frontiers, edges),
        "frontiers": [draw(st.integers(0, n)) for n in frontiers],
        "edges": [draw(st.integers(0, n)) for n in edges],
        "edge_ids": draw(st.booleans()),
        "trees": draw(st.booleans()),
        "dtypes": draw(st.sampled_from(DTYPES)),
    }


@given(cases())
def test_every_array_lies_at_the_kernels_address(case: dict[str, Any]) -> None:
    node, edge = case["dtypes"]
    layout = Layout(*case["capacity"], case["edge_ids"], node, edge, trees=case["trees"])
    assert layout.dtype == node
    memory = torch.zeros(layout.length, dtype=node)
    frontiers, edges = case["frontiers"], case["edges"]
    # As the kernel does: at offsets in elements of two addresses.
    assert layout.edges_at % 128 == 0
    bytes_of = memory.view(torch.uint8)
    nodes, others = bytes_of[: layout.edges_at].view(node), bytes_of[layout.edges_at :].view(edge)
    count = 0
    expected = []
    spots = [(nodes, 0, frontiers[-1], case["capacity"][0][-1])]
    spots += [(nodes, *at) for at in zip(layout.indices_at, edges, case["capacity"][1], strict=True)]
    rows, most_rows = ([n + 1 for n in sizes[:-1]] for sizes in (frontiers, case["capacity"][0]))
    spots += [(others, *at) for at in zip(layout.indptr_at, rows, most_rows, strict=True)]
    if case["edge_ids"]:
        spots += [(others, *at) for at in zip(layout.edge_ids_at, edges, case["capacity"][1], strict=True)]
    for where, at, size, capacity in spots:
        assert at * where.element_size() % 128 == 0
        room = where[at : at + capacity]
        assert room.numel() == capacity
        assert not room.any()  # no other array has it
        room[:] = -1
        room[:size] = torch.arange(count + 1, count + size + 1)
        expected.append(room[:size].clone())
        count += size
    if case["trees"]:
        assert layout.trees_at % 128 == 0
        room = bytes_of[layout.trees_at :].view(torch.int32)[: case["capacity"][0][-1]]
        assert room.numel() == case["capacity"][0][-1]
        assert not room.any()
        room[:] = torch.arange(7, 7 + len(room))
    nodes, indices, indptr, edge_ids, tree = layout.fit(layout.split(memory), frontiers, edges)
    assert (tree is not None) == case["trees"]
    assert tree is None or (tree.dtype == torch.int32 and tree.tolist() == list(range(7, 7 + frontiers[-1])))
    assert len(edge_ids) == (len(edges) if case["edge_ids"] else 0)
    found = [nodes, *indices, *indptr, *edge_ids]
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
        assert a.untyped_storage().data_ptr() == memory.untyped_storage().data_ptr()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_memory_of_a_mini_batch_counts_once(dtype: torch.dtype) -> None:
    layout = Layout([2, 5, 9], [4, 10], False, torch.int32, dtype)
    memory = torch.zeros(layout.length, dtype=torch.int32)
    nodes, indices, indptr, *_ = layout.fit(layout.split(memory), [2, 3, 4], [3, 5])
    batch = MiniBatch(nodes, (2, 3, 4), (Block(indptr[1], indices[1], 4, 3), Block(indptr[0], indices[0], 3, 2)))
    assert batch.num_edges == 8
    assert batch.held_bytes == memory.nbytes
    x = torch.zeros(4, 2)
    assert batch.replace(x=x).held_bytes == memory.nbytes + x.nbytes


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_changing_one_array_changes_no_other(dtype: torch.dtype) -> None:
    """A backward pass checks that what it kept is as it was."""
    layout = Layout([2, 5], [4], False, torch.int32, dtype)
    nodes, (indices,), (indptr,), *_ = layout.fit(
        layout.split(torch.zeros(layout.length, dtype=torch.int32)), [2, 3], [3]
    )
    before = nodes._version, indptr._version
    indices.fill_(1)
    assert (nodes._version, indptr._version) == before


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("inside", [(True, False), (False, True), (True, True)])
def test_inference_mode_may_begin_and_end_between(inside: tuple[bool, bool], dtype: torch.dtype) -> None:
    layout = Layout([2, 5], [4], True, torch.int32, dtype, trees=True)
    with torch.inference_mode(inside[0]):
        memory = torch.arange(layout.length, dtype=torch.int32)
        room = layout.split(memory)
    whole = [t.clone() for t in room]
    with torch.inference_mode(inside[1]):
        nodes, (indices,), (indptr,), (edge_ids,), tree = layout.fit(room, [2, 3], [3])
    assert tree is not None
    for part, of, size in zip((nodes, indices, tree, indptr, edge_ids), whole, (3, 3, 3, 3, 3), strict=True):
        assert torch.equal(part, of[:size])

"""The memory of a mini-batch that a GPU sampled, and the blocks that are cut out of it; on the CPU."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning_utilities.core.apply_func import apply_to_collection

from loader.samplers.gpu.layout import Layout, Sampled, SampledBlock
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
        "dtypes": draw(st.sampled_from(DTYPES)),
    }


@given(cases())
def test_every_array_is_where_the_kernel_writes_it(case: dict[str, Any]) -> None:
    vertex, edge = case["dtypes"]
    layout = Layout(*case["capacity"], case["edge_ids"], vertex, edge)
    assert layout.dtype == vertex
    memory = torch.zeros(layout.length, dtype=vertex)
    frontiers, edges = case["frontiers"], case["edges"]
    # As the kernel does: at offsets in elements of two addresses.
    assert layout.edges_at % 128 == 0
    bytes_of = memory.view(torch.uint8)
    vertices, others = bytes_of[: layout.edges_at].view(vertex), bytes_of[layout.edges_at :].view(edge)
    count = 0
    expected = []
    spots = [(vertices, 0, frontiers[-1], case["capacity"][0][-1])]
    spots += [(vertices, *at) for at in zip(layout.indices_at, edges, case["capacity"][1], strict=True)]
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
    nodes, arrays = layout.nodes(memory, frontiers[-1]), layout.cut(memory, frontiers, edges)
    assert len(arrays.edge_ids) == (len(edges) if case["edge_ids"] else 0)
    found = [nodes, *arrays.indices, *arrays.indptr, *arrays.edge_ids]
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
        assert a.untyped_storage().data_ptr() == memory.untyped_storage().data_ptr()


def sampled(dtype: torch.dtype = torch.int64) -> tuple[torch.Tensor, MiniBatch]:
    """Memory, and a mini-batch of two hops in it: 2 seeds, 3 vertices within one hop, 4 within two."""
    layout = Layout([2, 5, 9], [4, 10], False, torch.int32, dtype)
    memory = torch.zeros(layout.length, dtype=torch.int32)
    arrays = layout.cut(memory, [2, 3, 4], [3, 5])
    for hop, (indptr, indices) in enumerate([([0, 2, 3], [2, 1, 0]), ([0, 1, 2, 5], [3, 0, 0, 1, 2])]):
        arrays.indptr[hop][:] = torch.tensor(indptr)
        arrays.indices[hop][:] = torch.tensor(indices)
    whole = Sampled(layout, memory, [2, 3, 4], [3, 5])
    blocks = SampledBlock.of(whole, 1, 4, 3), SampledBlock.of(whole, 0, 3, 2)
    return memory, MiniBatch(layout.nodes(memory, 4), (2, 3, 4), blocks)


def is_cut(block: Block) -> bool:
    return "indptr" in vars(block)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_blocks_are_cut_when_they_are_asked_for(dtype: torch.dtype) -> None:
    memory, batch = sampled(dtype)
    inner, outer = batch.blocks
    assert (inner.num_src, inner.num_dst, inner.num_edges) == (4, 3, 5)
    assert (outer.num_src, outer.num_dst, outer.num_edges) == (3, 2, 3)
    assert (inner.edge_ids, inner.edge_features, inner.live) == (None, None, 0)
    assert batch.num_edges == 8
    assert batch.held_bytes == memory.nbytes
    assert not is_cut(inner)
    assert outer.indptr.tolist() == [0, 2, 3]
    assert outer.indices.tolist() == [2, 1, 0]
    assert is_cut(outer)
    assert not is_cut(inner)
    assert inner.indices.tolist() == [3, 0, 0, 1, 2]
    assert inner.indptr.tolist() == [0, 1, 2, 5]
    assert inner.indptr is inner.indptr
    assert inner.indptr.dtype == dtype
    assert inner.num_edges == 5
    assert batch.held_bytes == memory.nbytes
    assert isinstance(inner, Block)


def test_an_attribute_that_a_block_has_not() -> None:
    _, batch = sampled()
    with pytest.raises(AttributeError, match="'SampledBlock' object has no attribute 'num_rows'"):
        _ = batch.blocks[0].num_rows


def test_memory_is_that_of_the_arrays() -> None:
    memory, batch = sampled()
    inner, _ = batch.blocks
    assert [t is memory for t in inner.memory()] == [True]
    assert inner.indptr.numel() == 4
    assert [id(t) for t in inner.memory()] == [id(inner.indptr), id(inner.indices)]
    x = torch.zeros(4, 2)
    assert batch.replace(x=x).held_bytes == memory.nbytes + x.nbytes


@pytest.mark.parametrize("asked_before", [False, True])
@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        lambda block: pickle.loads(pickle.dumps(block)),
        lambda block: dataclasses.replace(block, edge_features=torch.ones(5, 1)),
        lambda block: apply_to_collection(block, torch.Tensor, lambda t: t.clone()),
    ],
    ids=["copy", "deepcopy", "pickle", "replace", "lightning"],
)
def test_copies_have_arrays(copied: Any, asked_before: bool) -> None:
    _, batch = sampled()
    block = batch.blocks[0]
    if asked_before:
        assert block.indices.numel() == 5
    other = copied(block)
    assert other.indptr.tolist() == [0, 1, 2, 5]
    assert other.indices.tolist() == [3, 0, 0, 1, 2]
    assert (other.num_src, other.num_dst, other.num_edges) == (4, 3, 5)
    assert len(other.memory()) == 2 + (other.edge_features is not None)


def test_copies_have_what_was_put_there() -> None:
    _, batch = sampled()
    block = batch.blocks[0]
    vars(block).update(live=7, color="red")
    other = copy.copy(block)
    assert type(other) is Block
    assert (other.live, vars(other)["color"]) == (7, "red")
    assert other.indices is block.indices


def test_an_array_that_was_exchanged_stays() -> None:
    _, batch = sampled()
    block = batch.blocks[0]
    block.indices = torch.zeros(7)
    assert block.num_edges == 7
    assert any(t is block.indices for t in block.memory())
    assert block.indptr.tolist() == [0, 1, 2, 5]
    assert block.indices.tolist() == [0] * 7


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_arrays_are_of_the_mode_of_who_sampled(dtype: torch.dtype) -> None:
    _, batch = sampled(dtype)
    with torch.inference_mode():
        assert batch.blocks[0].indptr.numel() == 4
        _, other = sampled(dtype)
    assert not batch.blocks[0].indptr.is_inference()
    assert not batch.blocks[1].indices.is_inference()
    assert other.blocks[0].indptr.is_inference()


def test_an_array_that_was_added_is_in_its_memory() -> None:
    memory, batch = sampled()
    block = batch.blocks[0]
    block.edge_features = torch.ones(5, 1)
    assert not is_cut(block)
    assert [id(t) for t in block.memory()] == [id(memory), id(block.edge_features)]
    assert batch.held_bytes == memory.nbytes + 5 * 4


def test_digest_is_that_of_plain_blocks() -> None:
    _, batch = sampled()
    plain = tuple(Block(b.indptr.clone(), b.indices.clone(), b.num_src, b.num_dst) for b in batch.blocks)
    assert sampled()[1].digest() == batch.replace(blocks=plain).digest()
    assert batch.to("cpu").digest() == batch.digest()


def test_threads_that_ask_at_once_get_the_same_arrays() -> None:
    for _ in range(50):
        _, batch = sampled()
        block, start = batch.blocks[0], threading.Barrier(4)
        found: list[int] = []

        def ask(block: Block = block, start: threading.Barrier = start, found: list[int] = found) -> None:
            start.wait()
            found.append(id(block.indptr))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert set(found) == {id(block.indptr)}
        assert len(found) == 4

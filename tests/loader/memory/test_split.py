"""What is kept of lists and rows: it fits, nothing better is left out, and it is counted as mini-batches read it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.graph import Graph
from loader.memory.split import Reads, Split, _fill, _Items, split_memory
from loader.memory.visits import classes_of
from loader.samplers import FusedSampler

ROW = 200  # bytes, two lines over the bus


def graph_of(seed: int, nodes: int = 50, edges: int = 2000) -> Graph:
    g = torch.Generator().manual_seed(seed)
    src, dst = torch.randint(nodes, (2, edges), generator=g)
    return Graph.from_edges(src, dst * dst // nodes, nodes)


def reads_of(graph: Graph, seed: int) -> Reads:
    g = torch.Generator().manual_seed(seed)
    lists = torch.rand(graph.num_nodes, generator=g, dtype=torch.float64) * 1000
    rows = torch.rand(graph.num_nodes, generator=g, dtype=torch.float64) * (torch.rand(50, generator=g) < 0.7)
    return Reads(10, lists * (graph.in_degrees() > 0), rows, 50)


def bytes_over_the_bus(split: Split, reads: Reads) -> float:
    lists, rows = reads.lists.clone(), reads.rows * 256
    lists[slice(None) if split.lists is None else split.lists] = 0
    rows[slice(None) if split.rows is None else split.rows] = 0
    return float(lists.sum() + rows.sum())


@given(seed=st.integers(0, 1000), share=st.floats(0, 1.2))
@settings(max_examples=60)
def test_a_split_fits_and_is_counted(seed: int, share: float) -> None:
    graph = graph_of(seed)
    reads = reads_of(graph, seed)
    everything = graph.indptr.nbytes + graph.indices.nbytes + 50 * ROW
    room = int(share * everything)
    split = split_memory(room, graph, ROW, reads)
    assert split.list_bytes + split.row_bytes <= room
    assert split.bus == pytest.approx(bytes_over_the_bus(split, reads), abs=1e-6)
    assert split.bus_without == pytest.approx(float(reads.lists.sum() + reads.rows.sum() * 256))
    assert split.bus <= split.bus_without + 1e-6
    if room >= everything:
        assert split.lists is None
        assert split.rows is None
        assert split.bus == 0


@given(seed=st.integers(0, 1000), share=st.floats(0.1, 0.9))
@settings(max_examples=60)
def test_the_rest_is_worth_less_than_the_kept(seed: int, share: float) -> None:
    graph = graph_of(seed)
    reads = reads_of(graph, seed)
    room = int(share * (graph.indptr.nbytes + graph.indices.nbytes + 50 * ROW))
    split = split_memory(room, graph, ROW, reads)
    if split.lists is None or split.rows is None or not split.lists.numel() or not split.rows.numel():
        return
    list_worth = reads.lists / (graph.in_degrees() * 4).clamp(min=1)
    row_worth = reads.rows * 256 / ROW
    kept = torch.cat([list_worth[split.lists], row_worth[split.rows]])
    rest = torch.cat([list_worth.index_fill(0, split.lists, 0), row_worth.index_fill(0, split.rows, 0)])
    left = room - split.list_bytes - split.row_bytes
    largest = max(ROW, int(graph.in_degrees().max()) * 4)
    assert float(kept.min()) >= float(rest.max()) - 1e-12 or left < largest


def sorted_fill(kinds: list[tuple[torch.Tensor, torch.Tensor]], room: int) -> list[torch.Tensor]:
    """By a sort of everything: bytes and savings of each kind -> ids of each."""
    nbytes, saved = (torch.cat(parts) for parts in zip(*kinds, strict=True))
    order = torch.argsort(saved / nbytes.clamp(min=1), descending=True, stable=True)
    taken = torch.zeros(nbytes.numel(), dtype=torch.bool)
    taken[order[torch.cumsum(nbytes[order], 0) <= room]] = True
    return [part.nonzero().view(-1) for part in taken.split([len(of) for of, _ in kinds])]


sizes_and_savings = st.lists(
    st.tuples(st.integers(0, 300), st.sampled_from([0.0, 1.0, 1.0000001, 5.0, 1e-9, 1e9]) | st.floats(0, 1e6)),
    max_size=30,
)


@given(kinds=st.lists(sizes_and_savings, min_size=1, max_size=2), room=st.integers(-5, 3000))
@settings(max_examples=60)
def test_a_sort_keeps_the_same(kinds: list[list[tuple[int, float]]], room: int) -> None:
    made = [
        (torch.tensor([a for a, _ in of], dtype=torch.int64), torch.tensor([b for _, b in of], dtype=torch.float64))
        for of in kinds
    ]
    found = _fill([_Items.of(*of) for of in made], room)
    for ids, expected in zip(found, sorted_fill(made, room), strict=True):
        assert torch.equal(ids, expected)


def test_no_room_keeps_nothing() -> None:
    graph = graph_of(1)
    split = split_memory(10, graph, ROW, reads_of(graph, 1))
    assert split.lists is not None
    assert split.rows is not None
    assert split.lists.numel() == split.rows.numel() == split.list_bytes == split.row_bytes == 0
    assert split.bus == split.bus_without


def test_reads_are_those_of_mini_batches() -> None:
    graph = graph_of(2)
    sampler = FusedSampler([3, 2], num_threads=1)
    batches = [sampler.sample(graph, torch.arange(5 * i, 5 * i + 5), batch=i) for i in range(4)]
    reads = Reads.of(graph, batches, [3, 2])
    counts = torch.zeros(50, dtype=torch.int64)
    for batch in batches:
        counts[batch.input_nodes.long()] += 1
    assert reads.counted == 4
    assert torch.equal(reads.rows, classes_of(graph, counts).expected(counts) / 4)
    assert reads.rows_of.tolist() == [batch.input_nodes.numel() for batch in batches]
    # Each visit reads one line at least, and as many lines as picks at most.
    visits = sum(sum(batch.frontier_sizes[:-1]) for batch in batches) / 4
    assert 0.5 * visits * 128 <= float(reads.lists.sum()) <= 3 * visits * 128
    with pytest.raises(ValueError, match="there is no mini-batch that shows"):
        Reads.of(graph, [], [3, 2])

"""Traversals on a GPU equal those on the CPU, in every memory."""

from __future__ import annotations

import pytest
import reference_traverse as reference
import torch
from graphs import chain, equal_degrees, messy_graph, star, widen
from marks import needs_gpu

from loader.graph import Graph
from loader.traverse import bfs, connected_components, k_hop, pagerank, sssp
from loader.traverse.arrays import onward_weights, where

pytestmark = needs_gpu

GRAPHS = {
    "messy": lambda: messy_graph(3000, 20_000, seed=2),
    "star": lambda: star(60_000),
    "chain": lambda: chain(200),
    "circle": lambda: equal_degrees(4000, 40),
    "power law": lambda: reference.power_law_graph(40_000, 400_000, seed=3),
    "grid": lambda: reference.grid_graph(40),
    "wide": lambda: widen(messy_graph(3000, 20_000, seed=5), "int64"),
    "wide edges": lambda: widen(messy_graph(3000, 20_000, seed=6), "wide edges"),
    "lonely": lambda: Graph.from_edges(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), 40),
}


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest) -> Graph:
    return GRAPHS[request.param]()


@pytest.mark.parametrize("place", ["cuda", "pinned"])
def test_searches_and_components_equal_the_cpu(graph: Graph, place: str) -> None:
    there = graph.place(place) if graph.num_edges else graph.to("cuda")
    source = graph.num_nodes // 3
    levels, labels = bfs(graph, [source, 0]), connected_components(graph)
    hops = k_hop(graph, source, 2)
    for turns in (True, False):
        found = bfs(there, [source, 0], direction_optimizing=turns, device="cuda")
        assert found.device.type == "cuda"
        assert torch.equal(found.cpu(), levels), turns
    assert torch.equal(k_hop(there, source, 2, device="cuda").cpu(), hops)
    assert torch.equal(connected_components(there, device="cuda").cpu(), labels)
    assert torch.equal(connected_components(there, symmetric=False, device="cuda").cpu(), labels)


@pytest.mark.parametrize("place", ["cuda", "pinned"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
def test_lengths_equal_the_cpu(graph: Graph, place: str, dtype: torch.dtype) -> None:
    there = graph.place(place) if graph.num_edges else graph.to("cuda")
    generator = torch.Generator().manual_seed(4)
    weights = torch.randint(0, 900, (graph.num_edges,), generator=generator).to(dtype)
    if dtype.is_floating_point:
        weights = weights / 7
    expected = sssp(graph, 3, weights)
    of_gpu = weights.pin_memory() if place == "pinned" and graph.num_edges else weights.cuda()
    for delta in (None, 5000):
        assert torch.equal(sssp(there, 3, of_gpu, device="cuda", delta=delta).cpu(), expected), delta


@pytest.mark.parametrize("place", ["cuda", "pinned"])
def test_ranks_equal_the_cpu_bit_by_bit(graph: Graph, place: str) -> None:
    there = graph.place(place) if graph.num_edges else graph.to("cuda")
    own = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(1))
    expected = pagerank(graph, personalization=own)
    assert torch.equal(pagerank(there, personalization=own, device="cuda").cpu(), expected)


def test_a_traversal_belongs_to_its_stream() -> None:
    graph = reference.power_law_graph(40_000, 400_000, seed=9)
    there, expected = graph.to("cuda"), bfs(graph, 5)
    streams = [torch.cuda.Stream() for _ in range(3)]
    found = []
    for _ in range(5):
        for stream in streams:
            with torch.cuda.stream(stream):
                found.append(bfs(there, 5, symmetric=True))
    torch.cuda.synchronize()
    assert all(torch.equal(one.cpu(), expected) for one in found)


def test_kept_arrays_are_whole_on_all_streams() -> None:
    there = reference.power_law_graph(4000, 40_000, seed=9).to("cuda")
    at, weights = where(there, "cuda", None), torch.rand(there.num_edges, device="cuda")
    onward_weights(there, at, weights, False)  # the lists turned round are there
    other = weights + 1
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(200_000_000)
        moved = onward_weights(there, at, other, False)[1]
    with torch.cuda.stream(torch.cuda.Stream()):
        read = moved.clone()
    torch.cuda.synchronize()
    assert torch.equal(read, moved)


def test_a_graph_elsewhere_is_refused() -> None:
    graph = chain(10)
    with pytest.raises(ValueError, match="wants a graph there or in pinned memory; its indptr lies on cpu"):
        bfs(graph, 0, device="cuda")
    with pytest.raises(ValueError, match="a traversal on the CPU needs a graph there"):
        bfs(graph.to("cuda"), 0, device="cpu")
    with pytest.raises(ValueError, match=r"num_threads is 2, but the traversal runs on cuda:0"):
        bfs(graph.to("cuda"), 0, num_threads=2)
    with pytest.raises(ValueError, match="return_predecessors is True, but the search runs on cuda:0"):
        bfs(graph.to("cuda"), 0, return_predecessors=True)

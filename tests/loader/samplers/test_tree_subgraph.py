"""Trees in torch_geometric's form: those of `TreeSampler`, by type."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.graph import Graph, HeteroGraph
from loader.samplers import Request, TreeSampler
from loader.samplers.tree_subgraph import EDGES, TreeSubgraphSampler
from loader.samples import HeteroSubgraph, Subgraph


def square(seed: int = 0) -> Graph:
    g = torch.Generator().manual_seed(seed)
    src, dst = torch.randint(30, (2, 200), generator=g)
    times = torch.randint(10, (30,), generator=g)
    return Graph.from_edges(src, dst, 30, keep_edge_ids=True, node_times=times)


@given(st.integers(0, 2**20), st.lists(st.integers(0, 29), max_size=8))
@settings(max_examples=30)
def test_a_graph_of_one_type_gives_subgraphs(seed: int, ids: list[int]) -> None:
    graph, nodes = square(seed), torch.tensor(ids, dtype=torch.int64)
    times = torch.arange(len(ids)) + 2
    options = {"times": "node", "edge_ids": True, "seed": seed}
    found = TreeSubgraphSampler({EDGES: [3, 2]}, **options).sample(graph, nodes, times)
    wanted = TreeSampler([3, 2], **options).sample(HeteroGraph(graph, {"node": 30}, [EDGES]), nodes, times)
    assert isinstance(found, Subgraph)
    assert torch.equal(found.nodes, wanted.nodes.long())
    assert torch.equal(found.tree, wanted.tree.long())
    assert torch.equal(found.seed_times, times)
    hops = wanted.blocks[::-1]
    assert torch.equal(found.edge_index[0], torch.cat([hop.indices for hop in hops]).long())
    assert torch.equal(found.edge_ids, torch.cat([hop.edge_ids for hop in hops]).long())
    assert found.num_edges == tuple(hop.num_edges for hop in hops)
    for seen in (found.map(torch.clone), found.replace(epoch=3)):
        assert torch.equal(seen.tree, found.tree)


def test_positions_of_seeds_are_kept() -> None:
    sampler = TreeSubgraphSampler({EDGES: [2]})
    session = sampler.open(square())
    finish = session.begin([Request(torch.tensor([4, 4]), 0, 0, torch.tensor([7, 9]))])
    assert finish[0]().positions.tolist() == [7, 9]
    session.check()
    session.close()


def test_types_have_trees() -> None:
    key = ("a", "to", "b")
    graph = HeteroGraph.from_edges({key: torch.tensor([[0, 1, 2], [0, 0, 1]])}, {"a": 3, "b": 2})
    found = TreeSubgraphSampler({key: [-1]}).sample(graph, {"b": torch.tensor([0, 1, 0])})
    assert isinstance(found, HeteroSubgraph)
    assert found.tree is not None
    assert found.tree["b"].tolist() == [0, 1, 2]
    assert found.tree["a"].tolist() == [0, 0, 1, 2, 2]
    assert found.nodes["a"].tolist() == [0, 1, 2, 0, 1]
    assert found.edges[key].tolist() == [[0, 1, 2, 3, 4], [0, 0, 1, 2, 2]]
    assert len(found.tensors()) == 5


def test_reverses_are_added_within_trees() -> None:
    graph = Graph.from_edges(torch.tensor([0, 1]), torch.tensor([2, 2]), 3)
    sampler = TreeSubgraphSampler({EDGES: [-1]}, both=True)
    found = sampler.sample(graph, torch.tensor([2, 2]))
    assert found.edge_index.tolist() == [[2, 3, 4, 5, 0, 0, 1, 1], [0, 0, 1, 1, 2, 3, 4, 5]]
    assert sampler.spec()["subgraph_type"] == "bidirectional"


def test_a_bipartite_graph_is_refused() -> None:
    graph = Graph.from_edges(torch.tensor([0, 1]), torch.tensor([0, 0]), 1, num_src=2)
    with pytest.raises(ValueError, match="TreeSubgraphSampler wants a graph of one set of nodes"):
        TreeSubgraphSampler({EDGES: [2]}).open(graph)

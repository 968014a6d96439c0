"""The oracle of typed mini-batches says of one type and relation what the core does, and reads graphs as they are."""

from __future__ import annotations

import hetero_oracle as oracle
import numpy as np
import pytest
import reference_sampler
import torch

from loader.graph import Graph
from loader.graph.hetero import HeteroGraph
from loader.samplers import FusedSampler
from loader.samples import subgraph_of

PICKINGS = [
    oracle.Picking(),
    oracle.Picking(replace=True),
    oracle.Picking(weighted=True),
    oracle.Picking(weighted=True, replace=True),
    oracle.Picking(weighted=True, top_k=True),
    oracle.Picking(weighted=True, race=True),
    oracle.Picking(labor=True),
    oracle.Picking(labor=True, layer_dependency=True, batch_dependency=3),
]
ITSELF = ("a", "to", "a")


def one_type(rng: np.random.Generator) -> oracle.HeteroGraph:
    n, count = int(rng.integers(1, 80)), int(rng.integers(0, 800))
    src, dst = rng.integers(0, n, count), rng.integers(0, n, count)
    dst[: count // 3] = 0
    weights = rng.choice([0.0, 1.0, 2.5, 1e-3], count).astype(np.float32)
    return oracle.HeteroGraph({"a": n}, {ITSELF: (src, dst)}, {ITSELF: weights})


@pytest.mark.parametrize("picking", PICKINGS, ids=str)
def test_one_relation_gives_todays_arrays(picking) -> None:
    rng = np.random.default_rng(1)
    for batch in range(40):
        typed = one_type(rng)
        (src, dst), n = typed.edges[ITSELF], typed.num_nodes["a"]
        graph = Graph.from_edges(
            torch.from_numpy(src),
            torch.from_numpy(dst),
            n,
            keep_edge_ids=True,
            edge_weights=torch.from_numpy(typed.weights[ITSELF]),
        )
        fanouts = rng.choice([-1, 1, 2, 5, 17, 40, 300], int(rng.integers(1, 4))).tolist()
        seeds = rng.permutation(n)[:9]
        sampler = FusedSampler(fanouts, seed=5, edge_ids=True, num_threads=1, **picking.options())
        expected = sampler.sample(graph, torch.from_numpy(seeds), epoch=2, batch=batch)
        found = oracle.sample(typed, seeds, fanouts, seed=5, epoch=2, batch=batch, picking=picking)
        assert found.nodes.tolist() == expected.nodes.tolist()
        for hop, block in zip(found.hops, reversed(expected.blocks), strict=True):
            assert (hop.num_src, hop.num_dst, hop.first_dst) == (block.num_src, block.num_dst, 0)
            assert hop.indptr.tolist() == block.indptr.tolist()
            assert hop.indices.tolist() == block.indices.tolist()
            assert hop.edge_ids.tolist() == block.edge_ids.tolist()

        subgraph, *_ = subgraph_of(expected)
        found = oracle.sample(typed, seeds, fanouts, expand="new", seed=5, epoch=2, batch=batch, picking=picking)
        assert found.nodes.tolist() == subgraph.nodes.tolist()
        assert found.sizes == tuple((count,) for count in subgraph.num_nodes)
        assert np.concatenate([h.indices for h in found.hops]).tolist() == subgraph.edge_index[0].tolist()
        assert np.concatenate([h.edge_ids for h in found.hops]).tolist() == subgraph.edge_ids.tolist()


def test_its_lists_are_those_of_a_hetero_graph() -> None:
    rng = np.random.default_rng(2)
    for _ in range(40):
        typed = oracle.random_graph(rng, weighted=False, largest=30)
        edges = {key: torch.stack([torch.from_numpy(end) for end in ends]) for key, ends in typed.edges.items()}
        lists = HeteroGraph.from_edges(edges, typed.num_nodes).lists
        every = np.arange(sum(typed.num_nodes.values()))
        *_, rows = typed.lists.rows(every)
        begin, end = typed.lists.starts[rows], typed.lists.starts[rows + 1]
        assert lists.indptr.tolist() == [0, *np.cumsum(end - begin).tolist()]
        places = np.concatenate([np.arange(a, b) for a, b in zip(begin, end, strict=True)] or [np.zeros(0, np.int64)])
        assert lists.indices.tolist() == typed.lists.sources[places].tolist()
        assert lists.edge_ids is not None
        assert lists.edge_ids.tolist() == typed.lists.ids[places].tolist()


def test_a_draw_belongs_to_node_hop_and_slot() -> None:
    # Two lists of 100 entries each into the only node: the picks of slot 1 are those of the step hop + 256.
    ends = np.arange(100), np.zeros(100, np.int64)
    typed = oracle.HeteroGraph({"a": 100, "b": 1}, {("a", "x", "b"): ends, ("a", "y", "b"): ends})
    found = oracle.sample(typed, np.array([100]), [7], seed=3, epoch=1, batch=4)
    picker = reference_sampler.Picker(3, 1, 4)
    expected = [picker.positions(100, 1 + (slot << 8), 100, 7, False) for slot in range(2)]
    assert found.hops[0].edge_ids.tolist() == expected[0] + expected[1]


def test_its_words_are_those_of_philox() -> None:
    rng = np.random.default_rng(3)
    counters = rng.integers(0, 2**32, (4, 50))
    words = np.stack(oracle.philox(*counters, (2**32 - 1, 77)))
    for i in range(50):
        assert tuple(words[:, i].tolist()) == reference_sampler.philox(tuple(counters[:, i].tolist()), (2**32 - 1, 77))


def test_random_cases_reach_what_they_are_for() -> None:
    rng = np.random.default_rng(4)
    cases = [oracle.random_case(rng) for _ in range(300)]
    graphs = [case.graph for case in cases]
    assert {len(graph.num_nodes) for graph in graphs} == set(range(1, 9))
    assert any(0 in graph.num_nodes.values() for graph in graphs)
    assert any(key[0] == key[2] for graph in graphs for key in graph.edges)
    into = {sum(key[2] == name for key in graph.edges) for graph in graphs for name in graph.num_nodes}
    assert into == set(range(7))
    drawn = [case.fanouts.values() if isinstance(case.fanouts, dict) else [case.fanouts] for case in cases]
    fanouts = {k for lists in drawn for per_hop in lists for k in per_hop}
    assert {-1, 0, 1, 1024} <= fanouts
    assert {case.expand for case in cases} == {"all", "new"}
    of_several = [case for case in cases if len(np.unique(case.graph.lists.types_of(case.seeds))) > 1]
    assert of_several
    assert any(oracle.sample_case(case).hops[-1].indices.size for case in of_several)

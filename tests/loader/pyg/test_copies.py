"""A seed that is given several times picks each time by itself: beside a walk in plain Python, and as a law."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_picks import from_tables, tables_of
from reference_sampler import Picker
from statistics_of_counts import LEVEL, p_equal
from torch_geometric.data import Data

import loader.pyg
from loader import Graph
from loader.pyg import NeighborLoader
from loader.samplers import SubgraphSampler

needs_ours = pytest.mark.skipif(loader.pyg.backend() != "loader", reason="pyg-lib or torch-sparse is installed")


def graph_of(seed: int, num_nodes: int = 30, num_edges: int = 240) -> Graph:
    g = torch.Generator().manual_seed(seed)
    weights = torch.tensor([0.0, 0.5, 1, 1, 7])[torch.randint(5, (num_edges,), generator=g)]
    return Graph.from_edges(*torch.randint(num_nodes, (2, num_edges), generator=g), num_nodes, edge_weights=weights)


def walk(graph: Graph, seeds: list[int], fanouts: list[int], pick: Callable[[int, int, int, int], list[int]]) -> Any:
    """Nodes, pairs of places and places in the lists, hop by hop; `pick` has the node, its lane, the hop and fanout."""
    nodes, pairs, places = list(seeds), [], []
    local = {v: len(seeds) - 1 - i for i, v in enumerate(reversed(seeds))}  # the first place
    lanes = [v | seeds[:i].count(v) << 40 for i, v in enumerate(seeds)]
    begin = 0
    for hop, fanout in enumerate(fanouts, 1):
        met = []
        for row in range(begin, len(nodes)):
            v = nodes[row]
            first = int(graph.indptr[v])
            for i in pick(v, lanes[row] if hop == 1 else v, hop, fanout):
                places.append(first + i)
                met.append((int(graph.indices[first + i]), row))
        begin = len(nodes)
        for u in sorted({u for u, _ in met} - local.keys()):
            local[u] = len(nodes)
            nodes.append(u)
        pairs += [(local[u], row) for u, row in met]
    return nodes, pairs, places


@settings(max_examples=80, deadline=None)
@given(
    seeds=st.lists(st.integers(0, 7), min_size=1, max_size=12),
    fanouts=st.lists(st.sampled_from([-1, 0, 1, 2, 5]), min_size=1, max_size=3),
    replace=st.booleans(),
    weighted=st.booleans(),
    number=st.integers(0, 2**40),
    threads=st.integers(1, 3),
)
def test_picks_are_those_of_a_walk(seeds, fanouts, replace, weighted, number, threads) -> None:
    graph = graph_of(number % 5)
    picker = Picker(11, 2, number)
    tables = [
        tables_of(graph.edge_weights[graph.indptr[v] : graph.indptr[v + 1]].double().tolist())
        for v in range(graph.num_nodes)
    ]

    def pick(v: int, lane: int, hop: int, fanout: int) -> list[int]:
        if weighted:
            return from_tables(picker, tables[v], lane, hop, fanout, replace)
        return picker.positions(lane, hop, int(graph.indptr[v + 1] - graph.indptr[v]), fanout, replace)

    sampler = SubgraphSampler(
        fanouts, replace=replace, edge_ids=True, seed=11, weights="edge_weights" if weighted else None,
        num_threads=threads,
    )  # fmt: skip
    made = sampler.sample(graph, torch.tensor(seeds), epoch=2, batch=number)
    nodes, pairs, places = walk(graph, seeds, fanouts, pick)
    assert made.nodes.tolist() == nodes
    assert list(zip(*made.edge_index.tolist(), strict=True)) == pairs
    edge_ids = torch.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids
    assert made.edge_ids.tolist() == edge_ids[places].tolist()
    assert made.num_nodes[0] == len(seeds)
    assert sum(made.num_nodes) == len(nodes)
    assert sum(made.num_edges) == len(pairs)


@needs_ours
def test_the_operator_gives_these_picks() -> None:
    graph, seeds = graph_of(1), torch.tensor([7, 3, 7, 7])
    torch.manual_seed(5)
    number = int(torch.empty((), dtype=torch.int64).random_())
    torch.manual_seed(5)
    found = torch.ops.pyg.neighbor_sample(
        graph.indptr.long(), graph.indices.long(), seeds, [3, 2], None, None, None, None, True, False, True, False,
        "uniform", True,
    )  # fmt: skip
    made = SubgraphSampler([3, 2], edge_ids=True, seed=number).sample(graph, seeds)
    assert torch.equal(found[2], made.nodes)
    assert torch.equal(torch.stack(found[:2]), made.edge_index)
    assert found[4] == list(made.num_nodes)


def test_copies_of_a_seed_pick_independently() -> None:
    graph = Graph.from_edges(torch.arange(1, 5), torch.zeros(4, dtype=torch.int64), 5)
    sampler = SubgraphSampler([1], edge_ids=True)
    counts = np.zeros((3, 16), dtype=np.int64)
    for batch in range(3000):
        picks = sampler.sample(graph, torch.tensor([0, 0, 0]), batch=batch).edge_ids.tolist()
        for pair, (a, b) in enumerate(((0, 1), (1, 2), (0, 2))):
            counts[pair, 4 * picks[a] + picks[b]] += 1
    assert all(p_equal(of) > LEVEL for of in counts)


def test_other_seeds_keep_their_picks() -> None:
    graph = graph_of(2)
    sampler = SubgraphSampler([3], edge_ids=True, seed=4)
    once = sampler.sample(graph, torch.tensor([4, 9]))
    twice = sampler.sample(graph, torch.tensor([4, 9, 4, 4]))
    for row in range(2):
        assert twice.edge_ids[twice.edge_index[1] == row].tolist() == once.edge_ids[once.edge_index[1] == row].tolist()
    copies = [twice.edge_ids[twice.edge_index[1] == row].tolist() for row in (0, 2, 3)]
    assert copies[0] != copies[1] != copies[2]
    assert not bool((twice.edge_index[0] >= 2)[twice.nodes[twice.edge_index[0]] == 4].any())
    again = sampler.sample(graph, torch.tensor([4, 9]))  # what follows is as before
    assert torch.equal(again.edge_ids, once.edge_ids)


def test_induced_edges_are_among_the_nodes_of_all_copies() -> None:
    graph = graph_of(3)
    options = {"edge_ids": True, "seed": 1}
    seeds = torch.tensor([5, 5, 2])
    picked = SubgraphSampler([2], **options).sample(graph, seeds)
    made = SubgraphSampler([2], subgraph_type="induced", **options).sample(graph, seeds)
    assert torch.equal(made.nodes, picked.nodes)
    inside = torch.isin(graph.indices.long(), made.nodes)
    degrees = [int(inside[graph.indptr[v] : graph.indptr[v + 1]].sum()) for v in made.nodes.tolist()]
    assert made.edge_index[1].tolist() == torch.arange(len(degrees)).repeat_interleave(torch.tensor(degrees)).tolist()


@pytest.mark.parametrize("kind", ["directional", "induced", "bidirectional"])
def test_loaders_take_copies(kind: str) -> None:
    g = torch.Generator().manual_seed(2)
    data = Data(edge_index=torch.randint(40, (2, 600), generator=g), num_nodes=40, x=torch.arange(40.0)[:, None])
    seeds = torch.tensor([7, 3, 7, 7, 1, 3])
    made = NeighborLoader(data, [2, 2], input_nodes=seeds, batch_size=6, subgraph_type=kind, seed=3)
    (batch,) = made
    assert batch.n_id[:6].tolist() == seeds.tolist()
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert batch.n_id[6:].unique().numel() == batch.num_nodes - 6
    if kind == "directional":
        targets = batch.edge_index[1, : batch.num_sampled_edges[0]]
        assert torch.bincount(targets, minlength=6).tolist() == [2] * 6
        picks = [batch.e_id[: len(targets)][targets == row].tolist() for row in (0, 2, 3)]
        assert len({tuple(of) for of in picks}) > 1

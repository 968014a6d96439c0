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
from loader.graph import HeteroGraph
from loader.pyg import NeighborLoader
from loader.samplers import FusedSampler, HopwiseSampler, SubgraphSampler

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


def test_induced_edges_are_among_nodes_of_all_copies() -> None:
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


def typed_graph(number: int) -> HeteroGraph:
    g = torch.Generator().manual_seed(number)
    sizes = {"a": 12, "b": 9, "c": 5}
    edges = {
        (s, name, t): torch.stack([torch.randint(sizes[of], (count,), generator=g) for of in (s, t)])
        for s, name, t, count in (("a", "x", "b", 80), ("b", "y", "b", 60), ("c", "z", "b", 30), ("b", "w", "a", 90))
    }  # fmt: skip
    return HeteroGraph.from_edges(edges, sizes)


def typed_walk(
    graph: HeteroGraph, seeds: dict[str, list[int]], fanouts: dict[Any, tuple[int, ...]], picker: Picker
) -> Any:
    """Nodes by type, and of each relation triples: place of the target, id of the source, id of the edge."""
    nodes = {name: list(seeds.get(name, [])) for name in graph.node_types}
    edges: dict[Any, list[tuple[int, int, int]]] = {key: [] for key in graph.edge_types}
    begin = dict.fromkeys(nodes, 0)
    for hop in range(1, 1 + len(next(iter(fanouts.values())))):
        met: dict[str, set[int]] = {name: set() for name in nodes}
        for key, of_hop in fanouts.items():
            lists, (source, _, target) = graph.relation(key), key
            slot = [other for other in graph.edge_types if other[2] == target].index(key)
            for row in range(begin[target], len(nodes[target])):
                v = nodes[target][row]
                first, end = lists.indptr[v : v + 2].tolist()
                lane = graph.node_types[target].start + v
                lane |= (nodes[target][:row].count(v) if hop == 1 else 0) << 40
                for i in picker.positions(lane, hop | slot << 8, end - first, of_hop[hop - 1], False):
                    u = int(lists.indices[first + i])
                    edges[key].append((row, u, int(lists.edge_ids[first + i])))
                    met[source].add(u)
        begin = {name: len(ids) for name, ids in nodes.items()}
        for name, found in met.items():
            nodes[name] += sorted(found - set(nodes[name]))
    return nodes, edges


@settings(max_examples=60, deadline=None)
@given(
    seeds=st.lists(st.integers(0, 4), min_size=1, max_size=9),
    others=st.lists(st.integers(0, 3), max_size=4),
    fanouts=st.lists(st.sampled_from([-1, 1, 2, 4]), min_size=8, max_size=8),
    number=st.integers(0, 2**33),
    threads=st.integers(1, 3),
)
def test_picks_of_several_types_are_a_walks(seeds, others, fanouts, number, threads) -> None:
    graph = typed_graph(number % 3)
    by_relation = {key: tuple(fanouts[2 * i : 2 * i + 2]) for i, key in enumerate(graph.edge_types)}
    sampler = SubgraphSampler(by_relation, edge_ids=True, seed=11, num_threads=threads)
    given_seeds = {"a": others, "b": seeds} if others else {"b": seeds}
    made = sampler.sample(graph, {name: torch.tensor(ids) for name, ids in given_seeds.items()}, epoch=2, batch=number)
    nodes, edges = typed_walk(graph, given_seeds, by_relation, Picker(11, 2, number))
    assert {name: ids.tolist() for name, ids in made.nodes.items()} == nodes
    for key, expected in edges.items():
        sources, targets = made.edges[key]
        found = zip(targets.tolist(), made.nodes[key[0]][sources].tolist(), made.edge_ids[key].tolist(), strict=True)
        assert sorted(found) == sorted(expected)
        firsts = [nodes[key[0]].index(u) for u in made.nodes[key[0]][sources].tolist()]
        assert sources.tolist() == firsts


def test_of_several_types_copies_pick_independently() -> None:
    edges = {("a", "x", "b"): torch.stack([torch.arange(4), torch.zeros(4, dtype=torch.int64)])}
    edges["c", "y", "b"] = edges["a", "x", "b"]
    graph = HeteroGraph.from_edges(edges, {"a": 4, "b": 1, "c": 4})
    sampler = SubgraphSampler(dict.fromkeys(graph.edge_types, (1,)), edge_ids=True)
    counts = np.zeros((4, 16), dtype=np.int64)
    for batch in range(3000):
        made = sampler.sample(graph, {"b": torch.tensor([0, 0])}, batch=batch)
        (x0, x1), (y0, y1) = (made.edge_ids[key].tolist() for key in graph.edge_types)
        for pair, (one, two) in enumerate(((x0, x1), (y0, y1), (x0, y1), (x1, y1))):
            counts[pair, 4 * one + two] += 1
    assert all(p_equal(of) > LEVEL for of in counts)


def test_other_samplers_refuse_copies() -> None:
    graph = typed_graph(0)
    fanouts = dict.fromkeys(graph.edge_types, (2,))
    for sampler in (FusedSampler(fanouts, expand="new"), HopwiseSampler(fanouts, expand="new"), FusedSampler(fanouts)):
        with pytest.raises(ValueError, match="more than once"):
            sampler.sample(graph, {"b": torch.tensor([1, 1])})

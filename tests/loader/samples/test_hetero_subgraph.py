"""torch_geometric's form of a typed mini-batch as a sample: what a sampler gives, rows by kind, copies."""

from __future__ import annotations

from typing import Any

import hetero_oracle as oracle
import numpy as np
import pytest
import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from torch_geometric.data import HeteroData

from loader.graph import HeteroGraph
from loader.samplers import FusedSampler, SubgraphSampler
from loader.samplers.tree_subgraph import TreeSubgraphSampler
from loader.samples import HeteroSubgraph

WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")


def small_graph() -> HeteroGraph:
    edges = {WRITES: torch.tensor([[0, 1, 2, 0], [0, 1, 2, 2]]), CITES: torch.tensor([[2, 0, 1], [1, 2, 0]])}
    return HeteroGraph.from_edges(edges, {"author": 3, "paper": 3})


def small() -> HeteroSubgraph:
    sampler = SubgraphSampler({WRITES: [-1, -1], CITES: [-1, -1]}, edge_ids=True)
    return sampler.sample(small_graph(), {"paper": torch.tensor([1, 0])})


def test_a_sampler_gives_what_the_oracle_says() -> None:
    rng, seen = np.random.default_rng(6), 0
    for _ in range(20):
        case = oracle.random_case(rng, uniform=True)
        if not case.graph.edges:
            continue
        graph = case.graph
        hops = case.fanouts if isinstance(case.fanouts, list) else next(iter(case.fanouts.values()))
        fanouts = dict.fromkeys(graph.edges, tuple(hops)) if isinstance(case.fanouts, list) else case.fanouts
        at = {"epoch": case.epoch, "batch": case.batch}
        expected = oracle.sample(graph, case.seeds, fanouts, expand="new", seed=case.seed, picking=case.picking, **at)
        edges = {key: torch.from_numpy(np.stack(ends)) for key, ends in graph.edges.items()}
        sampler = SubgraphSampler(fanouts, edge_ids=True, seed=case.seed, replace=case.picking.replace, num_threads=1)
        found = sampler.sample(HeteroGraph.from_edges(edges, graph.num_nodes), torch.from_numpy(case.seeds), **at)
        types = graph.lists.types_of(expected.nodes)
        for t, name in enumerate(graph.num_nodes):
            assert found.nodes[name].tolist() == (expected.nodes[types == t] - graph.lists.bounds[t]).tolist()
            assert found.num_nodes[name] == tuple(size[t] for size in expected.sizes)
        written = oracle.edges_by_hop(graph, expected)
        for key in graph.edges:
            src, dst, ids = oracle.columns([edge for edges in written for edge in edges[key]])
            assert found.edges[key].tolist() == [src, dst]
            assert found.edge_ids[key].tolist() == ids == found.ids("edge/" + "__".join(key)).tolist()
            assert found.num_edges[key] == tuple(len(edges[key]) for edges in written)
            seen += len(ids)
        assert found.batch_size == len(case.seeds)
    assert seen > 3_000


def test_rows_are_kept_by_kind() -> None:
    sample = small()
    edges = "edge/author__writes__paper", "edge/paper__cites__paper"
    assert sample.wants == ("node/author", "node/paper", "seed", *edges)
    kinds = [*sample.wants, "node/paper/year", "edge/paper__cites__paper/w"]
    full = sample.with_rows({kind: sample.ids(kind).float() for kind in kinds})
    assert all(full.has(kind) for kind in kinds)
    assert not any(sample.has(kind) for kind in kinds)
    assert full.place_of("node/paper/year") == ("paper", "year")
    assert full.place_of("edge/paper__cites__paper") == (CITES, "")
    assert full.ids("seed").tolist() == full.nodes["paper"][: full.batch_size].tolist()
    for kind in ("node/venue", "node/venue/x", "edge/cites"):
        with pytest.raises(KeyError, match=r"HeteroSubgraph wants rows of \['node/author'"):
            full.ids(kind)
    with pytest.raises(KeyError):
        sample.replace(edge_ids=None).ids("edge/paper__cites__paper")


def test_names_of_types_may_hold_a_slash() -> None:
    key = ("a/b", "to", "a/b")
    graph = HeteroGraph.from_edges({key: torch.tensor([[0, 1], [1, 0]])}, {"a/b": 2})
    sample = SubgraphSampler({key: [1]}, edge_ids=True).sample(graph, {"a/b": torch.tensor([1])})
    assert sample.place_of("node/a/b/x") == ("a/b", "x")
    assert sample.ids("node/a/b").tolist() == sample.ids("node/a/b/x").tolist() == [1, 0]
    assert sample.ids("edge/a/b__to__a/b/w").tolist() == [0]


def test_copies_have_all_parts() -> None:
    sample = small().with_rows({"node/paper/x": torch.ones(3, 2)})
    seen: list[int] = []
    copy = sample.map(lambda t: seen.append(id(t)) or t.clone())
    assert sorted(seen) == sorted(id(t) for t in sample.tensors())
    assert copy.digest() == sample.digest()
    assert copy.replace(epoch=3).digest() != sample.digest()
    assert copy.replace(rows={}).digest() != sample.digest()
    half = apply_to_collection(sample, Tensor, lambda t: t.half() if t.is_floating_point() else t)
    assert half.rows["node/paper/x"].dtype == torch.float16
    assert half.edges[CITES].dtype == torch.int64
    assert "num_nodes={'author': 3, 'paper': 3}" in repr(sample)


def test_fanouts_by_type_and_hetero_graphs_go_together() -> None:
    with pytest.raises(ValueError, match="takes a graph with types if its fanouts are given by edge type"):
        SubgraphSampler([2]).sample(small_graph(), {"paper": torch.tensor([1])})
    with pytest.raises(ValueError, match="fanouts is given per edge type, but the graph has one type"):
        SubgraphSampler({CITES: [2]}).sample(small_graph().lists, torch.tensor([1]))
    with pytest.raises(ValueError, match=r"subgraph_type is 'bidirectional', but fanouts are by edge type"):
        SubgraphSampler({CITES: [2]}, subgraph_type="bidirectional")


def same_data(one: HeteroData, two: HeteroData) -> bool:
    if one.metadata() != two.metadata():
        return False
    for key in (*one.node_types, *one.edge_types):
        if set(one[key].keys()) != set(two[key].keys()):
            return False
        if not all(torch.equal(torch.as_tensor(v), torch.as_tensor(two[key][name])) for name, v in one[key].items()):
            return False
    return True


def test_data_is_that_of_the_mini_batch() -> None:
    options: dict[str, Any] = {"edge_ids": True, "seed": 3}
    rows = {"node/paper": torch.rand(3, 2), "edge/paper__cites__paper": torch.rand(3, 1), "seed": torch.tensor([7, 8])}
    fanouts = {WRITES: [-1, -1], CITES: [-1, -1]}
    sample = SubgraphSampler(fanouts, **options).sample(small_graph(), {"paper": torch.tensor([1, 0])})
    batch = FusedSampler(fanouts, expand="new", **options).sample(small_graph(), {"paper": torch.tensor([1, 0])})
    data = sample.with_rows(rows).to_pyg()
    assert same_data(data, batch.with_rows(rows).to_pyg())
    assert torch.equal(data["paper"].y, rows["seed"])
    assert torch.equal(data["paper"].x, rows["node/paper"])
    assert torch.equal(data[CITES].edge_attr, rows["edge/paper__cites__paper"])
    assert data["paper"].num_sampled_nodes == [2, 1, 0]


def test_induced_data_has_no_counts_per_hop() -> None:
    sampler = SubgraphSampler({WRITES: [1], CITES: [1]}, subgraph_type="induced")
    data = sampler.sample(small_graph(), {"paper": torch.tensor([1, 0]), "author": torch.tensor([2])}).to_pyg()
    assert set(data["paper"].keys()) == {"n_id", "num_nodes", "batch_size", "input_id"}
    assert set(data[CITES].keys()) == {"edge_index"}
    assert (data["author"].batch_size, data["author"].input_id.tolist()) == (1, [2])


def test_trees_have_positions_and_times() -> None:
    times = {"author": torch.tensor([1, 2, 3]), "paper": torch.tensor([4, 5, 6])}
    edges = {WRITES: torch.tensor([[0, 1, 2, 0], [0, 1, 2, 2]])}
    graph = HeteroGraph.from_edges(edges, {"author": 3, "paper": 3}, node_times=times)
    sample = TreeSubgraphSampler([2], times="node").sample(graph, {"paper": torch.tensor([2, 2])}, torch.tensor([9, 6]))
    assert sample.ids("seed").tolist() == [2, 2]
    sample = sample.replace(positions=torch.tensor([40, 50]))
    assert sample.ids("seed").tolist() == [40, 50]  # labels are those of items
    data = sample.to_pyg()
    assert data["paper"].input_id.tolist() == [40, 50]
    assert data["paper"].seed_time.tolist() == [9, 6]
    assert data["paper"].batch.tolist() == [0, 1]
    assert data["author"].batch.tolist() == [0, 0, 1, 1]


def test_seeds_of_several_types_have_no_labels() -> None:
    sample = small().replace(num_nodes={"author": (1, 2, 0), "paper": (2, 1, 0)})
    with pytest.raises(ValueError, match=r"the seeds of the mini-batch have 2 types \['author', 'paper'\]"):
        sample.ids("seed")

"""The operator of torch_geometric for several types, against the oracle; repeated seeds; what it refuses."""

from __future__ import annotations

from typing import Any

import hetero_oracle as oracle
import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.loader import NeighborLoader

import loader.pyg
from loader.pyg.calls import drawn

pytestmark = pytest.mark.skipif(loader.pyg.backend() != "loader", reason="pyg-lib or torch-sparse is installed")


def arrays(graph: oracle.HeteroGraph, csc: bool):
    """A graph whose edges lie as its lists do, and these as torch_geometric has them."""
    edges, rowptr, col = {}, {}, {}
    for key, (src, dst) in graph.edges.items():
        order = np.argsort(dst, kind="stable")
        edges[key] = src[order], dst[order]
        given = key if csc else key[::-1]
        counts = np.bincount(dst, minlength=graph.num_nodes[key[2]])
        rowptr["__".join(given)] = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))
        col["__".join(given)] = torch.from_numpy(src[order])
    return oracle.HeteroGraph(graph.num_nodes, edges, None), rowptr, col


def call(graph, rowptr, col, seeds, fanouts, csc=True, replace=False, weights=None, edge_ids=True):
    types = [key if csc else key[::-1] for key in graph.edges]
    return torch.ops.pyg.hetero_neighbor_sample(
        list(graph.num_nodes), types, rowptr, col, seeds, fanouts, None, None, None, weights, csc, replace, True, False,
        "uniform", edge_ids,
    )  # fmt: skip


@pytest.mark.parametrize("csc", [True, False])
def test_it_returns_what_the_oracle_says(csc) -> None:
    rng, seen = np.random.default_rng(1), 0
    for _ in range(30):
        case = oracle.random_case(rng, uniform=True)
        if not case.graph.edges:
            continue
        none = np.zeros(0, np.int64)  # each type has lists, which say how many nodes it has
        bare = {(name, "none", name): (none, none) for name in case.graph.num_nodes}
        graph, rowptr, col = arrays(oracle.HeteroGraph(case.graph.num_nodes, {**case.graph.edges, **bare}), csc)
        hops = 2 if isinstance(case.fanouts, dict) else len(case.fanouts)
        fanouts = {key: case.fanouts[:2] if isinstance(case.fanouts, list) else [3, -1] for key in graph.edges}
        hops = len(next(iter(fanouts.values())))
        named = {"__".join(key if csc else key[::-1]): of for key, of in fanouts.items()}
        types, bounds = graph.lists.types_of(case.seeds), graph.lists.bounds
        seeds = {name: torch.from_numpy(case.seeds[types == t] - bounds[t]) for t, name in enumerate(graph.num_nodes)}
        torch.manual_seed(7)
        epoch = drawn()
        expected = oracle.sample(graph, case.seeds, fanouts, expand="new", epoch=epoch, picking=case.picking)
        torch.manual_seed(7)
        row, column, nodes, ids, num_nodes, num_edges = call(
            graph, rowptr, col, seeds, named, csc, case.picking.replace
        )
        found = graph.lists.types_of(expected.nodes)
        for t, name in enumerate(graph.num_nodes):
            assert nodes[name].tolist() == (expected.nodes[found == t] - bounds[t]).tolist()
            assert num_nodes[name] == [size[t] for size in expected.sizes]
        written = oracle.edges_by_hop(graph, expected)
        assert len(written) == hops
        for key in graph.edges:
            name = "__".join(key if csc else key[::-1])
            src, dst, edge = oracle.columns([e for edges in written for e in edges[key]])
            assert (row[name].tolist(), column[name].tolist()) == ((src, dst) if csc else (dst, src))
            assert ids[name].tolist() == edge
            assert num_edges[name] == [len(edges[key]) for edges in written]
            seen += len(edge)
    assert seen > 5_000


def small(seeds: list[int], fanouts: list[int], **options):
    """Papers 0 and 1 have two authors each, and paper 1 cites paper 0."""
    graph = oracle.HeteroGraph(
        {"author": 4, "paper": 2},
        {
            ("author", "writes", "paper"): (np.array([0, 1, 2, 3]), np.array([0, 0, 1, 1])),
            ("paper", "cites", "paper"): (np.array([1]), np.array([0])),
        },
    )
    graph, rowptr, col = arrays(graph, True)
    return call(graph, rowptr, col, {"paper": torch.tensor(seeds)}, dict.fromkeys(rowptr, fanouts), **options)


def test_a_repeated_seed_has_edges_of_its_own() -> None:
    row, column, nodes, ids, num_nodes, num_edges = small([1, 0, 1, 0], [-1, -1])
    assert nodes["paper"].tolist() == [1, 0, 1, 0]
    assert nodes["author"].tolist() == [0, 1, 2, 3]
    assert row["author__writes__paper"].tolist() == [2, 3, 0, 1, 2, 3, 0, 1]
    assert column["author__writes__paper"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert ids["author__writes__paper"].tolist() == [2, 3, 0, 1, 2, 3, 0, 1]
    assert row["paper__cites__paper"].tolist() == [0, 0]  # the first copy of the cited one's neighbor
    assert column["paper__cites__paper"].tolist() == [1, 3]
    assert num_nodes == {"author": [0, 4, 0], "paper": [4, 0, 0]}
    assert num_edges == {"author__writes__paper": [8, 0], "paper__cites__paper": [2, 0]}


def test_no_hops_and_no_relations_give_the_seeds() -> None:
    row, _, nodes, ids, num_nodes, num_edges = small([1, 1], [])
    assert nodes["paper"].tolist() == [1, 1]
    assert row["author__writes__paper"].numel() == ids["paper__cites__paper"].numel() == 0
    assert num_nodes == {"author": [0], "paper": [2]}
    assert num_edges == {"author__writes__paper": [], "paper__cites__paper": []}
    alone = oracle.HeteroGraph({"a": 3}, {})
    assert call(alone, {}, {}, {"a": torch.tensor([2])}, {})[2]["a"].tolist() == [2]


def test_edge_ids_are_left_out_on_request() -> None:
    assert small([0], [1], edge_ids=False)[3] is None


def test_fanouts_beyond_the_limit_take_whole_lists() -> None:
    assert small([0], [5000])[5] == {"author__writes__paper": [2], "paper__cites__paper": [1]}
    with pytest.raises(ValueError, match=r"fanout 5000 of \('author', 'writes', 'paper'\) is not possible"):
        small([0], [5000], replace=True)


def test_edges_of_weight_0_are_never_picked() -> None:
    weights = {
        "author__writes__paper": torch.tensor([0.0, 1.0, 1.0, 0.0]),
        "paper__cites__paper": torch.tensor([0.0]),
    }
    for _ in range(5):
        *_, ids, _, num_edges = small([0, 1], [1], weights=weights)
        assert ids["author__writes__paper"].tolist() == [1, 2]
        assert num_edges["paper__cites__paper"] == [0]


def test_seeds_without_lists_may_be_any() -> None:
    graph = oracle.HeteroGraph({"a": 1, "b": 1}, {("a", "to", "b"): (np.array([0]), np.array([0]))})
    graph, rowptr, col = arrays(graph, True)
    for seed in (5, 900, 2):
        nodes = call(graph, rowptr, col, {"a": torch.tensor([seed]), "b": torch.tensor([0])}, {"a__to__b": [1]})[2]
        assert nodes["a"].tolist() == [seed, 0]


def test_arrays_are_checked_and_written_ones_read_again() -> None:
    graph = oracle.HeteroGraph({"a": 2}, {("a", "to", "a"): (np.array([0, 1]), np.array([1, 1]))})
    graph, rowptr, col = arrays(graph, True)
    one = {"a": torch.tensor([1])}
    assert call(graph, rowptr, col, one, {"a__to__a": [-1]})[2]["a"].tolist() == [1, 0]
    col["a__to__a"][0] = 1
    assert call(graph, rowptr, col, one, {"a__to__a": [-1]})[2]["a"].tolist() == [1]
    col["a__to__a"][0] = 2
    with pytest.raises(ValueError, match=r"rowptr and col of \('a', 'to', 'a'\) are no graph: "):
        call(graph, rowptr, col, one, {"a__to__a": [-1]})
    with pytest.raises(ValueError, match=r"num_neighbors_dict has nothing for the edge type \('a', 'to', 'a'\)"):
        call(graph, rowptr, col, one, {})
    with pytest.raises(TypeError, match=r"col_dict\['a__to__a'\] has shape \[2\] and dtype torch\.float32"):
        call(graph, rowptr, {"a__to__a": torch.ones(2)}, one, {"a__to__a": [1]})


def typed_data() -> HeteroData:
    data = HeteroData()
    data["a"].x, data["b"].x = torch.arange(20.0)[:, None], torch.arange(30.0)[:, None]
    data["a"].time, data["b"].time = torch.arange(20), torch.arange(30)
    data["a", "to", "b"].edge_index = torch.stack([torch.arange(200) % 20, torch.arange(200) % 30])
    data["b", "to", "a"].edge_index = data["a", "to", "b"].edge_index.flip(0)
    return data


def test_torch_geometrics_loader_runs_on_it() -> None:
    data = typed_data()
    for batch in NeighborLoader(data, [4, 3], input_nodes="a", batch_size=8):
        for key in data.edge_types:
            ends = batch[key].edge_index
            pairs = torch.stack([batch[key[i]].n_id[ends[i // 2]] for i in (0, 2)])
            assert torch.equal(pairs, data[key].edge_index[:, batch[key].e_id])
            assert int(ends[1].bincount().max()) <= 4


def test_torch_geometrics_induced_subgraphs_have_all_edges() -> None:
    data = typed_data()
    for hops in ([2], [1, 1], []):
        for batch in NeighborLoader(data, hops, input_nodes="a", batch_size=4, subgraph_type="induced"):
            assert "num_sampled_edges" not in batch["a", "to", "b"]
            for key in data.edge_types:
                src, dst = data[key].edge_index
                inside = torch.isin(src, batch[key[0]].n_id) & torch.isin(dst, batch[key[2]].n_id)
                assert sorted(batch[key].e_id.tolist()) == inside.nonzero().view(-1).tolist()
                pairs = torch.stack([batch[key[i]].n_id[batch[key].edge_index[i // 2]] for i in (0, 2)])
                assert torch.equal(pairs, data[key].edge_index[:, batch[key].e_id])


def test_induced_edges_are_found_without_hops() -> None:
    edge, key = ("a", "to", "a"), "a__to__a"
    lists = {key: torch.tensor([0, 1, 3, 4])}, {key: torch.tensor([1, 0, 2, 0], dtype=torch.int64)}
    asked = ["a"], [edge], *lists, {"a": torch.tensor([1, 0])}, {key: []}, 0, False
    nodes, row, col, ids = torch.ops.torch_sparse.hetero_neighbor_sample(*asked, False)
    assert nodes["a"].tolist() == [1, 0]
    assert list(zip(row[key].tolist(), col[key].tolist(), ids[key].tolist(), strict=True)) == [(1, 0, 1), (0, 1, 0)]
    _, row, _, ids = torch.ops.torch_sparse.hetero_neighbor_sample(*asked, True)
    assert row[key].numel() == ids[key].numel() == 0
    with pytest.raises(NotImplementedError, match="by this operator; subgraph_type='induced' calls torch_sparse's"):
        torch.ops.pyg.hetero_neighbor_sample(
            *asked[:-2], None, None, None, None, True, False, False, False, "uniform", True
        )


@pytest.mark.parametrize(("hops", "num_hops"), [([2, 2], 1), ([2], 2), ([], 1), ([1], 0)])
def test_another_number_of_hops_is_refused(hops: list[int], num_hops: int) -> None:
    key = "a__to__a"
    lists = {key: torch.tensor([0, 1, 2])}, {key: torch.tensor([1, 0])}
    asked = ["a"], [("a", "to", "a")], *lists, {"a": torch.tensor([1, 0])}, {key: hops}
    said = rf"num_hops is {num_hops}, but num_neighbors_dict\['a__to__a'\] has {len(hops)} entries"
    with pytest.raises(ValueError, match=said):
        torch.ops.torch_sparse.hetero_neighbor_sample(*asked, num_hops, False, True)


@pytest.mark.parametrize(
    "options", [{"time_attr": "time"}, {"time_attr": "time", "temporal_strategy": "last"}, {"disjoint": True}]
)
def test_torch_geometrics_loader_samples_trees(options) -> None:
    data = typed_data()
    data["a"].time = data["a"].time.flip(0)  # the lists come in the order of ids
    for batch in NeighborLoader(data, [4, 3], input_nodes="a", batch_size=8, **options):
        assert batch["a"].batch[: batch["a"].batch_size].tolist() == list(range(batch["a"].batch_size))
        times = batch["a"].time[: batch["a"].batch_size]
        for key in data.edge_types:
            source, target = batch[key].edge_index
            tree = batch[key[0]].batch[source]
            assert torch.equal(tree, batch[key[2]].batch[target])
            if "time_attr" in options:
                assert bool((batch[key[0]].time[source] <= times[tree]).all())
            if options.get("temporal_strategy") == "last":
                check_last(data, batch, key, times)
        for name in data.node_types:
            pairs = torch.stack([batch[name].batch, batch[name].n_id])
            assert torch.unique(pairs, dim=1).shape[1] == pairs.shape[1]


def check_last(data: HeteroData, batch: HeteroData, key: tuple[str, str, str], times: torch.Tensor) -> None:
    """Of what a node may see, no edge that was left out is later than one that was picked."""
    target = batch[key].edge_index[1]
    every, of_edge = data[key].edge_index, data[key[0]].time[data[key].edge_index[0]]
    for node in target.unique().tolist():
        seen = (every[1] == batch[key[2]].n_id[node]) & (of_edge <= times[batch[key[2]].batch[node]])
        picked = batch[key].e_id[target == node]
        left = seen.clone()
        left[picked] = False
        assert bool(seen[picked].all())
        assert not left.any() or int(of_edge[left].max()) <= int(of_edge[picked].min())


def trees(seeds: dict[str, torch.Tensor], disjoint: bool = True, **times: Any) -> Any:
    """Two hops of all neighbors along a -> b and b -> a."""
    col = {"a__to__b": torch.tensor([0, 1, 2, 0]), "b__to__a": torch.tensor([0, 1, 1])}
    rowptr = {"a__to__b": torch.tensor([0, 3, 4]), "b__to__a": torch.tensor([0, 1, 2, 3])}
    fanouts = {key: [-1, -1] for key in col}
    keys = [("a", "to", "b"), ("b", "to", "a")]
    return torch.ops.pyg.hetero_neighbor_sample(
        ["a", "b"], keys, rowptr, col, seeds, fanouts, csc=True, disjoint=disjoint, **times
    )


def test_edges_are_seen_from_their_times_on() -> None:
    times = {"a__to__b": torch.tensor([5, 1, 3, 2]), "b__to__a": torch.tensor([9, 0, 4])}
    _, _, nodes, edges, counts, _ = trees(
        {"b": torch.tensor([0, 0])}, edge_time_dict=times, seed_time_dict={"b": torch.tensor([3, 4])}
    )
    assert nodes["b"][:2].tolist() == [[0, 0], [1, 0]]
    assert nodes["a"].tolist() == [[0, 1], [0, 2], [1, 1], [1, 2]]
    assert edges["a__to__b"].tolist()[:4] == [1, 2, 1, 2]
    assert edges["b__to__a"].tolist() == [1, 1, 2]
    assert counts == {"a": [0, 4, 0], "b": [2, 0, 2]}


def test_seeds_have_the_times_of_their_nodes() -> None:
    found = trees({"a": torch.tensor([2])}, node_time_dict={"a": torch.tensor([4, 2, 3]), "b": torch.tensor([0, 3])})
    assert found[2]["b"].tolist() == [[0, 1]]
    assert found[2]["a"].tolist() == [[0, 2]]  # node 0 is later


def test_seeds_that_no_edge_leads_to_have_times() -> None:
    times = {name: {"time": torch.arange(n), "num_nodes": n} for name, n in (("a", 5), ("b", 2))}
    data = HeteroData(times)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 4, 1], [0, 0, 1]])
    seeds = "a", torch.tensor([4, 3])
    (batch,) = NeighborLoader(data, [-1], input_nodes=seeds, time_attr="time", batch_size=2)
    assert batch["a"].n_id.tolist() == [4, 3]
    assert batch["b"].n_id.tolist() == []


@pytest.mark.parametrize("of", ["node_time_dict", "edge_time_dict"])
def test_same_tensors_for_others_make_another_graph(of) -> None:
    indptr, indices, time = (
        torch.tensor([0, 3, 6, 9]),
        torch.arange(3).repeat(3),
        torch.arange(3 if of == "node_time_dict" else 9),
    )
    keys = [("b", "to", "a"), ("a", "to", "b")]
    both = {"__".join(key): indptr for key in keys}, {"__".join(key): indices for key in keys}
    found = []
    for name in ("b", "a") if of == "node_time_dict" else ("b__to__a", "a__to__b"):
        fanouts, seeds = {key: [-1] for key in both[0]}, {"a": torch.tensor([0]), "b": torch.tensor([0])}
        options = {of: {name: time}, "seed_time_dict": dict.fromkeys("ab", torch.tensor([1]))}
        found.append(
            torch.ops.pyg.hetero_neighbor_sample(
                ["a", "b"], keys, *both, seeds, fanouts, csc=True, disjoint=True, **options
            )[5]
        )
    assert found == [{"b__to__a": [2], "a__to__b": [3]}, {"b__to__a": [3], "a__to__b": [2]}]


def test_trees_count_seeds_in_the_order_given() -> None:
    found = trees({"b": torch.tensor([1, 0]), "a": torch.tensor([2])})[2]
    assert found["b"][:2].tolist() == [[0, 1], [1, 0]]
    assert found["a"][0].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node_time_dict": {"a": torch.arange(3)}, "disjoint": False}, "times need disjoint=True"),
        ({"edge_time_dict": {"a__to__b": torch.arange(4)}}, "seed_time_dict has nothing for the seeds of 'a'"),
        ({"seed_time_dict": {"a": torch.arange(1)}}, "neither nodes nor edges have any"),
        (
            {"edge_time_dict": {"a__to__c": torch.arange(4)}, "seed_time_dict": {"a": torch.arange(1)}},
            "edge_time_dict has the key 'a__to__c', which is no edge type; there are ",
        ),
        (
            {"node_time_dict": {"a": torch.arange(3)}, "seed_time_dict": {"b": torch.arange(1)}},
            "seed_time_dict names 'b', which has no seeds; seed_dict has ",
        ),
        ({"edge_time_dict": {"a__to__b": torch.arange(3)}}, "has 3 entries, the relation has 4 edges"),
        (
            {"node_time_dict": {"a": torch.tensor([1, torch.nan, 0])}},
            r"^node_time_dict\['a'\] has 1 missing times of 3; leave these rows out, or give them a time$",
        ),
        (
            {"edge_time_dict": {"a__to__b": torch.full((4,), -(2**63))}, "seed_time_dict": {"a": torch.arange(1)}},
            r"^edge_time_dict\['a__to__b'\] has 4 missing times of 4; leave these rows out, or give them a time$",
        ),
        ({"temporal_strategy": "first"}, "temporal_strategy is 'first'; it must be 'uniform' or 'last'"),
    ],
)
def test_wrong_times_are_refused(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        trees({"a": torch.tensor([2])}, **options)


def test_seeds_and_their_times_are_counted_per_type() -> None:
    seeds = {"a": torch.tensor([0, 1]), "b": torch.tensor([0])}
    times = {"a": torch.tensor([9]), "b": torch.tensor([9, 9])}  # three of both
    with pytest.raises(ValueError, match=r"seed_time_dict\['a'\] has shape \[1\], the seeds \[2\]; they must be equal"):
        trees(seeds, node_time_dict={"a": torch.arange(3)}, seed_time_dict=times)
    with pytest.raises(ValueError, match="edge_weight_dict has the key 'c__to__a', which is no edge type"):
        trees(seeds, edge_weight_dict={"c__to__a": torch.ones(3)})

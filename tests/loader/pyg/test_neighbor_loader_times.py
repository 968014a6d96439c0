"""torch_geometric's `NeighborLoader` by times and in trees."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from marks import needs_gpu
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NeighborLoader as TheirLoader
from torch_geometric.nn import HeteroConv, SAGEConv
from torch_geometric.testing import MyFeatureStore, MyGraphStore

import loader.pyg
from loader.pyg import NeighborLoader

NUM_NODES, NUM_EDGES = 120, 900
WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")


@pytest.fixture
def data() -> Data:
    g = torch.Generator().manual_seed(0)
    pairs = torch.randperm(NUM_NODES**2, generator=g)[
        :NUM_EDGES
    ]  # no parallel edges, whose order is not torch_geometric's
    edges = torch.stack([pairs // NUM_NODES, pairs % NUM_NODES])
    return Data(
        x=torch.arange(NUM_NODES, dtype=torch.float32).view(-1, 1),
        edge_index=edges,
        time=torch.randint(-20, 20, (NUM_NODES,), generator=g),
        edge_time=torch.randint(-20, 20, (NUM_EDGES,), generator=g),
    )


@pytest.fixture
def typed() -> HeteroData:
    g = torch.Generator().manual_seed(1)
    data = HeteroData()
    data["author"].x, data["paper"].x = torch.rand(40, 3, generator=g), torch.rand(60, 3, generator=g)
    data["paper"].time = torch.randint(0, 30, (60,), generator=g)
    for key in (WRITES, CITES, ("paper", "rev_writes", "author")):
        ends = [torch.randint(data[key[i]].num_nodes, (300,), generator=g) for i in (0, 2)]
        data[key].edge_index = torch.stack(ends)
    return data


def check_trees(batch: Data) -> None:
    source, target = batch.edge_index
    assert torch.equal(batch.batch[source], batch.batch[target])
    assert batch.batch[: batch.batch_size].tolist() == list(range(batch.batch_size))
    pairs = torch.stack([batch.batch, batch.n_id])
    new = pairs[:, batch.batch_size :]
    assert torch.unique(new, dim=1).shape[1] == new.shape[1]
    assert torch.equal(batch.x.view(-1).long(), batch.n_id)


@pytest.mark.parametrize("options", [{}, {"temporal_strategy": "last"}, {"window": 8}, {"replace": True}])
@pytest.mark.parametrize("attr", ["time", "edge_time"])
def test_nothing_is_later_than_its_seed(data: Data, attr: str, options: dict[str, Any]) -> None:
    nodes = torch.randint(NUM_NODES, (50,))
    times = torch.randint(-20, 20, (50,))
    given = {"input_nodes": nodes, "input_time": times, "time_attr": attr, "batch_size": 16, "shuffle": True}
    seen = 0
    for batch in NeighborLoader(data, [4, 3], **given, **options):
        check_trees(batch)
        assert torch.equal(batch.n_id[: batch.batch_size], nodes[batch.input_id])
        assert torch.equal(batch.seed_time, times[batch.input_id])
        of_edge = batch.time[batch.edge_index[0]] if attr == "time" else batch.edge_time
        bound = batch.seed_time[batch.batch[batch.edge_index[1]]]
        assert bool((of_edge <= bound).all())
        if "window" in options:
            assert bool((of_edge > bound - 8).all())
        seen += of_edge.numel()
    assert seen > 50


@pytest.mark.skipif(loader.pyg.backend() != "loader", reason="pyg-lib or torch-sparse is installed")
@pytest.mark.parametrize(
    "options",
    [{"time_attr": "time"}, {"time_attr": "edge_time", "input_time": torch.arange(30) - 10}, {"disjoint": True}],
)
def test_with_all_neighbors_trees_are_torch_geometrics(data: Data, options: dict[str, Any]) -> None:
    given = {"num_neighbors": [-1, -1], "input_nodes": torch.arange(30), "batch_size": 8, **options}
    for ours, theirs in zip(NeighborLoader(data, **given), TheirLoader(data, **given), strict=True):
        assert {*ours.keys()} - {"seed_time"} == {*theirs.keys()} - {"seed_time"}
        for name in ("n_id", "batch", "edge_index", "e_id", "num_sampled_nodes", "num_sampled_edges", "input_id"):
            mine, other = ours[name], theirs[name]
            assert torch.equal(mine, other) if isinstance(mine, torch.Tensor) else list(mine) == list(other)
            assert not isinstance(mine, torch.Tensor) or mine.dtype == other.dtype


def test_seeds_have_the_times_of_their_nodes(data: Data) -> None:
    batch = next(iter(NeighborLoader(data, [3], input_nodes=[5, 9], time_attr="time", batch_size=2)))
    assert torch.equal(batch.seed_time, data.time[[5, 9]])
    data.time = data.time.double()
    again = next(iter(NeighborLoader(data, [3], input_nodes=[5, 9], time_attr="time", batch_size=2)))
    assert torch.equal(again.seed_time, batch.seed_time)


def test_copies_of_a_seed_have_own_trees(data: Data) -> None:
    batch = next(iter(NeighborLoader(data, [2, 2], input_nodes=[7] * 30, disjoint=True, batch_size=30)))
    check_trees(batch)
    assert batch.n_id[:30].tolist() == [7] * 30
    assert batch.input_id.tolist() == list(range(30))
    picks = batch.e_id[: batch.num_sampled_edges[0]].view(30, 2)
    assert len({*map(tuple, picks.tolist())}) > 1


def test_types_have_trees(typed: HeteroData) -> None:
    given = {"input_nodes": ("author", torch.arange(20)), "input_time": torch.arange(20), "batch_size": 8}
    model = HeteroConv({key: SAGEConv((-1, -1), 4) for key in typed.edge_types})
    for batch in NeighborLoader(typed, [3, 2], time_attr="time", **given):
        assert torch.equal(batch["author"].seed_time, batch["author"].input_id)
        for key in typed.edge_types:
            source, target = batch[key].edge_index
            assert torch.equal(batch[key[0]].batch[source], batch[key[2]].batch[target])
            if key[0] == "paper":
                times = batch["author"].seed_time[batch[key[2]].batch[target]]
                assert bool((batch["paper"].time[source] <= times).all())
        assert model(batch.x_dict, batch.edge_index_dict)["author"].shape[1] == 4


@pytest.mark.parametrize("made", [NeighborLoader, TheirLoader])
def test_untimed_neighbors_that_last_picks_are_told(typed: HeteroData, made: Any, caplog: Any) -> None:
    given = {"input_nodes": ("author", torch.arange(20)), "input_time": torch.arange(20), "time_attr": "time"}
    fanouts = {key: [2, 2] for key in typed.edge_types}
    for picks, strategy, count in (([2, 2], "last", 1), ([-1, -1], "last", 0), ([2, 2], "uniform", 0)):
        caplog.clear()
        next(iter(made(typed, {**fanouts, WRITES: picks}, temporal_strategy=strategy, **given)))
        told = [line for line in caplog.messages if "have no times" in line]
        assert len(told) == count
        assert all(str(WRITES) in line for line in told)


@pytest.mark.parametrize("shape", ["directional", "bidirectional"])
def test_hooks_get_the_same_trees(data: Data, typed: HeteroData, shape: str) -> None:
    given = {"time_attr": "time", "batch_size": 8, "seed": 3, "subgraph_type": shape}
    for graph, nodes in ((data, torch.tensor([3, 3, 8])), (typed, ("paper", torch.tensor([3, 3, 8])))):
        plain = NeighborLoader(graph, [3, 2], input_nodes=nodes, transform_sampler_output=lambda out: out, **given)
        for ours, theirs in zip(NeighborLoader(graph, [3, 2], input_nodes=nodes, **given), plain, strict=True):
            for mine, other in zip(ours.node_stores, theirs.node_stores, strict=True):
                assert torch.equal(mine.n_id, other.n_id)
                assert torch.equal(mine.batch, other.batch)
            for mine, other in zip(ours.edge_stores, theirs.edge_stores, strict=True):
                assert torch.equal(mine.edge_index, other.edge_index)


def test_a_resumed_epoch_goes_on(data: Data) -> None:
    def make() -> NeighborLoader:
        given = {"input_nodes": [4, 4, *range(40)], "time_attr": "time", "batch_size": 8, "shuffle": True}
        return NeighborLoader(data, [3, 2], seed=1, **given)

    whole = list(make())
    first = make()
    batches = iter(first)
    assert [torch.equal(next(batches).n_id, batch.n_id) for batch in whole[:2]] == [True, True]
    state, second = first.state_dict(), make()
    second.load_state_dict(state)
    for other in (second, pickle.loads(pickle.dumps(first)), copy.copy(first)):
        assert [batch.n_id.tolist() for batch in other] == [batch.n_id.tolist() for batch in whole[2:]]
    later = NeighborLoader(
        data, [3, 2], seed=1, input_nodes=[4, 4, *range(40)], input_time=torch.arange(42), time_attr="time",
        batch_size=8, shuffle=True,
    )  # fmt: skip
    with pytest.raises(ValueError, match="cannot resume: ordered items was"):
        later.load_state_dict(state)


def test_times_that_change_are_told(data: Data) -> None:
    made = NeighborLoader(data, [3], time_attr="time")
    next(iter(made))
    data.time[3] = 99
    with pytest.raises(ValueError, match=r"data\.time is another than when this NeighborLoader was made"):
        next(iter(made))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"input_time": torch.arange(NUM_NODES)}, ValueError, "input_time is given, but time_attr is None; name"),
        ({"window": 3}, ValueError, "window is given, but time_attr is None; name"),
        ({"temporal_strategy": "last"}, ValueError, "temporal_strategy is 'last', but time_attr is None; name"),
        ({"temporal_strategy": "first"}, ValueError, "temporal_strategy is 'first'; it must be 'uniform' or 'last'"),
        ({"disjoint": "no"}, TypeError, "disjoint is 'no'; it must be True or False"),
        ({"time_attr": "when"}, ValueError, "time_attr is 'when'; data has"),
        ({"time_attr": "time", "window": 0}, ValueError, "window is 0; it must be at least 1"),
        ({"time_attr": "edge_time"}, ValueError, "time_attr is 'edge_time', which the input nodes do not have; give"),
        ({"time_attr": "time", "input_time": torch.arange(3)}, ValueError, r"input_time has shape \[3\], input_nodes"),
        ({"time_attr": "time", "input_time": torch.full((NUM_NODES,), 0.5)}, ValueError, r"input_time\[0\] is 0.5"),
        ({"time_attr": "time", "subgraph_type": "induced"}, ValueError, "subgraph_type is 'induced', which has no tre"),
        ({"time_attr": "time", "temporal_strategy": "last", "replace": True}, ValueError, "leave replace=True out"),
    ],
)
def test_wrong_times_are_refused(data: Data, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        NeighborLoader(data, [2], **options)
    assert "\n" not in str(raised.value)


def test_stores_of_several_types_have_times(typed: HeteroData) -> None:
    features, edges = MyFeatureStore(), MyGraphStore()
    for name in typed.node_types:
        features.put_tensor(typed[name].x, group_name=name, attr_name="x", index=None)
    features.put_tensor(typed["paper"].time, group_name="paper", attr_name="time", index=None)
    for key in typed.edge_types:
        size = typed[key[0]].num_nodes, typed[key[2]].num_nodes
        edges.put_edge_index(typed[key].edge_index, edge_type=key, layout="coo", size=size)
    given = {"num_neighbors": [-1, -1], "input_nodes": ("paper", torch.arange(20)), "time_attr": "time", "seed": 1}
    for ours, of_stores in zip(NeighborLoader(typed, **given), NeighborLoader((features, edges), **given), strict=True):
        for name in typed.node_types:
            pairs = [torch.stack([batch[name].batch, batch[name].n_id]) for batch in (ours, of_stores)]
            assert torch.equal(*(torch.unique(pair, dim=1) for pair in pairs))
    with pytest.raises(ValueError, match="time_attr is 'when', which the feature store does not have; put it there"):
        NeighborLoader((features, edges), **given | {"time_attr": "when"})


@pytest.mark.parametrize("attr", ["time", "edge_time"])
def test_missing_times_are_refused_when_made(data: Data, typed: HeteroData, attr: str) -> None:
    options: dict[str, Any] = {"time_attr": attr, "input_time": torch.arange(2)}
    data[attr] = data[attr].double()
    data[attr][:3] = torch.nan
    way = "; leave these rows out, or give them a time"
    with pytest.raises(ValueError, match=rf"^data\.{attr} has 3 missing times of {len(data[attr])}{way}$"):
        NeighborLoader(data, [2], input_nodes=[7, 8], **options)
    store = typed["paper"] if attr == "time" else typed[CITES]
    store[attr] = torch.arange(60.0 if attr == "time" else 300.0)
    NeighborLoader(typed, [2], input_nodes=("author", [7, 8]), **options)  # other types have no times
    store[attr][5] = torch.nan
    name = r"'paper'" if attr == "time" else r"\('paper', 'cites', 'paper'\)"
    message = rf"^data\[{name}\]\.{attr} has 1 missing times of {len(store[attr])}{way}$"
    with pytest.raises(ValueError, match=message):
        NeighborLoader(typed, [2], input_nodes=("author", [7, 8]), **options)


def test_times_of_both_nodes_and_edges_are_refused(typed: HeteroData) -> None:
    typed[CITES].time = torch.arange(300)
    with pytest.raises(ValueError, match="time_attr is 'time', which both nodes and edges have; rename one of them"):
        NeighborLoader(typed, [2], input_nodes="paper", time_attr="time")


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=needs_gpu)])
def test_a_gpu_gives_the_same_trees(data: Data, typed: HeteroData, device: str) -> None:
    options = {"time_attr": "time", "batch_size": 16, "seed": 5, "shuffle": True}
    for graph, nodes in ((data, [4, 4, *range(40)]), (typed, ("paper", [4, 4, *range(40)]))):
        both = [NeighborLoader(graph, [4, 3], input_nodes=nodes, device=at, **options) for at in ("cpu", device)]
        for ours, theirs in zip(*both, strict=True):
            for mine, other in zip(ours.node_stores, theirs.node_stores, strict=True):
                assert torch.equal(mine.n_id, other.n_id.cpu())
                assert torch.equal(mine.batch, other.batch.cpu())
            for mine, other in zip(ours.edge_stores, theirs.edge_stores, strict=True):
                assert torch.equal(mine.edge_index, other.edge_index.cpu())


def test_no_hops_give_the_seeds(data: Data, typed: HeteroData) -> None:
    for options in ({}, {"time_attr": "time"}, {"disjoint": True}):
        batch = next(iter(NeighborLoader(typed, [], input_nodes=("paper", [3, 8]), batch_size=2, **options)))
        assert batch["paper"].n_id.tolist() == [3, 8]
        assert batch["author"].n_id.numel() == batch[CITES].edge_index.numel() == 0
        batch = next(iter(NeighborLoader(data, [], input_nodes=[3, 8], batch_size=2, **options)))
        assert batch.n_id.tolist() == [3, 8]
        assert batch.edge_index.numel() == 0


def test_times_of_a_list_keep_their_precision(data: Data) -> None:
    at = [1_700_000_001.0, 1_700_000_063.0]  # of float32, both are 1,700,000,000
    batch = next(iter(NeighborLoader(data, [3], input_nodes=[1, 2], input_time=at, time_attr="time", batch_size=2)))
    assert batch.seed_time.tolist() == at

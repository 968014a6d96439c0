"""torch_geometric's `NeighborLoader` of a `HeteroData` with our pipeline under it."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.loader import NeighborLoader as TheirLoader
from torch_geometric.sampler import NumNeighbors
from torch_geometric.testing import MyFeatureStore, MyGraphStore
from torch_geometric.transforms import ToUndirected

import loader.pyg
from loader.pyg import NeighborLoader
from loader.stores import HostFeatures

WRITES, CITES, RATES = ("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "rates", "author")
SIZES = {"author": 60, "paper": 120, "venue": 5}


def typed_data() -> HeteroData:
    g = torch.Generator().manual_seed(0)
    data = HeteroData()
    for name, size in SIZES.items():
        data[name].x = torch.randn(size, 2 + len(name), generator=g)
    data["paper"].y = torch.arange(SIZES["paper"]) % 5
    data["paper"].train_mask = torch.rand(SIZES["paper"], generator=g) < 0.5
    data["author"].heights = np.arange(SIZES["author"])
    data["author"].num_nodes = SIZES["author"]
    for key in (WRITES, CITES, RATES):
        ends = [torch.randint(SIZES[key[i]], (500,), generator=g) for i in (0, 2)]
        data[key].edge_index = torch.stack(ends)
    data[CITES].edge_attr = torch.randn(500, 3, generator=g)
    data[WRITES].weight = (torch.rand(500, generator=g) * (torch.arange(500) % 3 > 0)).float()
    data.note = "a graph"
    return data


@pytest.fixture
def data() -> HeteroData:
    return typed_data()


def assert_consistent(batch, data) -> None:
    for name in data.node_types:
        ids = batch[name].n_id
        assert torch.equal(batch[name].x, data[name].x[ids])
        assert batch[name].num_nodes == ids.numel() == ids.unique().numel() == sum(batch[name].num_sampled_nodes)
    assert torch.equal(batch["paper"].y, data["paper"].y[batch["paper"].n_id])
    assert torch.equal(batch["paper"].train_mask, data["paper"].train_mask[batch["paper"].n_id])
    assert batch["author"].heights.tolist() == batch["author"].n_id.tolist()
    for key in data.edge_types:
        store = batch[key]
        source, target = (batch[key[i]].n_id[store.edge_index[i // 2]] for i in (0, 2))
        assert torch.equal(torch.stack([source, target]), data[key].edge_index[:, store.e_id])
        assert store.edge_index.shape[1] == sum(store.num_sampled_edges)
    assert torch.equal(batch[CITES].edge_attr, data[CITES].edge_attr[batch[CITES].e_id])
    assert batch.note == "a graph"
    assert batch.metadata() == data.metadata()


def test_every_seed_comes_once_with_its_attributes(data) -> None:
    made = NeighborLoader(data, [4, 3], input_nodes=("paper", data["paper"].train_mask), batch_size=16, shuffle=True)
    batches = list(made)
    assert len(batches) == len(made)
    for batch in batches:
        assert_consistent(batch, data)
        seeds = batch["paper"].n_id[: batch["paper"].batch_size]
        assert torch.equal(batch["paper"].input_id, seeds)
        assert batch["paper"].num_sampled_nodes[0] == seeds.numel()
    found = torch.cat([batch["paper"].input_id for batch in batches])
    assert found.sort().values.tolist() == data["paper"].train_mask.nonzero().view(-1).tolist()


@pytest.mark.skipif(loader.pyg.backend() != "loader", reason="pyg-lib or torch-sparse is installed")
@pytest.mark.parametrize("fanouts", [[-1, -1], {WRITES: [-1, 0], CITES: [0, -1], RATES: [-1, -1]}])
def test_whole_lists_are_torch_geometrics_subgraph(data, fanouts) -> None:
    options = {"num_neighbors": fanouts, "input_nodes": ("paper", torch.arange(40)), "batch_size": 20}
    for ours, theirs in zip(NeighborLoader(data, **options), TheirLoader(data, **options), strict=True):
        assert set(ours.keys()) == set(theirs.keys())
        for name in data.node_types:
            assert set(ours[name].keys()) == set(theirs[name].keys())
            assert torch.equal(ours[name].n_id, theirs[name].n_id)
            assert ours[name].num_sampled_nodes == theirs[name].num_sampled_nodes
        for key in data.edge_types:
            assert set(ours[key].keys()) == set(theirs[key].keys())
            assert torch.equal(ours[key].edge_index, theirs[key].edge_index)
            # Of edges that are there twice either may come first.
            assert Counter(ours[key].e_id.tolist()) == Counter(theirs[key].e_id.tolist())
            assert ours[key].num_sampled_edges == theirs[key].num_sampled_edges
        assert torch.equal(ours["paper"].input_id, theirs["paper"].input_id)
        assert ours["paper"].batch_size == theirs["paper"].batch_size


def test_each_node_has_at_most_its_fanout(data) -> None:
    fanouts = NumNeighbors({CITES: [3, 0], "author__writes__paper": [1, 2]}, default=[0, 5])
    for batch in NeighborLoader(data, fanouts, input_nodes="paper", batch_size=30):
        assert_consistent(batch, data)
        for key, most in {CITES: [3, 0], WRITES: [1, 2], RATES: [0, 5]}.items():
            first, second = batch[key].num_sampled_edges
            ends = batch[key].edge_index[1]
            assert int(ends[:first].bincount(minlength=1).max()) <= most[0]
            assert int(ends[first:].bincount(minlength=1).max()) <= most[1]
            assert second <= most[1] * batch[key[2]].num_sampled_nodes[1]
        assert sum(batch[CITES].num_sampled_edges) > 0


def test_input_ids_are_positions_or_what_is_given(data) -> None:
    seeds = torch.tensor([7, 100, 3])
    (batch,) = NeighborLoader(data, [2], input_nodes=("paper", seeds), batch_size=3)
    assert batch["paper"].input_id.tolist() == [0, 1, 2]
    assert batch["paper"].n_id[:3].tolist() == seeds.tolist()
    given = NeighborLoader(data, [2], input_nodes=("paper", seeds), input_id=seeds * 10, batch_size=3)
    assert next(iter(given))["paper"].input_id.tolist() == [70, 1000, 30]


def test_edges_of_weight_0_are_never_picked(data) -> None:
    for key in (CITES, RATES):
        data[key].weight = torch.ones(500)
    for batch in NeighborLoader(data, [2, 2], input_nodes="paper", batch_size=40, weight_attr="weight"):
        assert (data[WRITES].weight[batch[WRITES].e_id] > 0).all()
        assert_consistent(batch, data)


def epoch(made):
    keys = made.data.edge_types
    return [[batch[key].e_id.tolist() for key in keys] + [batch["paper"].n_id.tolist()] for batch in made]


def test_only_the_seed_decides_an_epoch(data) -> None:
    base = {"num_neighbors": [4, 2], "input_nodes": "paper", "batch_size": 16, "shuffle": True, "seed": 5}
    first = NeighborLoader(data, **base)
    epochs = [epoch(first), epoch(first)]
    assert epochs[0] != epochs[1]
    for changes in ({"num_workers": 1}, {"prefetch": 0}, {"features": HostFeatures}):
        assert epoch(NeighborLoader(data, **base, **changes)) == epochs[0]
    assert epoch(NeighborLoader(data, **{**base, "seed": 6})) != epochs[0]
    ranks = [epoch(NeighborLoader(data, **base, rank=rank, world_size=2)) for rank in range(2)]
    assert [batch for pair in zip(*ranks, strict=True) for batch in pair] == epochs[0]


def test_a_resumed_copy_gives_the_rest(data) -> None:
    base = {"num_neighbors": [4, 2], "input_nodes": "paper", "batch_size": 16, "shuffle": True, "seed": 5}
    whole = epoch(NeighborLoader(data, **base))
    first = NeighborLoader(data, **base)
    running = iter(first)
    next(running), next(running)
    other = NeighborLoader(data, **base)
    other.load_state_dict(first.state_dict())
    assert epoch(other) == whole[2:]
    assert epoch(pickle.loads(pickle.dumps(first))) == whole[2:]


def test_hooks_see_the_same_picks(data) -> None:
    class Hooked(NeighborLoader):
        def filter_fn(self, out):
            return super().filter_fn(out)

    base = {"num_neighbors": [4, 2], "input_nodes": "paper", "batch_size": 16, "shuffle": True, "seed": 5}
    plain = Hooked(data, **base)
    for batch in plain:
        assert_consistent(batch, data)
    assert epoch(Hooked(data, **base)) == epoch(NeighborLoader(data, **base))


def test_repeated_seeds_have_edges_of_their_own(data) -> None:
    seeds = torch.tensor([9, 4, 9, 9, 2])
    once = next(iter(NeighborLoader(data, [-1, -1], input_nodes=("paper", torch.tensor([9, 4, 2])), batch_size=3)))
    (batch,) = NeighborLoader(data, [-1, -1], input_nodes=("paper", seeds), batch_size=5)
    assert batch["paper"].n_id[:5].tolist() == seeds.tolist()
    assert batch["paper"].input_id.tolist() == [0, 1, 2, 3, 4]
    assert batch["paper"].num_sampled_nodes == [5, *once["paper"].num_sampled_nodes[1:]]
    for key in data.edge_types:
        source, target = (batch[key[i]].n_id[batch[key].edge_index[i // 2]] for i in (0, 2))
        assert torch.equal(torch.stack([source, target]), data[key].edge_index[:, batch[key].e_id])
        into = once[key[2]].n_id[once[key].edge_index[1]]
        nines = int((into == 9).sum()) if key[2] == "paper" else 0
        assert batch[key].num_edges == once[key].num_edges + 2 * nines
        assert sum(batch[key].num_sampled_edges) == batch[key].num_edges
        for copies in ([0, 2, 3],) if key[2] == "paper" else ():
            ids = [batch[key].e_id[batch[key].edge_index[1] == i].tolist() for i in copies]
            assert ids[0] == ids[1] == ids[2]
    sampler = NeighborLoader(data, [3], input_nodes="paper").node_sampler
    with pytest.raises(ValueError, match=r"seeds\['paper'\] holds node 120; valid ids are 0 to 119"):
        sampler.sampler.sample(sampler.graph, {"paper": torch.tensor([120, 120])})


@pytest.mark.skipif(loader.pyg.backend() != "loader", reason="pyg-lib or torch-sparse is installed")
def test_bidirectional_subgraphs_are_torch_geometrics() -> None:
    data = typed_data()
    data["paper", "rev_writes", "author"].edge_index = data[WRITES].edge_index.flip(0)
    del data[RATES], data[CITES].edge_attr
    options = {"input_nodes": ("paper", torch.arange(40)), "batch_size": 20, "subgraph_type": "bidirectional"}
    for ours, theirs in zip(
        NeighborLoader(data, [-1, -1], **options), TheirLoader(data, [-1, -1], **options), strict=True
    ):
        assert ours["paper"].n_id.tolist() == theirs["paper"].n_id.tolist()
        for key in data.edge_types:
            assert ours[key].edge_index.tolist() == theirs[key].edge_index.tolist()


def edges_among(data: HeteroData, batch: HeteroData) -> dict[Any, list[tuple[int, int, int]]]:
    """By edge type the (target, source, id) of all edges among the nodes of a mini-batch, ascending."""
    inside = {name: set(batch[name].n_id.tolist()) for name in data.node_types}
    ends = {key: data[key].edge_index.t().tolist() for key in data.edge_types}
    return {
        key: sorted((v, u, i) for i, (u, v) in enumerate(ends[key]) if u in inside[key[0]] and v in inside[key[2]])
        for key in data.edge_types
    }


def edges_of(batch: HeteroData, key: Any) -> list[tuple[int, int, int]]:
    source, target = (batch[key[i]].n_id[batch[key].edge_index[i // 2]].tolist() for i in (0, 2))
    return list(zip(target, source, batch[key].e_id.tolist(), strict=True))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("fanouts", [[4, 3], [0], {WRITES: [2, 0], CITES: [0, 3], RATES: [1, 1]}])
def test_induced_subgraphs_have_all_edges(data, fanouts, plain) -> None:
    options = {"num_neighbors": fanouts, "input_nodes": ("paper", torch.arange(40)), "batch_size": 16, "seed": 3}
    more = {"transform_sampler_output": lambda out: out} if plain else {}
    induced = NeighborLoader(data, **options, subgraph_type="induced", **more)
    for batch, other in zip(induced, NeighborLoader(data, **options), strict=True):
        for name in data.node_types:
            assert torch.equal(batch[name].n_id, other[name].n_id)  # the picks are the same
            assert torch.equal(batch[name].x, data[name].x[batch[name].n_id])
            assert "num_sampled_nodes" not in batch[name]
        for key, wanted in edges_among(data, batch).items():
            assert sorted(edges_of(batch, key)) == wanted
            assert bool((batch[key].edge_index[1].diff() >= 0).all())
            assert "num_sampled_edges" not in batch[key]
        assert torch.equal(batch[CITES].edge_attr, data[CITES].edge_attr[batch[CITES].e_id])
        assert batch["paper"].batch_size == other["paper"].batch_size


def test_induced_edges_of_copies_come_twice(data) -> None:
    seeds = torch.tensor([3, 7, 3])
    made = NeighborLoader(data, [2], input_nodes=("paper", seeds), batch_size=3, subgraph_type="induced")
    (batch,) = made
    assert batch["paper"].n_id[:3].tolist() == seeds.tolist()
    for key, wanted in edges_among(data, batch).items():
        twice = [edge for edge in wanted if edge[0] == 3 and key[2] == "paper"]
        assert sorted(edges_of(batch, key)) == sorted(wanted + twice)
        if key[0] == "paper":
            assert not bool((batch[key].edge_index[0] == 2).any())  # neighbors are the first copy


@pytest.mark.skipif(loader.pyg.backend() != "loader", reason="pyg-lib or torch-sparse is installed")
def test_induced_subgraphs_are_torch_geometrics(data) -> None:
    options = {"input_nodes": ("paper", torch.arange(40)), "batch_size": 20, "subgraph_type": "induced"}
    for ours, theirs in zip(
        NeighborLoader(data, [-1, -1], **options), TheirLoader(data, [-1, -1], **options), strict=True
    ):
        for key in (*data.node_types, *data.edge_types):
            assert set(ours[key].keys()) == set(theirs[key].keys())
        for key in data.edge_types:
            assert torch.equal(ours[key].edge_index, theirs[key].edge_index)


def test_stores_of_several_types_go_the_plain_path(data) -> None:
    features, graph = MyFeatureStore(), MyGraphStore()
    for name, size in SIZES.items():
        features.put_tensor(data[name].x, group_name=name, attr_name="x", index=None)
        assert size == data[name].x.shape[0]
    for key in data.edge_types:
        sizes = SIZES[key[0]], SIZES[key[2]]
        graph.put_edge_index(data[key].edge_index, edge_type=key, layout="coo", size=sizes)
    base = {"num_neighbors": [4, 2], "input_nodes": "paper", "batch_size": 16, "seed": 5}
    plain = NeighborLoader((features, graph), **base)
    for batch, expected in zip(plain, NeighborLoader(data, **base), strict=True):
        for name in ("author", "paper"):
            assert torch.equal(batch[name].x, data[name].x[batch[name].n_id])
        for key in data.edge_types:
            ends = (batch[key[i]].n_id[batch[key].edge_index[i // 2]] for i in (0, 2))
            assert torch.equal(torch.stack(list(ends)), data[key].edge_index[:, batch[key].e_id])
        assert batch["paper"].batch_size == expected["paper"].batch_size
        assert batch["paper"].input_id.tolist() == expected["paper"].input_id.tolist()


def test_a_transform_gets_each_mini_batch(data) -> None:
    made = NeighborLoader(data, [2], input_nodes="paper", batch_size=60, transform=ToUndirected())
    assert ("paper", "rev_writes", "author") in next(iter(made)).edge_types


def test_attributes_may_change_and_edges_may_not(data) -> None:
    made = NeighborLoader(data, [2], input_nodes="paper", batch_size=60)
    next(iter(made))
    data["venue"].x = torch.ones(5, 1)
    data["author"].more = torch.arange(SIZES["author"])
    del data["paper"].y
    batch = next(iter(made))
    assert batch["author"].more.tolist() == batch["author"].n_id.tolist()
    assert batch["venue"].x.shape == (0, 1)
    assert "y" not in batch["paper"]
    data[CITES].edge_index = data[CITES].edge_index.flip(1)
    with pytest.raises(ValueError, match=r"data\[\('paper', 'cites', 'paper'\)\]\.edge_index is another than when"):
        next(iter(made))


def test_loaders_of_the_same_edges_share_the_graph(data) -> None:
    first, second = (NeighborLoader(data, [k], input_nodes="paper") for k in (2, 3))
    assert first.node_sampler.graph is second.node_sampler.graph
    other = NeighborLoader(copy.deepcopy(data), [2], input_nodes="paper")
    assert other.node_sampler.graph is not first.node_sampler.graph


WRONG = [
    (
        {"input_nodes": None},
        TypeError,
        r"input_nodes is None; data has the node types \['author', 'paper', 'venue'\]: give",
    ),
    ({"input_nodes": torch.arange(3)}, TypeError, r"give the name of one, or \('author', ids or mask\)"),
    ({"input_nodes": "papers"}, ValueError, r"input_nodes names the node type 'papers'; data has \['author'"),
    (
        {"input_nodes": ("paper", torch.tensor([120]))},
        ValueError,
        "input_nodes holds node 120; valid ids are 0 to 119",
    ),
    (
        {"input_nodes": ("paper", torch.ones(60) > 0)},
        ValueError,
        r"input_nodes is a mask of shape \[60\]; it must be \[120\]",
    ),
    ({"num_neighbors": {CITES: [2]}}, ValueError, r"num_neighbors has nothing for the edge type \('author', 'writes'"),
    ({"num_neighbors": {("a", "b"): [2]}}, ValueError, r"num_neighbors names the edge type \('a', 'b'\); data has"),
    ({"num_neighbors": 3}, TypeError, "num_neighbors is 3; it must be a list of integers, one per hop"),
    (
        {"num_neighbors": [2000], "replace": True},
        ValueError,
        r"fanout 2000 of .* is not possible, as a node has \d+ neig",
    ),
    (
        {"subgraph_type": "induced", "weight_attr": "weight"},
        ValueError,
        "subgraph_type is 'induced', which takes all edges among the nodes, and weights",
    ),
    ({"subgraph_type": "induced", "disjoint": True}, ValueError, "subgraph_type is 'induced', which has no trees"),
    ({"weight_attr": "mass"}, ValueError, "weight_attr is 'mass', which no relation has"),
    ({"graph": "pinned"}, ValueError, "graph is 'pinned', for a GPU to read, but mini-batches are sampled on the CPU"),
]


@pytest.mark.parametrize(("given", "error", "message"), WRONG)
def test_bad_arguments_are_refused(data, given, error, message) -> None:
    with pytest.raises(error, match=message):
        NeighborLoader(**{"data": data, "num_neighbors": [2], "input_nodes": "paper", **given})


def test_names_of_nodes_are_refused(data) -> None:
    data["author"].names = ["a"] * SIZES["author"]
    with pytest.raises(
        TypeError, match=r"data\['author'\]\.names is a list, a value per node, .* by batch\['author'\]"
    ):
        NeighborLoader(data, [2], input_nodes="paper")
    del data["author"].names
    data["author"].num_nodes, data["author"].x = SIZES["author"], torch.ones(61, 1)
    with pytest.raises(ValueError, match=r"data\['author'\]\.x has shape \[61, 1\], data 60 nodes; give a row to each"):
        NeighborLoader(data, [2], input_nodes="paper")


@pytest.mark.parametrize("disjoint", [False, True])
def test_large_fanouts_take_all_neighbors(data, disjoint) -> None:
    options = {"input_nodes": "paper", "batch_size": 40, "disjoint": disjoint}
    large, every = (list(NeighborLoader(data, hops, **options)) for hops in ([2000, 3000], [-1, -1]))
    for batch, other in zip(large, every, strict=True):
        for key in data.edge_types:
            assert torch.equal(batch[key].edge_index, other[key].edge_index)
            assert torch.equal(batch[key].e_id, other[key].e_id)


@pytest.mark.parametrize("disjoint", [False, True])
def test_large_fanouts_below_a_degree_are_refused(data, disjoint) -> None:
    hub = torch.stack([torch.arange(1500) % SIZES["author"], torch.zeros(1500, dtype=torch.int64)])
    data[WRITES].edge_index = torch.cat([data[WRITES].edge_index, hub], dim=1)
    del data[WRITES].weight
    with pytest.raises(ValueError, match=r"fanout 1100 of .*writes.* is not possible, as a node has 15\d\d neighbors"):
        NeighborLoader(data, [1100], input_nodes="paper", disjoint=disjoint)
    assert len(NeighborLoader(data, {WRITES: [1024], CITES: [1100], RATES: [5]}, input_nodes="paper")) == SIZES["paper"]

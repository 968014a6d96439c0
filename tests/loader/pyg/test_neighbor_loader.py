"""torch_geometric's loader with our pipeline under it."""

import copy
import logging
import pickle

import numpy as np
import pytest
import torch
from marks import HAS_GPU, needs_gpu
from torch_geometric.data import Data, HeteroData, TemporalData
from torch_geometric.loader import NeighborLoader as TheirLoader
from torch_geometric.loader import TemporalDataLoader
from torch_geometric.testing import MyFeatureStore, MyGraphStore

import loader.pyg
from loader import FusedSampler
from loader.graph import Graph
from loader.loaders import torch_options
from loader.pyg import LinkNeighborLoader, NeighborLoader
from loader.stores import HostFeatures

NUM_NODES, NUM_EDGES = 200, 1500


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(NUM_NODES, 4, generator=generator),
        edge_index=torch.randint(NUM_NODES, (2, NUM_EDGES), generator=generator),
        edge_attr=torch.randn(NUM_EDGES, 2, generator=generator),
        y=torch.randint(5, (NUM_NODES,), generator=generator),
        train_mask=torch.rand(NUM_NODES, generator=generator) < 0.4,
        heights=np.arange(NUM_NODES),
        name="a graph",
        classes=torch.arange(5),
    )


def assert_consistent(batch, data):
    ids = batch.n_id
    assert torch.equal(batch.x, data.x[ids])
    assert torch.equal(batch.y, data.y[ids])
    assert torch.equal(batch.train_mask, data.train_mask[ids])
    assert torch.equal(batch.heights, ids)
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    assert torch.equal(ids[batch.edge_index], data.edge_index[:, batch.e_id])
    assert batch.name == "a graph"
    assert torch.equal(batch.classes, data.classes)
    assert batch.num_nodes == ids.numel() == sum(batch.num_sampled_nodes) == ids.unique().numel()
    assert batch.num_edges == batch.e_id.numel() == sum(batch.num_sampled_edges)
    assert batch.num_sampled_nodes[0] == batch.batch_size == batch.input_id.numel()


def test_batches_have_the_attributes_of_torch_geometrics(data):
    ours = next(iter(NeighborLoader(data, [4, 3], input_nodes=data.train_mask, batch_size=16)))
    assert_consistent(ours, data)
    if loader.pyg.backend() == "loader":
        theirs = next(iter(TheirLoader(data, [4, 3], input_nodes=data.train_mask, batch_size=16)))
        assert set(ours.keys()) == set(theirs.keys())
        for key in ours.keys():  # noqa: SIM118 - a Data is no mapping
            if isinstance(theirs[key], torch.Tensor):
                assert ours[key].dtype == theirs[key].dtype, key
                assert ours[key].dim() == theirs[key].dim(), key


@pytest.mark.skipif(loader.pyg.backend() != "loader", reason="pyg-lib or torch-sparse is installed")
def test_with_all_neighbors_it_is_torch_geometrics_subgraph(data):
    for ours, theirs in zip(
        NeighborLoader(data, [-1, -1], batch_size=32), TheirLoader(data, [-1, -1], batch_size=32), strict=True
    ):
        assert torch.equal(ours.n_id, theirs.n_id)
        assert torch.equal(ours.e_id.sort().values, theirs.e_id.sort().values)
        assert ours.num_sampled_nodes == theirs.num_sampled_nodes
        assert ours.num_sampled_edges == theirs.num_sampled_edges
        assert torch.equal(ours.input_id, theirs.input_id)


@pytest.mark.parametrize("nodes", ["mask", "list", "tensor", "all"])
def test_every_seed_comes_once_and_shows_its_id(data, nodes):
    some = torch.tensor([7, 150, 3, 99, 42])
    given = {"mask": data.train_mask, "list": some.tolist(), "tensor": some, "all": None}[nodes]
    seeds = {"mask": data.train_mask.nonzero().view(-1), "all": torch.arange(NUM_NODES)}.get(nodes, some)
    made = NeighborLoader(data, [3], input_nodes=given, batch_size=2, shuffle=True)
    assert len(made) == -(-seeds.numel() // 2)
    batches = list(made)
    first = torch.cat([b.n_id[: b.batch_size] for b in batches])
    shown = torch.cat([b.input_id for b in batches])
    assert sorted(first.tolist()) == sorted(seeds.tolist())
    assert torch.equal(shown if nodes in ("mask", "all") else seeds[shown], first)
    for batch in batches:
        assert_consistent(batch, data)


def test_input_ids_can_be_given(data):
    made = NeighborLoader(data, [3], input_nodes=torch.tensor([5, 9]), input_id=torch.tensor([70, 71]), batch_size=2)
    assert next(iter(made)).input_id.tolist() == [70, 71]


def epoch(made):
    return [(b.n_id.tolist(), b.e_id.tolist(), b.x.sum().item()) for b in made]


def test_only_the_seed_decides_an_epoch(data):
    base = {"num_neighbors": [4, 2], "batch_size": 16, "shuffle": True, "seed": 5}
    first = NeighborLoader(data, **base)
    epochs = [epoch(first), epoch(first)]
    assert epochs[0] != epochs[1]
    for changes in ({"num_workers": 1}, {"prefetch": 0}, {"prefetch_factor": 4}, {"features": HostFeatures}):
        assert epoch(NeighborLoader(data, **base, **changes)) == epochs[0]
    again = NeighborLoader(data, **base)
    again.set_epoch(1)
    assert epoch(again) == epochs[1]
    assert epoch(NeighborLoader(data, **{**base, "seed": 6})) != epochs[0]


def test_torchs_generator_gives_the_seed(data):
    def made(**more):
        return epoch(NeighborLoader(data, [4], batch_size=50, shuffle=True, **more))

    torch.manual_seed(3)
    first = made()
    torch.manual_seed(3)
    assert made() == first
    assert made() != first
    assert made(generator=torch.Generator().manual_seed(1)) == made(generator=torch.Generator().manual_seed(1))


def test_a_state_goes_on_at_its_position(data):
    def new():
        return NeighborLoader(data, [4], batch_size=16, shuffle=True, seed=2)

    first = new()
    running = iter(first)
    for _ in range(4):
        next(running)
    state = first.state_dict()
    rest = epoch(running)
    second = new()
    second.load_state_dict(state)
    assert epoch(second) == rest


def test_two_ranks_share_the_batches(data):
    parts = [epoch(NeighborLoader(data, [4], batch_size=16, seed=2, rank=r, world_size=2)) for r in range(2)]
    whole = epoch(NeighborLoader(data, [4], batch_size=16, seed=2))
    interleaved = [parts[i % 2][i // 2] for i in range(len(whole))]
    assert interleaved == whole


def test_neighbors_are_picked_by_weight(data):
    data.w = torch.rand(NUM_EDGES, generator=torch.Generator().manual_seed(3))
    data.w[::2] = 0
    made = NeighborLoader(data, [-1, 3], batch_size=32, weight_attr="w", seed=6)
    sampler = FusedSampler([-1, 3], edge_ids=True, weights="edge_weights", seed=6)
    for number, batch in enumerate(made):
        assert_consistent(batch, data)
        assert bool((batch.e_id % 2 == 1).all())
        want = sampler.sample(made.loader.graph, batch.n_id[: batch.batch_size], batch=number).to_pyg()
        assert torch.equal(batch.e_id, want.e_id)
        assert torch.equal(batch.edge_index, want.edge_index)


def test_transform_sees_each_batch(data):
    def transform(batch):
        batch.seen = batch.n_id.numel()
        return batch

    assert all(b.seen == b.num_nodes for b in NeighborLoader(data, [2], batch_size=64, transform=transform))


def test_features_may_be_missing_or_sparse(data):
    bare = Data(edge_index=data.edge_index, num_nodes=NUM_NODES)
    batch = next(iter(NeighborLoader(bare, [2], batch_size=8)))
    assert batch.num_nodes == batch.n_id.numel()
    assert "x" not in batch
    bare.x = data.x.to_sparse()
    batch = next(iter(NeighborLoader(bare, [2], batch_size=8)))
    assert torch.equal(batch.x.to_dense(), data.x[batch.n_id])


def test_loaders_of_one_graph_share_it(data):
    loaders = [NeighborLoader(data, [2], data.train_mask if i else None, batch_size=50) for i in range(2)]
    assert loaders[0].loader.graph is loaders[1].loader.graph
    before = loaders[0].loader.graph
    data.edge_index[0, 0] = (data.edge_index[0, 0] + 1) % NUM_NODES  # it is another graph now
    changed = NeighborLoader(data, [-1], batch_size=NUM_NODES)
    assert changed.loader.graph is not before
    assert_consistent(next(iter(changed)), data)


def test_changes_before_the_first_batch_count(data):
    made = NeighborLoader(data, [-1], batch_size=NUM_NODES)
    del data.x, data.y
    data.num_nodes = NUM_NODES
    data.n_id = torch.arange(NUM_NODES) + 1000
    batch = next(iter(made))
    assert "x" not in batch
    assert (batch.n_id - 1000 == torch.arange(NUM_NODES)).all()
    assert len(made.dataset) == NUM_NODES


COPIES = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda made: pickle.loads(pickle.dumps(made))}


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("weight_attr", [None, "w"])
def test_a_copy_goes_on_where_its_original_is(data, copied, weight_attr):
    data.w = torch.rand(NUM_EDGES)
    made = NeighborLoader(data, [3, 2], batch_size=64, shuffle=True, weight_attr=weight_attr)
    fresh = COPIES[copied](made)
    batches = iter(made)
    first = next(batches)
    amid = COPIES[copied](COPIES[copied](made))  # the second copy has not begun either
    rest = [batch.n_id.tolist() for batch in batches]
    assert [batch.n_id.tolist() for batch in amid] == rest
    assert [batch.n_id.tolist() for batch in fresh] == [first.n_id.tolist(), *rest]
    amid.data.y = amid.data.y + 1
    for batch in amid:
        assert torch.equal(batch.y, amid.data.y[batch.n_id])
        assert torch.equal(batch.x, data.x[batch.n_id])
    data.edge_index = data.edge_index.flip(0)
    with pytest.raises(ValueError, match=r"data\.edge_index is another than when this NeighborLoader was made"):
        list(COPIES[copied](made))


def test_torchs_defaults_are_taken(data):
    list(NeighborLoader(data, [2], in_order=True, pin_memory_device="", timeout=0, collate_fn=None, batch_size=200))


def test_the_note_is_told_once(data, caplog, monkeypatch):
    monkeypatch.setattr(torch_options, "_warned", False)
    with caplog.at_level(logging.WARNING, logger="loader"):
        for _ in range(2):
            NeighborLoader(data, [2], num_workers=2, persistent_workers=True)
    assert len(caplog.records) == 1
    assert "num_workers is how many sample" in caplog.text


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"weight_attr": "w"}, ValueError, "weight_attr is 'w'; data has"),
        ({"subgraph_type": "all"}, ValueError, "subgraph_type is 'all'; it must be one of directional, bidirectional"),
        ({"subgraph_type": "bidirectional", "directed": False}, ValueError, "directed is False, which means"),
        ({"sampler": object()}, TypeError, r"sampler is <object .*>; it must be a sampler of torch's, with a length"),
        (
            {"sampler": range(200), "world_size": 2, "seed": 1},
            ValueError,
            "world_size is 2, and NeighborLoader was given",
        ),
        ({"sampler": range(200), "shuffle": True}, ValueError, "mutually exclusive with shuffle"),
        ({"dataset": [1]}, TypeError, "takes no dataset"),
        ({"collate_fn": print}, TypeError, "torch_geometric never calls it: override the method collate_fn"),
        ({"neighbor_sampler": object()}, TypeError, "it must have the method sample_from_nodes"),
        ({"transform_sampler_output": 3}, TypeError, "transform_sampler_output is 3; it must be a function"),
        ({"nonsense": 1}, TypeError, "takes no argument 'nonsense'; it takes batch_size, drop_last"),
        ({"in_order": False}, TypeError, "does not know in_order=False; leave it out"),
        ({"pin_memory_device": "cuda"}, TypeError, "does not know pin_memory_device='cuda'; leave it out"),
        ({"input_nodes": [1, 2], "input_id": torch.rand(2)}, TypeError, "input_id has dtype torch.float32; it must be"),
        ({"bach_size": 1}, TypeError, r"takes no argument 'bach_size'; did you mean batch_size\?"),
        ({"num_neighbors": {("a", "b"): [3]}}, TypeError, "num_neighbors is {.*it must be a list of"),
        ({"prefetch": 1, "prefetch_factor": 2}, TypeError, "both prefetch and prefetch_factor"),
        ({"num_workers": -1}, ValueError, "num_workers is -1; it must be at least 0"),
        ({"graph": "disk"}, ValueError, "graph is 'disk'; it must be one of device, pinned"),
        ({"data": [1]}, TypeError, "data is a list; it must be a torch_geometric.data.Data"),
        ({"num_neighbors": "3"}, TypeError, "num_neighbors is '3'; it must be a list of integers"),
        ({"num_neighbors": 3}, TypeError, "num_neighbors is 3; it must be a list of integers"),
        ({"input_nodes": "paper"}, TypeError, "input_nodes is 'paper'; it must be a tensor or a list of ids"),
        ({"replace": "no"}, TypeError, "replace is 'no'; it must be True or False"),
        ({"pin_memory": "no"}, TypeError, "pin_memory is 'no'; it must be True or False"),
        ({"generator": 3}, TypeError, "generator is 3; it must be a torch.Generator"),
        ({"transform": 3}, TypeError, "transform is 3; it must be a function of a mini-batch"),
        ({"features": 3}, TypeError, "features is an int; it must be a function that makes"),
        ({"device": "gpu"}, ValueError, "device is 'gpu'; it must be cpu, cuda or cuda:N"),
        ({"num_neighbors": [-2]}, ValueError, "fanout -2 is not possible"),
        ({"num_neighbors": [1] * 33}, ValueError, "33 hops are given"),
        ({"num_neighbors": [1025], "replace": True}, ValueError, "fanout 1025 is not possible, as a node has"),
        ({"input_nodes": [3, 200]}, ValueError, "node 200; valid ids are 0 to 199"),
        ({"input_nodes": torch.ones(3, dtype=torch.bool)}, ValueError, r"mask of shape \[3\]; it must be \[200\]$"),
        (
            {"input_nodes": torch.ones(200, 9, dtype=torch.bool)},
            ValueError,
            r"must be \[200\]: take one column, mask\[:, 0\]",
        ),
        ({"input_nodes": [1], "input_id": torch.arange(2)}, ValueError, r"input_id has shape \[2\]"),
        ({"input_id": torch.arange(2)}, ValueError, "input_id needs input_nodes"),
        ({"input_nodes": torch.rand(3)}, TypeError, "input_nodes has dtype torch.float32; it must be an integer type"),
        ({"input_nodes": torch.arange(200) % 2}, ValueError, "all of them 0 or 1, like a mask of dtype torch.int64"),
        ({"weight_attr": torch.rand(200)}, ValueError, "weight_attr is a Tensor; data has"),
        ({"data": [1]}, TypeError, r"data is a list; .* of one type, one graph: data\[0\]"),
        ({"data": HeteroData()}, ValueError, "data has no edge types; NeighborLoader samples along edges: add some"),
        (
            {"data": Graph(torch.tensor([0, 0]), torch.zeros(0, dtype=torch.int64))},
            TypeError,
            "a loader.Graph goes with loader.NodeLoader",
        ),
        (
            {"world_size": 2},
            ValueError,
            "turns with 2 processes, .* seed is not given; give the same one to all of them",
        ),
        ({"graph": "pinned"}, ValueError, "graph is 'pinned', for a GPU to read, but mini-batches are sampled on the"),
    ],
)
def test_bad_arguments_are_refused(data, given, error, message):
    with pytest.raises(error, match=message):
        NeighborLoader(**{"data": data, "num_neighbors": [2], **given})


@pytest.mark.parametrize("made", [NeighborLoader, LinkNeighborLoader])
def test_events_with_times_are_refused(made):
    events = TemporalData(src=torch.tensor([0, 1, 2]), dst=torch.tensor([1, 2, 0]), t=torch.tensor([30, 10, 20]))
    with pytest.raises(TypeError, match=r"data is a TemporalData; .* see the future\. .*TemporalDataLoader"):
        made(events, [2])
    assert len(list(made(Data(edge_index=events.edge_index, num_nodes=3), [2], batch_size=3))) == 1
    assert [len(part) for part in TemporalDataLoader(events, batch_size=2)] == [2, 1]


def test_stores_of_one_type_are_taken(data):
    features, edges = MyFeatureStore(), MyGraphStore()
    features.put_tensor(data.x, group_name=None, attr_name="x", index=None)
    index = data.edge_index[:, data.edge_index[1].argsort(stable=True)]
    edges.put_edge_index(index, edge_type=None, layout="coo", is_sorted=True, size=(NUM_NODES, NUM_NODES))
    given = {"num_neighbors": [4, 2], "input_nodes": torch.arange(20), "batch_size": 8, "seed": 3}
    of_stores = list(NeighborLoader((features, edges), **given))
    for ours, batch in zip(NeighborLoader(Data(x=data.x, edge_index=index), **given), of_stores, strict=True):
        assert torch.equal(batch.x, data.x[batch.n_id])
        for name in ("n_id", "edge_index", "e_id", "input_id"):
            assert torch.equal(batch[name], ours[name])
    with pytest.raises(ValueError, match="input_nodes is None, and stores do not say which nodes there are"):
        NeighborLoader((features, edges), [2])
    with pytest.raises(NotImplementedError, match="weight_attr is 'w', but a graph store has no weights"):
        NeighborLoader((features, edges), [2], weight_attr="w", input_nodes=[1])
    with pytest.raises(TypeError, match="data is a feature store and a graph store; LinkNeighborLoader takes a Data"):
        LinkNeighborLoader((features, edges), [2])
    edges.put_edge_index(index, edge_type=("a", "to", "b"), layout="coo", is_sorted=True, size=(NUM_NODES, NUM_NODES))
    with pytest.raises(TypeError, match=r"edges of the types .*; it must have edges of one type, which is None"):
        NeighborLoader((features, edges), [2], input_nodes=[1])


def test_a_seed_may_be_given_several_times(data):
    seeds = torch.tensor([7, 3, 7])
    given = {"num_neighbors": [3, 2], "batch_size": 3, "seed": 1}
    batch = next(iter(NeighborLoader(data, input_nodes=seeds, **given)))
    assert batch.n_id[:3].tolist() == [7, 3, 7]
    assert batch.input_id.tolist() == [0, 1, 2]
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    once = next(iter(NeighborLoader(data, input_nodes=seeds[:2], **given)))
    of_seed = [b.e_id[: b.num_sampled_edges[0]][b.edge_index[1, : b.num_sampled_edges[0]] == 0] for b in (batch, once)]
    assert torch.equal(*of_seed)  # the first has the picks of a seed that is given once


def test_the_default_of_an_enumeration_is_taken(data):
    from torch_geometric.sampler.base import SubgraphType

    assert len(list(NeighborLoader(data, [2], subgraph_type=SubgraphType.directional, batch_size=100))) == 2


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("graph", ["device", "pinned"])
def test_batches_on_a_gpu_are_the_same(data, graph):
    base = {"num_neighbors": [4, 2], "batch_size": 16, "shuffle": True, "seed": 5, "input_nodes": data.train_mask}
    for ours, on_gpu in zip(
        NeighborLoader(data, **base), NeighborLoader(data, device="cuda", graph=graph, **base), strict=True
    ):
        assert on_gpu.x.is_cuda
        assert on_gpu.edge_index.is_cuda
        assert_consistent(on_gpu.cpu(), data)  # which moves it
        for key in ("n_id", "e_id", "edge_index", "x", "y", "input_id"):
            assert torch.equal(ours[key], on_gpu[key].cpu())


def test_features_have_a_row_per_node() -> None:
    data = Data(x=torch.zeros(3, 2), edge_index=torch.zeros(2, 4, dtype=torch.int64), num_nodes=5)
    with pytest.raises(ValueError, match=r"data\.x has shape \[3, 2\], data 5 nodes; give a row to each"):
        next(iter(NeighborLoader(data, [2])))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_attributes_are_those_of_the_time_of_gathering(data, device):
    loader = NeighborLoader(data, [3], batch_size=64, shuffle=True, seed=1, device=device)
    made = epoch(loader)
    data.own = torch.arange(200)
    data.z = torch.arange(200)
    for number, batch in enumerate(loader):
        assert torch.equal(batch.own, batch.n_id)
        assert ("late" in batch) == (number > 1)
        if number == 1:
            data.late = torch.arange(200)
    for batch in loader:
        assert torch.equal(batch.late, batch.n_id)
    data.x = torch.zeros(200, 2)
    data.z += 5
    del data.late
    stores = loader.loader.stores
    for batch in loader:
        assert batch.x.shape == (batch.num_nodes, 2)
        assert torch.equal(batch.z, batch.n_id + 5)
        assert "late" not in batch
    assert loader.loader.stores["node/own"] is stores["node/own"]  # which did not change
    stores = loader.loader.stores
    assert loader.loader.epoch == 4
    loader.set_epoch(0)
    assert epoch(loader) != made  # it has other rows, but
    assert loader.loader.stores is stores
    again = NeighborLoader(data, [3], batch_size=64, shuffle=True, seed=1, device=device)
    loader.set_epoch(0)
    assert epoch(again) == epoch(loader)  # the nodes of any loader
    loader.close()


def test_other_edges_need_another_loader(data):
    data.w = torch.rand(NUM_EDGES)
    plain, weighed = (NeighborLoader(data, [3], batch_size=64, weight_attr=name) for name in (None, "w"))
    for made in (plain, weighed):
        next(iter(made))
    data.w *= 2
    for batch in plain:
        assert torch.equal(batch.w, data.w[batch.e_id])
    with pytest.raises(ValueError, match=r"data\.w is another than when this NeighborLoader was made, .* a new loader"):
        next(iter(weighed))
    data.edge_index = data.edge_index.flip(1)
    with pytest.raises(ValueError, match=r"data\.edge_index is another than when"):
        next(iter(plain))
    new = NeighborLoader(data, [3], batch_size=64)
    assert_consistent(next(iter(new)), data)
    data.x = torch.zeros(NUM_NODES + 1, 4)
    with pytest.raises(ValueError, match="data has 201 nodes now and had 200 when this NeighborLoader was made"):
        next(iter(new))


def test_features_may_go(data):
    data = Data(x=data.x, edge_index=data.edge_index % 9)  # without x, no one knows of the last nodes
    loader = NeighborLoader(data, [3], batch_size=64)
    assert "x" in next(iter(loader))
    del data.x
    nodes = torch.cat([batch.n_id[: batch.batch_size] for batch in loader])
    assert nodes.tolist() == list(range(NUM_NODES))
    assert "x" not in next(iter(loader))


def test_stores_go_before_others_come(data):
    class Counting(HostFeatures):
        open = 0

        def __init__(self, tensor):
            super().__init__(tensor)
            assert Counting.open == 0
            Counting.open += 1

        def close(self):
            Counting.open -= 1
            super().close()

    loader = NeighborLoader(data, [3], batch_size=64, features=Counting)
    next(iter(loader))
    stages = loader.loader.stages
    data.note = "what no store has"
    assert next(iter(loader)).note == "what no store has"
    assert loader.loader.stages is stages  # nothing was made anew for that
    data.x = torch.ones(NUM_NODES, 2)
    assert next(iter(loader)).x.shape[1] == 2
    assert Counting.open == 1
    data.x = torch.ones(3, 2)
    with pytest.raises(ValueError, match="data has 3 nodes now"):
        next(iter(loader))
    data.x = torch.zeros(NUM_NODES, 5)
    assert next(iter(loader)).x.shape[1] == 5
    assert Counting.open == 1

"""`HGTLoader` gives what torch_geometric's does; the tests of its own need torch-sparse, and are done again here."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch_geometric.loader
import torch_geometric.loader.hgt_loader as theirs
from marks import HAS_GPU
from reference_hgt import edges_among
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore
from torch_geometric.utils import k_hop_subgraph

import loader.pyg
from loader.graph import HeteroGraph
from loader.pyg import HGTLoader
from loader.samplers import HGTSampler
from loader.stores import HostFeatures

CITES, RATES, WRITES = ("paper", "to", "paper"), ("paper", "to", "author"), ("author", "to", "paper")


def pairs(num_src: int, num_dst: int, count: int, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(num, (count,), generator=g) for num in (num_src, num_dst)])


def typed_data() -> HeteroData:
    data = HeteroData()
    data["paper"].x = torch.arange(100)
    data["author"].x = torch.arange(100, 300)
    for first, (key, sizes) in zip(
        (0, 500, 1500), {CITES: (100, 100, 500), RATES: (100, 200, 1000), WRITES: (200, 100, 1000)}.items(), strict=True
    ):
        data[key].edge_index = pairs(*sizes, seed=first)
        data[key].edge_attr = torch.arange(first, first + sizes[2])
    return data


@pytest.fixture
def data() -> HeteroData:
    return typed_data()


def epoch(made: Any) -> list[Any]:
    found = []
    for batch in made:
        ids = [batch[name].n_id for name in batch.node_types] + [batch[key].e_id for key in batch.edge_types]
        found.append([of.tolist() for of in ids])
    return found


def test_mini_batches_are_those_of_torch_geometric(data) -> None:
    made = HGTLoader(data, num_samples=[5] * 4, batch_size=20, input_nodes="paper")
    assert len(made) == 5
    seeds = []
    for batch in made:
        assert isinstance(batch, HeteroData)
        assert batch.metadata() == data.metadata()
        paper, author = batch["paper"], batch["author"]
        assert set(paper.keys()) == {"x", "n_id", "input_id", "batch_size"}
        assert set(author.keys()) == {"x", "n_id"}
        assert paper.x.size() == paper.n_id.size() == (paper.num_nodes,) == (40,)  # 20 + 4 * 5
        assert author.x.size() == author.n_id.size() == (author.num_nodes,) == (20,)
        assert paper.batch_size == paper.input_id.numel() == 20
        assert torch.equal(paper.x, paper.n_id)
        assert torch.equal(author.x, author.n_id + 100)
        nodes = {"paper": paper.n_id.tolist(), "author": author.n_id.tolist()}
        expected = edges_among({key: data[key].edge_index for key in data.edge_types}, nodes)
        met = {"paper": set(range(20)), "author": set()}
        for key in data.edge_types:
            store = batch[key]
            assert set(store.keys()) == {"edge_index", "edge_attr", "e_id"}
            ends = [batch[key[2 * i]].n_id[store.edge_index[i]].tolist() for i in range(2)]
            assert set(zip(*ends, store.e_id.tolist(), strict=True)) == expected[key]
            assert len(expected[key]) == store.num_edges == store.e_id.numel()
            assert torch.equal(store.edge_attr, data[key].edge_attr[store.e_id])
            for i in range(2):
                met[key[2 * i]] |= set(store.edge_index[i].tolist())
        assert met == {"paper": set(range(40)), "author": set(range(20))}  # what is drawn has an edge
        seeds += paper.n_id[:20].tolist()
    assert seeds == list(range(100))


def test_whole_neighborhoods_train_as_the_graph() -> None:
    from torch_geometric.nn import GraphConv, to_hetero

    g = torch.Generator().manual_seed(4)
    whole = Data(x=torch.randn(300, 6, generator=g), edge_index=pairs(300, 300, 900, seed=7))
    whole.edge_weight = torch.rand(900, generator=g)
    typed = HeteroData()
    typed["paper"].x, typed["paper"].n_id = whole.x, torch.arange(300)
    typed[CITES].edge_index, typed[CITES].edge_weight = whole.edge_index, whole.edge_weight
    seeds = torch.arange(5, 8)
    (batch,) = HGTLoader(typed, [300] * 2, ("paper", seeds), batch_size=3)
    n_id, _, _, mask = k_hop_subgraph(seeds, 2, whole.edge_index, num_nodes=300)
    assert batch["paper"].n_id.sort().values.tolist() == n_id.sort().values.tolist()
    assert batch[CITES].num_edges == int(mask.sum())

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GraphConv(6, 16), GraphConv(16, 4)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
            return self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)

    net = Net()
    expected = net(whole.x, whole.edge_index, whole.edge_weight)[seeds]
    given = batch.x_dict, batch.edge_index_dict, batch.edge_weight_dict
    found = to_hetero(net, typed.metadata())(*given)["paper"][: batch["paper"].batch_size]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_types_without_an_edge_are_empty() -> None:
    data = HeteroData()
    for name in ("paper", "author"):
        data[name].x = torch.randn(10, 16)
        data[name, name].edge_index = pairs(10, 10, 15, seed=1)
        data[name, name].edge_attr = torch.randn(15, 8)
    for batch in HGTLoader(data, num_samples=[2], batch_size=2, input_nodes="paper"):
        assert batch.metadata() == data.metadata()
        assert batch["author"].num_nodes == 0
        assert batch["author"].x.shape == (0, 16)
        assert batch["author", "author"].edge_index.shape == (2, 0)
        assert batch["author", "author"].edge_attr.shape == (0, 8)


def test_samples_are_those_of_the_sampler(data) -> None:
    counts = {"author": [3, 0, 7], "paper": [4, 4, 0]}
    made = HGTLoader(data, counts, ("paper", torch.arange(64)), batch_size=16, seed=9)
    graph, sampler = HeteroGraph.from_pyg(data), HGTSampler(counts, edge_ids=True, seed=9)
    for number in range(2):
        for i, batch in enumerate(made):
            found = sampler.sample(graph, {"paper": torch.arange(16 * i, 16 * i + 16)}, epoch=number, batch=i)
            for name in data.node_types:
                assert torch.equal(batch[name].n_id, found.nodes[name])
            for key in data.edge_types:
                assert torch.equal(batch[key].edge_index, found.edges[key])
                assert torch.equal(batch[key].e_id, found.edge_ids[key])


def test_only_the_seed_decides_an_epoch(data) -> None:
    base: dict[str, Any] = {"num_samples": [6, 3], "input_nodes": "paper", "batch_size": 16, "shuffle": True, "seed": 5}
    first = HGTLoader(data, **base)
    epochs = [epoch(first), epoch(first)]
    assert epochs[0] != epochs[1]
    for more in ({"num_workers": 3}, {"prefetch": 4}, {"is_sorted": True, "drop_last": False}):
        again = HGTLoader(data, **base, **more)
        assert [epoch(again), epoch(again)] == epochs
    again.set_epoch(1)
    assert epoch(again) == epochs[1]
    assert epoch(HGTLoader(data, **base | {"seed": 6})) != epochs[0]
    ranks = [epoch(HGTLoader(data, **base, rank=r, world_size=2)) for r in range(2)]
    assert [batch for pair in zip(*ranks, strict=True) for batch in pair][: len(epochs[0])] == epochs[0]


def test_torchs_generator_decides_without_a_seed(data) -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        made = HGTLoader(data, [4], "paper", batch_size=50)
        found.append([epoch(made), made([4, 7])["author"].n_id.tolist()])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "more",
    [
        {"transform_sampler_output": lambda out: out},
        {"transform_sampler_output": lambda out: out, "filter_per_worker": True},
        {"sampler": torch.utils.data.SequentialSampler(range(60))},
    ],
)
def test_the_plain_path_has_the_same_mini_batches(data, more) -> None:
    base: dict[str, Any] = {"num_samples": [6, 3], "input_nodes": ("paper", torch.arange(20, 80)), "batch_size": 16}
    ours, plain = HGTLoader(data, **base, seed=5), HGTLoader(data, **base, seed=5, **more)
    for _ in range(2):
        for one, two in zip(ours, plain, strict=True):
            assert one.node_types == two.node_types
            for key in (*data.node_types, *data.edge_types):
                # torch_geometric writes a None where there are no times.
                names = [name for name, value in two[key].items() if value is not None]
                assert set(one[key].keys()) == set(names)
                assert all(torch.equal(torch.as_tensor(one[key][n]), torch.as_tensor(two[key][n])) for n in names)


def test_a_resumed_epoch_goes_on(data) -> None:
    base: dict[str, Any] = {"num_samples": [6, 3], "input_nodes": "paper", "batch_size": 16, "shuffle": True, "seed": 5}
    for more in ({}, {"transform_sampler_output": lambda out: out}):
        made = HGTLoader(data, **base, **more)
        whole = epoch(made) + epoch(made)
        stopped = HGTLoader(data, **base, **more)
        batches = iter(stopped)
        begun = epoch(next(batches) for _ in range(3))
        rest = HGTLoader(data, **base, **more, num_workers=2)
        rest.load_state_dict(stopped.state_dict())
        assert begun + epoch(rest) + epoch(rest) == whole


def test_input_ids_are_positions_or_what_is_given(data) -> None:
    seeds = torch.tensor([7, 90, 3])
    (batch,) = HGTLoader(data, [2], ("paper", seeds), batch_size=3)
    assert batch["paper"].input_id.tolist() == [0, 1, 2]
    assert batch["paper"].n_id[:3].tolist() == seeds.tolist()
    (batch,) = HGTLoader(data, [2], ("paper", seeds), batch_size=3, input_id=seeds * 10)
    assert batch["paper"].input_id.tolist() == [70, 900, 30]
    mask = torch.zeros(200, dtype=torch.bool)
    mask[[5, 8]] = True
    (batch,) = HGTLoader(data, [2], ("author", mask), batch_size=3)
    assert batch["author"].input_id.tolist() == batch["author"].n_id[:2].tolist() == [5, 8]
    (batch,) = HGTLoader(data, [2], ("author", None), batch_size=200)
    assert batch["author"].input_id.tolist() == list(range(200))
    assert list(HGTLoader(data, [2], ("paper", torch.empty(0, dtype=torch.int64)))) == []


def test_options_of_a_loader_work(data) -> None:
    seen: list[Any] = []
    made = HGTLoader(data, [2], "paper", False, seen.append, batch_size=50, features=HostFeatures)
    assert list(made) == [None, None]
    assert [batch["paper"].batch_size for batch in seen] == [50, 50]
    assert made.num_samples == (2,)
    assert isinstance(made, theirs.HGTLoader)
    assert str(made) == "HGTLoader(items=100, batch_size=50, batches=2, device='cpu')"


def test_copies_go_on_where_it_is(data) -> None:
    made = HGTLoader(data, [3, 3], "paper", batch_size=16, seed=2)
    first = epoch(made)
    for again in (copy.copy(made), pickle.loads(pickle.dumps(made))):
        assert epoch(again) == epoch_after(data) != first


def epoch_after(data: HeteroData) -> list[Any]:
    made = HGTLoader(data, [3, 3], "paper", batch_size=16, seed=2)
    made.set_epoch(1)
    return epoch(made)


def test_edges_that_change_are_refused(data) -> None:
    made = HGTLoader(data, [3], "paper", batch_size=16)
    data[CITES].edge_index = data[CITES].edge_index.clone()[:, :-1]
    with pytest.raises(ValueError, match="edge_index"):
        next(iter(made))


@pytest.mark.skipif(loader.pyg.backend() != "loader", reason="pyg-lib or torch-sparse is installed")
def test_it_takes_the_place_of_torch_geometrics() -> None:
    assert torch_geometric.loader.HGTLoader is HGTLoader is not theirs.HGTLoader


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"num_samples": {"paper": [3], "author": [2], "venue": [1]}}, ValueError, "names the node type 'venue'"),
        ({"num_samples": {"paper": [3]}}, ValueError, "num_samples has none for the node type 'author'; give it, 0"),
        ({"num_samples": {"paper": [3, 2], "author": [2]}}, ValueError, "num_samples has 1 and 2 hops"),
        ({"num_samples": [3, -2]}, ValueError, r"num_samples\[1\] is -2; it must be at least 0"),
        ({"num_samples": []}, ValueError, "num_samples has no hops"),
        ({"data": Data(edge_index=torch.tensor([[0], [1]]))}, TypeError, "HGTLoader takes a torch_geometric.data.Het"),
        ({"data": (MyFeatureStore(), MyGraphStore())}, TypeError, "data is a tuple; HGTLoader takes a"),
        ({"input_nodes": ("venue", None)}, ValueError, "input_nodes names the node type 'venue'"),
        ({"input_nodes": torch.arange(3)}, TypeError, "data has the node types .*: give the name of one"),
        ({"input_nodes": ("paper", torch.tensor([3, 3]))}, ValueError, "input_nodes"),
        ({"input_nodes": ("paper", torch.tensor([100]))}, ValueError, "input_nodes holds node 100"),
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"is_sorted": 3}, TypeError, "is_sorted is 3"),
        ({"replace": True}, TypeError, "HGTLoader takes no argument 'replace'"),
        ({"transform_sampler_output": 3}, TypeError, "transform_sampler_output is 3"),
        ({"multiprocessing_context": "spawn"}, TypeError, "HGTLoader takes no multiprocessing_context"),
    ],
)
def test_wrong_arguments_are_refused(data, change: dict[str, Any], error: type[Exception], message: str) -> None:
    given: dict[str, Any] = {"data": data, "num_samples": [3], "input_nodes": "paper"}
    with pytest.raises(error, match=message) as raised:
        HGTLoader(**given | change)
    assert "\n" not in str(raised.value)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
def test_a_gpu_gives_the_same_mini_batches(data) -> None:
    base: dict[str, Any] = {"num_samples": [6, 9], "input_nodes": "paper", "batch_size": 16, "shuffle": True, "seed": 5}
    here, there = HGTLoader(data, **base), HGTLoader(data, **base, device="cuda")
    for _ in range(2):
        for one, two in zip(here, there, strict=True):
            assert two["paper"].x.device.type == two[CITES].edge_index.device.type == "cuda"
            for key in (*data.node_types, *data.edge_types):
                assert set(one[key].keys()) == set(two[key].keys())
                for name, value in one[key].items():
                    assert torch.equal(torch.as_tensor(value), torch.as_tensor(two[key][name]).cpu())

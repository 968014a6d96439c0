"""`ShaDowKHopSampler` gives what torch_geometric's does; its own test needs torch-sparse, and is done again here."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch_geometric.loader
from lightning.pytorch.utilities.data import _update_dataloader as remade
from marks import HAS_GPU
from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler
from torch_geometric.data import Batch, Data

import loader.pyg
from loader.pyg import ShaDowKHopSampler

ROW = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 4, 5, 5])
COL = torch.tensor([1, 2, 3, 0, 2, 0, 1, 4, 5, 0, 2, 5, 2, 4])
MASK = torch.tensor([1, 1, 0, 0, 0, 0], dtype=torch.bool)


def data_of(**more: Any) -> Data:
    g = torch.Generator().manual_seed(1)
    return Data(
        edge_index=torch.stack([ROW, COL]),
        edge_weight=torch.arange(14),
        x=torch.randn(6, 16, generator=g),
        y=torch.randint(3, (6,), generator=g),
        **more,
    )


def large(num_nodes: int = 200, num_edges: int = 3000) -> Data:
    g = torch.Generator().manual_seed(2)
    pairs = torch.randint(num_nodes, (2, num_edges), generator=g)
    return Data(edge_index=pairs, x=torch.arange(num_nodes), number=torch.arange(num_edges), num_nodes=num_nodes)


def same(one: Batch, two: Batch) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one.keys())  # noqa: SIM118


def test_as_many_edges_as_nodes_keep_their_rows() -> None:
    ring = torch.arange(6)
    data = Data(edge_index=torch.stack([ring, (ring + 1) % 6]), x=ring, edge_attr=10 * ring, num_nodes=6)
    (batch,) = ShaDowKHopSampler(data, depth=2, num_neighbors=3, batch_size=6)
    assert batch.edge_attr.numel() == 12
    assert torch.equal(batch.edge_attr, 10 * batch.x[batch.edge_index[0]])


def test_mini_batches_are_those_of_torch_sparse() -> None:
    data = data_of()
    made = ShaDowKHopSampler(data, depth=1, num_neighbors=3, node_idx=MASK, batch_size=2)
    assert len(made) == 1
    (batch,) = made
    assert isinstance(batch, Batch)
    assert batch.num_graphs == len(batch) == 2
    assert batch.batch.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert batch.ptr.tolist() == [0, 4, 7]
    assert batch.root_n_id.tolist() == [0, 5]
    assert torch.equal(batch.x, data.x[[0, 1, 2, 3, 0, 1, 2]])
    assert torch.equal(batch.y, data.y[MASK])
    assert batch.edge_index.tolist() == [
        [0, 0, 0, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6, 6],
        [1, 2, 3, 0, 2, 0, 1, 0, 5, 6, 4, 6, 4, 5],
    ]
    assert batch.edge_weight.tolist() == [0, 1, 2, 3, 4, 5, 6, 9, 0, 1, 3, 4, 5, 6]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:Sparse invariant checks")
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo])
def test_adjacency_matrices_stay_matrices(layout: Any) -> None:
    data = data_of()
    order = torch.argsort(COL * 6 + ROW)
    whole = torch.sparse_coo_tensor(torch.stack([COL, ROW])[:, order], data.edge_weight[order], (6, 6))
    adj_t = whole.coalesce().to_sparse_csr() if layout == torch.sparse_csr else whole
    given = Data(adj_t=adj_t, x=data.x, y=data.y, e=data.edge_weight[order])
    (one,) = ShaDowKHopSampler(data, 1, 3, MASK, batch_size=2)
    (two,) = ShaDowKHopSampler(given, 1, 3, MASK, batch_size=2)
    assert two.adj_t.layout == layout
    for name in ("batch", "ptr", "root_n_id", "x", "y"):
        assert torch.equal(one[name], two[name])
    dense = torch.zeros(7, 7, dtype=torch.int64)
    dense[one.edge_index[1], one.edge_index[0]] = one.edge_weight
    assert torch.equal(two.adj_t.to_dense(), dense)
    values = two.adj_t._values() if layout == torch.sparse_coo else two.adj_t.values()
    assert torch.equal(two.e, values)


def test_rows_are_those_of_nodes_and_edges() -> None:
    data = large()
    data.name, data.pair = "graph", torch.tensor([1, 2])
    for batch in ShaDowKHopSampler(data, 2, 4, batch_size=50, seed=3):
        assert torch.equal(data.edge_index[:, batch.number], batch.x[batch.edge_index])
        assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])
        assert (batch.name, batch.pair.tolist()) == ("graph", [1, 2])
        keys = batch.batch * 200 + batch.x
        assert torch.equal(keys, torch.unique(keys))
        assert torch.equal(batch.batch[batch.root_n_id], torch.arange(50))


def test_seed_epoch_and_number_decide_everything() -> None:
    options = {"depth": 2, "num_neighbors": 2, "batch_size": 30, "shuffle": True}
    one = ShaDowKHopSampler(large(), **options, seed=5)
    first, second = list(one), list(one)
    assert not same(first[0], second[0])
    assert sorted(torch.cat([b.x[b.root_n_id] for b in second]).tolist()) == list(range(200))
    for workers in (0, 2):
        again = ShaDowKHopSampler(large(), **options, seed=5, num_workers=workers)
        assert all(map(same, first, again))
        assert all(map(same, second, again))
    again.set_epoch(1)
    assert all(map(same, second, again))
    other = ShaDowKHopSampler(large(), **options, seed=6)
    assert not same(first[0], next(iter(other)))


class SharedBatches(BatchSampler):
    """A batch sampler that gives each rank every second mini-batch."""

    def __init__(self, items: DistributedSampler[int]) -> None:
        super().__init__(SequentialSampler(range(40)), 5, False)
        self.num_replicas, self.rank = items.num_replicas, items.rank

    def __iter__(self) -> Iterator[list[int]]:
        yield from list(super().__iter__())[self.rank :: self.num_replicas]

    def __len__(self) -> int:
        return 8 // self.num_replicas


@pytest.mark.parametrize("of_batches", [False, True])
def test_ranks_that_share_a_sampler_pick_independently(of_batches: bool) -> None:
    # Both ranks have the same roots, which each of them would expand alike.
    def made(rank: int) -> list[Batch]:
        shared = DistributedSampler([0] * 40, num_replicas=2, rank=rank, shuffle=False)
        if of_batches:
            roots, options = torch.arange(5).repeat(8), {"batch_sampler": SharedBatches(shared)}
        else:
            roots, options = torch.arange(20).repeat_interleave(2), {"batch_size": 5, "sampler": shared}
        return list(ShaDowKHopSampler(large(), 2, 3, roots, seed=5, **options))

    zero, one = made(0), made(1)
    assert [batch.x[batch.root_n_id].tolist() for batch in zero] == [batch.x[batch.root_n_id].tolist() for batch in one]
    assert not any(same(a, b) for a, b in zip(zero, one, strict=True))
    assert all(same(a, b) for a, b in zip(zero, made(0), strict=True))


def test_workers_that_stay_see_new_epochs() -> None:
    options = {"depth": 1, "num_neighbors": 2, "batch_size": 50, "seed": 5}
    plain = ShaDowKHopSampler(large(), **options)
    stay = ShaDowKHopSampler(large(), **options, num_workers=1, persistent_workers=True)
    for _ in range(2):
        assert all(map(same, list(plain), list(stay)))


def test_generators_and_samplers_decide_the_order() -> None:
    def roots(**options: Any) -> list[int]:
        made = ShaDowKHopSampler(large(), 1, 2, batch_size=40, **options)
        return [v for b in made for v in b.x[b.root_n_id].tolist()]

    of = [torch.Generator().manual_seed(n) for n in (1, 1, 2)]
    one, two, three = (roots(shuffle=True, generator=g) for g in of)
    assert one == two != three
    assert roots(sampler=[5, 3, 9]) == [5, 3, 9]
    assert roots() == list(range(200))
    torch.manual_seed(1)
    first = roots(shuffle=True)
    torch.manual_seed(1)
    assert roots(shuffle=True) == first


def test_nodes_by_themselves_follow_torchs_generator() -> None:
    made = ShaDowKHopSampler(large(), 2, 2, seed=5)
    torch.manual_seed(1)
    one = made.collate_fn([5, 7])
    torch.manual_seed(1)
    assert same(one, made.collate_fn([5, 7]))
    assert not same(one, made.collate_fn([5, 7]))


def test_copies_give_the_same_mini_batches() -> None:
    made = ShaDowKHopSampler(large(), 2, 2, batch_size=90, shuffle=True, seed=5)
    for other in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert all(map(same, list(other), ShaDowKHopSampler(large(), 2, 2, batch_size=90, shuffle=True, seed=5)))


def test_torch_geometrics_name_is_ours() -> None:
    assert loader.pyg.backend() == "loader"
    assert torch_geometric.loader.ShaDowKHopSampler is ShaDowKHopSampler


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"depth": 9}, ValueError, "depth is 9"),
        ({"num_neighbors": -2}, ValueError, "num_neighbors is -2"),
        ({"num_neighbors": 2000, "replace": True}, ValueError, "fanout 2000 of the graph is not possible"),
        (
            {"node_idx": MASK.to(torch.uint8)},
            ValueError,
            "all of them 0 or 1, like a mask of dtype torch.uint8; give ids",
        ),
        ({"node_idx": MASK[:3]}, ValueError, r"node_idx is a mask of shape \[3\]; it must be \[6\]"),
        ({"node_idx": torch.tensor([6])}, ValueError, "node_idx holds node 6; valid ids are 0 to 5"),
        ({"batch_size": None}, ValueError, "batch_size is None, but ShaDowKHopSampler makes mini-batches"),
        ({"data": 3}, TypeError, "data is an int; it must be a torch_geometric.data.Data"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"shufle": True}, TypeError, "shufle"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        ShaDowKHopSampler(**{"data": data_of(), "depth": 1, "num_neighbors": 2, **given})


def test_edges_that_changed_are_refused() -> None:
    data = data_of()
    made = ShaDowKHopSampler(data, 1, 2)
    data.edge_index[0, 0] = 5
    with pytest.raises(ValueError, match=r"data\.edge_index is another than when this ShaDowKHopSampler was made"):
        next(iter(made))


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
def test_a_gpu_gives_the_same_mini_batches() -> None:
    options = {"depth": 2, "num_neighbors": 4, "batch_size": 60, "shuffle": True, "seed": 5}
    here = list(ShaDowKHopSampler(large(), **options))
    for data in (large(), large().to("cuda")):
        there = list(ShaDowKHopSampler(data, **options, device="cuda"))
        assert all(batch.edge_index.is_cuda and batch.x.is_cuda for batch in there)
        assert all(map(same, here, [batch.cpu() for batch in there]))
    with pytest.raises(ValueError, match="num_workers is 2, but ShaDowKHopSampler samples on cuda:0"):
        ShaDowKHopSampler(large(), **options, device="cuda", num_workers=2)


def test_processes_of_lightning_have_the_given_seed() -> None:
    options = {"depth": 2, "num_neighbors": 2, "batch_size": 25, "seed": 7}
    made = ShaDowKHopSampler(large(), **options)
    wanted = ShaDowKHopSampler(large(), sampler=DistributedSampler(range(200), 2, 1), **options)
    again = remade(made, DistributedSampler(range(200), 2, 1))
    assert all(same(a, b) for a, b in zip(again, wanted, strict=True))

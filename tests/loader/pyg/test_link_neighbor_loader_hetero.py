"""torch_geometric's loader of links of a `HeteroData` with our pipeline under it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from marks import HAS_GPU
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkNeighborLoader as TheirLoader
from torch_geometric.sampler import NegativeSampling
from torch_geometric.testing import MyFeatureStore, MyGraphStore

import loader.pyg
from loader.pyg import LinkNeighborLoader

SIZES = {"user": 90, "item": 60, "shop": 7}
BUYS, REV, SELLS = ("user", "buys", "item"), ("item", "rev_buys", "user"), ("shop", "sells", "item")
NUM_LINKS = 300


@pytest.fixture
def data() -> HeteroData:
    g = torch.Generator().manual_seed(0)
    made = HeteroData()
    for name, size in SIZES.items():
        made[name].x = torch.arange(size).float().view(-1, 1)
    buys = torch.stack([torch.randint(SIZES[name], (NUM_LINKS,), generator=g) for name in ("user", "item")])
    made[BUYS].edge_index, made[BUYS].edge_attr = buys, torch.arange(NUM_LINKS)
    made[REV].edge_index = buys.flip(0)
    made[SELLS].edge_index = torch.stack([torch.arange(60) % 7, torch.arange(60)])
    return made


def assert_consistent(batch: HeteroData, data: HeteroData) -> None:
    for name in SIZES:
        assert torch.equal(batch[name].x.view(-1).long(), batch[name].n_id)
    for key in data.edge_types:
        src, dst = batch[key].edge_index
        ends = torch.stack([batch[key[0]].n_id[src], batch[key[2]].n_id[dst]])
        assert torch.equal(ends, data[key].edge_index[:, batch[key].e_id])
    assert torch.equal(batch[BUYS].edge_attr, batch[BUYS].e_id)


def pairs_of(batch: HeteroData, ends: Any) -> list[tuple[int, int]]:
    src, dst = batch["user"].n_id[ends[0]], batch["item"].n_id[ends[1]]
    return list(zip(src.tolist(), dst.tolist(), strict=True))


def first_links(data: HeteroData, count: int) -> list[tuple[int, int]]:
    return list(map(tuple, data[BUYS].edge_index[:, :count].t().tolist()))


@pytest.mark.parametrize("sampling", [None, "binary", "triplet"])
@pytest.mark.parametrize("amount", [1, 3])
@pytest.mark.parametrize("subgraph_type", ["directional", "bidirectional"])
@pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional graph")  # of edges that have no reverses
def test_batches_have_the_attributes_of_torch_geometrics(data, sampling, amount, subgraph_type) -> None:
    given = None if sampling is None else {"mode": sampling, "amount": amount}
    options: dict[str, Any] = {"num_neighbors": [-1, -1], "edge_label_index": BUYS, "batch_size": 8}
    options |= {"neg_sampling": given, "subgraph_type": subgraph_type}
    ours = next(iter(LinkNeighborLoader(data, **options)))
    assert ours.input_type == BUYS
    if subgraph_type == "directional":
        assert_consistent(ours, data)
    of = ours[BUYS]
    ends = (ours["user"].src_index, ours["item"].dst_pos_index) if sampling == "triplet" else of.edge_label_index[:, :8]
    assert pairs_of(ours, ends) == first_links(data, 8)
    assert of.input_id.tolist() == list(range(8))
    if loader.pyg.backend() != "loader":
        return
    theirs = next(iter(TheirLoader(data, **options)))
    for key in (*SIZES, *data.edge_types):
        mine, other = ours[key], theirs[key]
        assert set(mine.keys()) == set(other.keys()), key
        for name, value in other.items():
            if isinstance(value, torch.Tensor):
                assert mine[name].dtype == value.dtype, (key, name)
            if name in ("edge_label_index", "edge_label", "src_index", "dst_pos_index", "dst_neg_index", "input_id"):
                assert mine[name].shape == value.shape, (key, name)
    if sampling is None:
        assert torch.equal(ours["user"].n_id.sort().values, theirs["user"].n_id.sort().values)
        assert torch.equal(of.edge_label_index, theirs[BUYS].edge_label_index)


@pytest.mark.parametrize("first", [0, 1])
def test_labels_leave_zero_for_negatives(data, first) -> None:
    links = data[BUYS].edge_index[:, :3]
    made = LinkNeighborLoader(
        data, [2], (BUYS, links), torch.tensor([0, 1, 2]) + first, batch_size=3, neg_sampling_ratio=1.0
    )
    assert next(iter(made))[BUYS].edge_label.tolist() == [1, 2, 3, 0, 0, 0]


def test_without_negatives_labels_are_unchanged(data) -> None:
    labels = torch.rand(NUM_LINKS, 2)
    met = []
    for batch in LinkNeighborLoader(data, [2], ("user", "item"), labels, batch_size=100, shuffle=True, seed=1):
        assert torch.equal(batch[BUYS].edge_label, labels[batch[BUYS].input_id])
        want = data[BUYS].edge_index[:, batch[BUYS].input_id].t().tolist()
        assert pairs_of(batch, batch[BUYS].edge_label_index) == list(map(tuple, want))
        met += batch[BUYS].input_id.tolist()
    assert sorted(met) == list(range(NUM_LINKS))


@pytest.mark.parametrize("exclude", ["none", "self", "reverse"])
def test_excluded_edges_are_not_sampled(data, exclude) -> None:
    met = {"forth": 0, "back": 0}
    reverse = REV if exclude == "reverse" else None
    for batch in LinkNeighborLoader(data, [-1, 3], BUYS, batch_size=50, exclude=exclude, reverse=reverse):
        assert_consistent(batch, data)
        asked = set(pairs_of(batch, batch[BUYS].edge_label_index))
        met["forth"] += len(set(pairs_of(batch, batch[BUYS].edge_index)) & asked)
        met["back"] += len(set(pairs_of(batch, batch[REV].edge_index.flip(0))) & asked)
    assert (met["forth"] > 0) == (exclude == "none")
    assert (met["back"] > 0) == (exclude != "reverse")


def test_strict_negatives_are_no_edges(data) -> None:
    known = set(first_links(data, NUM_LINKS))
    for batch in LinkNeighborLoader(data, [2], BUYS, batch_size=100, neg_sampling="binary", strict=True):
        of = batch[BUYS]
        drawn = pairs_of(batch, of.edge_label_index[:, of.edge_label == 0])
        assert len(drawn) == 100
        assert not known & set(drawn)


def test_weighted_negatives_have_weights(data) -> None:
    sampling = NegativeSampling("binary", 2, torch.arange(90) == 4.0, (torch.arange(60) % 2).float())
    sampling.src_weight = sampling.src_weight.float()
    for batch in LinkNeighborLoader(data, [2], BUYS, batch_size=100, neg_sampling=sampling):
        of = batch[BUYS]
        drawn = pairs_of(batch, of.edge_label_index[:, of.edge_label == 0])
        assert {u for u, _ in drawn} == {4}
        assert {v % 2 for _, v in drawn} == {1}


def test_links_need_not_be_edges(data) -> None:
    """Of a type without edges, and of data without any."""
    likes, links = ("user", "likes", "item"), torch.tensor([[3, 3, 80], [5, 5, 59]])
    batch = next(iter(LinkNeighborLoader(data, [2], (likes, links), batch_size=3, neg_sampling="triplet")))
    ends = torch.stack([batch["user"].src_index, batch["item"].dst_pos_index])
    assert pairs_of(batch, ends) == list(map(tuple, links.t().tolist()))
    with pytest.raises(ValueError, match=r"edge_type is \('user', 'likes', 'item'\), which is no relation"):
        LinkNeighborLoader(data, [2], (likes, links), exclude="self")
    bare = HeteroData(user={"num_nodes": 90}, item={"num_nodes": 60})
    batch = next(iter(LinkNeighborLoader(bare, [], (likes, links), batch_size=3)))
    assert pairs_of(batch, batch[likes].edge_label_index) == list(map(tuple, links.t().tolist()))


def test_stores_are_taken(data) -> None:
    features, graph = MyFeatureStore(), MyGraphStore()
    for name in SIZES:
        features.put_tensor(data[name].x, group_name=name, attr_name="x", index=None)
    for key in data.edge_types:
        ends, size = data[key].edge_index, (SIZES[key[0]], SIZES[key[2]])
        graph.put_edge_index((ends[0], ends[1]), edge_type=key, layout="coo", size=size)
    options: dict[str, Any] = {"edge_label_index": BUYS, "batch_size": 60, "neg_sampling": "binary", "seed": 3}
    ours = LinkNeighborLoader(data, [3], **options)
    for batch, plain in zip(LinkNeighborLoader((features, graph), [3], **options), ours, strict=True):
        for name in SIZES:
            assert torch.equal(batch[name].x, plain[name].x)
        assert torch.equal(batch[BUYS].edge_label_index, plain[BUYS].edge_label_index)


@pytest.mark.parametrize("changes", [{"num_workers": 1}, {"prefetch": 0}])
def test_only_the_seed_decides_an_epoch(data, changes) -> None:
    def epoch(**more: Any) -> list[Any]:
        base: dict[str, Any] = {"batch_size": 64, "shuffle": True, "seed": 4, "neg_sampling": "triplet"}
        made = LinkNeighborLoader(data, [3, 2], BUYS, **base, exclude="self", **more)
        return [(b["user"].n_id.tolist(), b[BUYS].e_id.tolist(), b["item"].dst_neg_index.tolist()) for b in made]

    assert epoch(**changes) == epoch()


def test_a_resumed_loader_goes_on(data) -> None:
    def made() -> LinkNeighborLoader:
        return LinkNeighborLoader(data, [3], BUYS, batch_size=64, shuffle=True, seed=4, neg_sampling="binary")

    whole = [b[BUYS].edge_label_index.tolist() for b in made()]
    first, second = made(), made()
    running = iter(first)
    for _ in range(2):
        next(running)
    second.load_state_dict(first.state_dict())
    assert [b[BUYS].edge_label_index.tolist() for b in second] == whole[2:]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("exclude", [{}, {"exclude": "self"}, {"exclude": "reverse", "reverse": REV}])
def test_induced_subgraphs_have_all_other_edges(data, plain, exclude) -> None:
    more = {"transform_sampler_output": lambda out: out} if plain else {}
    options = {"num_neighbors": [3, 2], "edge_label_index": BUYS, "batch_size": 12, "subgraph_type": "induced"}
    made = LinkNeighborLoader(data, **options, **exclude, **more, neg_sampling="binary")
    for batch in made:
        assert_consistent(batch, data)
        links = set(pairs_of(batch, batch[BUYS].edge_label_index[:, : batch[BUYS].input_id.numel()]))
        for key in data.edge_types:
            src, dst = data[key].edge_index
            inside = torch.isin(src, batch[key[0]].n_id) & torch.isin(dst, batch[key[2]].n_id)
            wanted = inside.nonzero().view(-1).tolist()
            if exclude and key == BUYS:
                wanted = [i for i in wanted if (int(src[i]), int(dst[i])) not in links]
            if "reverse" in exclude and key == REV:
                wanted = [i for i in wanted if (int(dst[i]), int(src[i])) not in links]
            assert sorted(batch[key].e_id.tolist()) == wanted
            assert "num_sampled_edges" not in batch[key]


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"edge_label_index": None}, TypeError, r"data has types, so give the edge type of the links, as \('user', 'buys'"),
    ({"edge_label_index": torch.zeros(2, 3).long()}, TypeError, "data has types, so give the edge type of the links"),
    (
        {"edge_label_index": ("user", "likes", "item")},
        ValueError,
        r"edge_label_index names the edge type \('user', 'likes', 'item'\); data has \[\('user', 'buys', 'item'\)",
    ),
    ({"edge_label_index": (("user", "has", "cat"), torch.zeros(2, 3).long())}, ValueError, "between the node types"),
    (
        {"edge_label_index": (BUYS, torch.tensor([[1], [60]]))},
        ValueError,
        r"edge_label_index\[1\], of type 'item', holds node 60; valid ids are 0 to 59",
    ),
    ({"edge_label_index": (BUYS, torch.tensor([[90], [1]]))}, ValueError, r"edge_label_index\[0\], of type 'user', h"),
    ({"edge_label_index": (BUYS, torch.zeros(3, 2))}, ValueError, r"shape \[3, 2\]; it must be a tensor \[2, n\]"),
    ({"edge_label_index": (BUYS, torch.rand(2, 3))}, TypeError, "edge_label_index has dtype torch.float32; it must be"),
    ({"edge_label": torch.zeros(3)}, ValueError, r"edge_label has shape \[3\], there are 300 links"),
    ({"exclude": "reverse"}, ValueError, r"name the relation that has the links' reverses"),
    ({"exclude": "reverse", "reverse": SELLS}, ValueError, "it must go the other way, from 'item' to 'user'"),
    ({"reverse": REV}, ValueError, "which is of use with exclude='reverse' only"),
    ({"subgraph_type": "induced", "disjoint": True}, ValueError, "subgraph_type is 'induced', which has no trees"),
    ({"num_neighbors": {BUYS: [2]}}, ValueError, "num_neighbors has nothing for the edge type"),
]


@pytest.mark.parametrize(("given", "error", "message"), WRONG)
def test_bad_arguments_are_refused(data, given, error, message) -> None:
    with pytest.raises(error, match=message):
        LinkNeighborLoader(data, **{"num_neighbors": [2], "edge_label_index": BUYS, **given})


def test_links_of_adj_t_are_given(data) -> None:
    pairs = data[BUYS].edge_index
    size = data[BUYS[2]].num_nodes, data[BUYS[0]].num_nodes
    matrix = torch.sparse_coo_tensor(pairs.flip(0), torch.ones(pairs.shape[1]), size, check_invariants=True)
    del data[BUYS].edge_index
    data[BUYS].adj_t = matrix
    with pytest.raises(ValueError, match=r"has no edge_index, whose edges would be the links; set it, or give"):
        LinkNeighborLoader(data, [2], BUYS)
    batch = next(iter(LinkNeighborLoader(data, [2], (BUYS, pairs), batch_size=4)))
    assert batch[BUYS].input_id.numel() == 4


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("sampling", ["binary", "triplet", NegativeSampling("binary", 2, torch.rand(90))])
def test_batches_on_a_gpu_are_the_same(data, sampling) -> None:
    base: dict[str, Any] = {"num_neighbors": [4, 2], "batch_size": 64, "shuffle": True, "seed": 5}
    base |= {"edge_label_index": BUYS, "neg_sampling": sampling, "exclude": "reverse", "reverse": REV}
    pairs = zip(LinkNeighborLoader(data, **base), LinkNeighborLoader(data, device="cuda", **base), strict=True)
    for ours, on_gpu in pairs:
        assert on_gpu["user"].x.is_cuda
        for key in (*SIZES, *data.edge_types):
            for name, value in ours[key].items():
                if isinstance(value, torch.Tensor):
                    assert torch.equal(value, on_gpu[key][name].cpu()), (key, name)


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional graph")  # of edges that have no reverses
def test_bidirectional_subgraphs_do_not_show_links(data, typed, disjoint) -> None:
    buys = data[BUYS].edge_index.unique(dim=1)  # an edge beside a link may show it
    data[BUYS].edge_index, data[REV].edge_index = buys, buys.flip(0)
    del data[BUYS].edge_attr
    both = buys + torch.tensor([[0], [90]])
    one = Data(edge_index=torch.cat([both, both.flip(0)], 1), num_nodes=150)
    key = BUYS if typed else None
    given: dict[str, Any] = {"edge_label_index": key, "batch_size": 20, "disjoint": disjoint, "seed": 1}
    given |= {"subgraph_type": "bidirectional"}

    def shown(**more: Any) -> int:
        found = 0
        for batch in LinkNeighborLoader(data if typed else one, [-1, -1], **given, **more):
            of, n_id = (batch[BUYS], [batch["user"].n_id, batch["item"].n_id]) if typed else (batch, [batch.n_id] * 2)
            links, edges = of.edge_label_index, of.edge_index
            if disjoint:
                trees = batch["item"].batch if typed else batch.batch
                links = links[:, trees[edges[1]]]  # of the tree of each edge
                same = torch.stack([n[a] == n[b] for n, a, b in zip(n_id, links, edges, strict=True)])
                found += int(same.all(0).sum())
            else:
                found += len({*map(tuple, links.t().tolist())} & {*map(tuple, edges.t().tolist())})
        return found

    assert shown()
    assert not shown(exclude="reverse", reverse=REV if typed else None)
    with pytest.raises(
        ValueError, match="is seen in the opposite direction: give exclude='reverse', or subgraph_type='d"
    ):
        shown(exclude="self")

"""torch_geometric's `LinkNeighborLoader` by times and in trees."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from marks import needs_gpu
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkNeighborLoader as TheirLoader
from torch_geometric.testing import MyFeatureStore, MyGraphStore

import loader.pyg
from loader.pyg import LinkNeighborLoader

NUM_NODES, NUM_EDGES = 80, 500
BUYS, REV = ("user", "buys", "item"), ("item", "rev_buys", "user")
LINKS = 40


@pytest.fixture
def data() -> Data:
    g = torch.Generator().manual_seed(0)
    pairs = torch.randperm(NUM_NODES**2, generator=g)[:NUM_EDGES]  # no parallel edges
    return Data(
        x=torch.arange(NUM_NODES, dtype=torch.float32).view(-1, 1),
        edge_index=torch.stack([pairs // NUM_NODES, pairs % NUM_NODES]),
        time=torch.randint(-20, 20, (NUM_NODES,), generator=g),
        edge_time=torch.randint(-20, 20, (NUM_EDGES,), generator=g),
    )


@pytest.fixture
def typed() -> HeteroData:
    g = torch.Generator().manual_seed(1)
    data = HeteroData()
    data["user"].x, data["item"].x = torch.rand(30, 3, generator=g), torch.rand(50, 3, generator=g)
    data["item"].time = torch.arange(50) - 5
    data["user"].time = torch.arange(30) - 5
    data[BUYS].edge_index = torch.stack([torch.randint(n, (300,), generator=g) for n in (30, 50)])
    data[REV].edge_index = data[BUYS].edge_index.flip(0)
    return data


def times_of(edges: torch.Tensor, *times: torch.Tensor) -> torch.Tensor:
    return torch.maximum(times[0][edges[0]], times[-1][edges[1]])


@pytest.mark.parametrize("options", [{}, {"temporal_strategy": "last"}, {"window": 8}, {"replace": True}])
@pytest.mark.parametrize("sampling", [None, "binary", "triplet"])
@pytest.mark.parametrize("attr", ["time", "edge_time"])
def test_nothing_is_later_than_its_link(data: Data, attr: str, sampling: Any, options: dict[str, Any]) -> None:
    times = times_of(data.edge_index, data.time) + 2
    given = {"time_attr": attr, "edge_label_time": times, "neg_sampling": sampling, "batch_size": 32, "shuffle": True}
    seen = 0
    for batch in LinkNeighborLoader(data, [4, 3], **given, **options):
        source, target = batch.edge_index
        bound = times[batch.input_id][batch.batch[target]]
        of_edge = batch.time[source] if attr == "time" else batch.edge_time
        assert bool((of_edge <= bound).all())
        assert torch.equal(batch.batch[source], batch.batch[target])
        if "window" in options:
            assert bool((of_edge > bound - 8).all())
        if attr == "time":  # negatives exist
            assert bool((batch.time <= times[batch.input_id][batch.batch]).all())
        own = batch.seed_time if sampling == "triplet" else batch.edge_label_time
        links = times[batch.input_id]
        assert torch.equal(own, links.repeat(2) if sampling == "binary" else links)
        seen += of_edge.numel()
    assert seen > 500


@pytest.mark.skipif(loader.pyg.backend() != "loader", reason="pyg-lib or torch-sparse is installed")
@pytest.mark.parametrize("sampling", [None, "triplet", "binary"])
@pytest.mark.parametrize("options", [{"time_attr": "time"}, {"time_attr": "edge_time"}, {"disjoint": True}])
def test_with_all_neighbors_mini_batches_are_torch_geometrics(data: Data, options: Any, sampling: Any) -> None:
    if "time_attr" in options:
        options = options | {"edge_label_time": times_of(data.edge_index, data.time)[:LINKS] + 1}
    given = {"num_neighbors": [-1, -1], "edge_label_index": data.edge_index[:, :LINKS], "batch_size": 8, **options}
    given["neg_sampling"] = sampling
    for ours, theirs in zip(LinkNeighborLoader(data, **given), TheirLoader(data, **given), strict=True):
        assert {*ours.keys()} - {"seed_time", "edge_label_time"} == {*theirs.keys()} - {"seed_time", "edge_label_time"}
        names = ["input_id", "edge_label_index", "edge_label", "edge_label_time", "seed_time"]
        names += ["src_index", "dst_pos_index", "dst_neg_index"]
        if sampling is None:  # else negatives are others
            names += ["n_id", "batch", "edge_index", "e_id", "num_sampled_nodes", "num_sampled_edges"]
        for name in names:
            mine, other = ours.get(name), theirs.get(name)
            assert torch.equal(mine, other) if isinstance(mine, torch.Tensor) else mine == other
            assert not isinstance(mine, torch.Tensor) or mine.dtype == other.dtype
        seeds = 8 * {None: 2, "triplet": 3, "binary": 4}[sampling]
        assert torch.equal(ours.batch[:seeds], theirs.batch[:seeds])
        positives = (ours.n_id[:seeds] == theirs.n_id[:seeds]).view(-1, 8).all(1)
        assert int(positives.sum()) >= 2


@pytest.mark.skipif(loader.pyg.backend() != "loader", reason="pyg-lib or torch-sparse is installed")
@pytest.mark.parametrize("sampling", [None, "triplet", "binary"])
@pytest.mark.parametrize("is_timed", [False, True])
def test_of_types_mini_batches_are_torch_geometrics(typed: HeteroData, is_timed: bool, sampling: Any) -> None:
    del typed["user"].time  # so that two users are not asked when they are later
    options: dict[str, Any] = {"disjoint": True}
    if is_timed:
        options = {"time_attr": "time", "edge_label_time": typed["item"].time[typed[BUYS].edge_index[1]] + 1}
    given = {"num_neighbors": [-1, -1], "edge_label_index": BUYS, "batch_size": 8, "neg_sampling": sampling, **options}
    for ours, theirs in zip(LinkNeighborLoader(typed, **given), TheirLoader(typed, **given), strict=True):
        for key in (BUYS, "user", "item"):
            names = ["input_id", "edge_label_index", "edge_label", "edge_label_time", "seed_time"]
            names += ["src_index", "dst_pos_index", "dst_neg_index"]
            names += ["n_id", "batch", "edge_index", "num_sampled_nodes"] if sampling is None else []
            for name in names:
                mine, other = ours[key].get(name), theirs[key].get(name)
                assert torch.equal(mine, other) if isinstance(mine, torch.Tensor) else mine == other, (key, name)
        sides = {None: 1, "triplet": 2, "binary": 2}[sampling]
        assert torch.equal(ours["item"].batch[: 8 * sides], theirs["item"].batch[: 8 * sides])


def test_fewer_negatives_belong_to_the_first_links(typed: HeteroData) -> None:
    """torch_geometric numbers the trees of destinations from another link on then."""
    times = times_of(typed[BUYS].edge_index, typed["user"].time, typed["item"].time) + 1
    options = {"time_attr": "time", "edge_label_time": times, "neg_sampling_ratio": 0.5, "batch_size": 8}
    batch = next(iter(LinkNeighborLoader(typed, [2], edge_label_index=BUYS, **options)))
    for name in ("user", "item"):
        assert batch[name].batch[:12].tolist() == [*range(8), *range(4)]
        assert bool((batch[name].time <= times[batch[name].batch]).all())
    assert torch.equal(batch[BUYS].edge_label_time, torch.cat([times[:8], times[:4]]))
    assert batch[BUYS].edge_label.tolist() == [1] * 8 + [0] * 4


@pytest.mark.parametrize("which", ["all", "given"])
@pytest.mark.parametrize("shape", ["directional", "bidirectional"])
def test_no_link_sees_itself(typed: HeteroData, which: str, shape: str) -> None:
    """If the links are all edges, an edge beside a link stays: it is another link."""
    twice = typed[BUYS].edge_index[:, :20].repeat(1, 2)
    typed[BUYS].edge_index, typed[REV].edge_index = twice, twice.flip(0)
    links = BUYS if which == "all" else (BUYS, twice)
    options = {"disjoint": True, "exclude": "reverse", "reverse": REV, "batch_size": 8, "subgraph_type": shape}
    beside = 0
    for batch in LinkNeighborLoader(typed, [-1, -1], edge_label_index=links, **options):
        own = batch[BUYS].input_id
        if shape == "bidirectional":
            continue
        for key in (BUYS, REV):
            link = batch[key[2]].batch[batch[key].edge_index[1]]
            assert not bool((batch[key].e_id == own[link]).any())
            beside += int((batch[key].e_id == (own[link] + 20) % 40).sum())
    assert (beside > 0) == (which == "all" and shape == "directional")


@pytest.mark.parametrize("sampling", [None, "triplet", "binary"])
@pytest.mark.parametrize("shape", ["directional", "bidirectional"])
def test_hooks_get_the_same_links(data: Data, typed: HeteroData, shape: str, sampling: Any) -> None:
    given = {"batch_size": 8, "seed": 3, "subgraph_type": shape, "neg_sampling": sampling}
    given |= {"time_attr": "time", "input_id": torch.arange(300) + 7}
    given["exclude"] = "self" if shape == "directional" else "reverse"
    for graph, links, time, reverse in (
        (data, data.edge_index[:, :300], times_of(data.edge_index, data.time)[:300], None),
        (typed, BUYS, times_of(typed[BUYS].edge_index, typed["user"].time, typed["item"].time), REV),
    ):
        given |= {"edge_label_index": links, "edge_label_time": time}
        given |= {"reverse": reverse} if shape == "bidirectional" else {}
        plain = LinkNeighborLoader(graph, [3, 2], transform_sampler_output=lambda out: out, **given)
        for ours, theirs in zip(LinkNeighborLoader(graph, [3, 2], **given), plain, strict=True):
            for mine, other in zip(
                [*ours.node_stores, *ours.edge_stores], [*theirs.node_stores, *theirs.edge_stores], strict=True
            ):
                names = {"n_id", "batch", "edge_index", "e_id", "input_id", "edge_label_index", "edge_label"}
                for name in names | {"edge_label_time", "seed_time", "src_index", "dst_pos_index", "dst_neg_index"}:
                    one, two = mine.get(name), other.get(name)
                    assert torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two, name


def test_a_resumed_epoch_goes_on(data: Data) -> None:
    times = times_of(data.edge_index, data.time)

    def make(later: int = 0) -> LinkNeighborLoader:
        given = {"time_attr": "time", "edge_label_time": times + later, "batch_size": 64, "shuffle": True, "seed": 1}
        return LinkNeighborLoader(data, [3, 2], neg_sampling="triplet", **given)

    whole = list(make())
    first = make()
    batches = iter(first)
    assert [torch.equal(next(batches).n_id, batch.n_id) for batch in whole[:2]] == [True, True]
    state, second = first.state_dict(), make()
    second.load_state_dict(state)
    for other in (second, pickle.loads(pickle.dumps(first)), copy.copy(first)):
        assert [batch.n_id.tolist() for batch in other] == [batch.n_id.tolist() for batch in whole[2:]]
    with pytest.raises(ValueError, match="cannot resume: ordered items was"):
        make(later=1).load_state_dict(state)


def test_times_that_change_are_told(data: Data) -> None:
    made = LinkNeighborLoader(data, [3], time_attr="time", edge_label_time=times_of(data.edge_index, data.time))
    next(iter(made))
    data.time[3] = 99
    with pytest.raises(ValueError, match=r"data\.time is another than when this LinkNeighborLoader was made"):
        next(iter(made))


def test_links_of_types_need_no_edges() -> None:
    data = HeteroData(paper={"num_nodes": 20, "time": torch.arange(20)})
    index = ("paper", "to", "paper"), torch.tensor([[1, 2], [3, 4]])
    options = {"time_attr": "time", "edge_label_time": torch.tensor([3, 4]), "neg_sampling": "triplet", "batch_size": 2}
    batch = next(iter(LinkNeighborLoader(data, [], index, **options)))
    assert batch["paper"].n_id[:4].tolist() == [1, 2, 3, 4]
    assert bool((batch["paper"].n_id[4:] <= torch.tensor([3, 4])).all())
    with pytest.raises(ValueError, match="time_attr is 'when', which no node type of data has; name one that is there"):
        LinkNeighborLoader(data, [], index, **options | {"time_attr": "when"})


def test_stores_of_several_types_have_times(typed: HeteroData) -> None:
    features, edges = MyFeatureStore(), MyGraphStore()
    for name in typed.node_types:
        for attr in ("x", "time"):
            features.put_tensor(typed[name][attr], group_name=name, attr_name=attr, index=None)
    for key in typed.edge_types:
        size = typed[key[0]].num_nodes, typed[key[2]].num_nodes
        edges.put_edge_index(typed[key].edge_index, edge_type=key, layout="coo", size=size)
    links = typed[BUYS].edge_index[:, :30]
    given = {"num_neighbors": [-1, -1], "edge_label_index": (BUYS, links), "time_attr": "time", "seed": 1}
    given |= {"edge_label_time": times_of(links, typed["user"].time, typed["item"].time), "neg_sampling": "binary"}
    both = LinkNeighborLoader(typed, **given), LinkNeighborLoader((features, edges), **given)
    for ours, of_stores in zip(*both, strict=True):
        for name in typed.node_types:
            pairs = [torch.stack([batch[name].batch, batch[name].n_id]) for batch in (ours, of_stores)]
            assert torch.equal(*(torch.unique(pair, dim=1) for pair in pairs))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"edge_label_time": torch.arange(5)},
            ValueError,
            "edge_label_time is given, but time_attr is None; name the t",
        ),
        ({"window": 3}, ValueError, "window is given, but time_attr is None; name"),
        ({"temporal_strategy": "last"}, ValueError, "temporal_strategy is 'last', but time_attr is None; name"),
        (
            {"time_attr": "time"},
            ValueError,
            "time_attr is 'time', but 'edge_label_time' is not set; give each link its",
        ),
        (
            {"time_attr": "when", "edge_label_time": torch.arange(NUM_EDGES)},
            ValueError,
            "time_attr is 'when'; data has",
        ),
        (
            {"time_attr": "time", "edge_label_time": torch.arange(3)},
            ValueError,
            r"edge_label_time has shape \[3\], there",
        ),
        (
            {"time_attr": "time", "edge_label_time": torch.full((NUM_EDGES,), 0.5)},
            ValueError,
            r"edge_label_time\[0\] is",
        ),
        ({"disjoint": "no"}, TypeError, "disjoint is 'no'; it must be True or False"),
        ({"disjoint": True, "subgraph_type": "induced"}, ValueError, "subgraph_type is 'induced', which has no trees"),
        (
            {"time_attr": "time", "edge_label_time": torch.arange(NUM_EDGES), "window": 0},
            ValueError,
            "window is 0; it must be at least 1",
        ),
    ],
)
def test_wrong_times_are_refused(data: Data, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        LinkNeighborLoader(data, [2], **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize("sampling", [None, "triplet", "binary"])
def test_a_gpu_gives_the_same_links(data: Data, typed: HeteroData, device: str, sampling: Any) -> None:
    options: dict[str, Any] = {"time_attr": "time", "batch_size": 16, "seed": 5, "neg_sampling": sampling}
    options |= {"exclude": "self", "shuffle": True}
    for graph, links, time in (
        (data, None, times_of(data.edge_index, data.time)),
        (typed, BUYS, times_of(typed[BUYS].edge_index, typed["user"].time, typed["item"].time)),
    ):
        options |= {"edge_label_index": links, "edge_label_time": time}
        both = [LinkNeighborLoader(graph, [4, 3], device=at, **options) for at in ("cpu", device)]
        for ours, theirs in zip(*both, strict=True):
            for mine, other in zip(
                [*ours.node_stores, *ours.edge_stores], [*theirs.node_stores, *theirs.edge_stores], strict=True
            ):
                for name, value in mine.items():
                    assert not isinstance(value, torch.Tensor) or torch.equal(value, other[name].cpu()), name


def test_times_of_a_list_keep_their_precision(data: Data) -> None:
    links, at = data.edge_index[:, :2], [1_700_000_001.0, 1_700_000_063.0]  # of float32, both are 1,700,000,000
    options = {"edge_label_index": links, "edge_label_time": at, "time_attr": "time", "batch_size": 2}
    assert next(iter(LinkNeighborLoader(data, [3], **options))).edge_label_time.tolist() == at

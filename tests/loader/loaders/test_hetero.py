"""`NodeLoader` on a graph with several types: rows by type and relation, labels, order and states."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from small_loader import digests, no_threads

from loader.graph import Graph, HeteroGraph
from loader.loaders import NodeLoader
from loader.samplers import FusedSampler, HopwiseSampler
from loader.stages import GatherStage
from loader.stores import HostFeatures, MemmapFeatures, PartitionedFeatures, StagedFeatures, TensorRows
from loader.timing import PipelineStats

WRITES, CITES, RATES = ("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "rates", "author")
SIZES = {"author": 60, "venue": 0, "paper": 120}
SEEDS = torch.arange(10, 110)


@pytest.fixture(scope="module")
def graph() -> HeteroGraph:
    g = torch.Generator().manual_seed(0)
    edges = {
        key: torch.stack([torch.randint(SIZES[key[i]], (400,), generator=g) for i in (0, 2)])
        for key in (WRITES, CITES, RATES)
    }
    return HeteroGraph.from_edges(edges, SIZES)


def rows(name: str) -> torch.Tensor:
    return torch.arange(SIZES[name] * 3, dtype=torch.float32).view(-1, 3) + len(name)


def made(graph: HeteroGraph, **changes: Any) -> NodeLoader:
    """100 seeds, 16 a mini-batch: 7 of them."""
    arguments: dict[str, Any] = {
        "features": {"author": rows("author"), "paper": HostFeatures(rows("paper")), "venue": torch.empty(0, 2)},
        "labels": torch.arange(SIZES["paper"]) % 7,
        "seeds": ("paper", SEEDS),
        "sampler": FusedSampler([3, 2], edge_ids=True, num_threads=1),
        "batch_size": 16,
        "shuffle": True,
        **changes,
    }
    return NodeLoader(graph, **arguments)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("expand", ["all", "new"])
def test_mini_batches_are_complete(graph, prefetch, expand) -> None:
    weights = torch.arange(400.0)[:, None]
    loader = made(
        graph,
        prefetch=prefetch,
        sampler=FusedSampler([3, 2], edge_ids=True, num_threads=2, expand=expand),
        edge_features={"paper__cites__paper": weights},
    )
    batches = list(loader)
    assert len(batches) == len(loader) == 7
    assert [b.batch_size for b in batches] == [16] * 6 + [4]
    assert [(b.epoch, b.index) for b in batches] == [(0, i) for i in range(7)]
    assert sorted(torch.cat([b.n_id["paper"][: b.batch_size] for b in batches]).tolist()) == SEEDS.tolist()
    for batch in batches:
        assert batch.x.keys() == {"author", "venue", "paper"}
        assert batch.x.pop("venue").shape == (0, 2)
        for name, x in batch.x.items():
            assert torch.equal(x, rows(name)[batch.n_id[name].long()])
        assert torch.equal(batch.y, batch.ids("seed") % 7)
        kind = "edge/paper__cites__paper"
        assert torch.equal(batch.rows[kind], weights[batch.ids(kind).long()])
        assert batch.num_edges > 0
        assert batch.to_pyg()["paper"].y.numel() == batch.batch_size
    assert no_threads()


def test_a_mini_batch_is_the_samplers_answer(graph) -> None:
    loader = made(graph, features=None, labels=None, shuffle=False, seeds={"paper": SEEDS})
    sampler = HopwiseSampler([3, 2], edge_ids=True, num_threads=1)
    for epoch in range(2):
        for i, batch in enumerate(loader):
            seeds = {"paper": SEEDS[16 * i : 16 * (i + 1)]}
            assert batch.digest() == sampler.sample(graph, seeds, epoch=epoch, batch=i).digest()
    assert loader.seeds.tolist() == SEEDS.tolist()
    assert loader.node_type == "paper"


def test_labels_gathered_after_sampling_are_the_same(graph) -> None:
    gather = GatherStage({"seed": TensorRows(torch.arange(SIZES["paper"]) % 7)}, torch.device("cpu"), PipelineStats(()))
    gather._stats.name(["gather"])
    for with_labels, without in zip(made(graph), made(graph, labels=None), strict=True):
        assert without.y is None
        assert gather.run(without).y.tolist() == with_labels.y.tolist()


@pytest.mark.parametrize("prefetch", [1, 5])
def test_prefetch_changes_nothing(graph, prefetch) -> None:
    inline, ahead = made(graph, prefetch=0), made(graph, prefetch=prefetch)
    for _ in range(3):
        assert digests(inline) == digests(ahead)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_the_mini_batches(graph, ranks) -> None:
    alone = digests(made(graph))
    shares = [digests(made(graph, rank=rank, world_size=ranks)) for rank in range(ranks)]
    together = list(itertools.chain.from_iterable(zip(*shares, strict=True)))
    assert together[: len(alone)] == alone


@pytest.mark.parametrize("taken", [0, 3, 7])
def test_a_state_goes_on_after_any_mini_batch(graph, taken) -> None:
    whole = made(graph)
    expected = digests(whole) + digests(whole)
    first = made(graph)
    given = digests(itertools.islice(first, taken))
    second = made(graph, prefetch=0)
    second.load_state_dict(first.state_dict())
    assert given + digests(second) + digests(second) == expected


def test_a_state_of_other_types_is_refused(graph) -> None:
    loader = made(graph)
    state = loader.state_dict()
    edges = {key: torch.zeros(2, 400, dtype=torch.int64) for key in (CITES, WRITES, RATES)}
    other = made(HeteroGraph.from_edges(edges, SIZES))
    with pytest.raises(ValueError, match=r"cannot resume: edge_types was \['author__writes__paper'"):
        other.load_state_dict(state)
    resized = made(
        HeteroGraph.from_edges(
            {key: edges[key] for key in (WRITES, CITES, RATES)}, {**SIZES, "author": 59, "venue": 1}
        ),
        features=None,
    )
    with pytest.raises(ValueError, match=r"cannot resume: node_types was \[\['author', 60\]|ordered items"):
        resized.load_state_dict(state)


def test_copies_go_on(graph) -> None:
    loader = made(graph)
    expected = digests(made(graph))
    assert digests(itertools.islice(loader, 2)) == expected[:2]
    assert digests(copy.deepcopy(loader)) == expected[2:]
    assert digests(pickle.loads(pickle.dumps(loader))) == expected[2:]


def test_features_may_lie_in_a_file(graph, tmp_path) -> None:
    np.save(tmp_path / "paper.npy", rows("paper").numpy())
    store = MemmapFeatures(tmp_path / "paper.npy")
    loader = made(graph, features={"author": rows("author"), "paper": store})
    in_memory = made(graph, features={"author": rows("author"), "paper": rows("paper")})
    assert digests(loader) == digests(in_memory)
    store.close()


def test_one_type_and_relation_are_sampled_as_today() -> None:
    pairs = torch.randint(50, (2, 300), generator=torch.Generator().manual_seed(1))
    typed = HeteroGraph.from_edges({("a", "to", "a"): pairs}, {"a": 50})
    plain = typed.lists
    x, y = torch.randn(50, 4), torch.arange(50)
    options: dict[str, Any] = {"sampler": FusedSampler([4, 3], num_threads=1), "batch_size": 8, "shuffle": True}
    ours = NodeLoader(typed, {"a": x}, y, ("a", torch.arange(40)), **options)
    theirs = NodeLoader(plain, x, y, torch.arange(40), **options)
    for mine, other in zip(ours, theirs, strict=True):
        assert [t.tolist() for t in mine.tensors()] == [t.tolist() for t in other.tensors()]


WRONG = [
    ({"seeds": SEEDS}, TypeError, r"the graph has the node types \['author', 'venue', 'paper'\]: give the ids of one"),
    ({"seeds": {"paper": SEEDS, "author": SEEDS}}, TypeError, r"give the ids of one of them, as \('author', ids\)"),
    ({"seeds": ("venues", SEEDS)}, ValueError, r"seeds names the node type 'venues'; the graph has \['author'"),
    ({"seeds": ("paper", SEEDS + 11)}, ValueError, r"seeds\['paper'\] holds node 120; valid ids are 0 to 119"),
    ({"seeds": ("paper", SEEDS // 2)}, ValueError, r"seeds\['paper'\] holds node 5 more than once"),
    ({"seeds": ("paper", SEEDS > 20)}, TypeError, r"seeds\['paper'\] has dtype torch\.bool; turn a mask into ids"),
    ({"features": rows("paper")}, TypeError, r"features is .*; the graph has types, so it must be a dict: node type"),
    ({"features": {"papers": rows("paper")}}, ValueError, r"features names the node type 'papers'; the graph has"),
    ({"features": {"paper": rows("author")}}, ValueError, r"features\['paper'\] has 60 rows, the graph 120 nodes"),
    ({"labels": torch.arange(180)}, ValueError, r"labels has shape \[180\], the graph 120 nodes of type 'paper'"),
    (
        {"edge_features": {"cites": rows("paper")}},
        ValueError,
        r"edge_features names the edge type 'cites'; the graph has",
    ),
    (
        {"edge_features": {CITES: rows("paper")}},
        ValueError,
        r"\] has 120 rows, the relation 400 edges; give a row per edge",
    ),
    (
        {"edge_features": {CITES: torch.ones(400, 1)}, "sampler": FusedSampler([3])},
        ValueError,
        r"is gathered by edge id, and the sampler returns none; give it edge_ids=True",
    ),
]


@pytest.mark.parametrize(("changes", "error", "message"), WRONG)
def test_wrong_arguments_are_named(graph, changes, error, message) -> None:
    with pytest.raises(error, match=message):
        made(graph, **changes)


def test_edge_features_need_a_row_per_id() -> None:
    lists = Graph(torch.tensor([0, 2, 4]), torch.tensor([1, 0, 1, 0]), edge_types=torch.tensor([0, 1, 0, 1]))
    graph = HeteroGraph.of(lists)  # whose edges keep their places in the lists
    first, second = graph.edge_types
    sampler = FusedSampler([-1], num_threads=1, edge_ids=True)
    for key, rows in ((first, 2), (second, 3)):
        with pytest.raises(ValueError, match=f"has {rows} rows, the relation edge ids up to {rows}; give a row per id"):
            NodeLoader(graph, None, None, ("node", torch.arange(2)), sampler, 2, edge_features={key: torch.ones(rows)})
    features = {first: torch.arange(3), second: torch.arange(4)}
    (batch,) = NodeLoader(graph, None, None, ("node", torch.arange(2)), sampler, 2, edge_features=features)
    assert [sorted(batch.rows[f"edge/{'__'.join(key)}"].tolist()) for key in features] == [[0, 2], [1, 3]]


def test_edge_features_need_edge_ids_of_the_graph() -> None:
    edges = {key: torch.zeros(2, 400, dtype=torch.int64) for key in (WRITES, CITES)}
    bare = HeteroGraph.from_edges(edges, SIZES, keep_edge_ids=False)
    with pytest.raises(ValueError, match=r"the graph keeps no edge ids; make it with keep_edge_ids=True"):
        made(bare, edge_features={CITES: torch.ones(400, 1)})


@pytest.mark.parametrize("kind", [PartitionedFeatures, StagedFeatures])
def test_stores_that_wait_for_others_are_refused(graph, kind) -> None:
    store = object.__new__(kind)
    with pytest.raises(TypeError, match=rf"features\['paper'\] is a {kind.__name__}, which cannot be one of several"):
        made(graph, features={"paper": store})

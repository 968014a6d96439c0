"""Arguments of samplers: what is refused, and that the message names the value and the way out."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from marks import needs_dgl

from loader.graph import Graph, HeteroGraph
from loader.items import NodeItems
from loader.loaders.base import Loader
from loader.samplers import (
    DGLSampler,
    FullSampler,
    FusedSampler,
    HopwiseSampler,
    LinkSampler,
    Request,
    Sampler,
    SubgraphSampler,
    TreeSampler,
    WalkSampler,
    resolve_fanouts,
)
from loader.samplers.base import Session
from loader.samplers.ego import EgoSampler

CORE = [HopwiseSampler, FusedSampler]
ALL = [*CORE, FullSampler, pytest.param(DGLSampler, marks=needs_dgl)]


@pytest.fixture
def graph() -> Graph:
    return Graph(torch.tensor([0, 2, 3, 3]), torch.tensor([1, 2, 0]))


@pytest.mark.parametrize(
    ("fanouts", "num_hops", "resolved"),
    [
        (10, 3, (10, 10, 10)),
        (-1, 1, (-1,)),
        ([15, 10, 5], None, (15, 10, 5)),
        ((5,), 1, (5,)),
        ([1, -1, 1024], 3, (1, -1, 1024)),
        (2, 8, (2,) * 8),
    ],
)
def test_fanouts_are_one_number_or_one_per_hop(fanouts, num_hops, resolved) -> None:
    assert resolve_fanouts(fanouts, num_hops) == resolved
    sampler = FusedSampler(fanouts, num_hops, num_threads=1)
    assert (sampler.fanouts, sampler.num_hops) == (resolved, len(resolved))


@pytest.mark.parametrize(
    ("fanouts", "num_hops", "message"),
    [
        (10, None, r"single number 10: say num_hops"),
        ([10, 10], 3, r"\[10, 10\] has 2 entries for 3 layers"),
        ([10, 0], None, r"fanout 0 is not possible: give 1 to 1024, or -1"),
        ([-2], None, r"fanout -2 is not possible"),
        ([1025], None, r"fanout 1025 is not possible"),
        ([], None, r"0 hops are given; 1 to 8 are possible, e\.g\. \[15, 10\]"),
        (5, 9, r"9 hops are given; 1 to 8"),
        (5, 0, r"0 hops are given"),
    ],
)
@pytest.mark.parametrize("make", [*CORE, DGLSampler])  # checked before DGL is looked for
def test_impossible_fanouts_are_refused(make, fanouts, num_hops, message) -> None:
    with pytest.raises(ValueError, match=message):
        make(fanouts, num_hops)


@pytest.mark.parametrize("seed", [-1, 2**64])
@pytest.mark.parametrize("make", [*CORE, DGLSampler])
def test_seed_of_more_than_64_bits_is_refused(make, seed) -> None:
    with pytest.raises(ValueError, match=rf"seed is {seed}; it must be in \[0, 2\*\*64\)"):
        make([5], seed=seed)


@pytest.mark.parametrize("num_threads", [0, -3])
@pytest.mark.parametrize("make", CORE)
def test_less_than_one_thread_is_refused(make, num_threads) -> None:
    with pytest.raises(ValueError, match=rf"num_threads is {num_threads}; it must be at least 1"):
        make([5], num_threads=num_threads)


@pytest.fixture(params=ALL)
def sampler(request: pytest.FixtureRequest) -> Sampler:
    """One of each kind, of two hops."""
    return FullSampler(2) if request.param is FullSampler else request.param([2, 2])


@pytest.mark.parametrize(
    ("seeds", "error", "message"),
    [
        (torch.tensor([0, 3]), ValueError, r"node 3; valid ids are 0 to 2"),
        (torch.tensor([-1]), ValueError, r"node -1; valid ids are 0 to 2"),
        (torch.tensor([2**40]), ValueError, rf"node {2**40}; valid ids are 0 to 2"),
        (torch.tensor([1, 0, 1]), ValueError, r"node 1 more than once.*torch\.unique"),
        (torch.tensor([0.0, 1.0]), TypeError, r"dtype torch\.float32; it must be an integer"),
        (torch.tensor([True, False, True]), TypeError, r"dtype torch\.bool.*nonzero"),
        (torch.tensor([[0, 1]]), ValueError, r"1 dimension"),
        ([0, 1], TypeError, "must be a tensor"),
        (torch.tensor([0, 1]).to_sparse(), ValueError, "layout torch.sparse_coo; it must be dense"),
        (torch.zeros(2, dtype=torch.complex64), TypeError, "must be an integer type"),
    ],
)
def test_a_sampler_works_after_refusing_bad_seeds(sampler, graph, seeds, error, message) -> None:
    good = torch.tensor([2, 0], dtype=torch.int32)
    before = sampler.sample(graph, good).digest()
    with pytest.raises(error, match=message):
        sampler.sample(graph, seeds)
    assert sampler.sample(graph, good).digest() == before


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_seeds_of_any_integer_type_mean_the_same(sampler, graph, dtype) -> None:
    batch = sampler.sample(graph, torch.tensor([2, 0], dtype=dtype))
    assert batch.nodes.dtype == torch.int32
    assert batch.digest() == sampler.sample(graph, torch.tensor([2, 0])).digest()


def test_no_seeds_and_no_nodes_give_empty_blocks(sampler, graph) -> None:
    none = torch.empty(0, dtype=torch.int64)
    for g in (graph, Graph(torch.tensor([0]), none)):
        batch = sampler.sample(g, none)
        assert batch.frontier_sizes == (0, 0, 0)
        assert [b.num_edges for b in batch.blocks] == [0, 0]


@pytest.mark.parametrize("make", CORE)
@pytest.mark.parametrize("argument", ["epoch", "batch"])
@pytest.mark.parametrize("value", [-1, 2**64, 1.0, "1", None, True])
def test_an_impossible_epoch_or_batch_is_refused(make, argument, value, graph) -> None:
    with pytest.raises((TypeError, ValueError), match=f"{argument} is {value!r}; it must be"):
        make([2]).sample(graph, torch.tensor([0]), **{argument: value})


def test_epoch_and_batch_may_be_integers_of_numpy(graph) -> None:
    sampler, seeds = FusedSampler([1]), torch.tensor([0, 2])
    found = sampler.sample(graph, seeds, epoch=np.int64(3), batch=np.uint8(4)).tensors()
    expected = sampler.sample(graph, seeds, epoch=3, batch=4).tensors()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_digest_knows_no_type_of_integers(graph) -> None:
    sampler, seeds = FusedSampler([1]), torch.tensor([0, 2])
    found = sampler.sample(graph, seeds, epoch=np.int64(3), batch=np.uint8(4))
    assert found.digest() == sampler.sample(graph, seeds, epoch=3, batch=4).digest()


@pytest.mark.parametrize(
    "sampler", [*(make([1]) for make in CORE), LinkSampler(FusedSampler([1])), WalkSampler(3), SubgraphSampler([1])]
)
def test_a_session_wants_a_graph(sampler) -> None:
    with pytest.raises(TypeError, match=r"graph is None; it must be a loader\.Graph"):
        sampler.open(None)


@pytest.mark.parametrize("dtype", [torch.uint32, torch.uint64])
def test_seeds_beyond_a_narrow_graph_are_refused(dtype, graph) -> None:
    with pytest.raises(ValueError, match=rf"node {2**31 + 1}; valid ids are 0 to 2"):
        FusedSampler([1]).sample(graph, torch.tensor([2**31 + 1], dtype=dtype))


@pytest.mark.parametrize("make", CORE)
def test_closed_sampler_says_so(make, graph) -> None:
    sampler = make([2])
    sampler.sample(graph, torch.tensor([0]))
    sampler.close()
    sampler.close()
    with pytest.raises(RuntimeError, match=rf"{make.__name__} was closed"):
        sampler.sample(graph, torch.tensor([0]))


@pytest.mark.parametrize("fanouts", [2.5, [10, 2.0], ["10"], True])
def test_fanouts_are_integers(fanouts: object) -> None:
    with pytest.raises(TypeError, match="is not an integer"):
        resolve_fanouts(fanouts, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("position", [{"epoch": -1}, {"batch": -3}])
def test_negative_positions_are_refused(position: dict[str, int]) -> None:
    graph = Graph(torch.tensor([0, 1]), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"is -\d; it must be in"):
        FusedSampler(1, 1).sample(graph, torch.tensor([0]), **position)


@pytest.mark.parametrize("make", [*CORE, pytest.param(DGLSampler, marks=needs_dgl)])
def test_closed_sampler_opens_no_session(make, graph) -> None:
    sampler = make([2])
    sampler.close()
    with pytest.raises(RuntimeError, match=rf"{make.__name__} was closed"):
        sampler.open(graph)
    copy.copy(sampler).open(graph).close()


class Counting(Sampler):
    """Its sessions finish a sample when they are told, and note when they were closed."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[CountingSession] = []
        self.before_open = lambda: None

    def spec(self) -> dict[str, Any]:
        return {}

    def open(self, graph: Graph) -> Session:
        self.require_open()
        self.before_open()
        self.opened.append(CountingSession(graph))
        return self.opened[-1]


class CountingSession(Session):
    def __init__(self, graph: Graph) -> None:
        self.graph, self.closed = graph, 0
        self.inside, self.leave = threading.Event(), threading.Event()
        self.leave.set()

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], Any]]:
        return [self.finish for _ in group]

    def finish(self) -> Graph:
        self.inside.set()
        assert self.leave.wait(20)
        assert not self.closed
        return self.graph

    def close(self) -> None:
        self.closed += 1


SEEDS = torch.tensor([0])


@pytest.mark.parametrize("by", ["another graph", "close"])
def test_the_last_user_of_a_session_closes_it(by, graph) -> None:
    other, sampler, found = Graph(graph.indptr, graph.indices), Counting(), []
    sampler.sample(graph, SEEDS)
    (session,) = sampler.opened
    session.inside.clear()
    session.leave.clear()
    thread = threading.Thread(target=lambda: found.append(sampler.sample(graph, SEEDS)))
    thread.start()
    try:
        assert session.inside.wait(20)
        if by == "close":
            sampler.close()
        else:
            assert sampler.sample(other, SEEDS) is other
        assert not session.closed
    finally:
        session.leave.set()
        thread.join()
    assert found == [graph]
    assert session.closed == 1


def test_sampling_another_graph_closes_the_session(graph) -> None:
    other, sampler = Graph(graph.indptr, graph.indices), Counting()
    for of in (graph, graph, other, other, graph):
        assert sampler.sample(of, SEEDS) is of
    assert [(session.graph, session.closed) for session in sampler.opened] == [(graph, 1), (other, 1), (graph, 0)]
    sampler.close()
    assert sampler.opened[-1].closed == 1


def test_closing_a_sampler_closes_a_session_being_opened(graph) -> None:
    sampler = Counting()
    sampler.before_open = sampler.close
    with pytest.raises(RuntimeError, match="Counting was closed"):
        sampler.sample(graph, SEEDS)
    assert [session.closed for session in sampler.opened] == [1]


def test_two_threads_keep_only_one_session(graph) -> None:
    sampler, both, found = Counting(), threading.Barrier(2, timeout=300), []
    sampler.before_open = both.wait
    threads = [threading.Thread(target=lambda: found.append(sampler.sample(graph, SEEDS))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [graph, graph]
    assert sorted(session.closed for session in sampler.opened) == [0, 1]
    sampler.close()
    assert [session.closed for session in sampler.opened] == [1, 1]


@pytest.fixture
def star() -> Graph:
    """Edges from 20 nodes to node 0, of which only the first five have a weight."""
    weights = torch.zeros(20)
    weights[:5] = 1
    sources = torch.arange(1, 21)
    return Graph.from_edges(sources, torch.zeros(20, dtype=torch.int64), 21, edge_weights=weights)


def turned(graph: Graph) -> None:
    """Lets the last five edges have the weight."""
    graph.edge_weights.zero_()
    graph.edge_weights[-5:] = 1


@pytest.mark.parametrize("kind", [FusedSampler, SubgraphSampler])
def test_written_weights_are_read_by_the_next_call(star: Graph, kind: Any) -> None:
    sampler = kind([5], weights="edge_weights")
    before = sampler.sample(star, torch.tensor([0])).nodes
    turned(star)
    after = sampler.sample(star, torch.tensor([0])).nodes
    assert (before.tolist(), after.tolist()) == ([0, 1, 2, 3, 4, 5], [0, 16, 17, 18, 19, 20])


def test_written_weights_are_read_by_the_next_epoch(star: Graph) -> None:
    sampler = FusedSampler([5], weights="edge_weights")
    options: dict[str, Any] = {"stores": {}, "device": "cpu"}
    own = Loader(star, NodeItems(torch.tensor([0])), sampler, 1, **options)
    with contextlib.closing(sampler.open(star)) as session:
        shared = Loader(star, NodeItems(torch.tensor([0])), sampler, 1, session=session, **options)
        for loader in (own, shared):
            assert next(iter(loader)).nodes.tolist() == [0, 1, 2, 3, 4, 5]
        turned(star)
        assert next(iter(own)).nodes.tolist() == [0, 16, 17, 18, 19, 20]
        with pytest.raises(ValueError, match="the graph was written to since the session of this loader was opened"):
            next(iter(shared))
        own.release()


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize(
    ("of", "said"), [("node", "of its nodes"), ("edge", "of its edges"), ("both", "of its nodes and edges")]
)
def test_ignored_times_are_told_once(
    of: str, said: str, typed: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("loader.samplers.base._warned_of_times", False)
    arrays = {"node_times": torch.arange(3), "edge_times": torch.arange(3)}
    given = {name: array for name, array in arrays.items() if of in (name[:4], "both")}
    ends = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])
    timed, plain = Graph.from_edges(*ends, 3, **given), Graph.from_edges(*ends, 3)
    sampler, seeds = FusedSampler([2], seed=1), torch.tensor([0, 2])
    graphs = [HeteroGraph.of(graph) if typed else graph for graph in (plain, timed)]
    caplog.set_level("WARNING")
    wanted = sampler.sample(graphs[0], seeds).digest()
    assert caplog.messages == []
    assert sampler.sample(graphs[1], seeds).digest() == wanted
    FusedSampler([1]).sample(graphs[1], seeds)
    assert len(caplog.messages) == 1
    assert f"FusedSampler ignores the times that the graph has {said}, so" in caplog.messages[0]
    assert f"TreeSampler(fanouts, times={of!r}) counts them" in caplog.messages[0]


def test_trees_without_times_tell_of_them(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("loader.samplers.base._warned_of_times", False)
    ends = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])
    graph, seeds = HeteroGraph.of(Graph.from_edges(*ends, 3, node_times=torch.arange(3))), torch.tensor([0, 2])
    TreeSampler([2], times="node").sample(graph, seeds, torch.tensor([5, 5]))
    assert caplog.messages == []
    TreeSampler([2]).sample(graph, seeds)
    assert "TreeSampler ignores the times that the graph has of its nodes" in caplog.messages[0]


def test_ego_graphs_name_their_own_sampler(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("loader.samplers.base._warned_of_times", False)
    graph = Graph.from_edges(torch.tensor([0, 1]), torch.tensor([1, 0]), 2, node_times=torch.arange(2))
    EgoSampler(1, 1, num_threads=1).sample(graph, torch.tensor([0]))
    assert [one.split(" ")[0] for one in caplog.messages] == ["EgoSampler"]

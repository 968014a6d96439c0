"""`loader.random_walk`."""

from __future__ import annotations

import gc
import signal
import weakref
from collections.abc import Callable

import pytest
import torch

import loader
from loader import _core
from loader.graph import Graph
from loader.samplers import walk_call


def test_random_walk_equals_the_sampler(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(50, 400)
    starts = torch.tensor([3, 9, 3])
    sampler = loader.WalkSampler(7, p=2, q=0.5, seed=5, edge_ids=True)
    sample = sampler.sample(graph, starts.repeat(2), epoch=1, batch=4)
    options = {"p": 2, "q": 0.5, "seed": 5, "epoch": 1, "batch": 4, "walks_per_node": 2}
    nodes, edges = loader.random_walk(graph, starts, 7, edge_ids=True, **options)
    assert torch.equal(nodes, sample.nodes)
    assert sample.edge_ids is not None
    assert torch.equal(edges, sample.edge_ids)
    alone = loader.random_walk(graph, starts, 7, **options)
    assert isinstance(alone, torch.Tensor)
    assert torch.equal(alone, nodes)
    assert not torch.equal(loader.random_walk(graph, starts, 7, **{**options, "epoch": 2}), nodes)


def test_a_kept_sampler_goes_with_the_graph(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(50, 400)
    for seed in range(3):
        for q in (1.0, 2.0):
            loader.random_walk(graph, torch.tensor([1]), 3, q=q, seed=seed)
    kept = walk_call._graphs[graph]
    assert len(kept) == 2
    first = next(iter(kept.values()))[1]
    for threads in range(2, 8):
        loader.random_walk(graph, torch.tensor([1]), 3, num_threads=threads)
    assert len(kept) == 4
    graph.indices = graph.indices.flip(0)
    assert torch.equal(
        loader.random_walk(graph, torch.tensor([1]), 3), loader.WalkSampler(3).sample(graph, torch.tensor([1])).nodes
    )
    ends = [weakref.ref(x) for x in (graph, first)]
    del graph, kept, first
    gc.collect()
    assert [end() for end in ends] == [None, None]


def test_bad_arguments_are_refused(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(50, 400)
    with pytest.raises(ValueError, match="walks_per_node is 0"):
        loader.random_walk(graph, torch.tensor([1]), 3, walks_per_node=0)
    with pytest.raises(ValueError, match="epoch is -1"):
        loader.random_walk(graph, torch.tensor([1]), 3, epoch=-1)
    with pytest.raises(TypeError, match="start is a list"):
        loader.random_walk(graph, [1], 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 dimension"):
        loader.random_walk(graph, torch.tensor([[1]]), 3)
    with pytest.raises(ValueError, match="holds node 50"):
        loader.random_walk(graph, torch.tensor([50]), 3)
    with pytest.raises(TypeError, match=r"start has dtype torch\.bool; it must be an integer type"):
        loader.random_walk(graph, torch.ones(50, dtype=torch.bool), 3)
    with pytest.raises(TypeError, match=r"probability is no option of random_walk; it knows walk_length, .* p, q, "):
        loader.random_walk(graph, torch.tensor([1]), 3, probability=0.5)
    with pytest.raises(TypeError, match=r"walk_lenght is no option of random_walk; did you mean walk_length\?"):
        loader.random_walk(graph, torch.tensor([1]), 3, walk_lenght=0.5)


def test_walks_follow_the_direction_of_edges(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(50, 400)
    ahead = loader.random_walk(graph.reverse(), torch.arange(50), 5, edge_ids=True)
    assert isinstance(ahead, tuple)
    nodes, edges = ahead
    ends = torch.searchsorted(graph.indptr, torch.arange(400), right=True) - 1
    for walk, ids in zip(nodes.tolist(), edges.tolist(), strict=True):
        for here, there, edge in zip(walk, walk[1:], ids, strict=False):
            if there >= 0:
                assert (here, there) == (int(graph.indices[edge]), int(ends[edge]))


class TestTurns:
    """A long call walks some walkers at a time."""

    LENGTH, WALKERS = 2**19, 20  # more steps than one turn has

    def engine(self) -> _core.WalkEngine:
        indices = torch.randint(50, (400,), dtype=torch.int32, generator=torch.Generator().manual_seed(3))
        return _core.WalkEngine(torch.arange(0, 401, 8, dtype=torch.int32), indices, None, None, 0, 2)

    def walked(self, engine: _core.WalkEngine, begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        starts = torch.arange(begin, end, dtype=torch.int32)
        nodes = torch.full((end - begin, self.LENGTH + 1), -7, dtype=torch.int32)
        places = torch.empty(end - begin, self.LENGTH, dtype=torch.int32)
        engine.walk(starts, begin, 5, self.LENGTH, 0, 0, None, [], nodes, places)
        return nodes, places

    def test_walks_are_those_of_several_calls(self) -> None:
        engine = self.engine()
        whole = self.walked(engine, 0, self.WALKERS)
        parts = [self.walked(engine, *bounds) for bounds in ((0, 7), (7, 13), (13, self.WALKERS))]
        for array, cut in zip(whole, zip(*parts, strict=True), strict=True):
            assert torch.equal(array, torch.cat(cut))

    def test_ctrl_c_ends_a_call_before_its_end(self) -> None:
        engine, count = self.engine(), 4 * self.WALKERS
        nodes = torch.full((count, self.LENGTH + 1), -7, dtype=torch.int32)
        starts = torch.zeros(count, dtype=torch.int32)
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C
        try:
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the timer may ring before the call
                signal.setitimer(signal.ITIMER_REAL, 0.005)
                engine.walk(starts, 0, 5, self.LENGTH, 0, 0, None, [], nodes, None)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert nodes[-1].eq(-7).all()

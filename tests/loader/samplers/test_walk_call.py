"""`loader.random_walk`."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch

import loader
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
    with pytest.raises(ValueError, match="holds vertex 50"):
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

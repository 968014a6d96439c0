"""`Walkers`: the order of walks, and a loader of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from loader.graph import Graph
from loader.items import Walkers
from loader.loaders.base import Loader
from loader.samplers import WalkSampler
from loader.stores import HostFeatures


def test_all_starts_come_once_and_then_again() -> None:
    walkers = Walkers(torch.tensor([4, 9, 4]), 2)
    assert len(walkers) == 6
    first, second = walkers.take(slice(0, 6), [4, 2])
    assert (first.ids.tolist(), second.ids.tolist()) == ([4, 9, 4, 4], [9, 4])
    (some,) = walkers.take(torch.tensor([5, 1]), [2])
    assert some.ids.tolist() == [4, 9]
    moved = walkers.to(torch.device("cpu"), torch.int32)
    assert moved.starts.dtype == torch.int32
    assert moved.fingerprint() == walkers.fingerprint()
    prints = {Walkers(torch.tensor(ids), n).fingerprint() for ids, n in (([4, 9, 4], 2), ([4, 9, 4], 3), ([4, 9], 2))}
    assert len(prints) == 3


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="walks_per_node is 0"):
        Walkers(torch.tensor([1]), 0)
    with pytest.raises(TypeError, match=r"torch\.bool"):
        Walkers(torch.tensor([True]))
    with pytest.raises(ValueError, match="empty"):
        Walkers(torch.zeros(0, dtype=torch.int64))


@pytest.fixture
def make(random_graph: Callable[..., Graph]) -> Callable[..., Loader]:
    graph = random_graph(60, 300)
    table = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))

    def make(**options: Any) -> Loader:
        sampler = WalkSampler(6, p=2, q=0.5, edge_ids=True, num_threads=options.pop("num_threads", 1))
        arguments: dict[str, Any] = {"stores": {"node": HostFeatures(table)}, "shuffle": True, **options}
        return Loader(graph, Walkers(torch.arange(0, 60, 2), 3), sampler, 8, **arguments)

    return make


def digests(batches: Any) -> list[str]:
    return [batch.digest() for batch in batches]


def test_a_loader_walks_from_every_start(make: Callable[..., Loader]) -> None:
    loader = make()
    batches = list(loader)
    assert sorted(v for b in batches for v in b.starts.tolist()) == sorted([*range(0, 60, 2)] * 3)
    assert batches[0].x.shape == (8, 7, 3)
    expected = digests(batches)
    assert digests(make(prefetch=0, num_threads=2)) == expected
    assert digests(loader) != expected  # the next epoch


def test_a_state_in_mid_epoch_goes_on(make: Callable[..., Loader]) -> None:
    expected = digests(make())
    loader = make()
    begun = digests(itertools.islice(loader, 5))
    state = json.loads(json.dumps(loader.state_dict()))
    assert state["config"]["sampler.p"] == 2.0
    ranks = [make(rank=rank, world_size=2) for rank in range(2)]
    for rank in ranks:
        rank.load_state_dict(state)
    rest = [batch for step in zip(*ranks, strict=True) for batch in step if not batch.repeats]
    assert begun + digests(rest) == expected

"""A small loader for tests, whose arguments can be exchanged."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch

from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.samplers import HopwiseSampler

NUM_NODES = 200
SEEDS = torch.arange(10, 110)


def small_loader(graph: Graph, **changes: Any) -> NodeLoader:
    """100 seeds of `NUM_NODES` nodes, 16 a mini-batch: 7 of them."""
    arguments: dict[str, Any] = {
        "graph": graph,
        "features": torch.randn(NUM_NODES, 6, generator=torch.Generator().manual_seed(1)),
        "labels": torch.arange(NUM_NODES) % 7,
        "seeds": SEEDS,
        "sampler": HopwiseSampler([3, 2], num_threads=1),
        "batch_size": 16,
        "shuffle": True,
        **changes,
    }
    return NodeLoader(**arguments)


def digests(batches: Any) -> list[str]:
    return [batch.digest() for batch in batches]


def no_threads() -> bool:
    """Whether the loaders' threads end."""
    deadline = time.monotonic() + 30
    while any(t.name.startswith("loader-") for t in threading.enumerate()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def small_samples(count: int) -> list[Any]:
    """The first mini-batches of this many epochs, without rows."""
    generator = torch.Generator().manual_seed(0)
    graph = Graph.from_edges(*torch.randint(NUM_NODES, (2, 1000), generator=generator), NUM_NODES)
    loader = small_loader(graph, features=None)
    found = []
    for epoch in range(count):
        loader.set_epoch(epoch)
        found.append(next(iter(loader)))
    loader.close()
    return found

"""Fixtures of the whole test tree."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import settings

from loader.graph import Graph

# No test asserts a time, an example of hypothesis neither: a machine may be busy.
settings.register_profile("any-speed", deadline=None)
settings.load_profile("any-speed")


@pytest.fixture
def random_graph() -> Callable[..., Graph]:
    """`random_graph(num_nodes, num_edges, seed)`: uniform random edges, parallel ones and self loops included."""

    def make(num_nodes: int = 200, num_edges: int = 1500, seed: int = 0) -> Graph:
        g = torch.Generator().manual_seed(seed)
        src = torch.randint(num_nodes, (num_edges,), generator=g)
        dst = torch.randint(num_nodes, (num_edges,), generator=g)
        return Graph.from_edges(src, dst, num_nodes)

    return make

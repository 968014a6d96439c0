"""The comparison of sizes with DGL's LaborSampler."""

from __future__ import annotations

import labor_sizes
import numpy as np
import pytest
import torch
from marks import needs_dgl

from loader import Graph
from loader.machine.optional import import_dgl


def skewed_graph() -> Graph:
    """3,000 nodes and some 35,000 edges without parallel ones; nodes of low number have most of them."""
    g = torch.Generator().manual_seed(0)
    src, dst = ((torch.rand(40_000, generator=g) ** power * 3000).long() for power in (1.5, 2))
    keys = torch.unique(dst * 3000 + src)
    return Graph.from_edges(keys % 3000, keys // 3000, 3000)


def test_differences_are_percent_of_dgls() -> None:
    theirs = np.full(100, 200.0)
    found = labor_sizes.compare(theirs + 1, theirs)
    assert found == {"ours": 201.0, "dgl": 200.0, "percent": 0.5, "half_width": 0.0}
    noise = np.random.default_rng(0).normal(size=(2000, 100))
    intervals = [labor_sizes.compare(theirs + row, theirs) for row in noise]
    assert 0.92 < np.mean([abs(f["percent"]) < f["half_width"] for f in intervals]) < 0.98


@needs_dgl
@pytest.mark.slow
def test_sizes_are_near_dgls() -> None:
    dgl = import_dgl("this test")
    dgl.seed(0)
    rows = labor_sizes.measure("skewed", skewed_graph(), dgl, (4, 4), 100, 120)
    assert [row["form"] for row in rows] == list(labor_sizes.FORMS)
    for row in rows:
        for found in (row["nodes"], row["edges"]):
            # Not by the interval: mini-batches that share random numbers are not independent.
            assert abs(found["percent"]) < 2.5
        assert row["nodes"]["ours"] < row["uniform_nodes"]

"""Partitions by METIS."""

from __future__ import annotations

import sys

import pytest
import torch
from marks import needs_metis

from loader.graph import Graph
from loader.graph.metis import metis_parts


def cliques(count: int, size: int) -> Graph:
    """Cliques in a ring, each with one edge to the next; node `i` is in clique `i % count`; loops, one way only."""
    ids = torch.arange(count * size).view(size, count).t()
    pairs = [torch.combinations(row).t() for row in ids]
    pairs += [torch.stack([ids[:, 0], ids.roll(-1, 0)[:, 1]]), torch.arange(count).expand(2, count)]
    return Graph.from_edges(*torch.cat(pairs, 1), count * size)


@needs_metis
@pytest.mark.parametrize("recursive", [False, True])
def test_cliques_are_the_parts(recursive: bool) -> None:
    graph = cliques(5, 12)
    parts = metis_parts(graph, 5, recursive=recursive)
    assert parts.dtype == torch.int64
    assert torch.equal(parts, torch.arange(60) % 5)
    assert torch.equal(parts, metis_parts(graph, 5, recursive=recursive))


@needs_metis
def test_weights_balance_the_parts() -> None:
    weights = torch.ones(40, dtype=torch.int64)
    weights[:4] = 12  # together more than all others
    ring = Graph.from_edges(torch.arange(40), torch.arange(1, 41) % 40, 40)
    parts = metis_parts(ring, 2, node_weights=weights)
    sums = torch.bincount(parts, weights.double())
    assert (sums / sums.sum() - 0.5).abs().max() < 0.1
    assert (torch.bincount(metis_parts(ring, 2)) - 20).abs().max() <= 2


@needs_metis
def test_few_nodes_are_few_parts() -> None:
    empty = Graph.from_edges(torch.empty(0).long(), torch.empty(0).long(), 0)
    assert metis_parts(empty, 3).tolist() == []
    pair = Graph.from_edges(torch.tensor([0]), torch.tensor([1]), 2)
    assert metis_parts(pair, 1).tolist() == [0, 0]
    parts = metis_parts(pair, 5)
    assert ((parts >= 0) & (parts < 5)).all()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r"ClusterData needs the package pymetis; pip install 'gnn-loader\[metis\]'"):
        metis_parts(cliques(2, 3), 2, wanted_by="ClusterData")


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="num_parts is 0"):
        metis_parts(cliques(2, 3), 0)
    with pytest.raises(ValueError, match=r"node_weights has shape \[5\]; it must be \[6\]"):
        metis_parts(cliques(2, 3), 2, node_weights=torch.ones(5))
    with pytest.raises(TypeError, match=r"node_weights has dtype torch.float32; it must be an integer type"):
        metis_parts(cliques(2, 3), 2, node_weights=torch.full((6,), 0.5))
    for wrong in (-torch.arange(6), torch.full((6,), 2**30)):
        with pytest.raises(ValueError, match=r"node_weights go from .*, with a sum below 2\*\*31: divide them"):
            metis_parts(cliques(2, 3), 2, node_weights=wrong)

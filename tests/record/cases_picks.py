"""The mini-batches of the record that are not picked evenly: by weight, the heaviest, and by LABOR."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from cases import WIDTHS, below, digest, graph_of, seeds_of

from loader import Graph, Sampler

KINDS: dict[str, dict[str, Any]] = {
    "weighted": {"weights": "edge_weights"},
    "weighted, replaced": {"weights": "edge_weights", "replace": True},
    "raced": {"weights": "edge_weights", "weight_tables": False},
    "heaviest": {"weights": "edge_weights", "top_k": True},
    "labor": {"labor": True},
    "labor, all hops": {"labor": True, "layer_dependency": True},
    "labor, 5 mini-batches": {"labor": True, "batch_dependency": 5},
}
PICKED = list(itertools.product(("hubs", "random", "own ids"), WIDTHS))
PICKED_GROUPS = {f"picks, {graph}, {width}" for graph, width in PICKED}

# Fanouts, seed, epoch, mini-batch and number of seeds.
DRAWS = (
    ((10, 10), 0, 0, 0, 64),
    ((15, 10, 5), 2**63 + 11, 3, 2**33 + 1, 20),
    ((40, -1), 7, 1, 13, 5),
)


def weighed_graph(name: str, width: str, device: str = "cpu") -> Graph:
    """The graph of that name with weights: powers of two over a wide range, and some zeros, so float32 is exact."""
    plain = graph_of(name, width)
    steps = below(60, plain.num_edges, 30)
    weights = np.where(steps < 5, 0.0, np.ldexp(1.0 + below(8, plain.num_edges, 31) / 8, steps - 30))
    graph = Graph(
        plain.indptr,
        plain.indices,
        edge_ids=plain.edge_ids,
        edge_weights=torch.from_numpy(weights.astype(np.float32)),
        validate=False,
    )
    edge_dtype, node_dtype = WIDTHS[width]
    graph.indptr, graph.indices = graph.indptr.to(edge_dtype), graph.indices.to(node_dtype)
    return graph.to(device)


def picked(
    graph_name: str,
    width: str,
    make: Callable[..., Sampler],
    *,
    device: str = "cpu",
    only: Callable[[dict[str, Any]], bool] = lambda options: True,
) -> dict[str, str]:
    """Name -> digest of the mini-batches of a group.

    Args:
        make: `make(fanouts, edge_ids=..., seed=..., **options)`.
        device: where the graph lies.
        only: by which options.
    """
    graph = weighed_graph(graph_name, width, device)
    digests = {}
    for (kind, options), draw in itertools.product(KINDS.items(), DRAWS):
        if not only(options):
            continue
        fanouts, seed, epoch, batch, count = draw
        sampler = make(fanouts, edge_ids=True, seed=seed, **options)
        seeds = seeds_of(graph.num_nodes, count, first=batch % graph.num_nodes).to(device)
        made = sampler.sample(graph, seeds, epoch=epoch, batch=batch)
        digests[f"picks, {graph_name}, {width}: {kind}, {' '.join(map(str, fanouts))}"] = digest(made)
        sampler.close()
    return digests

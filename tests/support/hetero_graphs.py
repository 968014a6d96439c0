"""Random graphs with several types, and their lists in plain NumPy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from loader.graph import HeteroGraph

EdgeType = tuple[str, str, str]
Edges = dict[EdgeType, Tensor]

# Options of samplers whose picks only a look at the whole list tells. Those of a sampler of trees have no tables.
WHOLE_LISTS: list[dict[str, Any]] = [
    {"labor": True},
    {"labor": True, "layer_dependency": True, "batch_dependency": 2},
    {"weights": "edge_weights", "weight_tables": False},
]


def with_hubs(count: int, dtype: torch.dtype = torch.float32) -> HeteroGraph:
    """A graph with weights, some of them 0, and with times of edges: nodes 0 to `count` - 1 are of type a, 10 more of
    type p.

    The first node of each type has `count` neighbors, also some nodes have none.
    """
    g = torch.Generator().manual_seed(1)

    def edges(a: int, b: int, pairs: int) -> Tensor:
        others = torch.stack([torch.randint(a, (pairs,), generator=g), torch.randint(b, (pairs,), generator=g)])
        hub = torch.stack([torch.randint(a, (count,), generator=g), torch.zeros(count, dtype=torch.int64)])
        return torch.cat([others, hub], 1)

    relations = {
        ("a", "w", "p"): edges(count, 8, 300),
        ("p", "c", "p"): edges(10, 10, 30)[:, :40],
        ("p", "rev_w", "a"): edges(10, count, 500)[:, :600],
        ("a", "t", "a"): edges(count, count, 100),
    }
    weights, times = {}, {}
    for key, pairs in relations.items():
        drawn = torch.rand(pairs.shape[1], generator=g, dtype=torch.float64)
        weights[key] = torch.where(drawn < 0.2, 0.0, drawn).to(dtype)
        times[key] = torch.randint(100, drawn.shape, generator=g)
    return HeteroGraph.from_edges(relations, {"a": count, "p": 10}, edge_weights=weights, edge_times=times)


@st.composite
def hetero_edges(draw: Any, most_types: int = 4, most_relations: int = 6) -> tuple[Edges, dict[str, int], Any]:
    """Edges, numbers of nodes and weights: with types without nodes and relations without edges."""
    sizes = {f"t{i}": draw(st.integers(0, 7)) for i in range(draw(st.integers(1, most_types)))}
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    edges: Edges = {}
    for number in range(draw(st.integers(0, most_relations))):
        source, target = draw(st.sampled_from(sorted(sizes))), draw(st.sampled_from(sorted(sizes)))
        count = draw(st.integers(0, 25)) if sizes[source] and sizes[target] else 0
        ends = np.stack([rng.integers(0, max(sizes[of], 1), count) for of in (source, target)])
        dtype = draw(st.sampled_from([torch.int32, torch.int64]))
        edges[source, f"r{number % 4}", target] = torch.from_numpy(ends).to(dtype)
    weights = None
    if draw(st.booleans()):
        named = [key for key in edges if draw(st.booleans())]
        dtypes = st.sampled_from([torch.float32, torch.float64])
        weights = {key: torch.from_numpy(rng.random(edges[key].shape[1])).to(draw(dtypes)) for key in named}
    return edges, sizes, weights


def lists_of(edges: Edges, sizes: dict[str, int], weights: Any = None) -> list[list[tuple[int, int, float]]]:
    """Of each row the (source in the one range, place in its relation, weight) of its edges, in list order."""
    first = dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist(), strict=False))
    rows = []
    for name, size in sizes.items():
        for v in range(size):
            for key, pairs in edges.items():
                if key[2] != name:
                    continue
                src, dst = pairs.numpy()
                weight = np.ones(src.size) if weights is None or key not in weights else weights[key].numpy()
                places = np.flatnonzero(dst == v)
                places = places[np.argsort(src[places], kind="stable")]
                rows.append([(first[key[0]] + int(src[e]), int(e), float(weight[e])) for e in places])
    return rows


def rows_of(lists: Any) -> list[list[tuple[int, int, float]]]:
    """The same of the lists of a `Graph`."""
    ends = lists.indptr.tolist()
    ids = list(range(lists.num_edges)) if lists.edge_ids is None else lists.edge_ids.tolist()
    weights = [1.0] * lists.num_edges if lists.edge_weights is None else lists.edge_weights.tolist()
    entries = list(zip(lists.indices.tolist(), ids, weights, strict=True))
    return [entries[a:b] for a, b in pairwise(ends)]

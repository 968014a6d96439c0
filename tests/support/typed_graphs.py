"""Random graphs with several types, and their lists in plain NumPy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

EdgeType = tuple[str, str, str]
Edges = dict[EdgeType, Tensor]


@st.composite
def typed_edges(draw: Any, most_types: int = 4, most_relations: int = 6) -> tuple[Edges, dict[str, int], Any]:
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

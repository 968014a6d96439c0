"""How often walks come to each node: what negative samples are drawn by, as in word2vec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from loader.graph import Graph
from loader.machine.arguments import as_finite
from loader.machine.subnormals import shares_of_largest

# Their powers are square roots and products, which IEEE 754 rounds in one way: they are equal on all machines.
EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
_MOST = 2**31 - 1  # places, so that a place is an int32
_HEAVIEST = 2**32 - 1  # of the integers in place of weights


def as_exponent(value: Any) -> float:
    """`value` as an exponent of frequencies.

    Raises:
        TypeError, ValueError: it is none of `EXPONENTS`.
    """
    exponent = as_finite("negative_exponent", value)
    if exponent not in EXPONENTS:
        raise ValueError(
            f"negative_exponent is {value}; it must be one of {', '.join(f'{e:g}' for e in EXPONENTS)}: their powers "
            "are equal on all machines"
        )
    return float(exponent)


class Frequencies:
    """Draws nodes in proportion to a power of their frequency.

    The frequency of a node is the number of edges in whose lists it is, by which walks can come to it; with weights
    it is the sum of their weights. In an undirected graph this is the degree, to which the share of a long uniform
    walk's steps is proportional. Nodes that no list has are never drawn.

    Each node has a number of consecutive places, in proportion to the power. The number is rounded down, but at least
    1. A place is drawn and its node looked up, as in word2vec's table of places (Mikolov et al., NeurIPS 2013), which
    is kept here as the end of each node's places.

    Args:
        graph: wherever it lies.
        exponent: see `as_exponent`.
        weighted: by `graph.edge_weights`, which are sound.
        metapath: edges of these types only, or None for all.

    Raises:
        ValueError: no list has a node, or more than 2**30 nodes are in lists.
    """

    def __init__(
        self, graph: Graph, exponent: float, *, weighted: bool = False, metapath: Sequence[int] | None = None
    ) -> None:
        shares = _powers(_counts(graph, weighted, metapath), exponent)
        known = int((shares > 0).sum())
        if known == 0:
            raise ValueError(
                "the graph has no edges by which walks go, so no node has a frequency; draw negatives from all "
                "nodes: negative_exponent=0"
            )
        if known > _MOST // 2:
            raise ValueError(
                f"{known} nodes have edges; by frequency negatives are drawn from at most {_MOST // 2}: "
                "use negative_exponent=0"
            )
        sum_of_shares = int(shares.sum())
        # Below 2**32 * 2**31, so no product is too large; rounding up to 1 adds at most `known`.
        places = torch.where(shares > 0, (shares * (_MOST - known) // sum_of_shares).clamp(min=1), 0)
        ends = places.cumsum(0)
        self.num_places = int(ends[-1])
        self._ends = ends.to(graph.indices.dtype)

    def to(self, device: torch.device) -> None:
        """Goes to `device`."""
        self._ends = self._ends.to(device)

    def nodes(self, places: Tensor) -> Tensor:
        """The nodes of `places`, each in `[0, num_places)`; shape and dtype stay. On the current stream."""
        return torch.searchsorted(self._ends, places, right=True, out_int32=places.dtype == torch.int32)


def _counts(graph: Graph, weighted: bool, metapath: Sequence[int] | None) -> Tensor:
    """`[num_nodes]` int64 on the CPU: how many edges, or how much weight, each node is listed by."""
    indices = graph.indices
    if metapath is not None:
        assert graph.edge_types is not None
        types = graph.edge_types
        indices = indices[
            torch.isin(types, torch.tensor(sorted(set(metapath)), dtype=types.dtype, device=types.device))
        ]
    if not weighted:
        return torch.bincount(indices, minlength=graph.num_nodes).cpu()
    assert graph.edge_weights is not None
    whole = shares_of_largest(graph.edge_weights, _HEAVIEST)
    # Integers, whose sum does not depend on the order.
    return torch.zeros(graph.num_nodes, dtype=torch.int64).index_add_(0, indices.cpu().long(), whole)


def _powers(counts: Tensor, exponent: float) -> Tensor:
    """`counts ** exponent` as shares of the largest one, integers from 1 to 2**32; 0 for a count of 0."""
    if counts.numel() == 0:
        return counts
    root = counts.double().sqrt()
    fourth = root.sqrt()
    powers = {0.0: torch.ones_like(root), 0.25: fourth, 0.5: root, 0.75: root * fourth, 1.0: counts.double()}[exponent]
    shares = (powers / powers.max() * 2**32).round().long().clamp(min=1)
    return torch.where(counts > 0, shares, 0)

"""How often mini-batches will visit each node, estimated from the visits of some mini-batches.

Of a large graph some mini-batches visit most nodes once or never. How often these are visited later is told better
by the nodes of about the same degree together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from loader.graph import Graph

_COUNTED_EDGES = 1 << 28  # of which out-degrees are counted; of more, that many in pieces from all over
_CHUNKS = 64


class Classes(NamedTuple):
    """Nodes of about the same degree.

    Attributes:
        of: `[num_nodes]` int32, the class of each node.
        sizes: `[num_classes]` int64.
    """

    of: Tensor
    sizes: Tensor

    @classmethod
    def by_degree(cls, degrees: Tensor) -> Classes:
        """Eight classes for each doubling of the degree; each degree below 16 has its own."""
        mantissas, exponents = torch.frexp(degrees.double())  # exact, so all processes find the same classes
        of = (exponents + 1) * 8 + (mantissas * 16 - 8).int()
        return cls(of, torch.bincount(of))

    def expected(self, counts: Tensor) -> Tensor:
        """`[num_nodes]` float64: the visits to expect in another set of this many mini-batches. Their sum is that of
        the counts.

        This is the mean of the rates after the counts were seen, if the counts of a class are drawn by Poisson's law,
        and their rates by a gamma distribution of the mean and variance that the counts show (empirical Bayes: Robbins,
        "An Empirical Bayes Approach to Statistics", 1956). If degrees tell nothing of visits, counts of a class vary
        much, and the estimates are near the counts.

        Args:
            counts: `[num_nodes]` int64.
        """
        seen, mean, square = self._moments(counts)
        # A rate of the gamma distribution: `counts` weighs 1 against it. Without more variance than Poisson's, all
        # nodes of the class have the same rate.
        weight = mean / (square - mean**2 - mean)
        weight = torch.where(weight > 0, weight, torch.inf)
        expected = (mean / (1 + 1 / weight)).index_select(0, self.of)
        expected[seen] += counts[seen] / (1 + weight.index_select(0, self.of[seen]))
        return expected

    def explained(self, counts: Tensor) -> float:
        """How much of the variance of the counts lies between the classes: of two kinds of classes the one with more
        tells more of the visits.
        """
        _, mean, _ = self._moments(counts)
        return float((self.sizes * mean**2).sum())

    def _moments(self, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The nodes with a count, and of each class the means of the counts and of their squares."""
        seen = counts.nonzero().view(-1)
        of, found = self.of[seen], counts[seen].double()
        sizes = self.sizes.clamp(min=1)
        mean, square = (torch.bincount(of, x, minlength=len(sizes)).double() / sizes for x in (found, found**2))
        return seen, mean, square


def classes_of(graph: Graph, counts: Tensor) -> Classes:
    """The classes that tell most of `counts`: by the out-degree, which is the number of lists that a node can be
    picked from, or by the in-degree, which is the same in an undirected graph, and known exactly.

    Args:
        graph: square, in host memory.
        counts: `[num_nodes]` int64, visits.
    """
    return best_classes((graph.in_degrees().cpu(), out_degrees(graph)), counts)


def best_classes(degrees: Iterable[Tensor], counts: Tensor) -> Classes:
    """The classes by one of several kinds of degrees, `[num_nodes]` each, that tell most of `counts`."""
    return max(map(Classes.by_degree, degrees), key=lambda classes: classes.explained(counts))


def out_degrees(graph: Graph) -> Tensor:
    """`[num_src]` int64, in all edges, or in pieces of about as many from all over the graph as can be counted."""
    chunks = graph.indices.split(max(1, -(-graph.num_edges // _CHUNKS)))
    length = -(-_COUNTED_EDGES // _CHUNKS)
    return torch.bincount(torch.cat([chunk[:length].cpu() for chunk in chunks]), minlength=graph.num_src)

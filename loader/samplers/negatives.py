"""Negative links: how they are drawn, and drawing them on the host."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.machine.arguments import as_flag, as_number, as_size, shown
from loader.machine.renamed_arguments import renamed
from loader.samplers.existing_nodes import ExistingNodes
from loader.samplers.link_ends import LinkEnds
from loader.samplers.node_weights import NodeWeights


@renamed({"amount": "num_negatives"})
@dataclass(frozen=True)
class Negatives:
    """How negative links are drawn. Each is a pure function of (seed, epoch, mini-batch, number of the negative).

    Attributes:
        mode: "binary": both ends are drawn, each uniformly from all nodes. "triplet": each positive link has its own
            negatives, from its source to targets that are drawn uniformly from all nodes. With types, ends are drawn
            from the nodes of their type.
        num_negatives: per positive link. "triplet" needs a positive integer, "binary" any positive number: the number
            of negatives of a mini-batch is rounded up.
        strict: never draw an edge of the graph or a loop; all other pairs are equally likely. With types, only edges of
            the relation are not drawn. False: a negative may be an edge.
        source_weights, target_weights: `[nodes]`, integers or floats: an end is drawn with a probability proportional
            to its weight, see `NodeWeights`; None: uniformly. Triplets have no `source_weights`. Not with `strict`.

    Raises:
        TypeError, ValueError: an attribute is not as said above.
    """

    mode: str = "binary"
    num_negatives: float = 1
    strict: bool = False
    source_weights: Tensor | NodeWeights | None = None
    target_weights: Tensor | NodeWeights | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.mode, str) or self.mode not in ("binary", "triplet"):
            raise ValueError(f"mode is {shown(self.mode)}; it must be 'binary' or 'triplet'")
        if not 0 < as_number("num_negatives", self.num_negatives) < 2**31:
            raise ValueError(f"num_negatives is {self.num_negatives}; it must be above 0 and below 2**31")
        object.__setattr__(self, "strict", as_flag("strict", self.strict))
        if self.mode == "triplet":
            if self.num_negatives != int(self.num_negatives):
                raise ValueError(
                    f"num_negatives is {self.num_negatives}; a triplet has a whole number of negatives: give an integer"
                )
            object.__setattr__(self, "num_negatives", as_size("num_negatives", int(self.num_negatives)))
        for name in ("source_weights", "target_weights"):
            weights = getattr(self, name)
            if weights is None:
                continue
            if self.strict:
                raise ValueError(f"strict is True, and {name} is given; strict negatives are uniform: leave one out")
            if self.mode == "triplet" and name == "source_weights":
                raise ValueError("source_weights is given, but triplets have the sources of their links; leave it out")
            if not isinstance(weights, NodeWeights):
                object.__setattr__(self, name, NodeWeights(name, weights))

    def of(self, links: int) -> int:
        """The number of negatives of a mini-batch with this many links."""
        return math.ceil(links * self.num_negatives)

    @property
    def weights(self) -> tuple[NodeWeights | None, NodeWeights | None]:
        """Those of sources and those of targets."""
        source, target = self.source_weights, self.target_weights
        assert not isinstance(source, Tensor)
        assert not isinstance(target, Tensor)
        return source, target


class Draw(NamedTuple):
    """Which negatives a mini-batch draws.

    Attributes:
        drawn: how.
        ends: the nodes that links join.
        known: `indptr` and `indices` of the edges that strict negatives must not be, on the CPU, see `ascending`.
        seed, epoch, batch: they decide all choices.
        existing: the sources and the targets in the order of their times; None: all exist at any time.
    """

    drawn: Negatives
    ends: LinkEnds
    known: tuple[Tensor, Tensor] | None
    seed: int
    epoch: int
    batch: int
    existing: tuple[ExistingNodes | None, ExistingNodes | None] = (None, None)

    def negatives(self, sources: Tensor, times: Tensor | None = None) -> dict[str, Tensor]:
        """The ends of the negatives, numbers within their types, by name as those of `Links`.

        Args:
            sources: `[P]` of the positive links.
            times: `[P]` of the positive links, or None. Both ends of a negative exist at the time of its link:
                negative i of "binary" has the time of link `i % P`.

        Raises:
            ValueError: a strict negative was not found, or no node exists at a time.
        """
        drawn, ends, device = self.drawn, self.ends, sources.device
        links, (of_source, of_target) = sources.numel(), drawn.weights
        targets = torch.empty(drawn.of(links), dtype=torch.int64)
        given = heads = None
        if drawn.mode == "binary":
            heads = torch.empty_like(targets)
        else:
            given = sources.cpu().contiguous()
        counts: dict[str, Any] = {}
        if times is not None and any(self.existing) and links:
            at = times.cpu()
            of = torch.arange(targets.numel())
            at = at[of % links if given is None else of // int(drawn.num_negatives)]
            for name, nodes, wanted in zip(("source", "target"), self.existing, (heads, targets), strict=True):
                if nodes is not None and wanted is not None:
                    counts |= {f"{name}_counts": nodes.counts(at), f"{name}_order": nodes.order}
        indptr, indices = self.known or (None, None)
        among = (
            len(ends.sources) if of_source is None else of_source.total,
            len(ends.targets) if of_target is None else of_target.total,
            ends.sources == ends.targets,
        )
        key = self.seed, self.epoch, self.batch
        _core.negatives(*among, *key, given, heads, targets, indptr, indices, drawn.strict, **counts)
        if of_target is not None:
            targets = (self.existing[1] or of_target).nodes(targets)
        if of_source is not None and heads is not None:
            heads = (self.existing[0] or of_source).nodes(heads)
        if heads is None:
            return {"negative_targets": targets.to(device).view(links, int(drawn.num_negatives))}
        return {"negative_sources": heads.to(device), "negative_targets": targets.to(device)}


def ascending(graph: Graph, device: torch.device) -> tuple[Tensor, Tensor]:
    """The lists of the graph, each ascending, where `device` can read them."""
    indptr, indices = graph.indptr, graph.indices
    rises = indices[1:] >= indices[:-1]
    begins = indptr[1:-1].long()
    begins = begins[(begins > 0) & (begins < indices.numel())].to(rises.device)
    rises[begins - 1] = True  # a list's first entry may be anything
    if not bool(rises.all()):
        indptr, indices = indptr.cpu(), indices.cpu()
        dst = torch.arange(graph.num_dst).repeat_interleave(graph.in_degrees().cpu().long())
        order = torch.argsort(indices, stable=True)
        indices = indices[order[torch.argsort(dst[order], stable=True)]]
    if device.type == "cpu":
        return indptr.cpu(), indices.cpu().contiguous()

    def readable(array: Tensor) -> Tensor:
        return array if array.device.type == "cpu" and array.is_pinned() else array.to(device)

    return readable(indptr), readable(indices.contiguous())

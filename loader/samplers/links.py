"""Samples links: positive ones, negative ones, and the neighbourhood of the ends of both."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.graph import EdgeType, Graph, HeteroGraph, require_graph
from loader.graph.checks import check_integers
from loader.graph.relations import reversed_type
from loader.machine.arguments import as_flag, as_number, as_seed, as_size, kind_of, shown
from loader.samplers.base import AnyGraph, Request, Sampler, Session, check_position
from loader.samplers.gpu.links import GpuLinks
from loader.samplers.hetero_links import TypedLinkEnds
from loader.samplers.link_ends import LinkEnds
from loader.samplers.node_weights import NodeWeights
from loader.samplers.relations import edge_type_of
from loader.samples.links import Links

EXCLUDE = ("none", "self", "reverse")


@dataclass(frozen=True)
class Negatives:
    """How negative links are drawn. Each is a pure function of (seed, epoch, mini-batch, number of the negative).

    Attributes:
        mode: "binary": both ends are drawn, each uniformly from all vertices. "triplet": each positive link has its own
            negatives, from its source to targets that are drawn uniformly from all vertices. With types, ends are drawn
            from the vertices of their type.
        amount: negatives per positive link. "triplet" needs a positive integer, "binary" any positive number: the
            number of negatives of a mini-batch is rounded up.
        strict: never draw an edge of the graph or a loop; all other pairs are equally likely. With types, only edges of
            the relation are not drawn. False: a negative may be an edge.
        source_weights, target_weights: `[nodes]`, integers or floats: an end is drawn with a probability proportional
            to its weight, see `NodeWeights`; None: uniformly. Triplets have no `source_weights`. Not with `strict`.

    Raises:
        TypeError, ValueError: an attribute is not as said above.
    """

    mode: str = "binary"
    amount: float = 1
    strict: bool = False
    source_weights: Tensor | NodeWeights | None = None
    target_weights: Tensor | NodeWeights | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.mode, str) or self.mode not in ("binary", "triplet"):
            raise ValueError(f"mode is {shown(self.mode)}; it must be 'binary' or 'triplet'")
        if not 0 < as_number("amount", self.amount) < 2**31:
            raise ValueError(f"amount is {self.amount}; it must be above 0 and below 2**31")
        object.__setattr__(self, "strict", as_flag("strict", self.strict))
        if self.mode == "triplet":
            if self.amount != int(self.amount):
                raise ValueError(f"amount is {self.amount}; a triplet has a whole number of negatives: give an integer")
            object.__setattr__(self, "amount", as_size("amount", int(self.amount)))
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
        return math.ceil(links * self.amount)

    @property
    def weights(self) -> tuple[NodeWeights | None, NodeWeights | None]:
        """Those of sources and those of targets."""
        source, target = self.source_weights, self.target_weights
        assert not isinstance(source, Tensor)
        assert not isinstance(target, Tensor)
        return source, target


class LinkSampler(Sampler):
    """Samples the neighbourhood of the ends of links. Positive links are given, negative links are drawn.

    A model must not see the links that it has to predict. With `exclude="reverse"` no message goes along a positive
    link of the mini-batch, in either direction. These edges are removed after the picks, so a vertex may have fewer
    picked neighbours than its fanout.

    Of a `HeteroGraph` links are of one relation, `edge_type`. Both ends are numbered within their types.

    Args:
        sampler: samples the neighbourhood of the ends; a sampler of vertices, but not of trees.
        negatives: how negative links are drawn; None draws none.
        exclude: "none"; "self": leave out the edges that are positive links; "reverse": and those in the opposite
            direction. With types these are edges of `edge_type`, and of `reverse` in the opposite direction.
        seed: of the negatives, `0 <= seed < 2**64`; by default that of `sampler`.
        known: strict negatives are no edges of this graph, by default the one that is sampled. If that is only a part
            of a graph, give the whole graph.
        edge_type: with types, the relation of the links: `("user", "buys", "item")`, or `user__buys__item`.
        reverse: with types and `exclude="reverse"`, the relation that has the links' reverses, as
            `("item", "rev_buys", "user")`. A relation of a type with itself may be its own reverse.

    Raises:
        TypeError, ValueError: an argument is not as said above.
    """

    items = "edge"

    def __init__(
        self,
        sampler: Sampler,
        negatives: Negatives | None = None,
        *,
        exclude: str = "none",
        seed: int | None = None,
        known: AnyGraph | None = None,
        edge_type: EdgeType | str | None = None,
        reverse: EdgeType | str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(sampler, Sampler) or sampler.items != "node":
            raise TypeError(f"sampler is {shown(sampler)}; it must be a Sampler that takes vertices, as FusedSampler")
        if sampler.in_trees:
            raise ValueError(
                f"{type(sampler).__name__} samples a tree per seed, where the other end of a link is another node, so "
                "exclude does not reach it; take FusedSampler or SubgraphSampler"
            )
        if negatives is not None and not isinstance(negatives, Negatives):
            raise TypeError(
                f"negatives is {shown(negatives)}; it must be a loader.samplers.Negatives, e.g. Negatives('binary', 1)"
            )
        if not isinstance(exclude, str) or exclude not in EXCLUDE:
            raise ValueError(f"exclude is {shown(exclude)}; it must be one of {', '.join(EXCLUDE)}")
        if known is not None:
            require_graph(known, "known")
        if known is not None and (negatives is None or not negatives.strict):
            raise ValueError(
                "known is of use for strict negatives only; give Negatives(strict=True), or leave known out"
            )
        self.edge_type = None if edge_type is None else edge_type_of("edge_type is", edge_type)
        self.reverse = None if reverse is None else edge_type_of("reverse is", reverse)
        self._check_reverse(exclude)
        self.around, self.negatives, self.exclude, self.known = sampler, negatives, exclude, known
        self.seed = as_seed(getattr(sampler, "seed", 0) if seed is None else seed)
        self.num_hops, self.edge_ids = sampler.num_hops, sampler.edge_ids

    @property
    def device(self) -> torch.device:
        return self.around.device

    def on(self, device: torch.device) -> LinkSampler:
        around = self.around.on(device)
        if around is self.around:
            return self
        return LinkSampler(
            around,
            self.negatives,
            exclude=self.exclude,
            seed=self.seed,
            known=self.known,
            edge_type=self.edge_type,
            reverse=self.reverse,
        )

    def spec(self) -> dict[str, Any]:
        drawn = self.negatives
        return {
            **{f"around.{name}": value for name, value in self.around.spec().items()},
            "negatives": None if drawn is None else [drawn.mode, drawn.amount, drawn.strict],
            **({} if drawn is None else {w.name: w.digest for w in drawn.weights if w is not None}),
            "exclude": self.exclude,
            "seed": self.seed,
            "known": None if self.known is None else [self.known.num_nodes, self.known.num_edges],
            **({} if self.edge_type is None else {"edge_type": "__".join(self.edge_type)}),
            **({} if self.reverse is None else {"reverse": "__".join(self.reverse)}),
        }

    def ends(self, graph: AnyGraph) -> LinkEnds:
        """What links of the graph join.

        Raises:
            ValueError: the graph is bipartite; it has no such relation, or no types; `known` has other nodes.
        """
        require_graph(graph)
        if isinstance(graph, HeteroGraph):
            ends: LinkEnds = TypedLinkEnds(graph, self.edge_type, self.reverse)
        elif self.edge_type is not None:
            raise ValueError(f"edge_type is {self.edge_type}, but the graph has one type; leave it out")
        else:
            ends = LinkEnds(graph)
        if self.known is not None:
            ends.require_known(self.known, graph)
        if self.negatives is not None:
            for weights, ids in zip(self.negatives.weights, (ends.sources, ends.targets), strict=True):
                if weights is not None and len(weights) != len(ids):
                    raise ValueError(f"{weights.name} has {len(weights)} entries, for {len(ids)} nodes; give one each")
        return ends

    def open(self, graph: AnyGraph) -> Session:
        self.require_open()
        return _LinkSession(self, graph, self.ends(graph))

    def _check_reverse(self, exclude: str) -> None:
        edge_type, reverse = self.edge_type, self.reverse
        if reverse is None:
            if edge_type is not None and exclude == "reverse":
                raise ValueError(
                    f"exclude is 'reverse', and edge_type {edge_type}: name the relation that has the links' reverses, "
                    f"e.g. reverse={reversed_type(edge_type)}, or take exclude='self'"
                )
            return
        if edge_type is None or exclude != "reverse":
            lacks = "edge_type" if edge_type is None else "exclude='reverse'"
            raise ValueError(f"reverse is {reverse}, which is of use with {lacks} only; give that, or leave it out")
        if (reverse[0], reverse[2]) != (edge_type[2], edge_type[0]):
            raise ValueError(
                f"reverse is {reverse}, and edge_type {edge_type}; it must go the other way, from {edge_type[2]!r} to "
                f"{edge_type[0]!r}"
            )

    def __repr__(self) -> str:
        return f"LinkSampler({self.around!r}, {self.negatives!r}, exclude={self.exclude!r})"


class _LinkSession(Session):
    def __init__(self, sampler: LinkSampler, graph: AnyGraph, ends: LinkEnds) -> None:
        self._sampler, self._ends, self._device = sampler, ends, sampler.device
        self._without = ends.without(sampler.exclude, self._device)
        self._session = sampler.around.open(graph)
        self.together = self._session.together
        drawn = sampler.negatives
        self._known: tuple[Tensor, Tensor] | None = None
        if drawn is not None and drawn.strict:
            edges = self._edges = ends.edges(graph if sampler.known is None else sampler.known)  # kept: its pages
            self._known = _ascending(edges, self._device)  # are pinned as long as it is there
        self._on_gpu: GpuLinks | None = None
        if self._device.type == "cuda" and (drawn is None or drawn.weights == (None, None)):
            of = ends.sources, ends.targets, ends.num_nodes, ends.dtype
            self._on_gpu = GpuLinks(self._device, *of, partial(ends.check, "seeds"), self._known)

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], Links]]:
        links = [self._links(request) for request in group]
        around = [Request(seeds, r.epoch, r.batch) for (seeds, _), r in zip(links, group, strict=True)]
        finish = self._session.begin(around, ahead=ahead)
        return [
            partial(self._finish, f, parts, request.numbers)
            for f, (_, parts), request in zip(finish, links, group, strict=True)
        ]

    def _finish(self, finish: Callable[[], Any], parts: dict[str, Tensor], places: Tensor | None) -> Links:
        around, ends = finish(), self._ends
        local: dict[str, Any] = ends.within_types(around, parts)
        if self._without is not None:
            around = self._without(around, local["sources"], local["targets"])
        return Links(around, **local, places=places, epoch=around.epoch, index=around.index, edge_type=ends.edge_type)

    def check(self) -> None:
        self._session.check()

    def close(self) -> None:
        self._session.close()

    def _links(self, request: Request) -> tuple[Tensor, dict[str, Tensor]]:
        """The ends of a mini-batch's links, and the links by local ids."""
        pairs, epoch, batch, _ = request
        check_position(epoch, batch)
        if not isinstance(pairs, Tensor):
            raise TypeError(f"seeds is {kind_of(pairs)}; it must be a tensor of links [n, 2] (torch.as_tensor)")
        if pairs.dim() != 2 or pairs.shape[1] != 2:
            raise ValueError(f"seeds has shape {list(pairs.shape)}; links are [n, 2], (source, destination)")
        check_integers("seeds", pairs)
        pairs = pairs.to(self._device)
        if pairs.dtype not in (torch.int32, torch.int64):  # others may be too narrow for the negatives
            pairs = pairs.long()
        drawn = self._sampler.negatives
        if self._on_gpu is not None:
            return self._links_on_gpu(self._on_gpu, pairs, drawn, request)
        self._ends.check("seeds", pairs)
        sources, targets = pairs.long().t()
        parts: dict[str, Tensor] = {"sources": sources, "targets": targets}
        if drawn is not None:
            parts |= self._negatives(drawn, sources, epoch, batch)
        first = {"sources": self._ends.sources.start, "targets": self._ends.targets.start}
        ids = [p.reshape(-1) + first[name.removeprefix("negative_")] for name, p in parts.items()]
        seeds, local = torch.unique(torch.cat(ids), return_inverse=True)
        cut = local.split([p.numel() for p in parts.values()])
        parts = {name: part.view(p.shape) for (name, p), part in zip(parts.items(), cut, strict=True)}
        return seeds.to(self._ends.dtype), parts

    def _links_on_gpu(
        self, gpu: GpuLinks, pairs: Tensor, drawn: Negatives | None, request: Request
    ) -> tuple[Tensor, dict[str, Tensor]]:
        links = pairs.shape[0]
        count = 0 if drawn is None else drawn.of(links)
        each = int(drawn.amount) if drawn is not None and drawn.mode == "triplet" else 0
        key = _core.negatives_key(self._sampler.seed, request.epoch, request.batch)
        seeds, (sources, targets, *ends) = gpu.ends(pairs, count, each, key)
        parts: dict[str, Tensor] = {"sources": sources, "targets": targets}
        if drawn is not None and each:
            parts["negative_targets"] = ends[0].view(links, each)
        elif drawn is not None:
            parts["negative_sources"], parts["negative_targets"] = ends
        return seeds, parts

    def _negatives(self, drawn: Negatives, sources: Tensor, epoch: int, batch: int) -> dict[str, Tensor]:
        links = sources.numel()
        targets = torch.empty(drawn.of(links), dtype=torch.int64)
        given = heads = None
        if drawn.mode == "binary":
            heads = torch.empty_like(targets)
        else:
            given = sources.cpu().contiguous()
        indptr, indices = self._known or (None, None)
        ends, (of_source, of_target) = self._ends, drawn.weights
        among = (
            len(ends.sources) if of_source is None else of_source.total,
            len(ends.targets) if of_target is None else of_target.total,
            ends.sources == ends.targets,
        )
        _core.negatives(*among, self._sampler.seed, epoch, batch, given, heads, targets, indptr, indices, drawn.strict)
        if of_target is not None:
            targets = of_target.nodes(targets)
        if of_source is not None and heads is not None:
            heads = of_source.nodes(heads)
        if heads is None:
            return {"negative_targets": targets.to(self._device).view(links, int(drawn.amount))}
        return {"negative_sources": heads.to(self._device), "negative_targets": targets.to(self._device)}


def _ascending(graph: Graph, device: torch.device) -> tuple[Tensor, Tensor]:
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

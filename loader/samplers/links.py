"""Samples links: positive ones, negative ones, and the neighborhood of the ends of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.graph.checks import check_integers
from loader.machine.arguments import kind_of
from loader.samplers.base import AnyGraph, Request, Session, check_position
from loader.samplers.gpu.links import GpuLinks
from loader.samplers.link_ends import LinkEnds
from loader.samplers.link_options import LinkOptions
from loader.samplers.negatives import Draw, Negatives, ascending
from loader.samplers.tree_links import TreeLinkSession, columns_of
from loader.samples.links import Links


class LinkSampler(LinkOptions):
    """Samples the neighborhood of the ends of links. Positive links are given, negative links are drawn.

    A model must not see the links that it has to predict. With `exclude="reverse"` no message goes along a positive
    link of the mini-batch, in either direction; the default is "none". The sampler removes these edges after the picks,
    so an end of a positive link may have fewer neighbors than its fanout. A node that is only an end of negative links
    loses none. If nodes have more neighbors than the fanout, the number of picked neighbors thus tells a model
    something about which links are true.

    Around a `TreeSampler` each end of each positive or negative link is a seed, with a tree of its own. `Links` says in
    which order. With times, a link is `(source, destination, time)`, and its trees show only what its time allows. Both
    ends of a negative exist at the time of its link, by the sampler's `rule`. If the mini-batch has `P` positive links,
    "binary" negative `i` has the time of link `i % P`. `exclude` leaves the edge of a link out of all trees of this
    link, and of its negatives. Trees of other links may have the edge.

    Of a `HeteroGraph` links are of one relation, `edge_type`. Both ends are numbered within their types.

    Args:
        sampler: samples the neighborhood of the ends; a sampler of nodes.
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

    def open(self, graph: AnyGraph) -> Session:
        self.require_open()
        ends = self.ends(graph)
        return TreeLinkSession(self, graph, ends) if self.in_trees else _LinkSession(self, graph, ends)

    def sample(
        self, graph: Any, seeds: Any, times: Any = None, edge_ids: Any = None, *, epoch: int = 0, batch: int = 0
    ) -> Links:
        """Samples one mini-batch, see `Sampler.sample`.

        Args:
            seeds: `[n, 2]` the positive links, (source, destination).
            times: `[n]` integers or whole floats, the links' times, if the sampler of trees goes by times.
            edge_ids: `[n]` integers, which edges of the graph the links are, or None, see `LinkLoader`.

        Raises:
            ValueError: there are times that do not count, or none that do.
        """
        if isinstance(seeds, Tensor) and (times is not None or edge_ids is not None):
            seeds = columns_of(self, seeds, times, edge_ids)
        found: Links = super().sample(graph, seeds, epoch=epoch, batch=batch)
        return found

    def __repr__(self) -> str:
        return f"LinkSampler({self.around!r}, {self.negatives!r}, exclude={self.exclude!r})"


class _LinkSession(Session):
    def __init__(self, sampler: LinkSampler, graph: AnyGraph, ends: LinkEnds) -> None:
        self._sampler, self._ends, self._device = sampler, ends, sampler.device
        self._without = ends.without(sampler.exclude, self._device)
        self._session = sampler.around.open(graph)
        self.together, self._samples_of = self._session.together, self._session._samples_of
        drawn = sampler.negatives
        self._known: tuple[Tensor, Tensor] | None = None
        self._beside = None if sampler.known is None else (sampler.known, sampler.known.state())
        if drawn is not None and drawn.strict:
            edges = self._edges = ends.edges(graph if sampler.known is None else sampler.known)  # kept: its pages
            self._known = ascending(edges, self._device)  # are pinned as long as it is there
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
            parts |= Draw(drawn, self._ends, self._known, self._sampler.seed, epoch, batch).negatives(sources)
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
        each = int(drawn.num_negatives) if drawn is not None and drawn.mode == "triplet" else 0
        key = _core.negatives_key(self._sampler.seed, request.epoch, request.batch)
        seeds, (sources, targets, *ends) = gpu.ends(pairs, count, each, key)
        parts: dict[str, Tensor] = {"sources": sources, "targets": targets}
        if drawn is not None and each:
            parts["negative_targets"] = ends[0].view(links, each)
        elif drawn is not None:
            parts["negative_sources"], parts["negative_targets"] = ends
        return seeds, parts

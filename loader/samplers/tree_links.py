"""Samples links whose ends have a tree each, with times or without."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from loader.graph import EdgeType, Graph, HeteroGraph
from loader.graph.checks import check_integers, check_length
from loader.graph.edge_ends import EdgeEnds, require_edge_ids
from loader.graph.times import seed_times
from loader.machine.arguments import kind_of
from loader.samplers.base import AnyGraph, Request, Session, check_position
from loader.samplers.existing_nodes import ExistingNodes
from loader.samplers.link_ends import LinkEnds
from loader.samplers.link_options import LinkOptions
from loader.samplers.negatives import Draw, ascending
from loader.samples.links import Links
from loader.samples.tree_links import EdgesAt, OwnEdges, without_own_edges

_log = logging.getLogger(__name__)


def columns_of(sampler: LinkOptions, pairs: Tensor, times: Any, edge_ids: Any) -> Tensor:
    """Links, their times and their edge ids as the columns of one tensor, as sessions take them.

    Raises:
        TypeError, ValueError: they do not go together, or the sampler has no use for them.
    """
    if not sampler.in_trees:
        name = "times" if times is not None else "edge_ids"
        raise ValueError(f"{name} is given, and {sampler.around!r} does not sample in trees; take a TreeSampler")
    if pairs.dim() != 2 or pairs.shape[1] != 2:
        raise ValueError(f"seeds has shape {list(pairs.shape)}; links are [n, 2], (source, destination)")
    check_integers("seeds", pairs)
    columns = [pairs.long()]
    if times is not None:
        if not sampler.timed:
            raise ValueError("times is given, and the sampler's times is 'none'; give it times='both'")
        columns.append(_column("times", seed_times(times), pairs))
    if edge_ids is not None:
        require_use_of_ids(sampler)
        columns.append(_column("edge_ids", edge_ids, pairs))
    return torch.cat(columns, 1)


def _column(name: str, given: Tensor, pairs: Tensor) -> Tensor:
    check_integers(name, given)
    check_length(name, given, pairs.shape[0], f"there are {pairs.shape[0]} links")
    return given.to(pairs.device, torch.int64).view(-1, 1)


def require_use_of_ids(sampler: LinkOptions) -> None:
    """Raises ValueError if the sampler has no use for the ids of the links' own edges."""
    if not sampler.in_trees:
        raise ValueError(
            f"edge_ids is given, and the links of a mini-batch share one sample of {type(sampler.around).__name__}, "
            "which leaves out all edges between their ends; take a TreeSampler, or leave edge_ids out"
        )
    if sampler.exclude == "none":
        raise ValueError(
            "edge_ids says which edges the links are, and exclude is 'none', so they would see themselves; give "
            "exclude='self' or 'reverse', or leave edge_ids out"
        )
    if not sampler.edge_ids:
        raise ValueError(
            "edge_ids says which edges are left out, and the sampler returns no edge ids; give it edge_ids=True"
        )


class TreeLinkSession(Session):
    """Samples links around a `TreeSampler`. Requests have `[n, 2]` links, or with times `[n, 3]`; one more column has
    the ids of the edges that the links are, or -1.
    """

    def __init__(self, sampler: LinkOptions, graph: AnyGraph, ends: LinkEnds) -> None:
        around: Any = sampler.around
        self._sampler, self._ends, self._given = sampler, ends, graph
        self._graph: HeteroGraph = around.as_hetero(graph)
        self._edge_type = self._graph.edge_types[0] if ends.edge_type is None else ends.edge_type
        self._reverse = sampler.reverse
        if sampler.exclude == "reverse" and isinstance(graph, Graph):
            self._reverse = self._edge_type
        self._session = around.open_trees(self._graph)
        self.together, self._samples_of = self._session.together, self._session._samples_of
        drawn, self._known = sampler.negatives, None
        self._beside = None if sampler.known is None else (sampler.known, sampler.known.state())
        if drawn is not None and drawn.strict:
            known = ends.edges(graph if sampler.known is None else sampler.known)
            self._known = ascending(known, torch.device("cpu"))
        self._existing = _existing(sampler, self._graph, self._edge_type)
        self._tell_of_counts()

    def _tell_of_counts(self) -> None:
        """Warns where the number of neighbors tells which links are true."""
        around: Any = self._sampler.around
        timed = around.times in ("edge", "both") and self._edge_type in self._graph.timed_relations
        if self._sampler.exclude != "none" and timed and around.rule == "<=" and any(k != -1 for k in around.fanouts):
            _log.warning(
                "exclude=%r leaves edges out after the picks, so an end of a link that is an edge has a neighbor less "
                "than its fanout, and their number tells a model which links are true; rule='<' shows no link its own "
                "edge: take TreeSampler(..., rule='<') and exclude='none'",
                self._sampler.exclude,
            )

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], Links]]:
        taken = [_Taken(self, request) for request in group]
        around = [Request(of.seeds, r.epoch, r.batch) for of, r in zip(taken, group, strict=True)]
        finish = self._session.begin(around, ahead=ahead)
        return [partial(self._finish, f, of, r.numbers) for f, of, r in zip(finish, taken, group, strict=True)]

    def _finish(self, finish: Callable[[], Any], taken: _Taken, places: Tensor | None) -> Links:
        trees = finish()
        if taken.own:
            trees = without_own_edges(trees, taken.link_of_tree, taken.own)
        around: Any = self._sampler.around
        ends: dict[str, Any] = taken.places
        return Links(
            around.shaped(trees, self._given),
            **ends,
            places=places,
            epoch=trees.epoch,
            index=trees.index,
            edge_type=self._ends.edge_type,
            times=taken.times,
            link_of_tree=taken.link_of_tree,
        )

    def check(self) -> None:
        self._session.check()

    def close(self) -> None:
        self._session.close()

    def checked(self, request: Request) -> Tensor:
        """`[n, 2 to 4]` int64 links on the device; raises TypeError or ValueError if they are none."""
        links, sampler = request.seeds, self._sampler
        check_position(request.epoch, request.batch)
        if not isinstance(links, Tensor):
            raise TypeError(f"seeds is {kind_of(links)}; it must be a tensor of links [n, 2] (torch.as_tensor)")
        width = 3 if sampler.timed else 2
        if links.dim() != 2 or links.shape[1] not in (width, width + 1):
            each = ", and each needs a time: give [n, 3], (source, destination, time)" if sampler.timed else ""
            raise ValueError(f"seeds has shape {list(links.shape)}; links are [n, 2], (source, destination){each}")
        check_integers("seeds", links)
        links = links.to(sampler.device, torch.int64)
        self._ends.check("seeds", links[:, :2])
        if links.shape[1] > width:
            require_use_of_ids(sampler)
            require_edge_ids(self._graph)
            self._edges.check_ids(links[:, -1], self._edge_type)  # `LinkLoader` compares them with the ends, too
        return links

    def draw(self, request: Request, sources: Tensor, times: Tensor | None) -> dict[str, Tensor]:
        """The negatives, by name as those of `Links`."""
        drawn, seed = self._sampler.negatives, self._sampler.seed
        if drawn is None:
            return {}
        draw = Draw(drawn, self._ends, self._known, seed, request.epoch, request.batch, self._existing)
        return draw.negatives(sources, times)

    def seeds_of(self, parts: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The seeds of links by numbers within their types, type after type; the number of the link that each belongs
        to; and the places of the ends among the seeds of their types.
        """
        links, ends = parts["sources"].numel(), self._ends
        sides: list[tuple[str, ...]] = [("sources", "negative_sources"), ("targets", "negative_targets")]
        firsts = [ends.sources.start, ends.targets.start]
        if firsts[0] > firsts[1]:
            sides.reverse()
            firsts.reverse()
        seeds, link, before = [], [], 0
        places: dict[str, Tensor] = {}
        for side, first in zip(sides, firsts, strict=True):
            before = before if ends.sources == ends.targets else 0
            for name in side:
                if name not in parts:
                    continue
                part = parts[name]
                of_all = part.t() if part.dim() == 2 else part  # the first negatives of all links, then the second
                numbers = torch.arange(part.numel(), device=part.device)
                seeds.append(of_all.reshape(-1) + first)
                link.append(numbers % links if links else numbers)
                places[name] = (numbers + before).view(of_all.shape)
                places[name] = places[name].t() if part.dim() == 2 else places[name]
                before += part.numel()
        return torch.cat(seeds), torch.cat(link), places

    def own(self, sources: Tensor, targets: Tensor, ids: Tensor | None) -> list[OwnEdges]:
        """The edges that the trees of the links are to be without."""
        if self._sampler.exclude == "none":
            return []
        sources, targets = sources + self._ends.sources.start, targets + self._ends.targets.start
        own = [OwnEdges(self._edge_type, sources, targets, ids)]
        if self._reverse is not None:
            own.append(OwnEdges(self._reverse, targets, sources, None, None if ids is None else self._reverses_of(ids)))
        return own

    def _reverses_of(self, ids: Tensor) -> EdgesAt:
        """The reverses of edges, which go the other way at the same time if both relations have times."""
        if self._timed_by_id is None:
            return EdgesAt(ids >= 0, None, None)
        edges, reverses = self._timed_by_id
        assert edges.times is not None
        return EdgesAt(ids >= 0, edges.times[edges.rows(ids)], reverses)

    @cached_property
    def _edges(self) -> EdgeEnds:
        return EdgeEnds.of(self._graph, self._edge_type)

    @cached_property
    def _timed_by_id(self) -> tuple[EdgeEnds, EdgeEnds] | None:
        """Ids and times of the links' relation and of the reverse one, on the device; None unless both have times."""
        assert self._reverse is not None
        both = self._edges, EdgeEnds.of(self._graph, self._reverse)
        if any(edges.times is None for edges in both) or not self._edges.ids.numel():
            return None
        edges, reverses = (of.without_ends(self._sampler.device) for of in both)
        return edges, reverses


class _Taken:
    """The links of a mini-batch, and what is sampled for them.

    Attributes:
        seeds: of trees, with times `[S, 2]`.
        places: ends of links by name, places among the seeds of their types.
        link_of_tree, times: see `Links`.
        own: edges that are left out.
    """

    def __init__(self, session: TreeLinkSession, request: Request) -> None:
        links, timed = session.checked(request), session._sampler.timed
        sources, targets = links[:, 0], links[:, 1]
        self.times = links[:, 2].contiguous() if timed else None
        ids = links[:, -1] if links.shape[1] > (3 if timed else 2) else None
        drawn = session.draw(request, sources, self.times)
        seeds, self.link_of_tree, self.places = session.seeds_of({"sources": sources, "targets": targets, **drawn})
        self.seeds = seeds.to(session._ends.dtype)
        if self.times is not None:
            self.seeds = torch.stack([seeds, self.times[self.link_of_tree]], 1)
        self.own = session.own(sources, targets, ids)


def _existing(
    sampler: LinkOptions, graph: HeteroGraph, edge_type: EdgeType
) -> tuple[ExistingNodes | None, ExistingNodes | None]:
    """The sources and the targets that exist at a time; None for those that always do."""
    around: Any = sampler.around
    drawn, of_all = sampler.negatives, graph.lists.node_times
    if drawn is None or around.times not in ("node", "both") or of_all is None:
        return None, None

    def of(name: str, weights: Any) -> ExistingNodes | None:
        if name not in graph.timed_types:
            return None
        ids = graph.node_types[name]
        times = of_all[ids.start : ids.stop]
        return ExistingNodes(f"nodes of type {name!r}", times, around.rule, around.missing_times, weights)

    source = of(edge_type[0], drawn.weights[0]) if drawn.mode == "binary" else None
    return source, of(edge_type[2], drawn.weights[1])

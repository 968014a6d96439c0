"""The edges of one type of a DGL graph as lists, which are picked from or walked through."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.dgl.graphs import graph_of
from loader.graph import Graph
from loader.graph.checks import check_weights
from loader.graph.interop import dgl_edges, mask_as_weights
from loader.machine.memo import Memo
from loader.samplers import NeighborSampler, fused
from loader.samplers.base import MAX_FANOUT
from loader.samplers.labor import labor_picks
from loader.samples.subgraph import ranges

_memo = Memo()  # calls for one graph share its lists
_MOST_SAMPLERS = 8  # of one edge type


class Picked(NamedTuple):
    """Edges that nodes picked, in the order of the nodes.

    Attributes:
        rows: `[n]` int64, the place of the node that picked it among those that were asked.
        others: `[n]`, the node at the other end.
        ids: `[n]`, of the edges.
    """

    rows: Tensor
    others: Tensor
    ids: Tensor


class Lists:
    """The lists of an edge type: of each node the other ends of its edges.

    Args:
        graph: has a list per node. It is square, with as many nodes as the larger end of the edge type, since samplers
            take no other graph. Edges have DGL's ids.
        num_threads: that pick on the CPU, see `loader.FusedSampler`.
    """

    def __init__(self, graph: Graph, num_threads: int | None = None) -> None:
        self.graph, self._num_threads = graph, num_threads
        self._samplers: dict[Any, NeighborSampler] = {}

    @cached_property
    def on_cpu(self) -> Graph:
        """The graph in the CPU's memory."""
        return self.graph.to("cpu")

    def degrees(self, nodes: Tensor) -> Tensor:
        """`[n]` int64, the lengths of the lists of `nodes`."""
        at = nodes.long()
        return self.graph.indptr[at + 1].long() - self.graph.indptr[at].long()

    def at(self, rows: Tensor, places: Tensor) -> Picked:
        """The edges at these places of the graph's arrays, which the nodes at `rows` picked."""
        assert self.graph.edge_ids is not None
        return Picked(rows, self.graph.indices[places], self.graph.edge_ids[places])

    def pick(
        self, nodes: Tensor, fanout: int, epoch: int, batch: int, left_out: Tensor | None = None, **options: Any
    ) -> Picked:
        """Picks from the list of each of `nodes`, `[n]`. A node that is given twice picks twice, independently.

        Args:
            fanout: picks per node, above 0, or -1 for all.
            epoch, batch: they decide the picks. Later copies of a node have mini-batches above `batch`, by 2**32 each.
            left_out: ids of edges that are not there, or None.
            options: `replace` and `labor` of `PickOptions`. If the edges have weights, they are picked by these.

        Raises:
            ValueError: the fanout is too large.
        """
        if nodes.numel() == 0:
            none = torch.empty(0, dtype=torch.int64, device=nodes.device)
            return self.at(none, none)
        if left_out is not None:
            return self._pick_without(nodes, fanout, epoch, batch, left_out, **options)
        sampler = self._sampler(self._as_fanout(fanout, nodes, **options), **options)
        parts = []
        for copy, chosen in enumerate(copies(nodes)):
            made = sampler.sample(self.graph, nodes[chosen], epoch=epoch, batch=batch + (copy << 32))
            block = made.blocks[0]
            rows = chosen.repeat_interleave(block.indptr.diff().long())
            parts.append(Picked(rows, made.nodes[block.indices.long()], block.edge_ids))
        if len(parts) == 1:
            return parts[0]
        whole = Picked(*map(torch.cat, zip(*parts, strict=True)))
        order = torch.argsort(whole.rows, stable=True)
        return Picked(*(part[order] for part in whole))

    def pick_by_importance(
        self, nodes: Tensor, fanout: int, iterations: int, epoch: int, batch: int
    ) -> tuple[Picked, Tensor]:
        """LABOR by the weights of the edges, if they have any, and by importance, on the CPU: the edges, and `[n]`
        float64 weights of their messages. Edges of weight 0 are not there. A node that is given twice picks the same
        twice.

        Args:
            nodes: `[n]`, on the CPU, as the graph.
            fanout: picks per node, above 0, or -1 for all.
            iterations: see `loader.samplers.labor.labor_picks`.
            epoch, batch: they decide the picks.
        """
        graph, degrees = self.graph, self.degrees(nodes)
        places = ranges(graph.indptr[nodes.long()].long(), degrees)
        weights = None
        if self._checked_weights is not None:
            weights = self._checked_weights[places].double()
            rows = torch.arange(nodes.numel()).repeat_interleave(degrees)
            stay = weights > 0
            places, weights = places[stay], weights[stay]
            degrees = torch.bincount(rows[stay], minlength=nodes.numel())
        rows = torch.arange(nodes.numel()).repeat_interleave(degrees)
        if fanout < 0:  # then nothing is drawn
            fanout, iterations = max(int(degrees.max()) if degrees.numel() else 0, 1), 0
        key = _core.batch_key(0, epoch, batch)
        found = labor_picks(
            degrees.numpy(),
            graph.indices[places].long().numpy(),
            None if weights is None else weights.numpy(),
            fanout,
            iterations,
            key,
            step=1,  # as the first hop of a sampler of the core
        )
        picked = torch.from_numpy(found.places)
        return self.at(rows[picked], places[picked]), torch.from_numpy(found.weights)

    @cached_property
    def _checked_weights(self) -> Tensor | None:
        graph = self.graph
        if graph.edge_weights is not None:
            check_weights(graph.edge_weights, graph.indices, graph.indptr)
        return graph.edge_weights

    def _pick_without(self, nodes: Tensor, fanout: int, epoch: int, batch: int, gone: Tensor, **options: Any) -> Picked:
        """Picks from the lists without some edges, of which a small graph is made."""
        graph = self.graph
        assert graph.edge_ids is not None
        distinct, rows = torch.unique(nodes, return_inverse=True)
        degrees = self.degrees(distinct)
        places = ranges(graph.indptr[distinct.long()].long(), degrees)
        stay = ~torch.isin(graph.edge_ids[places], gone.to(graph.edge_ids))
        places = places[stay]
        of = torch.arange(len(distinct), device=places.device).repeat_interleave(degrees)[stay]
        indptr = torch.zeros(len(distinct) + 1, dtype=torch.int64, device=places.device)
        torch.cumsum(torch.bincount(of, minlength=len(distinct)), 0, out=indptr[1:])
        weights = None if graph.edge_weights is None else graph.edge_weights[places]
        # Picks do not depend on the other ends, so these may be anything.
        less = Lists(Graph(indptr, torch.zeros_like(places), edge_ids=places, edge_weights=weights), num_threads=1)
        picked = less.pick(rows, fanout, epoch, batch, **options)
        return self.at(picked.rows, picked.ids)

    def _as_fanout(self, fanout: int, nodes: Tensor, *, replace: bool = False, labor: bool = False) -> int:
        """`fanout` as samplers take it."""
        if fanout <= MAX_FANOUT:
            return fanout
        degrees = self.degrees(nodes)
        if replace or int(degrees.max()) > fanout:
            node = int(nodes[int(degrees.argmax())])
            raise ValueError(
                f"fanout is {fanout}, and node {node} has {int(degrees.max())} neighbors; up to {MAX_FANOUT} can be "
                "picked at random: give -1 for all"
            )
        return -1

    def _sampler(self, fanout: int, **options: Any) -> NeighborSampler:
        """One that keeps what it made of the graph."""
        key = fanout, *sorted(options.items())
        if key not in self._samplers:
            while len(self._samplers) >= _MOST_SAMPLERS:
                del self._samplers[next(iter(self._samplers))]
            weights = None if self.graph.edge_weights is None else "edge_weights"
            options |= {"edge_ids": True, "weights": weights}
            made = fused([fanout], device=self.graph.device, num_threads=self._num_threads, **options)
            self._samplers[key] = made
        return self._samplers[key]


def lists_of(g: Any, etype: tuple[str, str, str], weights: Tensor | None = None, *, out: bool = False) -> Lists:
    """The lists of an edge type where the graph lies, made once.

    Args:
        weights: `[num_edges]`, float or bool, by which edges are picked, or None.
        out: a list belongs to the source of its edges; else to the destination.

    Raises:
        TypeError, ValueError: the weights are none, or a weight is negative, infinite or NaN.
    """
    state = g.num_nodes(), g.num_edges()
    key = g.get_etype_id(etype), out
    if weights is None:
        return _memo.get(g._graph, state, key, lambda: _make(g, etype, None, out))
    by_weight = _memo.get(g._graph, state, (*key, "by weight"), Memo)
    return by_weight.get_of([weights], key, lambda: _make(g, etype, weights, out))


def copies(nodes: Tensor) -> list[Tensor]:
    """The places of distinct nodes: of the first copy of each node, of the second one, and so on."""
    ascending, order = torch.sort(nodes, stable=True)
    places = torch.arange(nodes.numel(), device=nodes.device)
    again = places - torch.searchsorted(ascending, ascending)
    if not bool(again.any()):
        return [places]
    number = torch.empty_like(again)
    number[order] = again
    return list(torch.argsort(number, stable=True).split(torch.bincount(number).tolist()))


def _make(g: Any, etype: tuple[str, str, str], weights: Tensor | None, out: bool) -> Lists:
    if g.is_homogeneous and weights is None and not out:
        graph = graph_of(g, None, g.device)
        assert isinstance(graph, Graph)
        return Lists(graph)
    source, target = dgl_edges(g, etype=etype)
    size = max(g.num_nodes(etype[0]), g.num_nodes(etype[2]))
    ends = (target, source) if out else (source, target)
    weights = None if weights is None else mask_as_weights(weights)
    return Lists(Graph.from_edges(*ends, size, keep_edge_ids=True, edge_weights=weights))

"""Sampling of several types of nodes and edges once more, in NumPy: with no line in common with the C++ core, and with
lists of its own, which are kept relation by relation.

The random numbers are those of `reference_sampler`; here thousands of them are made at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import reference_picks
from numpy.typing import NDArray
from reference_sampler import Picker

EdgeType = tuple[str, str, str]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


@dataclass(frozen=True)
class HeteroGraph:
    """Edges by relation, as a user gives them: sources and destinations are numbered within their types."""

    num_nodes: Mapping[str, int]
    edges: Mapping[EdgeType, tuple[Ints, Ints]]
    weights: Mapping[EdgeType, NDArray[np.floating]] | None = None

    @cached_property
    def lists(self) -> Lists:
        return Lists(self)


class Lists:
    """The lists of all relations, one relation after the other; those of a relation node by node, by source."""

    def __init__(self, graph: HeteroGraph) -> None:
        names, sizes = list(graph.num_nodes), np.array(list(graph.num_nodes.values()), np.int64)
        self.bounds = np.concatenate([[0], np.cumsum(sizes)])  # of the types, in the one range of ids
        into: list[list[int]] = [[] for _ in names]
        starts, sources, ids, masses = [np.zeros(1, np.int64)], [], [], []
        self.first_row = np.zeros(len(graph.edges), np.int64)  # of each relation, in `starts`
        for r, (key, (src, dst)) in enumerate(graph.edges.items()):
            s, d = names.index(key[0]), names.index(key[2])
            into[d].append(r)
            order = np.lexsort((src, dst))  # stable, so that repeated edges keep their order
            self.first_row[r] = sum(map(len, starts)) - 1
            starts.append(sum(map(len, sources)) + np.cumsum(np.bincount(dst, minlength=sizes[d])))
            sources.append(self.bounds[s] + src[order])
            ids.append(order)
            if graph.weights is not None:
                masses.append(np.asarray(graph.weights.get(key, np.ones(len(src))), np.float64)[order])
        self.starts = np.concatenate(starts)
        self.sources = np.concatenate([np.zeros(0, np.int64), *sources])
        self.ids = np.concatenate([np.zeros(0, np.int64), *ids])
        self.masses = np.concatenate([np.zeros(0), *masses]) if graph.weights is not None else None
        self.num_slots = np.array([len(found) for found in into], np.int64)
        self.into = np.array([found + [-1] * (len(graph.edges) + 1 - len(found)) for found in into], np.int64)
        self.tables: dict[int, reference_picks.Tables] = {}

    def types_of(self, nodes: Ints) -> Ints:
        return np.searchsorted(self.bounds, nodes, side="right") - 1

    def rows(self, nodes: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Of each list of these nodes: its node, slot, relation, and row in `starts`."""
        types = self.types_of(nodes)
        counts = self.num_slots[types]
        v, t = np.repeat(nodes, counts), np.repeat(types, counts)
        slot = np.arange(len(v)) - np.repeat(np.cumsum(counts) - counts, counts)
        relation = self.into[t, slot]
        return v, slot, relation, self.first_row[relation] + v - self.bounds[t]


@dataclass(frozen=True)
class Picking:
    """How each list is picked from; by default uniformly, each entry at most once."""

    replace: bool = False
    weighted: bool = False
    top_k: bool = False
    race: bool = False  # by weight without tables
    labor: bool = False
    layer_dependency: bool = False
    batch_dependency: int = 1
    last: bool = False  # the highest places; in trees only

    def options(self) -> dict[str, object]:
        """The same in the words of a sampler's options."""
        found: dict[str, object] = {"replace": self.replace}
        if self.weighted:
            found |= {"weights": "edge_weights", "top_k": self.top_k, "weight_tables": not self.race}
        if self.labor:
            found |= {"labor": True, "layer_dependency": self.layer_dependency}
            found |= {"batch_dependency": self.batch_dependency}
        return found


@dataclass(frozen=True)
class Hop:
    """Edges of one hop: `indptr` by (destination, slot), `indices` are places in the mini-batch's nodes."""

    indptr: Ints
    indices: Ints
    edge_ids: Ints
    first_dst: int
    num_dst: int
    num_src: int
    relations: Ints = field(repr=False)  # of each row


@dataclass(frozen=True)
class HeteroBatch:
    """What a sampler has to return; hops from the seeds outward."""

    nodes: Ints
    sizes: tuple[tuple[int, ...], ...]
    hops: tuple[Hop, ...]


def sample(
    graph: HeteroGraph,
    seeds: Ints,
    fanouts: Mapping[EdgeType, Sequence[int]] | Sequence[int],
    *,
    expand: str = "all",
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    picking: Picking = Picking(),
) -> HeteroBatch:
    """The mini-batch of these seeds, which are ids of the one range.

    Args:
        fanouts: relation -> fanout of each hop, or a fanout per hop that holds for all relations.
    """
    lists = graph.lists
    per_relation = [fanouts[key] if isinstance(fanouts, Mapping) else fanouts for key in graph.edges]
    if per_relation:
        table = np.array(per_relation, np.int64).T
    else:
        table = np.zeros((len(fanouts) if not isinstance(fanouts, Mapping) else 0, 0), np.int64)
    draw = Draws(lists, seed, epoch, batch, picking)
    nodes = np.asarray(seeds, np.int64)
    local = np.full(lists.bounds[-1], -1, np.int64)
    local[nodes] = np.arange(len(nodes))
    num_types = len(graph.num_nodes)
    sizes, hops = [_counts(lists, nodes, num_types)], []
    first = 0
    for hop, of_relation in enumerate(table, start=1):
        first_dst = 0 if expand == "all" else first
        first = len(nodes)
        v, slot, relation, row = lists.rows(nodes[first_dst:])
        ends = lists.starts[row], lists.starts[row + 1]
        counts, places = draw.picks(v, slot, hop, row, *ends, of_relation[relation])
        sources = lists.sources[places]
        new = np.unique(sources[local[sources] < 0])
        local[new] = np.arange(len(nodes), len(nodes) + len(new))
        nodes = np.concatenate([nodes, new])
        sizes.append(_counts(lists, new, num_types))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        hops.append(Hop(indptr, local[sources], lists.ids[places], first_dst, first - first_dst, len(nodes), relation))
    return HeteroBatch(nodes, tuple(sizes), tuple(hops))


Edge = tuple[int, int, int]  # places of source and destination among the nodes of their types, and the edge's id


def edges_by_hop(graph: HeteroGraph, found: HeteroBatch) -> list[dict[EdgeType, list[Edge]]]:
    """Of each hop the edges of each relation, in order, written out slowly."""
    types = graph.lists.types_of(found.nodes).tolist()
    seen, within = dict.fromkeys(types, 0), []
    for t in types:
        within.append(seen[t])
        seen[t] += 1
    keys, hops = list(graph.edges), []
    for hop in found.hops:
        edges: dict[EdgeType, list[Edge]] = {key: [] for key in keys}
        slots = [int(graph.lists.num_slots[types[v]]) for v in range(len(types))]
        targets = [v for v in range(hop.first_dst, hop.first_dst + hop.num_dst) for _ in range(slots[v])]
        for row, (v, r) in enumerate(zip(targets, hop.relations.tolist(), strict=True)):
            for e in range(hop.indptr[row], hop.indptr[row + 1]):
                edges[keys[r]].append((within[hop.indices[e]], within[v], int(hop.edge_ids[e])))
        hops.append(edges)
    return hops


def columns(edges: Sequence[Edge]) -> list[list[int]]:
    """Sources, destinations and ids of some edges."""
    return [[edge[i] for edge in edges] for i in range(3)]


def _counts(lists: Lists, nodes: Ints, num_types: int) -> tuple[int, ...]:
    return tuple(np.bincount(lists.types_of(nodes), minlength=num_types).tolist())


def philox(c0: Ints | Words, c1: Ints | Words, c2: Ints | Words, c3: Ints | Words, key: tuple[int, int]) -> list[Words]:
    """Philox 4x32-10 of many counters: four words of each, lowest word first."""
    a, b, c, d = (np.asarray(word).astype(np.uint64) for word in (c0, c1, c2, c3))
    k0, k1 = key
    for _ in range(10):
        left, right = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b = (right >> HALF) ^ b ^ np.uint64(k0), right & LOW
        c, d = (left >> HALF) ^ d ^ np.uint64(k1), left & LOW
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [a, b, c, d]


class Draws:
    """The picks of one mini-batch."""

    def __init__(self, lists: Lists, seed: int, epoch: int, batch: int, picking: Picking) -> None:
        self.lists, self.picking = lists, picking
        self.picker = Picker(seed, epoch, batch)
        self.number = reference_picks.Numbers(seed, epoch, batch, picking.batch_dependency)

    def picks(
        self, lane: Ints, slot: Ints, hop: int, row: Ints, begin: Ints, end: Ints, fanout: Ints
    ) -> tuple[Ints, Ints]:
        """How many entries of each row are picked, and the picked places in the arrays of the lists, row by row.

        Args:
            begin, end: the places of each row that may be picked.
        """
        step = hop + (slot << 8)
        if self.picking.weighted or self.picking.labor:
            columns = [x.tolist() for x in (lane, step, row, begin, end, fanout)]
            found = [self._one(*at) for at in zip(*columns, strict=True)]
            counts = np.array([len(places) for places in found], np.int64)
            return counts, np.array([place for places in found for place in places], np.int64)
        degree = end - begin
        whole = (fanout < 0) | (degree == 0) | ((degree <= fanout) & (not self.picking.replace))
        counts = np.where(whole, degree, fanout)
        offsets = np.cumsum(counts) - counts
        index = np.arange(counts.sum()) - np.repeat(offsets, counts)  # of a pick in its row
        if self.picking.last:
            return counts, np.repeat(end - counts, counts) + index
        drawn = np.repeat(~whole, counts)
        which = np.repeat(np.arange(len(row)), counts)[drawn]
        if len(which):
            index[drawn] = self._uniform(lane, step, degree, counts, which, index[drawn])
        return counts, np.repeat(begin, counts) + index

    def _uniform(self, lane: Ints, step: Ints, degree: Ints, fanout: Ints, which: Ints, index: Ints) -> Ints:
        """Places of the draws `index` of the rows `which`; those of a row ascend."""
        replace = self.picking.replace
        bound = degree[which] if replace else degree[which] - fanout[which] + index + 1
        place = self._below(bound, lane[which], step[which], index)
        order = np.lexsort((place, which))
        found = place[order]  # draws of a row lie together already, so only the order within rows changes
        if not replace:
            twice = which[1:][(found[1:] == found[:-1]) & (which[1:] == which[:-1])]
            for r in np.unique(twice).tolist():  # Floyd's method
                a, b = np.searchsorted(which, [r, r + 1])
                chosen: set[int] = set()
                for t, last in zip(place[a:b].tolist(), (bound[a:b] - 1).tolist(), strict=True):
                    chosen.add(last if t in chosen else t)
                found[a:b] = sorted(chosen)
        return found

    def _below(self, bound: Ints, lane: Ints, step: Ints, index: Ints) -> Ints:
        m = bound.astype(np.uint64)
        blocks = philox(lane & 0xFFFFFFFF, lane >> 32, step, index // 4, self.picker.key)
        words = np.choose(index % 4, blocks)
        product = words * m
        least = np.uint64(2**32) % m
        attempt = 0
        while (refused := np.flatnonzero((product & LOW) < least)).size:
            attempt += 1
            v = lane[refused]
            again = philox(v & 0xFFFFFFFF, v >> 32, step[refused] + (attempt << 24), index[refused], self.picker.key)
            product[refused] = again[0] * m[refused]
        return (product >> HALF).astype(np.int64)

    def _one(self, lane: int, step: int, row: int, begin: int, end: int, fanout: int) -> list[int]:
        """Picked places of one row, by weight or by LABOR."""
        lists, picking = self.lists, self.picking
        if picking.labor:  # a source's number is one for all relations, so the slot has no part in it
            step = 0 if picking.layer_dependency else step & 0xFF
            found = reference_picks.labor_of(self.number, lists.sources[begin:end].tolist(), step, fanout)
        else:
            assert lists.masses is not None
            weights = lists.masses[begin:end].tolist()
            if picking.top_k:
                found = reference_picks.heaviest_of(weights, fanout)
            elif picking.race:
                found = reference_picks.race_of(self.picker, weights, lane, step, fanout)
            else:
                if row not in lists.tables:
                    lists.tables[row] = reference_picks.tables_of(weights)
                of = lists.tables[row]
                if picking.replace and fanout > 8 and of[0]:
                    found = self._with_replacement(of, lane, step, fanout)
                else:
                    found = reference_picks.from_tables(self.picker, of, lane, step, fanout, picking.replace)
        return [begin + place for place in found]

    def _with_replacement(self, tables: reference_picks.Tables, lane: int, step: int, fanout: int) -> list[int]:
        """As `reference_picks.from_tables`, all draws at once: cell and rest are the high words of three of the product
        of a draw (two words) and the number of cells.
        """
        places, _, cells = tables
        index, m = np.arange(fanout), np.uint64(len(places))
        blocks = philox(lane & 0xFFFFFFFF, lane >> 32, step, index // 2, self.picker.key)
        low = np.where(index % 2, blocks[2], blocks[0]) * m
        high = np.where(index % 2, blocks[3], blocks[1]) * m + (low >> HALF)
        least = 2**64 % (len(places) << 32)
        entries = []
        for i, (below, cell, rest) in enumerate(
            zip((low & LOW).tolist(), (high >> HALF).tolist(), (high & LOW).tolist(), strict=True)
        ):
            if below << 32 < least:
                cell, rest = divmod(self.picker.pair_below(len(places) << 32, lane, step, i), 2**32)
            entries.append(places[cell if rest < cells[cell][0] else cells[cell][1]])
        return sorted(entries)


@dataclass(frozen=True)
class Case:
    """One random mini-batch; `sample_case` gives what a sampler has to return for it."""

    graph: HeteroGraph
    seeds: Ints  # ids of the one range, in type order
    fanouts: dict[EdgeType, list[int]] | list[int]
    expand: str
    seed: int
    epoch: int
    batch: int
    picking: Picking


def sample_case(case: Case) -> HeteroBatch:
    """The mini-batch of a case."""
    at = {"seed": case.seed, "epoch": case.epoch, "batch": case.batch}
    return sample(case.graph, case.seeds, case.fanouts, expand=case.expand, picking=case.picking, **at)


def random_case(rng: np.random.Generator, uniform: bool = False) -> Case:
    """1 to 8 types with 0 to 6 relations into each, hubs, repeated edges, empty types; 1 to 4 hops of fanouts from -1
    to 1,024; seeds of one type or more.

    Args:
        uniform: without weights and LABOR.
    """
    picking = Picking(replace=bool(rng.random() < 0.3))
    if not uniform and rng.random() < 0.5:
        picking = _random_picking(rng)
    graph = random_graph(rng, picking.weighted, largest=400 if picking == Picking() or picking.replace else 60)
    if picking.weighted and not graph.edges:
        picking = Picking()
    hops = int(rng.integers(1, 5))
    choices = [-1, 0, 1, 2, 3, 5, 10, 16, 17, 33] + ([100, 1024] if rng.random() < 0.3 else [])
    fanouts: dict[EdgeType, list[int]] | list[int] = [int(k) for k in rng.choice(choices, hops)]
    if graph.edges and rng.random() < 0.7:
        fanouts = {key: [int(k) for k in rng.choice(choices, hops)] for key in graph.edges}
    sizes = np.array(list(graph.num_nodes.values()), np.int64)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    filled = np.flatnonzero(sizes)
    if len(filled):
        chosen = rng.permutation(filled)[: 1 if rng.random() < 0.5 else int(rng.integers(1, len(filled) + 1))]
        seeds = np.concatenate(
            [bounds[t] + rng.permutation(sizes[t])[: int(rng.integers(0, 21))] for t in np.sort(chosen)]
        )
    else:
        seeds = np.zeros(0, np.int64)
    far = bool(rng.random() < 0.2)
    seed, epoch, batch = (int(rng.integers(0, high)) for high in (2**63, 2**40 if far else 5, 2**40 if far else 50))
    return Case(graph, seeds, fanouts, str(rng.choice(["all", "new"])), seed, epoch, batch, picking)


def _random_picking(rng: np.random.Generator) -> Picking:
    kind = rng.integers(5)
    if kind == 4:
        period = 1 if rng.random() < 0.5 else int(rng.integers(2, 9))
        return Picking(labor=True, layer_dependency=bool(rng.random() < 0.5), batch_dependency=period)
    return Picking(weighted=True, replace=bool(kind == 1), top_k=bool(kind == 2), race=bool(kind == 3))


def random_graph(rng: np.random.Generator, weighted: bool, largest: int, types: int = 8) -> HeteroGraph:
    """See `random_case`.

    Args:
        largest: number of nodes of a type.
        types: at most this many.
    """
    names = [f"type{t}" for t in range(int(rng.integers(1, types + 1)))]
    num_nodes = {name: 0 if rng.random() < 0.1 else int(rng.integers(1, largest)) for name in names}
    edges: dict[EdgeType, tuple[Ints, Ints]] = {}
    for target in names:
        for r in range(int(rng.integers(0, 7)) if rng.random() < 0.8 else 0):
            source = target if rng.random() < 0.2 else str(rng.choice(names))
            edges[source, f"to{r}", target] = _random_edges(rng, num_nodes[source], num_nodes[target])
    keys = list(edges)
    rng.shuffle(keys)
    edges = {tuple(key): edges[tuple(key)] for key in keys}
    if not weighted or not edges:
        return HeteroGraph(num_nodes, edges)
    weights: dict[EdgeType, NDArray[np.floating]] = {}
    for key, (src, _) in edges.items():
        if not weights or rng.random() < 0.8:
            drawn = rng.choice([0.0, 0.5, 1.0, 1.0, 2.5, 1e-6, 1e6], len(src)) * rng.integers(1, 4, len(src))
            weights[key] = drawn.astype(np.float32)
    return HeteroGraph(num_nodes, edges, weights)


def _random_edges(rng: np.random.Generator, num_src: int, num_dst: int) -> tuple[Ints, Ints]:
    if num_src == 0 or num_dst == 0 or rng.random() < 0.05:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    count = int(rng.integers(1, 6) * max(num_src, num_dst))
    src, dst = rng.integers(0, num_src, count), rng.integers(0, num_dst, count)
    if rng.random() < 0.4:
        dst[: count // 2] = rng.integers(num_dst)  # a hub
    if rng.random() < 0.3:
        src[: count // 4] = rng.integers(num_src)  # it repeats edges, too
    if rng.random() < 0.3:
        twins = count // 5
        src[count - twins :], dst[count - twins :] = src[:twins].copy(), dst[:twins].copy()
    return src, dst

"""Sampling of trees, with and without times, once more, in NumPy: with no line in common with the C++ core.

Times are compared as they are, where the core compares ranks. Picks are those of `hetero_oracle`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from hetero_oracle import Draws, EdgeType, HeteroGraph, Hop, Ints, Lists, Picking, random_graph

MISSING = np.iinfo(np.int64).min
LATEST = np.iinfo(np.int64).max
UNIFORM = Picking()


@dataclass(frozen=True)
class TimedGraph(HeteroGraph):
    """A typed graph whose nodes and edges may have times; `MISSING` stands for one that is not known."""

    node_times: Mapping[str, Ints] | None = None
    edge_times: Mapping[EdgeType, Ints] | None = None


@dataclass(frozen=True)
class Sight:
    """What a tree may see.

    Attributes:
        times: whose times count: "none", "node", "edge" or "both".
        rule: "<=" or "<".
        window: how long before its bound the first visible time lies, or None.
        bound: whose time it is: "seed" or "edge".
        missing_times: "always" or "never" visible; "error" in graphs that miss none.
    """

    times: str = "node"
    rule: str = "<="
    window: int | None = None
    bound: str = "seed"
    missing_times: str = "error"


class SeenLists(Lists):
    """Lists in the order of their times. An unknown time that is always visible is `MISSING`, so before all others."""

    def __init__(self, graph: TimedGraph, sight: Sight) -> None:
        super().__init__(graph)
        count = np.diff(self.starts)
        of_list = np.repeat(np.arange(len(count)), count)
        self.times = np.full(len(self.sources), MISSING, np.int64)
        self.never = np.zeros(len(self.sources), bool)
        self.timed = np.zeros(len(graph.edges), bool)  # relations whose entries have times that count
        node_times, edge_times = graph.node_times or {}, graph.edge_times or {}
        names = list(graph.num_nodes)
        for r, key in enumerate(graph.edges):
            first = self.first_row[r]
            begin, end = self.starts[first], self.starts[first + graph.num_nodes[key[2]]]
            counted = []
            if sight.times in ("node", "both") and key[0] in node_times:
                start = self.bounds[names.index(key[0])]
                counted.append(node_times[key[0]][self.sources[begin:end] - start])
            if sight.times in ("edge", "both") and key in edge_times:
                counted.append(edge_times[key][self.ids[begin:end]])
            if counted:
                self.timed[r] = True
                self.times[begin:end] = np.max(counted, axis=0)
                if sight.missing_times == "never":
                    self.never[begin:end] = np.any([times == MISSING for times in counted], axis=0)
        self.times[self.never] = LATEST  # so these are by source and id
        order = np.lexsort((self.ids, self.sources, self.times, self.never, of_list))
        self.sources, self.ids, self.times, self.never = (
            array[order] for array in (self.sources, self.ids, self.times, self.never)
        )
        if self.masses is not None:
            self.masses = self.masses[order]
        self.ends = self.starts[1:] - np.bincount(of_list[self.never], minlength=len(count))

    def seen(self, row: Ints, relation: Ints, bound: Ints, sight: Sight) -> tuple[Ints, Ints]:
        """The places of each row that lie within its bound: from the first up to the second."""
        begin, end = self.starts[row], self.ends[row]
        timed = self.timed[relation]
        if sight.rule == "<":  # what is unknown is earlier than any bound, an unknown one included
            bound = np.maximum(bound, MISSING + 1)
        high = self._first(begin, end, bound, after=sight.rule == "<=")
        low = begin
        if sight.window is not None:
            since = np.where(bound < MISSING + sight.window, MISSING, bound - sight.window)
            low = np.minimum(self._first(begin, end, since, after=True), high)
        return np.where(timed, low, begin), np.where(timed, high, self.starts[row + 1])

    def _first(self, begin: Ints, end: Ints, bound: Ints, after: bool) -> Ints:
        """Of each range the first place whose time is after the bound, or at it or after; `end` if there is none."""
        low, high = begin.copy(), end.copy()
        while len(open := np.flatnonzero(low < high)):
            middle = (low[open] + high[open]) // 2
            times, limit = self.times[middle], bound[open]
            found = times > limit if after else times >= limit
            high[open] = np.where(found, middle, high[open])
            low[open] = np.where(found, low[open], middle + 1)
        return low


@dataclass(frozen=True)
class TreeBatch:
    """What a sampler has to return; hops from the seeds outward.

    Attributes:
        nodes: ids of the one range.
        tree: of each node the number of its tree, which is that of its seed.
        sizes: numbers of new nodes, by hop and type.
    """

    nodes: Ints
    tree: Ints
    sizes: tuple[tuple[int, ...], ...]
    hops: tuple[Hop, ...]


class TooLarge(Exception):
    """More picks than asked for; `hops` were within the limit."""

    def __init__(self, hops: int) -> None:
        super().__init__(f"only {hops} hops are small enough")
        self.hops = hops


def sample(
    graph: TimedGraph,
    seeds: Ints,
    times: Ints | None,
    fanouts: Mapping[EdgeType, Sequence[int]] | Sequence[int],
    *,
    trees: str,
    sight: Sight,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    picking: Picking = UNIFORM,
    most: int | None = None,
) -> TreeBatch:
    """The trees of these seeds, which are ids of the one range, type after type.

    Args:
        times: of the seeds; None if no times count.
        fanouts: relation -> fanout of each hop, or a fanout per hop that holds for all relations.
        trees: "unique" (a tree has a node at most once) or "paths" (each pick is a node).
        most: raise `TooLarge` if a hop picks more.
    """
    lists = SeenLists(graph, sight)
    per_relation = [fanouts[key] if isinstance(fanouts, Mapping) else fanouts for key in graph.edges]
    num_hops = len(fanouts) if not isinstance(fanouts, Mapping) else 0
    table = np.array(per_relation, np.int64).T if per_relation else np.zeros((num_hops, 0), np.int64)
    draw = Draws(lists, seed, epoch, batch, picking)
    nodes, tree = np.asarray(seeds, np.int64), np.arange(len(seeds))
    bound = np.full(len(nodes), LATEST) if times is None else np.asarray(times, np.int64)
    sizes, hops = [_sizes(lists, nodes)], []
    first = 0
    for hop, of_relation in enumerate(table, start=1):
        v, slot, relation, row = lists.rows(nodes[first:])
        # Of each row its node: of nodes with equal ids each has rows of its own.
        node = first + np.repeat(np.arange(len(nodes) - first), lists.num_slots[lists.types_of(nodes[first:])])
        lane = node - first if trees == "paths" else tree[node] << 40 | v
        low, high = lists.seen(row, relation, bound[node], sight)
        fanout = of_relation[relation]
        likely = np.where(fanout < 0, high - low, np.minimum(fanout, high - low)).sum()
        if most is not None and likely > most:
            raise TooLarge(hop - 1)
        counts, places = draw.picks(lane, slot, hop, row, low, high, fanout)
        by = np.repeat(np.arange(len(row)), counts)  # of each pick its row
        sources, of_tree = lists.sources[places], tree[node[by]]
        if trees == "paths":
            new, indices = _paths(lists, sources, of_tree, len(nodes))
        else:
            new, indices = _unique(lists, nodes, tree, sources, of_tree)
        if sight.bound == "edge":
            led = np.where(lists.timed[relation[by]], lists.times[places], bound[node[by]])
        else:
            led = bound[node[by]]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        num_dst, first_dst = len(nodes) - first, first
        first = len(nodes)
        nodes, tree = np.concatenate([nodes, sources[new]]), np.concatenate([tree, of_tree[new]])
        bound = np.concatenate([bound, led[new]])
        sizes.append(_sizes(lists, sources[new]))
        hops.append(Hop(indptr, indices, lists.ids[places], first_dst, num_dst, len(nodes), relation))
    return TreeBatch(nodes, tree, tuple(sizes), tuple(hops))


def _paths(lists: Lists, sources: Ints, of_tree: Ints, count: int) -> tuple[Ints, Ints]:
    """The picks that are new nodes, in order, and the place of each pick's source, where every pick is a node."""
    new = np.lexsort((of_tree, lists.types_of(sources)))  # stable: picks of a tree keep their order
    indices = np.empty(len(new), np.int64)
    indices[new] = count + np.arange(len(new))
    return new, indices


def _unique(lists: Lists, nodes: Ints, tree: Ints, sources: Ints, of_tree: Ints) -> tuple[Ints, Ints]:
    """As `_paths`, where a tree has each node once."""
    wide = int(lists.bounds[-1]) + 1
    known = {pair: place for place, pair in enumerate((tree * wide + nodes).tolist())}
    picked = of_tree * wide + sources
    _, once = np.unique(picked, return_index=True)
    once = np.array([pick for pick in once.tolist() if int(picked[pick]) not in known], np.int64)
    new = once[np.lexsort((sources[once], of_tree[once], lists.types_of(sources[once])))]
    known |= {pair: len(nodes) + i for i, pair in enumerate(picked[new].tolist())}
    return new, np.array([known[pair] for pair in picked.tolist()], np.int64)


def _sizes(lists: Lists, nodes: Ints) -> tuple[int, ...]:
    return tuple(np.bincount(lists.types_of(nodes), minlength=len(lists.num_slots)).tolist())


@dataclass(frozen=True)
class Case:
    """One random mini-batch; `sample_case` gives what a sampler has to return for it."""

    graph: TimedGraph
    seeds: Ints  # ids of the one range, in type order, some several times
    times: Ints | None  # of the seeds
    fanouts: dict[EdgeType, list[int]] | list[int]
    trees: str
    sight: Sight
    seed: int
    epoch: int
    batch: int
    picking: Picking

    @cached_property
    def wanted(self) -> TreeBatch:
        return self._sample()

    def _sample(self, most: int | None = None) -> TreeBatch:
        at = {"seed": self.seed, "epoch": self.epoch, "batch": self.batch, "most": most}
        options = {"trees": self.trees, "sight": self.sight, "picking": self.picking}
        return sample(self.graph, self.seeds, self.times, self.fanouts, **options, **at)

    def small(self, most: int) -> Case:
        """This case, or one with fewer hops or seeds whose hops pick at most `most` entries each."""
        try:
            self.__dict__["wanted"] = self._sample(most)
            return self
        except TooLarge as error:
            hops = error.hops
        if hops:
            of = self.fanouts
            return replace(self, fanouts={k: v[:hops] for k, v in of.items()} if isinstance(of, dict) else of[:hops])
        half = len(self.seeds) // 2
        fewer = replace(self, seeds=self.seeds[:half], times=None if self.times is None else self.times[:half])
        return fewer.small(most)


def sample_case(case: Case) -> TreeBatch:
    """The mini-batch of a case."""
    return case.wanted


def random_case(rng: np.random.Generator, uniform: bool = False) -> Case:
    """1 to 6 types, hubs, repeated edges, empty types, types and relations without times, ties, negative times and
    times beyond 2^53, missing times, windows; seeds that come several times at several times; 1 to 4 hops of fanouts
    from -1 to 1,024.

    Args:
        uniform: without weights and LABOR.
    """
    picking = _random_picking(rng, uniform)
    slow = picking.weighted or picking.labor
    graph = random_graph(rng, picking.weighted, largest=40 if slow else 250, types=6)
    if picking.weighted and not graph.edges:
        picking = UNIFORM
    trees = str(rng.choice(["unique", "paths"]))
    sight, clock = _random_sight(rng, trees), _random_clock(rng)
    timed = _with_times(rng, graph, clock, sight.missing_times != "error")
    kinds = {"node": timed.node_times, "edge": timed.edge_times, "both": timed.node_times or timed.edge_times}
    if not kinds.get(sight.times):
        sight = Sight("none")  # as a graph without times is refused
    seeds = _random_seeds(rng, graph)
    times = None if sight.times == "none" else rng.choice(clock, len(seeds))
    hops = int(rng.integers(1, 5))
    choices = [-1, 0, 1, 2, 3, 5, 10, 17, 33] + ([100, 1024] if rng.random() < 0.3 else [])
    fanouts: dict[EdgeType, list[int]] | list[int] = [int(k) for k in rng.choice(choices, hops)]
    if graph.edges and rng.random() < 0.7:
        fanouts = {key: [int(k) for k in rng.choice(choices, hops)] for key in graph.edges}
    if sight.times == "none":  # nothing is later than anything else
        picking = replace(picking, last=False)
    far = bool(rng.random() < 0.2)
    seed, epoch, batch = (int(rng.integers(0, high)) for high in (2**63, 2**40 if far else 5, 2**40 if far else 50))
    case = Case(timed, seeds, times, fanouts, trees, sight, seed, epoch, batch, picking)
    return case.small(400 if slow else 4000)


def _random_picking(rng: np.random.Generator, uniform: bool) -> Picking:
    kind = int(rng.integers(8 if not uniform else 5))
    if kind >= 6:
        period = 1 if rng.random() < 0.5 else int(rng.integers(2, 9))
        return Picking(labor=True, layer_dependency=bool(rng.random() < 0.5), batch_dependency=period)
    return Picking(replace=kind == 2, last=kind in (3, 4), weighted=kind == 5, race=kind == 5)


def _random_sight(rng: np.random.Generator, trees: str) -> Sight:
    times = str(rng.choice(["none", "node", "edge", "both"], p=[0.1, 0.3, 0.25, 0.35]))
    if times == "none":
        return Sight("none")
    missing = str(rng.choice(["error", "always", "never"], p=[0.6, 0.2, 0.2]))
    window = None
    if missing != "always" and rng.random() < 0.4:
        window = int(rng.choice([1, 2, 3, 5, 100, 10**6, 2**62]))
    bound = "edge" if trees == "paths" and rng.random() < 0.5 else "seed"
    return Sight(times, str(rng.choice(["<=", "<"])), window, bound, missing)


def _random_clock(rng: np.random.Generator) -> Ints:
    """Times to draw from."""
    span = int(rng.choice([1, 2, 4, 20, 1000]))
    start = int(rng.choice([-(span // 2), 0, 1_700_000_000, -(2**60), 2**53 - 2, LATEST - span, MISSING + 1]))
    found = start + np.arange(span + 1)
    return np.append(found, rng.integers(-(2**62), 2**62, 3)) if rng.random() < 0.2 else found


def _with_times(rng: np.random.Generator, graph: HeteroGraph, clock: Ints, missing: bool) -> TimedGraph:
    def drawn(count: int) -> Ints:
        times = rng.choice(clock, count)
        if rng.random() < 0.2:
            times = np.sort(times)[::-1].copy()
        if missing and rng.random() < 0.5:
            times[rng.random(count) < rng.choice([0.1, 0.9])] = MISSING
        return times

    some = rng.choice([0.3, 0.8, 1.0])
    nodes = {name: drawn(size) for name, size in graph.num_nodes.items() if rng.random() < some}
    edges = {key: drawn(len(src)) for key, (src, _) in graph.edges.items() if rng.random() < some}
    return TimedGraph(graph.num_nodes, graph.edges, graph.weights, nodes or None, edges or None)


def _random_seeds(rng: np.random.Generator, graph: HeteroGraph) -> Ints:
    """Up to 24 ids, type after type, of few or many nodes."""
    sizes = np.array(list(graph.num_nodes.values()), np.int64)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    targets = {key[2] for key, (_, dst) in graph.edges.items() if len(dst)}
    reached = np.array([name in targets for name in graph.num_nodes]) | (rng.random() < 0.1)
    possible = np.flatnonzero((sizes > 0) & reached)
    if not len(possible):
        return np.zeros(0, np.int64)
    chosen = rng.permutation(possible)[: 1 if rng.random() < 0.5 else int(rng.integers(1, len(possible) + 1))]
    most = max(1, 24 // len(chosen))
    found = []
    for t in np.sort(chosen):
        among = rng.permutation(sizes[t])[: int(rng.integers(1, most + 1))]  # few, so that some come several times
        found.append(bounds[t] + rng.choice(among, int(rng.integers(0 if rng.random() < 0.1 else 1, most + 1))))
    return np.concatenate(found)

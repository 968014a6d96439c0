"""Links whose ends have trees, once more, in NumPy and plain Python: with no line in common with the library.

Trees are those of `tree_oracle`, the words of negatives those of `reference_links`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import reference_links
import tree_oracle
from hetero_oracle import EdgeType, Hop, Ints
from reference_sampler import batch_key
from tree_oracle import MISSING, TimedGraph

Pair = tuple[int, int]


class NoNegative(Exception):
    """No node exists at the time of a link, or none that is no edge."""


@dataclass(frozen=True)
class Case:
    """One random mini-batch of links.

    Attributes:
        trees: the graph, and how its trees are sampled; its seeds and times are not those of the links.
        edge_type, reverse: relation of the links, and of their reverses or None.
        links: by numbers within their types.
        times: of the links, or None.
        ids: the edges that the links are, -1 for none; None: they are not told.
        mode: of negatives, or None.
    """

    trees: tree_oracle.Case
    edge_type: EdgeType
    reverse: EdgeType | None
    links: list[Pair]
    times: list[int] | None
    ids: list[int] | None
    exclude: str
    mode: str | None
    amount: Any
    strict: bool
    seed: int


@dataclass(frozen=True)
class Links:
    """What a sampler has to return.

    Attributes:
        negatives: pairs of numbers within their types; of triplets those of a link one after the other.
        link_of_tree: of each tree.
        trees: without the links' own edges.
        ends: places of the ends among the seeds of their types, by name.
    """

    negatives: list[Pair]
    link_of_tree: list[int]
    trees: tree_oracle.TreeBatch
    ends: dict[str, list[int]]


def exists(case: Case, name: str, node: int, at: int) -> bool:
    sight, times = case.trees.sight, (case.trees.graph.node_times or {}).get(name)
    if times is None or sight.times not in ("node", "both"):
        return True
    own = int(times[node])
    if own == MISSING:
        return sight.missing_times == "always"
    return own <= at if sight.rule == "<=" else own < at


def negatives(case: Case) -> list[Pair]:
    """The law: number i of all that exist at the time of its link, in the order of (time, id)."""
    source_type, _, target_type = case.edge_type
    graph = case.trees.graph
    src, dst = graph.edges[case.edge_type]
    edges = set(zip(src.tolist(), dst.tolist(), strict=True))
    count, own_type = math.ceil(len(case.links) * case.amount), source_type == target_type

    def is_negative(u: int, v: int) -> bool:
        return not case.strict or ((u, v) not in edges and not (own_type and u == v))

    key, found = batch_key(case.seed, case.trees.epoch, case.trees.batch, reference_links.NEGATIVE), []
    for i in range(count):
        link = i // case.amount if case.mode == "triplet" else i % len(case.links)
        sources, targets = (
            there(case, name, case.times[link] if case.times else 0) for name in (source_type, target_type)
        )
        if not targets or not (sources or case.mode == "triplet"):
            raise NoNegative
        if case.mode == "triplet":
            u = case.links[link][0]
            found.append((u, one_target(key, i, u, targets, is_negative)))
        else:
            found.append(one_pair(key, i, sources, targets, is_negative))
    return found


def there(case: Case, name: str, at: int) -> list[int]:
    """The nodes of a type that exist, in order."""
    times = (case.trees.graph.node_times or {}).get(name)
    counted = times is not None and case.trees.sight.times in ("node", "both")
    nodes = [v for v in range(case.trees.graph.num_nodes[name]) if exists(case, name, v, at)]
    return sorted(nodes, key=lambda v: (int(times[v]), v)) if counted else nodes


def one_pair(key: Any, lane: int, sources: list[int], targets: list[int], is_negative: Any) -> Pair:
    for t in range(reference_links.TRIES_OF_PAIR):
        u = sources[reference_links.bounded(key, lane, 2 * t, len(sources))]
        v = targets[reference_links.bounded(key, lane, 2 * t + 1, len(targets))]
        if is_negative(u, v):
            return u, v
    raise NoNegative


def one_target(key: Any, lane: int, u: int, targets: list[int], is_negative: Any) -> int:
    for t in range(reference_links.TRIES_OF_TARGET):
        v = targets[reference_links.bounded(key, lane, 2 * t + 1, len(targets))]
        if is_negative(u, v):
            return v
    free = [v for v in targets if is_negative(u, v)]
    if not free:
        raise NoNegative
    return free[reference_links.bounded(key, lane, 2 * reference_links.TRIES_OF_TARGET + 1, len(free))]


def sample(case: Case) -> Links:
    """The links of a case; raises `NoNegative` or, above 4,000 picks, `tree_oracle.TooLarge`."""
    drawn = [] if case.mode is None else negatives(case)
    parts: dict[str, list[tuple[int, int]]] = {  # (node, link), in order
        "sources": [(u, i) for i, (u, _) in enumerate(case.links)],
        "targets": [(v, i) for i, (_, v) in enumerate(case.links)],
    }
    if case.mode == "binary":
        of = [i % len(case.links) for i in range(len(drawn))]
        parts["negative_sources"] = [(u, link) for (u, _), link in zip(drawn, of, strict=True)]
        parts["negative_targets"] = [(v, link) for (_, v), link in zip(drawn, of, strict=True)]
    elif case.mode == "triplet":
        of_link = [(link, k) for k in range(case.amount) for link in range(len(case.links))]
        parts["negative_targets"] = [(drawn[link * case.amount + k][1], link) for link, k in of_link]
    names = list(case.trees.graph.num_nodes)
    seeds: list[int] = []
    link_of_tree: list[int] = []
    ends: dict[str, list[int]] = {}
    for name in names:
        before, first = 0, int(case.trees.graph.lists.bounds[names.index(name)])
        for part in ("sources", "negative_sources", "targets", "negative_targets"):
            if part in parts and case.edge_type[0 if part.endswith("sources") else 2] == name:
                ends[part] = list(range(before, before + len(parts[part])))
                before += len(parts[part])
                seeds += [first + node for node, _ in parts[part]]
                link_of_tree += [link for _, link in parts[part]]
    if case.mode == "triplet":  # given link by link
        order = np.arange(len(drawn)).reshape(case.amount, -1).T.ravel() if drawn else []
        ends["negative_targets"] = [ends["negative_targets"][i] for i in order]
    times = None if case.times is None else np.array([case.times[link] for link in link_of_tree], np.int64)
    of = case.trees
    options: dict[str, Any] = {"trees": of.trees, "sight": of.sight, "picking": of.picking, "most": 4000}
    at = {"seed": of.seed, "epoch": of.epoch, "batch": of.batch}
    trees = tree_oracle.sample(of.graph, np.array(seeds, np.int64), times, of.fanouts, **options, **at)
    return Links(drawn, link_of_tree, without_own(case, trees, link_of_tree), ends)


def without_own(case: Case, trees: tree_oracle.TreeBatch, link_of_tree: list[int]) -> tree_oracle.TreeBatch:
    """The trees without the edges that their links are, and with "reverse" without the edges back."""
    if case.exclude == "none":
        return trees
    hops = tuple(hop_without(case, trees, hop, link_of_tree) for hop in trees.hops)
    return replace(trees, hops=hops)


def hop_without(case: Case, trees: tree_oracle.TreeBatch, hop: Hop, link_of_tree: list[int]) -> Hop:
    graph, kept = case.trees.graph, []
    names = list(graph.num_nodes)
    keys = list(graph.edges)
    degrees = np.diff(hop.indptr)
    row = np.repeat(np.arange(len(degrees)), degrees)
    target_of_row = target_places(graph, trees, hop)
    for e in range(len(row)):
        key = keys[int(hop.relations[row[e]])]
        target, source, edge = int(target_of_row[row[e]]), int(hop.indices[e]), int(hop.edge_ids[e])
        u, v = (
            int(trees.nodes[place]) - int(graph.lists.bounds[names.index(name)])
            for place, name in ((source, key[0]), (target, key[2]))
        )
        link = link_of_tree[int(trees.tree[target])]
        own = [] if key != case.edge_type else [(case.links[link], None if case.ids is None else case.ids[link])]
        gone = any(((u, v) == ends) if which is None else edge == which for ends, which in own)
        if case.exclude == "reverse" and key == case.reverse and (u, v) == case.links[link][::-1]:
            gone = gone or case.ids is None or is_back(case, edge, case.ids[link])
        kept.append(not gone)
    stays = np.array(kept, bool)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[stays], minlength=len(degrees)))])
    return replace(hop, indptr=indptr, indices=hop.indices[stays], edge_ids=hop.edge_ids[stays])


def target_places(graph: TimedGraph, trees: tree_oracle.TreeBatch, hop: Hop) -> Ints:
    """Of each row the place of its node."""
    nodes = trees.nodes[hop.first_dst : hop.first_dst + hop.num_dst]
    slots = graph.lists.num_slots[graph.lists.types_of(nodes)]
    return hop.first_dst + np.repeat(np.arange(hop.num_dst), slots)


def is_back(case: Case, edge: int, own: int) -> bool:
    """Whether an edge between the same ends is a reverse of a link's own edge, or of none (-1): it has the time."""
    assert case.reverse is not None
    have = case.trees.graph.edge_times or {}
    if own < 0:
        return False
    if case.edge_type not in have or case.reverse not in have:
        return True
    return int(have[case.reverse][edge]) == int(have[case.edge_type][own])


def random_case(rng: np.random.Generator) -> Case | None:
    """Links of a random timed graph, many of them edges; None if it has no relation that could have links."""
    trees = tree_oracle.random_case(rng)
    graph = trees.graph
    possible = [key for key in graph.edges if graph.num_nodes[key[0]] and graph.num_nodes[key[2]]]
    if not possible:
        return None
    key = possible[int(rng.integers(len(possible)))]
    count = int(rng.integers(1, 12))
    src, dst = graph.edges[key]
    ids = rng.integers(0, len(src), count) if len(src) else np.full(count, -1)
    ids = np.where(rng.random(count) < 0.3, -1, ids)
    links = [
        (int(src[e]), int(dst[e])) if e >= 0 else tuple(int(rng.integers(graph.num_nodes[key[i]])) for i in (0, 2))
        for e in ids.tolist()
    ]
    times = None
    if trees.sight.times != "none":
        clock = [t for of in (graph.node_times, graph.edge_times) for a in (of or {}).values() for t in a.tolist()]
        clock = [t for t in clock if t != MISSING] or [0]
        own = (graph.edge_times or {}).get(key)
        drawn = rng.choice(np.array(clock, np.int64), count)
        times = [
            int(own[e]) if own is not None and e >= 0 and own[e] != MISSING and rng.random() < 0.5 else int(t)
            for e, t in zip(ids.tolist(), drawn, strict=True)
        ]
    reverses = [other for other in graph.edges if (other[2], other[0]) == (key[0], key[2])]
    exclude = str(rng.choice(["none", "self", "reverse"]))
    exclude = "self" if exclude == "reverse" and not reverses else exclude
    mode = [None, "binary", "triplet"][int(rng.integers(3))]
    amount = int(rng.integers(1, 4)) if mode == "triplet" or rng.random() < 0.5 else float(rng.choice([0.3, 1.5]))
    return Case(
        trees,
        key,
        reverses[int(rng.integers(len(reverses)))] if exclude == "reverse" else None,
        links,
        times,
        ids.tolist() if exclude != "none" and rng.random() < 0.6 else None,
        exclude,
        mode,
        amount,
        bool(rng.random() < 0.4),
        int(rng.integers(0, 2**63)),
    )

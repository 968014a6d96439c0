"""The law of HGT's sampling once more, in plain Python: as exact probabilities, and as the races that draw by them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from reference_picks import exponential
from reference_sampler import WORD, batch_key, philox
from torch import Tensor

Node = tuple[str, int]
Lists = dict[tuple[str, str, str], dict[int, list[int]]]  # relation -> destination -> sources
Chances = dict[frozenset[Node], Fraction]


def lists_of(edges: Mapping[tuple[str, str, str], Tensor]) -> Lists:
    found: Lists = {}
    for key, pairs in edges.items():
        rows: dict[int, list[int]] = defaultdict(list)
        for source, target in zip(*pairs.tolist(), strict=True):
            rows[target].append(source)
        found[key] = rows
    return found


def scores_of(lists: Lists, sampled: Iterable[Node], share: Any) -> dict[Node, Any]:
    """The sum of the shares of each node that is not sampled: `share(length)` for each time that a list has it."""
    scores: dict[Node, Any] = defaultdict(int)
    sampled = set(sampled)
    for (source, _, target), rows in lists.items():
        for node_type, v in sampled:
            if node_type == target:
                for u in rows.get(v, []):
                    scores[source, u] += share(len(rows[v]))
    return {node: score for node, score in scores.items() if node not in sampled}


def chances(lists: Lists, sampled: frozenset[Node], hops: Sequence[Mapping[str, int]]) -> Chances:
    """What may be sampled at the end, and how probable it is.

    Args:
        sampled: nodes so far.
        hops: node type -> nodes that are drawn, of each hop that is left.
    """
    if not hops:
        return {sampled: Fraction(1)}
    scores = scores_of(lists, sampled, lambda length: Fraction(1, length))
    ways: Chances = {frozenset(): Fraction(1)}
    for name, count in hops[0].items():
        drawn = one_by_one({node: score**2 for node, score in scores.items() if node[0] == name}, count)
        ways = {a | b: p * q for a, p in ways.items() for b, q in drawn.items()}
    found: Chances = defaultdict(Fraction)
    for drawn_now, p in ways.items():
        for end, q in chances(lists, sampled | drawn_now, hops[1:]).items():
            found[end] += p * q
    return dict(found)


def one_by_one(weights: Mapping[Node, Fraction], count: int) -> Chances:
    """The sets of `count` nodes that are drawn one after the other, each by the weights of those that are left."""
    if count == 0 or not weights:
        return {frozenset(): Fraction(1)}
    found: Chances = defaultdict(Fraction)
    total = sum(weights.values())
    for node, weight in weights.items():
        left = {other: w for other, w in weights.items() if other != node}
        for rest, p in one_by_one(left, count - 1).items():
            found[rest | {node}] += p * weight / total
    return dict(found)


def raced(
    edges: Mapping[tuple[str, str, str], Tensor],
    sizes: Mapping[str, int],
    seeds: Sequence[Node],
    hops: Sequence[Mapping[str, int]],
    position: tuple[int, int, int],
) -> dict[str, list[list[int]]]:
    """Node type -> what is sampled of it: the seeds, then the nodes of each hop.

    Args:
        position: seed, epoch and mini-batch.
    """
    lists, key, first = lists_of(edges), batch_key(*position), {}
    for name, size in sizes.items():
        first[name] = sum(sizes[other] for other in first)
        assert size >= 0
    rows = sum(sizes[target] for _, _, target in edges)
    unit = 2 ** min(40, 62 - rows.bit_length())
    found = {name: [[v for of, v in seeds if of == name]] for name in sizes}
    sampled = list(seeds)
    for hop, counts in enumerate(hops):
        scores, drawn = scores_of(lists, sampled, lambda length: unit // length), []
        for name, count in counts.items():
            times = []
            for node, score in scores.items():
                lane = first[name] + node[1]
                low, high, *_ = philox((lane % WORD, lane >> 32, hop, 0), (key[0], key[1]))
                if node[0] == name:
                    times.append((float(exponential(low + high * WORD)) / float(score) ** 2, node))
            now = sorted(node for _, node in sorted(times)[:count])
            found[name].append([v for _, v in now])
            drawn += now
        sampled += drawn
    return found


def edges_among(
    edges: Mapping[tuple[str, str, str], Tensor], nodes: Mapping[str, Sequence[int]]
) -> dict[tuple[str, str, str], set[tuple[int, int, int]]]:
    """Relation -> (source, target, place of the edge) of each edge between given nodes."""
    there = {name: set(ids) for name, ids in nodes.items()}
    return {
        key: {(u, v, e) for e, (u, v) in enumerate(pairs.t().tolist()) if u in there[key[0]] and v in there[key[2]]}
        for key, pairs in edges.items()
    }

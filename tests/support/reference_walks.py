"""The law of walks once more, in plain Python: slow, and with no line in common with the C++ core.

The random numbers are those of `reference_sampler`; the law is written down in `loader.samplers.WalkSampler` and, word
by word, in csrc/walks/walk.h.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from reference_picks import cells, masses
from reference_sampler import WORD, batch_key, philox

from loader.graph import Graph

WALK, NEGATIVE = 2, 3  # purposes of the words
TRIES = 64
SCAN_BLOCK = 1 << 31


class _Draws:
    """The words of one walker at one group of steps."""

    def __init__(self, key: tuple[int, int], lane: int, step: int) -> None:
        self.key, self.lane, self.step = key, lane, step

    def block(self, index: int, attempt: int = 0) -> tuple[int, ...]:
        counter = (self.lane % WORD, self.lane >> 32, self.step + (attempt << 24), index)
        return philox(counter, self.key)

    def word(self, i: int) -> int:
        return self.block(i // 4)[i % 4]

    def below(self, bound: int, i: int) -> int:
        product = self.word(i) * bound
        attempt = 0
        while product % WORD < WORD % bound:
            attempt += 1
            product = self.block(i, attempt)[0] * bound
        return product // WORD

    def wide_below(self, bound: int, index: int) -> int:
        attempt = 0
        while True:
            words = self.block(index, attempt)
            product = (words[0] + words[1] * WORD) * bound
            if product % 2**64 >= 2**64 % bound:
                return product >> 64
            attempt += 1


def walks(
    graph: Graph,
    starts: list[int],
    length: int,
    *,
    p: float = 1.0,
    q: float = 1.0,
    stop: float = 0.0,
    restart: float = 0.0,
    weighted: bool = False,
    metapath: list[int] | None = None,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
) -> tuple[list[list[int]], list[list[int]]]:
    """Vertices and places of edges of every walk, -1 where there is none."""
    first, second = batch_key(seed, epoch, batch, WALK)
    indptr, indices = graph.indptr.tolist(), graph.indices.tolist()
    types = None if graph.edge_types is None else graph.edge_types.tolist()
    coin, second_order = stop > 0 or restart > 0, (p, q) != (1, 1)
    words = coin + 1 + weighted + second_order
    again = 2 + weighted  # words of another try
    weights = graph.edge_weights.tolist() if weighted and graph.edge_weights is not None else []
    share = 4 // words
    shares = [1 / Fraction(p), Fraction(1), 1 / Fraction(q)]
    back, common, far = (round(x / max(shares) * WORD) for x in shares)
    stop_below = round(Fraction(stop) * WORD)
    home_below = stop_below + round(Fraction(restart) * WORD)

    def one(lane: int, start: int) -> tuple[list[int], list[int]]:
        walk, edges = [start], []
        at, previous = start, None
        for step in range(length):
            draws = _Draws((first, second), lane, step // share)
            i = step % share * words
            if coin:
                side = draws.word(i)
                i += 1
                if side < stop_below:
                    break
                if side < home_below:
                    at, previous = start, None
                    walk.append(at)
                    edges.append(-1)
                    continue
            listed = range(indptr[at], indptr[at + 1])
            if metapath is not None:
                assert types is not None
                listed = [e for e in listed if types[e] == metapath[step % len(metapath)]]
            if weighted:
                listed = [e for e in listed if weights[e] > 0]
            if not listed:
                break
            table = cells(masses([weights[e] for e in listed])) if weighted else []

            def propose(i: int, draws: _Draws = draws, listed: Any = listed, table: Any = table) -> int:
                entry = draws.below(len(listed), i)
                if weighted and draws.word(i + 1) >= table[entry][0]:
                    entry = table[entry][1]
                return int(listed[entry])

            place = propose(i)
            if second_order and previous is not None and len(listed) > 1:
                known = {
                    indices[e] for e in range(indptr[previous], indptr[previous + 1]) if not weighted or weights[e] > 0
                }
                weight = {e: back if indices[e] == previous else common if indices[e] in known else far for e in listed}
                verdict = draws.word(i + 1 + weighted)
                tries = 1
                while verdict >= weight[place]:
                    if tries == TRIES and not weighted:
                        left = draws.wide_below(sum(weight.values()), SCAN_BLOCK + step % share)
                        for place in listed:
                            if left < weight[place]:
                                break
                            left -= weight[place]
                        break
                    block = 1 + step % share + share * ((tries - 1) // (4 // again))
                    i = 4 * block + (tries - 1) % (4 // again) * again
                    place = propose(i)
                    verdict = draws.word(i + 1 + weighted)
                    tries += 1
            previous, at = at, indices[place]
            walk.append(at)
            edges.append(place)
        rest = length + 1 - len(walk)
        return walk + [-1] * rest, edges + [-1] * (length - len(edges))

    made = [one(lane, start) for lane, start in enumerate(starts)]
    return [walk for walk, _ in made], [edges for _, edges in made]


def negatives(walker: int, count: int, num_nodes: int, *, seed: int = 0, epoch: int = 0, batch: int = 0) -> list[int]:
    """The vertices that are drawn at random for one walker."""
    first, second = batch_key(seed, epoch, batch, NEGATIVE)
    draws = _Draws((first, second), walker, 0)
    return [draws.below(num_nodes, i) for i in range(count)]

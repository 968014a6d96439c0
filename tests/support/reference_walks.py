"""The law of walks once more, in plain Python: slow, and with no line in common with the C++ core.

The random numbers are those of `reference_sampler`; the law is written down in `loader.samplers.WalkSampler` and, word
by word, in csrc/walks/walk.h and csrc/walks/second_order.h.
"""

from __future__ import annotations

from bisect import bisect
from fractions import Fraction
from itertools import accumulate

from reference_picks import cells, masses
from reference_sampler import WORD, batch_key, philox

from loader.graph import Graph

WALK, NEGATIVE = 2, 3  # purposes of the words
PATIENCE, FEW_TRIES, TRIES, MANY_TRIES, MOST_TRIES = 8, 16, 64, 1024, 1 << 24
MANY_COPIES = 3  # as a power of two
KNOWING_BLOCK, COPY_BLOCK, SCAN_BLOCK = 1 << 29, 1 << 30, 1 << 31


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

    def pair_below(self, bound: int, i: int) -> int:
        """By words i and i + 1."""
        product = (self.word(i) + self.word(i + 1) * WORD) * bound
        attempt = 0
        while product % 2**64 < 2**64 % bound:
            attempt += 1
            words = self.block(i, attempt)
            product = (words[0] + words[1] * WORD) * bound
        return product >> 64

    def share(self, others: int, copies: int, each: int, index: int) -> tuple[int, int]:
        """A place in the mass of the others and -1, or the number of a copy of the node before."""
        total = others + copies * each
        fits = total < 2**64
        units = total if fits else -(-total // WORD)
        attempt = 0
        while True:
            words = self.block(index, attempt)
            attempt += 1
            product = (words[0] + words[1] * WORD) * units
            place = product >> 64 if fits else (product >> 64) * WORD + words[2]
            if product % 2**64 < 2**64 % units or place >= total:
                continue
            if place < others:
                return place, -1
            product = words[3] * copies
            redraw = 0
            while product % WORD < WORD % copies:
                redraw += 1
                product = self.block(COPY_BLOCK + index, redraw)[0] * copies
            return 0, product // WORD


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
    """Nodes and places of edges of every walk, -1 where there is none."""
    first, second = batch_key(seed, epoch, batch, WALK)
    indptr, indices = graph.indptr.tolist(), graph.indices.tolist()
    types = None if graph.edge_types is None else graph.edge_types.tolist()
    order = list(range(len(indices)))
    coin, second_order = stop > 0 or restart > 0, (p, q) != (1, 1)
    words = coin + 1 + weighted + second_order
    again = 2 + weighted  # words of another try
    weights = graph.edge_weights.tolist() if weighted and graph.edge_weights is not None else []
    share = 4 // words
    shares = [1 / Fraction(p), Fraction(1), 1 / Fraction(q)]
    back, common, far = (round(x / max(shares) * WORD) for x in shares)
    if second_order and not weighted:  # walks follow sorted lists
        order = [
            e for v in range(graph.num_nodes) for e in sorted(range(indptr[v], indptr[v + 1]), key=indices.__getitem__)
        ]
        indices = [indices[e] for e in order]
    lists = [indices[indptr[v] : indptr[v + 1]] for v in range(graph.num_nodes)]
    most = [max(map(own.count, own), default=1) for own in lists]  # copies
    favorites = [max(sorted(own), key=own.count, default=None) for own in lists]  # the lowest of several
    simple = max(most, default=1) == 1
    rest = max(shares[1:])
    extra = 0 if weighted or not second_order else min(max(0, round((shares[0] / rest - 1) * WORD)), 2**64 - 2**33)
    if extra:
        back, common, far = WORD, *(round(x / rest * WORD) for x in shares[1:])
    stop_below = round(Fraction(stop) * WORD)
    home_below = stop_below + round(Fraction(restart) * WORD)

    def limit(degree: int) -> int:
        if min(common, far) * FEW_TRIES >= WORD:
            return WORD  # never
        return MOST_TRIES if min(common, far) * degree >= WORD else max(TRIES, min(degree, MANY_TRIES))

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
            judged = second_order and previous is not None and len(listed) > 1
            table = cells(masses([weights[e] for e in listed])) if weighted else []
            known = {
                indices[e]
                for e in range(indptr[previous or 0], indptr[(previous or 0) + 1])
                if not weighted or weights[e] > 0
            }
            weight = {e: back if indices[e] == previous else common if indices[e] in known else far for e in listed}
            place, tries = -1, 0
            own = [e for e in listed if indices[e] == previous]  # found where a try needs to know them
            others = [e for e in listed if indices[e] != previous]
            reserved = (most[at] - 1).bit_length()  # copies, as a power of two
            knows, index, j = False, 0, step % share
            if judged and not weighted and (extra or back < WORD) and reserved >= MANY_COPIES:
                others_often = max((lists[at].count(x) for x in set(lists[at]) - {favorites[at]}), default=1)
                reserved = (others_often - 1).bit_length()
                if favorites[at] == previous:
                    knows, tries, index = True, 1, KNOWING_BLOCK + j + share  # the first try is left out
            while True:
                tries += 1
                if weighted or not second_order:
                    entry = draws.below(len(listed), i)
                    if weighted and draws.word(i + 1) >= table[entry][0]:
                        entry = table[entry][1]
                    place, coin_word = listed[entry], draws.word(i + 1 + weighted) if judged else 0
                elif knows:
                    dart, copy = draws.share(len(others) * WORD, len(own), back + extra, index)
                    place, coin_word = (own[copy], 0) if copy >= 0 else (others[dart // WORD], dart % WORD)
                elif judged and extra << reserved > 2**62:
                    knows, place, coin_word = True, listed[0], WORD
                else:
                    mass = len(listed) * WORD
                    dart = draws.pair_below(mass + (extra << reserved if judged else 0), i)
                    place, coin_word = listed[min(dart // WORD, len(listed) - 1)], dart % WORD
                    if dart >= mass:
                        copy = (dart - mass) // extra
                        knows = copy >= len(own)
                        place, coin_word = (listed[0], WORD) if knows else (own[copy], 0)
                if not judged or coin_word < weight[place]:
                    break
                if tries >= PATIENCE and not weighted and not simple and coin_word < WORD:
                    knows |= indices[place] == previous
                if not weighted and tries >= limit(len(listed)):
                    masses_of = [weight[e] for e in others]
                    left, copy = draws.share(sum(masses_of), len(own), back + extra, SCAN_BLOCK + j)
                    place = own[copy] if copy >= 0 else others[bisect(list(accumulate(masses_of)), left)]
                    break
                block = 1 + j + share * ((tries - 1) // (4 // again))
                i = 4 * block + (tries - 1) % (4 // again) * again
                index = KNOWING_BLOCK + j + share * tries
            previous, at = at, indices[place]
            walk.append(at)
            edges.append(order[place])
        rest = length + 1 - len(walk)
        return walk + [-1] * rest, edges + [-1] * (length - len(edges))

    made = [one(lane, start) for lane, start in enumerate(starts)]
    return [walk for walk, _ in made], [edges for _, edges in made]


def negatives(walker: int, count: int, num_nodes: int, *, seed: int = 0, epoch: int = 0, batch: int = 0) -> list[int]:
    """The nodes that are drawn at random for one walker."""
    first, second = batch_key(seed, epoch, batch, NEGATIVE)
    draws = _Draws((first, second), walker, 0)
    return [draws.below(num_nodes, i) for i in range(count)]

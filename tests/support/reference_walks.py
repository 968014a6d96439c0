"""The law of walks once more, in plain Python: slow, and with no line in common with the C++ core.

The random numbers are those of `reference_sampler`; the law is written down in `loader.samplers.WalkSampler` and, word
by word, in csrc/walks/walk.h.
"""

from __future__ import annotations

from fractions import Fraction

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

    def pair_below(self, bound: int, i: int) -> int:
        """By words i and i + 1."""
        product = (self.word(i) + self.word(i + 1) * WORD) * bound
        attempt = 0
        while product % 2**64 < 2**64 % bound:
            attempt += 1
            words = self.block(i, attempt)
            product = (words[0] + words[1] * WORD) * bound
        return product >> 64

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
    lists = [indices[indptr[v] : indptr[v + 1]] for v in range(graph.num_nodes)]
    copies = max((max(map(own.count, own)) for own in lists if own), default=1)
    rest = max(shares[1:])
    extra = round((shares[0] / rest - 1) * WORD)
    folds = second_order and not weighted and extra > 0 and copies <= 16 and 16 * extra <= 2**62
    if folds:
        back, common, far = WORD, *(round(x / rest * WORD) for x in shares[1:])
    else:
        extra = 0
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
            judged = second_order and previous is not None and len(listed) > 1
            table = cells(masses([weights[e] for e in listed])) if weighted else []
            known = {
                indices[e]
                for e in range(indptr[previous or 0], indptr[(previous or 0) + 1])
                if not weighted or weights[e] > 0
            }
            weight = {e: back if indices[e] == previous else common if indices[e] in known else far for e in listed}
            place = -1
            for tries in range(1, TRIES + 1 if not weighted else 10**6):
                if not second_order or weighted:
                    entry = draws.below(len(listed), i)
                    if weighted and draws.word(i + 1) >= table[entry][0]:
                        entry = table[entry][1]
                    place, coin_word = listed[entry], draws.word(i + 1 + weighted) if judged else 0
                else:
                    mass = len(listed) * WORD
                    dart = draws.pair_below(mass + (copies * extra if judged else 0), i)
                    if dart < mass:
                        place, coin_word = listed[dart // WORD], dart % WORD
                    else:
                        back_places = [e for e in listed if indices[e] == previous]
                        copy = (dart - mass) // extra
                        place, coin_word = (back_places[copy], 0) if copy < len(back_places) else (listed[0], WORD)
                if not judged or coin_word < weight[place]:
                    break
                if tries == TRIES and not weighted:
                    heavy = {e: w + extra * (indices[e] == previous) for e, w in weight.items()}
                    left = draws.wide_below(sum(heavy.values()), SCAN_BLOCK + step % share)
                    for place in listed:
                        if left < heavy[place]:
                            break
                        left -= heavy[place]
                    break
                block = 1 + step % share + share * ((tries - 1) // (4 // again))
                i = 4 * block + (tries - 1) % (4 // again) * again
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

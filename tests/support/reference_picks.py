"""The laws of picks by weight and of LABOR once more, in plain Python and in integers of any length."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate, pairwise

from reference_sampler import WORD, Picker, batch_key, philox

from loader.graph import Graph

Choose = Callable[[int, int, int], list[int]]
TURN = 4  # purpose of the words that say when sources have a new number
FROM_ENDS = 1 << 16


def masses(weights: list[float]) -> list[int]:
    """Integers in the proportions of the weights, which are positive; their sum is `len(weights) * 2**32`."""
    degree = len(weights)
    exponent = math.frexp(max(weights))[1]
    scaled = [math.ldexp(w, -exponent) for w in weights]
    total = 0.0
    for w in scaled:
        total += w
    bits = 62 - math.frexp(total)[1]
    a = [int(math.ldexp(w, -exponent + bits)) for w in weights]
    ends = [end * degree * (WORD - 1) // sum(a) for end in accumulate(a, initial=0)]
    return [1 + after - before for before, after in pairwise(ends)]


def cells(mass: list[int]) -> list[tuple[int, int]]:
    """Of each cell how much belongs to its own entry, and whose the rest is."""
    left, dealt = list(mass), [(0, 0)] * len(mass)
    heavy = [i for i, m in enumerate(mass) if m > WORD] + [len(mass)]
    light = [i for i, m in enumerate(mass) if m <= WORD]
    for i in light:
        while left[heavy[0]] <= WORD if heavy[0] < len(mass) else False:  # it has no surplus left
            full = heavy.pop(0)
            dealt[full] = left[full], heavy[0]
            if left[full] < WORD:
                left[heavy[0]] -= WORD - left[full]
        dealt[i] = mass[i], heavy[0]
        if mass[i] < WORD:
            left[heavy[0]] -= WORD - mass[i]
    while heavy[0] < len(mass):
        full = heavy.pop(0)
        dealt[full] = left[full], heavy[0]
        if left[full] < WORD:
            left[heavy[0]] -= WORD - left[full]
    return dealt


Tables = tuple[list[int], list[int], list[tuple[int, int]]]


def tables_of(weights: list[float]) -> Tables:
    """Of one list: the places of its entries that have a weight, their masses and their cells."""
    places = [i for i, w in enumerate(weights) if w > 0]
    mass = masses([weights[i] for i in places]) if places else []
    return places, mass, cells(mass)


def from_tables(picker: Picker, tables: Tables, lane: int, step: int, fanout: int, replace: bool) -> list[int]:
    """Picked places of one list."""
    places, mass, dealt = tables
    degree = len(places)
    if degree == 0 or fanout == -1 or (not replace and degree <= fanout):
        return places
    picked: list[int] = []
    for i in range(fanout if replace else 2 * fanout + 8):
        if len(picked) == fanout:
            break
        cell, rest = divmod(picker.pair_below(degree * WORD, lane, step, i), WORD)
        entry = cell if rest < dealt[cell][0] else dealt[cell][1]
        if replace or entry not in picked:
            picked.append(entry)
    while len(picked) < fanout:
        others = [i for i in range(degree) if i not in picked]
        ends = list(accumulate(mass[i] for i in others))
        place = picker.pair_below(ends[-1], lane, step, FROM_ENDS + len(picked))
        picked.append(others[bisect_right(ends, place)])
    return sorted(places[i] for i in picked)


def heaviest_of(weights: list[float], fanout: int) -> list[int]:
    """Picked places of one list."""
    places = sorted((i for i, w in enumerate(weights) if w > 0), key=lambda i: -weights[i])
    return sorted(places if fanout == -1 else places[:fanout])


def weighted(graph: Graph, replace: bool, seed: int, epoch: int, batch: int) -> Choose:
    picker = Picker(seed, epoch, batch)
    tables: dict[int, Tables] = {}

    def choose(v: int, hop: int, fanout: int) -> list[int]:
        if v not in tables:
            tables[v] = tables_of(_weights(graph, v))
        return from_tables(picker, tables[v], v, hop, fanout, replace)

    return choose


def heaviest(graph: Graph) -> Choose:
    def choose(v: int, _hop: int, fanout: int) -> list[int]:
        return heaviest_of(_weights(graph, v), fanout)

    return choose


def _weights(graph: Graph, v: int) -> list[float]:
    begin, end = graph.indptr[v : v + 2].tolist()
    return graph.edge_weights[begin:end].tolist()


class Numbers:
    """LABOR's random numbers of the sources, in one mini-batch."""

    def __init__(self, seed: int, epoch: int, batch: int, batch_dependency: int = 1) -> None:
        self.period = batch_dependency
        turn, self.phase = divmod(batch, batch_dependency)
        self.keys = [batch_key(seed, epoch, turn + i) for i in range(2)]
        self.turns_key = batch_key(seed, 0, 0, TURN)

    def __call__(self, u: int, step: int) -> int:
        word = philox((u % WORD, u >> 32, 0, 0), self.turns_key)[0]
        turned = self.period > 1 and word * self.period // WORD < self.phase
        low, high, *_ = philox((u % WORD, u >> 32, step, 0), self.keys[turned])
        return low + high * WORD


def labor_of(number: Callable[[int, int], int], sources: list[int], step: int, fanout: int) -> list[int]:
    """Picked places of one list."""
    if fanout == -1 or len(sources) <= fanout:
        return list(range(len(sources)))
    return [i for i, u in enumerate(sources) if number(u, step) * len(sources) < fanout * WORD**2]


def labor(
    graph: Graph, seed: int, epoch: int, batch: int, layer_dependency: bool = False, batch_dependency: int = 1
) -> Choose:
    number = Numbers(seed, epoch, batch, batch_dependency)

    def choose(v: int, hop: int, fanout: int) -> list[int]:
        begin, end = graph.indptr[v : v + 2].tolist()
        return labor_of(number, graph.indices[begin:end].tolist(), 0 if layer_dependency else hop, fanout)

    return choose


QUOTIENT = (  # powers of f, ascending: 2**28 * -log2(1 - f) / f
    387270500, 193635715, 129059894, 97575434, 67943036, 131961057, -228523948, 759000059, -952283399, 671376768
)  # fmt: skip
LAST = 1.7976931348623157e308


def exponential(y: int) -> int:
    """2**57 * -log2(1 - y / 2**64), nearly."""
    halvings = 64 - (WORD**2 - y).bit_length() if y >= WORD**2 // 2 else 0
    fraction = WORD**2 - ((WORD**2 - y) << halvings)
    quotient = 0
    for coefficient in reversed(QUOTIENT):
        quotient = coefficient + (quotient * (fraction >> 32) >> 32)
    return (halvings << 57) + ((fraction * (quotient << 34) >> 64) >> 5)


def race_of(picker: Picker, weights: list[float], lane: int, step: int, fanout: int) -> list[int]:
    """Picked places of one list."""
    times = []
    for i, w in enumerate(weights):
        block = philox((lane % WORD, lane >> 32, step, i // 2), picker.key)
        y = block[i % 2 * 2] + block[i % 2 * 2 + 1] * WORD
        if w > 0:
            times.append((min(float(exponential(y)) / w, LAST), i))
    times.sort()
    return sorted(i for _, i in (times if fanout == -1 else times[:fanout]))


def race(graph: Graph, seed: int, epoch: int, batch: int) -> Choose:
    picker = Picker(seed, epoch, batch)

    def choose(v: int, hop: int, fanout: int) -> list[int]:
        return race_of(picker, _weights(graph, v), v, hop, fanout)

    return choose

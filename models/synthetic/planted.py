"""Graphs of planted classes with heavy-tailed degrees: the edges of `SyntheticDataset`.

A degree-corrected planted partition (Karrer and Newman 2011, arXiv:1008.3926) with Chung-Lu degrees (2002):
in a class of `k` nodes the expected degree of the node of rank `j` is proportional to `(j + offset) **
-skew`, which is a power law of exponent `1 + 1 / skew` cut off by the offset. Both ends of an edge are drawn
by inverting the sum of that in closed form, so drawing takes no table, and edges become distinct by sorting
64-bit keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loader.datasets.transforms import drop_repeats

_CHUNK = 1 << 23  # edges handled at once: bounds the temporary arrays
_MAX_ROUNDS = 60  # of drawing what repeated edges left missing


def class_sizes(num_nodes: int, num_classes: int, class_skew: float) -> NDArray[np.int64]:
    """Sizes proportional to `(rank + 1) ** -class_skew`, each at least 1, the largest first.

    There must be as many nodes as classes.
    """
    share = (np.arange(num_classes) + 1.0) ** -class_skew
    share /= share.sum()
    sizes = np.maximum((share * num_nodes).astype(np.int64), 1)
    sizes[0] += num_nodes - sizes.sum()
    if sizes[0] < sizes.max():  # small classes took more than the largest one has; what is left beside one of each
        sizes = 1 + (share * (num_nodes - num_classes)).astype(np.int64)
        sizes[0] += num_nodes - sizes.sum()
    return sizes


def draw_ranks(rng: np.random.Generator, size: int, count: int, skew: float, start: float) -> NDArray[np.int64]:
    """`count` ranks below `size`, each with a probability proportional to `(rank + start) ** -skew`."""
    power = 1 - skew
    low, high = start**power, (size + start) ** power
    drawn = rng.random(count)
    drawn *= high - low
    drawn += low
    np.power(drawn, 1 / power, out=drawn)
    drawn -= start
    ranks = drawn.astype(np.int64)
    np.clip(ranks, 0, size - 1, out=ranks)
    return ranks


@dataclass(frozen=True)
class PlantedGraph:
    """The plan of a graph: simple and symmetric, with an exact number of edges and an exact maximum degree.

    Attributes:
        sizes: `[num_classes]`, nodes of each class, the largest first.
        num_pairs: undirected edges.
        skew: in [0, 1): 0 gives all nodes the same expected degree, 0.5 a power law of exponent 3, towards
            1 heavier tails.
        max_degree: of the largest hub; None leaves it to skew.
        homophily: share of edges within a class, in [0, 1]; at least what chance gives.
    """

    sizes: NDArray[np.int64]
    num_pairs: int
    skew: float
    max_degree: int | None
    homophily: float

    def __post_init__(self) -> None:
        n = self.num_nodes
        if not 0 <= self.skew < 1:
            raise ValueError(f"skew is {self.skew}; it must be at least 0 and below 1")
        if self.num_pairs > n * (n - 1) // 4:
            raise ValueError(
                f"a mean degree of {2 * self.num_pairs / n:.1f} on {n} nodes; at most {(n - 1) / 2:.1f}, "
                "half of all "
                f"pairs, can be drawn: lower mean_degree"
            )
        chance = self._chance
        if not chance <= self.homophily <= 1:
            raise ValueError(
                f"homophily is {self.homophily}; with these classes it must be {chance:.4f} (what chance gives) to 1"
            )
        if self.max_degree is not None:
            lowest, highest = self._hub_degree(1e12), self._hub_degree(0.0)
            if not lowest <= self.max_degree <= min(2 * highest, n - 1):
                raise ValueError(
                    f"max_degree is {self.max_degree}; with skew {self.skew} it can be {lowest:.0f} to "
                    f"{min(2 * highest, n - 1):.0f}: change one of them, or set max_degree to null"
                )

    @property
    def num_nodes(self) -> int:
        return int(self.sizes.sum())

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draws the edges.

        Returns:
            Ascending distinct keys `low * num_nodes + high` with `low < high`, where the nodes of class 0
            come first, then those of class 1, and so on.

        Raises:
            ValueError: the classes are too small to hold that many distinct edges.
        """
        keys = np.empty(0, dtype=np.int64)
        spare = self.num_pairs // 200 + 100  # what trimming hubs costs, on ordinary graphs
        for _ in range(_MAX_ROUNDS):
            missing = self.num_pairs + spare - keys.size
            if missing > 0:
                keys = np.concatenate([keys, self.draw_pairs(rng, int(missing * 1.03) + 100)])
                keys.sort()
                keys = drop_repeats(keys)
                continue
            if self.max_degree is None:
                return self._thin(rng, keys, hub=None)
            keys = self._trim_hubs(rng, keys, self.max_degree)
            keys, hub = self._fill_hub(rng, keys, self.max_degree)
            if keys.size >= self.num_pairs:
                return self._thin(rng, keys, hub)
            spare *= 2
        raise ValueError(
            f"only {keys.size} of {self.num_pairs} distinct edges could be drawn; lower mean_degree, homophily or skew"
        )

    @property
    def _chance(self) -> float:
        return float(((self.sizes / self.sizes.sum()) ** 2).sum())

    @property
    def _own_class(self) -> float:
        """The probability with which the second end is drawn from the class of the first."""
        return (self.homophily - self._chance) / (1 - self._chance) if self._chance < 1 else 0.0

    @property
    def _offset(self) -> float:
        """The offset of the rank (for a class as large as the graph) that makes the hub's degree `max_degree`."""
        if self.max_degree is None or self.skew == 0:
            return 1.0
        low, high = 0.0, 1e12
        for _ in range(200):
            middle = (low + high) / 2 if high < 1 else float(np.sqrt(max(low, 1e-9) * high))
            low, high = (middle, high) if self._hub_degree(middle) > self.max_degree else (low, middle)
        return high

    def _hub_degree(self, offset: float) -> float:
        """The expected degree of the first node of the largest class, before repeated edges are dropped."""
        size = float(self.sizes[0])
        mean = 2 * self.num_pairs / self.num_nodes
        if self.skew == 0 or offset > 1e11:
            return mean
        power = 1 - self.skew
        start = offset * size / self.num_nodes
        whole = (size + start) ** power - start**power
        return float(size * mean * ((1 + start) ** power - start**power) / whole)

    def draw_pairs(self, rng: np.random.Generator, count: int, *, loops: bool = False) -> NDArray[np.int64]:
        """`count` keys, less those of self loops unless `loops`; repeats included, in no order."""
        share = self.sizes / self.sizes.sum()
        first = rng.multinomial(count, share)  # pairs by the class of their first end
        same = rng.binomial(first, self._own_class)  # of these, with the second end drawn from that class
        anywhere = self._shuffled_nodes(rng, int((first - same).sum()), share)
        parts: list[NDArray[np.int64]] = []
        at = 0
        for c in np.flatnonzero(first).tolist():
            other = int(first[c] - same[c])
            parts.extend(
                self._keys(self._nodes(rng, c, take), self._nodes(rng, c, take), loops)
                for take in _pieces(int(same[c]))
            )
            for take in _pieces(other):
                parts.append(self._keys(self._nodes(rng, c, take), anywhere[at : at + take], loops))
                at += take
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])

    def _shuffled_nodes(self, rng: np.random.Generator, count: int, share: NDArray[np.float64]) -> NDArray[np.int64]:
        by_class = rng.multinomial(count, share)
        drawn = [self._nodes(rng, c, int(by_class[c])) for c in np.flatnonzero(by_class).tolist()]
        nodes = np.concatenate([np.empty(0, dtype=np.int64), *drawn])
        rng.shuffle(nodes)
        return nodes

    def _nodes(self, rng: np.random.Generator, c: int, count: int) -> NDArray[np.int64]:
        """`count` nodes of class `c`, each with the probability of its weight."""
        size = int(self.sizes[c])
        nodes = draw_ranks(rng, size, count, self.skew, self._offset * size / self.num_nodes)
        nodes += int(self.sizes[:c].sum())
        return nodes

    def _keys(self, a: NDArray[np.int64], b: NDArray[np.int64], loops: bool = False) -> NDArray[np.int64]:
        keys = np.minimum(a, b)
        keys *= self.num_nodes
        keys += np.maximum(a, b)
        return keys if loops else keys[a != b]

    def _degrees(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        n = self.num_nodes
        degrees = np.zeros(n, dtype=np.int64)
        for at in range(0, keys.size, _CHUNK):
            low, high = np.divmod(keys[at : at + _CHUNK], n)
            degrees += np.bincount(low, minlength=n)
            degrees += np.bincount(high, minlength=n)
        return degrees

    def _touches(self, keys: NDArray[np.int64], marked: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Positions of the edges with a marked end."""
        found = []
        for at in range(0, keys.size, _CHUNK):
            low, high = np.divmod(keys[at : at + _CHUNK], self.num_nodes)
            found.append(np.flatnonzero(marked[low] | marked[high]) + at)
        return np.concatenate([np.empty(0, dtype=np.int64), *found])

    def _trim_hubs(self, rng: np.random.Generator, keys: NDArray[np.int64], max_degree: int) -> NDArray[np.int64]:
        """Drops random edges of every node that has more than `max_degree`."""
        over = self._degrees(keys) > max_degree
        if not over.any():
            return keys
        edges = self._touches(keys, over)
        low, high = np.divmod(keys[edges], self.num_nodes)
        ends = np.concatenate([low, high])
        edge = np.concatenate([edges, edges])
        luck = np.tile(rng.permutation(edges.size), 2)
        mine = np.flatnonzero(over[ends])
        mine = mine[np.lexsort((luck[mine], ends[mine]))]
        starts = np.flatnonzero(np.diff(ends[mine], prepend=-1))
        rank = np.arange(mine.size) - np.repeat(starts, np.diff(starts, append=mine.size))
        return np.delete(keys, edge[mine[rank >= max_degree]])

    def _fill_hub(
        self, rng: np.random.Generator, keys: NDArray[np.int64], max_degree: int
    ) -> tuple[NDArray[np.int64], int]:
        """Joins the node of the highest degree to further ones, up to `max_degree`."""
        n = self.num_nodes
        degrees = self._degrees(keys)
        hub = int(degrees.argmax())
        missing = max_degree - int(degrees[hub])
        if missing == 0:
            return keys, hub
        marked = np.zeros(n, dtype=bool)
        marked[hub] = True
        low, high = np.divmod(keys[self._touches(keys, marked)], n)
        marked[low] = marked[high] = True
        # Nodes that have reached the maximum themselves must not pass it.
        free = np.flatnonzero(~marked & (degrees < max_degree))
        c = int(np.searchsorted(np.cumsum(self.sizes), hub, side="right"))
        start = int(self.sizes[:c].sum())
        inside = (free >= start) & (free < start + self.sizes[c])
        own = rng.permutation(free[inside])[: round(missing * self._own_class)]
        rest = rng.permutation(np.setdiff1d(free, own, assume_unique=True))[: missing - own.size]
        added = np.concatenate([own, rest])
        keys = np.concatenate([keys, self._keys(np.full(added.size, hub), added)])
        keys.sort()
        return keys, hub

    def _thin(self, rng: np.random.Generator, keys: NDArray[np.int64], hub: int | None) -> NDArray[np.int64]:
        """Drops random edges, none of the hub's, until `num_pairs` are left."""
        surplus = keys.size - self.num_pairs
        if surplus == 0:
            return keys
        stays = np.ones(keys.size, dtype=bool)
        protected = np.zeros(keys.size, dtype=bool)
        if hub is not None:
            marked = np.zeros(self.num_nodes, dtype=bool)
            marked[hub] = True
            protected[self._touches(keys, marked)] = True
        while surplus > 0:
            drop = np.unique(rng.integers(0, keys.size, surplus))
            stays[drop[~protected[drop]]] = False
            surplus = int(np.count_nonzero(stays)) - self.num_pairs
        return keys[stays]


def _pieces(count: int) -> list[int]:
    return [min(_CHUNK, count - at) for at in range(0, count, _CHUNK)]

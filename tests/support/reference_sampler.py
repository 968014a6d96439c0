"""Laws 1 and 2 once more, in plain Python: slow, short, and with no line in common with the C++ core.

The random numbers are Philox 4x32-10 (Salmon et al., SC 2011), made uniform below a bound by Lemire's method (ACM
TOMACS 2019), turned into a subset by Floyd's (CACM 1987).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from loader.graph import Graph
from loader.samples import Block, MiniBatch

WORD = 1 << 32
PICK, ORDER = 0, 1  # purposes of the words


def philox(counter: tuple[int, int, int, int], key: tuple[int, int], rounds: int = 10) -> tuple[int, ...]:
    """One block: four words for a counter of four and a key of two words, lowest word first."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(rounds):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (right >> 32) ^ b ^ k0, right % WORD, (left >> 32) ^ d ^ k1, left % WORD
        k0, k1 = (k0 + 0x9E3779B9) % WORD, (k1 + 0xBB67AE85) % WORD
    return a, b, c, d


def batch_key(seed: int, epoch: int, batch: int, purpose: int = PICK) -> tuple[int, ...]:
    counter = (batch % WORD, batch >> 32, epoch % WORD, epoch >> 32)
    key = seed % WORD, seed >> 32
    return philox((*philox(counter, key)[:3], purpose), key)[:2]


class Picker:
    """The picks of one mini-batch; `redraws` counts the words that Lemire's method refused."""

    def __init__(self, seed: int, epoch: int, batch: int) -> None:
        first, second = batch_key(seed, epoch, batch)
        self.key = first, second
        self.redraws = 0

    def word(self, v: int, hop: int, index: int) -> int:
        return philox((v % WORD, v >> 32, hop, index // 4), self.key)[index % 4]

    def below(self, bound: int, v: int, hop: int, index: int) -> int:
        """Draw number `index` of node `v` at `hop`, uniform in [0, bound)."""
        product = self.word(v, hop, index) * bound
        attempt = 0
        while product % WORD < WORD % bound:  # 2**32 is not a multiple of bound: the surplus words go
            attempt += 1
            self.redraws += 1
            product = philox((v % WORD, v >> 32, hop + (attempt << 24), index), self.key)[0] * bound
        return product // WORD

    def pair_below(self, bound: int, lane: int, step: int, index: int) -> int:
        """Draw number `index` of those that take two words, uniform in [0, bound)."""
        block = philox((lane % WORD, lane >> 32, step, index // 2), self.key)
        words = block[index % 2 * 2] + block[index % 2 * 2 + 1] * WORD
        attempt = 0
        while words * bound % WORD**2 < WORD**2 % bound:
            attempt += 1
            self.redraws += 1
            low, high, *_ = philox((lane % WORD, lane >> 32, step + (attempt << 24), index), self.key)
            words = low + high * WORD
        return words * bound // WORD**2

    def positions(self, v: int, hop: int, degree: int, fanout: int, replace: bool) -> list[int]:
        """Picked places in the neighbor list of `v`, ascending."""
        if degree == 0 or fanout == -1 or (not replace and degree <= fanout):
            return list(range(degree))
        if replace:
            return sorted(self.below(degree, v, hop, i) for i in range(fanout))
        chosen: set[int] = set()
        for i in range(fanout):
            last = degree - fanout + i
            place = self.below(last + 1, v, hop, i)
            chosen.add(last if place in chosen else place)
        return sorted(chosen)


def sample(
    graph: Graph,
    seeds: list[int],
    fanouts: list[int],
    *,
    replace: bool = False,
    edge_ids: bool = False,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    choose: Callable[[int, int, int], list[int]] | None = None,
) -> MiniBatch:
    """The mini-batch that every sampler of the core has to return.

    Args:
        choose: `choose(v, hop, fanout)` gives the picked places in the list of `v`, where picks are not uniform.
    """
    indptr, indices = graph.indptr.tolist(), graph.indices.tolist()
    picker = Picker(seed, epoch, batch)
    frontier, sizes, blocks = list(seeds), [len(seeds)], []
    for hop, fanout in enumerate(fanouts, start=1):
        rows, edges = [0], []
        for v in frontier:
            degree = indptr[v + 1] - indptr[v]
            found = choose(v, hop, fanout) if choose else picker.positions(v, hop, degree, fanout, replace)
            edges += [indptr[v] + p for p in found]
            rows.append(len(edges))
        sources = [indices[e] for e in edges]
        num_dst = len(frontier)
        frontier = frontier + sorted(set(sources) - set(frontier))
        local = {v: i for i, v in enumerate(frontier)}
        ids = torch.tensor(edges, dtype=graph.indptr.dtype)
        if graph.edge_ids is not None:
            ids = graph.edge_ids[ids.long()]
        blocks.append(
            Block(
                torch.tensor(rows, dtype=graph.indptr.dtype),
                torch.tensor([local[u] for u in sources], dtype=graph.indices.dtype),
                len(frontier),
                num_dst,
                ids if edge_ids else None,
            )
        )
        sizes.append(len(frontier))
    nodes = torch.tensor(frontier, dtype=graph.indices.dtype)
    return MiniBatch(nodes, tuple(sizes), tuple(reversed(blocks)), epoch=epoch, index=batch)

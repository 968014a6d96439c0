"""The links of a mini-batch in plain Python: negatives word by word, exclusion edge by edge."""

import math

from reference_sampler import WORD, batch_key, philox

NEGATIVE, TRIES_OF_TARGET, TRIES_OF_PAIR = 3, 64, 4096


def bounded(key, lane, index, m):
    """The first word of block `index`, uniform in [0, m) by multiply-shift with rejection."""
    attempt = 0
    while True:
        product = philox((lane % WORD, lane // WORD, attempt << 24, index), key)[0] * m
        if product % WORD >= WORD % m:  # 2**32 is not a multiple of m: the surplus words go
            return product // WORD
        attempt += 1


def is_negative(edges, u, v):
    return u != v and (u, v) not in edges


def pair(key, lane, num_nodes, edges):
    for t in range(TRIES_OF_PAIR):
        u, v = (bounded(key, lane, 2 * t + end, num_nodes) for end in (0, 1))
        if edges is None or is_negative(edges, u, v):
            return u, v
    raise ValueError("no negative")


def target(key, lane, num_nodes, edges, u):
    for t in range(TRIES_OF_TARGET):
        v = bounded(key, lane, 2 * t + 1, num_nodes)
        if edges is None or is_negative(edges, u, v):
            return v
    free = [v for v in range(num_nodes) if is_negative(edges, u, v)]
    return free[bounded(key, lane, 2 * TRIES_OF_TARGET + 1, len(free))]


def negatives(mode, amount, strict, sources, num_nodes, edges, seed, epoch, batch):
    """(sources, targets) of all negatives; `edges` is a set of pairs."""
    key = batch_key(seed, epoch, batch, NEGATIVE)
    count = math.ceil(len(sources) * amount)
    known = edges if strict else None
    if mode == "binary":
        return [pair(key, i, num_nodes, known) for i in range(count)]
    given = [sources[i // int(amount)] for i in range(count)]
    return [(u, target(key, i, num_nodes, known, u)) for i, u in enumerate(given)]


def excluded(positives, reverse):
    """The pairs between which no edge may stay."""
    return set(positives) | ({(v, u) for u, v in positives} if reverse else set())

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


def pair(key, lane, counts, is_negative):
    for t in range(TRIES_OF_PAIR):
        u, v = (bounded(key, lane, 2 * t + end, count) for end, count in enumerate(counts))
        if is_negative(u, v):
            return u, v
    raise ValueError("no negative")


def target(key, lane, count, is_negative, u):
    for t in range(TRIES_OF_TARGET):
        v = bounded(key, lane, 2 * t + 1, count)
        if is_negative(u, v):
            return v
    free = [v for v in range(count) if is_negative(u, v)]
    return free[bounded(key, lane, 2 * TRIES_OF_TARGET + 1, len(free))]


def negatives(mode, amount, strict, sources, num_nodes, edges, seed, epoch, batch, num_targets=None):
    """(sources, targets) of all negatives; `edges` is a set of pairs. With `num_targets` the ends have two types, of
    which `num_nodes` are sources.
    """
    key = batch_key(seed, epoch, batch, NEGATIVE)
    count = math.ceil(len(sources) * amount)
    counts = num_nodes, num_nodes if num_targets is None else num_targets

    def is_negative(u, v):
        return not strict or ((u != v or num_targets is not None) and (u, v) not in edges)

    if mode == "binary":
        return [pair(key, i, counts, is_negative) for i in range(count)]
    given = [sources[i // int(amount)] for i in range(count)]
    return [(u, target(key, i, counts[1], is_negative, u)) for i, u in enumerate(given)]


def excluded(positives, reverse):
    """The pairs between which no edge may stay."""
    return set(positives) | ({(v, u) for u, v in positives} if reverse else set())

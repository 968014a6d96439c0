"""Functions that say where a walker goes next, for tests: node2vec, walks with memory, by weight, and odd ones."""

from __future__ import annotations

import loader

BACK, COMMON = 2**30, 2**31  # p = 2, q = 0.5: 1/p, 1 and 1/q are as 1/4, 1/2 and 1
BIG = 2**62 + 12345


def deepwalk(walker, lists, draws):
    degree = lists.degree(walker.at)
    if degree == 0:
        return -1
    return lists.neighbor(walker.at, draws.uniform(degree))


def stopping(walker, lists, draws):
    if draws.accept(COMMON // 4) or lists.degree(walker.at) == 0:
        return -1
    return lists.neighbor(walker.at, draws.uniform(lists.degree(walker.at)))


def node2vec(walker, lists, draws):
    degree = lists.degree(walker.at)
    if degree == 0:
        return -1
    while True:
        x = lists.neighbor(walker.at, draws.uniform(degree))
        coin = draws.word()
        if coin < BACK or walker.previous < 0:
            return x
        if x != walker.previous and (coin < COMMON or not lists.has_edge(walker.previous, x)):
            return x


def self_avoiding(walker, lists, draws):
    """Never to one of the last 4 nodes; where there seems to be no other it ends."""
    degree = lists.degree(walker.at)
    walker.memory[walker.step % 4] = walker.at + 1
    for _ in range(10 * (degree > 0)):
        x = lists.neighbor(walker.at, draws.uniform(degree))
        known = False
        for i in range(4):
            if walker.memory[i] == x + 1:
                known = True
                break
        if not known:
            return x
    return -1


def by_weight(walker, lists, draws):
    if lists.degree(walker.at) == 0:
        return -1
    return draws.by_weight(walker.at)


def importance(walker, lists, draws):
    """By weight once more, by rejection: the heaviest edge of the graph is always accepted."""
    degree = lists.degree(walker.at)
    if degree == 0:
        return -1
    while True:
        i = draws.uniform(degree)
        if draws.accept(lists.weight(walker.at, i) + 1):
            return lists.neighbor(walker.at, i)


def restarting(walker, lists, draws):
    """Home again, or anywhere: nodes that are not listed."""
    if draws.accept(COMMON):
        return walker.start if walker.step % 2 else draws.uniform(lists.num_nodes)
    return walker.at


def odd(walker, lists, draws):
    """All that there is, with numbers that overflow."""
    a = draws.word() * BIG - walker.memory[3] * 3 + (walker.memory[0] ^ 5)
    b = a // 7 + a % -11 - (a >> 3) + (a << 5) & ~a | 1
    for i in range(10, -3, -4):
        a += i * b
        if a % 3 == 0:
            continue
        b -= a // (b | 1)
    while b % 5 and not a < b <= a + 10:
        b = b + 1 if b > 0 else -b // 2 + 3
        if b > BIG or (b < -BIG and a != 0):
            break
    walker.memory[abs(a) % 8 if abs(a) >= 0 else 0] += b
    walker.memory[0] = max(a, b, walker.step) - min(a, b)
    c = (a > b) + (walker.previous or 3) + (b and a)
    x = (a ^ b ^ c) % lists.num_nodes
    if lists.has_edge(x, walker.at) or (lists.degree(x) > 2 and lists.has_edge(walker.at, lists.neighbor(x, 1))):
        return (x + 1) % lists.num_nodes
    return x


NEXTS = (deepwalk, stopping, node2vec, self_avoiding, restarting, odd)


def by_python(function) -> loader.Next:
    return loader.Next(function, compiled=False)

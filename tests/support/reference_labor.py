"""LABOR by weights and by importance once more, in plain Python: equation 22 of the paper, solved by bisection."""

from __future__ import annotations

from collections.abc import Sequence

List = Sequence[tuple[int, float]]  # the sources of a list and their weights


def scale_of(entries: List, pi: Sequence[float], fanout: int) -> float:
    """The c with which the variance of a list is that of `fanout` uniform picks."""
    if len(entries) <= fanout:
        return max((1 / p for p in pi), default=0.0)
    total = sum(w for _, w in entries)
    wanted = total**2 / fanout - total**2 / len(entries) + sum(w * w for _, w in entries)
    low, high = 0.0, max(1 / p for p in pi)  # with the latter the variance is less than wanted
    for _ in range(200):
        c = (low + high) / 2
        if sum(w * w / min(1.0, c * p) for (_, w), p in zip(entries, pi, strict=True)) > wanted:
            low = c
        else:
            high = c
    return high


def chances_of(lists: Sequence[List], fanout: int, iterations: int, weighted: bool) -> list[list[float]]:
    """The probability of each entry of each list.

    Args:
        iterations: at least 0; all are made.
        weighted: if not, all weights are 1.
    """
    pi = [[w for _, w in entries] for entries in lists]
    scales = [scale_of(entries, p, fanout) for entries, p in zip(lists, pi, strict=True)]
    if not weighted:  # the first ones are those of LABOR-0 also for short lists
        scales = [fanout / max(len(entries), 1) for entries in lists]
    of_source: dict[int, float] = {}
    for number in range(iterations):
        largest: dict[int, float] = {}
        for entries, c in zip(lists, scales, strict=True):
            for source, w in entries:
                largest[source] = max(largest.get(source, 0.0), c * (w if weighted and number == 0 else 1.0))
        of_source = {u: of_source.get(u, 1.0) * c for u, c in largest.items()}
        pi = [[of_source[u] for u, _ in entries] for entries in lists]
        scales = [scale_of(entries, p, fanout) for entries, p in zip(lists, pi, strict=True)]
    return [
        [1.0 if len(entries) <= fanout else min(1.0, c * p) for p in of_list]
        for entries, of_list, c in zip(lists, pi, scales, strict=True)
    ]

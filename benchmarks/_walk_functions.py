"""Functions of a user that say where a walker goes next, written with no more lines than a user would."""

from __future__ import annotations

from typing import Any

BACK, COMMON = 2**30, 2**31  # p = 2, q = 0.5: the weights 1/p, 1 and 1/q are as 1/4, 1/2 and 1


def deepwalk(walker: Any, lists: Any, draws: Any) -> Any:
    degree = lists.degree(walker.at)
    if degree == 0:
        return -1
    return lists.neighbor(walker.at, draws.uniform(degree))


def node2vec(walker: Any, lists: Any, draws: Any) -> Any:
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


def by_weight(walker: Any, lists: Any, draws: Any) -> Any:
    if lists.degree(walker.at) == 0:
        return -1
    return draws.by_weight(walker.at)

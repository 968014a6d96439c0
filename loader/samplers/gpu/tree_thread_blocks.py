"""The blocks of threads that sample trees on a GPU."""

from __future__ import annotations

import math
from typing import NamedTuple


class TreeBlock(NamedTuple):
    """A block of the kernel, which has a tree at a time. A tree takes longer in a small one, of which more are there at
    once. Measured in docs/measurements/by_hand.md.
    """

    most_edges: float  # of a tree on average, if some trees wait for others
    threads: int
    places: int  # of the table of a tree in shared memory
    ordered: int  # room for new nodes there
    least_edges: float  # of a tree on average, if all trees of a launch are on the GPU at once


BLOCKS: tuple[TreeBlock, ...] = (
    TreeBlock(320, 64, 1024, 512, 0),
    TreeBlock(500, 128, 1024, 1024, 32),
    TreeBlock(math.inf, 256, 1024, 4096, 160),
)
_THREADS_AT_ONCE = 1024  # of a multiprocessor


def block_for(edges: float, trees: int, multiprocessors: int) -> TreeBlock:
    """The block for `trees` trees per launch with room for `edges` edges each."""
    at_once = _THREADS_AT_ONCE * multiprocessors
    fit = [block for block in BLOCKS if trees * block.threads <= at_once and block.least_edges < edges]
    waits = next(block for block in BLOCKS if edges <= block.most_edges)
    return max([waits, *fit], key=lambda block: block.threads)

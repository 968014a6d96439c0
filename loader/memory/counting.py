"""What is counted of mini-batches that were sampled: their rows, and room for those of any others."""

from __future__ import annotations

import math

from torch import Tensor

COUNTED_OF_SPLIT = 10  # mini-batches of each other split, whose largest one counts
_HEADROOM = 1.25  # of rows in flight over the largest mini-batch that was counted, as a sampler's own room
_DEVIATIONS = 8  # over the mean, if that is less, and enough mini-batches were counted to know how they vary
_ENOUGH = 30


def most_rows(counted: Tensor, batches: int) -> int:
    """Room for the rows of any mini-batches, this many together, by the rows of some.

    Mini-batches of training are random draws, and their rows add up from many picks. So eight standard deviations more
    than the mean, of the sum, is more than comes up in any training.
    """
    most = batches * _HEADROOM * int(counted.max())
    if len(counted) >= _ENOUGH:
        rows = counted.double()
        most = min(most, batches * float(rows.mean()) + _DEVIATIONS * math.sqrt(batches) * float(rows.std()))
    return int(most) + batches * 1024

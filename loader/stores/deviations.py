"""Whether the rows of a column still differ in the type in which they are kept."""

from __future__ import annotations

import torch
from torch import Tensor

MOST_LOST = 0.25  # of the deviation of a column; more is refused
_SAMPLED = 1 << 14  # rows, spread over all
_PART = 1 << 22  # numbers that are looked at together
# Rounding alone gives a column a deviation of this share of its largest number, or this one if all are tiny.
_CONSTANT, _LEAST = torch.finfo(torch.float32).eps, torch.finfo(torch.float32).tiny


def sample_of(rows: Tensor) -> slice:
    """The rows that are looked at."""
    return slice(None, None, max(1, -(-rows.shape[0] // _SAMPLED)))


def check_deviations(given: Tensor, stored: Tensor, option: str, dtype: torch.dtype) -> None:
    """Raises ValueError if what is lost of a column is large beside its deviation.

    An error that is small beside the numbers may leave nothing of their differences: int8 makes all numbers from 997 to
    1003 one. Columns that are constant may lose what they do.

    Args:
        given: `[n, columns]`, a sample of the rows. What is not finite in both counts for nothing.
        stored: the same rows as they are read.
        option: that says in which type they are kept or read.
        dtype: its value.
    """
    step = max(1, _PART // max(1, given.shape[0]))
    for begin in range(0, given.shape[1], step):
        here = slice(begin, begin + step)
        part = given[:, here].double()
        as_read = stored[:, here].double()
        finite = part.isfinite() & as_read.isfinite()
        count = finite.sum(0).clamp_min(1)
        part = part.where(finite, 0)
        mean = part.sum(0) / count
        deviation = ((part - mean).square().where(finite, 0).sum(0) / count).sqrt()
        error = ((as_read - part).square().where(finite, 0).sum(0) / count).sqrt()
        lost = error.div(deviation).where(deviation > (_CONSTANT * part.abs().amax(0)).clamp_min(_LEAST), 0)
        column = int(lost.argmax())
        if lost[column] > MOST_LOST:
            raise ValueError(
                f"{option} is {dtype}, and would lose {float(error[column]):.2g} of numbers of column "
                f"{begin + column} of features, more than {MOST_LOST:.0%} of their standard deviation of "
                f"{float(deviation[column]):.2g} around {float(mean[column]):.3g}: subtract each column's mean and "
                f"divide by its deviation, or leave {option} null"
            )

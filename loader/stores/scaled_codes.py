"""Rows of 8 bits: codes with scales, and how much of the rows they lose."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from loader.machine.shared import local_ranks

_log = logging.getLogger(__name__)

MOST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}  # the largest code of each type
LARGEST_ERROR = 0.25  # of a column; more is refused
_PART = 1 << 20  # elements that are encoded at a time: those of a thread stay in its cache
_SAMPLED = 1 << 14  # rows by which is decided what has a scale
# A scale for each row takes 4 bytes a row where rows are read, and has to lose this much less than one for each column.
_WORTH_A_ROW = 0.35
_LEAST = torch.finfo(torch.float32).tiny  # a smaller scale has fewer digits, or none where such numbers count as 0
_MOST_GROWTH, _LEAST_GAIN = 4 / 3, 0.9  # of the bytes of a padded row, and of the lines that it is read in


class Loss(NamedTuple):
    """How far decoded rows are from the given ones. The error of a column is the mean of `|decoded - given| / |given|`,
    each at most 1, over its numbers that are not 0. So what is lost shows beside a few large numbers, too.

    Attributes:
        mean: of the errors of all columns.
        largest: error of a column.
        column: which has it.
    """

    mean: float
    largest: float
    column: int


class Scales(NamedTuple):
    """What codes are multiplied by, one multiplication of float32 for each element.

    Attributes:
        of: float32, on the CPU: `[1, columns]`, or `[num_rows, 1]` if there is one for each row.
        by_row: whether that is so.
    """

    of: Tensor
    by_row: bool


def pitch_of(columns: int, line: int) -> int:
    """Bytes from one row of codes to the next: more than `columns` if so a row is read in fewer lines of memory.

    A row is padded if that takes at least a tenth of the lines away, and at most a third more memory.

    Args:
        columns: codes of a row.
        line: bytes that memory is read in; a power of two.
    """
    pitches = {-(-columns // unit) * unit for unit in (2**i for i in range(1, line.bit_length()))}
    fits = [pitch for pitch in pitches if columns < pitch <= columns * _MOST_GROWTH]
    best = min(fits, key=lambda pitch: (lines_of_row(columns, pitch, line), pitch), default=columns)
    packed = lines_of_row(columns, columns, line)
    return best if lines_of_row(columns, best, line) <= _LEAST_GAIN * packed else columns


def lines_of_row(columns: int, pitch: int, line: int) -> float:
    """Lines that a row touches, on average over a table that begins on a line."""
    if not columns:
        return 0.0
    begins = range(0, line, math.gcd(pitch, line))
    return sum(-(-(begin + columns) // line) for begin in begins) / len(begins)


def scales_of(rows: Tensor, dtype: torch.dtype, by_row: bool) -> Scales:
    """The scales of rows `[num_rows, columns]` of a type that float32 holds. Reads all rows, in parts.

    Args:
        rows: on the CPU, with at least one element.
        dtype: a key of `MOST`.
        by_row: a scale for each row, and not for each column.

    Raises:
        ValueError: a number is infinite or NaN.
    """
    most = torch.zeros(rows.shape[0] if by_row else rows.shape[1], dtype=torch.float32)
    for begin, part in _parts(rows):
        magnitudes = part.abs()
        if by_row:
            found = most[begin : begin + len(part)] = magnitudes.amax(1)
        else:
            found = magnitudes.amax(0)
            most = torch.maximum(most, found)
        if not bool(found.isfinite().all()):
            row, column = (int(place) for place in (~part.isfinite()).nonzero()[0])
            raise ValueError(
                f"storage_dtype is {dtype}, and features[{begin + row}, {column}] is {float(part[row, column]):g}; 8 "
                "bits keep finite numbers only: replace it (torch.nan_to_num), or take bfloat16"
            )
    return Scales(_scales(most, dtype).view((-1, 1) if by_row else (1, -1)), by_row)


def encode(rows: Tensor, dtype: torch.dtype, scales: Tensor) -> Tensor:
    """The codes of some rows, `[n, columns]` of `dtype`: the quotients by their scales, rounded to nearest even."""
    most = MOST[dtype]
    quotients = (rows.float() / scales).clamp_(-most, most)
    return (quotients.round_() if dtype == torch.int8 else quotients).to(dtype)


def decode(codes: Tensor, scales: Tensor) -> Tensor:
    """The rows of some codes, float32: as the core's gathers, bit for bit."""
    if codes.is_cuda and codes.dtype == torch.int8:  # one launch; torch multiplies no codes of float8
        return codes * scales
    return codes.float().mul_(scales)


def write_codes(rows: Tensor, dtype: torch.dtype, scales: Scales, to: Tensor) -> Loss:
    """Encodes all rows, in parts, and says what that loses.

    Args:
        rows: `[num_rows, columns]`, on the CPU.
        dtype, scales: as of `scales_of`.
        to: `[num_rows, pitch]` uint8, anywhere. What follows the codes of a row becomes zero.

    Raises:
        ValueError: a column loses too much.
    """
    columns = rows.shape[1]
    lost, count = torch.zeros(2, columns, dtype=torch.float64)
    for begin, part in _parts(rows):
        end = begin + len(part)
        of = scales.of[begin:end] if scales.by_row else scales.of
        codes = encode(part, dtype, of)
        lost_here, counted = _lost(decode(codes, of), part)
        lost += lost_here
        count += counted
        to[begin:end, :columns].copy_(codes.view(torch.uint8))
        to[begin:end, columns:].zero_()
    return _checked(_loss(lost, count), rows, dtype)


def say(dtype: torch.dtype, scales: Scales, loss: Loss) -> None:
    """A line of the log, in the first process of this machine: which scales were chosen, and what is lost."""
    if local_ranks()[0] == 0:
        _log.info(
            "features are kept as %s with a scale for each %s: numbers lose %.2g %% on average, and %.2g %% in column "
            "%d, where it is most",
            str(dtype).removeprefix("torch."),
            "row" if scales.by_row else "column",
            100 * loss.mean,
            100 * loss.largest,
            loss.column,
        )


def better_by_row(rows: Tensor, dtype: torch.dtype) -> bool:
    """Whether a scale for each row loses less of a sample of rows than one for each column, so much that it pays: rows
    then differ in size more than columns do.

    Args:
        rows: `[num_rows, columns]`; the sample is spread over all.
        dtype: a key of `MOST`.
    """
    if rows.shape[0] < 2 or rows.shape[1] < 2:
        return False
    some = rows[:: -(-rows.shape[0] // _SAMPLED)].float().nan_to_num(0, 0, 0)  # what is not finite is refused later
    magnitudes = some.abs()
    losses = []
    for most in (magnitudes.amax(0, keepdim=True), magnitudes.amax(1, keepdim=True)):
        scales = _scales(most, dtype)
        losses.append(_loss(*_lost(decode(encode(some, dtype, scales), scales), some)))
    by_column, by_row = losses
    return by_row.mean < _WORTH_A_ROW * by_column.mean and by_row.largest <= max(LARGEST_ERROR, by_column.largest)


def _scales(most: Tensor, dtype: torch.dtype) -> Tensor:
    """Those with which the largest magnitude becomes the largest code; 1 where all is zero."""
    return torch.where(most > 0, (most / MOST[dtype]).clamp_min(_LEAST), 1.0)


def _parts(rows: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Parts of the rows as float32, each with its first row."""
    step = max(1, _PART // max(1, rows.shape[1]))
    for begin in range(0, rows.shape[0], step):
        yield begin, rows[begin : begin + step].float()


def _lost(decoded: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """`[columns]` each: sums of relative errors, and how many numbers those are of, without zeros. `decoded` is
    overwritten."""
    errors = decoded.sub_(given).div_(given).abs_().clamp_max_(1)  # NaN of a zero
    lost, count = errors.sum(0, dtype=torch.float64), torch.full(errors.shape[1:], len(errors))
    if bool(lost.isnan().any()):  # to look for zeros takes as long as all the rest
        zeros = given == 0
        lost, count = errors.masked_fill_(zeros, 0).sum(0, dtype=torch.float64), count - zeros.sum(0)
    return lost, count


def _loss(lost: Tensor, count: Tensor) -> Loss:
    errors = lost / count.clamp_min(1)
    column = int(errors.argmax())
    return Loss(float(errors.mean()), float(errors[column]), column)


def _checked(loss: Loss, rows: Tensor, dtype: torch.dtype) -> Loss:
    if loss.largest > LARGEST_ERROR:
        column = rows[:, loss.column].float().abs()
        raise ValueError(
            f"storage_dtype is {dtype}, and numbers of column {loss.column} of features would lose {loss.largest:.0%} "
            f"on average, more than {LARGEST_ERROR:.0%}: they reach {float(column.max()):.3g}, and half of them are "
            f"below {float(column.median()):.3g}; clip or rescale them (a logarithm), or take "
            + ("float8 or bfloat16" if dtype == torch.int8 else "bfloat16")
        )
    return loss

"""How a conversion keeps features: as a table, or by their values other than 0 where those are few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loader.datasets.cache_writer import CacheWriter
from loader.datasets.errors import DatasetError
from loader.datasets.non_finite import NotFinite
from loader.datasets.numbers import check_real

_CHUNK_BYTES = 1 << 26  # of features that are in memory at once
_ROOM = 8  # values are kept by themselves if the whole table takes at least this many times their room
_LARGEST = 4 << 30  # bytes of such a table, which is in memory while the dataset is in use
_SPARSE = ("features_shape", "features_indptr", "features_columns", "features_values")

Rows = Iterable[NDArray[np.float32]]


def check_features(features: NDArray[np.generic], what: str) -> None:
    """Raises DatasetError unless they are a table of real numbers; `what` names them in the message."""
    if features.ndim != 2:
        raise DatasetError(f"{what} have shape {list(features.shape)}; they must be [num_nodes, num_features]")
    check_real(features, what)


def rows_at_once(num_features: int) -> int:
    """Rows of features that are in memory at once."""
    return max(1, _CHUNK_BYTES // (4 * max(num_features, 1)))


def checked_rows(
    parts: Iterable[NDArray[np.generic]], who: str, finite: bool, nodes: NDArray[np.int64] | None = None
) -> Iterator[NDArray[np.float32]]:
    """The rows as float32.

    Args:
        parts: the rows of the source, in order, some at a time.
        who: begins the message.
        finite: refuse NaN and what is infinite.
        nodes: the nodes of these rows; None for all.

    Raises:
        DatasetError: features are not finite; it says how many, and in which columns.
    """
    at, wrong = 0, NotFinite(nodes)
    for given in parts:
        with np.errstate(over="ignore"):  # what is too large for float32 is infinite, and refused as that
            part = np.ascontiguousarray(given, dtype=np.float32)
        if finite:
            wrong.look(given, part, at)
        if not wrong.found:  # else only the rest is counted
            yield part
        at += part.shape[0]
    if wrong.found:
        raise DatasetError(f"{who}: {wrong}")


def write_rows(
    writer: CacheWriter,
    shape: tuple[int, int],
    rows: Callable[[], Rows],
    advance: Callable[[int], None],
    prefix: str = "",
) -> None:
    """Writes features of `shape`, in the form that takes less room.

    Bags of words are mostly zeros: a table of coauthor-physics takes 1.1 GB, its values other than 0 a hundredth of
    that. A table stays one if it is mostly filled, or so large that it had better be mapped from its file.

    Args:
        writer: of the conversion.
        shape: `(num_rows, num_features)`.
        rows: gives the rows in parts, each time it is called.
        advance: is told how many rows were read.
        prefix: of the names of the arrays, if a conversion has several tables.
    """
    parts = _sparse_parts(shape, rows(), advance)
    if parts is None:
        write_table(writer, shape, rows(), advance, prefix)
        return
    counts, columns, values = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    writer.write(f"{prefix}features_shape", np.array(shape, dtype=np.int64))
    writer.write(f"{prefix}features_indptr", np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64))))
    writer.write(f"{prefix}features_columns", columns)
    writer.write(f"{prefix}features_values", values)


def write_table(
    writer: CacheWriter, shape: tuple[int, int], rows: Rows, advance: Callable[[int], None], prefix: str = ""
) -> None:
    """Writes features of `shape` part by part, so that they are never in memory as a whole."""
    with writer.stream(f"{prefix}features", shape, np.float32) as out:
        for part in rows:
            out.append(part)
            advance(part.shape[0])


def read_rows(arrays: Mapping[str, Tensor], prefix: str = "") -> Tensor:
    """The table `[num_rows, num_features]` of what `write_rows` or `write_table` wrote."""
    if f"{prefix}features" in arrays:
        return arrays[f"{prefix}features"]
    shape, indptr, columns, values = (arrays[f"{prefix}{name}"] for name in _SPARSE)
    num_rows, num_features = shape.tolist()
    table = torch.zeros(num_rows, num_features, dtype=torch.float32)
    places = torch.repeat_interleave(torch.arange(num_rows) * num_features, indptr.diff())
    table.view(-1)[places + columns.long()] = values
    return table


def _sparse_parts(
    shape: tuple[int, int], rows: Rows, advance: Callable[[int], None]
) -> list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]] | None:
    """Of each part the values other than 0 in every row, their columns and themselves; None if they are too many."""
    size = shape[0] * shape[1] * 4
    if not 0 < size <= _LARGEST:
        return None
    parts, room = [], shape[0] * 8
    for part in rows:
        filled = part.view(np.uint32) != 0  # by their bits: -0.0 is a value
        row, column = np.nonzero(filled)
        parts.append((filled.sum(axis=1, dtype=np.int64), column.astype(np.int32), part[row, column]))
        room += 8 * row.size
        if room * _ROOM > size:
            return None
        advance(part.shape[0])
    return parts

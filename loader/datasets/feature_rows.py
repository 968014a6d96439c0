"""How a conversion keeps features: as a table, or by their values other than 0 where those are few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loader.datasets.cache_writer import CacheWriter

_ROOM = 8  # values are kept by themselves if the whole table takes at least this many times their room
_LARGEST = 4 << 30  # bytes of such a table, which is in memory while the dataset is in use
_SPARSE = ("features_shape", "features_indptr", "features_columns", "features_values")

Rows = Iterable[NDArray[np.float32]]


def write_rows(
    writer: CacheWriter, shape: tuple[int, int], rows: Callable[[], Rows], advance: Callable[[int], None]
) -> None:
    """Writes features of `shape`, in the form that takes less room.

    Bags of words are mostly zeros: a table of coauthor-physics takes 1.1 GB, its values other than 0 a hundredth of
    that. A table stays one if it is mostly filled, or so large that it had better be mapped from its file.

    Args:
        writer: of the conversion.
        shape: `(num_rows, num_features)`.
        rows: gives the rows in parts, each time it is called.
        advance: is told how many rows were read.
    """
    parts = _sparse_parts(shape, rows(), advance)
    if parts is None:
        write_table(writer, shape, rows(), advance)
        return
    counts, columns, values = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    writer.write("features_shape", np.array(shape, dtype=np.int64))
    writer.write("features_indptr", np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64))))
    writer.write("features_columns", columns)
    writer.write("features_values", values)


def write_table(writer: CacheWriter, shape: tuple[int, int], rows: Rows, advance: Callable[[int], None]) -> None:
    """Writes features of `shape` part by part, so that they are never in memory as a whole."""
    with writer.stream("features", shape, np.float32) as out:
        for part in rows:
            out.append(part)
            advance(part.shape[0])


def read_rows(arrays: Mapping[str, Tensor]) -> Tensor:
    """The table `[num_rows, num_features]` of what `write_rows` or `write_table` wrote."""
    if "features" in arrays:
        return arrays["features"]
    shape, indptr, columns, values = (arrays[name] for name in _SPARSE)
    num_rows, num_features = shape.tolist()
    table = torch.zeros(num_rows, num_features)
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

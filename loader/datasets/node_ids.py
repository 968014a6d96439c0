"""The ids that a user's tables have for nodes, and the numbers that nodes have in a graph."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loader.datasets.cache_writer import CacheWriter
from loader.datasets.column_values import is_text, pyarrow, spaced
from loader.datasets.errors import DatasetError
from loader.machine.arguments import shown

_GROUP = 1 << 28  # bytes of ids that are numbered at once: the more, the fewer ids are met in several groups


class IdNumbers:
    """Numbers the ids in several columns, which come in pieces: equal texts get equal numbers.

    Memory: the different ids of every group of pieces, and 4 bytes per row.

    Args:
        names: of the columns, for errors.
        path: of their file.
    """

    def __init__(self, names: Sequence[str], path: Path) -> None:
        self._names, self._path = names, path
        self._waiting: list[list[Any]] = [[] for _ in names]
        self._ids: list[list[Any]] = [[] for _ in names]  # the different ones of each group
        self._codes: list[list[NDArray[np.int32]]] = [[] for _ in names]  # their places there, by row
        self._bytes = 0
        self.rows = 0

    def take(self, *columns: Any) -> None:
        """The next rows, an array of pyarrow of each column.

        Raises:
            DatasetError: an id is missing, or neither text nor a whole number.
        """
        for name, waiting, column in zip(self._names, self._waiting, columns, strict=True):
            if column.null_count:
                at = self.rows + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                raise DatasetError(
                    f"{self._path} has no id in column {name} of row {at + 1}; fill it in, or leave the row out"
                )
            waiting.append(self._checked(name, column))
            self._bytes += column.nbytes
        self.rows += len(columns[0])
        if self._bytes >= _GROUP:
            self._group()

    def _checked(self, name: str, column: Any) -> Any:
        types = pyarrow().types
        if types.is_integer(column.type):
            return column.cast(pyarrow().large_string() if column.type == pyarrow().uint64() else pyarrow().int64())
        if is_text(column.type):
            return column.cast(pyarrow().large_string())
        raise DatasetError(
            f"{self._path}: column {name} has type {column.type}; ids are text or whole numbers: convert it, e.g. by "
            f"pandas: frame['{name}'].astype('Int64')"
        )

    def _group(self) -> None:
        """Numbers what waits, by a thread per column."""
        with ThreadPoolExecutor(len(self._names)) as pool:
            done = list(pool.map(_encoded, self._waiting))
        for number, (ids, codes) in enumerate(done):
            self._check(self._names[number], ids, codes, sum(map(len, self._codes[number])))
            self._ids[number].append(ids)
            self._codes[number].append(codes)
            self._waiting[number] = []
        self._bytes = 0
        pyarrow().default_memory_pool().release_unused()  # or several groups' tables of hashes stay

    def _check(self, name: str, ids: Any, codes: NDArray[np.int32], first: int) -> None:
        """Refuses ids that would be others than those they are meant to be.

        Args:
            ids: the different ones of some rows.
            codes: the place there of each row.
            first: the number of the first row.

        Raises:
            DatasetError: an id has spaces around it, or all are floats of whole numbers.
        """
        if not is_text(ids.type):
            return
        if (places := spaced(ids)).size:
            row = first + int((codes == places[0]).argmax()) + 1
            raise DatasetError(
                f"{self._path}: column {shown(name)} is {shown(ids[int(places[0])].as_py())} in row {row}, with a "
                "space around it, which makes it another id than without; take it out (pandas: read_csv(path, "
                "skipinitialspace=True))"
            )
        if pyarrow("pyarrow.compute").all(pyarrow("pyarrow.compute").match_substring_regex(ids, r"^-?\d+\.0$")).as_py():
            raise DatasetError(
                f"{self._path}: column {name} has numbers such as {ids[0].as_py()}; ids are text or whole numbers: "
                f"convert it, e.g. by pandas: frame['{name}'].astype('Int64')"
            )

    def numbers(self, known: Any | None = None) -> tuple[list[NDArray[np.int32]], Any]:
        """The number of every row of each column, and the ids by number: int64 if that is the plain form of all, else
        large strings.

        Args:
            known: ids that have the first numbers, different ones. The others follow in the order in which they occur
                in the first column, then in the next one. This does not depend on the pieces.
        """
        if self.rows == 0:
            raise DatasetError(f"{self._path} has no rows below the names of its columns; it needs at least one")
        if any(self._waiting):
            self._group()
        given = [] if known is None else [known]
        groups = [ids for column in self._ids for ids in column]
        if len({ids.type for ids in given + groups}) > 1:
            groups = [ids.cast(pyarrow().large_string()) for ids in groups]
            given = [ids.cast(pyarrow().large_string()) for ids in given]
        places = pyarrow().chunked_array(given + groups).dictionary_encode().chunks[len(given) :]
        ids = places[0].dictionary
        found, at = [], 0
        for codes in self._codes:
            column = np.empty(self.rows, dtype=np.int32)
            row = 0
            for part in codes:
                np.take(places[at].indices.to_numpy(), part, out=column[row : row + part.size])
                row, at = row + part.size, at + 1
            codes.clear()
            found.append(column)
        self._ids = []
        return found, ids


def _encoded(parts: Sequence[Any]) -> tuple[Any, NDArray[np.int32]]:
    """The different values, and the place there of each value. Plain texts of whole numbers are encoded as numbers, in
    half the time.
    """
    arrow, values = pyarrow(), pyarrow().chunked_array(parts)
    if values.type == arrow.large_string():
        with contextlib.suppress(arrow.ArrowInvalid):
            ids, codes = _places(values.cast(arrow.int64()))
            # No text of a number is shorter than the plain one: equal sums mean that all are plain, none is "007".
            compute = pyarrow("pyarrow.compute")
            lengths = compute.binary_length(ids.cast(arrow.large_string())).to_numpy()
            if compute.sum(compute.binary_length(values)).as_py() == int(np.bincount(codes) @ lengths):
                return ids, codes
    return _places(values)


def _places(values: Any) -> tuple[Any, NDArray[np.int32]]:
    chunks = values.dictionary_encode().chunks
    return chunks[0].dictionary, np.concatenate([chunk.indices.to_numpy() for chunk in chunks])


@dataclass(frozen=True)
class NodeIds:
    """The ids of the user's tables, by the number of the node.

    Attributes:
        arrays: `ids` `[num_nodes]` int64; or, of ids that are not all whole numbers, `id_texts` `[bytes]` uint8, the
            texts in UTF-8 one after the other, and `id_ends` `[num_nodes]` int64, where each ends.
        digest: of all ids, in their order: equal for equal ids only.
    """

    arrays: dict[str, Tensor]
    digest: str

    def __len__(self) -> int:
        return next(reversed(self.arrays.values())).numel()

    def of(self, nodes: Tensor) -> NDArray[Any]:
        """The ids `[n]` of `nodes` `[n]`: int64, or Python's strings (dtype object)."""
        if "ids" in self.arrays:
            return self.arrays["ids"][nodes].numpy()
        ends = self.arrays["id_ends"]
        last = ends[nodes]
        first = torch.where(nodes > 0, ends[nodes - 1], 0)
        texts = self.arrays["id_texts"].numpy()
        pairs = zip(first.tolist(), last.tolist(), strict=True)
        return np.array([*(texts[a:b].tobytes().decode() for a, b in pairs), None], dtype=object)[:-1]


def write_ids(writer: CacheWriter, ids: Any) -> str:
    """Writes the ids of `IdNumbers.numbers`, and returns their digest."""
    if ids.type == pyarrow().int64():
        writer.write("ids", ids.to_numpy())
    else:
        texts, ends = _texts(ids)
        writer.write("id_texts", texts)
        writer.write("id_ends", ends)
    return digest_of_ids(ids)


def digest_of_ids(ids: Any) -> str:
    """A digest of the texts of all ids, in their order."""
    texts, ends = _texts(ids)
    digest = hashlib.sha256(ends.data)
    digest.update(np.ascontiguousarray(texts).data)
    return digest.hexdigest()


def _texts(ids: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The texts of ids in UTF-8, one after the other, and where each ends."""
    texts_of = ids.cast(pyarrow().large_string())
    _, ends, texts = texts_of.buffers()
    ends = np.frombuffer(ends, dtype=np.int64)[texts_of.offset : texts_of.offset + len(ids) + 1]
    return np.frombuffer(texts or b"", dtype=np.uint8)[ends[0] : ends[-1]], ends[1:] - ends[0]


def read_ids(arrays: dict[str, Tensor], digest: str) -> NodeIds:
    """The ids that `write_ids` wrote."""
    return NodeIds({name: arrays[name] for name in ("ids", "id_texts", "id_ends") if name in arrays}, digest)

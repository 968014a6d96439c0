"""ogbn-papers100M's raw files, read in parts: they hold 83 GB, and few machines have memory for all of it."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from loader.datasets.edge_sorter import PART_EDGES, Part, cut
from loader.datasets.errors import DatasetError
from loader.datasets.node_dataset import SPLITS
from loader.datasets.splits import ids_of

NUM_CLASSES = 172
_SPLIT_FILES = dict(zip(SPLITS, ("train", "valid", "test"), strict=True))
_SKIP = 1 << 24  # bytes that are skipped at once
# What a damaged archive raises, and what a missing array does.
_DAMAGE = (OSError, EOFError, KeyError, ValueError, NotImplementedError, zipfile.BadZipFile, zlib.error)


class PapersFiles:
    """The arrays of `raw/data.npz` and `raw/node-label.npz`, compressed or not.

    Args:
        home: the folder `ogbn_papers100M`.

    Attributes:
        num_nodes: nodes.
        num_edges: directed edges.
        num_features: per node.

    Raises:
        DatasetError: a file is damaged, or holds something else.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._data = home / "raw" / "data.npz"
        with self._readable():
            nodes = self._array(self._data, "num_nodes_list")
            if nodes.size != 1:
                raise ValueError(f"num_nodes_list has {nodes.size} entries; it must have one: there is one graph")
            self.num_nodes = int(nodes.reshape(-1)[0])
            with self._member("edge_index") as (_, shape, dtype):
                if len(shape) != 2 or shape[0] != 2 or dtype.kind not in "iu":
                    raise ValueError(f"edge_index is {dtype} {list(shape)}; it must be integers [2, num_edges]")
                self.num_edges = shape[1]
            with self._member("node_feat") as (_, shape, dtype):
                if len(shape) != 2 or shape[0] != self.num_nodes or dtype.kind != "f":
                    raise ValueError(
                        f"node_feat is {dtype} {list(shape)}; it must be floats [{self.num_nodes}, features]"
                    )
                self.num_features = shape[1]

    def edges(self) -> Iterator[Callable[[], Part]]:
        """Parts of the edges, in order, as functions that give `src, dst`."""
        with self._readable(), self._member("edge_index") as one, self._member("edge_index") as two:
            (src, _, dtype), dst = one, two[0]
            _skip(dst, self.num_edges * dtype.itemsize)
            for begin, end in cut(self.num_edges, PART_EDGES):
                yield partial(_as_read, (_read(src, end - begin, dtype), _read(dst, end - begin, dtype)))

    def features(self, rows: int) -> Iterator[NDArray[np.floating]]:
        """The features of `rows` nodes at a time, in order."""
        with self._readable(), self._member("node_feat") as (file, shape, dtype):
            for begin, end in cut(shape[0], rows):
                yield _read(file, (end - begin) * shape[1], dtype).reshape(end - begin, shape[1])

    def labels(self) -> NDArray[np.generic]:
        """`[num_nodes]`; NaN for a node without a label."""
        with self._readable():
            return self._array(self._home / "raw" / "node-label.npz", "node_label").reshape(self.num_nodes)

    def years(self) -> NDArray[np.generic] | None:
        """The year of each paper; None if there are none."""
        with self._readable():
            with zipfile.ZipFile(self._data) as archive:
                known = "node_year.npy" in archive.namelist()
            return self._array(self._data, "node_year").reshape(self.num_nodes) if known else None

    def splits(self) -> dict[str, Tensor]:
        """The official split, see `NodeDataset`."""
        found: dict[str, Tensor] = {}
        for split, name in _SPLIT_FILES.items():
            with self._readable(), gzip.open(self._home / "split" / "time" / f"{name}.csv.gz", "rt") as file:
                ids = np.loadtxt(file, dtype=np.int64, ndmin=1)
            found[split] = ids_of(ids, self.num_nodes, f"ogbn-papers100M: split {name}")
        return found

    def _array(self, path: Path, name: str) -> NDArray[np.generic]:
        with open(path, "rb") as file, np.load(file) as arrays:  # numpy would leave a damaged file open
            found: NDArray[np.generic] = arrays[name]
            return found

    @contextmanager
    def _member(self, name: str) -> Iterator[tuple[IO[bytes], tuple[int, ...], np.dtype[Any]]]:
        """An array of data.npz as a stream of bytes, its shape and its type."""
        with zipfile.ZipFile(self._data) as archive, archive.open(f"{name}.npy") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran_order, dtype = read(file)
            if fortran_order and len(shape) > 1 and min(shape) > 1:
                raise DatasetError(
                    f"ogbn-papers100M: {name} in {self._data} lies there column by column; save "
                    "numpy.ascontiguousarray of it"
                )
            yield file, shape, dtype

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except DatasetError:
            raise
        except _DAMAGE as error:
            raise DatasetError(
                f"ogbn-papers100M: the files in {self._home} cannot be read ({type(error).__name__}: {error}); copy "
                "them again"
            ) from error


def _as_read(part: Part) -> Part:
    return part


def _read(file: IO[bytes], count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    data = bytearray(count * dtype.itemsize)
    view, got = memoryview(data), 0
    while got < len(data):
        read = file.readinto(view[got:])  # type: ignore[attr-defined]  # zipfile's streams have it, IO[bytes] does not
        if not read:
            raise EOFError(f"the file ends {len(data) - got} bytes early")
        got += read
    return np.frombuffer(data, dtype)


def _skip(file: IO[bytes], size: int) -> None:
    while size:
        read = len(file.read(min(size, _SKIP)))
        if not read:
            raise EOFError(f"the file ends {size} bytes early")
        size -= read

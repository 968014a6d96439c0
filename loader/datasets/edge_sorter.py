"""CSC arrays of more edges than memory holds: the edges come in parts, and are sorted through files.

A distribution sort (Knuth 1998, The Art of Computer Programming 3, 5.2.5 and 5.4.9). Edges go to files by ranges of
their destination. Then each file is sorted in memory, and its lists are appended to the result. Only as many parts
and files are in memory as there are threads. The result is that of `edges_to_csc`. It depends neither on the parts and
their order nor on the number of threads.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from loader.datasets.cache_writer import CacheWriter
from loader.datasets.transforms import check_edge_options, drop_repeats
from loader.machine.cpus import available_cpus

PART_EDGES = 1 << 21  # edges in a part, as far as the sorter decides
_FILE_KEYS = 1 << 24  # edges that a file should have; twice as many are the most that are sorted in memory
_MOST_FILES = 256  # that are open at once
_MOST_NODES = 2**31 - 1
_MOST_THREADS = 32
_LOW = 32  # bits of a key that hold the source

T = TypeVar("T")
Part = tuple[NDArray[np.integer], NDArray[np.integer]]


class EdgeSorter:
    """Takes edges `src[i] -> dst[i]` in parts, and writes `indptr` and `indices` of their graph.

    Memory: 8 bytes per node, and up to 0.3 GiB per thread (measured, docs/measurements/by_hand.md). Disk, in
    `scratch`: 8 bytes per edge, in both directions if `undirected`, besides the result.

    Args:
        num_nodes: number of nodes, below 2^31.
        num_edges: about how many edges will come; decides the number of files.
        scratch: an empty folder.
        undirected, self_loops, parallel_edges: see `edges_to_csc`.
        threads: that work at the same time.
        file_keys: edges that are sorted in memory at once; a range of destinations with more than twice as many is
            split into further files.

    Raises:
        ValueError: an unknown option, or too many nodes.
    """

    def __init__(
        self,
        num_nodes: int,
        num_edges: int,
        scratch: Path,
        *,
        undirected: bool,
        self_loops: str,
        parallel_edges: str,
        threads: int,
        file_keys: int = _FILE_KEYS,
    ) -> None:
        check_edge_options(self_loops, parallel_edges)
        if num_nodes > _MOST_NODES:
            raise ValueError(
                f"the graph has {num_nodes} nodes; at most {_MOST_NODES} are sorted through files: leave out some"
            )
        self.num_nodes = num_nodes
        self.undirected = undirected
        self.self_loops = self_loops
        self.parallel_edges = parallel_edges
        self.threads = threads
        self._file_keys = file_keys
        self._scratch = scratch
        keys = num_edges * (2 if undirected else 1)
        self._files = _Files(scratch, 0, num_nodes, -(-keys // file_keys))

    def take(self, parts: Iterable[Callable[[], Part]], advance: Callable[[int], None] = lambda _: None) -> None:
        """Takes all parts.

        Args:
            parts: functions that give a part, integer ids `src, dst`, each `[edges]`. Threads call them.
            advance: is told how many edges were taken.

        Raises:
            ValueError: an id is out of range, or `src` and `dst` of a part differ in length.
        """
        with self._files as files:
            for keys, ends, count in in_order(self._sorted_part, parts, self.threads):
                files.append(keys, ends)
                advance(count)

    def write(self, writer: CacheWriter, advance: Callable[[int], None] = lambda _: None) -> int:
        """Writes `indptr` and `indices` of all edges that were taken, and removes the files. Call it once.

        Args:
            writer: of the conversion.
            advance: is told of how many nodes the lists were written.

        Returns:
            Number of edges of the graph.
        """
        most = sum(self._files.sizes) + (self.num_nodes if self.self_loops == "add" else 0)
        degrees = np.zeros(self.num_nodes + 1, dtype=np.int64)
        with writer.stream("indices", (most,), np.int32, fewer=True) as out:
            for low, counts, indices in in_order(self._lists, self._split_files(self._files), self.threads):
                degrees[low + 1 : low + 1 + counts.size] = counts
                out.append(indices)
                advance(counts.size)
        np.cumsum(degrees, out=degrees)
        edges = int(degrees[-1])
        writer.write("indptr", degrees if edges > np.iinfo(np.int32).max else degrees.astype(np.int32))
        return edges

    def _sorted_part(self, part: Callable[[], Part]) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """The keys of a part, in both directions if asked for, by the file that they go to."""
        src, dst = part()
        if src.shape != dst.shape or src.ndim != 1:
            raise ValueError(
                f"src has shape {src.shape}, dst {dst.shape}; both must be [num_edges], equally long; correct this part"
            )
        for name, ids in (("src", src), ("dst", dst)):
            if ids.size and (ids.min() < 0 or ids.max() >= self.num_nodes):
                bad = ids.min() if ids.min() < 0 else ids.max()
                raise ValueError(
                    f"{name} holds node {bad}; valid ids are 0 to {self.num_nodes - 1}; correct it, or raise num_nodes"
                )
        count = src.size
        proper = src != dst
        if self.self_loops != "keep" and not proper.all():
            src, dst = src[proper], dst[proper]
            proper = proper[proper]
        keys = _keys(dst, src)
        if self.undirected:
            both = proper.all()
            keys = np.concatenate((keys, _keys(src if both else src[proper], dst if both else dst[proper])))
        return *self._files.grouped(keys), count

    def _split_files(self, files: _Files) -> Iterator[_File]:
        """The files in the order of their destinations; those with too many keys for memory are split."""
        for file in files:
            if file.keys <= 2 * self._file_keys or file.high - file.low <= 1:
                yield file
                continue
            name = f"{file.path.name}-"
            finer = _Files(self._scratch, file.low, file.high, -(-file.keys // self._file_keys), name)
            with finer, open(file.path, "rb") as keys:
                while (part := np.fromfile(keys, np.int64, self._file_keys)).size:
                    finer.append(*finer.grouped(part))
            file.path.unlink()
            yield from self._split_files(finer)

    def _lists(self, file: _File) -> tuple[int, NDArray[np.int64], NDArray[np.int32]]:
        """The first node of a file, the lengths of its lists, and the lists."""
        keys = np.fromfile(file.path, np.int64)
        file.path.unlink()
        if self.self_loops == "add":
            nodes = np.arange(file.low, file.high)
            keys = np.concatenate((keys, _keys(nodes, nodes)))
        keys.sort()
        if self.parallel_edges == "remove":
            keys = drop_repeats(keys)
        firsts = np.searchsorted(keys, np.arange(file.low, file.high + 1) << _LOW)
        return file.low, np.diff(firsts), (keys & (2**_LOW - 1)).astype(np.int32)


class _File:
    """Keys of the destinations from `low` up to `high`."""

    def __init__(self, path: Path, low: int, high: int, keys: int) -> None:
        self.path, self.low, self.high, self.keys = path, low, high, keys


class _Files:
    """Files of equal ranges of destinations."""

    def __init__(self, folder: Path, low: int, high: int, count: int, name: str = "edges-") -> None:
        span = max(high - low, 1)
        self.width = -(-span // min(max(count, 1), _MOST_FILES, span))  # destinations per file
        self.low, self.high = low, high
        self.paths = [folder / f"{name}{number}" for number in range(-(-span // self.width))]
        self.sizes = [0] * len(self.paths)
        self._open: list[Any] = []

    def __enter__(self) -> _Files:
        for path in self.paths:
            self._open.append(open(path, "ab", buffering=0))
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open:
            file.close()
        self._open.clear()

    def __iter__(self) -> Iterator[_File]:
        for number, (path, keys) in enumerate(zip(self.paths, self.sizes, strict=True)):
            low = self.low + number * self.width
            yield _File(path, low, min(low + self.width, self.high), keys)

    def grouped(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The keys by file, and the place after the last one of each file."""
        file = (((keys >> _LOW) - self.low) // self.width).astype(np.uint8)
        order = np.argsort(file, kind="stable")  # of bytes: a radix sort
        return keys[order], np.cumsum(np.bincount(file, minlength=len(self.paths)))

    def append(self, keys: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Appends grouped keys to their files."""
        begin = 0
        for number, end in enumerate(ends.tolist()):
            if end > begin:
                data = keys[begin:end].view(np.uint8).data
                while len(data):  # a plain file takes all, unless the disk is full: then the next write says so
                    data = data[self._open[number].write(data) :]
                self.sizes[number] += end - begin
            begin = end


def sorting_threads() -> int:
    """Threads for an `EdgeSorter`: one per processor of this process, at most 32 for the sake of memory."""
    return min(available_cpus(), _MOST_THREADS)


def in_order(function: Callable[[Any], T], items: Iterable[Any], threads: int) -> Iterator[T]:
    """`map(function, items)` in threads, in order; at most one result per thread waits, besides those in work."""
    if threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[T]] = deque()
        upcoming = iter(items)
        try:
            for item in itertools.islice(upcoming, threads):
                waiting.append(pool.submit(function, item))
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(pool.submit(function, item) for item in itertools.islice(upcoming, 1))
                yield result
                del result
        finally:
            for future in waiting:
                future.cancel()


def cut(count: int, step: int) -> Sequence[tuple[int, int]]:
    """`count` things in pieces of `step`: first and end of each."""
    return [(at, min(at + step, count)) for at in range(0, count, step)]


def _keys(high: NDArray[np.integer], low: NDArray[np.integer]) -> NDArray[np.int64]:
    keys = high.astype(np.int64)
    keys <<= _LOW
    keys |= low.astype(np.int64, copy=False)
    return keys

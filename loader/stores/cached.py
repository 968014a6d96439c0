"""Features in pinned host memory, and those that are read most also in GPU memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from loader import _core
from loader.machine.arguments import as_finite, as_number, as_size
from loader.machine.cpus import available_cpus
from loader.machine.forks import ForkSafeLock
from loader.machine.gpu import cuda_device, current_stream_handle, made_current, require_cuda
from loader.machine.pinning import PinnedTensor
from loader.stores.abilities import Abilities
from loader.stores.base import StoreContext
from loader.stores.host_part import HostPart, Misses
from loader.stores.hotness import count_visits, degree_hotness, pagerank_hotness
from loader.stores.kernel import ALL, KernelStore
from loader.stores.renewal import BYTES_PER_ROW, BYTES_PER_SLOT, Gathers, Renewal
from loader.stores.rows import RowFormat, RowOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

SLOT_BYTES = 4  # of the place of a row in the cache
# A larger table is read more slowly than the bus could carry it: on an H200 random rows of 512 bytes come at 50 GB/s
# from 4 GB, at 29 GB/s from 16 GB and at 20 GB/s from 56 GB. Threads of the host do not mind.
LARGE_TABLE_BYTES = 8 << 30
# Thread blocks that read rows over the bus for a cache that is renewed, if a GPU sampler reads lists over it, too. On
# an H200, epochs of the shape of ogbn-products with a budget of a quarter take 0.357 s with 12 and 0.377 with 16, as
# many as other caches have, if 24 blocks copy lists (kFetchBlocks). If 66 do, it makes no difference. With lists in GPU
# memory and a quarter of the rows they take 0.370 s with 12 and 0.346 with 16.
_BLOCKS_BESIDE_LISTS = 12
_LEAST_THREADS = 4  # fewer bring less than the GPU loses by waiting for them


class CachedFeatures(KernelStore):
    """The hottest rows, which are read most, in GPU memory. The same kernel reads the others over the bus, as
    `PinnedFeatures` does.

    A table `[num_rows]` on the GPU says where each row is. The rows to cache are chosen once, at the start. The choice
    changes how fast a row is read, but not its bytes. See `KernelStore`.

    If there are many ids and the table is large, rows are read in the order in which they lie, as by `PinnedFeatures`.
    If the ids of 16 gathers in a row came in that order, only one gather in 17 checks whether they still do.

    A GPU reads a large table more slowly than the bus could carry its rows: it has to look up the place of each page.
    With `host_threads`, threads of the C++ core gather a part of the rows that are not cached. Copies bring them to the
    GPU while the kernel reads the others. The part follows from how fast both were, see `HostPart`. The bytes stay the
    same. The store is not asynchronous then: a gather waits for the current stream and for its threads, and it raises
    at once if an id is out of range. Several threads of the caller may gather, but take turns.

    With `lookahead`, the cached rows change. A loader that prefetches announces this many gathers together. After each
    of them, the rows that the next ones of the group read stay in the cache, the soonest first (Belady's rule). After
    them stay the hot ones. Rows that come in are copied from those that were gathered, so they do not cross the bus
    twice. A kernel of its own reads the rows that are not cached, on another stream. If the sampler makes fewer than
    `lookahead` mini-batches at a time, the loader samples several groups before it announces them. So more mini-batches
    wait without their features. Gathers on several streams wait for each other.

    Args:
        tensor, device, copy, options: as in `PinnedFeatures`.
        fraction: share of the rows to cache, in [0, 1].
        budget_gib: GPU memory for cached rows and the table of their places, in GiB. Give this or `fraction`.
        hotness: `"degree"` caches the nodes that are in the most neighbor lists, see `degree_hotness`. `"pagerank"`
            caches those with the highest reverse PageRank, see `pagerank_hotness`. `"visits"` caches those that the
            most mini-batches of the context read, see `count_visits`. A tensor `[num_rows]` of scores, for example of
            `k_hop_hotness`, caches the rows with the highest scores.
        host_threads: threads of the host that take part in a gather; 0 for none. None: seven per eight processors for a
            table of more than 8 GiB if there are at least four such threads, else none; none with `lookahead`. With
            threads, at least one row is cached.
        lookahead: mini-batches that are announced together, at most 16, if the loader prefetches. 0: the cache does
            not change.
        context: the graph, and for `"visits"` the mini-batches; `open_store` passes it.

    Attributes:
        num_cached: rows in GPU memory.
        host_threads: as above, without None.
        lookahead: as above; 0 if no row is cached.
        in_place: whether the tensor's own memory was page-locked.

    Raises:
        TypeError, ValueError: as `RowFormat`; both or none of `fraction` and `budget_gib` are given, or the one given
            is out of range or leaves no room for the table of places; `hotness` is none of the above or does not fit
            the rows, or needs a `context` that is not given; `host_threads` is negative or more than 1024; `lookahead`
            is negative or more than 16, or is given together with `host_threads` or with a `dtype` other than that of
            the kept rows.
        RuntimeError: the build or the machine has no CUDA, or the memory could not be locked.
    """

    def __init__(
        self,
        tensor: Tensor,
        device: str | int | torch.device | None = None,
        *,
        fraction: float | None = None,
        budget_gib: float | None = None,
        hotness: str | Tensor = "degree",
        copy: bool = False,
        host_threads: int | None = 0,
        lookahead: int = 0,
        context: StoreContext | None = None,
        **options: Unpack[RowOptions],
    ) -> None:
        rows = RowFormat(tensor, **options)
        rows.choose(tensor)
        self.lookahead = checked_lookahead(rows, lookahead, host_threads)
        self.num_cached = cached_rows(rows, fraction, budget_gib, self.lookahead)
        self.host_threads = 0 if self.lookahead else threads_for(rows, host_threads)
        if self.host_threads and rows.num_rows:
            self.num_cached = max(1, self.num_cached)  # the one that the kernel reads in place of the host's rows
        check_hotness(hotness, rows.num_rows, context)
        require_cuda("features=cached")
        super().__init__(rows, cuda_device(device))
        hot = hottest(hotness, self.num_cached, context)
        with torch.cuda.device(self.device):
            stored = rows.stored(tensor)
            cache = stored[hot].to(self.device)
            slots = torch.full((rows.num_rows,), -1, dtype=torch.int32)
            slots[hot] = torch.arange(self.num_cached, dtype=torch.int32)
            slots = slots.to(self.device)
            table = PinnedTensor(stored, copy=copy and not rows.coded)  # codes begin on a line
            self.in_place = table.tensor is tensor
            with torch.inference_mode(False):  # so that it can be cleared outside of it
                self._hits = torch.zeros(1, dtype=torch.int64, device=self.device)
            self._start(
                table.tensor,
                table.address,
                cache=cache,
                slots=slots if slots.numel() else torch.zeros(1, dtype=torch.int32, device=self.device),
                hits=self._hits,
                release=table.release,
            )
            if not (self.num_cached and rows.dim):  # there is nothing to renew
                self.lookahead = 0
            self._renewal = Renewal(cache, slots, hot) if self.lookahead else None
            beside_lists = context is not None and context.graph.indices.is_pinned()
            if self.lookahead and beside_lists and not is_large(rows):
                self._open().blocks = _BLOCKS_BESIDE_LISTS
        self._gathered = 0
        self._count_lock = ForkSafeLock()
        self._host: HostPart | None = None
        if self.host_threads and rows.num_rows and rows.dim:
            ranges = {"rows_a_range": self._open().rows_a_range, "ranges": _core.miss_ranges}
            self._host = HostPart(table.tensor, self.device, rows, self.host_threads, **ranges)

    @property
    def asynchronous(self) -> bool:
        return self.host_threads == 0

    @property
    def can(self) -> Abilities:
        """What it can do besides gathering."""
        return Abilities(announced=self.lookahead, begun=self.host_threads > 0)

    @property
    def cached_bytes(self) -> int:
        """GPU memory of the cached rows, of the table of their places, and of what `lookahead` needs."""
        per_slot, per_row = _sizes(self._format, self.lookahead)
        return self.num_cached * per_slot + self.num_rows * per_row

    @property
    def hit_rate(self) -> float:
        """Share of the gathered rows that were in GPU memory; NaN before any. Reading it waits for the GPU."""
        self._open()
        torch.cuda.synchronize(self.device)
        with self._count_lock:
            return int(self._hits) / self._gathered if self._gathered else float("nan")

    def reset_hit_rate(self) -> None:
        """Sets the counts behind `hit_rate` to zero."""
        self._open()
        torch.cuda.synchronize(self.device)
        with self._count_lock:
            self._hits.zero_()
            self._gathered = 0
        torch.cuda.synchronize(self.device)

    def gather(self, ids: Tensor) -> Tensor:
        """Returns the rows of `ids`, see `FeatureStore.gather`."""
        if self._renewal is not None:
            self._open()
            ids = self._near(ids)  # which may wait for a copy, and the other gathers need not
            with made_current(self.device), self._renewal.alone():
                return self._renewal.whole(super().gather, ids)
        return super().gather(ids) if self._host is None else self.begin(ids)()

    def begin(self, ids: Tensor) -> Callable[[], Tensor]:
        """Begins a gather and returns what finishes it, on the stream that is the current one then.

        If the next gather is begun before this one is finished, its kernels follow at once, and the threads of the host
        need not wait for its ids. Without such threads, all is done when it is finished.

        Args:
            ids: see `gather`.

        Returns:
            A function without arguments, to be called once. It returns the rows, and raises as `gather`.
        """
        host = self._host
        if host is None:
            return partial(self.gather, ids)
        gatherer, ids = self._open(), self._near(ids)
        with made_current(self.device):
            return host.begin(ids.contiguous(), _Kernels(self, gatherer))

    def begin_together(self, group: Sequence[Tensor]) -> list[Callable[[], Tensor]]:
        """Announces the gathers that come next, in this order, so that the cache can keep what they need.

        Args:
            group: ids of each gather, see `gather`; at most 16 gathers.

        Returns:
            A function per gather, as of `begin`. Without `lookahead`, or in a group of one, the cache does not change.

        Raises:
            ValueError: the group has more than 16 gathers.
        """
        if len(group) > _core.most_together:
            raise ValueError(f"group has {len(group)} gathers; at most {_core.most_together} are announced together")
        renewal = self._renewal
        if renewal is None:
            return [self.begin(ids) for ids in group]
        self._open()
        with made_current(self.device):
            return renewal.begin([self._near(ids).contiguous() for ids in group], self._gathers())

    def close(self) -> None:
        """Waits for the GPU and frees the rows, the threads and their buffers."""
        if self._host is not None:
            self._host.close()
        super().close()
        if self._renewal is not None:
            self._renewal.close()

    def _gathers(self) -> Gathers:
        return _Gathers(self)

    def _launch(
        self,
        gatherer: _core.CudaGatherer,
        ids: Tensor,
        out: Tensor,
        *,
        misses_below: int = ALL,
        marks: Tensor | None = None,
    ) -> None:
        super()._launch(gatherer, ids, out, misses_below=misses_below, marks=marks)
        if marks is None:  # the part of a gather that reads what is cached counts for both
            with self._count_lock:
                self._gathered += ids.numel()

    def __repr__(self) -> str:
        threads = f", host_threads={self.host_threads}" if self.host_threads else ""
        ahead = f", lookahead={self.lookahead}" if self.lookahead else ""
        return f"{super().__repr__()[:-1]}{threads}{ahead})"


class _Gathers:
    """See `loader.stores.renewal.Gathers`."""

    def __init__(self, store: CachedFeatures) -> None:
        self._store = store

    def gather(self, ids: Tensor) -> Tensor:
        return KernelStore.gather(self._store, ids)

    def empty(self, ids: Tensor) -> Tensor:
        return self._store._empty(ids)

    def raise_bad_id(self) -> None:
        self._store._open().raise_bad_id(current_stream_handle(self._store.device.index))

    def mark_misses(self, ids: Tensor) -> Tensor:
        marks = torch.empty((ids.numel() + 31) // 32, dtype=torch.int32, device=ids.device)
        self._store._open().mark_misses(ids, marks, current_stream_handle(ids.device.index))
        return marks

    def read_misses(self, ids: Tensor, marks: Tensor, rows: Tensor) -> None:
        self._store._launch(self._store._open(), ids, rows, marks=marks)

    def read_cached(self, ids: Tensor, rows: Tensor) -> None:
        self._store._launch(self._store._open(), ids, rows, misses_below=0)


class _Kernels:
    """See `loader.stores.host_part.Kernels`."""

    def __init__(self, store: CachedFeatures, gatherer: _core.CudaGatherer) -> None:
        self._store, self._gatherer = store, gatherer

    def find_misses(self, ids: Tensor, first: int) -> Misses:
        device, n = ids.device, ids.numel() if first < self._store.num_rows else 0
        found = torch.zeros(Misses.words(n, ids.dtype, _core.miss_ranges), dtype=torch.int64, device=device)
        positions = torch.empty(n, dtype=torch.int64, device=device)
        self._gatherer.find_misses(ids, first, found, positions, current_stream_handle(device.index))
        return Misses(found, positions)

    def launch(self, ids: Tensor, out: Tensor, *, misses_below: int) -> None:
        self._store._launch(self._gatherer, ids, out, misses_below=misses_below)

    def forget(self) -> None:
        with suppress(ValueError):
            self._gatherer.raise_bad_id(current_stream_handle(self._store.device.index))


def threads_for(rows: RowFormat, host_threads: int | None) -> int:
    """The threads of the host that take part in gathers of these rows.

    Raises:
        TypeError, ValueError: `host_threads` is neither None nor a number of threads.
    """
    if host_threads is not None:
        return as_size("host_threads", host_threads, least=0, most=_core.max_threads)
    cpus = available_cpus()
    threads = cpus - cpus // 8  # on 16 processors, 10 to 15 threads were within 4 % of each other
    return threads if is_large(rows) and threads >= _LEAST_THREADS else 0


def is_large(rows: RowFormat) -> bool:
    """Whether a GPU reads rows of this table more slowly than the bus could carry them."""
    return rows.num_rows * rows.nbytes > LARGE_TABLE_BYTES


def checked_lookahead(rows: RowFormat, lookahead: int, host_threads: int | None) -> int:
    """The number of gathers that are announced together.

    Raises:
        TypeError, ValueError: it is out of range, or the rows or `host_threads` do not allow any.
    """
    lookahead = as_size("lookahead", lookahead, least=0, most=_core.most_together)
    if lookahead and host_threads:
        raise ValueError(
            f"lookahead is {lookahead} and host_threads is {host_threads}; only one of them is possible: give 0 for one"
        )
    if lookahead and rows.dtype != rows.storage_dtype:
        raise ValueError(
            f"lookahead is {lookahead}, rows are kept as {rows.storage_dtype} and returned as {rows.dtype}; with "
            f"lookahead both must be the same: give {'no' if rows.coded else 'only'} storage_dtype, or lookahead=0"
        )
    return lookahead


def _sizes(rows: RowFormat, lookahead: int, row_bytes: int | None = None) -> tuple[int, int]:
    """GPU memory per cached row, and per row of the table."""
    more_per_slot, more_per_row = (BYTES_PER_SLOT, BYTES_PER_ROW) if lookahead else (0, 0)
    stored_bytes = rows.nbytes if row_bytes is None else row_bytes
    return stored_bytes + more_per_slot, SLOT_BYTES + rows.scale_bytes + more_per_row


def cached_rows(
    rows: RowFormat,
    fraction: float | None,
    budget_gib: float | None,
    lookahead: int = 0,
    *,
    row_bytes: int | None = None,
) -> int:
    """The number of rows that a cache of this size holds.

    Args:
        row_bytes: of a row as it is cached, by default as it is stored.
    """
    if (fraction is None) == (budget_gib is None):
        raise ValueError(f"fraction is {fraction} and budget_gib is {budget_gib}; give exactly one of them")
    if fraction is not None:
        if not 0 <= as_number("fraction", fraction) <= 1:
            raise ValueError(f"fraction is {fraction}; it must be in 0 to 1")
        return int(fraction * rows.num_rows)
    assert budget_gib is not None
    budget_gib = as_finite("budget_gib", budget_gib)
    per_slot, per_row = _sizes(rows, lookahead, row_bytes)
    table = rows.num_rows * per_row
    room = int(budget_gib * 2**30) - table
    if room < 0:
        raise ValueError(
            f"budget_gib is {budget_gib}, less than the {table / 2**30:.3g} GiB that the table of {rows.num_rows} "
            "places takes; give more, or use features=pinned"
        )
    return min(rows.num_rows, room // max(per_slot, 1))


def check_hotness(hotness: str | Tensor, num_rows: int, context: StoreContext | None) -> None:
    """Raises TypeError or ValueError unless `hottest` can work with these."""
    if isinstance(hotness, Tensor):
        if hotness.shape != (num_rows,):
            raise ValueError(f"hotness has shape {list(hotness.shape)}; it must have one score for {num_rows} rows")
        return
    if hotness not in ("degree", "pagerank", "visits"):
        raise ValueError(f"hotness is {hotness!r}; it must be 'degree', 'pagerank', 'visits' or a tensor of scores")
    if context is None:
        raise ValueError(
            f"hotness='{hotness}' needs a graph: make the store through open_store(..., context=StoreContext(graph)), "
            "or give a tensor of scores"
        )
    if hotness == "visits" and context.batches is None:
        raise ValueError("hotness='visits' counts mini-batches, and the context has none: StoreContext(graph, batches)")
    if context.graph.num_nodes != num_rows:
        raise ValueError(f"features has {num_rows} rows, the graph {context.graph.num_nodes} nodes")


def hottest(hotness: str | Tensor, count: int, context: StoreContext | None) -> Tensor:
    """`[count]` int64 on the CPU, ascending: the nodes with the highest scores, of equal ones the first."""
    scores = hotness_scores(hotness, context)
    return torch.argsort(scores, descending=True, stable=True)[:count].sort().values


def hotness_scores(hotness: str | Tensor, context: StoreContext | None) -> Tensor:
    """`[num_rows]` on the CPU: a score of each node, for values that `check_hotness` has passed."""
    if isinstance(hotness, Tensor):
        return hotness.cpu()
    assert context is not None
    if hotness == "degree":
        return degree_hotness(context.graph)
    if hotness == "pagerank":
        return pagerank_hotness(context.graph)
    assert context.batches is not None
    return count_visits(context.batches(), context.graph.num_nodes)

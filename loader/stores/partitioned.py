"""Features of which each host of a run has a part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from loader.machine.arguments import as_number, as_size, shown
from loader.machine.devices import as_device
from loader.machine.forks import ForkSafeLock
from loader.machine.hosts import Hosts, hosts_of_run
from loader.machine.lost_processes import LostProcessError
from loader.machine.pages import advise_random
from loader.machine.shared import shared_block
from loader.stores.abilities import Abilities
from loader.stores.base import StoreContext
from loader.stores.cached import SLOT_BYTES, cached_rows, check_hotness, hotness_scores
from loader.stores.device import DeviceFeatures
from loader.stores.exchange import RowExchange
from loader.stores.host import HostFeatures
from loader.stores.memmap import HostRowsInFile, StagedRowsInFile
from loader.stores.rows import RowFormat, RowOptions, StoreOfRows, check_ids, check_range

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Of each host, at most. Fewer could put most hot rows on one host. With more, more pages would lie on two hosts.
_BLOCKS = 32
_COPIED = 64 << 20  # bytes of the cache that are read at once

_stores = 0  # that this process made: all processes of a run make them in the same order


@dataclass
class Traffic:
    """What a `PartitionedFeatures` did in this process, since it was made or since `reset`.

    Attributes:
        exchanges: groups of mini-batches for which rows were exchanged.
        local: rows read of this host's part, counted for each mini-batch.
        cached: rows read of the cache, likewise.
        far: rows that neither has, likewise.
        received: rows that crossed to this process from other hosts. A row that several mini-batches of a group want
            crosses once, to one process of the host.
        sent: rows that crossed from this process to other hosts.
        received_bytes: of those rows.
        id_bytes: of the ids with which this process asked for rows.
    """

    exchanges: int = 0
    local: int = 0
    cached: int = 0
    far: int = 0
    received: int = 0
    sent: int = 0
    received_bytes: int = 0
    id_bytes: int = 0

    def reset(self) -> None:
        """Sets all counts to 0."""
        self.__dict__.update(type(self)().__dict__)


class PartitionedFeatures(StoreOfRows):
    """Features partitioned by host: each host reads its part of the rows, and fetches the others from their hosts.

    The rows are cut into blocks of equal size, at most 32 per host, and the hosts have the blocks in turns. So the
    number of a row says which host has it. A host reads of `tensor` only the rows of its part and those of its cache.
    If `tensor` is mapped from a file, only their pages get into memory, and the processes of a host share them.

    A loader fetches the rows for a group of mini-batches in one exchange, see `RowExchange`. It runs in the thread of
    the stage that gathers, ahead of the training. A row that several mini-batches of the group want, in any process of
    the host, crosses once. The exchange is the idea of SALIENT++ (Kaler et al., "Communication-Efficient Graph Neural
    Networks with Probabilistic Neighborhood Expansion Analysis and Caching", MLSys 2023), and so is the cache: the
    hottest rows of other hosts, chosen once and kept on each host.

    All processes have to make their stores in the same order and with the same options, and their loaders have to take
    equally many mini-batches. All must have the same length of epoch and the same `prefetch`. On one host all rows are
    local, and nothing is exchanged.

    Args:
        tensor: `[num_rows, ...]` of any type, contiguous, on the CPU; usually mapped from a file.
        device: `"cpu"`, or the GPU that rows are gathered to. On a GPU rows cross by NCCL, and the cache lies there.
        fraction: share of all rows that each host caches of the others' rows, in [0, 1].
        budget_gib: memory for cached rows and for the table of their places, in GiB, per host, or on a GPU per process.
            Give this or `fraction`, or none of them for no cache.
        hotness: which rows are cached, see `CachedFeatures`.
        batches_per_exchange: mini-batches of each process whose rows are fetched together, at least 1. The first
            mini-batch of an epoch is fetched by itself.
        timeout: seconds that a process waits for the others, greater than 0.
        num_threads: threads of one gather by the CPU, see `HostFeatures` and `StagedFeatures`.
        hosts: of the run, by default as `loader.machine.hosts.hosts_of_run` finds them.
        context: the graph, and for `hotness="visits"` the mini-batches; `open_store` passes it.
        options: see `RowOptions`. Rows cross, and are cached, in `dtype`. With another `storage_dtype` than that of
            `tensor`, each host converts all rows once, to a file beside theirs (`stored_in_file`).

    Attributes:
        hosts: of the run.
        num_cached: rows of other hosts that this host keeps.
        collective: whether rows are exchanged: on several hosts. All processes then gather together.
        together: mini-batches whose rows are fetched together; 1 on one host.
        traffic: counts of rows and bytes.

    Raises:
        TypeError, ValueError: an option is out of range; and as `RowFormat`, `CachedFeatures` and `hosts_of_run`.
        RuntimeError: `device` is a GPU, and the build or the machine has no CUDA.
    """

    serves_alone = True  # not one store of several, one for each type: other processes would be waited for

    def __init__(
        self,
        tensor: Tensor,
        device: str | int | torch.device = "cpu",
        *,
        fraction: float | None = None,
        budget_gib: float | None = None,
        hotness: str | Tensor = "degree",
        batches_per_exchange: int = 4,
        timeout: float = 600.0,
        num_threads: int | None = None,
        hosts: Hosts | None = None,
        context: StoreContext | None = None,
        **options: Unpack[RowOptions],
    ) -> None:
        global _stores
        rows = self._format = RowFormat(tensor, **options)
        together = as_size("batches_per_exchange", batches_per_exchange)
        self._timeout = as_number("timeout", timeout)
        if not 0 < self._timeout <= 86400:
            raise ValueError(f"timeout is {timeout}; it must be greater than 0 and at most 86400 seconds, a day")
        if hosts is not None and not isinstance(hosts, Hosts):
            raise TypeError(f"hosts is {shown(hosts)}; it must be a loader.machine.hosts.Hosts, or None")
        self.hosts = hosts_of_run() if hosts is None else hosts
        self.collective = self.hosts.num_hosts > 1 and rows.dim > 0
        self.together = together if self.collective else 1
        self._block = max(1, -(-rows.num_rows // (self.hosts.num_hosts * _BLOCKS)))
        self._row_bytes = rows.dim * rows.dtype.itemsize  # as rows cross, and as they are cached
        count = 0
        if fraction is not None or budget_gib is not None:
            count = cached_rows(rows, fraction, budget_gib, row_bytes=self._row_bytes)
        self._asked = count  # which hosts share; those with a smaller part have more rows of others to cache
        self.num_cached = min(count, rows.num_rows - self._num_own()) if self.collective else 0
        if self.num_cached:
            check_hotness(hotness, rows.num_rows, context)
        self._local: HostRowsInFile | StagedRowsInFile
        if as_device(device).type == "cpu":
            self._local = HostRowsInFile(tensor, num_threads, **options)
        else:
            self._local = StagedRowsInFile(tensor, device, num_threads=num_threads, **options)
        self._format = self._local._format
        self._device = self._local.device
        if self.collective:
            advise_random(self._local.tensor)
        _stores += 1
        self._cache: HostFeatures | DeviceFeatures | None = None
        self._slots: Tensor | None = None
        if self.num_cached:
            self._fill_cache(tensor, hotness, context, num_threads, options)
        self._id_type = torch.int32 if rows.num_rows < 2**31 else torch.int64
        self.traffic = Traffic()
        self._own: RowExchange | None = None  # of `gather`
        self._lost: LostProcessError | None = None
        self._closed = False
        self._lock, self._count_lock = ForkSafeLock(), ForkSafeLock()

    @property
    def asynchronous(self) -> bool:
        return False

    def owners(self, ids: Tensor) -> Tensor:
        """`[n]` int64: the numbers of the hosts that have the rows of `ids`, `[n]` int32 or int64."""
        return torch.div(ids, self._block, rounding_mode="floor").remainder_(self.hosts.num_hosts).long()

    def crossing(self, ids: Tensor) -> Tensor:
        """`[m]` ascending: which of `ids`, `[n]` int32 or int64 on `device`, neither this host nor its cache has.

        Each of them once: these rows have to cross to this host.
        """
        return torch.unique(_Parts(self._checked(ids), self).far_ids())

    @property
    def can(self) -> Abilities:
        """What it can do besides gathering."""
        return Abilities(collective=self.collective, together=self.together)

    def open_exchange(self) -> RowExchange | None:
        """Groups of processes for one loader, or None on one host. All processes call this together.

        Raises:
            RuntimeError, ValueError: see `RowExchange`.
            LostProcessError: another process ended before, or did not come in time.
        """
        self._require_open()
        if not self.collective:
            return None
        if self._lost is not None:
            raise self._lost
        agreed: dict[str, int | str] = {
            "the number of rows": self.num_rows,
            "the bytes of a row": self._row_bytes,
            "dtype": str(self.dtype),
            "storage_dtype": str(self.storage_dtype),
            "batches_per_exchange": self.together,
            "the number of cached rows": self._asked,
        }
        return RowExchange(self.hosts, self.device, agreed, self._timeout)

    def gather(self, ids: Tensor) -> Tensor:
        """Returns the rows of `ids`, see `FeatureStore.gather`.

        On several hosts all processes call it together, each with ids of its own.

        Raises:
            TypeError: `ids` is neither int32 nor int64.
            ValueError: an id is out of range.
            RuntimeError: the store was closed, or see `RowExchange`.
            LostProcessError: another process ended, or did not come in time.
        """
        with self._lock:
            if self._own is None:
                self._own = self.open_exchange()
            (rows,) = self.gather_together([ids], self._own)
        return rows

    def gather_together(self, group: Sequence[Tensor], exchange: RowExchange | None) -> list[Tensor]:
        """The rows of several mini-batches, of which those of other hosts come in one exchange.

        Args:
            group: ids of each, as for `gather`; none, to only take part for the sake of the other processes.
            exchange: which `open_exchange` returned; one thread at a time uses it.

        Returns:
            `[n, *row_shape]` for each.

        Raises:
            See `gather`. After an error about `ids`, this process has taken part in the exchange, too.
        """
        self._require_open()
        if exchange is None:
            return [self._local.gather(ids) for ids in group]
        try:
            parts = [_Parts(self._checked(ids), self) for ids in group]
        except (TypeError, ValueError):
            self._fetch([], exchange)  # which the others wait for
            raise
        fetched = self._fetch(parts, exchange)
        return [self._put_together(part, rows) for part, rows in zip(parts, fetched, strict=True)]

    def check(self) -> None:
        """Does nothing: `gather` raises its errors itself."""

    def close(self) -> None:
        """Frees threads and cache, and leaves the groups of processes that `gather` made."""
        if self._closed:
            return
        self._closed = True
        self._local.close()
        if self._cache is not None:
            self._cache.close()
        if self._own is not None:
            self._own.close()
        self._cache = self._slots = self._own = None

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("this PartitionedFeatures was closed; make a new one")

    def _fetch(self, parts: Sequence[_Parts], exchange: RowExchange) -> list[Tensor]:
        """The rows of other hosts that each of the parts wants, in the order of its ids."""
        far = [part.far_ids() for part in parts]
        together = torch.cat(far) if far else torch.empty(0, dtype=self._id_type, device=self.device)
        wanted, places = torch.unique(together, return_inverse=True)
        received, sent = exchange.received, exchange.sent
        try:
            rows = exchange.swap(wanted, self.owners, self._read_own)
        except LostProcessError as error:
            self._lost = error
            raise
        traffic = self.traffic
        with self._count_lock:
            traffic.exchanges += 1
            traffic.received += exchange.received - received
            traffic.sent += exchange.sent - sent
            traffic.received_bytes += (exchange.received - received) * self._row_bytes
            traffic.id_bytes += (exchange.received - received) * self._id_type.itemsize
        found = rows.view(self.dtype).view(rows.shape[0], *self.row_shape)
        return [found[some] for some in places.split([ids.numel() for ids in far])]

    def _read_own(self, ids: Tensor) -> Tensor:
        rows = self._local.gather(ids)
        return rows.reshape(rows.shape[0], self.dim).view(torch.uint8)

    def _put_together(self, part: _Parts, fetched: Tensor) -> Tensor:
        """The rows of one mini-batch."""
        out = torch.empty((part.ids.numel(), *self.row_shape), dtype=self.dtype, device=self.device)
        out[part.own] = self._local.gather(part.ids[part.own])
        if part.cached is not None:
            assert self._cache is not None
            assert part.slots is not None
            out[part.cached] = self._cache.gather(part.slots)
        out[part.far] = fetched
        with self._count_lock:
            self.traffic.local += part.own.numel()
            self.traffic.cached += 0 if part.cached is None else part.cached.numel()
            self.traffic.far += part.far.numel()
        return out

    def _checked(self, ids: Tensor) -> Tensor:
        """The ids on the device, in the type in which they cross."""
        check_ids(ids)
        if ids.numel():
            low, high = (int(x) for x in torch.aminmax(ids))
            if low < 0 or high >= self.num_rows:
                check_range(ids, self.num_rows)
        return ids.to(self.device, self._id_type)

    def _num_own(self) -> int:
        """Rows of this host's part."""
        whole, rest = divmod(self.num_rows, self._block * self.hosts.num_hosts)
        return whole * self._block + min(max(rest - self.hosts.host * self._block, 0), self._block)

    def _hottest(self, hotness: str | Tensor, context: StoreContext | None) -> Tensor:
        """`[num_cached]` int64 ascending: the hottest rows of other hosts; of equally hot ones the first."""
        scores = hotness_scores(hotness, context)
        others = (self.owners(torch.arange(self.num_rows)) != self.hosts.host).nonzero().view(-1)
        order = torch.argsort(scores[others], descending=True, stable=True)
        return others[order[: self.num_cached]].sort().values

    def _fill_cache(
        self,
        tensor: Tensor,
        hotness: str | Tensor,
        context: StoreContext | None,
        num_threads: int | None,
        options: RowOptions,
    ) -> None:
        """Reads the cached rows; the processes of a host share them, and the table of their places."""
        table = self.num_rows * SLOT_BYTES
        begin = -(-table // 128) * 128
        shape, dtype = (self.num_cached, *self.row_shape), self.dtype
        size = begin + math.prod(shape) * dtype.itemsize

        def fill(memory: Tensor) -> None:
            hot = self._hottest(hotness, context)
            slots = memory[:table].view(torch.int32).fill_(-1)
            slots[hot] = torch.arange(self.num_cached, dtype=torch.int32)
            rows = memory[begin:].view(dtype).view(shape)
            source = HostRowsInFile(tensor, num_threads, **options)
            some = max(1, _COPIED // max(1, self._format.nbytes))
            for part, ids in zip(rows.split(some), hot.split(some), strict=True):
                part.copy_(source.gather(ids))
            source.close()

        memory = shared_block(("rows of other hosts", self.hosts.host, self.hosts.num_hosts, _stores), size, fill)
        if memory is None:
            memory = torch.zeros(size, dtype=torch.uint8)
            fill(memory)
        slots, rows = memory[:table].view(torch.int32), memory[begin:].view(dtype).view(shape)
        if self.device.type == "cpu":
            self._slots, self._cache = slots, HostFeatures(rows, num_threads)
        else:
            self._slots, self._cache = slots.to(self.device), DeviceFeatures(rows, self.device)

    def __getstate__(self) -> dict[str, Any]:
        """A copy exchanges through groups of its own."""
        return {**self.__dict__, "_own": None}

    def __repr__(self) -> str:
        where = (
            f"device='{self.device}', host {self.hosts.host} of {self.hosts.num_hosts}, num_cached={self.num_cached}"
        )
        return f"PartitionedFeatures({self._format.describe()}, {where})"


class _Parts:
    """Where the rows of a mini-batch are.

    Attributes:
        ids: `[n]`.
        own, cached, far: places in `ids` of rows of this host, of the cache and of other hosts; no cache: None.
        slots: places in the cache, for `cached`.
    """

    def __init__(self, ids: Tensor, store: PartitionedFeatures) -> None:
        self.ids = ids
        own = store.owners(ids) == store.hosts.host
        self.own = own.nonzero().view(-1)
        self.cached = self.slots = None  # type: Tensor | None
        if store._slots is None:
            self.far = (~own).nonzero().view(-1)
            return
        slots = store._slots[ids.long()]
        is_cached = slots >= 0
        self.cached = is_cached.nonzero().view(-1)
        self.slots = slots[self.cached]
        self.far = (~(own | is_cached)).nonzero().view(-1)

    def far_ids(self) -> Tensor:
        """The ids of rows of other hosts."""
        return self.ids[self.far]

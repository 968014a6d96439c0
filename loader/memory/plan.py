"""What a budget of GPU memory holds: the sampler's workspace, mini-batches in flight, and of the lists and rows those
with which the fewest bytes cross the bus. Nothing here allocates anything or needs a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from loader.graph import Graph, HeteroGraph
from loader.machine.arguments import as_number, shown
from loader.machine.gpu import COUNTED_BEYOND, counted_bytes
from loader.memory.split import Reads, Split, split_memory
from loader.samplers.base import AnyGraph
from loader.samplers.gpu.memory_needs import SamplerNeeds
from loader.samplers.gpu.sizes import GpuOptions
from loader.stores.renewal import BYTES_PER_ROW, BYTES_PER_SLOT
from loader.stores.tensor import narrowest_dtype

GATHER_BYTES, GATHER_ROW_BYTES = 2**16, 4  # of a gather, and beside them for each row
_GIB = 2**30


def as_memory(memory: Any, name: str = "memory") -> str | int | None:
    """The option `memory`: None, "auto", or a budget in bytes for a number of GiB; `name` is what messages call it.

    Raises:
        TypeError: it is neither of these.
        ValueError: it is another word, negative, infinite or NaN.
    """
    if memory is None or memory == "auto":
        return memory
    if isinstance(memory, str):
        raise ValueError(f"{name} is {shown(memory)}; it must be 'auto', or a number of GiB")
    gib = as_number(name, memory)
    if not 0 <= gib < math.inf:
        raise ValueError(f"{name} is {memory}; it must be 'auto', or a finite number of GiB from 0 on")
    return int(gib * _GIB)


class MemoryNeeds(NamedTuple):
    """What training takes of the GPU's memory, whatever is kept of lists and rows. In bytes.

    Attributes:
        workspace: of the samplers.
        tables: what is there once: `indptr`, edge ids, labels, and the seeds of all splits.
        outstanding: arrays of mini-batches in flight, but for their feature rows.
        outstanding_rows: these; 0 until mini-batches were counted.
        host_part: of a gather in which threads of the host take part; 0 if none do.
    """

    workspace: int
    tables: int
    outstanding: int
    outstanding_rows: int = 0
    host_part: int = 0

    @classmethod
    def of(
        cls,
        samplers: Sequence[tuple[GpuOptions, Sequence[int]]],
        graph: AnyGraph,
        labels: Tensor,
        splits: Sequence[int],
        prefetch: int,
        begun: int = 0,
        loaders: int = 2,
        lookahead: int = 0,
    ) -> MemoryNeeds:
        """The needs of the samplers on one GPU, without rows.

        Args:
            samplers: each with the sizes of its mini-batches, in seeds.
            graph: only its sizes are read.
            labels: they are kept in the narrowest type that holds them.
            splits: numbers of seeds that lie on the GPU.
            prefetch: of the loaders.
            begun: gathers that each of them begins ahead.
            loaders: that may hold mini-batches at a time: that of training and, amid its epoch, that of validation.
            lookahead: gathers that are announced together.

        Raises:
            ValueError: as `SamplerNeeds.of`.
        """
        found = [SamplerNeeds.of(sampler, graph, sizes) for sampler, sizes in samplers]
        lists = graph.lists if isinstance(graph, HeteroGraph) else graph
        together = max(lookahead, *(sampler.batches_per_launch for sampler, _ in samplers))
        most = max(size for _, sizes in samplers for size in sizes)
        label_bytes = labels.numel() * narrowest_dtype(labels).itemsize
        label = (label_bytes + labels.nbytes) // max(len(labels), 1)
        batches, _ = outstanding_batches(prefetch, together, begun, loaders)
        tables = counted_bytes(lists.indptr.nbytes) + counted_bytes(label_bytes)
        tables += sum(counted_bytes(count * lists.indices.itemsize) for count in splits)
        for sampler, _ in samplers:
            if sampler.edge_ids and lists.edge_ids is not None:
                tables += counted_bytes(lists.edge_ids.nbytes)
        # Beside each mini-batch its seeds, their positions in the order and their labels, for a group at a time.
        small = counted_bytes(together * most * (3 * 8 + label))
        return cls(
            sum(needs.workspace for needs in found),
            tables,
            batches * (max(needs.batch for needs in found) + small),
        )

    def with_rows(
        self,
        rows: Callable[[int], int],
        row_bytes: int,
        prefetch: int,
        loaders: int = 2,
        host_part: Callable[[int], int] | None = None,
        announced: int = 0,
    ) -> MemoryNeeds:
        """These needs with the rows of mini-batches in flight.

        Args:
            rows: of this many mini-batches together, at most.
            row_bytes: of a row as it is returned.
            prefetch, loaders: see `of`.
            host_part: what the host's threads take of the GPU's memory in a gather of this many rows, if they help. One
                gather is finished at a time, and one more may be begun.
            announced: mini-batches of a loader whose gathers are announced together; 0 if none are.
        """
        begun, beside = (1, host_part(rows(1))) if host_part else (0, 0)
        batches = outstanding_batches(prefetch, 1, begun, loaders)[1]
        # Of each, its rows and what their gather takes; with what the allocator may count beyond them.
        extra = 2 * COUNTED_BEYOND + GATHER_BYTES
        taken = rows(batches) * (row_bytes + GATHER_ROW_BYTES) + batches * extra
        if announced:
            # A byte for each of their rows, in one array per group: the last ones of two groups may wait. And a bit
            # for each row of a gather.
            taken += loaders * (2 + prefetch // announced) * counted_bytes(rows(announced))
            taken += batches * counted_bytes((rows(1) + 7) // 8)
        return self._replace(outstanding_rows=taken, host_part=beside)

    @property
    def total(self) -> int:
        return sum(self)

    def __str__(self) -> str:
        rows = f", {readable(self.outstanding_rows)} for their rows" if self.outstanding_rows else ""
        rows += f", {readable(self.host_part)} for the host's part of a gather" if self.host_part else ""
        return (
            f"{readable(self.workspace)} for the sampler's workspace, {readable(self.outstanding)} for mini-batches in "
            f"flight{rows}, {readable(self.tables)} for labels, seeds and the places of the lists"
        )


def outstanding_batches(prefetch: int, together: int, begun: int = 0, loaders: int = 2) -> tuple[int, int]:
    """The most mini-batches that take GPU memory at one time, and those of them that have their rows.

    The consumer has one, and the GPU may still work on `prefetch` before it. If validation comes amid an epoch, the
    loader of training keeps what it has prefetched, and the GPU may still work on its last ones: then these are two
    `loaders`. `begun`: gathers that each begins ahead, if it prefetches. A loader that does not prefetch makes one
    while the consumer has the one before.
    """
    if not prefetch:
        return loaders + 1, loaders + 1
    consumed = prefetch + 1  # as `Pipeline.max_consumed`
    ready = 2 * prefetch + begun + together - 1  # of its stages, as `Pipeline.max_items`
    return loaders * (ready + consumed), loaders * (prefetch + begun + consumed)


class NarrowerPlan(NamedTuple):
    """What the same budget would do with rows of a narrower type.

    Attributes:
        storage_dtype: of the rows.
        share_of_rows: kept in GPU memory.
        bus: bytes that are expected to cross the bus per mini-batch.
    """

    storage_dtype: str
    share_of_rows: float
    bus: float


class MemoryPlan(NamedTuple):
    """What of the lists and rows a budget keeps in GPU memory.

    Attributes:
        budget: bytes of GPU memory in all.
        needs: what is taken whatever is kept.
        split: the lists and rows that are kept.
        share_of_edges, share_of_rows: kept.
        nbytes: the most that torch's allocator counts for all of it.
        lookahead: of the cache of rows, see `CachedFeatures`; 0 if it does not change.
        narrower: what rows of 8 bits would do, if there is something to gain.
    """

    budget: int
    needs: MemoryNeeds
    split: Split
    share_of_edges: float
    share_of_rows: float
    nbytes: int
    lookahead: int = 0
    narrower: NarrowerPlan | None = None

    @classmethod
    def make(
        cls,
        budget: int,
        needs: MemoryNeeds,
        graph: Graph,
        row_bytes: int,
        reads: Reads,
        lookahead: int = 0,
    ) -> MemoryPlan:
        """The plan with the fewest bytes over the bus.

        Args:
            budget: bytes.
            needs: with those of rows.
            graph: square.
            row_bytes: of a feature row, as it is kept.
            reads: what mini-batches read.
            lookahead: of a cache of rows, if one is chosen.

        Raises:
            ValueError: the budget is less than the needs.
        """
        check_budget(budget, needs)
        room = budget - needs.total
        # Less what the allocator may count beyond the arrays; `indptr` is counted among the needs already.
        arrays = 8 if lookahead else 4
        room = max(0, min(room, 2**20) - arrays * 512, room - arrays * (2**20 + 512))
        beside = (BYTES_PER_SLOT, BYTES_PER_ROW) if lookahead else (0, 0)
        split = split_memory(room + graph.indptr.nbytes, graph, row_bytes, reads, beside)
        if split.rows is None or not split.rows.numel():
            lookahead = 0
        degrees = graph.in_degrees()
        edges = graph.num_edges if split.lists is None else int(degrees[split.lists].sum())
        rows = graph.num_nodes if split.rows is None else split.rows.numel()
        pieces = _pieces(split, graph, edges, rows, row_bytes)
        if lookahead:  # see `Renewal`
            pieces += [4 * rows, 8 * rows, BYTES_PER_ROW * graph.num_nodes, 512]
        held = needs.total + sum(map(counted_bytes, pieces))
        shares = edges / max(graph.num_edges, 1), rows / max(graph.num_nodes, 1)
        return cls(budget, needs, split, *shares, held, lookahead)

    @property
    def lists(self) -> str:
        """Where the lists lie, as `datamodule.graph`."""
        return place_of(self.split.lists)

    @property
    def rows(self) -> str:
        """Where the rows lie, as `features`."""
        return place_of(self.split.rows)

    def card(self) -> dict[str, Any]:
        """The plan in plain values."""
        return {
            "budget_bytes": self.budget,
            "needed_bytes": self.needs.total,
            "needs": self.needs._asdict(),
            "graph": self.lists,
            "features": self.rows,
            "share_of_edges": self.share_of_edges,
            "share_of_rows": self.share_of_rows,
            "lookahead": self.lookahead,
            "list_bytes": self.split.list_bytes,
            "row_bytes": self.split.row_bytes,
            "expected_bytes": self.nbytes,
            "bus_bytes_a_batch": self.split.bus,
            "bus_bytes_a_batch_without": self.split.bus_without,
            "narrower": self.narrower and self.narrower._asdict(),
        }

    def __str__(self) -> str:
        ahead = f", less what a lookahead of {self.lookahead} saves" if self.lookahead else ""
        return (
            f"memory {readable(self.budget)}: {self.share_of_edges:.1%} of the edges and {self.share_of_rows:.1%} of "
            f"the feature rows lie in GPU memory, {readable(self.needs.total)} go to the workspace and mini-batches in "
            f"flight; {readable(self.split.bus)} per mini-batch are expected to cross the bus, with neither "
            f"{readable(self.split.bus_without)}{ahead}{self._narrower()}"
        )

    def _narrower(self) -> str:
        if self.narrower is None:
            return ""
        name, share, bus = self.narrower
        return f"; features.storage_dtype={name} would keep {share:.1%} of the rows and read {readable(bus)}"


def check_budget(budget: int, needs: MemoryNeeds) -> None:
    """Raises ValueError if the budget is less than the needs."""
    if budget < needs.total:
        raise ValueError(
            f"memory is {readable(budget)}, less than the {readable(needs.total)} that training needs: {needs}; give "
            "more, or smaller fanouts, batch sizes or prefetch"
        )


def readable(count: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:,.2f} GiB"


def place_of(cached_ids: Tensor | None) -> str:
    """Where lists or rows lie of which these are kept in GPU memory; None: all."""
    return "device" if cached_ids is None else "cached" if cached_ids.numel() else "pinned"


def _pieces(split: Split, graph: Graph, edges: int, rows: int, row_bytes: int) -> list[int]:
    """Bytes of each array that keeps lists or rows in GPU memory."""
    pieces = [edges * graph.indices.itemsize, rows * row_bytes]
    if split.lists is not None:
        pieces.append(graph.indptr.nbytes if edges else 0)
    if split.rows is not None:
        pieces.append(4 * graph.num_nodes if rows else 0)
    return pieces

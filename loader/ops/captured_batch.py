"""Mini-batches of changing size under a CUDA graph: its kernels look up arrays and sizes when they run.

A CUDA graph repeats launches with the addresses and sizes that they were captured with. A `CapturedBatch` stands in for
mini-batches while a model is captured. Its blocks have room for the largest, and name a place in GPU memory where the
kernels of `loader.ops` find the block of the moment; rows beyond its own become zeros, which add nothing to a product
or its gradient. `load` exchanges the mini-batch by one small launch: nothing is padded or copied but the labels. If
there are fewer seeds than before, their labels are followed by one that the loss leaves out.
"""

from __future__ import annotations

from operator import ge
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.machine.gpu import current_stream_handle
from loader.samples import Block, LazyRows, MiniBatch

_ALIGNMENT = 16  # bytes: of the vectors by which rows are read


def narrow(indices: Tensor) -> Tensor:
    """The same numbers as int32: the kernels of sums take no others."""
    return indices if indices.dtype == torch.int32 else indices.int()


def draw_keys(count: int) -> list[int]:
    """Keys of this many activations, 32 bits each from torch's CPU generator; the same as if drawn one by one."""
    keys: list[int] = torch.randint(2**32, (count,), dtype=torch.int64).tolist()
    return keys


class Codes(NamedTuple):
    """Of features that are codes, see `LazyRows`: a graph has them of one table.

    Attributes:
        dtype: of the codes.
        pitch: bytes from one row to the next.
        scales: where they lie.
        by_row: whether each row has one.
    """

    dtype: torch.dtype
    pitch: int
    scales: int
    by_row: bool


class Kind(NamedTuple):
    """What mini-batches have to have in common to take turns under one graph."""

    device: torch.device
    batch_size: int
    index_dtypes: tuple[tuple[torch.dtype, torch.dtype], ...]
    features: tuple[torch.dtype, int]
    labels: tuple[torch.dtype, torch.Size]
    codes: Codes | None = None

    @classmethod
    def of(cls, batch: MiniBatch) -> Kind | None:
        """That of a mini-batch; None if it cannot be captured.

        That is: no features or labels, not on a GPU, more than 8 hops, or features that are to get a gradient.
        """
        x, y = batch.features, batch.y
        if x is None or y is None or not (y.is_cuda and batch.nodes.is_cuda):
            return None
        if isinstance(x, Tensor) and x.requires_grad:
            return None
        held = x.table if isinstance(x, LazyRows) else x
        codes = None
        if isinstance(x, LazyRows) and x.scales is not None:
            codes = Codes(held.dtype, held.stride(0), x.scales.data_ptr(), x.by_row)
        whole = held.is_contiguous() or (codes is not None and held.stride(1) == 1)
        readable = held.is_cuda and held.dim() == 2 and whole and held.data_ptr() % _ALIGNMENT == 0
        if not readable or held.shape[0] > 2**31 - 1 or len(batch.blocks) > _core.cuda_max_captured_blocks:
            return None
        if isinstance(x, LazyRows) and x.nodes.dtype != batch.blocks[0].indices.dtype:
            return None
        dtypes = tuple((block.indptr.dtype, block.indices.dtype) for block in batch.blocks)
        return cls(x.device, batch.batch_size, dtypes, (x.dtype, x.shape[1]), (y.dtype, y.shape), codes)

    @property
    def has_classes(self) -> bool:
        """Whether each seed has one class for a label, an int64."""
        return self.labels == (torch.int64, torch.Size((self.batch_size,)))

    def has_fewer_seeds_than(self, other: Kind) -> bool:
        """Whether that is the only difference, and each seed has one class for a label."""
        if not (self.has_classes and other.has_classes and self.batch_size < other.batch_size):
            return False
        return self._replace(batch_size=other.batch_size, labels=other.labels) == other


class Room(NamedTuple):
    """Sizes of mini-batches, or upper bounds of them.

    Attributes:
        frontiers: `L + 1` numbers of nodes, from the seeds outward.
        edges: of the `L` blocks, in the order of `MiniBatch.blocks`.
    """

    frontiers: tuple[int, ...]
    edges: tuple[int, ...]

    @classmethod
    def of(cls, batch: MiniBatch) -> Room:
        return cls(batch.frontier_sizes, tuple(block.num_edges for block in batch.blocks))

    def union(self, other: Room) -> Room:
        """Room for both."""
        return Room(
            tuple(map(max, self.frontiers, other.frontiers)),
            tuple(map(max, self.edges, other.edges)),
        )

    def holds(self, other: Room) -> bool:
        """Whether the other is no larger anywhere."""
        return all(map(ge, self.frontiers, other.frontiers)) and all(map(ge, self.edges, other.edges))

    def widened(self, share: float, step: int) -> Room:
        """Larger by `share`, in whole `step`s; the seeds stay as many as they are."""

        def wider(size: int) -> int:
            return -(-int(size * (1 + share)) // step) * step

        return Room((self.frontiers[0], *map(wider, self.frontiers[1:])), tuple(map(wider, self.edges)))


class CapturedBlock(Block):
    """A block as launches see it that are captured: how large it may be. Its arrays have no memory.

    Attributes:
        captured: `[cuda_captured_block_bytes]` uint8 in GPU memory, where the kernels find the block of the moment.
        draws: activations with dropout that were captured on it; each replay needs a key for them.
    """

    def __init__(self, num_src: int, num_dst: int, num_edges: int, captured: Tensor) -> None:
        indptr = torch.empty(num_dst + 1, dtype=torch.int32, device="meta")
        indices = torch.empty(num_edges, dtype=torch.int32, device="meta")
        super().__init__(indptr, indices, num_src, num_dst)
        self.captured = captured
        self.draws = 0


class CapturedBatch:
    """Stands in for the mini-batches of one kind up to some size, see the module.

    Args:
        like: one of them, on a GPU, with features and labels.
        room: how large they may be.
        ignored_label: a class that the loss leaves out, as `ignore_index` of torch's `cross_entropy`. Seeds that are
            missing get it. Without it, or if labels are no classes, all mini-batches have as many seeds.

    Attributes:
        batch: what to give to the model while it is captured. Only the functions of `loader.ops` can read its blocks,
            and only `linear_self_mean` its `x` (`rows` of codes): they are tensors without memory, any other use of
            them is an error.
            `y` is an ordinary tensor.
    """

    stands_for: ClassVar[type] = MiniBatch
    headroom: ClassVar[float] = 0.02  # sizes of random mini-batches of as many seeds differ by less
    branches: ClassVar[bool] = False  # whether a step's small kernels run side by side, see `loader.ops.side_streams`

    def __init__(self, like: MiniBatch, room: Room, ignored_label: int | None = None) -> None:
        kind = Kind.of(like)
        if kind is None or like.y is None:
            raise ValueError(f"{like!r} cannot be captured: it needs features, contiguous, and labels, all on a GPU")
        self.kind = kind
        self.room = room
        self._ignored = ignored_label
        self._narrowed: Any = None
        hops = len(like.blocks)
        self._captured = torch.empty(hops * _core.cuda_captured_block_bytes, dtype=torch.uint8, device=kind.device)
        dst, src = room.frontiers[:-1][::-1], room.frontiers[1:][::-1]
        self.blocks = tuple(
            CapturedBlock(src[i], dst[i], room.edges[i], captured)
            for i, captured in enumerate(self._captured.view(hops, -1))
        )
        nodes = torch.empty(room.frontiers[-1], dtype=torch.int32, device="meta")
        size = (room.frontiers[-1], kind.features[1])
        x: Tensor | None = torch.empty(size, dtype=kind.features[0], device="meta")
        rows: LazyRows | None = None
        if kind.codes is not None:
            assert like.rows is not None
            table = torch.empty_strided(size, (kind.codes.pitch, 1), dtype=kind.codes.dtype, device="meta")
            x, rows = None, LazyRows(table, nodes, like.rows.scales, kind.features[0], kind.codes.by_row)
        self.batch = MiniBatch(
            nodes=nodes,
            frontier_sizes=room.frontiers,
            blocks=self.blocks,
            x=x,
            rows=rows,
            y=torch.empty_like(like.y, memory_format=torch.contiguous_format),
        )

    @staticmethod
    def kind_of(batch: MiniBatch) -> Kind | None:
        """See `Kind.of`."""
        return Kind.of(batch)

    @staticmethod
    def room_of(batch: MiniBatch) -> Room:
        """See `Room.of`."""
        return Room.of(batch)

    def holds(self, batch: MiniBatch) -> bool:
        """Whether `batch` can be loaded."""
        kind = Kind.of(batch)
        if kind is None or not self.room.holds(Room.of(batch)):
            return False
        return kind == self.kind or (self._ignored is not None and kind.has_fewer_seeds_than(self.kind))

    def forget_draws(self) -> None:
        """To be called before the model is captured: `draws` are counted from here."""
        for block in self.blocks:
            block.draws = 0

    def check_draws(self) -> None:
        """To be called after the model was captured.

        Raises:
            RuntimeError: it dropped elements twice with one block, which has one key.
        """
        if any(block.draws > 1 for block in self.blocks):
            raise RuntimeError(
                "the model drops elements more than once with the same block, which has one key; train without CUDA "
                "graphs"
            )

    def load(self, batch: MiniBatch) -> None:
        """Makes `batch` the one that kernels find from now on, in the order of the current stream.

        Draws new keys for the activations, in the order in which the model would have drawn them. `batch` has to stay
        alive until all that reads it was launched.
        """
        features = batch.features
        assert features is not None
        assert batch.y is not None
        assert self.batch.y is not None
        rows: tuple[Tensor | None, Tensor | None] = (
            (features.table, narrow(features.nodes)) if isinstance(features, LazyRows) else (features, None)
        )
        values = []
        keys = iter(draw_keys(sum(captured.draws for captured in self.blocks)))
        for block, captured in zip(batch.blocks, self.blocks, strict=True):
            key = next(keys) if captured.draws else 0
            values.append((narrow(block.indptr), narrow(block.indices), block.num_dst, *rows, key))
            rows = None, None  # the other blocks read what the layer before them wrote
        wide = any(block.indptr.dtype != torch.int32 for block in batch.blocks)
        self._narrowed = values if wide else None  # later launches read them
        device = self.kind.device.index
        labels = batch.y.contiguous(), self.batch.y
        _core.cuda_write_captured_blocks(values, self._captured, *labels, device, current_stream_handle(device))
        if batch.batch_size < self.kind.batch_size:
            assert self._ignored is not None
            self.batch.y[batch.batch_size :].fill_(self._ignored)

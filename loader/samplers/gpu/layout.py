"""Where the arrays of a mini-batch lie that a GPU sampled: in one piece of memory, cut out when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import accumulate
from operator import sub
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader.samples import Block


class Layout:
    """Room in one piece of memory: `nodes`, each hop's `indices`, each hop's `indptr`, and its edge ids if wanted.

    Args:
        frontiers, edges: capacities, `L + 1` and `L`, in hop order.
        edge_ids: whether there is room for them.
        vertex_dtype: of nodes and indices.
        edge_dtype: of indptr and edge ids; not narrower than `vertex_dtype`.

    Attributes:
        length, dtype: of the memory.
        indices_at: where each hop's begins, in elements.
        edges_at: where the first indptr is, in bytes.
        indptr_at, edge_ids_at: where each hop's begins, in elements from there on.
    """

    def __init__(
        self,
        frontiers: Sequence[int],
        edges: Sequence[int],
        edge_ids: bool,
        vertex_dtype: torch.dtype,
        edge_dtype: torch.dtype,
    ) -> None:
        hops = len(edges)
        self._nodes_room = _aligned(frontiers[-1])
        self._indices_room = [_aligned(n) for n in edges]
        self._edges_room = [_aligned(n + 1) for n in frontiers[:-1]]
        if edge_ids:
            self._edges_room += [_aligned(n) for n in edges]
        *self.indices_at, num_vertices = accumulate(self._indices_room, initial=self._nodes_room)
        *at, num_edges = accumulate(self._edges_room, initial=0)
        self.indptr_at, self.edge_ids_at = at[:hops], at[hops:]
        self.edges_at = num_vertices * vertex_dtype.itemsize
        self._edge_dtype = None if edge_dtype == vertex_dtype else edge_dtype
        self._edges_length = num_edges * edge_dtype.itemsize // vertex_dtype.itemsize
        self.length, self.dtype = num_vertices + self._edges_length, vertex_dtype

    # The cuts are "unsafe": what is done to one array in place is not taken for a change of the others.

    def nodes(self, memory: Tensor, count: int) -> Tensor:
        """The first `count` of them."""
        return memory.unsafe_split_with_sizes([count, self.length - count])[0]

    def cut(self, memory: Tensor, frontiers: Sequence[int], edges: Sequence[int]) -> Arrays:
        """The used part of all other arrays."""
        hops = len(edges)
        in_edges = [n + 1 for n in frontiers[:-1]]
        if self.edge_ids_at:
            in_edges += edges
        cuts = [self._nodes_room, *_with_gaps(edges, self._indices_room)]
        edge_cuts = _with_gaps(in_edges, self._edges_room)
        if self._edge_dtype is None:
            found = memory.unsafe_split_with_sizes(cuts + edge_cuts)[1::2]
            indices, rest = found[:hops], found[hops:]
        else:
            found = memory.unsafe_split_with_sizes([*cuts, self._edges_length])
            indices, rest = found[1:-1:2], found[-1].view(self._edge_dtype).unsafe_split_with_sizes(edge_cuts)[::2]
        return Arrays(indices, rest[:hops], rest[hops:])


class Arrays(NamedTuple):
    """Those of each hop; no edge ids where there was no room for them."""

    indices: Sequence[Tensor]
    indptr: Sequence[Tensor]
    edge_ids: Sequence[Tensor]


def _aligned(n: int) -> int:
    """`n` rounded up so that every array begins at a multiple of 128 bytes."""
    return (n + 31) // 32 * 32


def _with_gaps(sizes: Sequence[int], room: list[int]) -> list[int]:
    """Each size, and what it leaves of its room."""
    cuts = [0] * (2 * len(room))
    cuts[::2] = sizes
    cuts[1::2] = map(sub, room, sizes)
    return cuts


class Sampled:
    """A mini-batch's memory and sizes. Its arrays are cut when the first is asked for."""

    __slots__ = ("_arrays", "_frontiers", "_layout", "edges", "memory")

    def __init__(self, layout: Layout, memory: Tensor, frontiers: Sequence[int], edges: Sequence[int]) -> None:
        self._layout, self.memory, self._frontiers, self.edges = layout, memory, frontiers, edges
        self._arrays: Arrays | None = None

    def arrays(self) -> Arrays:
        if self._arrays is None:
            # In the mode of who sampled: what is cut in inference mode cannot be kept for a backward pass.
            mode = self.memory.is_inference()
            with nullcontext() if torch.is_inference_mode_enabled() == mode else torch.inference_mode(mode):
                self._arrays = self._layout.cut(self.memory, self._frontiers, self.edges)
        return self._arrays


class SampledBlock(Block):
    """A block that has its arrays cut when one of them is first asked for.

    To cut those of a mini-batch takes the host as long as to launch it. Until the features are being gathered it would
    keep the GPU waiting, and training by CUDA graphs does it beside the GPU's work. What `copy` and `pickle` make is a
    plain block.
    """

    @classmethod
    def of(cls, sampled: Sampled, hop: int, num_src: int, num_dst: int) -> SampledBlock:
        """`hop` counts from 0, at the seeds."""
        block = object.__new__(cls)
        block.__dict__.update(num_src=num_src, num_dst=num_dst, _sampled=sampled, _hop=hop)
        return block

    def __getattr__(self, name: str) -> Any:
        """Called for attributes that there are not, or not yet."""
        if name not in ("indptr", "indices") or "_sampled" not in self.__dict__:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        self._cut()
        return self.__dict__[name]

    def _cut(self) -> None:
        arrays = self._sampled.arrays()
        # Not over what another thread has found meanwhile, or was put there.
        self.__dict__.setdefault("indptr", arrays.indptr[self._hop])
        self.__dict__.setdefault("indices", arrays.indices[self._hop])

    @property
    def num_edges(self) -> int:
        return super().num_edges if "indices" in self.__dict__ else self._sampled.edges[self._hop]

    def memory(self) -> list[Tensor]:
        if "indptr" in self.__dict__ or "indices" in self.__dict__:
            return super().memory()
        return [self._sampled.memory, *[t for t in (self.edge_ids, self.edge_features) if t is not None]]

    def __reduce__(self) -> tuple[Any, ...]:
        if "_sampled" in self.__dict__:
            self._cut()
        own = ("_sampled", "_hop")
        return _plain, ({name: held for name, held in self.__dict__.items() if name not in own},)


def _plain(attributes: dict[str, Any]) -> Block:
    block = object.__new__(Block)
    block.__dict__.update(attributes)
    return block

"""The graph: compressed sparse columns (CSC), and where it lives."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_DEGREE = 2**31 - 1  # a pick draws its positions from 32-bit words (csrc/sampler/pick.h)
_INT32_MAX = 2**31 - 1


class Graph:
    """A directed graph in CSC form: the in-neighbours of `v` are `indices[indptr[v]:indptr[v + 1]]`.

    Args:
        indptr: `[num_nodes + 1]`, integer, monotone, from 0 to `len(indices)`.
        indices: `[num_edges]`, integer, source vertices in `[0, num_nodes)`.
        edge_ids: `[num_edges]`, integer, the user's id of the edge at each position; without it an edge's id
            is its position in `indices`.
        validate: check the arrays (one pass over them). Turn off only for arrays that were checked before.

    `indptr` becomes int32 where `num_edges` fits and int64 elsewhere, `indices` likewise by `num_nodes`; indices never
    are wider than indptr. Edge ids keep their type; without them, sampled ids have that of `indptr`. Arrays that
    already have the right type are not copied.

    Raises:
        TypeError: an array is not an integer tensor.
        ValueError: an array contradicts the above; the message names the first offending value.
    """

    def __init__(
        self, indptr: Tensor, indices: Tensor, *, edge_ids: Tensor | None = None, validate: bool = True
    ) -> None:
        arrays = {"indptr": indptr, "indices": indices}
        if edge_ids is not None:
            arrays["edge_ids"] = edge_ids
        for name, array in arrays.items():
            _check_integer_vector(name, array, indptr.device)
        if indptr.numel() == 0:
            raise ValueError("indptr is empty; it needs num_nodes + 1 entries (a single 0 for no vertices)")
        if edge_ids is not None and edge_ids.numel() != indices.numel():
            raise ValueError(f"edge_ids has {edge_ids.numel()} entries, indices has {indices.numel()}")
        if validate:
            _check_csc(indptr, indices)
        wide_edges = indices.numel() > _INT32_MAX
        wide_nodes = indptr.numel() - 1 > _INT32_MAX
        edge_dtype = torch.int64 if wide_edges or wide_nodes else torch.int32
        self.indptr = indptr.to(edge_dtype).contiguous()
        self.indices = indices.to(torch.int64 if wide_nodes else torch.int32).contiguous()
        self.edge_ids = edge_ids.contiguous() if edge_ids is not None else None

    @classmethod
    def from_edges(cls, src: Tensor, dst: Tensor, num_nodes: int, *, keep_edge_ids: bool = False) -> Graph:
        """Builds the CSC of the edges `src[i] -> dst[i]`; neighbour lists are sorted by source id.

        Args:
            src, dst: `[num_edges]`, integer, in `[0, num_nodes)`. Parallel edges and self loops are kept.
            num_nodes: number of vertices.
            keep_edge_ids: remember each edge's place in `src`, so that samplers report it as the edge's id.
        """
        for name, array in (("src", src), ("dst", dst)):
            _check_integer_vector(name, array, src.device)
        if src.numel() != dst.numel():
            raise ValueError(f"src has {src.numel()} entries, dst has {dst.numel()}; they must be equal")
        if num_nodes < 0:
            raise ValueError(f"num_nodes is {num_nodes}; it must be at least 0")
        for name, array in (("src", src), ("dst", dst)):
            _check_range(name, array, num_nodes)
        order = torch.argsort(dst.long() * max(num_nodes, 1) + src.long(), stable=True)
        indptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=src.device)
        torch.cumsum(torch.bincount(dst.long(), minlength=num_nodes), 0, out=indptr[1:])
        return cls(indptr, src[order], edge_ids=order if keep_edge_ids else None)

    @property
    def num_nodes(self) -> int:
        return self.indptr.numel() - 1

    @property
    def num_edges(self) -> int:
        return self.indices.numel()

    @property
    def device(self) -> torch.device:
        return self.indices.device

    def in_degrees(self) -> Tensor:
        """`[num_nodes]`, dtype of `indptr`."""
        return self.indptr[1:] - self.indptr[:-1]

    def to(self, device: torch.device | str) -> Graph:
        """The same graph on `device`; itself where it already lies there."""
        if torch.device(device) == self.device:
            return self
        edge_ids = self.edge_ids.to(device) if self.edge_ids is not None else None
        return Graph(self.indptr.to(device), self.indices.to(device), edge_ids=edge_ids, validate=False)

    def pin_memory(self) -> Graph:
        """The same graph in page-locked host memory, where a GPU reads it without a copy (zero-copy)."""
        edge_ids = self.edge_ids.pin_memory() if self.edge_ids is not None else None
        return Graph(self.indptr.pin_memory(), self.indices.pin_memory(), edge_ids=edge_ids, validate=False)

    def __repr__(self) -> str:
        return f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, device='{self.device}')"


def _check_integer_vector(name: str, array: Tensor, device: torch.device) -> None:
    if not isinstance(array, Tensor):
        raise TypeError(f"{name} is a {type(array).__name__}; it must be a torch tensor (torch.from_numpy)")
    if array.dim() != 1:
        raise ValueError(f"{name} has {array.dim()} dimensions; it must have 1")
    if array.is_floating_point() or array.is_complex() or array.dtype == torch.bool:
        raise TypeError(f"{name} has dtype {array.dtype}; it must be an integer type")
    if array.device != device:
        raise ValueError(f"{name} lies on {array.device}, the rest of the graph on {device}; move one of them")


def _check_range(name: str, array: Tensor, num_nodes: int) -> None:
    if array.numel() == 0:
        return
    low, high = (int(x) for x in torch.aminmax(array))
    if low < 0 or high >= num_nodes:
        bad = low if low < 0 else high
        raise ValueError(f"{name} holds vertex {bad}; valid ids are 0 to {num_nodes - 1}")


def _check_csc(indptr: Tensor, indices: Tensor) -> None:
    if int(indptr[0]) != 0:
        raise ValueError(f"indptr starts at {int(indptr[0])}; it must start at 0")
    degrees = indptr[1:] - indptr[:-1]
    if degrees.numel() and int(degrees.min()) < 0:
        v = int(torch.nonzero(degrees < 0)[0])
        raise ValueError(f"indptr is not monotone: indptr[{v}] = {int(indptr[v])} > {int(indptr[v + 1])}")
    if int(indptr[-1]) != indices.numel():
        raise ValueError(f"indptr ends at {int(indptr[-1])}; it must end at len(indices) = {indices.numel()}")
    if degrees.numel() and int(degrees.max()) > MAX_DEGREE:
        v = int(degrees.argmax())
        raise ValueError(f"vertex {v} has {int(degrees[v])} in-neighbours; the limit is {MAX_DEGREE}")
    _check_range("indices", indices, indptr.numel() - 1)

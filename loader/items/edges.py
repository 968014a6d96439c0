"""Edges as items: pairs of nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from loader.graph.checks import check_integers, check_length, signed
from loader.graph.times import seed_times
from loader.items.items import Items, Seeds
from loader.machine.arguments import check_dense, kind_of


class EdgeItems(Items):
    """Items that are pairs of nodes, (source, destination), with times or without.

    A pair may come several times, also in the opposite direction.

    Args:
        ids: `[n, 2]`, integer, not empty; copied, as what was checked must stay.
        times: `[n]`, integers or whole floats, of the items, or None. Mini-batches then have `[n, 3]` int64.
        edge_ids: `[n]`, integer: the edge of a graph that each item is, or -1; or None. Mini-batches then have one more
            column.

    Raises:
        TypeError: `ids` or `edge_ids` is not an integer tensor, or `times` no tensor of numbers.
        ValueError: `ids` is empty or has another shape; the others have another length; a time is missing, or no whole
            number.
    """

    kind = "edge"

    def __init__(self, ids: Tensor, *, times: Tensor | None = None, edge_ids: Tensor | None = None) -> None:
        if not isinstance(ids, Tensor):
            raise TypeError(f"pairs is {kind_of(ids)}; give a tensor of node ids (torch.as_tensor)")
        check_dense("pairs", ids)
        check_integers("pairs", ids, ": pairs.long()")
        if ids.dim() != 2 or ids.shape[1] != 2:
            raise ValueError(f"pairs has shape {list(ids.shape)}; it must be [n, 2] (edge_index.t())")
        if ids.shape[0] == 0:
            raise ValueError("pairs is empty; a loader needs at least one pair")
        if ids.device.type not in ("cpu", "cuda"):
            raise ValueError(f"pairs lies on {ids.device}; it must lie on the CPU or on a GPU")
        self.ids, self.device = signed("pairs", ids).clone(), ids.device
        self.times = None if times is None else seed_times(times).to(self.device, copy=True)
        self.edge_ids = None if edge_ids is None else _edge_ids(edge_ids).to(self.device, copy=True)
        for name, column in (("times", self.times), ("edge_ids", self.edge_ids)):
            if column is not None:
                check_length(name, column, self.ids.shape[0], f"there are {self.ids.shape[0]} pairs")

    def __len__(self) -> int:
        return self.ids.shape[0]

    def take(self, positions: Tensor | slice, sizes: Sequence[int]) -> list[Seeds]:
        if isinstance(positions, slice):
            positions = torch.arange(positions.start, positions.stop, device=self.device)
        ids = self.ids.index_select(0, positions)
        columns = [c.index_select(0, positions).view(-1, 1) for c in (self.times, self.edge_ids) if c is not None]
        if columns:
            ids = torch.cat([ids.long(), *columns], 1)
        # "Unsafe": what is done to one part in place is not taken for a change of the others.
        pairs = zip(
            ids.unsafe_split_with_sizes(list(sizes)), positions.unsafe_split_with_sizes(list(sizes)), strict=True
        )
        return [Seeds(*part) for part in pairs]

    def to(self, device: torch.device, dtype: torch.dtype) -> EdgeItems:
        """Returns the items on `device`, see `Items.to`.

        Raises:
            ValueError: an id does not fit `dtype`.
        """
        low, high = (int(x) for x in torch.aminmax(self.ids))
        if low < 0 or high > torch.iinfo(dtype).max:
            raise ValueError(
                f"pairs holds node {low if low < 0 else high}; the graph's ids are 0 to {torch.iinfo(dtype).max}"
            )
        return EdgeItems(self.ids.to(device, dtype), times=self.times, edge_ids=self.edge_ids)

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for name, array in (("", self.ids), ("times", self.times), ("edge_ids", self.edge_ids)):
            if array is not None:
                digest.update(name.encode())
                digest.update(array.to("cpu", torch.int64).contiguous().numpy().data)
        return digest.hexdigest()[:16]


def _edge_ids(given: Tensor) -> Tensor:
    """`[n]` int64; raises TypeError or ValueError if they are no edge ids."""
    if not isinstance(given, Tensor):
        raise TypeError(f"edge_ids is {kind_of(given)}; give a tensor of edge ids (torch.as_tensor)")
    check_dense("edge_ids", given)
    check_integers("edge_ids", given, ": edge_ids.long()")
    if given.dim() != 1:
        raise ValueError(f"edge_ids has shape {list(given.shape)}; it must have 1 dimension, an id per pair")
    ids = signed("edge_ids", given).long()
    if ids.numel() and int(ids.min()) < -1:
        raise ValueError(f"edge_ids holds {int(ids.min())}; an id is at least 0, or -1 for a pair that is no edge")
    return ids

"""Edges as items: pairs of vertices."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from loader.graph.checks import check_integers, signed
from loader.items.items import Items, Seeds
from loader.machine.arguments import check_dense, kind_of


class EdgeItems(Items):
    """Items that are pairs of vertices, (source, destination).

    A pair may come several times, also in the opposite direction.

    Args:
        ids: `[n, 2]`, integer, not empty.

    Raises:
        TypeError: `ids` is not an integer tensor.
        ValueError: `ids` is empty or has another shape.
    """

    kind = "edge"

    def __init__(self, ids: Tensor) -> None:
        if not isinstance(ids, Tensor):
            raise TypeError(f"pairs is {kind_of(ids)}; give a tensor of vertex ids (torch.as_tensor)")
        check_dense("pairs", ids)
        check_integers("pairs", ids, ": pairs.long()")
        if ids.dim() != 2 or ids.shape[1] != 2:
            raise ValueError(f"pairs has shape {list(ids.shape)}; it must be [n, 2] (edge_index.t())")
        if ids.shape[0] == 0:
            raise ValueError("pairs is empty; a loader needs at least one pair")
        if ids.device.type not in ("cpu", "cuda"):
            raise ValueError(f"pairs lies on {ids.device}; it must lie on the CPU or on a GPU")
        self.ids, self.device = signed("pairs", ids), ids.device

    def __len__(self) -> int:
        return self.ids.shape[0]

    def take(self, positions: Tensor | slice, sizes: Sequence[int]) -> list[Seeds]:
        if isinstance(positions, slice):
            ids = self.ids[positions]
            positions = torch.arange(positions.start, positions.stop, device=self.device)
        else:
            ids = self.ids.index_select(0, positions)
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
                f"pairs holds vertex {low if low < 0 else high}; the graph's ids are 0 to {torch.iinfo(dtype).max}"
            )
        return EdgeItems(self.ids.to(device, dtype))

    def fingerprint(self) -> str:
        data = self.ids.to("cpu", torch.int64).contiguous().numpy()
        return hashlib.sha256(data.data).hexdigest()[:16]

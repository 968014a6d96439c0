"""Layers with weights of their own per type, applied to rows that lie type after type."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F


class Grouped:
    """Rows of several types, in runs of one type each.

    If the rows are whole tiles, each of one type, a layer is one product over all tiles. Else it is one for each run.

    Args:
        runs: the type and the number of rows of each.
        tile: what all sizes are multiples of; 1 for runs of any size.
        device: of the rows.
    """

    def __init__(self, runs: Iterable[tuple[int, int]], tile: int, device: torch.device) -> None:
        self._tile = tile
        self._runs = [(t, size) for t, size in runs if size]
        self._of_tiles: Tensor | None = None  # [tiles] their types
        if tile > 1 and self._runs:
            of_runs = [(t, size // tile) for t, size in self._runs]
            self._of_tiles = torch.tensor([t for t, count in of_runs for _ in range(count)], device=device)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """`x @ weight[type].T + bias[type]` of each row.

        Args:
            x: `[n, in]`.
            weight: `[types, out, in]`.
            bias: `[types, out]`.
        """
        if self._of_tiles is None:
            every = list(zip(weight.unbind(), bias.unbind(), strict=True))
            parts = [F.linear(part, *every[t]) for t, part in self._split(x)]
            return torch.cat(parts) if parts else x.new_zeros(0, weight.shape[1])
        tiles = x.view(-1, self._tile, x.shape[1])
        found = torch.baddbmm(self._per_tile(bias), tiles, weight.index_select(0, self._of_tiles).transpose(1, 2))
        return found.view(x.shape[0], weight.shape[1])

    def norm(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """`torch.nn.LayerNorm` of each row with the weights `[types, F]` of its type."""
        shape = x.shape[1:]
        if self._of_tiles is None:
            every = list(zip(weight.unbind(), bias.unbind(), strict=True))
            parts = [F.layer_norm(part, shape, *every[t]) for t, part in self._split(x)]
            return torch.cat(parts) if parts else x
        tiles = F.layer_norm(x, shape).view(-1, self._tile, *shape)
        return torch.addcmul(self._per_tile(bias), tiles, self._per_tile(weight)).view_as(x)

    def row(self, rows: Tensor) -> Tensor:
        """`[n, F]`: of each row that of its type in `rows`, `[types, F]`."""
        if self._of_tiles is None:
            every = rows.unbind()
            parts = [every[t].expand(size, -1) for t, size in self._runs]
            return torch.cat(parts) if parts else rows[:0]
        return self._per_tile(rows).expand(-1, self._tile, -1).reshape(-1, rows.shape[1])

    def _per_tile(self, rows: Tensor) -> Tensor:
        assert self._of_tiles is not None
        return rows.index_select(0, self._of_tiles).unsqueeze(1)

    def _split(self, x: Tensor) -> list[tuple[int, Tensor]]:
        sizes = [size for _, size in self._runs]
        return [(t, part) for (t, _), part in zip(self._runs, x.split(sizes), strict=True)] if sizes else []

"""Layers with weights of their own per type, applied to rows that lie type after type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F


class _Part(Protocol):
    """Nodes of one type, with a row for each relation into it."""

    @property
    def node_type(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def slots(self) -> int: ...


class Grouped:
    """Rows of several types, in runs of one type each.

    If the rows are whole tiles, each of one type, a layer is one product over all tiles. Else it is one for each run.

    Args:
        runs: the type and the number of rows of each.
        tile: what all sizes are multiples of; 1 for runs of any size.
        device: of the rows.
    """

    def __init__(self, runs: Iterable[tuple[int, int]], tile: int, device: torch.device) -> None:
        of_runs = [(t, size) for t, size in runs if size]
        self._tile = tile
        self._sizes = [size for _, size in of_runs]
        self._of_parts = [t for t, size in of_runs for _ in range(1 if tile == 1 else size // tile)]
        # For runs no tensor is made: the host would wait for the device.
        self._types = torch.tensor(self._of_parts, device=device) if tile > 1 else None

    def spread(self, weights: Tensor) -> Tensor:
        """`[parts, ...]` of weights by type, `[types, ...]`: as the other methods take them, by tile or by run."""
        if self._types is not None:
            return weights.index_select(0, self._types)
        every = weights.unbind()
        return torch.stack([every[t] for t in self._of_parts]) if self._of_parts else weights[:0]

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """`x @ weight.T + bias` of each row, with the weights of its type.

        Args:
            x: `[n, in]`.
            weight: `[parts, out, in]`, see `spread`.
            bias: `[parts, out]`.
        """
        if self._tile > 1:
            tiles = x.view(-1, self._tile, x.shape[1])
            return torch.baddbmm(bias.unsqueeze(1), tiles, weight.transpose(1, 2)).view(x.shape[0], weight.shape[1])
        every = zip(x.split(self._sizes), weight, bias, strict=True) if self._sizes else ()
        return torch.cat([x.new_zeros(0, weight.shape[1]), *(F.linear(*one) for one in every)])

    def norm(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """`torch.nn.LayerNorm` of each row `[n, F]`, with the weights `[parts, F]` of its type, see `spread`."""
        shape = x.shape[1:]
        if self._tile > 1:
            tiles = F.layer_norm(x, shape).view(-1, self._tile, *shape)
            return torch.addcmul(bias.unsqueeze(1), tiles, weight.unsqueeze(1)).view_as(x)
        every = zip(x.split(self._sizes), weight, bias, strict=True) if self._sizes else ()
        return torch.cat([x[:0], *(F.layer_norm(part, shape, *of) for part, *of in every)])

    def rows(self, rows: Tensor) -> Tensor:
        """`[n, F]`: for each row that of its type, `[parts, F]`, see `spread`."""
        if self._tile > 1:
            return rows.unsqueeze(1).expand(-1, self._tile, -1).reshape(-1, rows.shape[1])
        return torch.cat([rows[:0], *(row.expand(n, -1) for row, n in zip(rows, self._sizes, strict=True))])


def sum_of_relations(parts: Iterable[_Part], slots: Sequence[int], rows: Tensor, weight: Tensor) -> Tensor:
    """`[nodes, out]`: the sum over a node's rows of each times the weight of its relation.

    Args:
        parts: the nodes, see `loader.ops.hop_layout.HopLayout.parts`.
        slots: of each type the number of relations into it.
        rows: `[rows of the nodes, in]`.
        weight: `[relations, in, out]`, type after type.
    """
    found, segments = [], list(parts)
    # By `split`, whose gradients are put together once; each slice would have one of the size of all rows.
    of_types = weight.split(list(slots))
    of_parts = rows.split([segment.size * segment.slots for segment in segments])
    for segment, part in zip(segments, of_parts, strict=True):
        wide = part.reshape(segment.size, segment.slots * rows.shape[1])
        found.append(
            wide @ of_types[segment.node_type].reshape(wide.shape[1], -1 if segment.slots else weight.shape[2])
        )
    return torch.cat(found)

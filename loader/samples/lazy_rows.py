"""Features that are not gathered: the first layer of a model reads them in their table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor


class LazyRows:
    """The rows `table[nodes]`, not gathered.

    `loader.ops.linear_self_mean` takes them in place of `x` and reads each row from the table when it adds it up. So
    the rows of a mini-batch are not written and read once more, and take no memory. Other code calls `gather`. This is
    no dataclass, because a Trainer converts the tensors of dataclasses to its precision, and would convert the table.

    Attributes:
        table: `[num_nodes, F]` on a GPU, contiguous; it gets no gradient. Or codes of 8 bits, int8 or float8_e4m3fn,
            whose rows may be further apart.
        nodes: `[n]` ids in `[0, num_nodes)`, of the type of the block's `indices`, on the same GPU.
        scales: of codes, float32: `[1, F]` or `[num_nodes, 1]` on the same GPU. An element is its code times its scale,
            a float32, rounded to `dtype`. Else None.
        dtype: of the rows.
        by_row: whether codes have a scale for each row; None: as the shape of `scales` says.
    """

    def __init__(
        self,
        table: Tensor,
        nodes: Tensor,
        scales: Tensor | None = None,
        dtype: torch.dtype | None = None,
        by_row: bool | None = None,
    ) -> None:
        self.table = table
        self.nodes = nodes
        self.scales = scales
        self.dtype = dtype or (table.dtype if scales is None else torch.float32)
        self.by_row = scales is not None and scales.shape == (table.shape[0], 1) if by_row is None else by_row

    def of(self, nodes: Tensor) -> LazyRows:
        """The rows of other nodes of the same table."""
        return LazyRows(self.table, nodes, self.scales, self.dtype, self.by_row)

    @property
    def shape(self) -> tuple[int, int]:
        return self.nodes.shape[0], self.table.shape[1]

    @property
    def device(self) -> torch.device:
        return self.table.device

    def gather(self) -> Tensor:
        """The rows `[n, F]`, as a tensor of their own."""
        if self.scales is None:
            return self.table.index_select(0, self.nodes)
        # As bytes: torch does not pick rows of every type of 8 bits.
        codes = self.table.view(torch.uint8).index_select(0, self.nodes).view(self.table.dtype)
        scales = self.scales.index_select(0, self.nodes) if self.by_row else self.scales
        return codes.float().mul_(scales).to(self.dtype)

    def record_stream(self, stream: Any) -> None:
        """Tells torch's allocator that `stream` reads the table; the ids are the mini-batch's."""
        self.table.record_stream(stream)
        if self.scales is not None:
            self.scales.record_stream(stream)


def gathered(rows: Tensor | LazyRows) -> Tensor:
    """The rows as a tensor: those that are in their table are gathered."""
    return rows.gather() if isinstance(rows, LazyRows) else rows


class RowsOnDemand(Mapping[str, Tensor]):
    """A name -> rows, some of which are made when they are first asked for, and kept. A subclass has `_make`.

    Args:
        made: rows that are there.
        waiting: what the others are made of, by name.
    """

    def __init__(self, made: Mapping[str, Tensor], waiting: Mapping[str, Any]) -> None:
        self.made, self._waiting = dict(made), dict(waiting)

    def _make(self, name: str) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _make(name)")

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.made and name in self._waiting:
            self.made[name] = self._make(name)
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._waiting, **self.made})

    def __len__(self) -> int:
        return len(self.made.keys() | self._waiting.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.made or name in self._waiting

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)})"


class LazyFeatures(RowsOnDemand):
    """Node type -> features, some of which lie in their table until they are asked for.

    Args:
        made: type -> rows that were gathered.
        lazy: type -> rows that were not. `lazy_features[type]` gathers them and keeps them.
    """

    def __init__(
        self, made: Mapping[str, Tensor] = MappingProxyType({}), lazy: Mapping[str, LazyRows] = MappingProxyType({})
    ) -> None:
        super().__init__(made, lazy)
        self.lazy: dict[str, LazyRows] = self._waiting

    def with_rows(self, rows: Mapping[str, Tensor | LazyRows]) -> LazyFeatures:
        """A copy with rows in place of those of their types."""
        others = {name: left for name, left in self.lazy.items() if name not in rows}
        made = {name: found for name, found in self.made.items() if name not in rows and name not in others}
        lazy = {name: left for name, left in rows.items() if isinstance(left, LazyRows)}
        made |= {name: left for name, left in rows.items() if isinstance(left, Tensor)}
        return LazyFeatures(made, {**others, **lazy})

    def if_lazy(self) -> Mapping[str, Tensor]:
        """This, or the rows alone if all of them are there."""
        return self if self.lazy else self.made

    def _make(self, name: str) -> Tensor:
        return self.lazy[name].gather()

"""Features that are not gathered: the first layer of a model reads them in their table."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class LazyRows:
    """The rows `table[nodes]`, not gathered.

    `loader.ops.linear_self_mean` takes them in place of `x` and reads each row from the table when it adds it up. So
    the rows of a mini-batch are not written and read once more, and take no memory. Other code calls `gather`. This is
    no dataclass, because a Trainer converts the tensors of dataclasses to its precision, and would convert the table.

    Attributes:
        table: `[num_nodes, F]` on a GPU, contiguous; it gets no gradient.
        nodes: `[n]` ids in `[0, num_nodes)`, of the type of the block's `indices`, on the same GPU.
    """

    def __init__(self, table: Tensor, nodes: Tensor) -> None:
        self.table = table
        self.nodes = nodes

    @property
    def shape(self) -> tuple[int, int]:
        return self.nodes.shape[0], self.table.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.table.dtype

    @property
    def device(self) -> torch.device:
        return self.table.device

    def gather(self) -> Tensor:
        """The rows `[n, F]`, as a tensor of their own."""
        return self.table.index_select(0, self.nodes)

    def record_stream(self, stream: Any) -> None:
        """Tells torch's allocator that `stream` reads the table; the ids are the mini-batch's."""
        self.table.record_stream(stream)

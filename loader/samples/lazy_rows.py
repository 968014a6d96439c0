"""Features that are read where they lie, by the first layer, instead of being gathered before."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class LazyRows:
    """The rows `table[nodes]`, not gathered.

    `loader.ops.linear_self_mean` takes them in the place of `x` and reads each row from the table as it sums: that
    spares writing and reading the rows of a mini-batch once more, and the memory for them. Anything else calls
    `gather`. No dataclass: a Trainer converts the tensors of those to its precision, and would convert the table.

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

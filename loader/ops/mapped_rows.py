"""A layer that multiplies distinct rows by the weights of all relations that read them, and then sums what it gets.

Where many nodes have the same neighbors, which in trees is common, there are fewer products than sums by relation would
need, and a node has one sum in place of one for each relation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.machine.gpu import launch_place
from loader.ops.hop_layout import HopLayout
from loader.ops.weight_gradients import apart


class MappedRows:
    """Which products there are, and where. It depends on the segments alone, see `HopLayout.once`.

    Products lie type of the sources after type; those of a row beside each other.

    Args:
        layout: its distinct rows.
        hops: the layer writes the nodes of the first hops.
        sources: for each relation, in the order of the rows of the types, the type of its sources.

    Attributes:
        read: for each type the weights that its rows are multiplied by: `t` is that of a row of type `t` itself, and
            `types + r` that of relation `r`.
        size: number of products.
    """

    def __init__(self, layout: HopLayout, hops: int, sources: Sequence[int]) -> None:
        parts, types = list(layout.parts(hops)), len(layout.unique)
        firsts = [0, *accumulate(segment.slots for segment in layout.segments[0])]
        self.read: list[list[int]] = [[] for _ in range(types)]
        for t in sorted({part.node_type for part in parts}):
            self.read[t].append(t)
            for relation in range(firsts[t], firsts[t + 1]):
                self.read[sources[relation]].append(types + relation)
        begins = [0, *accumulate(n * len(of) for n, of in zip(layout.unique, self.read, strict=True))]
        self.size, before = begins[-1], [0, *accumulate(layout.unique)]
        every = zip(before, layout.unique, begins, map(len, self.read), strict=False)
        self._of_types = [_OfType(*of) for of in every]

        def product(weight: int, t: int) -> tuple[int, int]:
            """Of a row at `place` among all it is `a * place + b`."""
            a = len(self.read[t])
            return a, begins[t] + self.read[t].index(weight) - a * before[t]

        of_nodes, of_rows, counts = [], [], []
        for part in parts:
            t, relations = part.node_type, range(firsts[part.node_type], firsts[part.node_type + 1])
            counts.append(torch.full((part.size,), part.slots))
            of_nodes.append(torch.tensor([product(t, t)]).expand(part.size, 2))
            of_node = torch.tensor([product(types + r, sources[r]) for r in relations], dtype=torch.int64)
            of_rows.append(of_node.view(-1, 2).repeat(part.size, 1))
        slots, rows, device = torch.cat(counts), torch.cat(of_rows), layout.row.device
        nodes = torch.arange(len(slots)).repeat_interleave(slots)
        self._of_node = torch.cat(of_nodes).t().contiguous().to(device)
        # Entries behind the last row count as the last node's.
        self._of_row = torch.cat([rows, rows.new_zeros(1, 2)]).t().contiguous().to(device)
        self._node_of_row = torch.cat([nodes, nodes.new_full((1,), len(slots) - 1)]).to(device)
        self._first_row = torch.cat([slots.new_zeros(1), slots.cumsum(0)]).to(device)

    def entries(self, layout: HopLayout, hops: int) -> tuple[Tensor, Tensor]:
        """`indptr` and `indices` of the nodes among the products, each node's own one first."""
        indptr, indices, nodes = layout.rows_of(hops), layout.entries_of(hops), layout.nodes_of(hops)
        if indptr.is_cuda and (indptr.dtype, indices.dtype) == (torch.int32, torch.int32):
            return self._entries_by_kernel(indptr, indices, layout.row)
        node, entry = layout.arange(nodes), layout.arange(len(indices))
        row = torch.bucketize(entry.to(indptr.dtype), indptr[1:], right=True)
        a, b = self._of_row.index_select(1, row)
        begins = indptr[self._first_row] + layout.arange(nodes + 1)
        found = indices.new_zeros(len(indices) + nodes)
        found[entry + self._node_of_row[row] + 1] = (layout.row[indices] * a + b).to(found.dtype)
        a, b = self._of_node
        found[begins[:-1]] = (layout.row[node] * a + b).to(found.dtype)
        return begins.to(indptr.dtype), found

    def _entries_by_kernel(self, indptr: Tensor, indices: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        """The same by one launch."""
        begins, found = indptr.new_empty(len(self._first_row)), indices.new_empty(len(indices) + self._of_node.shape[1])
        places = self._of_node, self._of_row, self._node_of_row, self._first_row
        _core.cuda_map_entries(launch_place(indptr), (indptr, indices, row), places, begins, found)
        return begins, found

    def weights(self, own: Tensor, relations: Tensor) -> list[Tensor]:
        """For each type with products `[in, read * out]`, of weights `[types, in, out]` and `[relations, in, out]`."""
        every = [*own.unbind(), *relations.unbind()]
        return [torch.cat([every[i] for i in of], 1) for of in self.read if of]

    def products(self, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """`[size, out]` of the distinct rows `[n, in]` and what `weights` returns."""
        read = [of for of in self._of_types if of.read]
        shape = self.size, weights[0].shape[1] // read[0].read
        stand_in = apart(partial(_gradients_of_weights, read), [x], weights, shape)
        found: Tensor = _Products.apply(self._of_types, shape, x, stand_in, *(of.detach() for of in weights))
        return found


class _OfType(NamedTuple):
    """Rows of a type, `x[begin : begin + rows]`; the weights that they are multiplied by; and where products begin."""

    begin: int
    rows: int
    at: int
    read: int

    def of(self, x: Tensor) -> Tensor:
        return x[self.begin : self.begin + self.rows]

    def products(self, every: Tensor) -> Tensor:
        """`[rows, read * out]`."""
        return every[self.at : self.at + self.rows * self.read].view(self.rows, self.read * every.shape[1])


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, types: Sequence[_OfType], shape: tuple[int, int], x: Tensor, stand_in: Tensor | None, *weights: Tensor
    ) -> Tensor:
        ctx.save_for_backward(*weights)
        ctx.types, ctx.shape = types, x.shape
        found = x.new_empty(shape)
        for of, weight in zip((of for of in types if of.read), weights, strict=True):
            torch.mm(of.of(x), weight, out=of.products(found))
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, grad_x = iter(ctx.saved_tensors), None
        if ctx.needs_input_grad[2]:
            grad, grad_x = grad.contiguous(), grad.new_empty(ctx.shape)
            for of in ctx.types:
                if of.read:
                    torch.mm(of.products(grad), next(weights).t(), out=of.of(grad_x))
                else:
                    of.of(grad_x).zero_()
        return None, None, grad_x, grad if ctx.needs_input_grad[3] else None, *(None for _ in ctx.saved_tensors)


def _gradients_of_weights(read: Sequence[_OfType], grad: Tensor, x: Tensor) -> list[Tensor]:
    grad = grad.contiguous()
    return [of.of(x).t() @ of.products(grad) for of in read]

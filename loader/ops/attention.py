"""Attention over the entries of rows, one for each node and relation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from loader.ops import attention_gpu
from loader.ops.attention_gpu import AttendedRelation, AttendedRows
from loader.ops.grouped import Span
from loader.ops.hop_layout import HopLayout


class AttendedPlaces(NamedTuple):
    """Places for sums over the rows of nodes of some hops. Those of a node lie beside each other: head after head, and
    of a head relation after relation.

    Attributes:
        relations: those with rows.
        spans: of each part with nodes.
        size: number of elements.
    """

    relations: list[AttendedRelation]
    spans: list[Span]
    size: int


def attended_places(
    layout: HopLayout, hops: int, into: Sequence[Sequence[tuple[int, int]]], widths: Sequence[int], heads: int
) -> AttendedPlaces:
    """Places for the sums of the nodes of the first hops. The host does not wait for the device.

    Args:
        layout: the mini-batch.
        hops: number of hops.
        into: for each node type the relations into it, in the order of its rows: their number, and the type of their
            sources.
        widths: columns of the rows that are summed, by type of the sources.
        heads: of the attention.
    """
    return layout.once(("attended", hops, heads, *widths), lambda: _places(layout, hops, into, widths, heads))


def _places(
    layout: HopLayout, hops: int, into: Sequence[Sequence[tuple[int, int]]], widths: Sequence[int], heads: int
) -> AttendedPlaces:
    device, size = layout.row.device, 0
    found: dict[int, tuple[int, int, list[Tensor], list[Tensor]]] = {}
    spans = []
    for part in layout.parts(hops):
        of_head = sum(widths[source] for _, source in into[part.node_type])
        a_node, begin = heads * of_head, size
        spans.append(Span(part.node_type, size, part.size, a_node))
        for slot, (relation, source) in enumerate(into[part.node_type]):
            _, _, order, at = found.setdefault(relation, (source, of_head, [], []))
            last = part.row + slot + part.size * part.slots
            order.append(torch.arange(part.row + slot, last, part.slots, device=device))
            at.append(torch.arange(begin, begin + part.size * a_node, a_node, device=device))
            begin += widths[source]
        size += part.size * a_node
    relations = [
        AttendedRelation(relation, source, torch.cat(order), torch.cat(at), apart)
        for relation, (source, apart, order, at) in found.items()
    ]
    return AttendedPlaces(relations, spans, size)


def attend(
    places: AttendedPlaces,
    rows: AttendedRows,
    x: Sequence[Tensor | None],
    vectors: Sequence[Tensor | None],
    sinks: Tensor,
    slope: float,
) -> Tensor:
    """`[places.size]` sums of sources' rows over the entries of each row, once for each head; 0 for an empty row.

    An entry counts by the softmax, over its row, of `leaky_relu(x[source] @ vector + sink)` (Veličković et al. 2018,
    https://arxiv.org/abs/1710.10903). On a GPU there is one launch for each relation, and no array of entries times
    columns; sums are in float32, in a fixed order. On a CPU they are torch's.

    Args:
        places: where the sums go.
        rows: the rows and their entries.
        x: rows of sources, `[n, F]` by their type. Or one, of all types, which may need a gradient.
        vectors: `[heads, F]` by relation, of float32 or of the dtype of `x` if that is wider.
        sinks: `[rows, heads]`, of the same dtype.
        slope: of what is below 0.

    Raises:
        TypeError: `x` lies on a GPU and is neither float32 nor bfloat16.
    """
    if sinks.is_cuda:
        return attention_gpu.attend(places.relations, places.size, rows, x, vectors, sinks, slope)
    dtype = next((table.dtype for table in x if table is not None), sinks.dtype)
    at, sums, heads, step = [], [], sinks.shape[1], 0
    with torch.autocast("cpu", enabled=False):
        for one in places.relations:
            table: Any = x[0] if len(x) == 1 else x[one.source]
            step = gcd(step, table.shape[1])
            for begins, found in _sums(one, rows, table, vectors[one.number], sinks, slope):
                at.append(begins.unsqueeze(1) + one.apart * torch.arange(heads))
                sums.append(found.to(dtype))
    out: Tensor = _Written.apply(places.size, max(step, 1), dtype, at, *sums)
    return out


def _sums(
    relation: AttendedRelation, rows: AttendedRows, x: Any, vectors: Any, sinks: Tensor, slope: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each number of entries that rows of a relation have, by torch: where their sums begin, and the sums,
    `[rows, heads, F]`.
    """
    begins, lengths = rows.indptr[:-1].index_select(0, relation.order), rows.indptr.diff()[relation.order]
    for length in lengths.unique().tolist():
        some = (lengths == length).nonzero().view(-1)
        if length and len(some):
            entries = rows.entries[begins[some].unsqueeze(1) + torch.arange(length)]
            read = x.index_select(0, entries.view(-1)).to(sinks.dtype).view(len(some), length, -1)
            sink = sinks.index_select(0, relation.order[some]).unsqueeze(1)
            shares = F.leaky_relu(read @ vectors.t() + sink, slope).softmax(1)
            yield relation.at[some], shares.transpose(1, 2) @ read


class _Written(torch.autograd.Function):
    """`[size]` of rows of elements, each written to its place, 0 elsewhere; autograd would copy the whole each time.

    Places and rows are multiples of `step` elements.
    """

    @staticmethod
    def forward(ctx: Any, size: int, step: int, dtype: torch.dtype, at: Sequence[Tensor], *rows: Tensor) -> Tensor:
        ctx.places = [
            (begins.unsqueeze(-1) // step + torch.arange(of.shape[-1] // step)).view(-1)
            for begins, of in zip(at, rows, strict=True)
        ]
        ctx.step, ctx.shapes = step, [of.shape for of in rows]
        out = torch.zeros(size // step, step, dtype=dtype)
        for places, of in zip(ctx.places, rows, strict=True):
            out.index_copy_(0, places, of.reshape(-1, step))
        return out.view(-1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        parts = zip(ctx.places, ctx.shapes, strict=True)
        elements = grad.reshape(-1, ctx.step)
        of_rows = [elements.index_select(0, places).view(shape) for places, shape in parts]
        return None, None, None, None, *of_rows

"""R-GAT on typed mini-batches: the layers apply all relations at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from loader.machine.arguments import as_size
from loader.ops.attention import attend, attended_places
from loader.ops.attention_gpu import AttendedRows, BySource, columns_of, padded
from loader.ops.autocast import autocast_dtype
from loader.ops.captured_hetero_batch import CapturedHeteroBatch
from loader.ops.grouped import Span, product_by_head, product_by_type
from loader.ops.hop_layout import HopLayout
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.segments import EdgeType
from models.hetero_block_net import HeteroBlockNet, uniform

SLOPE = 0.2  # of scores below 0, as in the paper of graph attention networks


class RGAT(HeteroBlockNet):
    """Relational graph attention, as MLPerf's R-GAT: graph attention (Veličković et al. 2018,
    https://arxiv.org/abs/1710.10903) with weights of its own per relation, and a linear layer for the classes.

    A layer adds up, for node i of type t, its own row and what each relation r into t brings; heads lie side by side::

        h'[i] = own[t] h[i] + bias[t] + sum over r, for each head, of sum over j of share[i, r, j] * W[r] h[j]
        share[i, r, :] = softmax over j of leaky_relu(source[r] . W[r] h[j] + sink[r] . h[i], 0.2)

    `sink[r]` is a vector for each head, which torch_geometric's `GATConv` for two types has as a product: of its second
    linear layer and `att_dst`. MLPerf's model has no `own`. Rows are added up before they are multiplied by `W`, since
    there are fewer sums than neighbors. Between layers follow leaky ReLU (0.01) and dropout. A node of a type without
    features has 1 as its only feature.

    Args:
        in_dims, edge_types, target: see `HeteroBlockNet`.
        hidden_channels: width of the layers, which the heads share.
        out_dim: number of classes.
        num_layers: depth; the sampler needs as many hops.
        heads: of the attention.
        dropout, input_dropout, norm: see `HeteroBlockNet`.

    Raises:
        ValueError: a value out of its range, or no relation leads to the target.
    """

    def __init__(
        self,
        in_dims: Mapping[str, int],
        edge_types: Sequence[EdgeType],
        target: str,
        hidden_channels: int,
        out_dim: int,
        num_layers: int = 2,
        *,
        heads: int = 4,
        dropout: float = 0.2,
        input_dropout: float = 0.0,
        norm: str = "none",
    ) -> None:
        super().__init__(
            in_dims, edge_types, target, hidden_channels, num_layers,
            dropout=dropout, input_dropout=input_dropout, norm=norm,
        )  # fmt: skip
        self.heads = as_size("heads", heads)
        if self.hidden_channels % self.heads:
            raise ValueError(
                f"hidden_channels is {hidden_channels}, heads {heads}; the heads share the width, so it must be a "
                "multiple"
            )
        types, hidden = len(self.names), self.hidden_channels
        self._sinks = max(self._slots) * self.heads  # columns of scores beside a node's own row
        widths = [width or 1 for width in self.in_dims.values()]
        own = hidden + self._sinks
        self.first = nn.ParameterList(nn.Parameter(_weights(widths[s], hidden, hidden)) for s, _ in self._ends)
        self.first_own = nn.ParameterList(nn.Parameter(_weights(width, own, hidden)) for width in widths)
        self.weights, self.own, self.source, self.bias = (nn.ParameterList() for _ in range(4))
        self.scale, self.shift = nn.ParameterList(), nn.ParameterList()
        relations = len(self._ends)
        for i in range(num_layers):
            self.source.append(uniform((relations, self.heads, hidden // self.heads), hidden // self.heads))
            self.bias.append(nn.Parameter(torch.zeros(types, hidden)))
            if i == 0:
                continue
            of_relations = [_weights(hidden, hidden, hidden) for _ in range(relations)]
            self.weights.append(nn.Parameter(torch.stack(of_relations)))
            self.own.append(nn.Parameter(torch.stack([_weights(hidden, own, hidden).t() for _ in range(types)])))
            if norm == "layer":
                self.scale.append(nn.Parameter(torch.ones(types, hidden)))
                self.shift.append(nn.Parameter(torch.zeros(types, hidden)))
        self.last = nn.Linear(hidden, as_size("out_dim", out_dim))
        # Processes that train together exchange the gradient of each parameter that is not frozen.
        for (_, sink), weight in zip(self._ends, self.first, strict=True):
            weight.requires_grad_(self.names[sink] in self.written[0])
        for name, weight in zip(self.names, self.first_own, strict=True):
            weight.requires_grad_(name in self.written[0])

    def forward(self, batch: HeteroMiniBatch | CapturedHeteroBatch) -> Tensor:
        """Logits of the seeds, `[batch_size, out_dim]`.

        Raises:
            ValueError: see `HeteroBlockNet.check`; or the mini-batch lacks features of a type.
        """
        self.check(batch)
        layout = batch.layout if isinstance(batch, CapturedHeteroBatch) else HopLayout.of(batch)
        x, by_source = self._first(layout), dict[int, BySource]()
        for i in range(1, self.num_layers):
            if len(self.scale):
                group = layout.group(self.num_layers - i + 1)
                x = group.norm(x, self.scale[i - 1], self.shift[i - 1])
            x = F.dropout(F.leaky_relu(x), self.dropout, self.training)
            x = self._later(i, layout, x, by_source)
        return self.last(x[: batch.batch_size])

    def _first(self, layout: HopLayout) -> Tensor:
        """`[nodes of all hops but the last, hidden]` by the first layer, which reads features where they lie."""
        hops = self.num_layers
        dtype = _working(layout.row.device, self.bias[0].dtype)
        tables: list[Tensor | None] = []
        places: list[Tensor] = []  # of a type's distinct nodes there
        for name, count in zip(self.names, layout.unique, strict=True):
            table, at = self._table(layout, name, dtype) if name in self.read else (None, None)
            tables.append(None if table is None else padded(table))
            places.append(layout.arange(count) if at is None else at)
        nodes = torch.cat(places).index_select(0, layout.row)
        widths = [0 if table is None else table.shape[1] for table in tables]
        spans, rows = _own_rows(layout, hops, tables, nodes, dtype)
        own = [_as_wide(weight, width) for weight, width in zip(self.first_own, widths, strict=True)]
        both = product_by_type(spans, rows, [weight.to(dtype) for weight in own])
        weights = [_as_wide(self.first[r], widths[source]) for r, (source, _) in enumerate(self._ends)]
        entries = nodes.index_select(0, layout.entries_of(hops)).to(layout.indices.dtype)
        attended = AttendedRows(layout.rows_of(hops), entries)
        return self._layer(0, layout, both, attended, tables, weights)

    def _later(self, i: int, layout: HopLayout, x: Tensor, by_source: dict[int, BySource]) -> Tensor:
        """The output of layer `i`, from the one before it."""
        hops = self.num_layers - i
        x = x.to(_working(x.device, self.bias[i].dtype))
        indptr, entries, nodes = layout.rows_of(hops), layout.entries_of(hops), layout.nodes_of(hops)
        sources = by_source.setdefault(entries.data_ptr(), BySource(indptr, entries, len(x)))  # of all later layers
        rows = AttendedRows(indptr, sources.entries, sources)
        both = layout.group(hops).linear(x[:nodes], self.own[i - 1])
        table = padded(x)
        return self._layer(i, layout, both, rows, [table], [_as_wide(of, table.shape[1]) for of in self.weights[i - 1]])

    def _layer(
        self,
        i: int,
        layout: HopLayout,
        both: Tensor,
        rows: AttendedRows,
        x: Sequence[Tensor | None],
        weights: Sequence[Tensor],
    ) -> Tensor:
        """`[nodes, hidden]` of layer `i`.

        Args:
            both: `[nodes, hidden + sinks]`, products of the nodes' own rows, and their part of the scores.
            rows: of the neighbors.
            x: what they read, see `attend`.
            weights: `[F, hidden]` by relation.
        """
        hops, hidden, heads = self.num_layers - i, self.hidden_channels, self.heads
        own, of_nodes = both.split([hidden, self._sinks], 1)
        wide = torch.promote_types(self.bias[i].dtype, torch.float32)  # of scores
        of_parts = zip(layout.parts(hops), of_nodes.split([part.size for part in layout.parts(hops)]), strict=True)
        sinks = [of[:, : part.slots * heads].reshape(-1, heads) for part, of in of_parts]
        scores = torch.cat([of_nodes.new_empty(0, heads), *sinks]).to(wide)
        by_head = [weight.view(-1, heads, hidden // heads) for weight in weights]
        vectors = [(weight * of).to(wide).sum(2).t() for weight, of in zip(by_head, self.source[i], strict=True)]
        widths = [0 if table is None else table.shape[1] for table in x]
        widths = widths * len(self.names) if len(x) == 1 else widths
        places = attended_places(layout, hops, self._into, widths, heads)
        sums = attend(places, rows, x, vectors, scores, SLOPE)
        none = by_head[0][:0]
        matrices = [torch.cat([none, *(by_head[r] for r, _ in into)]).transpose(0, 1) for into in self._into]
        found = product_by_head(places.spans, sums, [of.to(sums.dtype).contiguous() for of in matrices])
        return layout.group(hops).plus(found + own, self.bias[i])

    def _table(self, layout: HopLayout, name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Rows of a type's features, `[n, F]`; and the places of its distinct nodes there, None if they follow on each
        other.
        """
        width, count = self.in_dims[name], layout.unique[self.names.index(name)]
        if not width:
            ones = torch.ones(1, 1, dtype=dtype, device=layout.row.device)
            return ones, torch.zeros(count, dtype=torch.int64, device=layout.row.device)
        whole = width % columns_of(dtype, layout.row.is_cuda) == 0
        return self.features(layout, name, dtype, dtype if whole else None)


def _working(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """The dtype of rows: that of autocast, or of the weights. Attention takes no float16: float32 in its place."""
    found = autocast_dtype(device.type) or dtype
    return torch.float32 if found == torch.float16 else found


def _own_rows(
    layout: HopLayout, hops: int, tables: Sequence[Any], nodes: Tensor, dtype: torch.dtype
) -> tuple[list[Span], Tensor]:
    """The features of the nodes of the first hops, flat, and where those of each part lie.

    Args:
        tables: by type, of `dtype`.
        nodes: `[nodes]` places there.
    """
    spans, size = [], 0
    for part in layout.parts(hops):
        spans.append(Span(part.node_type, size, part.size, tables[part.node_type].shape[1]))
        size += part.size * spans[-1].a_node
    rows = torch.empty(size, dtype=dtype, device=nodes.device)
    for part, span in zip(layout.parts(hops), spans, strict=True):
        there = rows[span.begin : span.begin + span.size * span.a_node].view(span.size, span.a_node)
        torch.index_select(tables[span.node_type], 0, nodes[part.begin : part.begin + part.size], out=there)
    return spans, rows


def _as_wide(weight: Tensor, width: int) -> Tensor:
    """`[width, out]`, with zeros below; as it is where features are not read, whose width is 0."""
    spare = width - len(weight)
    return F.pad(weight, (0, 0, 0, spare)) if spare > 0 else weight


def _weights(width: int, out: int, fan_out: int) -> Tensor:
    """`[width, out]`, drawn as Glorot and Bengio 2010, https://proceedings.mlr.press/v9/glorot10a.html."""
    bound = (6 / (width + fan_out)) ** 0.5
    return torch.empty(width, out).uniform_(-bound, bound)

"""R-GCN on typed mini-batches: the layers apply all relations at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from loader.machine.arguments import as_size
from loader.machine.renamed_arguments import renamed
from loader.ops import aggregate_row_mean
from loader.ops.autocast import autocast_dtype
from loader.ops.captured_hetero_batch import CapturedHeteroBatch
from loader.ops.grouped import product_by_type, sum_of_relations
from loader.ops.hop_layout import HopLayout
from loader.ops.packed_means import packed_means
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.segments import EdgeType
from models.hetero_block_net import HeteroBlockNet, uniform
from models.trained_rows import OneHotLayer, TrainedRows, check_trained_rows, nodes_without_features

_WIDE = 8  # times the hidden width: wider features are narrowed before means are taken


@renamed({"hidden": "hidden_channels"})
class RGCN(HeteroBlockNet):
    """Relational graph convolutions (Schlichtkrull et al. 2018, https://arxiv.org/abs/1703.06103), as for ogbn-mag.

    A linear layer per node type brings features to one width. A type without features has one learned row for all its
    nodes, or with `trained_rows` one for each, in place of features. A layer adds up, over the relations into a node,
    the mean of its neighbors times the relation's weights, and the node's own row times the weights of its type, with a
    bias. So it is GraphSAGE with mean aggregation and weights of its own per relation, too (R-SAGE).

    Args:
        in_dims: node type -> width of its features, 0 if it has none, in the order of the graph's types.
        edge_types: the relations, in the order of the graph's.
        target: the node type of the seeds.
        hidden_channels, out_dim: widths of the hidden layers and of the output.
        num_layers: depth; the sampler needs as many hops.
        bases: a relation's weights are sums of so many matrices that a layer's relations share (section 2.2 of the
            paper). None gives each relation its own.
        dropout, input_dropout: probabilities in [0, 1) that an element of a hidden layer, of the features, is dropped.
        norm: "none", or "layer": a layer norm per type after each layer but the last.
        trained_rows: width of learned rows that nodes of types without features have in their place, see
            `TrainedRows`. "one-hot": such nodes have one-hot features, as published, see `OneHotLayer`. None: all nodes
            of such a type have one row.
        num_nodes: node type -> number of nodes, for these tables.

    Raises:
        ValueError: a value out of its range, no relation leads to the target, or `trained_rows` has no numbers of
            nodes, or no type without features.
    """

    order: Tensor
    sources: Tensor

    def __init__(
        self,
        in_dims: Mapping[str, int],
        edge_types: Sequence[EdgeType],
        target: str,
        hidden_channels: int,
        out_dim: int,
        num_layers: int = 2,
        *,
        bases: int | None = None,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        norm: str = "none",
        trained_rows: int | str | None = None,
        num_nodes: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(
            in_dims, edge_types, target, hidden_channels, num_layers,
            dropout=dropout, input_dropout=input_dropout, norm=norm,
        )  # fmt: skip
        widths = [hidden_channels] * num_layers + [as_size("out_dim", out_dim)]
        count = None if bases is None else as_size("bases", bases)
        self.in_dims = self._with_rows(dict(in_dims), num_nodes, trained_rows, count, widths[1])
        self.inputs = nn.ModuleList(self._input_of(name, width) for name, width in self.in_dims.items())
        relations, types = len(self.edge_types), len(self.names)
        # What a layer multiplies: rows of the relations into each type, then nodes' own rows by type.
        terms = [*(of for into in self._into for of in into), *((relations + t, t) for t in range(types))]
        firsts = [sum(self._slots[:t]) for t in range(types)]
        self._terms = [
            [*range(first, first + n), relations + t]
            for t, (first, n) in enumerate(zip(firsts, self._slots, strict=True))
        ]
        # As tensors, which a CUDA graph can read.
        order, sources = (torch.tensor(of) for of in zip(*terms, strict=True))
        self.register_buffer("order", order, persistent=False)
        self.register_buffer("sources", sources, persistent=False)
        self._by_width: dict[int, tuple[list[int], list[int]]] = {}  # types of a width, and terms over their rows
        for width in dict.fromkeys(filter(None, map(self._read_width, self.names))):
            kinds = [t for t, name in enumerate(self.names) if self._read_width(name) == width]
            at = [i for i, (_, source) in enumerate(terms) if source in kinds]
            self._by_width[width] = kinds, at
            self.register_buffer(f"_at_{width}", torch.tensor(at), persistent=False)
            of = torch.tensor([kinds.index(terms[i][1]) for i in at])
            self.register_buffer(f"_of_{width}", of, persistent=False)
        self.own, self.bias, self.scale, self.shift = (nn.ParameterList() for _ in range(4))
        self.weights, self.shares = nn.ParameterList(), nn.ParameterList()
        for i in range(num_layers):
            width, out = widths[i], widths[i + 1]
            self.own.append(uniform((types, out, width), width))
            self.bias.append(uniform((types, out), width))
            self.weights.append(uniform((relations if count is None else count, width, out), width))
            if count is not None:
                self.shares.append(uniform((relations, count), count))
            if norm == "layer" and i < num_layers - 1:
                self.scale.append(nn.Parameter(torch.ones(types, out)))
                self.shift.append(nn.Parameter(torch.zeros(types, out)))

    def _with_rows(
        self,
        in_dims: dict[str, int],
        num_nodes: Mapping[str, int] | None,
        trained_rows: int | str | None,
        bases: int | None,
        out: int,
    ) -> dict[str, int]:
        """Makes the tables of trained rows; returns the widths of features, with those of tables in their place."""
        trained = check_trained_rows(trained_rows)
        without = {} if trained is None else nodes_without_features(in_dims, num_nodes, trained)
        self.learned = {name: count for name, count in without.items() if name in self.read}  # numbers of their nodes
        if without and not self.learned:
            raise ValueError(
                f"trained_rows is {trained}, but types without features ({', '.join(without)}) are further from the "
                "seeds than num_layers reaches; leave it out, or give more layers"
            )
        self.one_hot: OneHotLayer | None = None
        self._table_of: dict[str, int] = {}
        self.tables = nn.ModuleList()
        if isinstance(trained, str) and self.learned:
            self.one_hot = OneHotLayer(self.learned, self.names, self.edge_types, bases, out, self.input_dropout)
            self.read = self.read - set(self.learned)
        elif isinstance(trained, int):
            for i, (name, count) in enumerate(self.learned.items()):
                self.tables.append(TrainedRows(count, trained))
                self._table_of[name], in_dims[name] = i, trained
        return in_dims

    def _read_width(self, name: str) -> int:
        """Columns that the first layer reads of a type: of its features, or of what they are narrowed to."""
        width = self.in_dims[name] if name in self.read else 0
        return self.hidden_channels if width > _WIDE * self.hidden_channels else width

    def _input_of(self, name: str, width: int) -> nn.Module:
        if name not in self.read:
            return nn.Identity()
        return nn.Linear(width, self.hidden_channels) if width else _OneRow(self.hidden_channels)

    def forward(self, batch: HeteroMiniBatch | CapturedHeteroBatch) -> Tensor:
        """Logits of the seeds, `[batch_size, out_dim]`.

        Raises:
            ValueError: the mini-batch has another number of hops than the model has layers, other types or relations,
                or lacks features of a type.
        """
        self.check(batch)
        layout = batch.layout if isinstance(batch, CapturedHeteroBatch) else HopLayout.of(batch)
        last = self.num_layers
        x = self._first(layout)
        for i in range(1, last):
            if len(self.scale):
                group = layout.group(last - i + 1)
                x = group.norm(x, self.scale[i - 1], self.shift[i - 1])
            x = nn.functional.dropout(x.relu(), self.dropout, self.training)
            hops = last - i
            # Own rows and means of neighbors have one gradient.
            indptr, entries = layout.with_own(hops)
            nodes, group = layout.nodes_of(hops), layout.group(hops)
            own, means = aggregate_row_mean(x, indptr, entries).split([nodes, len(indptr) - 1 - nodes])
            x = group.linear(own, self.own[i], self.bias[i])
            x = x + sum_of_relations(layout.parts(hops), self._slots, means, self._in_order(self._weights(i)))
        return x[: batch.batch_size]

    def _first(self, layout: HopLayout) -> Tensor:
        """`[nodes of all hops but the last, out]` by the first layer.

        The layers before it are linear, so they are applied to means, of which there are fewer than nodes. So features
        are read as they are, and get no gradient.
        """
        hops, weights = self.num_layers, self._weights(0)
        dtype = autocast_dtype(layout.row.device.type) or weights.dtype
        rows: list[tuple[Tensor, Tensor] | None] = []  # of a type: what is read, and how it comes to one width
        places: list[Tensor] = []  # of its nodes there
        biases: list[Any] = []
        for name, layer, count in zip(self.names, self.inputs, layout.unique, strict=True):
            biases.append(weights.new_zeros(self.hidden_channels) if isinstance(layer, nn.Identity) else layer.bias)
            of_type, at = self._rows(layout, name, layer)
            rows.append(of_type)
            places.append(layout.arange(count) if at is None else at)
        features = [None if of_type is None else of_type[0] for of_type in rows]
        packed = layout.packed(hops, self._into, [0 if x is None else x.shape[1] for x in features])
        nodes = torch.cat(places).index_select(0, layout.row)
        means = packed_means(packed, features, nodes, layout.rows_of(hops), layout.entries_of(hops), dtype)
        matrices = torch.cat([weights, self.own[0].transpose(1, 2)]).index_select(0, self.order)
        products: list[Tensor | None] = [None] * len(matrices)
        # Features of a width are brought to the hidden one and multiplied at once.
        for width, (kinds, positions) in self._by_width.items():
            to_hidden = torch.stack([of_type[1] for t in kinds if (of_type := rows[t]) is not None])
            to_hidden, of_terms = (
                of.index_select(0, getattr(self, f"{name}_{width}"))
                for of, name in ((to_hidden, "_of"), (matrices, "_at"))
            )
            for i, product in zip(positions, (to_hidden @ of_terms).unbind(), strict=True):
                products[i] = product
        none = matrices[0, :0]
        by_type = [torch.cat([none, *(of for i in terms if (of := products[i]) is not None)]) for terms in self._terms]
        # A row with an entry has the bias of its source type once, as a node has that of its own.
        of_bias = (torch.stack(biases).index_select(0, self.sources).unsqueeze(1) @ matrices).to(dtype)
        some = (layout.rows_of(hops).diff() > 0).unsqueeze(1).to(dtype)
        found = sum_of_relations(layout.parts(hops), self._slots, some, of_bias[: len(self.edge_types)])
        constants = of_bias[len(self.edge_types) :, 0] + self.bias[0]
        own_and_means = product_by_type(packed.spans, means, [of.to(dtype) for of in by_type])
        x = layout.group(hops).plus(own_and_means + found, constants)
        if self.one_hot is not None:
            x = x + self.one_hot(layout, hops, self.shares[0] if len(self.shares) else None).to(dtype)
        return x

    def check(self, batch: HeteroMiniBatch | CapturedHeteroBatch) -> None:
        """See `HeteroBlockNet.check`. Also raises ValueError if trained rows were made for another number of nodes."""
        super().check(batch)
        for name, learned in self.learned.items():
            has = len(batch.segments.node_types[name])
            if has != learned:
                raise ValueError(
                    f"the mini-batch's graph has {has} nodes of type {name}, the model rows of {learned}; make the "
                    "model of the same graph"
                )

    def _rows(
        self, layout: HopLayout, name: str, layer: nn.Module
    ) -> tuple[tuple[Tensor, Tensor] | None, Tensor | None]:
        """Features of a type, `[n, F]`, with the `[F, hidden_channels]` that bring them to one width, None if it has
        none; and the places of its nodes there, None if they follow on each other.

        Features much wider than that are narrowed here, since there may be more entries than nodes.
        """
        width = self.in_dims[name]
        if not width or isinstance(layer, nn.Identity):
            return None, None
        weight: Any = layer.weight
        wide, at = width != self._read_width(name), None
        dtype = autocast_dtype(layout.row.device.type) or weight.dtype
        if (table := self._table_of.get(name)) is not None:
            x = self.drop_inputs(self.tables[table](layout.ids_of(name)).to(dtype))
        else:
            x, at = self.features(layout, name, dtype, None if wide else weight.dtype)
        if wide:
            return (
                nn.functional.linear(x, weight),
                torch.eye(self.hidden_channels, dtype=weight.dtype, device=x.device),
            ), None
        return (x, weight.t()), at

    def _weights(self, i: int) -> Tensor:
        """`[relations, in, out]` of layer `i`."""
        every: Tensor = self.weights[i]
        return torch.einsum("rb,bio->rio", self.shares[i], every) if len(self.shares) else every

    def _in_order(self, of_relations: Tensor) -> Tensor:
        """Those of the relations into a type beside each other, as rows lie."""
        return of_relations.index_select(0, self.order[: len(of_relations)])


class _OneRow(nn.Module):
    """The row of all nodes of a type without features: what a linear layer of no features gives."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = uniform((width,), 1)

"""R-GCN on typed mini-batches: the layers apply all relations at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from loader.machine.arguments import as_number, as_size
from loader.ops import aggregate_row_mean
from loader.ops.autocast import autocast_dtype
from loader.ops.grouped import sum_of_relations
from loader.ops.hop_layout import HopLayout
from loader.ops.live_hops import LiveHops
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.segments import EdgeType


class RGCN(nn.Module):
    """Relational graph convolutions (Schlichtkrull et al. 2018, https://arxiv.org/abs/1703.06103), as for ogbn-mag.

    A linear layer per node type brings features to one width; a type without features has one learned row for all its
    nodes. A layer adds up, over the relations into a node, the mean of its neighbors times the relation's weights, and
    the node's own row times the weights of its type, with a bias. So it is GraphSAGE with mean aggregation and weights
    of its own per relation, too (R-SAGE).

    Args:
        in_dims: node type -> width of its features, 0 if it has none, in the order of the graph's types.
        edge_types: the relations, in the order of the graph's.
        target: the node type of the seeds.
        hidden, out_dim: widths of the hidden layers and of the output.
        num_layers: depth; the sampler needs as many hops.
        bases: a relation's weights are sums of so many matrices that a layer's relations share (section 2.2 of the
            paper). None gives each relation its own.
        dropout, input_dropout: probabilities in [0, 1) that an element of a hidden layer, of the features, is dropped.
        norm: "none", or "layer": a layer norm per type after each layer but the last.

    Raises:
        ValueError: a value out of its range, or no relation leads to the target.
    """

    def __init__(
        self,
        in_dims: Mapping[str, int],
        edge_types: Sequence[EdgeType],
        target: str,
        hidden: int,
        out_dim: int,
        num_layers: int = 2,
        *,
        bases: int | None = None,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        norm: str = "none",
    ) -> None:
        super().__init__()
        self.num_layers, self.target = as_size("num_layers", num_layers), target
        self.hidden = as_size("hidden", hidden)
        self.names, self.in_dims = tuple(in_dims), dict(in_dims)
        self.edge_types: list[EdgeType] = [(str(s), str(name), str(d)) for s, name, d in edge_types]
        for what, value in (("dropout", dropout), ("input_dropout", input_dropout)):
            if not 0 <= as_number(what, value) < 1:
                raise ValueError(f"{what} is {value}; it must be in [0, 1)")
        if norm not in ("none", "layer"):
            way = ", which does not mix the rows of a mini-batch" if norm == "batch" else ""
            raise ValueError(f"norm is {norm!r}; it must be none or layer{way}")
        self.dropout, self.input_dropout = float(dropout), float(input_dropout)
        if all(key[2] != target for key in self.edge_types):
            raise ValueError(
                f"no relation leads to nodes of type {target}, so there is nothing to learn from; "
                "dataset.undirected=true adds the reverse of every edge"
            )
        self._slots = [sum(key[2] == name for key in self.edge_types) for name in self.names]
        written = [{target}]  # types whose nodes each layer writes, the last one first
        for _ in range(num_layers):
            written.append(written[-1] | {s for s, _, d in self.edge_types if d in written[-1]})
        self.read = written[-1]  # types whose features are read
        self.inputs = nn.ModuleList(self._input_of(name, width) for name, width in in_dims.items())
        widths = [hidden] * num_layers + [as_size("out_dim", out_dim)]
        relations, types = len(self.edge_types), len(self.names)
        count = None if bases is None else as_size("bases", bases)
        self.own, self.bias, self.scale, self.shift = (nn.ParameterList() for _ in range(4))
        self.weights, self.shares = nn.ParameterList(), nn.ParameterList()
        for i in range(num_layers):
            width, out = widths[i], widths[i + 1]
            self.own.append(_uniform((types, out, width), width))
            self.bias.append(_uniform((types, out), width))
            self.weights.append(_uniform((relations if count is None else count, width, out), width))
            if count is not None:
                self.shares.append(_uniform((relations, count), count))
            if norm == "layer" and i < num_layers - 1:
                self.scale.append(nn.Parameter(torch.ones(types, out)))
                self.shift.append(nn.Parameter(torch.zeros(types, out)))

    def _input_of(self, name: str, width: int) -> nn.Module:
        if name not in self.read:
            return nn.Identity()
        return nn.Linear(width, self.hidden) if width else _OneRow(self.hidden)

    def forward(self, batch: HeteroMiniBatch | LiveHops) -> Tensor:
        """Logits of the seeds, `[batch_size, out_dim]`.

        Raises:
            ValueError: the mini-batch has another number of hops than the model has layers, other types or relations,
                or lacks features of a type.
        """
        self._check(batch)
        layout = batch.layout if isinstance(batch, LiveHops) else HopLayout.of(batch)
        last = self.num_layers
        rows = self._inputs(layout)
        # The first layer reads its rows where they lie, type after type.
        x = rows.index_select(0, layout.row[: layout.nodes_of(last)])
        for i in range(last):
            hops = last - i
            entries = layout.entries_of(hops)
            if i == 0:
                entries = layout.row.to(entries.dtype).index_select(0, entries)
            means = aggregate_row_mean(x if i else rows, layout.rows_of(hops), entries)
            group = layout.group(hops)
            own = group.linear(x[: layout.nodes_of(hops)], group.spread(self.own[i]), group.spread(self.bias[i]))
            x = own + sum_of_relations(layout.parts(hops), self._slots, means, self._weights(i))
            if i < last - 1:
                if len(self.scale):
                    x = group.norm(x, group.spread(self.scale[i]), group.spread(self.shift[i]))
                x = nn.functional.dropout(x.relu(), self.dropout, self.training)
        return x[: batch.batch_size]

    def _check(self, batch: HeteroMiniBatch | LiveHops) -> None:
        hops = len(batch.sizes) - 1
        if hops != self.num_layers:
            raise ValueError(
                f"the mini-batch has {hops} hops, the model {self.num_layers} layers; give the sampler as many fanouts "
                "as the model has layers"
            )
        seg = batch.segments
        if seg.names != self.names or list(seg.edge_types) != self.edge_types:
            raise ValueError(
                f"the mini-batch has node types {list(seg.names)} and relations {list(seg.edge_types)}, the model "
                f"{list(self.names)} and {self.edge_types}; make the model of the same graph"
            )

    def _inputs(self, layout: HopLayout) -> Tensor:
        """`[distinct nodes, hidden]`, type after type; zeros of types that no layer reads."""
        found, dtype = [], self.own[0].dtype
        for name, layer, count in zip(self.names, self.inputs, layout.unique, strict=True):
            width = self.in_dims[name]
            if isinstance(layer, nn.Identity):
                found.append(self.own[0].new_zeros(count, self.hidden))
            elif not width:
                found.append(layer(count))
            else:
                x = layout.unique_x.get(name)
                if x is None or x.shape[-1] != width:
                    has = 0 if x is None else x.shape[-1]
                    raise ValueError(
                        f"the mini-batch has {has} features of {name}, the model reads {width}; give the loader these"
                    )
                x = x if autocast_dtype(x.device.type) is not None else x.to(dtype)
                found.append(layer(nn.functional.dropout(x, self.input_dropout, self.training)))
        if autocast_dtype(layout.row.device.type) is not None:  # a linear layer gives another type than the rest has
            found = [part.to(autocast_dtype(layout.row.device.type)) for part in found]
        return torch.cat(found)

    def _weights(self, i: int) -> Tensor:
        """`[relations, in, out]` of layer `i`, those into the same type beside each other."""
        every = self.weights[i]
        if len(self.shares):
            every = torch.einsum("rb,bio->rio", self.shares[i], every)
        order = [r for name in self.names for r, key in enumerate(self.edge_types) if key[2] == name]
        if order == list(range(len(order))):
            return every
        return torch.stack([every[r] for r in order])


class _OneRow(nn.Module):
    """The row of all nodes of a type without features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.row = _uniform((width,), 1)

    def forward(self, count: int) -> Tensor:
        return self.row.expand(count, -1)


def _uniform(shape: tuple[int, ...], width: int) -> nn.Parameter:
    """As the weights of `torch.nn.Linear` with inputs of this width."""
    bound = width**-0.5
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))

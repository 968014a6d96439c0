"""Models of torch_geometric for several types of nodes and edges, on mini-batches: `to_hetero` and HGT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from loader.machine.arguments import as_fraction, as_size
from loader.machine.optional import import_optional
from loader.machine.renamed_arguments import renamed_arguments
from loader.ops.autocast import autocast_dtype
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.segments import EdgeType
from models.pyg import make_net

BASES = ("graphsage", "gat", "gatv2")


class HeteroNet(nn.Module):
    """A network on the subgraph that `HeteroMiniBatch.to_pyg` gives. A subclass adds `outputs`.

    A node of a type without features has 1 as its only feature, as in torch_geometric's examples. So the first layer
    learns one row for all nodes of this type. Types that are in no relation are left out.

    Args:
        in_dims: node type -> width of its features, 0 if it has none.
        edge_types: the relations.
        target: the node type of the seeds.
        num_layers: depth; the sampler needs as many hops.
        input_dropout: probability in [0, 1) that an element of the features is dropped in training.

    Raises:
        ValueError: a value out of its range; a name is no Python identifier; no relation leads to a type, so that
            layers after the first have nothing to read for its nodes.
    """

    def __init__(
        self,
        in_dims: Mapping[str, int],
        edge_types: Sequence[EdgeType],
        target: str,
        num_layers: int,
        input_dropout: float,
    ) -> None:
        super().__init__()
        self.num_layers = as_size("num_layers", num_layers)
        as_fraction("input_dropout", input_dropout)
        self.input_dropout, self.target = input_dropout, target
        self.edge_types: list[EdgeType] = [(str(s), str(name), str(d)) for s, name, d in edge_types]
        ends = {end for source, _, sink in self.edge_types for end in (source, sink)}
        self.in_dims = {name: width for name, width in in_dims.items() if name in ends}
        for name in [*self.in_dims, *(key[1] for key in self.edge_types)]:
            if not name.isidentifier():
                raise ValueError(
                    f"a type is called {name!r}; a model's weights are named after it, so it must be a Python "
                    "identifier: letters, digits and _"
                )
        lacks = [name for name in self.in_dims if all(key[2] != name for key in self.edge_types)]
        if lacks or target not in ends:
            raise ValueError(
                f"no relation leads to nodes of type {(lacks or [target])[0]}, so layers have nothing to compute for "
                "them; dataset.undirected=true adds the reverse of every edge"
            )

    @property
    def metadata(self) -> tuple[list[str], list[EdgeType]]:
        """Node types and edge types, as torch_geometric's models take them."""
        return list(self.in_dims), self.edge_types

    def outputs(self, x: dict[str, Tensor], edges: dict[EdgeType, Tensor]) -> Tensor:
        """Logits of all nodes of the target.

        Args:
            x: node type -> `[nodes, width]`.
            edges: edge type -> `[2, edges]` places of sources and destinations.
        """
        raise NotImplementedError(f"{type(self).__name__} has no outputs(x, edges)")

    def forward(self, batch: HeteroMiniBatch) -> Tensor:
        """Logits of the seeds, `[batch_size, out_dim]`.

        Raises:
            ValueError: see `inputs`.
        """
        return self.outputs(*self.inputs(batch))[: batch.batch_size]

    def inputs(self, batch: HeteroMiniBatch) -> tuple[dict[str, Tensor], dict[EdgeType, Tensor]]:
        """What `outputs` takes, of a mini-batch.

        Raises:
            ValueError: the mini-batch has another number of hops than the model has layers, or lacks features of a
                type.
        """
        if len(batch.blocks) != self.num_layers:
            raise ValueError(
                f"the mini-batch has {len(batch.blocks)} hops, the model {self.num_layers} layers; "
                "give the sampler as many fanouts as the model has layers"
            )
        sampled = batch.to_pyg()
        x = {name: self._rows(sampled[name], name, width) for name, width in self.in_dims.items()}
        return x, {edge_type: sampled[edge_type].edge_index for edge_type in self.edge_types}

    def _rows(self, nodes: Any, name: str, width: int) -> Tensor:
        device = nodes.n_id.device
        dtype = next(self.parameters()).dtype
        if not width:
            return torch.ones(nodes.num_nodes, 1, dtype=dtype, device=device)
        if "x" not in nodes or nodes.x.shape[-1] != width:
            has = nodes.x.shape[-1] if "x" in nodes else 0
            raise ValueError(
                f"the mini-batch has {has} features of {name}, the model reads {width}; give the loader these"
            )
        x: Tensor = nodes.x if autocast_dtype(device.type) is not None else nodes.x.to(dtype)
        return nn.functional.dropout(x, self.input_dropout, self.training)

    def _freeze_unread(self) -> None:
        """Makes what is left of the parameters, in one call, and freezes those that no output depends on.

        In the last layer these are the ones of all other types. Processes that train together exchange every gradient,
        so each parameter that is not frozen must have one. `read` then names the types whose features are read.
        """
        training = self.training
        self.eval()  # dropout would draw numbers
        x = {name: torch.ones(1, width or 1, requires_grad=True) for name, width in self.in_dims.items()}
        edges = {edge_type: torch.zeros(2, 1, dtype=torch.int64) for edge_type in self.edge_types}
        with torch.enable_grad():
            self.outputs(x, edges).sum().backward()
        for parameter in self.parameters():
            parameter.requires_grad_(parameter.grad is not None)
            parameter.grad = None
        self.read = {name for name, rows in x.items() if rows.grad is not None}
        self.train(training)


@renamed_arguments({"hidden": "hidden_channels"})
class ToHetero(HeteroNet):
    """GraphSAGE or GAT of torch_geometric, with weights of its own per relation: `torch_geometric.nn.to_hetero`.

    The messages of the relations into a node are added up.

    Args:
        base: "graphsage", "gat" or "gatv2".
        in_dims, edge_types, target, num_layers, input_dropout: see `HeteroNet`.
        hidden_channels, out_dim: widths of the hidden layers and of the output.
        dropout, norm, act, heads, attention_dropout: see `models.pyg.PyGNet`.

    Raises:
        ImportError: torch_geometric is missing.
        ValueError: a value out of its range, or an option that this base does not have; and as `HeteroNet`.
    """

    def __init__(
        self,
        base: str,
        in_dims: Mapping[str, int],
        edge_types: Sequence[EdgeType],
        target: str,
        hidden_channels: int,
        out_dim: int,
        num_layers: int = 2,
        *,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        norm: str = "none",
        act: str = "relu",
        heads: int | None = None,
        attention_dropout: float | None = None,
    ) -> None:
        super().__init__(in_dims, edge_types, target, num_layers, input_dropout)
        if base not in BASES:
            raise ValueError(f"base is {base!r}; it must be one of {', '.join(BASES)}")
        to_hetero = import_optional("torch_geometric.nn", "model=to_hetero", "datasets").to_hetero
        net = make_net(
            base,
            (-1, -1),
            hidden_channels,
            out_dim,
            num_layers,
            dropout=dropout,
            input_dropout=input_dropout,
            norm=norm,
            act=act,
            heads=heads,
            attention_dropout=attention_dropout,
            # A node and its own neighbors of another type are no loop.
            **({} if base == "graphsage" else {"add_self_loops": False}),
        )
        self.net = to_hetero(net, self.metadata)
        self._freeze_unread()

    def outputs(self, x: dict[str, Tensor], edges: dict[EdgeType, Tensor]) -> Tensor:
        out: Tensor = self.net(x, edges)[self.target]
        return out


@renamed_arguments({"hidden": "hidden_channels"})
class HGT(HeteroNet):
    """Heterogeneous graph transformer (Hu et al. 2020, https://arxiv.org/abs/2003.01332): layers `HGTConv` of
    torch_geometric between a linear layer per type and one for the output.

    Args:
        in_dims, edge_types, target, num_layers, input_dropout: see `HeteroNet`.
        hidden_channels, out_dim: widths of the hidden layers and of the output.
        heads: of the attention, which divide `hidden_channels`.
        dropout: probability in [0, 1) that an element of a hidden layer is dropped in training.

    Raises:
        ImportError: torch_geometric is missing.
        ValueError: a value out of its range; and as `HeteroNet`.
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
        dropout: float = 0.5,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__(in_dims, edge_types, target, num_layers, input_dropout)
        as_fraction("dropout", dropout)
        if as_size("hidden_channels", hidden_channels) % as_size("heads", heads):
            raise ValueError(
                f"hidden_channels is {hidden_channels}, heads {heads}; the heads share the width, so it must be a "
                "multiple"
            )
        conv = import_optional("torch_geometric.nn", "model=hgt", "datasets").HGTConv
        self.dropout = dropout
        self.first = nn.ModuleDict(
            {name: nn.Linear(width or 1, hidden_channels) for name, width in self.in_dims.items()}
        )
        self.convs = nn.ModuleList(
            conv(hidden_channels, hidden_channels, self.metadata, heads) for _ in range(num_layers)
        )
        self.last = nn.Linear(hidden_channels, as_size("out_dim", out_dim))
        self._freeze_unread()

    def outputs(self, x: dict[str, Tensor], edges: dict[EdgeType, Tensor]) -> Tensor:
        x = {name: self._dropped(layer(x[name]).relu()) for name, layer in self.first.items()}
        for conv in self.convs:
            x = {name: self._dropped(rows) for name, rows in conv(x, edges).items()}
        out: Tensor = self.last(x[self.target])
        return out

    def _dropped(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.dropout, self.training)

"""Embeds both ends of links between two types of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from loader.machine.arguments import as_size
from loader.machine.renamed_arguments import renamed_arguments
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.segments import EdgeType
from models.hetero import ToHetero


@renamed_arguments({"hidden": "hidden_channels"})
class LinkEncoder(ToHetero):
    """GraphSAGE of torch_geometric, with weights of its own per relation, whose outputs are embeddings of the nodes of
    both types that a relation joins.

    For each node of a type without features it trains a row of `hidden_channels` numbers, read in their place.

    Args:
        num_features: node type -> width of its features, 0 if it has none.
        num_nodes: node type -> number of nodes.
        edge_types: the relations.
        edge_type: the relation of the links.
        hidden_channels, out: widths of the hidden layers and of an embedding.
        num_layers, dropout, input_dropout, norm: see `models.hetero.ToHetero`.

    Raises:
        ImportError: torch_geometric is missing.
        ValueError: a value out of its range; and as `models.hetero.HeteroNet`.
    """

    def __init__(
        self,
        num_features: Mapping[str, int],
        num_nodes: Mapping[str, int],
        edge_types: Sequence[EdgeType],
        edge_type: EdgeType,
        hidden_channels: int,
        out: int,
        num_layers: int,
        *,
        dropout: float,
        input_dropout: float,
        norm: str,
    ) -> None:
        self.ends = edge_type[0], edge_type[2]
        as_size("hidden_channels", hidden_channels)
        widths = {name: width or hidden_channels for name, width in num_features.items()}
        options: dict[str, Any] = {"dropout": dropout, "input_dropout": input_dropout, "norm": norm}
        super().__init__("graphsage", widths, edge_types, edge_type[2], hidden_channels, out, num_layers, **options)
        self.rows = nn.ModuleDict(
            {name: nn.Embedding(num_nodes[name], hidden_channels) for name in self.in_dims if not num_features[name]}
        )
        for name, table in self.rows.items():
            table.requires_grad_(name in self.read)

    def outputs(self, x: dict[str, Tensor], edges: dict[EdgeType, Tensor]) -> Tensor:
        found = self.net(x, edges)
        return torch.cat([found[name] for name in dict.fromkeys(self.ends)])

    def forward(self, batch: HeteroMiniBatch) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Embeddings `[nodes, out]` of the mini-batch's nodes of the source type and of the destination type, the seeds
        first.

        Raises:
            ValueError: see `models.hetero.HeteroNet.forward`.
        """
        x, edges = self.inputs(batch)
        embedded = self.outputs(x, edges)
        sources, targets = (x[name].shape[0] for name in self.ends)
        return embedded[:sources], embedded[embedded.shape[0] - targets :]  # a mini-batch may have none of a type

    def _rows(self, nodes: Any, name: str, width: int) -> Tensor:
        if name in self.rows:
            return nn.functional.dropout(self.rows[name](nodes.n_id), self.input_dropout, self.training)
        return super()._rows(nodes, name, width)

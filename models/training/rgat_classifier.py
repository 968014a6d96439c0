"""The LightningModule of R-GAT, with training steps by CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loader.samples.segments import EdgeType
from models.rgat import RGAT
from models.training.hetero_cuda_graphs import GraphedHeteroClassifier


class RGATClassifier(GraphedHeteroClassifier):
    """R-GAT that classifies the seeds of typed mini-batches; on a GPU, training steps are replayed by CUDA graphs.

    See `HeteroClassifier` for what it logs, and for the options that are not named here.

    Args:
        num_features, num_classes, edge_types, target: see `HeteroClassifier`.
        num_layers, hidden_channels, heads, dropout, input_dropout, norm: see `models.rgat.RGAT`.
        options: `cuda_graph` of `GraphedHeteroClassifier`, and see `Classifier`.

    Raises:
        ValueError: a value out of its range.
        RuntimeError: on the first training step, `cuda_graph` where graphs are not possible.
    """

    def __init__(
        self,
        num_features: Mapping[str, int],
        num_classes: int,
        edge_types: Sequence[EdgeType],
        target: str,
        *,
        num_layers: int = 2,
        hidden_channels: int = 64,
        heads: int = 4,
        dropout: float = 0.2,
        input_dropout: float = 0.0,
        norm: str = "none",
        **options: Any,
    ) -> None:
        super().__init__(num_features, num_classes, edge_types, target, **options)
        net = RGAT(
            self.in_dims,
            self.edge_types,
            target,
            hidden_channels,
            num_classes,
            num_layers,
            heads=heads,
            dropout=dropout,
            input_dropout=input_dropout,
            norm=norm,
        )
        self.take(net, RGATClassifier)

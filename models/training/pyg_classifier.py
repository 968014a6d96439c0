"""The LightningModule of torch_geometric's models."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from loader.loaders.whole_graph import WholeGraph
from loader.machine.arguments import as_size
from loader.machine.renamed_arguments import renamed_arguments
from loader.samples import Block, MiniBatch
from models.pyg import PyGNet
from models.training.classifier import Classifier


@renamed_arguments({"hidden": "hidden_channels"})
class PyGClassifier(Classifier):
    """GCN, GAT, GATv2, GIN or PNA of torch_geometric that classifies the seeds of mini-batches.

    Args:
        num_features, num_classes: of the data.
        architecture, num_layers, hidden_channels, dropout, input_dropout, norm, act, heads, attention_dropout: see
            `models.pyg.PyGNet`.
        options: see `Classifier`.

    Raises:
        ImportError: torch_geometric is missing.
        ValueError: a value out of its range, or an option that this architecture does not have.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        architecture: str,
        num_layers: int = 2,
        hidden_channels: int = 256,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        norm: str = "none",
        act: str = "relu",
        heads: int | None = None,
        attention_dropout: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(num_classes, **options)
        self.net = PyGNet(
            architecture,
            as_size("num_features", num_features),
            hidden_channels,
            num_classes,
            num_layers,
            dropout=dropout,
            input_dropout=input_dropout,
            norm=norm,
            act=act,
            heads=heads,
            attention_dropout=attention_dropout,
        )
        self.num_layers = num_layers

    def setup(self, stage: str) -> None:
        super().setup(stage)
        data = getattr(getattr(self.trainer, "datamodule", None), "data", None)
        if data is not None:
            self.net.read_graph(data.graph, fit=stage == "fit")

    def forward(self, batch: MiniBatch) -> Tensor:
        """Logits of the seeds, `[batch_size, num_classes]`."""
        logits: Tensor = self.net(batch, self.input_of(batch))
        return logits

    def layer_of(self, i: int, x: Tensor, block: Block, nodes: Tensor) -> Tensor:
        return self.net.layer(i, x, block, nodes)

    def infer(
        self, whole: WholeGraph, *, embeddings: bool = False, progress: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        self.net.read_graph(whole.graph, fit=False)
        return super().infer(whole, embeddings=embeddings, progress=progress)

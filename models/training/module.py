"""The LightningModule of GraphSAGE, with training steps by CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from loader.loaders.whole_graph import WholeGraph
from loader.machine.arguments import as_flag, as_size
from loader.machine.renamed_arguments import renamed_arguments
from loader.samples import MiniBatch
from models.inference import layerwise_outputs
from models.sage import GraphSAGE
from models.training.classifier import Classifier
from models.training.cuda_graphs import IGNORED_LABEL, GraphedLoss
from models.training.replayed_steps import ReplayedSteps


@renamed_arguments({"hidden": "hidden_channels"})
class NodeClassifier(ReplayedSteps, Classifier):
    """GraphSAGE that classifies the seeds of mini-batches; on a GPU, training steps are replayed by CUDA graphs.

    See `Classifier` for what it logs, and for the options that are not named here.

    Args:
        num_features, num_classes: of the data.
        num_layers, hidden_channels, dropout, input_dropout, norm: see `models.sage.GraphSAGE`.
        cuda_graph: whether training steps on a GPU are replayed by CUDA graphs, see `GraphedLoss`; the
            results are the same. None does so where it is possible (without batch norm and deterministic algorithms)
            and pays (not where features are so wide that the first layer narrows them before it takes the mean).

    Raises:
        ValueError: a value out of its range, or `cuda_graph` with batch norm.
        RuntimeError: on the first training step, `cuda_graph` and deterministic algorithms, or a run on a CPU.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        multilabel: bool = False,
        num_layers: int = 2,
        hidden_channels: int = 256,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        norm: str = "none",
        lr: float = 0.003,
        weight_decay: float = 0.0,
        optimizer: Mapping[str, Any] | None = None,
        schedule: Mapping[str, Any] | None = None,
        class_weights: str | Sequence[float] | None = None,
        label_smoothing: float = 0.0,
        metrics: Sequence[str] = (),
        inference_chunk_mib: int = 256,
        matmul_precision: str = "high",
        cuda_graph: bool | None = None,
    ) -> None:
        as_size("num_features", num_features)
        cuda_graph = None if cuda_graph is None else as_flag("cuda_graph", cuda_graph)
        if cuda_graph and norm == "batch":
            raise ValueError("cuda_graph is true, but norm='batch' mixes rows; set cuda_graph=false or norm='layer'")
        # By name, not as **options: Python's error about another name is to name this class.
        super().__init__(
            num_classes,
            multilabel=multilabel,
            lr=lr,
            weight_decay=weight_decay,
            optimizer=optimizer,
            schedule=schedule,
            class_weights=class_weights,
            label_smoothing=label_smoothing,
            metrics=metrics,
            inference_chunk_mib=inference_chunk_mib,
            matmul_precision=matmul_precision,
        )
        self.net = GraphSAGE(num_features, hidden_channels, num_classes, num_layers, dropout, norm, input_dropout)
        self.cuda_graph = cuda_graph if norm != "batch" else False
        own = type(self)._loss is not NodeClassifier._loss or type(self).forward is not NodeClassifier.forward
        self.graphed = GraphedLoss(self._loss, self.net, None if multilabel or own else IGNORED_LABEL)
        self.whole_step = self.replays_as_a_whole(NodeClassifier)

    def forward(self, batch: MiniBatch) -> Tensor:
        """Logits of the seeds, `[batch_size, num_classes]`."""
        features = self.in_precision(batch).features
        if features is None:
            raise ValueError("the mini-batch has no features; a loader fills x (MiniBatch.replace(x=...))")
        return self.net(batch.blocks, features)

    def infer(
        self, whole: WholeGraph, *, embeddings: bool = False, progress: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """See `Classifier.infer`; `models.inference.layerwise_outputs` computes the layers."""
        return layerwise_outputs(
            self.net,
            whole.graph,
            whole.features,
            embeddings=embeddings,
            chunk_bytes=self.inference_chunk_bytes,
            progress=progress,
        )

    def loss_of(self, batch: MiniBatch, stage: str) -> tuple[Tensor, Tensor]:
        graphed = stage == "train" and self.may_be_graphed(batch)
        return (self.graphed if graphed else self._loss)(batch)

    def as_graphed(self, batch: MiniBatch) -> MiniBatch:
        return self.in_precision(batch)

    def count_replayed(self, batch: MiniBatch, loss: Tensor, output: Tensor) -> None:
        self._count(batch, "train", loss, output)

    def may_be_graphed(self, batch: MiniBatch) -> bool:
        if self.cuda_graph is False:
            return False
        block = batch.blocks[0]
        sizes = block.num_src, block.num_dst, block.num_edges
        if self.cuda_graph is None and self.net.first.projects_first(*sizes, on_gpu=True):
            return False  # a graph cannot; narrowing wide features first spares more than it would
        return self.can_be_graphed(batch)

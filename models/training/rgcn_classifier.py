"""The LightningModule of R-GCN, with training steps by CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loader.machine.renamed_arguments import renamed_arguments
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.segments import EdgeType
from models.rgcn import RGCN
from models.training.exchange import check_sparse_exchange
from models.training.hetero_cuda_graphs import GraphedHeteroClassifier


@renamed_arguments({"hidden": "hidden_channels"})
class RGCNClassifier(GraphedHeteroClassifier):
    """R-GCN that classifies the seeds of typed mini-batches; on a GPU, training steps are replayed by CUDA graphs.

    See `HeteroClassifier` for what it logs, and for the options that are not named here.

    Args:
        num_features, num_classes, edge_types, target: see `HeteroClassifier`.
        num_layers, hidden_channels, bases, dropout, input_dropout, norm, trained_rows, num_nodes: see
            `models.rgcn.RGCN`. `torch.optim.SparseAdam` updates trained rows that a mini-batch reads, whatever the
            optimizer of the others is. No CUDA graph replays such steps. Processes on CPUs exchange the gradients of
            rows by gloo; NCCL has no such exchange.
        options: `cuda_graph` of `GraphedHeteroClassifier`, and see `Classifier`.

    Raises:
        ValueError: a value out of its range, `cuda_graph` with trained rows, or NCCL would have to add up their
            gradients.
        RuntimeError: on the first training step, `cuda_graph` where graphs are not possible.
    """

    net: RGCN

    def __init__(
        self,
        num_features: Mapping[str, int],
        num_classes: int,
        edge_types: Sequence[EdgeType],
        target: str,
        *,
        num_layers: int = 2,
        hidden_channels: int = 64,
        bases: int | None = None,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        norm: str = "none",
        trained_rows: int | str | None = None,
        num_nodes: Mapping[str, int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(num_features, num_classes, edge_types, target, **options)
        if self.cuda_graph and trained_rows is not None:
            raise ValueError(
                "cuda_graph is true, but the step of trained rows is not replayed by a graph; leave one of them out"
            )
        num_nodes = None if num_nodes is None else {str(name): int(count) for name, count in num_nodes.items()}
        self.hparams.update(num_nodes=num_nodes)
        net = RGCN(
            self.in_dims,
            self.edge_types,
            target,
            hidden_channels,
            num_classes,
            num_layers,
            bases=bases,
            dropout=dropout,
            input_dropout=input_dropout,
            norm=norm,
            trained_rows=trained_rows,
            num_nodes=num_nodes,
        )
        self.take(net, RGCNClassifier)

    def setup(self, stage: str) -> None:
        if stage == "fit" and self.net.learned:
            check_sparse_exchange()
        super().setup(stage)

    def may_be_graphed(self, batch: HeteroMiniBatch) -> bool:
        return not self.net.learned and super().may_be_graphed(batch)

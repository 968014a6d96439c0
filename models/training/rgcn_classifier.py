"""The LightningModule of R-GCN, with training steps by CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from loader.machine.arguments import as_flag
from loader.machine.renamed import renamed_arguments
from loader.ops.live_hops import LiveHops
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.segments import EdgeType
from models.rgcn import RGCN
from models.training.exchange import check_sparse_exchange
from models.training.graphed import IGNORED_LABEL, GraphedLoss
from models.training.hetero_classifier import HeteroClassifier
from models.training.replayed import ReplayedSteps
from models.training.whole_step import overrides


@renamed_arguments({"hidden": "hidden_channels"})
class RGCNClassifier(ReplayedSteps, HeteroClassifier):
    """R-GCN that classifies the seeds of typed mini-batches; on a GPU, training steps are replayed by CUDA graphs.

    See `HeteroClassifier` for what it logs, and for the options that are not named here.

    Args:
        num_features, num_classes, edge_types, target: see `HeteroClassifier`.
        num_layers, hidden_channels, bases, dropout, input_dropout, norm, trained_rows, num_nodes: see
            `models.rgcn.RGCN`. `torch.optim.SparseAdam` updates trained rows that a mini-batch reads, whatever the
            optimizer of the others is. Processes on CPUs exchange their gradients by gloo; NCCL has no such exchange.
        cuda_graph: whether training steps on a GPU are replayed by CUDA graphs, see `GraphedLoss`; the results are the
            same but for what dropout draws. None does so where it is possible: for mini-batches whose hops expand only
            what the hop before found (`sampler.expand=new`), one class per node, without deterministic algorithms and
            trained rows.
        options: see `Classifier`.

    Raises:
        ValueError: a value out of its range, `cuda_graph` with trained rows, or NCCL would have to add up their
            gradients.
        RuntimeError: on the first training step, `cuda_graph` where graphs are not possible.
    """

    net: RGCN  # type: ignore[assignment]  # which is no HeteroNet, but has what is read of one here

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
        cuda_graph: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__(num_features, num_classes, edge_types, target, **options)
        self.cuda_graph = None if cuda_graph is None else as_flag("cuda_graph", cuda_graph)
        if self.cuda_graph and self.multilabel:
            raise ValueError("cuda_graph is true, but nodes have several labels here; leave it out")
        if self.cuda_graph and trained_rows is not None:
            raise ValueError(
                "cuda_graph is true, but the step of trained rows is not replayed by a graph; leave one of them out"
            )
        num_nodes = None if num_nodes is None else {str(name): int(count) for name, count in num_nodes.items()}
        self.hparams.update(num_nodes=num_nodes)
        self.net = RGCN(
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
        self.graphed = GraphedLoss(self._loss, self.net, IGNORED_LABEL, live=LiveHops)
        self.whole_step = self.replays_as_a_whole(RGCNClassifier)

    def setup(self, stage: str) -> None:
        if stage == "fit" and self.net.learned:
            check_sparse_exchange()
        super().setup(stage)

    def loss_of(self, batch: Any, stage: str) -> tuple[Tensor, Tensor]:
        if stage == "train":
            return (self.graphed if self.may_be_graphed(batch) else self._loss)(batch)
        return super().loss_of(batch, stage)

    def count_replayed(self, batch: Any, loss: Tensor, output: Tensor) -> None:
        self._count(batch, "train", loss, output)

    def may_be_graphed(self, batch: HeteroMiniBatch) -> bool:
        if self.cuda_graph is False or self.net.learned:
            return False
        own = [name for name in ("forward", "_loss", "_loss_of_logits") if overrides(self, RGCNClassifier, name)]
        if self.cuda_graph is None and (own or self.multilabel):  # they may read what a graph has not, see `LiveHops`
            return False
        if batch.expands_all or LiveHops.kind_of(batch) is None:
            if self.cuda_graph:
                raise RuntimeError(
                    "cuda_graph is true, but hops expand all nodes so far, or each seed has a tree of its own; give "
                    "the sampler expand='new'"
                )
            return False
        return self.can_be_graphed(batch)

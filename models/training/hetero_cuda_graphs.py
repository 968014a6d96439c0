"""LightningModules of models on typed mini-batches whose training steps CUDA graphs replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from loader.machine.arguments import as_flag
from loader.ops.captured_hetero_batch import CapturedHeteroBatch
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.segments import EdgeType
from models.hetero_block_net import HeteroBlockNet
from models.training.cuda_graphs import IGNORED_LABEL, GraphedLoss
from models.training.hetero_classifier import HeteroClassifier
from models.training.replayed_steps import ReplayedSteps
from models.training.whole_step import overrides


class GraphedHeteroClassifier(ReplayedSteps, HeteroClassifier):
    """Classifies the seeds of typed mini-batches; on a GPU, training steps are replayed by CUDA graphs.

    See `HeteroClassifier` for what it logs. A subclass calls `take` with its model.

    Args:
        num_features, num_classes, edge_types, target: see `HeteroClassifier`.
        cuda_graph: whether training steps on a GPU are replayed by CUDA graphs, see `GraphedLoss`; the results are the
            same but for what dropout draws. None does so where it is possible: for mini-batches whose hops expand only
            what the hop before found (`sampler.expand=new`), one class per node, without deterministic algorithms.
        options: see `Classifier`.

    Raises:
        ValueError: a value out of its range.
        RuntimeError: on the first training step, `cuda_graph` where graphs are not possible.
    """

    net: HeteroBlockNet  # type: ignore[assignment]  # which is no HeteroNet, but has what is read of one here

    def __init__(
        self,
        num_features: Mapping[str, int],
        num_classes: int,
        edge_types: Sequence[EdgeType],
        target: str,
        *,
        cuda_graph: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__(num_features, num_classes, edge_types, target, **options)
        self.cuda_graph = None if cuda_graph is None else as_flag("cuda_graph", cuda_graph)
        if self.cuda_graph and self.multilabel:
            raise ValueError("cuda_graph is true, but nodes have several labels here; leave it out")

    def take(self, net: HeteroBlockNet, owner: type) -> None:
        """Makes `net` the model. Graphs replay no step whose code a subclass of `owner` has replaced."""
        self.net, self._owner = net, owner
        self.graphed = GraphedLoss(self._loss, self.net, IGNORED_LABEL, stand_in=CapturedHeteroBatch)
        self.whole_step = self.replays_as_a_whole(owner)

    def loss_of(self, batch: Any, stage: str) -> tuple[Tensor, Tensor]:
        if stage == "train":
            return (self.graphed if self.may_be_graphed(batch) else self._loss)(batch)
        return super().loss_of(batch, stage)

    def count_replayed(self, batch: Any, loss: Tensor, output: Tensor) -> None:
        self._count(batch, "train", loss, output)

    def may_be_graphed(self, batch: HeteroMiniBatch) -> bool:
        if self.cuda_graph is False:
            return False
        own = [name for name in ("forward", "_loss", "_loss_of_logits") if overrides(self, self._owner, name)]
        # They may read what a graph has not, see `CapturedHeteroBatch`.
        if self.cuda_graph is None and (own or self.multilabel):
            return False
        if batch.expands_all or CapturedHeteroBatch.kind_of(batch) is None:
            if self.cuda_graph:
                raise RuntimeError(
                    "cuda_graph is true, but hops expand all nodes so far, or each seed has a tree of its own; give "
                    "the sampler expand='new'"
                )
            return False
        return self.can_be_graphed(batch)

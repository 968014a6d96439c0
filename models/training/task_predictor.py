"""The LightningModule of tasks on tables: binary, multiclass and regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MeanAbsoluteError, MetricCollection, R2Score
from torchmetrics.classification import (
    BinaryAccuracy,
    BinaryAveragePrecision,
    BinaryF1Score,
    MulticlassAccuracy,
    MulticlassF1Score,
)

from loader.machine.arguments import as_flag, as_size
from loader.machine.renamed_arguments import renamed_arguments
from loader.ops.captured_trees import CapturedTrees
from loader.samples.segments import EdgeType
from loader.samples.trees import TreeMiniBatch
from models.relational import RelationalSAGE
from models.training.cuda_graphs import GraphedLoss
from models.training.epoch_loss import EpochLoss, check_finite, check_watched, sums_of_all
from models.training.more_metrics import KnownAUROC, take_part
from models.training.optimizers import Optimization
from models.training.precision import MatmulPrecision
from models.training.replayed_steps import ReplayedSteps
from models.training.whole_step import overrides

# What a kind of task is measured by; the first one is watched, and is better the larger it is unless it is an error.
SCORES = {
    "binary": ("auroc", "ap", "acc", "f1"),
    "multiclass": ("acc", "macro_f1"),
    "regression": ("mae", "r2"),
}
TASK_METRICS = (
    "train/loss",
    *(f"{split}/{name}" for split in ("val", "test") for name in dict.fromkeys(sum(SCORES.values(), ("loss",)))),
)


@renamed_arguments({"hidden": "hidden_channels"})
class TaskPredictor(ReplayedSteps, MatmulPrecision, EpochLoss):
    """Predicts the labels of items: rows of tables at a time, see `loader.datamodules.tasks.TaskDataModule`.

    The loss is binary cross entropy, cross entropy, or the mean absolute error. Per epoch it logs `train/loss` and, of
    validation and test, `val/loss` and the scores of the task's kind: `auroc`, `ap` (average precision), `acc` and
    `f1` of "binary", `acc` and `macro_f1` of "multiclass", `mae` and `r2` of "regression". Scores are torchmetrics',
    of all items of the split together. Predictions of a regression that are outside of `label_range` are moved to its
    ends when they are measured or written, as RelBench's baseline does.

    Args:
        columns, edge_types, target: see `models.relational.RelationalSAGE`.
        task_kind: "binary", "multiclass" or "regression".
        num_classes: of "multiclass".
        label_range: of "regression".
        num_layers, hidden_channels, encoder_layers, encoder_norm, dropout, unique_rows: see
            `models.relational.RelationalSAGE`.
        lr, weight_decay, optimizer, schedule: see `Optimization`.
        matmul_precision: see `MatmulPrecision.use_precision`; on a CPU it changes nothing.
        cuda_graph: whether training steps on a GPU are replayed by CUDA graphs, see `GraphedLoss`; the results are the
            same but for what dropout draws. None does so where it is possible (without deterministic algorithms, and
            if no subclass has a forward or a loss of its own: these may read what
            `loader.ops.captured_trees.CapturedTrees` has, and no more).

    Raises:
        ImportError: pytorch-frame or torch_geometric is missing.
        ValueError: a value out of its range.
        RuntimeError: on the first training step, `cuda_graph` and deterministic algorithms, or a run on a CPU.
    """

    METRICS = TASK_METRICS
    takes_tables: ClassVar[bool] = True

    def __init__(
        self,
        columns: Mapping[str, Sequence[Mapping[str, Any]]],
        edge_types: Sequence[EdgeType],
        target: str,
        task_kind: str,
        *,
        num_classes: int = 2,
        label_range: Sequence[float] | None = None,
        num_layers: int = 2,
        hidden_channels: int = 128,
        encoder_layers: int = 4,
        encoder_norm: str = "layer",
        dropout: float = 0.2,
        unique_rows: bool = True,
        lr: float = 0.005,
        weight_decay: float = 0.0,
        optimizer: Mapping[str, Any] | None = None,
        schedule: Mapping[str, Any] | None = None,
        matmul_precision: str = "high",
        cuda_graph: bool | None = None,
    ) -> None:
        super().__init__()
        self.use_precision(matmul_precision)
        self.cuda_graph = None if cuda_graph is None else as_flag("cuda_graph", cuda_graph)
        if task_kind not in SCORES:
            raise ValueError(f"task_kind is {task_kind!r}; it must be one of {', '.join(SCORES)}")
        self.optimization = Optimization(lr, weight_decay, optimizer, schedule)
        # As plain values, which a checkpoint can hold; a configuration gives its own kinds of lists.
        known = {str(name): [dict(column) for column in of] for name, of in columns.items()}
        relations: list[EdgeType] = [(s, name, d) for s, name, d in edge_types]
        bounds = None if label_range is None else [float(bound) for bound in label_range]
        self.save_hyperparameters()
        self.hparams.update(columns=known, edge_types=relations, label_range=bounds, **self.optimization.hparams)
        self.task_kind, self.label_range = task_kind, bounds
        width = as_size("num_classes", num_classes, least=2) if task_kind == "multiclass" else 1
        self.net = RelationalSAGE(
            known,
            relations,
            target,
            width,
            num_layers=num_layers,
            hidden_channels=hidden_channels,
            encoder_layers=encoder_layers,
            encoder_norm=encoder_norm,
            dropout=dropout,
            unique_rows=unique_rows,
        )
        self.graphed = GraphedLoss(self._loss_and_outputs, self.net, stand_in=CapturedTrees)
        self.whole_step = self.replays_as_a_whole(TaskPredictor)
        self.val_scores, self.test_scores = (MetricCollection(_scores(task_kind, width)) for _ in range(2))
        self._evaluated: Tensor | None = None  # [2] float64: sum of losses and number of items, of an evaluation

    @property
    def num_layers(self) -> int:
        return self.net.num_layers

    def forward(self, batch: TreeMiniBatch | CapturedTrees) -> Tensor:
        """Outputs of the seeds: logits `[batch_size, num_classes]` of "multiclass", else `[batch_size]` logits or
        numbers.
        """
        out: Tensor = self.net(batch)
        return out if self.task_kind == "multiclass" else out.squeeze(1)

    def training_step(self, batch: TreeMiniBatch, batch_idx: int) -> Tensor:
        graphed = self.may_be_graphed(batch)
        loss, out = (self.graphed if graphed else self._loss_and_outputs)(batch)
        self.count_replayed(batch, loss, out)
        return loss

    def may_be_graphed(self, batch: TreeMiniBatch) -> bool:
        if self.cuda_graph is False:
            return False
        own = [name for name in ("forward", "_loss", "_loss_and_outputs") if overrides(self, TaskPredictor, name)]
        if self.cuda_graph is None and own:  # they may read what a graph has not, see `CapturedTrees`
            return False
        return self.can_be_graphed(batch)

    def count_replayed(self, batch: TreeMiniBatch, loss: Tensor, output: Tensor) -> None:
        self.count_loss(loss, 0 if batch.repeats else batch.batch_size)  # what repeats is counted by another process

    def validation_step(self, batch: TreeMiniBatch, batch_idx: int) -> None:
        self._evaluate(batch, "val")

    def test_step(self, batch: TreeMiniBatch, batch_idx: int) -> None:
        self._evaluate(batch, "test")

    def predict_step(self, batch: TreeMiniBatch, batch_idx: int) -> Tensor:
        """Outputs of the seeds, numbers of a regression within `label_range`; see `Classifier.predict_step`."""
        return self._within(self(batch))

    def on_validation_epoch_start(self) -> None:
        self._begin("val")

    def on_test_epoch_start(self) -> None:
        self._begin("test")

    def on_validation_epoch_end(self) -> None:
        self._log_scores("val")

    def on_test_epoch_end(self) -> None:
        self._log_scores("test")

    def configure_optimizers(self) -> Any:
        return self.optimization.configure(self)

    def _loss_and_outputs(self, batch: TreeMiniBatch | CapturedTrees) -> tuple[Tensor, Tensor]:
        """All of it is part of a CUDA graph."""
        out = self(batch)
        return self._loss(out, batch), out

    def _loss(self, out: Tensor, batch: TreeMiniBatch | CapturedTrees) -> Tensor:
        if batch.y is None:
            raise ValueError("the mini-batch has no labels; a loader fills y (MiniBatch.replace(y=...))")
        reduction = "none" if isinstance(batch, CapturedTrees) else "mean"
        if self.task_kind == "multiclass":
            loss = F.cross_entropy(out, batch.y, reduction=reduction)
        else:
            of = F.l1_loss if self.task_kind == "regression" else F.binary_cross_entropy_with_logits
            wide = torch.promote_types(out.dtype, torch.float32)  # in autocast's bfloat16 labels have three digits
            loss = of(out.to(wide), batch.y.to(wide), reduction=reduction)
        return loss @ batch.weights.to(loss.dtype) if isinstance(batch, CapturedTrees) else loss

    def _within(self, out: Tensor) -> Tensor:
        return out if self.label_range is None else out.clamp(*self.label_range)

    def _scores_of(self, split: str) -> MetricCollection:
        return self.val_scores if split == "val" else self.test_scores

    def _begin(self, split: str) -> None:
        self._scores_of(split).reset()
        self._evaluated = torch.zeros(2, dtype=torch.float64, device=self.device)

    def _evaluate(self, batch: TreeMiniBatch, split: str) -> None:
        out = self(batch)
        loss = self._loss(out, batch)
        assert batch.y is not None
        assert self._evaluated is not None
        if batch.repeats:  # another process counts it
            return
        self._evaluated[0].add_(loss.detach(), alpha=batch.batch_size)
        self._evaluated[1].add_(batch.batch_size)
        if self.task_kind == "binary":
            # torchmetrics takes logits for probabilities in a mini-batch where all lie between 0 and 1. In float32,
            # logits from 17 on are all the probability 1, and equal to AUROC and average precision.
            self._scores_of(split).update(out.double().sigmoid(), batch.y.long())
        elif self.task_kind == "regression":
            # Where labels are far from 0, float32 has too few digits for R2's sums of squares.
            self._scores_of(split).update(self._within(out).double(), batch.y.double())
        else:
            self._scores_of(split).update(out.float(), batch.y)

    def _log_scores(self, split: str) -> None:
        assert self._evaluated is not None
        sums = sums_of_all(self, self._evaluated)
        loss = (sums[0] / sums[1].clamp(min=1)).float()
        check_finite(self, f"{split}/loss", loss)
        scores = self._scores_of(split)
        if self.task_kind == "binary":  # the others count in tensors of a known shape
            nothing = torch.zeros(0, dtype=torch.float64, device=self.device)
            for score in scores.values(copy_state=False):
                take_part(score, nothing, nothing.long())
        values = {f"{split}/{name}": value.float() for name, value in scores.compute().items()}
        check_watched(self, values)
        self.log_dict({f"{split}/loss": loss, **values}, prog_bar=True, batch_size=1, sync_dist=True)


def _scores(kind: str, num_classes: int) -> dict[str, Any]:
    if kind == "binary":
        return {"auroc": KnownAUROC(), "ap": BinaryAveragePrecision(), "acc": BinaryAccuracy(), "f1": BinaryF1Score()}
    if kind == "regression":
        return {
            name: score.set_dtype(torch.float64) for name, score in (("mae", MeanAbsoluteError()), ("r2", R2Score()))
        }
    return {
        "acc": MulticlassAccuracy(num_classes, average="micro"),
        "macro_f1": MulticlassF1Score(num_classes, average="macro"),
    }

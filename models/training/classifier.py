"""The LightningModule of models that classify nodes: what a step is, what is measured, how it is optimized."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from loader.datasets.node_dataset import NodeDataset
from loader.loaders.whole_graph import WholeGraph
from loader.machine.arguments import as_flag, as_fraction, as_size
from loader.ops.autocast import autocast_dtype
from loader.samples import Block, MiniBatch
from models.inference import blockwise_outputs
from models.predictions import names_of_classes
from models.training.class_weights import (
    as_class_weights,
    balanced_weights,
    sum_of_weights,
    weighted_cross_entropy,
)
from models.training.epoch_loss import (
    CHECKED_EVERY,
    SumsInWeights,
    check_finite,
    check_watched,
    sums_of_all,
    was_interrupted_with_others,
)
from models.training.metric_names import METRICS, SPLITS
from models.training.more_metrics import MoreMetrics, as_metrics, write_confusion
from models.training.optimizers import Optimization
from models.training.precision import MatmulPrecision
from models.training.scores import RunningScores


class Classifier(MatmulPrecision):
    """A model that classifies the seeds of mini-batches. A subclass adds the network, as `layer` or as `forward`.

    Mini-batches are `MiniBatch`es with `x` and `y`, wherever they come from. Per epoch it logs `train/loss`,
    `train/acc`, `val/loss`, `val/acc`; a test on a `WholeGraph` logs `test/train_acc`, `test/val_acc`,
    `test/test_acc` (exact, without sampling), on mini-batches `test/acc`. "acc" is the share of nodes that got
    their class; for multilabel data it is the micro-averaged F1 score. Both are summed on the device and logged once
    an epoch: a step neither waits for a GPU nor calls the logger. A run resumed in the middle of an epoch goes on with
    the sums that it had. The sums are read at the end of an epoch, every 1,000 steps and for each checkpoint: a loss
    that is not finite ends the run, and no checkpoint of it is written.

    A subclass calls `super().__init__`, and then sets `num_layers` and makes its layers. With `layer`, it has training
    on mini-batches, the exact test and predictions. With `forward` in place of `layer`, it has no exact test unless it
    has an `infer`, too.

    Args:
        num_classes: of the data.
        multilabel: every class is a yes or no of its own (binary cross entropy) instead of one of many.
        lr, weight_decay, optimizer, schedule: see `Optimization`.
        class_weights: weight of each class in the cross entropy, `[num_classes]`, or "balanced": inversely proportional
            to the class's number of nodes in the train split. None weighs all nodes alike. The loss of a mini-batch is
            its weighted mean.
        label_smoothing: of the cross entropy, in [0, 1); see `torch.nn.CrossEntropyLoss`.
        metrics: further ones of torchmetrics, some of "f1", "precision", "recall", "auc" (means over the classes) and
            "confusion". They are logged as "acc" is: `val/f1`, `test/test_f1`, with sampled neighbors `test/f1`. There
            is none of a training epoch, whose steps hand out no scores; `test/train_f1` is that of the train split.
            The confusion matrix of the test split goes to `confusion.csv` in the folder of the run.
        inference_chunk_mib: see `models.inference.blockwise_outputs`, in MiB.
        matmul_precision: of float32 matrix products on a GPU while a trainer runs, see
            `torch.set_float32_matmul_precision`: "highest", "high" (tf32) or "medium". On a CPU it changes nothing.

    Raises:
        ValueError: a value out of its range; in a run, a loss or a score is not finite.
    """

    METRICS = METRICS
    takes_types: ClassVar[bool] = False  # mini-batches of several types of nodes and edges, see `HeteroClassifier`
    num_layers: int
    class_weights: Tensor | None

    def __init__(
        self,
        num_classes: int,
        *,
        multilabel: bool = False,
        lr: float = 0.003,
        weight_decay: float = 0.0,
        optimizer: Mapping[str, Any] | None = None,
        schedule: Mapping[str, Any] | None = None,
        class_weights: str | Sequence[float] | None = None,
        label_smoothing: float = 0.0,
        metrics: Sequence[str] = (),
        inference_chunk_mib: int = 256,
        matmul_precision: str = "high",
    ) -> None:
        super().__init__()
        self.num_classes = as_size("num_classes", num_classes)
        self.multilabel = as_flag("multilabel", multilabel)
        self.optimization = Optimization(lr, weight_decay, optimizer, schedule)
        self.lr, self.weight_decay = self.optimization.lr, self.optimization.weight_decay
        self.use_precision(matmul_precision)
        as_fraction("label_smoothing", label_smoothing)
        weights = as_class_weights(class_weights)
        if multilabel and (weights is not None or label_smoothing):
            name = "label_smoothing" if weights is None else "class_weights"
            raise ValueError(f"{name} is set, but nodes have several labels here (binary cross entropy); leave it out")
        self._weights = weights
        self.register_buffer("class_weights", None if weights is None else torch.ones(num_classes))
        self.label_smoothing = float(label_smoothing)
        self.inference_chunk_bytes = as_size("inference_chunk_mib", inference_chunk_mib) * 2**20
        self.more_metrics = as_metrics(metrics)
        self.more = MoreMetrics(self.more_metrics, num_classes, self.multilabel)
        self._logits: Tensor | None = None  # of the mini-batch that is evaluated
        self.save_hyperparameters()
        more = {"class_weights": weights, "metrics": self.more_metrics, **self.optimization.hparams}
        self.hparams.update({name: value for name, value in more.items() if name in self.hparams})
        self.scores = {stage: RunningScores(self.multilabel) for stage in SPLITS}
        self._in_weights = SumsInWeights()
        self._resumed: dict[str, Any] | None = None  # of the epoch in which the checkpoint was written
        self._resumed_epoch = self._logged_epoch = -1
        self._tested = False  # mini-batches, not the whole graph

    def __setattr__(self, name: str, value: Any) -> None:
        # Lightning notes the running hook here, two dozen times a step; torch's way of setting an attribute, which
        # looks for parameters and modules, took a sixth of what Lightning adds to a step.
        if name in ("_current_fx_name", "_batch"):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @classmethod
    def has(cls, method: str) -> bool:
        """Whether a subclass has a method of its own in place of that of this class."""
        return getattr(cls, method) is not getattr(Classifier, method)

    @property
    def infers(self) -> bool:
        """Whether it has an exact test."""
        return any(map(self.has, ("layer", "layer_of", "infer")))

    def layer(self, i: int, x: Tensor, block: Block) -> Tensor:
        """Layer `i`, with what follows it.

        Args:
            i: from 0 to `num_layers - 1`.
            x: `[block.num_src, width]`, the rows of the block's source nodes; the destination nodes come first.
            block: the edges.

        Returns:
            `[block.num_dst, width of the next layer]`; from the last layer the logits `[block.num_dst, num_classes]`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no layer(i, x, block)")

    def layer_of(self, i: int, x: Tensor, block: Block, nodes: Tensor) -> Tensor:
        """`layer` in the exact test, for who needs the ids `nodes` of the block's source nodes, too."""
        return self.layer(i, x, block)

    def forward(self, batch: MiniBatch) -> Tensor:
        """Logits of the seeds, `[batch_size, num_classes]`."""
        x = self.input_of(batch)
        if len(batch.blocks) != self.num_layers:
            what = f"the mini-batch has {len(batch.blocks)} hops, the model {self.num_layers} layers"
            raise ValueError(f"{what}; give the sampler as many fanouts as the model has layers")
        for i, block in enumerate(batch.blocks):
            x = self.layer(i, x, block)
            if x.shape[0] != block.num_dst:
                raise ValueError(
                    f"layer {i} of {type(self).__name__} gives {x.shape[0]} rows for a block of {block.num_dst} "
                    f"destination nodes and {block.num_src} source nodes; it must give a row for each destination "
                    "node, whose own rows are x[: block.num_dst]"
                )
        if x.shape[-1] != self.num_classes:
            what = f"the last layer of {type(self).__name__} gives rows of {x.shape[-1]} numbers"
            raise ValueError(f"{what}; it must give a logit for each of the {self.num_classes} classes")
        return x

    def infer(
        self, whole: WholeGraph, *, embeddings: bool = False, progress: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of all nodes, each with all its neighbors, as the test computes them.

        Returns:
            `[num_nodes, num_classes]`, and with `embeddings` the hidden rows that the last layer reads, else None; see
            `models.inference.blockwise_outputs`.
        """
        return blockwise_outputs(
            self,
            self.layer_of,
            self.num_layers,
            whole.graph,
            whole.features,
            embeddings=embeddings,
            chunk_bytes=self.inference_chunk_bytes,
            progress=progress,
        )

    def input_of(self, batch: MiniBatch) -> Tensor:
        """The features of the input nodes, in the dtype of the parameters unless autocast takes care of that."""
        x = self.in_precision(batch).gathered().x
        if x is None:
            raise ValueError("the mini-batch has no features; a loader fills x (MiniBatch.replace(x=...))")
        return x

    def in_precision(self, batch: MiniBatch) -> MiniBatch:
        """What a trainer of another precision did not convert: rows that still lie in their table."""
        if batch.rows is None or batch.rows.device.type == "meta":  # of a captured batch, whose mini-batches were
            return batch
        if autocast_dtype(batch.rows.device.type) is not None:
            return batch
        dtype = next(self.parameters()).dtype
        return batch if batch.rows.dtype == dtype else batch.replace(x=batch.rows.gather().to(dtype), rows=None)

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        return self._step(batch, "train")

    # Lightning looks at the signature in each step: this way there is nothing to work out. Functions take attributes,
    # but are declared without any.
    training_step.__signature__ = inspect.signature(training_step)  # type: ignore[attr-defined]

    def validation_step(self, batch: MiniBatch, batch_idx: int) -> None:
        self._step(batch, "val")

    def test_step(self, batch: MiniBatch | WholeGraph, batch_idx: int) -> None:
        if not isinstance(batch, WholeGraph):
            self._tested = True
            self._step(batch, "test")
            return
        bar = self.trainer.progress_bar_callback
        logits, _ = self.infer(batch, progress=bar is not None and getattr(bar, "is_enabled", True))
        for split in SPLITS:
            nodes = batch.splits[split]
            if nodes.numel() == 0:  # which have no accuracy
                continue
            _check_scores(logits, nodes, split)
            scores = RunningScores(self.multilabel)
            scores.add(logits[nodes], batch.labels[nodes])
            _, accuracy = scores.result(scores.sums())
            # On the device, where processes on GPUs can exchange it.
            here = accuracy.to(self.device)
            self.log(f"test/{split}_acc", here, on_epoch=True, batch_size=nodes.numel(), sync_dist=True)
            more = MoreMetrics(self.more_metrics, self.num_classes, self.multilabel, shared=False)
            more.add(logits[nodes], batch.labels[nodes])
            self._log_more(more, f"test/{split}_")

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if stage == "fit":
            self._take_class_weights()

    def _take_class_weights(self) -> None:
        if self._weights is None:
            return
        weights = balanced_weights(self) if self._weights == "balanced" else torch.tensor(self._weights)
        if len(weights) != self.num_classes:
            what = f"class_weights has {len(weights)} numbers, the data have {self.num_classes} classes"
            raise ValueError(f"{what}; give one for each, or balanced")
        assert self.class_weights is not None
        self.class_weights.copy_(weights)

    def on_train_start(self) -> None:
        self._take_class_weights()  # again: a checkpoint that the run goes on from brought its own
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            self.scores["train"].reset()
            if self.trainer.is_global_zero:  # they are those of all processes together
                self.scores["train"].load_state_dict(resumed["scores"], self.device)
            self._resumed_epoch = resumed["epoch"]  # Lightning may take it for over, before it ends it

    def on_train_epoch_start(self) -> None:
        # Not every release of Lightning calls this in an epoch that it resumes in the middle.
        if self._resumed_epoch != self.current_epoch:
            self.scores["train"].reset()
        self._resumed_epoch = -1

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        # With the last batch, not with the epoch's end: callbacks are told of that before the module is.
        if self.trainer.is_last_batch or self.global_step == self.trainer.max_steps:
            self._log("train")
        elif (batch_idx + 1) % CHECKED_EVERY == 0:
            check_finite(self, "train/loss", self._sums("train")[0])

    def _log_cut_epoch(self) -> None:
        """Logs an epoch that ends before its last mini-batch, once."""
        if self._logged_epoch != self.current_epoch:
            sums = self._sums("train")  # whatever this process counted: all have to take part
            if sums[3] > 0:
                self._log("train", sums)

    def on_train_epoch_end(self) -> None:
        self._log_cut_epoch()
        self.scores["train"].reset()  # a checkpoint that is written later is of the next epoch

    def on_validation_epoch_start(self) -> None:
        self.scores["val"].reset()
        self.more.reset(self.device)

    def on_validation_epoch_end(self) -> None:
        self._log("val")
        self._log_more(self.more, "val/")

    def on_test_start(self) -> None:
        if self._weights != "balanced":  # which may be of other data here
            self._take_class_weights()  # again, as when training starts

    def on_test_epoch_start(self) -> None:
        self.scores["test"].reset()
        self.more.reset(self.device)
        self._tested = False

    def on_test_epoch_end(self) -> None:
        if self._tested:
            self._log("test")
            self._log_more(self.more, "test/")

    def _log_more(self, more: MoreMetrics, begin: str) -> None:
        values, confusion = more.result()
        found = {f"{begin}{name}": value.to(self.device) for name, value in values.items()}
        check_watched(self, found)
        self.log_dict(found, on_step=False, on_epoch=True, batch_size=1, sync_dist=True)
        if confusion is not None and begin in ("test/", "test/test_") and self.trainer.is_global_zero:
            data = getattr(getattr(self.trainer, "datamodule", None), "data", None)
            classes = names_of_classes(data) if isinstance(data, NodeDataset) else range(self.num_classes)
            write_confusion(Path(self.trainer.default_root_dir) / "confusion.csv", confusion, classes)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the scores of the epoch so far, over all processes, which Lightning has all call this.

        Raises:
            ValueError: a loss of the epoch is not finite.
        """
        if was_interrupted_with_others(self):
            return
        sums = sums_of_all(self, self._in_weights.of(self, self.scores["train"].sums()))
        check_finite(self, "train/loss", sums[0])
        checkpoint["train_scores"] = {"epoch": self.current_epoch, "scores": self.scores["train"].state_dict(sums)}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._resumed = checkpoint.get("train_scores")

    def _sums(self, stage: str) -> Tensor:
        """`RunningScores.sums` over all processes, each of which has to call this."""
        return sums_of_all(self, self.scores[stage].sums())

    def _log(self, stage: str, sums: Tensor | None = None) -> None:
        """Logs the mean over the epoch so far, over all processes; `sums` are theirs, if they are known."""
        scores = self.scores[stage]
        loss, accuracy = scores.result(self._sums(stage) if sums is None else sums)
        check_finite(self, f"{stage}/loss", loss)
        if stage == "train":
            self._logged_epoch = self.current_epoch
        values = {f"{stage}/loss": loss, f"{stage}/acc": accuracy}
        # All processes have the same values: `sync_dist` changes none, and without it Lightning advises it.
        # Alone it would be wrong: an F1 score is no mean over processes. By numbers of nodes neither would it be right,
        # whose mean over processes Lightning cuts to an integer.
        self.log_dict(values, on_step=False, on_epoch=True, prog_bar=True, batch_size=1, sync_dist=True)

    def predict_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Logits of the seeds, `[batch_size, num_classes]`.

        Of several processes the last step may hold mini-batches that another process has, too: `batch.repeats` says so.
        Their logits come twice; who puts the predictions together leaves these out.
        """
        return self(batch)

    def configure_optimizers(self) -> Any:
        return self.optimization.configure(self)

    def loss_of(self, batch: MiniBatch, stage: str) -> tuple[Tensor, Tensor]:
        """The mean loss of a mini-batch, and what `RunningScores.find` finds in it."""
        return self._loss(batch)

    def _step(self, batch: MiniBatch, stage: str) -> Tensor:
        if batch.y is None:
            raise ValueError("the mini-batch has no labels; a loader fills y (MiniBatch.replace(y=...))")
        batch = self.in_precision(batch)
        loss, found = self.loss_of(batch, stage)
        self._count(batch, stage, loss, found)
        return loss

    def _count(self, batch: MiniBatch, stage: str, loss: Tensor, found: Tensor) -> None:
        if stage == "train":
            self._in_weights.note(self, self.scores["train"].sums)
        if not batch.repeats:  # which another process counts
            assert batch.y is not None
            weight = None if self.class_weights is None else sum_of_weights(self.class_weights.float(), batch.y)
            self.scores[stage].add_found(found, batch.y.shape[0], loss, weight)
            if self._logits is not None:
                self.more.add(self._logits, batch.y)
        self._logits = None

    def _loss(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        """The mean loss, and what the scores add up; all of it is part of a CUDA graph."""
        assert batch.y is not None
        return self._loss_of_logits(self(batch), batch.y)

    def _loss_of_logits(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.more_metrics and not self.training:
            self._logits = logits
        if self.multilabel:
            loss = F.binary_cross_entropy_with_logits(logits, y)
        else:
            loss = weighted_cross_entropy(logits, y, self.class_weights, self.label_smoothing)
        return loss, self.scores["train"].find(logits, y)


def _check_scores(logits: Tensor, nodes: Tensor, split: str) -> None:
    """Raises ValueError for scores that say nothing: torch takes NaN for the largest of all."""
    wrong = ~torch.isfinite(logits[nodes]).all(-1)
    if bool(wrong.any()):
        raise ValueError(
            f"{int(wrong.sum())} of {nodes.numel()} nodes of the {split} split have scores that are not finite, the "
            f"first is node {int(nodes[wrong][0])}, so they have no accuracy: replace features that are NaN, "
            "infinite or very large, of these nodes or near them, e.g. by numpy.nan_to_num"
        )

"""The LightningModule: what a step is, what is measured, how it is optimised."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn import functional as F

from loader.loaders.whole_graph import WholeGraph
from loader.machine.arguments import as_finite, as_flag, as_size
from loader.ops.autocast import autocast_dtype
from loader.samples import MiniBatch
from models.inference import layerwise_outputs
from models.sage import GraphSAGE
from models.training.epoch_loss import CHECKED_EVERY, check_finite, sums_of_all, was_interrupted_with_others
from models.training.graphed import GraphedLoss
from models.training.metrics import METRICS, SPLITS
from models.training.scores import RunningScores
from models.training.whole_step import WholeStep

_PRECISIONS = ("highest", "high", "medium")
_IGNORED = -100  # torch's cross entropy leaves vertices of this class out, and it is that of no logit


class NodeClassifier(LightningModule):
    """GraphSAGE that classifies the seeds of mini-batches; Adam, on a GPU its fused form.

    Batches are `MiniBatch`es with `x` and `y`, wherever they come from. Per epoch it logs `train/loss`,
    `train/acc`, `val/loss`, `val/acc`; a test on a `WholeGraph` logs `test/train_acc`, `test/val_acc`,
    `test/test_acc` (exact, without sampling), on mini-batches `test/acc`. "acc" is the share of vertices that got
    their class; for multilabel data it is the micro-averaged F1 score. Both are summed on the device and logged once
    an epoch: a step neither waits for a GPU nor calls the logger. A run resumed in the middle of an epoch goes on with
    the sums that it had. The sums are read at the end of an epoch, every 1,000 steps and for each checkpoint: a loss
    that is not finite ends the run, and no checkpoint of it is written.

    Args:
        num_features, num_classes: of the data.
        multilabel: every class is a yes or no of its own (binary cross entropy) instead of one of many.
        num_layers, hidden, dropout, input_dropout, norm: see `models.sage.GraphSAGE`.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        inference_chunk_mib: see `models.inference.layerwise_inference`, in MiB.
        matmul_precision: of float32 matrix products on a GPU while a trainer runs, see
            `torch.set_float32_matmul_precision`: "highest", "high" (tf32) or "medium". On a CPU it changes nothing.
        cuda_graph: whether training steps on a GPU are replayed by CUDA graphs, see `GraphedLoss`; the
            results are the same. None does so where it is possible (without batch norm and deterministic algorithms)
            and pays (not where features are so wide that the first layer narrows them before it takes the mean).

    Raises:
        ValueError: a value out of its range, or `cuda_graph` with batch norm.
        ValueError: in a run, a loss or a score is not finite.
        RuntimeError: on the first training step, `cuda_graph` and deterministic algorithms, or a run on a CPU.
    """

    METRICS = METRICS

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        multilabel: bool = False,
        num_layers: int = 2,
        hidden: int = 256,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        norm: str = "none",
        lr: float = 0.003,
        weight_decay: float = 0.0,
        inference_chunk_mib: int = 256,
        matmul_precision: str = "high",
        cuda_graph: bool | None = None,
    ) -> None:
        super().__init__()
        as_finite("lr", lr, positive=True)
        as_finite("weight_decay", weight_decay)
        if as_size("num_features", num_features, least=0) == 0:
            raise ValueError(
                "num_features is 0; it must be at least 1: give the vertices features, or take model=node2vec, which "
                "reads none"
            )
        as_size("num_classes", num_classes)
        inference_chunk_mib = as_size("inference_chunk_mib", inference_chunk_mib)
        multilabel = as_flag("multilabel", multilabel)
        cuda_graph = None if cuda_graph is None else as_flag("cuda_graph", cuda_graph)
        if not isinstance(matmul_precision, str) or matmul_precision not in _PRECISIONS:
            raise ValueError(f"matmul_precision is '{matmul_precision}'; it must be one of {', '.join(_PRECISIONS)}")
        if cuda_graph and norm == "batch":
            raise ValueError(
                "cuda_graph cannot be had with norm='batch', which mixes the rows; set cuda_graph=false or norm='layer'"
            )
        self.save_hyperparameters()
        self.net = GraphSAGE(num_features, hidden, num_classes, num_layers, dropout, norm, input_dropout)
        self.multilabel = multilabel
        self.lr = lr
        self.weight_decay = weight_decay
        self.inference_chunk_bytes = inference_chunk_mib * 2**20
        self.matmul_precision = matmul_precision
        self.cuda_graph = cuda_graph if norm != "batch" else False
        own = type(self)._loss is not NodeClassifier._loss or type(self).forward is not NodeClassifier.forward
        self.graphed = GraphedLoss(self._loss, self.net, None if multilabel or own else _IGNORED)
        self.whole_step = WholeStep(NodeClassifier, self._replayed)
        self._batch: MiniBatch | None = None  # of the training step
        self.scores = {stage: RunningScores(multilabel) for stage in SPLITS}
        self._resumed: dict[str, Any] | None = None  # of the epoch in which the checkpoint was written
        self._resumed_epoch = self._logged_epoch = -1
        self._precision_before: str | None = None
        self._tested = False  # mini-batches, not the whole graph

    def __setattr__(self, name: str, value: Any) -> None:
        # Lightning notes the running hook here, two dozen times a step; torch's way of setting an attribute, which
        # looks for parameters and modules, took a sixth of what Lightning adds to a step.
        if name in ("_current_fx_name", "_batch"):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def forward(self, batch: MiniBatch) -> Tensor:
        """Logits of the seeds, `[batch_size, num_classes]`."""
        features = self._in_precision(batch).features
        if features is None:
            raise ValueError("the mini-batch has no features; a loader fills x (MiniBatch.replace(x=...))")
        return self.net(batch.blocks, features)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        # In this thread: one of autograd's own, which torch takes for a GPU, has to be woken up and to get the GIL, and
        # that for each step took longer than what it is to launch.
        with torch.autograd.set_multithreading_enabled(False):
            super().backward(loss, *args, **kwargs)

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        return self._step(batch, "train")

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        batch, self._batch = self._batch, None
        if batch is None or not self.whole_step.take(self, batch, epoch, optimizer_closure):
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)

    # Lightning looks at the signature in each step: this way there is nothing to work out. Functions take attributes,
    # but are declared without any.
    training_step.__signature__ = inspect.signature(training_step)  # type: ignore[attr-defined]

    def validation_step(self, batch: MiniBatch, batch_idx: int) -> None:
        self._step(batch, "val")

    def test_step(self, batch: MiniBatch | WholeGraph, batch_idx: int) -> None:
        if isinstance(batch, MiniBatch):
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

    def infer(
        self, whole: WholeGraph, *, embeddings: bool = False, progress: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of all vertices, each with all its neighbours, as the test computes them.

        Returns:
            `[num_nodes, num_classes]`, and with `embeddings` the hidden rows that the last layer reads, else None; see
            `models.inference.layerwise_outputs`.
        """
        return layerwise_outputs(
            self.net,
            whole.graph,
            whole.features,
            embeddings=embeddings,
            chunk_bytes=self.inference_chunk_bytes,
            progress=progress,
        )

    def setup(self, stage: str) -> None:
        if self._precision_before is None and self.trainer.strategy.root_device.type == "cuda":
            self._precision_before = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision(self.matmul_precision)

    def teardown(self, stage: str) -> None:
        if self._precision_before is not None:
            torch.set_float32_matmul_precision(self._precision_before)
            self._precision_before = None

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self._batch = batch if isinstance(batch, MiniBatch) else None

    def on_train_start(self) -> None:
        self.whole_step.forget()
        resumed, self._resumed = self._resumed, None
        if resumed is not None and resumed["epoch"] == self.current_epoch:
            self.scores["train"].reset()
            if self.trainer.is_global_zero:  # they are those of all processes together
                self.scores["train"].load_state_dict(resumed["scores"], self.device)
            self._resumed_epoch = self.current_epoch

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

    def on_train_epoch_end(self) -> None:
        if self._logged_epoch != self.current_epoch:  # the epoch was cut short
            sums = self._sums("train")  # whatever this process counted: all have to take part
            if sums[3] > 0:
                self._log("train", sums)

    def on_validation_epoch_start(self) -> None:
        self.scores["val"].reset()

    def on_validation_epoch_end(self) -> None:
        self._log("val")

    def on_test_epoch_start(self) -> None:
        self.scores["test"].reset()
        self._tested = False

    def on_test_epoch_end(self) -> None:
        if self._tested:
            self._log("test")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the scores of the epoch so far, over all processes, which Lightning has all call this.

        Raises:
            ValueError: a loss of the epoch is not finite.
        """
        if was_interrupted_with_others(self):
            return
        sums = self._sums("train")
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
        weight = max(scores.count, 1)
        # All processes have the same values: `sync_dist` changes none, and without it Lightning advises it.
        # Alone it would be wrong: an F1 score is no mean over processes.
        self.log_dict(values, on_step=False, on_epoch=True, prog_bar=True, batch_size=weight, sync_dist=True)

    def predict_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Logits of the seeds, `[batch_size, num_classes]`.

        Of several processes the last step may hold mini-batches that another process has, too: `batch.repeats` says so.
        Their logits come twice; who puts the predictions together leaves these out.
        """
        return self(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        # On a GPU one kernel for all parameters, on the CPU torch's own choice. Lightning does not clip the gradients
        # of an optimiser that undoes the loss scaling by itself, as the fused one does.
        trainer = self._trainer
        clips = trainer is not None and trainer.gradient_clip_val and "mixed" in str(trainer.precision)
        fused = all(p.is_cuda for p in self.parameters()) and not clips
        return torch.optim.Adam(self.parameters(), lr=self.lr, weight_decay=self.weight_decay, fused=fused or None)

    def _step(self, batch: MiniBatch, stage: str) -> Tensor:
        if batch.y is None:
            raise ValueError("the mini-batch has no labels; a loader fills y (MiniBatch.replace(y=...))")
        batch = self._in_precision(batch)
        graphed = stage == "train" and self._may_be_graphed(batch)
        loss, found = (self.graphed if graphed else self._loss)(batch)
        self._count(batch, stage, loss, found)
        return loss

    def _replayed(self, batch: MiniBatch) -> Tensor | None:
        """The loss of a training step, with its gradients; None if no graph has them."""
        batch = self._in_precision(batch)
        done = self.graphed.with_gradients(batch) if self._may_be_graphed(batch) else None
        if done is None:
            return None
        self._count(batch, "train", *done)
        return done[0]

    def _count(self, batch: MiniBatch, stage: str, loss: Tensor, found: Tensor) -> None:
        if not batch.repeats:  # which another process counts
            assert batch.y is not None
            self.scores[stage].add_found(found, batch.y.shape[0], loss)

    def _in_precision(self, batch: MiniBatch) -> MiniBatch:
        """What a trainer of another precision did not convert: rows that still lie in their table."""
        if batch.rows is None or autocast_dtype(batch.rows.device.type) is not None:
            return batch
        dtype = self.net.first.lin_self.weight.dtype
        return batch if batch.rows.dtype == dtype else batch.replace(x=batch.rows.gather().to(dtype), rows=None)

    def _loss(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        """The mean loss, and what the scores add up; all of it is part of a CUDA graph."""
        assert batch.y is not None
        logits = self(batch)
        loss = F.binary_cross_entropy_with_logits if self.multilabel else F.cross_entropy
        return loss(logits, batch.y), self.scores["train"].find(logits, batch.y)

    def _may_be_graphed(self, batch: MiniBatch) -> bool:
        if self.cuda_graph is False:
            return False
        block = batch.blocks[0]
        sizes = block.num_src, block.num_dst, block.num_edges
        if self.cuda_graph is None and self.net.first.projects_first(*sizes, on_gpu=True):
            return False  # a graph cannot; narrowing wide features first spares more than it would
        possible = batch.nodes.is_cuda and not torch.are_deterministic_algorithms_enabled()
        if self.cuda_graph and not possible:
            raise RuntimeError(
                "cuda_graph is true, but the mini-batch is not on a GPU, or deterministic algorithms are set; "
                "leave it at null for graphs where they are possible"
            )
        return possible


def _check_scores(logits: Tensor, nodes: Tensor, split: str) -> None:
    """Raises ValueError for scores that say nothing: torch takes NaN for the largest of all."""
    wrong = ~torch.isfinite(logits[nodes]).all(-1)
    if bool(wrong.any()):
        raise ValueError(
            f"{int(wrong.sum())} of {nodes.numel()} vertices of the {split} split have scores that are not finite, the "
            f"first is vertex {int(nodes[wrong][0])}, so they have no accuracy: replace features that are NaN, "
            "infinite or very large, of these vertices or near them, e.g. by numpy.nan_to_num"
        )

"""The LightningModule of embeddings that are trained on random walks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from loader.loaders.whole_graph import WholeGraph
from loader.machine.arguments import as_finite, as_flag, as_size
from loader.samples import Walks
from models.embedding_probe import LogisticRegression, f1_scores, penalties, top_labels
from models.node2vec import Node2Vec
from models.training.epoch_loss import EpochLoss, check_finite
from models.training.exchange import check_sparse_exchange
from models.training.metric_names import EMBEDDER_METRICS, SPLITS


class NodeEmbedder(EpochLoss):
    """`Node2Vec` on mini-batches of `Walks` with negatives; sparse updates by `torch.optim.SparseAdam`.

    Several processes on CPUs exchange the sparse gradients by gloo; NCCL has no such exchange.

    Per epoch it logs `train/loss`, the mean over the mini-batches. Validation and test take a `WholeGraph`: a
    logistic regression is fitted to the embedding of the nodes of the train split, and tried on the others. They log
    `val/acc` and `val/loss` (of the regression), and `test/train_acc`, `test/val_acc`, `test/test_acc`. "acc" is the
    share of nodes that got their class. With several labels per node it is the micro-averaged F1 score, where each
    node gets as many labels as it has, the likeliest ones, as in the papers of DeepWalk and node2vec; the
    macro-averaged one is `test/test_macro_f1`.

    Args:
        num_nodes, num_classes: of the data. Without classes, or a train split, nothing is tested.
        multilabel: nodes have several labels.
        dim, context_size: see `Node2Vec`.
        init_std, objective, negative_weight: see `Node2Vec`.
        lr: SparseAdam's learning rate.
        lr_decay: the learning rate falls linearly over the steps of the run, from `lr` to 0, as in word2vec (Mikolov et
            al., NeurIPS 2013).
        probe_c: of the regression, or several to choose from: see `LogisticRegression`.

    Raises:
        ValueError: a value out of its range.
    """

    METRICS = EMBEDDER_METRICS
    TESTED_BY = "logistic regression"

    def __init__(
        self,
        num_nodes: int,
        num_classes: int,
        *,
        multilabel: bool = False,
        dim: int = 128,
        context_size: int = 10,
        init_std: float | None = None,
        objective: str = "torch_geometric",
        negative_weight: float | None = None,
        lr: float = 0.01,
        lr_decay: bool = False,
        probe_c: float | Sequence[float] = 1.0,
    ) -> None:
        super().__init__()
        as_finite("lr", lr, positive=True)
        choices = penalties("probe_c", probe_c)
        probe_c = choices if len(choices) > 1 else choices[0]  # of Python's own types, for checkpoints
        multilabel = as_flag("multilabel", multilabel)
        self.lr_decay = as_flag("lr_decay", lr_decay)
        as_size("num_classes", num_classes, least=0)
        self.save_hyperparameters()
        self.net = Node2Vec(
            num_nodes,
            dim,
            context_size,
            init_std=init_std,
            objective=objective,
            negative_weight=negative_weight,
        )
        self.num_classes, self.multilabel, self.lr, self.probe_c = num_classes, multilabel, lr, probe_c

    def setup(self, stage: str) -> None:
        """Refuses processes that NCCL connects.

        Raises:
            ValueError: NCCL would have to add up sparse gradients.
        """
        if stage == "fit":
            check_sparse_exchange()

    def forward(self, nodes: Tensor | None = None) -> Tensor:
        """Rows of the embedding, see `Node2Vec.forward`."""
        rows: Tensor = self.net(nodes)
        return rows

    def training_step(self, batch: Walks, batch_idx: int) -> Tensor:
        if batch.negatives is None:
            raise ValueError("the walks have no negative samples; a sampler draws them (sampler.num_negatives)")
        loss = self.net.loss(batch.nodes, batch.negatives)
        self.count_loss(loss, 0 if batch.repeats else 1)  # what repeats is counted by another process
        return loss

    def validation_step(self, batch: WholeGraph, batch_idx: int) -> None:
        nodes = batch.splits["val"]
        logits, labels = self._probe(batch).logits(self.net(nodes.to(self.device))), batch.labels[nodes]
        labels = labels.to(logits.device)
        if self.multilabel:  # torch computes in the narrower of the two types
            found = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype)).float()
        else:
            found = F.cross_entropy(logits, labels).float()
        check_finite(self, "val/loss", found)
        values = {"val/loss": found, "val/acc": self._accuracy(logits, labels)[0]}
        self.log_dict(values, prog_bar=True, batch_size=nodes.numel(), sync_dist=True)

    def test_step(self, batch: WholeGraph, batch_idx: int) -> None:
        if batch.splits["train"].numel() == 0:
            return
        probe = self._probe(batch)
        for split in SPLITS:
            nodes = batch.splits[split]
            if nodes.numel() == 0:
                continue
            logits = probe.logits(self.net(nodes.to(self.device)))
            accuracy, macro = self._accuracy(logits, batch.labels[nodes].to(logits.device))
            self.log(f"test/{split}_acc", accuracy, batch_size=nodes.numel(), sync_dist=True)
            if macro is not None and split == "test":
                self.log("test/test_macro_f1", macro, batch_size=nodes.numel(), sync_dist=True)

    def _probe(self, batch: WholeGraph) -> LogisticRegression:
        nodes = batch.splits["train"]
        probe = LogisticRegression(self.num_classes, multilabel=self.multilabel, c=self.probe_c)
        return probe.fit(self.net(nodes.to(self.device)), batch.labels[nodes])

    def _accuracy(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """On the device, where processes on GPUs can exchange it."""
        if self.multilabel:
            micro, macro = f1_scores(top_labels(logits, labels), labels)
            # Not of the default type: with `trainer.precision=bf16-true` that has three digits.
            found = torch.tensor([micro, macro], dtype=torch.float32, device=self.device)
            return found[0], found[1]
        return (logits.argmax(-1) == labels).float().mean().to(self.device), None

    def on_train_batch_start(self, batch: Walks, batch_idx: int) -> None:
        if self.lr_decay:
            # A scheduler of Lightning asks for the number of steps before a checkpoint is restored, and by that makes
            # the loader, which then begins its epoch anew.
            rate = self.lr * max(0.0, 1 - self.trainer.global_step / self._num_steps())
            for group in self.trainer.optimizers[0].param_groups:
                group["lr"] = rate

    def _num_steps(self) -> int:
        """Of the whole run."""
        trainer = self.trainer
        ends = [] if trainer.max_steps < 0 else [trainer.max_steps]
        if trainer.max_epochs is not None and trainer.max_epochs >= 0:
            per_epoch = trainer.num_training_batches / trainer.accumulate_grad_batches
            ends.append(trainer.max_epochs * math.ceil(per_epoch))
        if not ends:
            raise ValueError(
                "lr_decay=True needs the number of steps, and this run has no end: set trainer.max_epochs or "
                "trainer.max_steps"
            )
        return min(ends)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SparseAdam(list(self.parameters()), lr=self.lr)

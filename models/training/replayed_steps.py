"""Training steps by CUDA graphs, for LightningModules that say what a graph replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from models.training.cuda_graphs import GraphedLoss
from models.training.whole_step import WholeStep

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")  # of a torch module


class ReplayedSteps(LightningModule):
    """A module whose training steps are replayed where that is possible: the loss, its gradients, the optimizer's step.

    A subclass makes `graphed` and `whole_step`, calls `graphed` in its training step if `may_be_graphed` says so, and
    counts a step that was replayed as a whole in `count_replayed`.
    """

    graphed: GraphedLoss
    whole_step: WholeStep
    cuda_graph: bool | None
    _batch: Any = None  # of the training step
    _covered: bool | None = None

    def may_be_graphed(self, batch: Any) -> bool:
        """Whether a graph may replay the training step of a mini-batch."""
        raise NotImplementedError(f"{type(self).__name__} has no may_be_graphed(batch)")

    def can_be_graphed(self, batch: Any) -> bool:
        """Whether mini-batch and parameters are such that a graph can have them.

        Raises:
            RuntimeError: they are not, and `cuda_graph` is true.
        """
        possible = batch.nodes.is_cuda and not torch.are_deterministic_algorithms_enabled() and self.graphs_cover_all()
        if self.cuda_graph and not possible:
            raise RuntimeError(
                "cuda_graph is true, but the mini-batch is not on a GPU, or deterministic algorithms are set, or there "
                "are parameters outside of net, or hooks of modules in it; leave it at null for graphs where they are "
                "possible"
            )
        return bool(possible)

    def graphs_cover_all(self) -> bool:
        """Whether a graph has the gradients of all parameters, of which a subclass may have some beside `net`, and no
        hook of a module (`register_forward_hook` and its like): these are called when it is captured, not replayed.
        """
        if self._covered is None:
            named = {id(p) for p in self.graphed.module.parameters()}
            hooked = any(getattr(m, hooks) for m in self.graphed.module.modules() for hooks in _HOOKS)
            self._covered = not hooked and all(id(p) in named for p in self.parameters())
        return self._covered

    def count_replayed(self, batch: Any, loss: Tensor, output: Tensor) -> None:
        """Counts loss and output of a training step whose `training_step` was not called."""
        raise NotImplementedError(f"{type(self).__name__} has no count_replayed(batch, loss, output)")

    def as_graphed(self, batch: Any) -> Any:
        """The mini-batch as `graphed` takes it."""
        return batch

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        # In this thread: one of autograd's own, which torch takes for a GPU, has to be woken up and to get the GIL, and
        # that for each step took longer than what it is to launch.
        with torch.autograd.set_multithreading_enabled(False):
            super().backward(loss, *args, **kwargs)

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        batch, self._batch = self._batch, None
        if batch is None or not self.whole_step.take(self, batch, epoch, optimizer_closure):
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self._batch = batch if self.graphed.takes(batch) else None

    def on_train_start(self) -> None:
        self.whole_step.forget()
        self._covered = None
        super().on_train_start()

    def replays_as_a_whole(self, plain: type[LightningModule]) -> WholeStep:
        """The `whole_step` of a subclass, whose own class is given."""
        return WholeStep(plain, self._replayed, self._repeats, self._repeated)

    def _replayed(self, batch: Any) -> Tensor | None:
        """The loss of a training step, with its gradients; None if no graph has them."""
        batch = self.as_graphed(batch)
        done = self.graphed.with_gradients(batch) if self.may_be_graphed(batch) else None
        if done is None:
            return None
        self.count_replayed(batch, *done)
        return done[0]

    def _repeats(self, batch: Any) -> bool:
        return self.graphed.takes(batch) and self.may_be_graphed(batch) and self.graphed.repeats(batch)

    def _repeated(self, batch: Any) -> Tensor:
        loss, found = self.graphed.repeat(batch)
        self.count_replayed(batch, loss, found)
        return loss

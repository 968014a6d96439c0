"""A training step from the loss to the optimiser by CUDA graphs, without autograd and Lightning's hooks around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loops.optimization.automatic import Closure, ClosureResult
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from loader.machine.freeing import capturing
from loader.ops.side_streams import Beside, Branches, beside
from models.training.cuda_graphs import PRIORITY
from models.training.strategy import OneExchangeStrategy
from models.training.trainer_callbacks import callbacks_of

# What happens between the loss and the optimiser's step, for who asks to be told.
_BETWEEN = ("on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step")
_OF_THE_MODULE = (
    *_BETWEEN, "training_step", "loss_of", "backward", "optimizer_zero_grad", "configure_gradient_clipping",
)  # fmt: skip

_A_LAUNCH, _A_PART = 36, 8192  # tensors of a launch of torch's fused Adam, and elements of each
_LANES = 8  # branches of a step of the optimiser


class WholeStep:
    """Runs training steps by graphs of their own, as long as nobody could tell the difference.

    A step by Lightning's automatic optimisation is some two thousand calls of Python functions, with autograd and the
    optimiser. On a slow processor they take longer than the GPU's work. If a mini-batch can be replayed, loss and
    gradients are one CUDA graph here, and the optimiser's step is another. Between them, processes exchange the
    gradients. Losses, gradients, parameters and counters are those of Lightning's way, except that a GPU adds up
    gradients in no fixed order in either way.

    It takes part only if all of this holds, and otherwise does nothing:

    - one optimiser, `torch.optim.Adam` in its fused form, without hooks
    - float32 in full ("32-true"), no clipping, no accumulation of gradients, no detection of anomalies
    - one device, or several processes with `OneExchangeStrategy`
    - neither the module nor a callback has a hook between the loss and the optimiser's step
      (`on_before_zero_grad`, `on_before_backward`, `on_after_backward`, `on_before_optimizer_step`), and the module
      no training step, backward pass or clipping of its own; no parameter has a hook of its gradient

    Args:
        plain: the class whose `training_step` and `backward` this stands in for.
        replay: gives loss and gradients of a mini-batch, see `GraphedLoss.with_gradients`; None if it cannot.
        repeats, repeat: whether it can again right after it did, and what then takes its place, see `GraphedLoss`.

    Attributes:
        plain: as given.
        taken: steps that ran this way.
        is_steady: whether the last step did, the optimiser's by a graph: then `repeat` may follow.
    """

    def __init__(
        self,
        plain: type[LightningModule],
        replay: Callable[[Any], Tensor | None],
        repeats: Callable[[Any], bool],
        repeat: Callable[[Any], Tensor],
    ) -> None:
        self.plain, self._replay, self.repeats, self._repeat = plain, replay, repeats, repeat
        self.taken = 0
        self.forget()

    def forget(self) -> None:
        """To be called when a run begins."""
        self.is_steady = False
        self._epoch = -1  # of which `_possible` tells
        self._possible = False
        self._adam: ReplayedAdam | None = None

    def take(self, module: LightningModule, batch: Any, epoch: int, closure: Any) -> bool:
        """Trains on a mini-batch in place of the closure, which is told the loss. False: nothing was done.

        Args:
            module: with its trainer.
            batch: the mini-batch of the step.
            epoch: the current one: what decides whether this is possible is looked at once per epoch.
            closure: what Lightning gives to `optimizer_step`.
        """
        trainer, self.is_steady = module.trainer, False
        if epoch != self._epoch:
            self._epoch, self._possible = epoch, is_possible(self.plain, module, trainer, closure)
            if self._adam is not None and self._adam.optimizer is not trainer.optimizers[0]:
                self._adam = None
        if not self._possible or trainer.accumulate_grad_batches != 1:
            return False
        loss = self._replay(batch)
        if loss is None:
            return False
        if isinstance(trainer.strategy, OneExchangeStrategy):
            trainer.strategy.exchange_gradients()
        if self._adam is None:
            self._adam = ReplayedAdam(trainer.optimizers[0])
        self._adam.step()
        closure._result = ClosureResult(loss)  # which clones it
        self.taken += 1
        self.is_steady = self._adam.replays
        return True

    def repeat(self, batch: Any, strategy: Any) -> Tensor:
        """Trains on a mini-batch that `repeats` says yes to, right after another step, and returns the loss.

        The loss is valid until the next step.
        """
        assert self._adam is not None
        loss = self._repeat(batch)
        if isinstance(strategy, OneExchangeStrategy):
            strategy.exchange_gradients()
        self._adam.replay()
        self.taken += 1
        return loss

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: graphs belong to the process that captured them."""
        return {**self.__dict__, "_epoch": -1, "_possible": False, "_adam": None, "is_steady": False}


def is_possible(plain: type[LightningModule], module: LightningModule, trainer: Trainer, closure: Any) -> bool:
    """Whether nobody could tell a `WholeStep` from Lightning's way, see there."""
    strategy: Any = trainer.strategy
    callbacks = callbacks_of(trainer)
    return (
        isinstance(closure, Closure)
        and closure._zero_grad_fn is not None
        and closure._backward_fn is not None
        and type(strategy) in (SingleDeviceStrategy, OneExchangeStrategy)
        and type(trainer.precision_plugin) is Precision
        and not trainer.gradient_clip_val
        and not torch.is_anomaly_enabled()
        and not any(overrides(module, plain, name) for name in _OF_THE_MODULE)
        and not any(overrides(callback, Callback, name) for callback in callbacks for name in _BETWEEN)
        and not any(_has_hooks(parameter) for parameter in module.parameters())
        and len(trainer.optimizers) == 1
        and _is_plain_adam(trainer.optimizers[0])
    )


def overrides(of: Any, base: type, name: str) -> bool:
    """Whether an object has a method of its own in place of that of a class, which may have none."""
    return name in vars(of) or getattr(type(of), name, None) is not getattr(base, name, None)


def _has_hooks(parameter: Tensor) -> bool:
    return bool(parameter._backward_hooks) or bool(getattr(parameter, "_post_accumulate_grad_hooks", None))


def _is_plain_adam(optimizer: torch.optim.Optimizer) -> bool:
    hooks: Iterable[Any] = (
        optimizer._optimizer_step_pre_hooks,
        optimizer._optimizer_step_post_hooks,
        _global_optimizer_pre_hooks,
        _global_optimizer_post_hooks,
    )
    return type(optimizer) is torch.optim.Adam and not any(hooks) and all(map(_is_fused, optimizer.param_groups))


def _is_fused(group: dict[str, Any]) -> bool:
    return bool(group["fused"]) and not group["differentiable"] and not torch.is_tensor(group["lr"])


class ReplayedAdam:
    """The step of a fused Adam by a CUDA graph. While its options change from step to step it runs as it is.

    Torch takes some 36 tensors a launch, one launch after the other, and has a thread block for 65536 elements: that
    does not fill a GPU. In the graph tensors are in parts, and the launches lie side by side.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captured: list[Any] | None = None  # what the graph was captured with
        self._before: list[Any] | None = None  # what the last step found that ran as it is
        self._by_graph = False  # the last step

    @property
    def replays(self) -> bool:
        """Whether the last step was by the graph."""
        return self._graph is not None and self._by_graph

    def replay(self) -> None:
        """A step right after one by the graph: nothing has changed in between."""
        assert self._graph is not None
        self._graph.replay()

    def step(self) -> None:
        found = self._look()
        self._by_graph = True
        if self._graph is not None and found == self._captured:
            self._graph.replay()
            return
        if found is None or found != self._before:
            self._by_graph = False
            self.optimizer.step()
            self._before = self._look()  # a first step makes the moments
            return
        self._graph, self._captured = self._capture(), found
        self._graph.replay()

    def _look(self) -> list[Any] | None:
        """Options and addresses that a step depends on; None if there was no step yet."""
        groups, state = self.optimizer.param_groups, self.optimizer.state
        parameters = [p for group in groups for p in group["params"] if p.grad is not None]
        states = [state[p] for p in parameters if p in state]
        if len(states) != len(parameters):
            return None
        tensors = chain(parameters, (p.grad for p in parameters), *(s.values() for s in states))
        options = [value for group in groups for name, value in group.items() if name != "params"]
        return [*options, *map(torch.Tensor.data_ptr, tensors)]

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        device = self.optimizer.param_groups[0]["params"][0].device
        # Not by `torch.cuda.graph`, which gives torch's spare memory back first: a schedule of learning rates may
        # want a new graph in each epoch. The step takes no memory.
        with torch.cuda.stream(torch.cuda.Stream(device, priority=PRIORITY)), capturing():
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                with Branches(device, PRIORITY).open():
                    self._step_side_by_side()
            finally:
                graph.capture_end()
        return graph

    def _step_side_by_side(self) -> None:
        """As the optimiser's step, which is the same for each element, a few parts of parameters a branch."""
        done: list[Beside[None]] = []
        for group in self.optimizer.param_groups:
            parts: dict[torch.dtype, list[tuple[Tensor, ...]]] = {}
            parameters = [p for p in group["params"] if p.grad is not None]
            torch._foreach_add_([self.optimizer.state[p]["step"] for p in parameters], 1)
            for p in parameters:
                parts.setdefault(p.dtype, []).extend(_parts_of(p, self.optimizer.state[p], group["amsgrad"]))
            for some in parts.values():
                some.sort(key=lambda part: part[0].numel(), reverse=True)  # equal ones are done at the same time
                for begin in range(0, len(some), _A_LAUNCH):
                    work = partial(_adam, group, some[begin : begin + _A_LAUNCH])
                    done.append(beside(len(done) % _LANES, work))
        for one in done:
            one()


def _parts_of(parameter: Tensor, state: dict[str, Tensor], amsgrad: bool) -> list[tuple[Tensor, ...]]:
    """Parts of a parameter, its gradient and its moments, each with the number of steps."""
    assert parameter.grad is not None
    moments = ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if amsgrad else [])]
    whole = [parameter.detach(), parameter.grad, *(state[name] for name in moments)]
    if not all(of.is_contiguous() for of in whole):
        return [(*whole, state["step"])]
    return [(*parts, state["step"]) for parts in zip(*(of.view(-1).split(_A_PART) for of in whole), strict=True)]


def _adam(group: dict[str, Any], parts: Sequence[tuple[Tensor, ...]]) -> None:
    """A launch of torch's fused Adam, as its optimiser calls it."""
    parameters, gradients, first, second, *largest, steps = map(list, zip(*parts, strict=True))
    launch = torch._fused_adamw_ if group.get("decoupled_weight_decay") else torch._fused_adam_
    options = {name: group[name] for name in ("lr", "weight_decay", "eps", "amsgrad", "maximize")}
    beta1, beta2 = map(float, group["betas"])
    most = largest[0] if largest else []
    launch(parameters, gradients, first, second, most, steps, beta1=beta1, beta2=beta2, **options)

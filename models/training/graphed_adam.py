"""Adam whose step is one CUDA graph, while parameters, gradients and state stay where they are."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from itertools import chain
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.optim import optimizer

from models.training.graphed import PRIORITY

_ALIKE = 16  # steps in a row that found everything in the same place, before one is captured
_Places = tuple[list[Any], list[int | None]]  # settings; addresses of parameters, gradients and states
_SETTINGS = ("lr", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay")
_is_cuda, _grad = attrgetter("is_cuda"), attrgetter("grad")


class GraphedAdam(torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`, replayed by a CUDA graph where a step finds all as the step before did.

    The fused step is a kernel or two, before which the host looks through parameters, gradients and state: that takes
    it about as long as all other launches of a replayed training step together. The results are the same. It is an
    ordinary step wherever something changed: gradients in other tensors (as without `GraphedLoss`), a
    learning rate that a scheduler changes with every step, a state that was loaded. It always is under gradient
    scaling, on a CPU or several GPUs, with a setting that is a tensor, and after the state of an Adam that is not fused
    was loaded, which makes this one so, too.

    Args:
        params, options: of `torch.optim.Adam`, besides `fused`, `foreach`, `capturable` and `differentiable`.

    Attributes:
        replayed: steps that came from a graph.
    """

    replayed = 0
    _failed = False
    # One for all captures: torch has 32 streams and hands them out in turn, in the end one on which others work.
    _stream: torch.cuda.Stream | None = None

    def __init__(self, params: Any, **options: Any) -> None:
        super().__init__(params, fused=True, **options)
        self._forget()

    def _forget(self) -> None:
        self._alike = 0
        self._last: _Places | None = None
        self._captured: _Places | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """One step, after the `closure`, the only argument, where there is one; its result."""
        hooks = self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks or _hooks_of_all()
        # Torch puts hooks and a note for its profiler around each optimiser's step: that takes longer than the step.
        step = _noted_step if hooks or torch.autograd._profiler_enabled() else GraphedAdam._step
        return step(self, *args, **kwargs)

    # By this torch knows a step that it need not put them around. Functions take attributes, though not as declared.
    step.hooked = True  # type: ignore[attr-defined]

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        graph = self._graph_for(self._places())
        if graph is None:
            _ordinary_step()(self)
        else:
            graph.replay()
            self.replayed += 1
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As every optimiser's; without a note for torch's profiler, which takes longer than the rest."""
        if not set_to_none:
            super().zero_grad(set_to_none=False)
            return
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()

    def _graph_for(self, places: _Places | None) -> torch.cuda.CUDAGraph | None:
        """The step that was captured in these places or, where enough in a row found them, is captured now."""
        if self._graph is not None and self._captured == places:
            return self._graph
        self._alike = self._alike + 1 if places is not None and places == self._last else 0
        self._last = places
        if self._alike < _ALIKE or not self._can_be_captured():
            return None
        self._graph = None  # its memory first
        self._graph, self._captured = self._capture(), places
        return self._graph

    def _places(self) -> _Places | None:
        """What a captured step depends on; None where there can be none."""
        if getattr(self, "grad_scale", None) is not None or getattr(self, "found_inf", None) is not None:
            return None
        settings: list[Any] = []
        pointers: list[int | None] = []
        for group in self.param_groups:
            if not group["fused"]:
                return None
            settings += map(group.get, _SETTINGS)
            settings += (*group["betas"], len(group["params"]))
            # With little Python for each parameter: all this is asked with every step.
            params = group["params"]
            if not all(map(_is_cuda, params)):
                return None
            pointers += map(Tensor.data_ptr, params)
            pointers += [None if g is None else g.data_ptr() for g in map(_grad, params)]
            states = [state for p in params if (state := self.state.get(p))]
            pointers += map(Tensor.data_ptr, chain.from_iterable(map(dict.values, states)))
        if any(isinstance(setting, Tensor) for setting in settings):
            return None  # its value may change in place, and is fixed in a graph if it is on the host
        return settings, pointers

    def _can_be_captured(self) -> bool:
        """Whether all is on the one GPU whose stream is captured, the graph would not be empty, and none has failed."""
        if self._failed:
            return False
        parameters = [p for group in self.param_groups for p in group["params"]]
        return len({p.device for p in parameters}) == 1 and any(p.grad is not None for p in parameters)

    def _capture(self) -> torch.cuda.CUDAGraph | None:
        """A step, which is not done thereby, as a CUDA graph; None, and a warning, where that cannot be had."""
        collects = gc.isenabled()
        gc.disable()  # a finalizer may wait for the GPU, which ends a capture
        try:
            return self._captured_step()
        except RuntimeError as error:
            self._failed = True
            warnings.warn(f"Adam's steps stay ordinary ones, no CUDA graph could be captured: {error}", stacklevel=3)
            return None
        finally:
            if collects:
                gc.enable()

    def _captured_step(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        groups = self.param_groups
        before = [group["capturable"] for group in groups]
        for group in groups:
            group["capturable"] = True  # a fused step is; torch wants it said, and outside of a capture would warn
        device = next(p.device for group in groups for p in group["params"])
        if self._stream is None or self._stream.device != device:
            self._stream = torch.cuda.Stream(device, priority=PRIORITY)
        here, stream = torch.cuda.current_stream(device), self._stream
        stream.wait_stream(here)
        try:
            # `torch.cuda.graph` would collect garbage and give up the allocator's spare memory first: the step takes
            # none. Other threads, the loader's, may do on their streams what they like meanwhile.
            with torch.cuda.stream(stream):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    _ordinary_step()(self)
                finally:
                    graph.capture_end()
        finally:
            for group, capturable in zip(groups, before, strict=True):
                group["capturable"] = capturable
        here.wait_stream(stream)
        return graph


_noted_step: Callable[..., Any] = torch.optim.Optimizer.profile_hook_step(GraphedAdam._step)


def _hooks_of_all() -> bool:
    """Whether there are hooks for the steps of all optimisers."""
    return bool(optimizer._global_optimizer_pre_hooks or optimizer._global_optimizer_post_hooks)


def _ordinary_step() -> Callable[[torch.optim.Adam], Any]:
    """Adam's own step, without the hooks that torch puts around it: they are around that of `GraphedAdam` already."""
    step: Any = torch.optim.Adam.step
    return step.__wrapped__ if getattr(step, "hooked", False) else step

"""Forward and backward pass of a training step by CUDA graphs, over mini-batches of changing size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import chain
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from loader.machine.gpu import current_stream_handle
from loader.ops.autocast import autocast_dtype
from loader.ops.live import Kind, LiveBatch, Room
from loader.samples import MiniBatch

# Loss of a mini-batch, a scalar with gradients, and something else that is computed with it: logits, or scores.
LossFunction = Callable[[MiniBatch], tuple[Tensor, Tensor]]

_SEEN = 16  # so many mini-batches of a kind are run as usual before it is captured, with room for the largest
_HEADROOM = 0.02  # sizes of random mini-batches of as many seeds differ by less
_STEP = 128  # rows: sizes that suit a matrix product
_WARM_UP = 2
# Kernels of a training step go before those of sampling, and after those that read over the bus: see the priorities
# of the stages in loader/stages/.
_PRIORITY = -2
_requires_grad = attrgetter("requires_grad")


class GraphedLoss:
    """Calls a loss function as it is, or replays it and its gradient as two CUDA graphs: the result is the same.

    A step of a GNN is some sixty launches, for which the host takes longer than the GPU for the work. A CUDA graph
    (https://developer.nvidia.com/blog/cuda-graphs/) launches them all at once. Graphs want fixed sizes, which
    mini-batches do not have; here the kernels look up the sizes when they run (`loader.ops.live`), and torch's matrix
    products run over room for the largest mini-batch, with zeros in the rows that are too many.

    The first mini-batches run as they are and show how large they get. From then on those that fit are replayed;
    others (the last, smaller one of an epoch; one that is larger than any before) run as they are. If larger ones come
    often, it is captured again. Gradients reach the parameters as autograd hands them over, so that hooks, DDP,
    gradient accumulation, clipping and loss scaling work as ever. `backward(loss)` does what `loss.backward()` does,
    sooner: past autograd where that would call nobody. A hook on a node of autograd's graph, not on a tensor, is called
    only where the node is one that accumulates a parameter's gradient, and is kept by whoever put the hook there.

    The gradients lie in memory that the next backward pass writes to, too, unless a parameter's `grad` holds them:
    whoever keeps those of `torch.autograd.grad`, or a `grad` that was exchanged, clones them. One backward pass a loss.

    What the function reads besides mini-batch and parameters, a dropout rate say, is fixed when it is captured; call
    `reset` after changing it. Batch norm mixes the rows, those that are too many included, and must not be in it.

    Args:
        function: mini-batch -> (loss, output), by way of `module`. It reads the blocks and `x` through
            `loader.ops.linear_self_mean` (blocks after the first one also through the other functions of `loader.ops`),
            as `models.sage.GraphSAGE` does; anything else that it does with them is an error when it is captured.
        module: has the parameters that get a gradient. When one of them moves in memory, it is captured again.

    Attributes:
        replayed: mini-batches whose loss came from a graph.
        captures: how often the function was captured.
    """

    def __init__(self, function: LossFunction, module: nn.Module) -> None:
        self._function = function
        self._module = module
        self.replayed = self.captures = 0
        self.reset()

    def reset(self) -> None:
        """Forgets what was captured, its memory, and the sizes seen."""
        self._captured: _Captured | None = None
        self._given: Tensor | None = None  # the last replayed loss, until `backward`
        self._kind: Kind | None = None
        self._room: Room | None = None  # for the largest of the kind
        self._as_it_is = 0  # mini-batches of the kind that were not replayed, since the last capture
        self._others = 0  # mini-batches of other kinds, since the last one of this kind

    def __call__(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        """Loss and output. A replayed output has no gradient and is valid until the next call."""
        self._given = None  # which would keep the graphs that it came from
        kind = Kind.of(batch) if torch.is_grad_enabled() else None
        if kind is None or not self._takes(kind):
            return self._function(batch)
        if self._captured is not None and not self._captured.is_valid():
            self._captured = None
        room = Room.of(batch)
        if self._captured is None or not self._captured.live.room.holds(room):
            self._room = room if self._room is None else self._room.union(room)
            self._as_it_is += 1
            if self._as_it_is < _SEEN:
                return self._function(batch)
            self._captured = None  # its memory first
            live = LiveBatch(batch, self._room.widened(_HEADROOM, _STEP))
            self._captured = _Captured(_Call(self._module, self._function), live, batch)
            self._as_it_is = 0
            self.captures += 1
        self.replayed += 1
        self._given, output = self._captured.run(batch)
        return self._given, output

    def backward(self, loss: Tensor) -> None:
        """`loss.backward()`, of any loss, with fewer launches for a replayed one and without a change of threads."""
        given, self._given = self._given, None
        if given is not None and _is_divided_by_one(loss, given):
            loss = given
        captured = self._captured
        if loss is given and captured is not None and captured.alone_sees(loss):
            captured.hand_over(loss)
            return
        one = None
        # For a replayed loss alone: anything else may make what the backward pass begins with a parameter's gradient.
        if captured is not None and isinstance(loss.grad_fn, _Replay._backward_cls):
            one = captured.one
        # In this thread: one of autograd's own, which torch takes for a GPU, has to be woken up and to get the GIL, and
        # that for each step took longer than what it is to launch.
        with torch.autograd.set_multithreading_enabled(False):
            loss.backward(one)

    def _takes(self, kind: Kind) -> bool:
        """Whether mini-batches of this kind are the ones to be replayed: others are only after some in a row."""
        self._others = 0 if kind == self._kind else self._others + 1
        if self._others and (self._kind is None or self._others >= _SEEN):
            self.reset()
            self._kind = kind
        return kind == self._kind

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: graphs belong to the process and the parameters that they were captured with."""
        return {**self.__dict__, "_captured": None, "_given": None}


def _is_divided_by_one(loss: Tensor, given: Tensor) -> bool:
    """Whether that is how `loss` came from `given`, and nobody but `given` can tell that it was left out.

    Lightning divides by the number of mini-batches that it accumulates over. Hooks that were put on the division
    itself, not on its result, are not seen.
    """
    node = loss.grad_fn
    if node is None or node.name() != "DivBackward0":
        return False
    (dividend, _), (of_divisor, _) = node.next_functions
    if dividend is not given.grad_fn or of_divisor is not None or loss._backward_hooks or loss.retains_grad:
        return False
    # What a node saved has no declaration in torch, as the kinds of node have none.
    divisor: Any = node._saved_other  # type: ignore[attr-defined]
    return divisor.device.type == "cpu" and bool(divisor == 1)


def _is_watched() -> bool:
    """Whether something looks at what autograd does: a process group's hooks, anomaly detection, a profiler."""
    return (
        torch.is_anomaly_enabled()
        or torch.autograd._profiler_enabled()
        or (torch.distributed.is_available() and torch.distributed.is_initialized())
    )


def _most_held(next_functions: tuple[tuple[Any, int], ...]) -> int:
    """References to the one of the nodes that has most."""
    nodes = [node for node, _ in next_functions if node is not None]
    return max(map(sys.getrefcount, nodes), default=0)


def _held_by_nobody() -> int:
    """References to a node that nobody holds but the graph that it is in, and what counts them."""
    with torch.inference_mode(False), torch.enable_grad():  # whoever imports this may be in another mode
        result = torch.nn.Parameter(torch.zeros(1, device="cpu")).expand(2)
    assert result.grad_fn is not None
    return _most_held(result.grad_fn.next_functions)


_HELD_BY_NOBODY = _held_by_nobody()


class _Call(nn.Module):
    """The function as a module, for `torch.func.functional_call`."""

    def __init__(self, module: nn.Module, function: LossFunction) -> None:
        super().__init__()
        self.module = module
        self.function = function

    def forward(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        return self.function(batch)


class _Parameters:
    """The parameters of a module, which are looked for again only when something in it was exchanged.

    Attributes:
        named: those that get gradients, by name.
    """

    def __init__(self, module: nn.Module) -> None:
        every = dict(module.named_parameters())
        self.named = {name: p for name, p in every.items() if p.requires_grad}
        # All are held: what is exchanged must not get the address of what was there before.
        self._every, self._modules = list(every.values()), list(module.modules())
        self._holders: list[dict[str, Any]] = [held for m in self._modules for held in (m._parameters, m._modules)]
        self._state = self._look()

    def unchanged(self) -> bool:
        return self._look() == self._state

    def _look(self) -> tuple[list[Any], ...]:
        # Without a line of Python for each parameter: it is asked with every step.
        held = chain.from_iterable(map(dict.values, self._holders))
        return (
            list(map(id, held)),
            list(map(len, self._holders)),
            list(map(Tensor.data_ptr, self._every)),
            list(map(_requires_grad, self._every)),
        )


def _context() -> tuple[Any, ...]:
    """What graphs depend on, besides parameters, and kind and room of the mini-batches."""
    return autocast_dtype("cuda"), torch.get_float32_matmul_precision()


def _forget_workspaces() -> None:
    """Lets go of the memory that cuBLAS works in.

    Torch keeps one for each thread and stream. That of a graph has to be the graph's own: another could be given up
    while the graph is still to be replayed (a Trainer does so at its end), and what works on the same stream later
    must not share it.
    """
    torch._C._cuda_clearCublasWorkspaces()  # torch has no public name for it


class _Captured:
    """The two graphs, and the memory that they work in."""

    def __init__(self, call: _Call, live: LiveBatch, batch: MiniBatch) -> None:
        self.live = live
        self._of_module = _Parameters(call.module)
        parameters = self._of_module.named
        self.parameters = list(parameters.values())
        self._context = _context()
        self.runs = 0
        self._stream = 0  # of the last forward pass
        # Tensors of our own for the parameters' memory: those that accumulate the parameters' gradients may be alive in
        # some other graph, and belong to a stream that cannot be captured.
        weights = {f"module.{name}": p.detach().requires_grad_() for name, p in parameters.items()}

        def loss_and_output() -> tuple[Tensor, Tensor]:
            loss, output = torch.func.functional_call(call, weights, (live.batch,))
            if loss.device != live.kind.device or output.device != live.kind.device:
                raise RuntimeError(
                    f"the loss came out on {loss.device}: the function read x or a block otherwise than through the "
                    "functions of loader.ops.mean, which a CUDA graph cannot"
                )
            return loss, output

        def gradients_of(loss: Tensor, grad_loss: Tensor | None = None) -> tuple[Tensor | None, ...]:
            return torch.autograd.grad(loss, list(weights.values()), grad_loss, allow_unused=True)

        live.load(batch)
        torch.clear_autocast_cache()  # it would hold copies of weights that belong to a graph, and the other way round
        here = torch.cuda.current_stream(live.kind.device)
        stream = torch.cuda.Stream(live.kind.device, priority=_PRIORITY)
        stream.wait_stream(here)
        with torch.cuda.stream(stream), torch.autograd.set_multithreading_enabled(False):
            for _ in range(_WARM_UP):
                gradients = gradients_of(loss_and_output()[0])
            # Not in the graphs' memory, where the next forward pass would write over them. With the strides of the
            # parameters, as autograd hands them over.
            self.gradients = [
                None if g is None else torch.empty_like(p) for p, g in zip(self.parameters, gradients, strict=True)
            ]
            del gradients
        here.wait_stream(stream)
        _forget_workspaces()
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        live.forget_draws()
        # Other threads, the loader's, may do on their streams what they like meanwhile.
        mode: dict[str, Any] = {"stream": stream, "capture_error_mode": "thread_local"}
        with torch.cuda.graph(self.forward, **mode):
            loss, output = loss_and_output()
        # What `backward` begins with as a rule, and what the graph reads: it is written to only for another value.
        self.one, self._grad_loss = torch.ones_like(loss), torch.ones_like(loss)
        self._is_one = True
        one_thread = torch.autograd.set_multithreading_enabled(False)
        with torch.cuda.graph(self.backward, pool=self.forward.pool(), **mode), one_thread:
            found = gradients_of(loss, self._grad_loss)
            torch._foreach_copy_([g for g in self.gradients if g is not None], [g for g in found if g is not None])
        _forget_workspaces()
        torch.clear_autocast_cache()
        live.check_draws()
        self.loss, self.output = loss.detach(), output.detach()
        self._handed = [(p, g) for p, g in zip(self.parameters, self.gradients, strict=True) if g is not None]

    def is_valid(self) -> bool:
        return self._context == _context() and self._of_module.unchanged()

    def run(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        self.live.load(batch)
        self.runs += 1
        self._stream = self._current_stream()
        loss: Tensor = _Replay.apply(self, batch, *self.parameters)
        return loss, self.output

    def begin_with(self, grad_loss: Tensor) -> None:
        """The gradient of the loss for the next replay of the backward pass."""
        is_one = grad_loss.data_ptr() == self.one.data_ptr()
        if not (is_one and self._is_one):
            self._grad_loss.copy_(grad_loss)
        self._is_one = is_one

    def alone_sees(self, loss: Tensor) -> bool:
        """Whether autograd would do nothing about the backward pass of `loss` but make our gradients the `grad`s.

        Hooks may be those of a tensor, or of the nodes that accumulate gradients: the latter do not show, but who puts
        them there keeps the node, as Horovod does, or has a process group, as DDP and FSDP.
        """
        if loss._backward_hooks or loss.retains_grad or self._stream != self._current_stream() or _is_watched():
            return False
        for p in self.parameters:
            if p.grad is not None or not p.requires_grad or p._backward_hooks or p._post_accumulate_grad_hooks:
                return False
        node = loss.grad_fn
        return node is not None and _most_held(node.next_functions) <= _HELD_BY_NOBODY

    def _current_stream(self) -> int:
        return current_stream_handle(self.live.kind.device.index)

    def hand_over(self, loss: Tensor) -> None:
        """The backward pass of `loss`, the last one that was replayed, past autograd: that takes the host longer."""
        self.replay_backward(loss.grad_fn, self.one)
        for parameter, gradient in self._handed:
            parameter.grad = gradient.detach()

    def replay_backward(self, ctx: Any, grad_loss: Tensor) -> None:
        """Of the forward pass whose `ctx` is given."""
        if ctx.batch is None:
            raise RuntimeError("backward a second time through a replayed loss, whose mini-batch may be gone by now")
        if ctx.run != self.runs:
            raise RuntimeError(
                "backward of a mini-batch after the forward pass of a later one: a graph has room for one at a time; "
                "call backward first, or train without graphs"
            )
        self.begin_with(grad_loss)
        self.backward.replay()
        ctx.batch = None

    def keep_accumulated(self) -> None:
        """Gradients that were handed out and are still to be added to must not be written over."""
        for parameter, gradient in self._handed:
            held = parameter.grad
            if held is not None and held.data_ptr() == gradient.data_ptr():
                parameter.grad = held.clone()


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, captured: _Captured, batch: MiniBatch, *parameters: Tensor) -> Tensor:
        captured.forward.replay()
        ctx.captured, ctx.run = captured, captured.runs
        ctx.batch = batch  # its arrays have to stay until backward has been launched
        return captured.loss.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        captured = ctx.captured
        captured.keep_accumulated()
        captured.replay_backward(ctx, grad_loss)
        # Views: autograd makes them the parameters' `grad` without a copy.
        return None, None, *(None if g is None else g.detach() for g in captured.gradients)

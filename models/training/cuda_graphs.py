"""Forward and backward pass of a training step by CUDA graphs, over mini-batches of changing size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from loader.machine.freeing import capturing
from loader.ops.autocast import autocast_dtype
from loader.ops.captured_batch import CapturedBatch
from loader.ops.side_streams import Branches, beside
from models.training.exchange import FlatTensors

# Loss of a mini-batch, a scalar with gradients, and something else that is computed with it: logits, or scores.
LossFunction = Callable[[Any], tuple[Tensor, Tensor]]

IGNORED_LABEL = -100  # torch's cross entropy leaves nodes of this class out, and it is that of no logit

_SEEN = 16  # this many mini-batches of a kind are run as usual before it is captured, with room for the largest
_STEP = 256  # rows: such sizes suit a matrix product; half as many rows would need twice as many copies of weights
_WARM_UP = 2
_COPIERS = 4  # branches that copy gradients
# Kernels of a training step go before those of sampling, and after those that read over the bus: see the priorities
# of the stages in loader/stages/.
PRIORITY = -2
_requires_grad = attrgetter("requires_grad")


class GraphedLoss:
    """Calls a loss function as it is, or replays it and its gradient as two CUDA graphs: the result is the same.

    A step of a GNN is some sixty launches, for which the host takes longer than the GPU for the work. A CUDA graph
    (https://developer.nvidia.com/blog/cuda-graphs/) launches them all at once. Graphs want fixed sizes, which
    mini-batches do not have; here the kernels look up the sizes when they run (`loader.ops.captured_batch`), and
    torch's matrix products run over room for the largest mini-batch, with zeros in the rows that are too many. What the
    function gives to `loader.ops.side_streams.beside` runs side by side.

    The first mini-batches run as they are and show how large they get. From then on those that fit are replayed, and
    others run as they are: one that is larger than any before and, without `ignored_label`, one of fewer seeds, as the
    last of an epoch is. If larger ones come often, it is captured again. Autograd hands the gradients to the
    parameters, so hooks, DDP, gradient accumulation, clipping and loss scaling work as ever.

    The gradients lie in memory that the next backward pass writes to, too, unless a parameter's `grad` holds them:
    whoever keeps those of `torch.autograd.grad`, or a `grad` that was exchanged, clones them. They are the views of a
    `FlatTensors`, for processes to average in one exchange. One backward pass a loss.

    What the function reads besides mini-batch and parameters is fixed when it is captured; call `reset` after changing
    it. Another rate of dropout, such as a callback may set, is seen, and captured again. Batch norm mixes the rows,
    those that are too many included, and must not be in it.

    Args:
        function: mini-batch -> (loss, output), by way of `module`. It reads the blocks and `x` through
            `loader.ops.linear_self_mean` (blocks after the first one also through the other functions of `loader.ops`),
            as `models.sage.GraphSAGE` does; anything else that it does with them is an error when it is captured. Of
            trees it reads `layout`, as `models.relational.RelationalSAGE` does.
        module: has the parameters that get a gradient. When one of them moves in memory, it is captured again.
        ignored_label: a class that the function leaves out of the loss, which is a mean over the other seeds, and of
            the output. Mini-batches of fewer seeds, with one class for each, then have it for those that are missing.
        stand_in: the class that stands in for mini-batches while the function is captured:
            `loader.ops.captured_batch.CapturedBatch` for a `MiniBatch`, `loader.ops.captured_trees.CapturedTrees` for a
            `TreeMiniBatch`.

    Attributes:
        module: as given.
        replayed: mini-batches whose loss came from a graph.
        captures: how often the function was captured.
    """

    def __init__(
        self, function: LossFunction, module: nn.Module, ignored_label: int | None = None, stand_in: Any = CapturedBatch
    ) -> None:
        self._function = function
        self.module = module
        self._stand_in = stand_in
        self._ignored_label = ignored_label
        self.replayed = self.captures = 0
        self.reset()

    def reset(self) -> None:
        """Forgets what was captured, its memory, and the sizes seen."""
        self._captured: _Captured | None = None
        self._kind: Any = None
        self._room: Any = None  # for the largest of the kind
        self._as_it_is = 0  # mini-batches of the kind that were not replayed, since the last capture
        self._others = 0  # mini-batches of other kinds, since the last one of this kind
        self._fewer = 0  # mini-batches of fewer seeds in a row

    def takes(self, batch: Any) -> bool:
        """Whether it is a mini-batch of the class that `stand_in` stands in for."""
        return isinstance(batch, self._stand_in.stands_for)

    def __call__(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Loss and output. A replayed output has no gradient and is valid until the next call."""
        kind = self._stand_in.kind_of(batch) if torch.is_grad_enabled() else None
        if kind == self._kind:
            self._fewer = 0
        elif kind is not None and self._holds(batch):
            kind = self._kind  # but for its seeds, which are fewer
        if kind is None or not self._takes(kind):
            return self._function(batch)
        if self._captured is not None and not self._captured.is_valid():
            self._captured = None
        room = self._stand_in.room_of(batch)
        if self._captured is None or not self._captured.stand_in.room.holds(room):
            self._room = room if self._room is None else self._room.union(room)
            self._as_it_is += 1
            if self._as_it_is < _SEEN:
                return self._function(batch)
            self._captured = None  # its memory first
            room = self._room.widened(self._stand_in.headroom, _STEP)
            stand_in = self._stand_in(batch, room, self._ignored_label)
            self._captured = _Captured(_Call(self.module, self._function), stand_in, batch)
            self._as_it_is = 0
            self.captures += 1
        self.replayed += 1
        return self._captured.run(batch)

    def with_gradients(self, batch: Any) -> tuple[Tensor, Tensor] | None:
        """Loss and output of a mini-batch, and the gradients as the parameters' `grad`: one graph, without autograd.

        For who would call `backward` next, and has no hook that could notice that nobody did. Gradients that were there
        are replaced. The loss is valid until the next call, as the output is.

        Returns:
            None if the mini-batch cannot be replayed at present; call the object itself then.
        """
        captured = self._captured
        if captured is None or not self._holds(batch):
            return None
        self._others = 0
        self.replayed += 1
        return captured.run_whole(batch)

    def repeats(self, batch: Any) -> bool:
        """Whether `repeat` can replay it: it fits, and has as many seeds as the graphs were captured with."""
        captured = self._captured
        return (
            captured is not None
            and captured.stand_in.kind.batch_size == batch.batch_size
            and captured.stand_in.holds(batch)
        )

    def repeat(self, batch: Any) -> tuple[Tensor, Tensor]:
        """As `with_gradients`, for the step after another one by `with_gradients` or by this.

        Nothing else may have run in between, and `repeats` has to say yes: parameters and gradients are taken for those
        of the step before.
        """
        assert self._captured is not None
        self._others = self._fewer = 0
        self.replayed += 1
        return self._captured.repeat(batch)

    def _holds(self, batch: Any) -> bool:
        """Whether the graphs can replay it. Many of fewer seeds in a row are to have graphs of their own."""
        captured = self._captured
        if captured is None or not captured.is_valid() or not captured.stand_in.holds(batch):
            return False
        self._fewer = self._fewer + 1 if batch.batch_size < captured.stand_in.kind.batch_size else 0
        return self._fewer < _SEEN

    def _takes(self, kind: Any) -> bool:
        """Whether mini-batches of this kind are the ones to be replayed: others are only after some in a row."""
        self._others = 0 if kind == self._kind else self._others + 1
        if self._others and (self._kind is None or self._others >= _SEEN):
            self.reset()
            self._kind = kind
        return kind == self._kind

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: graphs belong to the process and the parameters that they were captured with."""
        return {**self.__dict__, "_captured": None}


class _Call(nn.Module):
    """The function as a module, for `torch.func.functional_call`."""

    def __init__(self, module: nn.Module, function: LossFunction) -> None:
        super().__init__()
        self.module = module
        self.function = function

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        return self.function(batch)


class _Parameters:
    """The parameters of a module, which are looked for again only when something in it was exchanged, and its dropout.

    Attributes:
        named: those that get gradients, by name.
    """

    def __init__(self, module: nn.Module) -> None:
        every = dict(module.named_parameters())
        self.named = {name: p for name, p in every.items() if p.requires_grad}
        # All are held: what is exchanged must not get the address of what was there before.
        self._every, self._modules = list(every.values()), list(module.modules())
        self._holders: list[dict[str, Any]] = [held for m in self._modules for held in (m._parameters, m._modules)]
        self._rates = [(vars(module), "training")]
        for held in map(vars, self._modules):  # of numbers: tensors do not compare, or wait for the GPU
            rates = [name for name in held if name == "p" or "dropout" in name]
            self._rates += [(held, name) for name in rates if isinstance(held[name], int | float)]
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
            [held.get(name) for held, name in self._rates],
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
    """The graphs, and the memory that they work in: one of each pass, or one of both, whichever was asked for last."""

    def __init__(self, call: _Call, stand_in: Any, batch: Any) -> None:
        self.stand_in = stand_in
        self._of_module = _Parameters(call.module)
        parameters = self._of_module.named
        self.parameters = list(parameters.values())
        self._context = _context()
        self.runs = 0
        # Tensors of our own for the parameters' memory: those that accumulate the parameters' gradients may be alive in
        # some other graph, and belong to a stream that cannot be captured.
        self._weights = {f"module.{name}": p.detach().requires_grad_() for name, p in parameters.items()}
        self._call = call

        stand_in.load(batch)
        torch.clear_autocast_cache()  # it would hold copies of weights that belong to a graph, and the other way round
        here = torch.cuda.current_stream(stand_in.kind.device)
        stream = torch.cuda.Stream(stand_in.kind.device, priority=PRIORITY)
        stream.wait_stream(here)
        self._branches = Branches(stand_in.kind.device, PRIORITY) if stand_in.branches else None
        with torch.cuda.stream(stream), self._side_by_side(), torch.autograd.set_multithreading_enabled(False):
            for _ in range(_WARM_UP):
                gradients = self._gradients_of(self._loss_and_output()[0])
            # Not in the graphs' memory, where the next forward pass would write over them. With the strides of the
            # parameters, as autograd hands them over. All in one piece, for processes to exchange.
            have = [p for p, g in zip(self.parameters, gradients, strict=True) if g is not None]
            views = iter(FlatTensors(have).views)
            self.gradients = [None if g is None else next(views) for g in gradients]
            del gradients
        here.wait_stream(stream)
        self._handed = [(p, g) for p, g in zip(self.parameters, self.gradients, strict=True) if g is not None]
        # Other threads, the loader's, may do on their streams what they like meanwhile.
        self._mode: dict[str, Any] = {"stream": stream, "capture_error_mode": "thread_local"}
        self.forward: torch.cuda.CUDAGraph | None = None
        self.backward: torch.cuda.CUDAGraph | None = None
        self._whole: torch.cuda.CUDAGraph | None = None
        self.loss: Tensor | None = None
        self.output: Tensor | None = None
        self._capture_passes()

    def _loss_and_output(self) -> tuple[Tensor, Tensor]:
        loss, output = torch.func.functional_call(self._call, self._weights, (self.stand_in.batch,))
        if loss.device != self.stand_in.kind.device or output.device != self.stand_in.kind.device:
            raise RuntimeError(
                f"the loss came out on {loss.device}: with CUDA graphs, the function may use x and blocks only "
                "through the functions of loader.ops.mean"
            )
        return loss, output

    def _gradients_of(self, loss: Tensor, grad_loss: Tensor | None = None) -> tuple[Tensor | None, ...]:
        return torch.autograd.grad(loss, list(self._weights.values()), grad_loss, allow_unused=True)

    def _copy_gradients(self, found: tuple[Tensor | None, ...]) -> None:
        every = [(to, g) for to, g in zip(self.gradients, found, strict=True) if to is not None and g is not None]
        # By a launch each where the strides differ: one of these among the others, and torch would copy all so.
        same = [[pair for pair in every if (pair[0].stride() == pair[1].stride()) == equal] for equal in (True, False)]
        copiers = 1 if self._branches is None else _COPIERS
        parts = [some[i::copiers] for some in same for i in range(copiers)]

        def copy(some: list[tuple[Tensor, Tensor]]) -> None:
            torch._foreach_copy_([to for to, _ in some], [g for _, g in some])

        # The gradients stay until here, so their memory needs no further care.
        for done in [beside(("copy", i % copiers), partial(copy, part)) for i, part in enumerate(parts) if part]:
            done()

    def _capture_passes(self) -> None:
        """A graph of each pass, in place of that of both: what they work in is there once."""
        self._forget_graphs()
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with self._capturing():
            with torch.cuda.graph(self.forward, **self._mode):
                loss, output = self._loss_and_output()
            self._grad_loss = torch.ones_like(loss)  # what the backward pass begins with
            with torch.cuda.graph(self.backward, pool=self.forward.pool(), **self._mode):
                self._copy_gradients(self._gradients_of(loss, self._grad_loss))
        self.loss, self.output = loss.detach(), output.detach()

    def _capture_whole(self) -> None:
        """A graph of both passes, in place of those of each."""
        self._forget_graphs()
        self._whole = torch.cuda.CUDAGraph()
        with self._capturing(), torch.cuda.graph(self._whole, **self._mode):
            loss, output = self._loss_and_output()
            self._copy_gradients(self._gradients_of(loss))
        self.loss, self.output = loss.detach(), output.detach()

    def _forget_graphs(self) -> None:
        if self.loss is not None:
            torch.cuda.synchronize(self.stand_in.kind.device)  # they may be running
        self.forward = self.backward = self._whole = self.loss = self.output = None

    @contextmanager
    def _capturing(self) -> Iterator[None]:
        _forget_workspaces()
        torch.clear_autocast_cache()
        self.stand_in.forget_draws()
        with torch.autograd.set_multithreading_enabled(False), self._side_by_side(), capturing():
            yield
        _forget_workspaces()
        torch.clear_autocast_cache()
        self.stand_in.check_draws()

    def _side_by_side(self) -> AbstractContextManager[None]:
        return nullcontext() if self._branches is None else self._branches.open()

    def is_valid(self) -> bool:
        return self._context == _context() and self._of_module.unchanged()

    def run(self, batch: Any) -> tuple[Tensor, Tensor]:
        if self.forward is None:
            self._capture_passes()
        self.stand_in.load(batch)
        self.runs += 1
        loss: Tensor = _Replay.apply(self, batch, *self.parameters)
        assert self.output is not None
        return loss, self.output

    def run_whole(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Loss and output, and the gradients as `grad` of the parameters."""
        if self._whole is None:
            self._capture_whole()
        done = self.repeat(batch)
        for parameter, gradient in self._handed:
            if parameter.grad is not gradient:
                parameter.grad = gradient
        return done

    def repeat(self, batch: Any) -> tuple[Tensor, Tensor]:
        """As `run_whole`, where the graph is there and the parameters have the gradients."""
        self.stand_in.load(batch)
        self.runs += 1
        assert self._whole is not None
        self._whole.replay()
        assert self.loss is not None
        assert self.output is not None
        return self.loss, self.output

    def replay_backward(self, ctx: Any, grad_loss: Tensor) -> None:
        """Of the forward pass whose `ctx` is given."""
        if ctx.batch is None:
            raise RuntimeError(
                "backward a second time through a replayed loss: its mini-batch may be gone by now; call it once"
            )
        if ctx.run != self.runs:
            raise RuntimeError(
                "backward of a mini-batch after the forward pass of a later one: a graph has room for one at a time; "
                "call backward first, or train without graphs"
            )
        assert self.backward is not None
        self._grad_loss.copy_(grad_loss)
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
    def forward(ctx: Any, captured: _Captured, batch: Any, *parameters: Tensor) -> Tensor:
        assert captured.forward is not None
        assert captured.loss is not None
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

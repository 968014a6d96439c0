"""Work that a CUDA graph runs side by side: while a step is captured, it lies on streams of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
# Torch has it since 2.10.
_warn_of_streams = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", lambda enabled: None)


class _Open(threading.local):
    branches: Branches | None = None
    in_branch = False


_open = _Open()


class Branches:
    """Streams for `beside`. Autograd runs the backward pass of an operation on the stream of its forward pass, so
    backward passes lie side by side as well.

    Args:
        device: of the step.
        priority: of the streams, see `torch.cuda.Stream`.
    """

    def __init__(self, device: torch.device, priority: int = 0) -> None:
        self._device, self._priority = device, priority
        self._streams: dict[Hashable, torch.cuda.Stream] = {}
        self.held: list[Tensor] = []  # see `keep`

    @contextmanager
    def open(self) -> Iterator[None]:
        """For this thread, while a step is captured, and the same step before it: a graph then finds all that torch
        makes once for a stream.
        """
        before, _open.branches = _open.branches, self
        _warn_of_streams(False)  # gradients come to a parameter from whichever stream; they are waited for
        try:
            yield
        finally:
            _warn_of_streams(True)
            _open.branches = before
            self.held.clear()

    def stream(self, lane: Hashable) -> torch.cuda.Stream:
        """That of a lane."""
        if lane not in self._streams:
            self._streams[lane] = torch.cuda.Stream(self._device, priority=self._priority)
        return self._streams[lane]


class Beside(Generic[T]):
    """What `beside` returns.

    Attributes:
        made: the result. What is not on the GPU may be read right away; for its tensors call the object first.
    """

    def __init__(self, made: T, done: torch.cuda.Event | None) -> None:
        self.made, self._done = made, done

    def __call__(self) -> T:
        """The result, for which the current stream waits. Its memory is not given away before this stream is done."""
        if self._done is not None:
            here = torch.cuda.current_stream(self._done.device)
            here.wait_event(self._done)
            keep(self.made, here)
        return self.made


def beside(lane: Hashable, work: Callable[[], T], *reads: Any) -> Beside[T]:
    """Runs `work`, within `Branches.open` as a branch that the current stream does not wait for.

    Branches of one lane follow on each other. A branch begins when the current stream has done all that it was given so
    far. Whoever reads a result calls what is returned, also from another branch.

    Args:
        lane: the name of the stream.
        work: what to run. Parameters whose gradients it has are to be read by this lane alone.
        reads: tensors (or tuples, lists, dicts and objects with attributes of them) that `work` reads and that are no
            parameters or other memory that stays.
    """
    branches = _open.branches
    if branches is None:
        return Beside(work(), None)
    stream = branches.stream(lane)
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    keep(reads, stream)
    outside, _open.in_branch = _open.in_branch, True
    try:
        with torch.cuda.stream(stream):
            return Beside(work(), stream.record_event())
    finally:
        _open.in_branch = outside


def are_open() -> bool:
    """Whether this thread is within `Branches.open`."""
    return _open.branches is not None


def in_branch() -> bool:
    """Whether this thread runs `work` of `beside`, in a branch."""
    return _open.in_branch


def keep(of: Any, stream: torch.cuda.Stream) -> None:
    """Keeps the memory of all tensors in it from being reused before `stream` is done with what it is given.

    Within `Branches.open` they are held, too: autograd adds to a gradient in place when nobody else holds it, although
    another stream may still read it.
    """
    if isinstance(of, Tensor):
        if of.is_cuda:
            of.record_stream(stream)
            if _open.branches is not None:
                _open.branches.held.append(of)
    elif isinstance(of, dict):
        keep(list(of.values()), stream)
    elif isinstance(of, (list, tuple)):
        for one in of:
            keep(one, stream)
    elif hasattr(of, "__dataclass_fields__"):
        keep(list(vars(of).values()), stream)

"""Frees memory that a GPU reads, once the GPU is done with it, and never amid the capture of a CUDA graph."""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

_waiting: deque[tuple[torch.device | int, Callable[[], None]]] = deque()
# Held while a graph is captured, and while memory is freed. Only a capture waits for it: a finalizer, which may run
# in any thread and amid anything, leaves its work to whoever holds it.
_turn = threading.Lock()


def free_when_done(device: torch.device | int, free: Callable[[], None]) -> None:
    """Waits for all work of a GPU, then calls `free`. For finalizers.

    To wait for a GPU ends any capture of a CUDA graph on it ("operation failed due to a previous error during
    capture"). So while this thread captures, or any thread does within `capturing`, `free` is called later: after
    `capturing`, or when memory is freed again.
    """
    _waiting.append((device, free))
    if not torch.cuda.is_current_stream_capturing():
        _free_waiting()


@contextmanager
def capturing() -> Iterator[None]:
    """For the capture of a CUDA graph: memory is freed and garbage collected afterwards.

    What garbage held on a GPU, graphs and stores for example, is freed by calls that may end the capture. torch 2.13
    does not collect before it, unless `TORCH_CUDAGRAPH_GC` asks for it. One thread captures at a time.
    """
    try:
        with _turn:
            enabled = gc.isenabled()
            gc.disable()
            try:
                yield
            finally:
                if enabled:
                    gc.enable()
    finally:
        _free_waiting()


def _free_waiting() -> None:
    while _waiting and _turn.acquire(blocking=False):
        try:
            device, free = _waiting.popleft()
            torch.cuda.synchronize(device)  # kernels of any stream may still read it
            free()
        finally:
            _turn.release()

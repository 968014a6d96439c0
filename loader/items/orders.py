"""The order of the seeds, epoch after epoch, made ahead and where the sampler wants it."""

from __future__ import annotations

import threading
from contextlib import suppress

import torch
from torch import Tensor

from loader.items.batches import SeedBatches


class Orders:
    """The orders of `SeedBatches`, moved to a device once an epoch; one may be drawn beside the epoch before it.

    A permutation of some hundred thousand seeds takes milliseconds, which nobody should wait for between epochs.

    Args:
        batches: whose orders.
        device, dtype: of the order; None leaves the seeds' type as it is.
        ahead: whether `draw_ahead` does anything.
    """

    def __init__(
        self, batches: SeedBatches, device: torch.device, dtype: torch.dtype | None = None, *, ahead: bool = True
    ) -> None:
        self._batches = batches
        self._device = device
        self._dtype = dtype
        self._ahead = ahead and batches.shuffle
        # An iterator that was dropped may still draw ahead while the next one gets its order.
        self._lock = threading.Lock()
        self._drawn: tuple[int, Tensor] | None = None  # epoch and order
        self._thread: threading.Thread | None = None

    def get(self, epoch: int) -> Tensor:
        """`[num_seeds]`: the seeds in the order of `epoch`, for use on the current stream."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        with self._lock:
            drawn, self._drawn = self._drawn, None
        order = drawn[1] if drawn is not None and drawn[0] == epoch else self._draw(epoch)
        if order.is_cuda:
            order.record_stream(torch.cuda.current_stream(order.device))
        return order

    def draw_ahead(self, epoch: int) -> None:
        """Begins to draw the order of `epoch` in a thread, unless one was begun since the last `get`.

        To start a thread takes a good part of a millisecond, in which the first mini-batch of an epoch would not be
        sampled: better some mini-batches later.
        """
        if not self._ahead:
            return
        with self._lock:
            if self._thread is None:
                # No daemon: the interpreter waits these milliseconds rather than end amid a call of torch.
                self._thread = threading.Thread(target=self._draw_quietly, args=(epoch,), name="loader-order")
                self._thread.start()

    def _draw(self, epoch: int) -> Tensor:
        order = self._batches.order(epoch)
        # From pageable memory: complete, for any stream, when `to` returns.
        return order.to(order.dtype if self._dtype is None else self._dtype).to(self._device)

    def _draw_quietly(self, epoch: int) -> None:
        with suppress(Exception):  # it is raised when the order is asked for, and drawn again
            order = self._draw(epoch)
            with self._lock:
                self._drawn = epoch, order

"""The order of the seeds, epoch after epoch, made ahead and where the sampler wants it."""

from __future__ import annotations

import threading
from contextlib import suppress

import torch
from torch import Tensor

from loader.seeds import SeedBatches


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
        self._epoch = -1  # of `_order`
        self._order: Tensor | None = None
        self._thread: threading.Thread | None = None

    def get(self, epoch: int) -> Tensor:
        """`[num_seeds]`: the seeds in the order of `epoch`, for use on the current stream. Not for two threads."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._epoch != epoch or self._order is None:
            self._draw(epoch)
        order, self._order = self._order, None
        assert order is not None
        if order.is_cuda:
            order.record_stream(torch.cuda.current_stream(order.device))
        return order

    def draw_ahead(self, epoch: int) -> None:
        """Begins to draw the order of `epoch` in a thread, if that takes anything. Not before `get` has returned.

        Some mini-batches after it, rather: to start a thread takes a good part of a millisecond, in which the first
        mini-batch of an epoch would not be sampled.
        """
        if self._ahead and self._thread is None:
            # No daemon: the interpreter waits these milliseconds rather than end amid a call of torch.
            self._thread = threading.Thread(target=self._draw_quietly, args=(epoch,), name="loader-order")
            self._thread.start()

    def _draw(self, epoch: int) -> None:
        order = self._batches.order(epoch)
        # From pageable memory: complete, for any stream, when `to` returns.
        self._order = order.to(order.dtype if self._dtype is None else self._dtype).to(self._device)
        self._epoch = epoch

    def _draw_quietly(self, epoch: int) -> None:
        with suppress(Exception):  # it is raised when the order is asked for, and drawn again
            self._draw(epoch)

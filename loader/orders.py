"""The order of the seeds, epoch after epoch, made ahead and where the sampler wants it."""

from __future__ import annotations

import threading
from contextlib import suppress

import torch
from torch import Tensor

from loader.seeds import SeedBatches


class Orders:
    """The orders of `SeedBatches`, moved to a device once an epoch; the next one is drawn beside the running epoch.

    A permutation of some hundred thousand seeds takes milliseconds, which nobody should wait for between epochs.

    Args:
        batches: whose orders.
        device, dtype: of the order; None leaves the seeds' type as it is.
        ahead: draw the next epoch's order in a thread.
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
        if self._ahead:
            # No daemon: the interpreter waits these milliseconds rather than end amid a call of torch.
            self._thread = threading.Thread(target=self._draw_ahead, args=(epoch + 1,), name="loader-order")
            self._thread.start()
        return order

    def _draw(self, epoch: int) -> None:
        order = self._batches.order(epoch)
        # From pageable memory: complete, for any stream, when `to` returns.
        self._order = order.to(order.dtype if self._dtype is None else self._dtype).to(self._device)
        self._epoch = epoch

    def _draw_ahead(self, epoch: int) -> None:
        with suppress(Exception):  # it is raised when the order is asked for, and drawn again
            self._draw(epoch)

"""Samplers and stores that put delays, or an error, before their work on a GPU: for soak tests of the loader."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loader.graph import Graph
from loader.samplers.base import Request, Sampler, Session
from loader.samples import MiniBatch


class Boom(Exception):
    pass


class Disturbed:
    """Delays on the current stream and on the host, at random; an error at the call `fail_at`."""

    def __init__(self, seed: int | None = 0, fail_at: int | None = None) -> None:
        self.rng = None if seed is None else random.Random(seed)
        self.fail_at = fail_at
        self.calls = 0

    def __call__(self, name: str) -> None:
        call, self.calls = self.calls, self.calls + 1
        if call == self.fail_at:
            raise Boom(name)
        if self.rng is None:
            return
        if torch.cuda.is_available() and self.rng.random() < 0.5:
            torch.cuda._sleep(int(self.rng.random() * 2_000_000))  # cycles, up to a millisecond
        if self.rng.random() < 0.3:
            time.sleep(self.rng.random() * 0.002)


class DisturbedSampler(Sampler):
    """Another sampler, disturbed before each mini-batch that it begins."""

    def __init__(self, inner: Sampler, disturb: Disturbed, asynchronous: bool | None = None) -> None:
        super().__init__()
        self.inner, self.disturb = inner, disturb
        self.num_hops, self.edge_ids = inner.num_hops, inner.edge_ids
        self._asynchronous = inner.asynchronous if asynchronous is None else asynchronous

    def spec(self) -> dict[str, Any]:
        return self.inner.spec()

    @property
    def device(self) -> torch.device:
        return self.inner.device

    @property
    def asynchronous(self) -> bool:
        return self._asynchronous

    def open(self, graph: Graph) -> Session:
        return DisturbedSession(self.inner.open(graph), self.disturb)


def _raise(error: Boom) -> MiniBatch:
    raise error


class DisturbedSession(Session):
    def __init__(self, inner: Session, disturb: Disturbed) -> None:
        self.inner, self.disturb, self.together = inner, disturb, inner.together

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], MiniBatch]]:
        """An error takes the place of its mini-batch, as a bad seed's does; those before it are sampled."""
        sound = 0
        try:
            while sound < len(group):
                self.disturb("sample")
                sound += 1
        except Boom as error:
            begun = self.inner.begin(group[:sound], ahead=ahead) if sound else []
            return [*begun, *[partial(_raise, error)] * (len(group) - sound)]
        return self.inner.begin(group, ahead=ahead)

    def check(self) -> None:
        self.inner.check()

    def close(self) -> None:
        self.inner.close()


class TensorFeatures:
    """Rows of a tensor by `index_select`, on its device; disturbed, if wanted."""

    def __init__(self, tensor: Tensor, disturb: Disturbed | None = None) -> None:
        self.tensor, self.disturb = tensor, disturb
        self.num_rows, self.row_shape = tensor.shape[0], tuple(tensor.shape[1:])
        self.dim, self.dtype, self.device = tensor.shape[1], tensor.dtype, tensor.device
        self.asynchronous = tensor.is_cuda

    def gather(self, nodes: Tensor) -> Tensor:
        if self.disturb is not None:
            self.disturb("gather")
        return self.tensor.index_select(0, nodes.to(self.device, non_blocking=True))

    def check(self) -> None:
        pass

    def close(self) -> None:
        pass

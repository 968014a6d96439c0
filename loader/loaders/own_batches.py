"""What loaders need whose mini-batches a user's methods make: their items, and numbers that follow from the seed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.samplers import Sampler
from loader.samplers.base import AnyGraph
from loader.samples.base import Sample

_drawing = threading.RLock()  # the generators are those of the process; two threads would draw each other's numbers


@dataclass(eq=False)
class Asked(Sample):
    """The items of a mini-batch, not sampled yet."""

    items: Tensor
    epoch: int = 0
    index: int = 0
    repeats: bool = False

    def tensors(self) -> list[Tensor]:
        return [self.items]

    def map(self, f: Callable[[Tensor], Tensor]) -> Asked:
        return self.replace(items=f(self.items))


class AskedSampler(Sampler):
    """Leaves the sampling to whoever gets the items.

    Args:
        spec: of what is made of them.
        digests: of what that reads beside the lists of the loader's graph, see `Sampler.digests`.
    """

    def __init__(self, spec: dict[str, Any], digests: Callable[[], dict[str, str]] = dict) -> None:
        super().__init__()
        self._spec, self._digests = spec, digests

    def spec(self) -> dict[str, Any]:
        return self._spec

    def digests(self, graph: AnyGraph) -> dict[str, str]:
        return super().digests(graph) | self._digests()

    def sample(self, graph: Graph, seeds: Tensor, *, epoch: int = 0, batch: int = 0) -> Asked:
        return Asked(seeds, epoch, batch)


@contextmanager
def seeded(seed: int, epoch: int, batch: int, gpus: Sequence[torch.device] = ()) -> Iterator[int]:
    """Seeds torch's generators for a while, by the key of a mini-batch, so that whoever draws gives the same each time.

    Afterwards they have the states that they had. One thread at a time has this.

    Args:
        gpus: whose generators are seeded, beside that of the CPU.

    Yields:
        The key.
    """
    key = _core.batch_key(seed, epoch, batch)
    with _drawing, torch.random.fork_rng(gpus):
        torch.default_generator.manual_seed(key)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(key)
        yield key

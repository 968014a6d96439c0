"""What this package uses of DGL itself, also after `install` has put our names in the place of DGL's."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from loader.machine.optional import import_dgl

_by_torch: ContextVar[bool] = ContextVar("_by_torch", default=False)


@functools.cache
def dgl() -> Any:
    """The module `dgl`; ImportError if it is missing."""
    return import_dgl("loader.dgl")


def dataloading(part: str) -> Any:
    """A module of `dgl.dataloading`, which defines DGL's own classes: "base", "dataloader", "negative_sampler"."""
    dgl()
    return importlib.import_module(f"dgl.dataloading.{part}")


def drawn() -> int:
    """A number from DGL's generator, which decides picks: so `dgl.seed` does. Within `drawn_by_torch` from torch's."""
    if _by_torch.get():
        return int(torch.randint(2**62, ()))
    return int(dgl().random.choice(2**62, 1))


@contextmanager
def drawn_by_torch() -> Iterator[None]:
    """Within it `drawn` draws from torch's generator: after `dgl.seed` each thread has other numbers from DGL's."""
    token = _by_torch.set(True)
    try:
        yield
    finally:
        _by_torch.reset(token)

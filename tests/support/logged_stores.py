"""Stores like `CachedFeatures`, but on the CPU. They write down which gathers begin and finish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from loader.stores import CachedFeatures


class StoreWithThreads(CachedFeatures):
    """One with threads of the host."""

    def __init__(self, table: Tensor) -> None:
        self.table, self.host_threads, self.lookahead, self._device = table, 2, 0, torch.device("cpu")
        self._renewal = None
        self.log: list[str] = []

    def begin(self, ids: Tensor) -> Callable[[], Tensor]:
        self.log.append("begun")
        return partial(self.finish, ids)

    def finish(self, ids: Tensor) -> Tensor:
        self.log.append("finished")
        return self.table[ids.long()]

    def gather(self, ids: Tensor) -> Tensor:
        raise AssertionError("what was begun is finished")


class StoreAhead(StoreWithThreads):
    """One with a lookahead: it writes down how many gathers are announced together."""

    def __init__(self, table: Tensor, lookahead: int) -> None:
        super().__init__(table)
        self.host_threads, self.lookahead = 0, lookahead

    def begin_together(self, group: Sequence[Tensor]) -> list[Callable[[], Tensor]]:
        self.log.append(str(len(group)))
        return [partial(self.finish, ids) for ids in group]

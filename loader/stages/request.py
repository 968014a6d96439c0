"""The stage that begins gathers, so that what they need is known when the stage after it finishes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from loader.pipeline import Stage
from loader.samples import Sample
from loader.stores import CachedFeatures, FeatureStore


@dataclass(frozen=True)
class Requested:
    """A sample, and what returns the rows that were asked for, by their kind."""

    sample: Sample
    rows: Mapping[str, Callable[[], Tensor]]

    def record_stream(self, stream: Any) -> None:
        self.sample.record_stream(stream)


class RequestStage(Stage):
    """Begins the gathers of stores in which threads of the host take part, or announces those of stores with a
    `lookahead`, a group at a time. See `CachedFeatures`.

    It begins one more gather with host threads while `GatherStage` finishes the last one, and no more than that: each
    takes memory. Gathers that are only announced take none. If there are stores of both kinds, the stage announces, and
    those with host threads begin their gathers when `GatherStage` asks for them.

    Args:
        stores: kind -> store, see `Sample.wants`; all with host threads, or all with a lookahead.
    """

    name = "request"
    priority = -3  # as a gather
    asynchronous = True

    def __init__(self, stores: Mapping[str, CachedFeatures]) -> None:
        self._stores = dict(stores)
        self.together = max(1, *(store.lookahead for store in stores.values()))
        if any(store.host_threads for store in stores.values()):
            self.depth = 1

    @classmethod
    def of(cls, stores: Mapping[str, FeatureStore]) -> RequestStage | None:
        """The stage for those of the stores that need it; None if none does."""
        cached = {kind: store for kind, store in stores.items() if isinstance(store, CachedFeatures)}
        ahead = {kind: store for kind, store in cached.items() if store.lookahead}
        found = ahead or {kind: store for kind, store in cached.items() if store.host_threads}
        return cls(found) if found else None

    def begin(self, group: Sequence[Sample]) -> Sequence[Callable[[], Requested]]:
        rows: list[dict[str, Callable[[], Tensor]]] = [{} for _ in group]
        for kind, store in self._stores.items():
            wanting = [i for i, sample in enumerate(group) if not sample.has(kind)]
            # A store may look less far ahead than the stage does for another one.
            most = store.lookahead or 1
            for first in range(0, len(wanting), most):
                part = wanting[first : first + most]
                found = store.begin_together([group[i].ids(kind) for i in part])
                for i, finish in zip(part, found, strict=True):
                    rows[i][kind] = finish
        return [partial(Requested, sample, each) for sample, each in zip(group, rows, strict=True)]

"""The stage that begins gathers, so that what they need is known when the stage after it finishes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from loader.pipeline import Stage
from loader.samples import Sample
from loader.stores import AbleStore, FeatureStore, abilities_of


@dataclass(frozen=True)
class Requested:
    """A sample, and what returns the rows that were asked for, by their kind."""

    sample: Sample
    rows: Mapping[str, Callable[[], Tensor]]

    def record_stream(self, stream: Any) -> None:
        self.sample.record_stream(stream)


class RequestStage(Stage):
    """Begins the gathers of stores that want it. See `Abilities.begun`.

    It begins one more gather while `GatherStage` finishes the last one, and no more than that: each takes memory.

    Args:
        stores: kind -> store, see `Sample.wants`.
    """

    name = "request"
    priority = -3  # as a gather
    asynchronous = True
    depth = 1

    def __init__(self, stores: Mapping[str, AbleStore]) -> None:
        self._stores = dict(stores)

    @classmethod
    def of(cls, stores: Mapping[str, FeatureStore]) -> RequestStage | None:
        """The stage for those of the stores that want it; None if none does."""
        found: dict[str, Any] = {kind: store for kind, store in stores.items() if abilities_of(store).begun}
        return cls(found) if found else None

    def run(self, sample: Sample) -> Requested:
        wanting = {kind: store for kind, store in self._stores.items() if not sample.has(kind)}
        return Requested(sample, {kind: store.begin(sample.ids(kind)) for kind, store in wanting.items()})

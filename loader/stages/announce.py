"""A stage that announces the gathers of the next one, so that a cache can keep what they need."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from loader.pipeline import Stage
from loader.samples import Sample
from loader.stages.request import Requested
from loader.stores import AbleStore, FeatureStore, abilities_of


class AnnounceStage(Stage):
    """Does the work of the stage before the gathers, and announces the gathers of its items to the stores that
    want it, a group at a time. See `Abilities.announced`.

    A stage of its own would keep more mini-batches waiting: a group that it announced, beside the next one that is
    sampled.

    Args:
        before: the stage whose place this one takes.
        stores: kind -> store, see `Sample.wants`, and how many gathers are announced to it together.

    Attributes: `before`.
    """

    def __init__(self, before: Stage, stores: Mapping[str, tuple[AbleStore, int]]) -> None:
        self.before, self._stores = before, dict(stores)
        self.name, self.device, self.priority = before.name, before.device, before.priority
        self.asynchronous, self.depth = before.asynchronous, before.depth
        self.together = max(before.together, *(count for _, count in stores.values()))

    @classmethod
    def of(cls, before: Stage, stores: Mapping[str, FeatureStore]) -> AnnounceStage | None:
        """The stage for those of the stores that want it; None if none does."""
        counts = {kind: abilities_of(store).announced for kind, store in stores.items()}
        ahead: dict[str, Any] = {kind: (stores[kind], count) for kind, count in counts.items() if count}
        return cls(before, ahead) if ahead else None

    def begin(self, group: Sequence[Any]) -> Sequence[Callable[[], Requested]]:
        most = self.before.together
        finishes: list[Callable[[], Sample]] = []
        for first in range(0, len(group), most):
            finishes += self.before.begin(group[first : first + most])
        return [_Group(finishes, self._announced).next] * len(group)

    def prepare(self) -> None:
        self.before.prepare()

    def check(self) -> None:
        self.before.check()

    def close(self) -> None:
        self.before.close()

    def _announced(self, group: Sequence[Sample]) -> list[Requested]:
        rows: list[dict[str, Callable[[], Tensor]]] = [{} for _ in group]
        for kind, (store, count) in self._stores.items():
            wanting = [i for i, sample in enumerate(group) if not sample.has(kind)]
            for first in range(0, len(wanting), count):  # the stage may look further ahead
                part = wanting[first : first + count]
                found = store.begin_together([group[i].ids(kind) for i in part])
                for i, finish in zip(part, found, strict=True):
                    rows[i][kind] = finish
        return [Requested(sample, each) for sample, each in zip(group, rows, strict=True)]


class _Group:
    """Items that are announced together, once all of them are there."""

    def __init__(
        self, finishes: list[Callable[[], Sample]], announce: Callable[[Sequence[Sample]], list[Requested]]
    ) -> None:
        self._finishes, self._announce = finishes, announce
        self._ready: deque[Requested] = deque()
        self._error: Exception | None = None

    def next(self) -> Requested:
        """The next item. For the first one all are finished; if one fails, those before it come first."""
        if self._finishes:
            finishes, self._finishes = self._finishes, []
            samples: list[Sample] = []
            try:
                samples.extend(finish() for finish in finishes)
            except Exception as error:  # those before it are in the list
                self._error = error
            self._ready += self._announce(samples)
        if self._ready or self._error is None:
            return self._ready.popleft()
        failed, self._error = self._error, None
        try:
            raise failed
        finally:
            del failed  # it holds this frame

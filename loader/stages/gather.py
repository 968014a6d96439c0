"""The stage that gathers the rows that a sample wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loader.pipeline import Stage
from loader.samples import Rows, Sample
from loader.stages.request import Requested
from loader.stores import AbleStore, Exchange, FeatureStore, abilities_of
from loader.timing import PipelineStats


class GatherStage(Stage):
    """Gathers the rows of each kind that has a store, unless the sample has these rows already.

    If a store fetches rows of other hosts, all processes of the run gather together, a group of mini-batches at a time.

    Args:
        stores: kind -> store, see `Sample.wants`.
        device: where mini-batches arrive. If all stores only put work on streams of this device, so does the stage.
            Else it uses the host.
        stats: where bytes are counted.
    """

    name = "gather"
    # A kernel that reads over the bus needs few multiprocessors, and keeps the bus idle until it begins.
    priority = -3

    def __init__(self, stores: Mapping[str, FeatureStore], device: torch.device, stats: PipelineStats) -> None:
        able: dict[str, Any] = dict(stores)
        can = {kind: abilities_of(store) for kind, store in stores.items()}
        self._stores = dict(stores)
        self._lazy: dict[str, AbleStore] = {kind: able[kind] for kind in stores if can[kind].lazy}
        self._shared: dict[str, AbleStore] = {kind: able[kind] for kind in stores if can[kind].collective}
        self._stats = stats
        self._exchanges: dict[str, Exchange | None] = {}
        self.collective = bool(self._shared)
        self.together = max((can[kind].together for kind in self._shared), default=1)
        self.asynchronous = all(store.asynchronous and store.device == device for store in stores.values())
        self.device = device if self.asynchronous else torch.device("cpu")

    def prepare(self) -> None:
        for kind, store in self._shared.items():
            if kind not in self._exchanges:
                self._exchanges[kind] = store.open_exchange()

    def begin(self, group: Sequence[Sample | Requested]) -> Sequence[Callable[[], Sample]]:
        samples = self._fetched([_sample(item) for item in group])
        return [partial(self._gather, sample, _begun(item)) for sample, item in zip(samples, group, strict=True)]

    def run(self, item: Sample | Requested) -> Sample:
        sample = _sample(item)
        return self._gather(self._fetched((sample,))[0] if self.collective else sample, _begun(item))

    def absent(self) -> None:
        self._fetched(())

    def _fetched(self, group: Sequence[Sample]) -> list[Sample]:
        """The samples with their rows of stores that exchange, after one exchange of each."""
        samples, error = list(group), None
        for kind, store in self._shared.items():
            wanting = [i for i, sample in enumerate(samples) if not sample.has(kind)]
            ids: list[Tensor] = []
            try:
                if error is None:
                    ids = [_near(samples[i].ids(kind), self._stores[kind]) for i in wanting]
            except Exception as wrong:  # the others wait for the exchanges of this store and the next ones
                error = wrong
            try:
                found = store.gather_together(ids, self._exchanges[kind])
            except (TypeError, ValueError) as wrong:
                error = wrong
                continue
            for i, rows in zip(wanting, found, strict=error is None):
                samples[i] = samples[i].with_rows({kind: rows})
                self._stats.add_bytes(self.name, rows.nbytes)
        if error is not None:
            raise error
        return samples

    def _gather(self, sample: Sample, begun: Mapping[str, Callable[[], Tensor]]) -> Sample:
        rows: dict[str, Rows] = {}
        wanted = [kind for kind in self._stores if not sample.has(kind)]
        of_ids = [kind for kind in wanted if kind in self._lazy or kind not in begun]
        ids = dict(zip(of_ids, sample.ids_of(of_ids), strict=True))
        for kind in wanted:
            if kind in self._lazy:
                rows[kind] = self._lazy[kind].lazy_rows(ids[kind])
            else:
                store = self._stores[kind]
                found = begun[kind]() if kind in begun else store.gather(_near(ids[kind], store))
                rows[kind] = found
                self._stats.add_bytes(self.name, found.nbytes)
        return sample.with_rows(rows) if rows else sample

    def close(self) -> None:
        for exchange in self._exchanges.values():
            if exchange is not None:
                exchange.close()
        self._exchanges.clear()

    def check(self) -> None:
        for store in self._stores.values():
            store.check()


def _sample(item: Sample | Requested) -> Sample:
    return item.sample if isinstance(item, Requested) else item


def _begun(item: Sample | Requested) -> Mapping[str, Callable[[], Tensor]]:
    return item.rows if isinstance(item, Requested) else {}


def _near(ids: Tensor, store: FeatureStore) -> Tensor:
    """Ids that a store takes: on its device, or on the CPU."""
    return ids.cpu() if store.device.type == "cpu" else ids

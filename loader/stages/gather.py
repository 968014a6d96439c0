"""The stage that gathers the rows that a sample wants."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from loader.pipeline import Stage
from loader.samples import Rows, Sample
from loader.stores import DeviceFeatures, FeatureStore
from loader.timing import PipelineStats


class GatherStage(Stage):
    """Gathers the rows of each kind that has a store, unless the sample has these rows already.

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
        self._stores = {
            kind: (store, isinstance(store, DeviceFeatures) and store.lazy) for kind, store in stores.items()
        }
        self._stats = stats
        self.asynchronous = all(store.asynchronous and store.device == device for store in stores.values())
        self.device = device if self.asynchronous else torch.device("cpu")

    def run(self, sample: Sample) -> Sample:
        rows: dict[str, Rows] = {}
        for kind, (store, lazy) in self._stores.items():
            if sample.has(kind):
                continue
            if lazy:
                assert isinstance(store, DeviceFeatures)
                rows[kind] = store.lazy_rows(sample.ids(kind))
            else:
                found = rows[kind] = store.gather(_near(sample.ids(kind), store))
                self._stats.add_bytes(self.name, found.nbytes)
        return sample.with_rows(rows) if rows else sample

    def check(self) -> None:
        for store, _ in self._stores.values():
            store.check()


def _near(ids: Tensor, store: FeatureStore) -> Tensor:
    """Ids that a store takes: on its device, or on the CPU."""
    return ids.cpu() if store.device.type == "cpu" else ids

"""Gathers that are begun by one stage and finished by the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from small_loader import small_loader
from torch import Tensor

from loader.graph import Graph
from loader.pipeline import Pipeline
from loader.stages import GatherStage, RequestStage
from loader.stores import CachedFeatures, HostFeatures
from loader.timing import PipelineStats

CPU = torch.device("cpu")


class Store(CachedFeatures):
    """One with threads of the host, on the CPU: it writes down what is begun and what is finished."""

    def __init__(self, table: Tensor) -> None:
        self.table, self.host_threads, self.lookahead, self._device = table, 2, 0, CPU
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


class AheadStore(Store):
    """One with a lookahead: it writes down how many gathers are announced together."""

    def __init__(self, table: Tensor, lookahead: int) -> None:
        super().__init__(table)
        self.host_threads, self.lookahead = 0, lookahead

    def begin_together(self, group: Sequence[Tensor]) -> list[Callable[[], Tensor]]:
        self.log.append(str(len(group)))
        return [partial(self.finish, ids) for ids in group]


def samples(count: int) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    graph = Graph.from_edges(*torch.randint(200, (2, 1000), generator=generator), 200)
    found = []
    for epoch in range(count):
        loader = small_loader(graph, features=None)
        loader.set_epoch(epoch)
        found.append(next(iter(loader)))
        loader.close()
    return found


class _AllKinds:
    """A sample that wants rows of its input vertices of any kind."""

    def __init__(self, sample: Any) -> None:
        self._sample = sample

    def has(self, kind: str) -> bool:
        return False

    def ids(self, kind: str) -> Tensor:
        ids: Tensor = self._sample.input_nodes
        return ids


def stages(store: Store, **others: HostFeatures) -> list[Any]:
    stores = {"node": store, **others}
    request, stats = RequestStage.of(stores), PipelineStats(["gather"])
    assert request is not None
    return [request, GatherStage(stores, CPU, stats)]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_rows_are_those_of_one_stage(depth: int) -> None:
    table, given = torch.randn(200, 5), samples(6)
    store = Store(table)
    for sample, found in zip(given, Pipeline(stages(store), depth).run(given), strict=True):
        assert torch.equal(found.features, table[sample.input_nodes.long()])
    assert store.log.count("begun") == store.log.count("finished") == 6
    at_once = 0
    for event in store.log:
        at_once += 1 if event == "begun" else -1
        assert 0 <= at_once <= (1 if depth == 0 else 3)  # one is finished, one waits, one more is being begun


def test_rows_that_are_there_are_not_requested() -> None:
    store = Store(torch.randn(200, 5))
    (sample,) = samples(1)
    ready = sample.with_rows({"node": torch.ones(len(sample.input_nodes), 1)})
    (found,) = Pipeline(stages(store), 0).run([ready])
    assert store.log == []
    assert found.features is ready.features


def test_only_stores_with_host_threads_are_asked() -> None:
    plain, store = HostFeatures(torch.randn(200, 5), 1), Store(torch.randn(200, 5))
    assert RequestStage.of({"node": plain}) is None
    request = RequestStage.of({"node": store, "edge": plain})
    assert request is not None
    (sample,) = samples(1)
    assert list(request.run(sample).rows) == ["node"]
    store.host_threads = 0
    assert RequestStage.of({"node": store}) is None
    plain.close()


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_gathers_are_announced_in_groups(depth: int) -> None:
    table, given = torch.randn(200, 5), samples(14)
    store = AheadStore(table, 4)
    for sample, found in zip(given, Pipeline(stages(store), depth).run(given), strict=True):
        assert torch.equal(found.features, table[sample.input_nodes.long()])
    groups = [int(event) for event in store.log if event != "finished"]
    assert sum(groups) == store.log.count("finished") == 14
    assert max(groups) <= 4
    if depth == 0:
        assert set(groups) == {1}


def test_groups_fit_the_store_that_knows_less() -> None:
    near, far = AheadStore(torch.randn(200, 5), 2), AheadStore(torch.randn(200, 3), 4)
    request = RequestStage.of({"node": near, "other": far, "third": Store(torch.randn(200, 5))})
    assert request is not None
    assert request.together == 4
    begun = [finish() for finish in request.begin([_AllKinds(sample) for sample in samples(4)])]
    assert near.log == ["2", "2"]
    assert far.log == ["4"]
    assert all(set(item.rows) == {"node", "other"} for item in begun)

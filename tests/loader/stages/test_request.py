"""Gathers that are begun by one stage and finished by the next one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from logged_stores import StoreWithThreads
from small_loader import small_samples

from loader.pipeline import Pipeline
from loader.stages import GatherStage, RequestStage
from loader.stores import HostFeatures
from loader.timing import PipelineStats

CPU = torch.device("cpu")


def stages(store: StoreWithThreads, **others: HostFeatures) -> list[Any]:
    stores = {"node": store, **others}
    request, stats = RequestStage.of(stores), PipelineStats(["gather"])
    assert request is not None
    return [request, GatherStage(stores, CPU, stats)]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_rows_are_those_of_one_stage(depth: int) -> None:
    table, given = torch.randn(200, 5), small_samples(6)
    store = StoreWithThreads(table)
    for sample, found in zip(given, Pipeline(stages(store), depth).run(given), strict=True):
        assert torch.equal(found.features, table[sample.input_nodes.long()])
    assert store.log.count("begun") == store.log.count("finished") == 6
    at_once = 0
    for event in store.log:
        at_once += 1 if event == "begun" else -1
        assert 0 <= at_once <= (1 if depth == 0 else 3)  # one is finished, one waits, one more is being begun


def test_rows_that_are_there_are_not_requested() -> None:
    store = StoreWithThreads(torch.randn(200, 5))
    (sample,) = small_samples(1)
    ready = sample.with_rows({"node": torch.ones(len(sample.input_nodes), 1)})
    (found,) = Pipeline(stages(store), 0).run([ready])
    assert store.log == []
    assert found.features is ready.features


def test_only_stores_with_host_threads_are_asked() -> None:
    plain, store = HostFeatures(torch.randn(200, 5), 1), StoreWithThreads(torch.randn(200, 5))
    assert RequestStage.of({"node": plain}) is None
    request = RequestStage.of({"node": store, "edge": plain})
    assert request is not None
    (sample,) = small_samples(1)
    assert list(request.run(sample).rows) == ["node"]
    store.host_threads = 0
    assert RequestStage.of({"node": store}) is None
    plain.close()

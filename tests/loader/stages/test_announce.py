"""Gathers that are announced in groups by the stage before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from function_stage import FunctionStage
from logged_stores import StoreAhead, StoreWithThreads
from small_loader import small_samples
from torch import Tensor

from loader.pipeline import Pipeline, Stage
from loader.stages import AnnounceStage, GatherStage
from loader.stores import HostFeatures
from loader.timing import PipelineStats

CPU = torch.device("cpu")


class Sampling(Stage):
    """Returns samples that were made before, by their number. Its log says which steps ran."""

    name, together = "sample", 1

    def __init__(self, count: int, together: int = 1, fails: int | None = None) -> None:
        self.samples, self.together, self.fails = small_samples(count), together, fails
        self.log: list[str] = []

    def begin(self, group: Sequence[int]) -> list[Callable[[], Any]]:
        self.log.append(f"begun {len(group)}")
        return [partial(self.finish, number) for number in group]

    def finish(self, number: int) -> Any:
        if number == self.fails:
            raise ValueError(f"mini-batch {number} is odd")
        self.log.append("finished")
        return self.samples[number]

    def prepare(self) -> None:
        self.log.append("prepare")

    def check(self) -> None:
        self.log.append("check")

    def close(self) -> None:
        self.log.append("close")


def stages(before: Stage, store: StoreAhead) -> list[Stage]:
    announce = AnnounceStage.of(before, {"node": store})
    assert announce is not None
    return [announce, GatherStage({"node": store}, CPU, PipelineStats(["gather"]))]


@pytest.mark.parametrize("together", [1, 4, 6])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_gathers_are_announced_in_groups(depth: int, together: int) -> None:
    table, before = torch.randn(200, 5), Sampling(14, together)
    store = StoreAhead(table, 4)
    found = list(Pipeline(stages(before, store), depth).run(range(14)))
    for sample, given in zip(found, before.samples, strict=True):
        assert torch.equal(sample.features, table[given.input_nodes.long()])
    groups = [int(event) for event in store.log if event != "finished"]
    assert sum(groups) == store.log.count("finished") == 14
    if depth == 0:
        assert groups == [1] * 14
    else:  # the first one waits for no other; of six that are sampled together, four and two are announced
        assert groups == {1: [1, 4, 4, 4, 1], 4: [1, 4, 4, 4, 1], 6: [1, 4, 2, 4, 2, 1]}[together]
        assert max(int(event[6:]) for event in before.log if event.startswith("begun")) == together


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_no_more_mini_batches_wait_than_without(depth: int) -> None:
    before, store = Sampling(1, 8), StoreAhead(torch.randn(200, 5), 8)
    plain = GatherStage({"node": HostFeatures(torch.randn(200, 5), 1)}, CPU, PipelineStats(["gather"]))
    assert Pipeline(stages(before, store), depth).max_items == Pipeline([before, plain], depth).max_items
    plain.close()


def test_it_stands_for_the_stage_before() -> None:
    before = Sampling(1)
    before.device, before.priority, before.asynchronous, before.depth = torch.device("cuda", 0), -1, True, 7
    announce = AnnounceStage.of(before, {"node": StoreAhead(torch.randn(200, 5), 4)})
    assert announce is not None
    assert (announce.name, announce.device, announce.priority) == ("sample", torch.device("cuda", 0), -1)
    assert (announce.asynchronous, announce.depth, announce.together) == (True, 7, 4)
    announce.prepare()
    announce.check()
    announce.close()
    assert before.log == ["prepare", "check", "close"]


def test_only_stores_that_look_ahead_are_told() -> None:
    plain, helped = HostFeatures(torch.randn(200, 5), 1), StoreWithThreads(torch.randn(200, 5))
    assert AnnounceStage.of(Sampling(1), {"node": plain, "edge": helped}) is None
    announce = AnnounceStage.of(Sampling(1), {"node": StoreAhead(torch.randn(200, 5), 2), "edge": plain})
    assert announce is not None
    assert list(announce.run(0).rows) == ["node"]
    plain.close()


def test_rows_that_are_there_are_not_announced() -> None:
    store, before = StoreAhead(torch.randn(200, 5), 2), Sampling(2)
    before.samples[1] = before.samples[1].with_rows({"node": torch.ones(len(before.samples[1].input_nodes), 1)})
    announce = AnnounceStage.of(before, {"node": store})
    assert announce is not None
    assert [list(finish().rows) for finish in announce.begin([0, 1])] == [["node"], []]
    assert store.log == ["1"]


class _AllKinds:
    """A sample that wants rows of its input nodes of any kind."""

    def __init__(self, sample: Any) -> None:
        self._sample = sample

    def has(self, kind: str) -> bool:
        return False

    def ids(self, kind: str) -> Tensor:
        ids: Tensor = self._sample.input_nodes
        return ids


def test_groups_fit_the_store_that_knows_less() -> None:
    near, far = StoreAhead(torch.randn(200, 5), 2), StoreAhead(torch.randn(200, 3), 4)
    threads = StoreWithThreads(torch.randn(200, 5))
    announce = AnnounceStage.of(FunctionStage("a", _AllKinds), {"node": near, "other": far, "third": threads})
    assert announce is not None
    assert announce.together == 4
    begun = [finish() for finish in announce.begin(small_samples(4))]
    assert near.log == ["2", "2"]
    assert far.log == ["4"]
    assert all(set(item.rows) == {"node", "other"} for item in begun)


@pytest.mark.parametrize("depth", [0, 2])
def test_mini_batches_before_an_error_arrive(depth: int) -> None:
    before, store = Sampling(9, fails=6), StoreAhead(torch.randn(200, 5), 4)
    run = Pipeline(stages(before, store), depth).run(range(9))
    for given in before.samples[:6]:
        assert torch.equal(next(run).features, store.table[given.input_nodes.long()])
    with pytest.raises(ValueError, match="mini-batch 6 is odd"):
        next(run)
    run.close()

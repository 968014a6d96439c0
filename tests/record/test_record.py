"""Every byte of hundreds of mini-batches is what it was when `digests.json` was written."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from cases import (
    CPU,
    GROUPS,
    LOADERS,
    SAMPLED,
    SPECIFICATION,
    cuda_classes,
    digest,
    full_sampler,
    group_of,
    loaded,
    loader_of,
    named,
    recorded,
    sampled,
)
from cases_picks import PICKED, PICKED_GROUPS, picked
from marks import needs_gpu

RECORDED = recorded()

groups = pytest.mark.parametrize(("graph_name", "width"), SAMPLED)
loaders = pytest.mark.parametrize("name", LOADERS)
ahead = pytest.mark.parametrize("prefetch", [0, 2])


def expected_of(group: str) -> dict[str, str]:
    return {name: value for name, value in RECORDED.items() if group_of(name) == group}


def assert_equal(got: dict[str, str], expected: dict[str, str]) -> None:
    """Wants the same names and digests. The message has the first that differs."""
    assert expected
    names = sorted(got.keys() | expected.keys())
    wrong = [name for name in names if got.get(name) != expected.get(name)]
    assert not wrong, (
        f"'{wrong[0]}' is {got.get(wrong[0])}, recorded is {expected.get(wrong[0])}; "
        f"{len(wrong)} of {len(names)} differ"
    )


def test_the_record_is_large_and_fully_used() -> None:
    assert len(RECORDED) >= 300
    # The tests below compare whole groups, so that an entry which nothing makes fails there.
    assert {group_of(name) for name in RECORDED} == GROUPS | PICKED_GROUPS


def test_every_part_changes_the_digest() -> None:
    with loader_of("edge features", SPECIFICATION, prefetch=0) as loader:
        batch = next(iter(loader))
    before = digest(batch)
    assert digest(batch) == before
    seen = {before}
    arrays = [batch.nodes, batch.x, batch.y]
    for block in batch.blocks:
        arrays += [block.indptr, block.indices, block.edge_ids, block.edge_features]
    for array in arrays:
        first = array.view(-1)[:1]
        kept = first.clone()
        first += 1
        seen.add(digest(batch))
        first.copy_(kept)
    assert digest(batch) == before
    others = [{"epoch": 1}, {"index": 1}, {"x": None}, {"y": batch.y.int()}, {"nodes": batch.nodes[None]}]
    seen |= {digest(batch.replace(**change)) for change in others}
    assert len(seen) == 1 + len(arrays) + len(others)


@groups
@pytest.mark.parametrize("sampler", CPU)
def test_samplers_give_the_recorded_digests(graph_name: str, width: str, sampler: str) -> None:
    assert_equal(sampled(graph_name, width, CPU[sampler]), expected_of(f"{graph_name}, {width}"))


@pytest.mark.parametrize(("graph_name", "width"), PICKED)
@pytest.mark.parametrize("sampler", CPU)
def test_other_picks_give_the_recorded_digests(graph_name: str, width: str, sampler: str) -> None:
    assert_equal(picked(graph_name, width, CPU[sampler]), expected_of(f"picks, {graph_name}, {width}"))


@groups
@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_full_sampler_gives_the_recorded_digests(graph_name: str, width: str, num_threads: int) -> None:
    make = partial(full_sampler, num_threads=num_threads)
    got = sampled(graph_name, width, make, only=lambda draw: set(draw.fanouts) == {-1})
    assert len(got) == 8
    assert_equal(got, {name: RECORDED[name] for name in got})


@loaders
@ahead
@pytest.mark.parametrize("sampler", ["FusedSampler, 2", "HopwiseSampler, 2"])
def test_loaders_give_the_recorded_digests(name: str, prefetch: int, sampler: str) -> None:
    with loader_of(name, CPU[sampler], prefetch=prefetch) as loader:
        assert_equal(loaded(loader, name), expected_of(f"loader, {name}"))


def resumed(name: str, first: Callable[[], Any], second: Callable[[], Any]) -> dict[str, str]:
    """Epochs 1 and 2, left within epoch 1 and continued by another loader."""
    with first() as loader:
        loader.set_epoch(1)
        digests = dict(named(batch, name) for batch in itertools.islice(loader, 1))
        state = json.loads(json.dumps(loader.state_dict()))
    with second() as loader:
        loader.load_state_dict(state)
        rest = loaded(loader, name, epochs=2)
    assert not digests.keys() & rest.keys()
    return digests | rest


def expected_of_resumed(name: str) -> dict[str, str]:
    expected = expected_of(f"loader, {name}")
    return {key: value for key, value in expected.items() if ": epoch 0," not in key}


@loaders
@ahead
def test_resumed_loaders_give_the_recorded_digests(name: str, prefetch: int) -> None:
    first = partial(loader_of, name, SPECIFICATION, prefetch=2 - prefetch)
    second = partial(loader_of, name, CPU["FusedSampler, 2"], prefetch=prefetch)
    assert_equal(resumed(name, first, second), expected_of_resumed(name))


# All that there are.
SCHEDULES = [
    ("cooperative", "bitmap"),
    ("cooperative", "hash"),
    ("hopwise", "bitmap"),
    ("hopwise", "hash"),
]
# What samples for a loader on a GPU: options of the GPU sampler, or None for the CPU's.
LOADING: dict[str, dict[str, Any] | None] = {
    "cpu": None,
    "one by one": {},
    "by fours": {"batches_per_launch": 4},
    "hop by hop": {"schedule": "hopwise"},
}
ROWS = ("host", "device", "pinned")


class TestOnGPU:
    pytestmark = needs_gpu

    @groups
    @pytest.mark.parametrize(("schedule", "node_set"), SCHEDULES)
    def test_samplers_give_the_recorded_digests(
        self, graph_name: str, width: str, schedule: str, node_set: str
    ) -> None:
        CudaSampler, _, _ = cuda_classes()
        make = partial(CudaSampler, schedule=schedule, node_set=node_set)
        assert_equal(sampled(graph_name, width, make, device="cuda"), expected_of(f"{graph_name}, {width}"))

    @pytest.mark.parametrize(("graph_name", "width"), PICKED)
    def test_other_picks_give_the_recorded_digests(self, graph_name: str, width: str) -> None:
        def tables(options: dict[str, Any]) -> bool:
            return bool(options.get("weight_tables", True))

        got = picked(graph_name, width, cuda_classes()[0], device="cuda", only=tables)
        assert len(got) == 18
        assert_equal(got, {name: RECORDED[name] for name in got})

    @loaders
    @ahead
    @pytest.mark.parametrize("rows", ROWS)
    @pytest.mark.parametrize("sampling", LOADING)
    def test_loaders_give_the_recorded_digests(self, name: str, prefetch: int, rows: str, sampling: str) -> None:
        with self.loader_of(name, prefetch, rows, sampling) as loader:
            for batch in loader:
                assert all(t.is_cuda for t in batch.tensors())
            loader.set_epoch(0)
            assert_equal(loaded(loader, name), expected_of(f"loader, {name}"))

    @loaders
    @pytest.mark.parametrize("sampling", LOADING)
    def test_resumed_loaders_give_the_recorded_digests(self, name: str, sampling: str) -> None:
        first = partial(loader_of, name, CPU["FusedSampler, 2"], prefetch=2)
        second = partial(self.loader_of, name, 2, "device", sampling)
        assert_equal(resumed(name, first, second), expected_of_resumed(name))
        assert_equal(resumed(name, second, first), expected_of_resumed(name))

    @staticmethod
    def loader_of(name: str, prefetch: int, rows: str, sampling: str) -> Any:
        CudaSampler, DeviceFeatures, PinnedFeatures = cuda_classes()
        options = LOADING[sampling]
        stores = {"host": torch.Tensor.contiguous, "device": DeviceFeatures, "pinned": PinnedFeatures}
        return loader_of(
            name,
            CPU["FusedSampler, 2"] if options is None else partial(CudaSampler, **options),
            prefetch=prefetch,
            graph_device="cpu" if options is None else "cuda",
            device="cuda",
            store=stores[rows],
        )

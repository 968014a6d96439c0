"""Which stages a loader has, and where its mini-batches arrive."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from function_stage import FunctionStage

from loader.stages import GatherStage, arrange, choose_device
from loader.timing import PipelineStats

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def on(device: torch.device, asynchronous: bool = False) -> Any:
    """A sampler, or a store."""
    return SimpleNamespace(device=device, asynchronous=asynchronous)


def names(device: torch.device, samples: Any, stores: list[Any], more: list[FunctionStage]) -> tuple[list[str], bool]:
    """The stages in order, and whether all are asynchronous."""
    stats = PipelineStats(())
    first = FunctionStage("sample", abs, asynchronous=samples.asynchronous)
    first.device = samples.device
    gather = GatherStage({str(i): store for i, store in enumerate(stores)}, device, stats)
    stages = arrange(first, gather, more, device, [store.device for store in stores], stats)
    return [stage.name for stage in stages], all(stage.asynchronous for stage in stages)


@pytest.mark.parametrize(
    ("device", "samples", "stores", "expected", "asynchronous"),
    [
        (CPU, on(CPU), [on(CPU)], ["sample", "gather"], False),
        (GPU, on(CPU), [on(CPU)], ["sample", "gather", "move"], False),
        (GPU, on(CPU), [on(GPU, True)], ["sample", "move", "gather"], False),
        (GPU, on(CPU), [on(GPU, False)], ["sample", "gather", "move"], False),
        (GPU, on(CPU), [on(GPU, True), on(CPU)], ["sample", "gather", "move"], False),
        (GPU, on(CPU), [], ["sample", "move", "gather"], False),
        (GPU, on(GPU, True), [on(GPU, True)], ["sample", "gather"], True),
        (GPU, on(GPU, True), [], ["sample", "gather"], True),
        (GPU, on(GPU, False), [on(GPU, True)], ["sample", "gather"], False),
        (GPU, on(GPU, True), [on(GPU, False)], ["sample", "gather"], False),
        (GPU, on(GPU, True), [on(CPU)], ["sample", "gather", "move"], False),
        (GPU, on(GPU, True), [on(GPU, True), on(CPU)], ["sample", "gather", "move"], False),
    ],
)
def test_stages_follow_the_places_of_work(
    device: torch.device, samples: Any, stores: list[Any], expected: list[str], asynchronous: bool
) -> None:
    assert names(device, samples, stores, []) == (expected, asynchronous)


@pytest.mark.parametrize(
    ("samples", "stores", "more", "expected"),
    [
        (CPU, [CPU], [None], "sample gather a move"),  # it works on what lies anywhere
        (CPU, [CPU], [CPU], "sample gather a move"),
        (CPU, [CPU], [GPU], "sample gather move a"),
        (CPU, [CPU], [None, GPU, GPU], "sample gather a move b c"),
        (GPU, [CPU], [GPU], "sample gather move a"),  # the rows come from the CPU
        (GPU, [GPU], [GPU], "sample gather a"),
        (GPU, [GPU], [CPU], "sample gather a move"),  # what it adds comes from there
        (CPU, [GPU], [GPU], "sample gather move a"),
        (CPU, [CPU], [GPU, CPU], "sample gather move a b move 2"),
        (CPU, [CPU], [GPU, CPU, GPU], "sample gather move a b move 2 c"),
        (CPU, [], [GPU], "sample move gather a"),
    ],
)
def test_a_gpu_stages_items_are_on_the_gpu(
    samples: torch.device, stores: list[torch.device], more: list[torch.device | None], expected: str
) -> None:
    own = [FunctionStage(name, abs) for name in "abc"[: len(more)]]
    for stage, device in zip(own, more, strict=True):
        stage.device = device
    assert " ".join(names(GPU, on(samples), [on(store) for store in stores], own)[0]) == expected


def test_nothing_moves_if_all_is_on_the_cpu() -> None:
    own = FunctionStage("own", abs)
    own.device = CPU
    assert names(CPU, on(CPU), [on(CPU)], [own])[0] == ["sample", "gather", "own"]


def test_the_device_is_that_of_the_work() -> None:
    assert choose_device(None, on(CPU), {"node": on(CPU)}) == CPU
    assert choose_device("cpu", on(CPU), {}) == CPU


@pytest.mark.parametrize(("samples", "stores"), [(on(GPU), {}), (on(CPU), {"node": on(CPU), "seed": on(GPU)})])
def test_device_cpu_is_refused_for_gpu_work(samples: Any, stores: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="on cuda:0, but device is cpu; give both the same one"):
        choose_device("cpu", samples, stores)


def test_other_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="device is 'meta'; mini-batches arrive on cpu or cuda"):
        choose_device("meta", on(CPU), {})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_named() -> None:
    with pytest.raises(RuntimeError, match="device is 'cuda', but torch finds no NVIDIA GPU here; give device='cpu'"):
        choose_device("cuda", on(CPU), {})

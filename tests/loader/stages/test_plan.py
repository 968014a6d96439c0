"""Which stages a loader has, and where its mini-batches arrive."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from loader.stages.plan import Plan, choose_device, choose_plan

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def sampler(device: torch.device, asynchronous: bool = False) -> Any:
    return SimpleNamespace(device=device, asynchronous=asynchronous)


def store(device: torch.device, asynchronous: bool = False) -> Any:
    return SimpleNamespace(device=device, asynchronous=asynchronous)


@pytest.mark.parametrize(
    ("device", "samples", "stores", "expected"),
    [
        (CPU, sampler(CPU), [store(CPU)], Plan(("sample", "gather"), False)),
        (GPU, sampler(CPU), [store(CPU)], Plan(("sample", "gather", "move"), False)),
        (GPU, sampler(CPU), [store(GPU, True)], Plan(("sample", "move", "gather"), False)),
        (GPU, sampler(CPU), [store(GPU, False)], Plan(("sample", "gather", "move"), False)),
        (GPU, sampler(CPU), [store(GPU, True), store(CPU)], Plan(("sample", "gather", "move"), False)),
        (GPU, sampler(CPU), [], Plan(("sample", "move", "gather"), False)),
        (GPU, sampler(GPU, True), [store(GPU, True)], Plan(("sample", "gather"), True)),
        (GPU, sampler(GPU, True), [], Plan(("sample", "gather"), True)),
        (GPU, sampler(GPU, False), [store(GPU, True)], Plan(("sample", "gather"), False)),
        (GPU, sampler(GPU, True), [store(GPU, False)], Plan(("sample", "gather"), False)),
        (GPU, sampler(GPU, True), [store(CPU)], Plan(("sample", "gather", "move"), False)),
        (GPU, sampler(GPU, True), [store(GPU, True), store(CPU)], Plan(("sample", "gather", "move"), False)),
    ],
)
def test_stages_follow_where_the_work_is(device: torch.device, samples: Any, stores: list[Any], expected: Plan) -> None:
    assert choose_plan(device, samples, stores) == expected


def test_the_device_is_that_of_the_work() -> None:
    assert choose_device(None, sampler(CPU), [store(CPU)]) == CPU
    assert choose_device("cpu", sampler(CPU), []) == CPU


@pytest.mark.parametrize(("samples", "stores"), [(sampler(GPU), []), (sampler(CPU), [store(CPU), store(GPU)])])
def test_work_on_a_gpu_does_not_go_back_to_the_cpu(samples: Any, stores: list[Any]) -> None:
    with pytest.raises(ValueError, match="on cuda:0, but device is cpu; give both the same one"):
        choose_device("cpu", samples, stores)


def test_other_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="device is 'meta'; mini-batches arrive on cpu or cuda"):
        choose_device("meta", sampler(CPU), [])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(RuntimeError, match="device is 'cuda', but torch finds no NVIDIA GPU here; give device='cpu'"):
        choose_device("cuda", sampler(CPU), [])

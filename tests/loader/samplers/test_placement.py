"""The factory of the fused sampler: the class by the device, and no option that is ignored."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from marks import HAS_GPU

import loader.samplers
from loader.samplers import FusedSampler, TreeSampler, fused


def test_device_cpu_gives_a_fused_sampler() -> None:
    sampler = fused([3, 2], device="cpu", num_threads=1, replace=True, edge_ids=True, seed=7)
    assert type(sampler) is FusedSampler
    assert (sampler.fanouts, sampler.num_threads, sampler.seed) == ((3, 2), 1, 7)
    assert sampler.replace
    assert sampler.edge_ids
    assert sampler.on(torch.device("cuda", 1)) is sampler


@pytest.mark.parametrize("make", [FusedSampler, TreeSampler, fused])
def test_names_of_other_libraries_have_a_way_out(make: Any) -> None:
    with pytest.raises(
        TypeError, match=r"num_neighbors is no option of \w+; its name here is fanouts, e\.g\. \[15, 10\]"
    ):
        make(num_neighbors=[15, 10])
    with pytest.raises(TypeError, match=r"temporal_strategy is no option of \w+; times are the graph's and the seeds'"):
        make([5], temporal_strategy="last")
    with pytest.raises(ValueError, match=r"0 hops are given; 1 to 8 are possible, e\.g\. \[15, 10\]"):
        make()


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_auto_without_a_gpu_is_the_cpu() -> None:
    assert type(fused(3, 2)) is FusedSampler
    with pytest.raises(RuntimeError, match="a GPU sampler needs"):
        fused(3, 2, device="cuda")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cpu", "schedule": "hopwise"}, "schedule is 'hopwise', but the sampler runs on the CPU"),
        ({"device": "cpu", "node_set": "hash"}, "node_set is 'hash', but the sampler runs on the CPU"),
        ({"device": "cpu", "blocks_per_sm": 0}, "blocks_per_sm is 0, but the sampler runs on the CPU"),
    ],
)
def test_options_of_the_other_device_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fused(3, 2, **options)


def test_unknown_options_are_refused() -> None:
    for name, way in (
        ("sede", "did you mean seed?"),
        ("colour", "it knows fanouts"),
        ("device", "it samples on the C"),
    ):
        with pytest.raises(TypeError, match=f"{name} is no option of FusedSampler; {re.escape(way)}"):
            FusedSampler([3], **{name: "x"})
    with pytest.raises(TypeError, match="shedule"):
        fused(3, 2, device="cpu", shedule="hopwise")


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_num_threads_does_not_prevent_a_gpu() -> None:
    with pytest.raises(RuntimeError, match="a GPU sampler needs"):
        fused(3, 2, device="cuda", num_threads=4)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Sampla'"):
        _ = loader.samplers.Sampla


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
def test_a_gpu_gives_a_cuda_sampler() -> None:
    sampler = fused([3, 2], schedule="hopwise", node_set="hash", blocks_per_sm=0.5, seed=9)
    assert type(sampler) is loader.samplers.CudaSampler
    assert (sampler.fanouts, sampler.schedule, sampler.blocks_per_sm, sampler.seed) == ((3, 2), "hopwise", 0.5, 9)
    assert sampler.node_set == "hash"
    assert sampler.batches_per_launch == 8
    assert fused(3, 2, batches_per_launch=2).batches_per_launch == 2
    assert sampler.on(sampler.device) is sampler

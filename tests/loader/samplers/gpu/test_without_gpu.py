"""What `CudaSampler` does in Python around its launches, on any machine: an engine of the CPU's mini-batches."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fake_gpu_sampler import FakeGPU, Stream
from torch import Tensor

from loader.graph import Graph
from loader.samplers import HopwiseSampler, on_device
from loader.samplers.gpu.sampler import CudaSampler, PaddedMiniBatch
from loader.samplers.gpu.workspace import SCHEDULES, VERTEX_SETS
from loader.samplers.placement import fused


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGPU]:
    yield FakeGPU(monkeypatch)
    gc.collect()  # while a workspace that ends finds the patches


@pytest.fixture
def graph(random_graph: Callable[..., Graph]) -> Graph:
    return random_graph()


def seeds_of(graph: Graph, count: int = 20, *, seed: int = 0) -> Tensor:
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    return order[:count].to(graph.indices.dtype)


@pytest.mark.parametrize("options", [{}, {"edge_ids": True}, {"replace": True, "vertex_set": "hash"}])
@pytest.mark.parametrize("together", [1, 3, 4])
def test_mini_batches_are_the_cpus(gpu: FakeGPU, graph: Graph, together: int, options: dict[str, Any]) -> None:
    sampler = CudaSampler([4, 3], seed=5, batches_per_launch=together, **options)
    oracle = HopwiseSampler([4, 3], seed=5, **{name: x for name, x in options.items() if name != "vertex_set"})
    begun = []
    for i in range(11):
        seeds = seeds_of(graph, 5 + i, seed=i)
        begun.append((sampler.start(graph, seeds, epoch=2, batch=i), oracle.sample(graph, seeds, epoch=2, batch=i)))
    for finish, expected in begun:
        assert finish().digest() == expected.digest()
    assert [launch.batches for launch in gpu.launches] == [min(together, 11 - i) for i in range(0, 11, together)]
    assert {launch.vertex_set for launch in gpu.launches} == {VERTEX_SETS[options.get("vertex_set", "bitmap")]}
    assert {launch.schedule for launch in gpu.launches} == {SCHEDULES["hopwise"]}  # what is begun ahead
    seeds = seeds_of(graph)
    assert sampler.sample(graph, seeds).digest() == oracle.sample(graph, seeds).digest()
    assert (gpu.launches[-1].batches, gpu.launches[-1].schedule) == (1, SCHEDULES["cooperative"])


@pytest.mark.parametrize(
    ("options", "blocks", "ahead"),
    [({}, 0, 66), ({"schedule": "hopwise"}, 0, 0), ({"blocks_per_sm": 0.25}, 33, 33), ({"blocks_per_sm": 1}, 132, 132)],
)
def test_what_is_begun_ahead_leaves_half_of_the_gpu_unless_told_otherwise(
    gpu: FakeGPU, graph: Graph, options: dict[str, Any], blocks: int, ahead: int
) -> None:
    sampler = CudaSampler([4, 3], batches_per_launch=2, **options)
    begun = [sampler.start(graph, seeds_of(graph, seed=i), batch=i) for i in range(3)]
    for finish in begun:
        finish()
    sampler.sample(graph, seeds_of(graph))
    assert [launch.blocks for launch in gpu.launches] == [ahead, ahead, blocks]


def test_one_that_is_finished_early_takes_those_that_wait_along(gpu: FakeGPU, graph: Graph) -> None:
    sampler = CudaSampler([4, 3], batches_per_launch=4)
    begun = [sampler.start(graph, seeds_of(graph, seed=i), batch=i) for i in range(3)]
    assert gpu.launches == []
    begun[1]()
    assert [launch.batches for launch in gpu.launches] == [3]
    begun[0]()
    begun[2]()
    assert len(gpu.launches) == 1


def test_nobody_waits_for_one_that_was_dropped(gpu: FakeGPU, graph: Graph) -> None:
    sampler = CudaSampler([4, 3], batches_per_launch=3)
    for i in range(50):
        sampler.start(graph, seeds_of(graph), batch=i)
        gc.collect()
    assert gpu.launches == []
    begun = [sampler.start(graph, seeds_of(graph, seed=i), batch=i) for i in range(3)]
    assert [launch.batches for launch in gpu.launches] == [3]
    assert [finish().index for finish in begun] == [0, 1, 2]


def test_a_mini_batch_that_does_not_fit_is_sampled_again_alone(gpu: FakeGPU) -> None:
    degrees = torch.cat((torch.ones(4000), torch.full((4000,), 30))).long()
    indptr = torch.cat((torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)))
    indices = torch.randint(8000, (int(indptr[-1]),), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    graph = Graph(indptr, indices)
    low, high = (torch.arange(first, first + 500, dtype=torch.int32) for first in (0, 4000))
    sampler, oracle = CudaSampler([20, 20], batches_per_launch=2), HopwiseSampler([20, 20])
    sampler.sample(graph, low[:10])  # sizes are learned from this one
    begun = [sampler.start(graph, seeds, batch=i) for i, seeds in enumerate((low, high))]
    for i, (finish, seeds) in enumerate(zip(begun, (low, high), strict=True)):
        assert finish().digest() == oracle.sample(graph, seeds, batch=i).digest()
    launched = [launch.batches for launch in gpu.launches]
    assert launched[:2] == [1, 2]
    assert len(launched) > 2
    assert set(launched[2:]) == {1}


@pytest.mark.parametrize("vertex_set", ["bitmap", "hash"])
def test_there_is_room_for_several_from_the_first_launch_of_several_on(
    gpu: FakeGPU, graph: Graph, vertex_set: str
) -> None:
    sampler = CudaSampler([4, 3], batches_per_launch=4, vertex_set=vertex_set)

    def room() -> int:
        space = sampler._workspace
        assert space is not None
        return sum(t.nbytes for t in (*space._arrays.values(), *space._bitmaps))

    seeds = seeds_of(graph)
    sampler.sample(graph, seeds)
    one = room()
    sampler.sample(graph, seeds)
    sampler.start(graph, seeds)()
    assert room() <= one  # the same, or less by what was learned
    for finish in [sampler.start(graph, seeds, batch=i) for i in range(4)]:
        finish()
    four = room()
    assert 3 * one < four <= 4 * one
    sampler.sample(graph, seeds)
    assert room() == four


def test_another_stream_waits_for_a_late_launch(gpu: FakeGPU, graph: Graph) -> None:
    sampler = CudaSampler([4, 3], batches_per_launch=2)
    launched_on = gpu.stream
    begun = [sampler.start(graph, seeds_of(graph, seed=i), batch=i) for i in range(2)]
    begun[0]()
    assert launched_on.waited == []
    gpu.stream = Stream()
    begun[1]()
    (event,) = gpu.stream.waited
    assert event.stream is launched_on


@pytest.mark.parametrize(
    ("seeds", "message"),
    [([1, 2, 10**6], "seeds holds vertex 1000000"), ([3, 4, 3], "seeds holds vertex 3 more than once")],
)
def test_bad_seeds(gpu: FakeGPU, graph: Graph, seeds: list[int], message: str) -> None:
    sampler = CudaSampler([4, 3], batches_per_launch=2)
    good = seeds_of(graph)
    begun = [sampler.start(graph, s, batch=i) for i, s in enumerate((torch.tensor(seeds).to(good.dtype), good))]
    with pytest.raises(ValueError, match=message):
        begun[0]()
    assert begun[1]().digest() == HopwiseSampler([4, 3]).sample(graph, good, batch=1).digest()


def test_padded_mini_batches(gpu: FakeGPU, graph: Graph) -> None:
    sampler = CudaSampler([4, 3], batches_per_launch=2, pad_to_capacity=True)
    sizes = (9, 9, 9, 4, 9)
    begun = [sampler.start(graph, seeds_of(graph, n, seed=i), batch=i) for i, n in enumerate(sizes)]
    oracle = HopwiseSampler([4, 3])
    for i, (finish, n) in enumerate(zip(begun, sizes, strict=True)):
        batch = finish()
        assert isinstance(batch, PaddedMiniBatch)
        assert batch.frontier_sizes[0] == n
        assert batch.trim().digest() == oracle.sample(graph, seeds_of(graph, n, seed=i), batch=i).digest()
    assert [launch.batches for launch in gpu.launches] == [2, 1, 1, 1]  # only those of as many seeds go together


def test_a_closed_sampler_says_so(gpu: FakeGPU, graph: Graph) -> None:
    sampler = CudaSampler([4, 3], batches_per_launch=2)
    begun = sampler.start(graph, seeds_of(graph))
    sampler.close()
    for call in (begun, lambda: sampler.sample(graph, seeds_of(graph))):
        with pytest.raises(RuntimeError, match="this CudaSampler was closed"):
            call()


def test_defaults_of_the_factory(gpu: FakeGPU) -> None:
    assert fused(3, 2, device="cuda").batches_per_launch == 8
    assert fused(3, 2, device="cuda", batches_per_launch=2).batches_per_launch == 2
    assert fused(3, 2, device="cuda", schedule="persistent").batches_per_launch == 1
    assert fused(3, 2, device="cuda", schedule="hopwise").batches_per_launch == 8
    assert on_device(sampler := fused(3, 2, device="cuda"), torch.device("cpu")) is sampler

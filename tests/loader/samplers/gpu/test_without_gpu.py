"""What `CudaSampler` does in Python around its launches, on any machine: an engine of the CPU's mini-batches."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from fake_gpu_sampler import FakeGPU, Stream
from torch import Tensor

from loader.graph import Graph
from loader.samplers import HopwiseSampler
from loader.samplers.base import Request
from loader.samplers.gpu.sampler import NODE_SETS, SCHEDULES, CudaSampler, CudaSession, PaddedMiniBatch
from loader.samplers.gpu.session import check_launches
from loader.samplers.placement import fused
from loader.samples import MiniBatch


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


def requests(graph: Graph, sizes: Iterable[int]) -> list[Request]:
    """A mini-batch of each of these numbers of seeds."""
    return [Request(seeds_of(graph, size, seed=i), 2, i) for i, size in enumerate(sizes)]


def finished(session: CudaSession, group: list[Request], *, ahead: bool = False) -> list[MiniBatch]:
    return [finish() for finish in session.begin(group, ahead=ahead)]


def expect_the_cpus(got: list[MiniBatch], graph: Graph, group: list[Request], oracle: HopwiseSampler) -> None:
    for batch, request in zip(got, group, strict=True):
        expected = oracle.sample(graph, request.seeds, epoch=request.epoch, batch=request.batch)
        assert batch.digest() == expected.digest()
        assert (batch.epoch, batch.index) == (request.epoch, request.batch)


@pytest.mark.parametrize("options", [{}, {"edge_ids": True}, {"replace": True, "node_set": "hash"}])
@pytest.mark.parametrize("together", [1, 3, 4])
def test_mini_batches_are_the_cpus(gpu: FakeGPU, graph: Graph, together: int, options: dict[str, Any]) -> None:
    sampler = CudaSampler([4, 3], seed=5, batches_per_launch=together, **options)
    oracle = HopwiseSampler([4, 3], seed=5, **{name: x for name, x in options.items() if name != "node_set"})
    session, group = sampler.open(graph), requests(graph, range(5, 16))
    assert session.together == together
    expect_the_cpus(finished(session, group, ahead=True), graph, group, oracle)
    assert [launch.batches for launch in gpu.launches] == [min(together, 11 - i) for i in range(0, 11, together)]
    assert {launch.node_set for launch in gpu.launches} == {NODE_SETS[options.get("node_set", "bitmap")]}
    ahead = "hopwise" if options.get("node_set") == "hash" else "cooperative"  # see choose_schedule
    assert {launch.schedule for launch in gpu.launches} == {SCHEDULES[ahead]}
    seeds = seeds_of(graph)
    assert sampler.sample(graph, seeds).digest() == oracle.sample(graph, seeds).digest()
    assert (gpu.launches[-1].batches, gpu.launches[-1].schedule) == (1, SCHEDULES["cooperative"])
    assert sampler.spec() == oracle.spec()


@pytest.mark.parametrize(
    ("options", "blocks", "ahead"),
    [({}, 0, 66), ({"schedule": "hopwise"}, 0, 0), ({"blocks_per_sm": 0.25}, 33, 33), ({"blocks_per_sm": 1}, 132, 132)],
)
def test_sampling_ahead_leaves_half_of_the_gpu(
    gpu: FakeGPU, graph: Graph, options: dict[str, Any], blocks: int, ahead: int
) -> None:
    session = CudaSampler([4, 3], batches_per_launch=2, **options).open(graph)
    finished(session, requests(graph, (20, 20, 20)), ahead=True)
    finished(session, requests(graph, (20,)))
    assert [launch.blocks for launch in gpu.launches] == [ahead, ahead, blocks]


def test_a_configuration_is_copied_and_pickled(gpu: FakeGPU, graph: Graph) -> None:
    sampler = CudaSampler([4, 3], seed=5, batches_per_launch=2, edge_ids=True, schedule="hopwise")
    seeds = seeds_of(graph)
    expected = sampler.sample(graph, seeds).digest()  # its session stays behind
    for other in (copy.deepcopy(sampler), copy.copy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert other.spec() == sampler.spec()
        assert repr(other) == repr(sampler)
        assert other.sample(graph, seeds).digest() == expected
        other.close()
    assert sampler.sample(graph, seeds).digest() == expected


@pytest.mark.parametrize("finished_between", [True, False])
def test_a_late_finish_has_its_own_result(gpu: FakeGPU, graph: Graph, finished_between: bool) -> None:
    session, oracle = CudaSampler([4, 3], batches_per_launch=4).open(graph), HopwiseSampler([4, 3])
    late, group = requests(graph, [9]), requests(graph, range(1, 181))
    (finish,) = session.begin(late)
    begun = session.begin(group)
    if finished_between:
        expect_the_cpus([f() for f in begun], graph, group, oracle)
    expect_the_cpus([finish()], graph, late, oracle)
    if not finished_between:
        expect_the_cpus([f() for f in begun], graph, group, oracle)


def test_finished_or_dropped_mini_batches_return_their_headers(gpu: FakeGPU, graph: Graph) -> None:
    session = CudaSampler([4, 3], batches_per_launch=4).open(graph)
    for _ in range(40):
        finish, *_ = session.begin(requests(graph, (5, 5, 5, 5)))
        finish()
    assert session._space is not None
    assert len(session._space.engine.written) == 64


def test_a_launch_that_fails_midway_leaves_no_marks(gpu: FakeGPU, graph: Graph) -> None:
    session, oracle = CudaSampler([4, 3], batches_per_launch=2).open(graph), HopwiseSampler([4, 3])
    group = requests(graph, (5, 6, 7))
    for node_sets in range(2):
        gpu.refuse_launch = True
        with pytest.raises(RuntimeError, match="launching the sampler failed"):
            session.begin(group)
        expect_the_cpus(finished(session, group), graph, group, oracle)
        session = CudaSampler([4, 3], batches_per_launch=2, node_set=("hash", "bitmap")[node_sets]).open(graph)


def test_more_edges_than_32_bits_hold_are_refused(gpu: FakeGPU, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    assert graph.indptr.dtype == torch.int32
    sampler = CudaSampler([4, 1000], replace=True)
    session = sampler.open(graph)
    space = session._space
    assert space is not None
    assert space.most_edges == 2**31 - 1
    space.most_edges = 1000
    with pytest.raises(OverflowError, match=r"a block of \d+ edges exceeds 32-bit edge ids; use a smaller batch"):
        finished(session, requests(graph, (20,)))
    assert finished(session, requests(graph, (0,)))[0].num_edges == 0
    session = CudaSampler([4, 1000], replace=True, pad_to_capacity=True).open(graph)
    assert session._space is not None
    session._space.most_edges = 1000
    with pytest.raises(OverflowError, match=r"a padded block has room for \d+ edges"):
        session.begin(requests(graph, (20,)))
    assert len(gpu.launches) == 2


def test_a_mini_batch_too_large_is_sampled_again(gpu: FakeGPU) -> None:
    degrees = torch.cat((torch.ones(4000), torch.full((4000,), 30))).long()
    indptr = torch.cat((torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)))
    indices = torch.randint(8000, (int(indptr[-1]),), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    graph = Graph(indptr, indices)
    low, high = (torch.arange(first, first + 500, dtype=torch.int32) for first in (0, 4000))
    session, oracle = CudaSampler([20, 20], batches_per_launch=2).open(graph), HopwiseSampler([20, 20])
    finished(session, [Request(low[:10], 0, 0)])  # sizes are learned from this one
    group = [Request(low, 0, 1), Request(high, 0, 2)]
    expect_the_cpus(finished(session, group), graph, group, oracle)
    launched = [launch.batches for launch in gpu.launches]
    assert launched[:2] == [1, 2]
    assert len(launched) > 2
    assert set(launched[2:]) == {1}


@pytest.mark.parametrize("node_set", ["bitmap", "hash"])
def test_the_first_launch_of_several_has_room(gpu: FakeGPU, graph: Graph, node_set: str) -> None:
    session = CudaSampler([4, 3], batches_per_launch=4, node_set=node_set).open(graph)

    def room(group: list[Request], *, ahead: bool = False) -> int:
        finished(session, group, ahead=ahead)
        assert session._space is not None
        return sum(t.nbytes for t in session._space._arrays.values())

    alone = requests(graph, (20,))
    one = room(alone)
    assert room(alone) <= one  # the same, or less by what was learned
    assert room(alone, ahead=True) <= one
    four = room(requests(graph, (20, 20, 20, 20)))
    assert 3 * one < four <= 4 * one
    assert room(alone) == four


def test_old_arrays_are_free_before_larger_ones(gpu: FakeGPU, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    session = CudaSampler([4, 3], batches_per_launch=4).open(graph)
    finished(session, requests(graph, (20,)))
    assert session._space is not None
    stream, held = session._space._stream, []
    old = {name: weakref.ref(array) for name, array in session._space._arrays.items()}
    make = torch.empty

    def empty(*shape: Any, **options: Any) -> Tensor:
        held.append((stream.synchronized, [name for name, array in old.items() if array() is not None]))
        return make(*shape, **options)

    assert stream.synchronized == 0
    monkeypatch.setattr("loader.samplers.gpu.workspace.torch.empty", empty)
    finished(session, requests(graph, (20,) * 4))
    synchronized, left = held[0]
    assert synchronized == 1
    assert {"state", "row_begin"} & old.keys() - left == {"state", "row_begin"}


def test_another_stream_waits_for_a_repeated_mini_batch(gpu: FakeGPU, graph: Graph) -> None:
    session = CudaSampler([20, 20]).open(graph)
    finished(session, requests(graph, (1,)))
    launched_on = gpu.stream
    begun = session.begin(requests(graph, (2, 150)))
    gpu.stream = Stream()
    begun[0]()
    assert gpu.stream.waited == []
    launches = len(gpu.launches)
    begun[1]()
    assert len(gpu.launches) > launches
    assert gpu.stream.waited
    assert all(stream is launched_on for stream in gpu.stream.waited)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [([1, 2, 10**6], "seeds holds node 1000000"), ([3, 4, 3], "seeds holds node 3 more than once")],
)
def test_bad_seeds_fail_only_their_mini_batch(gpu: FakeGPU, graph: Graph, seeds: list[int], message: str) -> None:
    session = CudaSampler([4, 3], batches_per_launch=2).open(graph)
    good = requests(graph, (20,))
    bad = Request(torch.tensor(seeds).to(good[0].seeds.dtype), 0, 0)
    begun = session.begin([bad, *good])
    with pytest.raises(ValueError, match=message):
        begun[0]()
    expect_the_cpus([begun[1]()], graph, good, HopwiseSampler([4, 3]))


def test_a_bipartite_graph_is_refused(gpu: FakeGPU) -> None:
    graph = Graph(torch.tensor([0, 2, 3]), torch.tensor([0, 4, 2]), num_src=5)
    with pytest.raises(ValueError, match="CudaSampler wants a graph of one set of nodes"):
        CudaSampler([4, 3]).open(graph)


@pytest.mark.parametrize("position", [(-1, 0), (0, -1), (0, 2**64)])
def test_bad_positions_are_refused_before_a_launch(gpu: FakeGPU, graph: Graph, position: tuple[int, int]) -> None:
    session = CudaSampler([4, 3]).open(graph)
    with pytest.raises(ValueError, match=r"must be in \[0, 2\*\*64\)"):
        session.begin([Request(seeds_of(graph), *position)])
    assert gpu.launches == []


def test_padded_mini_batches_trim_to_the_cpus(gpu: FakeGPU, graph: Graph) -> None:
    session = CudaSampler([4, 3], batches_per_launch=2, pad_to_capacity=True).open(graph)
    sizes = (9, 9, 9, 4, 9)
    group, oracle = requests(graph, sizes), HopwiseSampler([4, 3])
    for padded, request in zip(finished(session, group), group, strict=True):
        assert isinstance(padded, PaddedMiniBatch)
        assert padded.frontier_sizes[0] == request.seeds.numel()
        expected = oracle.sample(graph, request.seeds, epoch=request.epoch, batch=request.batch)
        assert padded.trim().digest() == expected.digest()
    assert [launch.batches for launch in gpu.launches] == [2, 1, 1, 1]  # only those of as many seeds go together


@pytest.mark.parametrize("by_check", [True, False])
def test_padded_bad_seeds_are_reported_even_late(gpu: FakeGPU, graph: Graph, by_check: bool) -> None:
    session = CudaSampler([4, 3], pad_to_capacity=True).open(graph)
    gpu.busy = True
    session.begin([Request(torch.tensor([7, 7], dtype=graph.indices.dtype), 3, 8)])
    session.begin(requests(graph, [5] * 150))
    session.check()
    gpu.busy = False
    with pytest.raises(ValueError, match=r"node 7 more than once.*\(epoch 3, mini-batch 8\)"):
        session.check() if by_check else session.begin(requests(graph, (5,)))
    session.check()
    assert not session._unchecked


def test_closed_samplers_and_sessions_say_so(gpu: FakeGPU, graph: Graph) -> None:
    sampler = CudaSampler([4, 3], batches_per_launch=2)
    session, group = sampler.open(graph), requests(graph, (20,))
    (finish,) = session.begin(group)
    session.close()
    for call in (finish, lambda: session.begin(group)):
        with pytest.raises(RuntimeError, match="this session of a GPU sampler was closed"):
            call()
    sampler.sample(graph, seeds_of(graph))
    sampler.close()
    with pytest.raises(RuntimeError, match="this CudaSampler was closed"):
        sampler.sample(graph, seeds_of(graph))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"schedule": "fused-static"}, ValueError, "schedule='fused-static' was removed in 0.2; take schedule='auto'"),
        ({"schedule": "persistent"}, ValueError, "schedule='persistent' was removed in 0.2; take schedule='auto'"),
        ({"reads": "merged"}, ValueError, "reads='merged' was removed in 0.2; take reads='auto'"),
        ({"labor": True, "scan_schedule": "split"}, TypeError, "scan_schedule was removed in 0.2: .*; leave it out"),
    ],
)
def test_what_was_removed_names_the_way_out(
    gpu: FakeGPU, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    for make in (CudaSampler, partial(fused, device="cuda")):
        with pytest.raises(error, match=message):
            make(3, 2, **options)


def test_the_factory_samples_eight_mini_batches_together(gpu: FakeGPU) -> None:
    assert fused(3, 2, device="cuda").batches_per_launch == 8
    assert fused(3, 2, device="cuda", batches_per_launch=2).batches_per_launch == 2
    assert fused(3, 2, device="cuda", schedule="hopwise").batches_per_launch == 8
    assert (sampler := fused(3, 2, device="cuda")).on(torch.device("cpu")) is sampler


def test_a_dropped_padded_mini_batch_holds_no_memory(gpu: FakeGPU, graph: Graph) -> None:
    session = CudaSampler([4, 3], pad_to_capacity=True, batches_per_launch=4).open(graph)
    gpu.busy = True  # nobody knows yet whether the seeds were good
    batches = finished(session, requests(graph, (5, 5, 5, 5)))
    held = [weakref.ref(t) for batch in batches for t in batch.memory()]
    assert held
    del batches
    gc.collect()
    assert not any(t() is not None for t in held)
    gpu.busy = False
    session.check()


@pytest.mark.parametrize("repeats", [False, True])
def test_a_trimmed_mini_batch_still_repeats(gpu: FakeGPU, graph: Graph, repeats: bool) -> None:
    padded = CudaSampler([4, 3], pad_to_capacity=True).sample(graph, seeds_of(graph)).replace(repeats=repeats)
    assert padded.trim().repeats is repeats


def test_launches_of_a_mini_batch_end() -> None:
    check_launches(49, 3)
    with pytest.raises(
        RuntimeError, match=r"^a mini-batch of 3 seeds does not fit after 50 launches, which should not"
    ):
        check_launches(50, 3)

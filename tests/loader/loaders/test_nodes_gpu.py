"""The loader on a GPU: the CPU's bytes whatever runs where, and nothing left behind."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from function_stage import FunctionStage
from gpu_loaders import Boom, Disturbed, DisturbedSampler, TensorFeatures
from marks import needs_gpu
from small_loader import no_threads

from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.pipeline.streams import TIMED
from loader.samplers import FusedSampler, Sampler, fused
from loader.timing import Timeline

pytestmark = needs_gpu

NUM_NODES, BATCHES = 20_000, 25
FANOUTS = [6, 4]
SAMPLE = ("cpu", "gpu", "consumer")  # where, and whether the consumer's thread launches it
GATHER = ("host", "device", "none")


@pytest.fixture(scope="module")
def graph() -> Graph:
    g = torch.Generator().manual_seed(0)
    ids = [torch.randint(NUM_NODES, (300_000,), generator=g) for _ in range(2)]
    return Graph.from_edges(*ids, NUM_NODES)


@pytest.fixture(scope="module")
def features() -> torch.Tensor:
    return torch.randn(NUM_NODES, 40, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def make(graph: Graph, features: torch.Tensor) -> Callable[..., NodeLoader]:
    def make(
        sample: str = "consumer",
        gather: str = "device",
        *,
        disturb_sample: Disturbed | None = None,
        disturb_gather: Disturbed | None = None,
        edge_ids: bool = False,
        together: int = 1,
        **changes: Any,
    ) -> NodeLoader:
        on_gpu = sample != "cpu"
        sampler: Sampler = (
            fused(FANOUTS, device="cuda", edge_ids=edge_ids, batches_per_launch=together)
            if on_gpu
            else FusedSampler(FANOUTS, edge_ids=edge_ids)
        )
        sampler = DisturbedSampler(sampler, disturb_sample or Disturbed(None), sample == "consumer")
        stores = {
            "host": lambda: TensorFeatures(features, disturb_gather),
            "device": lambda: TensorFeatures(features.cuda(), disturb_gather),
            "none": lambda: None,
        }
        arguments: dict[str, Any] = {
            "graph": graph.to("cuda") if on_gpu else graph,
            "features": stores[gather](),
            "labels": torch.arange(NUM_NODES) % 7,
            "seeds": torch.arange(0, NUM_NODES, 4)[: BATCHES * 100],
            "sampler": sampler,
            "batch_size": 100,
            "shuffle": True,
            "device": "cuda",
            **changes,
        }
        return NodeLoader(**arguments)

    return make


@pytest.fixture
def expected(graph: Graph, features: torch.Tensor) -> list[list[str]]:
    """Digests of two epochs, all on the CPU."""
    seeds = torch.arange(0, NUM_NODES, 4)[: BATCHES * 100]
    loader = NodeLoader(
        graph, features, torch.arange(NUM_NODES) % 7, seeds, FusedSampler(FANOUTS), 100, shuffle=True, prefetch=0
    )
    return [[batch.digest() for batch in loader] for _ in range(2)]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("gather", ["host", "device"])
@pytest.mark.parametrize("sample", SAMPLE)
def test_the_bytes_are_those_of_the_cpu(
    make: Callable[..., NodeLoader], expected: list[list[str]], sample: str, gather: str, prefetch: int
) -> None:
    loader = make(sample, gather, prefetch=prefetch)
    alone = sample == "consumer" and gather == "device"
    assert loader.ahead == (("consumer" if alone else "threads") if prefetch else "none")
    for epoch in range(2):
        batches = list(loader)
        assert all(t.is_cuda for batch in batches for t in batch.tensors())
        assert [batch.digest() for batch in batches] == expected[epoch]
    assert loader.stats.items == 2 * BATCHES
    assert no_threads()


@pytest.mark.parametrize("together", [2, 4, 16])
@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("gather", ["host", "device"])
@pytest.mark.parametrize("sample", SAMPLE[1:])
def test_sampling_several_together_changes_nothing(
    make: Callable[..., NodeLoader],
    expected: list[list[str]],
    sample: str,
    gather: str,
    prefetch: int,
    together: int,
) -> None:
    loader = make(sample, gather, prefetch=prefetch, together=together)
    for epoch in range(2):
        assert [batch.digest() for batch in loader] == expected[epoch]
    for _ in range(3):  # what an abandoned epoch had begun does not come in the way of the next
        next(iter(loader))
    loader.set_epoch(1)
    assert [batch.digest() for batch in loader] == expected[1]
    assert no_threads()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gather", ["host", "device"])
@pytest.mark.parametrize("sample", SAMPLE)
def test_random_delays_change_nothing(
    make: Callable[..., NodeLoader], expected: list[list[str]], sample: str, gather: str, seed: int
) -> None:
    loader = make(
        sample,
        gather,
        disturb_sample=Disturbed(seed),
        disturb_gather=Disturbed(seed + 10),
        prefetch=2,
        together=(1, 3, 4)[seed],
    )
    train = Disturbed(seed + 20)
    for epoch in range(2):
        copies = []
        for batch in loader:
            train("train")  # the GPU reads the batch late, when the host has long dropped it
            copies.append(batch.map(torch.clone))
            del batch
        assert [copy.digest() for copy in copies] == expected[epoch]


def test_two_loaders_may_run_at_once(make: Callable[..., NodeLoader], expected: list[list[str]]) -> None:
    a, b = make("consumer"), make("cpu", "host")
    digests = [(x.digest(), y.digest()) for x, y in zip(a, b, strict=True)]
    assert digests == [(d, d) for d in expected[0]]


def test_a_batch_may_serve_on_another_stream(make: Callable[..., NodeLoader], expected: list[list[str]]) -> None:
    other, copies = torch.cuda.Stream(), []
    for batch in make(disturb_gather=Disturbed(1)):
        other.wait_stream(torch.cuda.current_stream())
        batch.record_stream(other)
        with torch.cuda.stream(other):
            torch.cuda._sleep(500_000)
            copies.append(batch.map(torch.clone))
        del batch
    torch.cuda.synchronize()
    assert [copy.digest() for copy in copies] == expected[0]


def test_iterating_under_another_stream_changes_nothing(
    make: Callable[..., NodeLoader], expected: list[list[str]]
) -> None:
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        here = torch.cuda.current_stream()
        assert [batch.digest() for batch in make()] == expected[0]
        assert torch.cuda.current_stream() == here


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("stage", ["sample", "gather"])
@pytest.mark.parametrize("sample", SAMPLE)
def test_an_error_of_a_stage_surfaces(
    make: Callable[..., NodeLoader], expected: list[list[str]], sample: str, stage: str, prefetch: int
) -> None:
    broken = {f"disturb_{stage}": Disturbed(None, fail_at=3)}
    loader = make(sample, prefetch=prefetch, **broken)
    iterator = iter(loader)
    assert [next(iterator).digest() for _ in range(3)] == expected[0][:3]
    begin = time.monotonic()
    with pytest.raises(Boom, match=stage):
        next(iterator)
    assert time.monotonic() - begin < 30
    assert no_threads()
    assert [batch.digest() for batch in itertools.islice(loader, 4)] == expected[1][:4]


@pytest.mark.parametrize("sample", SAMPLE)
def test_abandoned_loaders_leave_nothing(make: Callable[..., NodeLoader], sample: str) -> None:
    def open_and_abandon(count: int) -> int:
        for i in range(count):
            loader = make(sample, labels=None)
            iterator = iter(loader)
            next(iterator)
            if i % 2:
                loader.close()
            del iterator, loader
        assert no_threads()
        gc.collect()
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    before = open_and_abandon(5)  # with what tests before left, which may go meanwhile
    assert open_and_abandon(200 if sample == "consumer" else 50) <= before


@pytest.mark.parametrize("sample", SAMPLE)
def test_resume_gives_the_rest(make: Callable[..., NodeLoader], expected: list[list[str]], sample: str) -> None:
    loader = make(sample)
    list(itertools.islice(loader, 10))
    state = loader.state_dict()
    assert state["next"] == 10
    resumed = make(sample)
    resumed.load_state_dict(state)
    assert [batch.digest() for batch in resumed] == expected[0][10:]


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("sample", SAMPLE)
def test_any_number_of_ranks_resumes_the_sequence(
    make: Callable[..., NodeLoader], expected: list[list[str]], sample: str, world_size: int
) -> None:
    options = {"together": 4} if sample != "cpu" else {}
    begun = []
    for rank in range(2):
        loader = make(sample, rank=rank, world_size=2, **options)
        begun.append([batch.digest() for batch in itertools.islice(loader, 5)])
        state = loader.state_dict()
        loader.close()
    ranks = []
    for rank in range(world_size):
        loader = make(sample, rank=rank, world_size=world_size, **options)
        loader.load_state_dict(state)
        ranks.append(list(loader))
    rest = [batch.digest() for step in zip(*ranks, strict=True) for batch in step if not batch.repeats]
    assert [d for step in zip(*begun, strict=True) for d in step] + rest == expected[0]


@pytest.mark.parametrize("sample", SAMPLE)
def test_an_own_stage_finds_all_on_the_gpu(
    make: Callable[..., NodeLoader], expected: list[list[str]], sample: str
) -> None:
    def look(batch: Any) -> Any:
        assert all(t.is_cuda for t in batch.tensors())
        return batch.replace(x=batch.x * 2)

    for gather in ("host", "device"):
        own = FunctionStage("own", look, asynchronous=True)
        own.device = torch.device("cuda", 0)
        loader = make(sample, gather, stages=[own])
        assert [batch.replace(x=batch.x / 2).digest() for batch in loader] == expected[0]


@pytest.mark.parametrize("sample", SAMPLE)
def test_edge_features_are_rows_by_edge_id(make: Callable[..., NodeLoader], graph: Graph, sample: str) -> None:
    rows = torch.arange(graph.num_edges, dtype=torch.float32).view(-1, 1)
    for store in (rows, TensorFeatures(rows.cuda())):
        for batch in itertools.islice(make(sample, edge_ids=True, edge_features=store), 3):
            for block in batch.blocks:
                assert torch.equal(block.edge_features[:, 0], block.edge_ids.float())


@pytest.mark.parametrize("sample", SAMPLE)
def test_memory_and_times_are_bounded(make: Callable[..., NodeLoader], sample: str) -> None:
    loader = make(sample)
    weights = torch.randn(40, 40, device="cuda")
    reserved: list[int] = []
    # How many mini-batches lie ready at a time is chance, but not more than `max_items`: what is reserved for them
    # comes to an end.
    while len(reserved) < 8 or len(set(reserved[-5:])) > 1:
        assert len(reserved) < 40, reserved
        for batch in loader:
            (batch.x @ weights).sum()
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())
    stats = loader.stats
    assert stats.gpu_items > (len(reserved) - 1) * BATCHES / TIMED
    assert stats.gpu_busy["gather"] > 0
    assert stats.gpu_busy["train"] > 0
    assert stats.moved["gather"] > 0
    assert 0 < stats.largest_item * loader.max_items == loader.max_bytes


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("sample", SAMPLE)
def test_a_timeline_shows_every_stream(
    make: Callable[..., NodeLoader], expected: list[list[str]], sample: str, prefetch: int
) -> None:
    loader = make(sample, prefetch=prefetch)
    loader.timeline = Timeline(first=2, count=3)
    assert [batch.digest() for batch in loader] == expected[0]
    spans = [span for span in loader.timeline.spans() if span.gpu]
    lanes = [*(stage.name for stage in loader.stages), "train"]
    assert sorted((span.lane, span.item) for span in spans) == sorted(itertools.product(lanes, (2, 3, 4)))
    assert all(span.begin <= span.end for span in spans)


def test_device_cpu_is_refused_for_gpu_work(make: Callable[..., NodeLoader]) -> None:
    with pytest.raises(ValueError, match="samples on cuda:0, but device is cpu"):
        make("gpu", device="cpu")
    assert make("gpu", device=None).device == torch.device("cuda", 0)
    assert make("cpu", "device", device=None).device == torch.device("cuda", 0)

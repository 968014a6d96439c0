"""Epochs, order, stages and errors of the loader."""

from __future__ import annotations

import gc
import itertools
import threading
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from function_stage import FunctionStage
from small_loader import NUM_NODES, SEEDS, digests, no_threads, small_loader
from torch import Tensor

from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.samplers import HopwiseSampler, Sampler, WalkSampler
from loader.samples import MiniBatch
from loader.stores import HostFeatures
from loader.timing import Timeline


@pytest.fixture
def graph(random_graph: Callable[..., Graph]) -> Graph:
    return random_graph(NUM_NODES, 1500)


@pytest.fixture
def make(graph: Graph) -> Callable[..., NodeLoader]:
    return lambda **changes: small_loader(**{"graph": graph, **changes})


def test_mini_batches_are_complete(make: Callable[..., NodeLoader]) -> None:
    loader = make()
    batches = list(loader)
    assert len(batches) == len(loader) == 7
    assert [b.batch_size for b in batches] == [16] * 6 + [4]
    assert [(b.epoch, b.index) for b in batches] == [(0, i) for i in range(7)]
    assert sorted(torch.cat([b.output_nodes for b in batches]).tolist()) == SEEDS.tolist()
    for batch in batches:
        assert torch.equal(batch.x, loader.features.tensor[batch.input_nodes.long()])
        assert torch.equal(batch.y, batch.output_nodes % 7)
        assert batch.num_edges > 0
    assert [b.batch_size for b in make(drop_last=True)] == [16] * 6


def test_a_mini_batch_is_the_samplers_answer(make: Callable[..., NodeLoader], graph: Graph) -> None:
    sampler = HopwiseSampler([3, 2], num_threads=1)
    loader = make(features=None, labels=None, shuffle=False)
    for epoch in range(2):
        for i, batch in enumerate(loader):
            expected = sampler.sample(graph, SEEDS[16 * i : 16 * (i + 1)], epoch=epoch, batch=i)
            assert batch.digest() == expected.digest()


@pytest.mark.parametrize("prefetch", [1, 2, 7])
def test_prefetch_changes_nothing(make: Callable[..., NodeLoader], prefetch: int) -> None:
    inline, ahead = make(prefetch=0), make(prefetch=prefetch)
    for _ in range(3):
        assert digests(inline) == digests(ahead)
    assert no_threads()


def test_epochs_differ_and_are_numbered(make: Callable[..., NodeLoader]) -> None:
    loader = make()
    assert loader.epoch == 0
    epochs = [digests(loader) for _ in range(3)]
    assert len({d for epoch in epochs for d in epoch}) == 21
    loader.set_epoch(1)
    assert loader.epoch == 1
    assert digests(loader) == epochs[1]
    assert digests(loader) == epochs[2]
    with pytest.raises(ValueError, match="epoch is -1"):
        loader.set_epoch(-1)


def test_abandoning_an_epoch_goes_on_to_the_next(make: Callable[..., NodeLoader]) -> None:
    reference = make(prefetch=0)
    epochs = [digests(reference) for _ in range(3)]
    loader = make()
    assert digests(itertools.islice(loader, 3)) == epochs[0][:3]
    assert digests(loader) == epochs[1]
    assert digests(itertools.islice(loader, 7)) == epochs[2]  # its end was never asked for
    assert next(iter(loader)).epoch == 3


def test_an_iterator_not_begun_costs_nothing(make: Callable[..., NodeLoader]) -> None:
    loader = make()
    running = iter(loader)
    next(running)
    state = loader.state_dict()
    iter(loader)
    assert loader.state_dict() == state
    assert next(running).index == 1


def test_a_new_iterator_closes_the_one_before(make: Callable[..., NodeLoader]) -> None:
    loader = make()
    first, second = iter(loader), iter(loader)
    next(first)
    assert next(second).epoch == 1
    with pytest.raises(RuntimeError, match="newer iterator"):
        next(first)
    assert next(second).index == 1
    assert loader.state_dict()["next"] == 2


def test_own_stages_come_after_the_gather(make: Callable[..., NodeLoader]) -> None:
    def double(batch: MiniBatch) -> MiniBatch:
        return batch.replace(x=2 * batch.x)

    for prefetch in (0, 2):
        loader = make(stages=[FunctionStage("double", double)], prefetch=prefetch)
        assert [stage.name for stage in loader.stages] == ["sample", "gather", "double"]
        for batch, plain in zip(loader, make(), strict=True):
            assert torch.equal(batch.x, 2 * plain.x)
        assert loader.stats.busy["double"] > 0
        assert loader.max_items == (3 * prefetch or 1) + 1


class Boom(Exception):
    pass


class FailingSampler(Sampler):
    """Fails at its third mini-batch."""

    def spec(self) -> dict[str, Any]:
        return {}

    def sample(self, graph: Graph, seeds: Tensor, *, epoch: int = 0, batch: int = 0) -> MiniBatch:
        if batch == 2:
            raise Boom("sample")
        return MiniBatch(seeds, (seeds.numel(),), (), epoch=epoch, index=batch)


class FailingStore(HostFeatures):
    """Fails at its third gather."""

    calls = 0

    def gather(self, nodes: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 3:
            raise Boom("gather")
        return super().gather(nodes)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("stage", ["sample", "gather"])
def test_an_error_of_a_stage_surfaces(make: Callable[..., NodeLoader], stage: str, prefetch: int) -> None:
    broken: dict[str, Any] = {
        "sample": {"sampler": FailingSampler()},
        "gather": {"features": FailingStore(torch.randn(NUM_NODES, 6), 1)},
    }[stage]
    loader = make(prefetch=prefetch, **broken)
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    with pytest.raises(Boom, match=stage) as caught:
        next(iterator)
    assert stage in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert loader.state_dict()["next"] == 2
    assert next(iterator, None) is None
    assert no_threads()


def test_closed_or_abandoned_loaders_free_their_threads(make: Callable[..., NodeLoader]) -> None:
    loader = make(batch_size=1)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    assert no_threads()
    with pytest.raises(RuntimeError, match="closed"):
        next(iterator)
    assert next(iter(loader)).epoch == 1  # the loader itself goes on

    iterator = iter(loader)
    next(iterator)
    del iterator
    assert no_threads()

    iterator = iter(loader)
    next(iterator)
    alive = weakref.ref(loader)
    gc.collect()
    gc.disable()  # nothing is in a cycle
    try:
        del loader, iterator
        assert no_threads()
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from Linux's /proc")
def test_fifty_epochs_keep_memory_and_threads_flat(make: Callable[..., NodeLoader]) -> None:
    def resident() -> int:
        (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    loader = make(features=HostFeatures(torch.zeros(NUM_NODES, 5000), 1))
    given = 0
    for epoch in range(50):
        for batch in loader:
            given += batch.nbytes * (epoch >= 3)
        del batch
        assert no_threads()
        if epoch == 2:
            before, threads = resident(), threading.active_count()
    assert threading.active_count() == threads
    assert resident() - before < given / 20


def test_stats_count_items_and_times(make: Callable[..., NodeLoader]) -> None:
    loader = make()
    for _ in range(2):
        list(loader)
    times = loader.stats.as_dict()
    assert times["items"] == 14
    assert min(times["sample"], times["gather"], times["waiting"]) > 0


def test_features_and_labels_are_optional(make: Callable[..., NodeLoader]) -> None:
    batch = next(iter(make(features=None, labels=None)))
    assert batch.x is None
    assert batch.y is None
    batch = next(iter(make(labels=torch.zeros(NUM_NODES, 5))))
    assert batch.y.shape == (16, 5)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_edge_features_are_rows_by_edge_id(make: Callable[..., NodeLoader], graph: Graph, prefetch: int) -> None:
    rows = torch.randn(graph.num_edges, 3, generator=torch.Generator().manual_seed(2))
    sampler = HopwiseSampler([3, 2], num_threads=1, edge_ids=True)
    for features in (rows, HostFeatures(rows, 1)):
        loader = make(sampler=sampler, edge_features=features, prefetch=prefetch)
        for batch in loader:
            for block in batch.blocks:
                assert torch.equal(block.edge_features, rows[block.edge_ids.long()])
        assert loader.stats.moved["gather"] > 0
    assert all(block.edge_features is None for block in next(iter(make())).blocks)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.uint32, torch.int32, torch.int64])
def test_edge_ids_of_any_integers_find_rows(dtype: torch.dtype) -> None:
    ids, rows = torch.tensor([3, 1, 0, 2]), torch.rand(4, 2)
    graph = Graph(torch.tensor([0, 1, 2, 4]), torch.tensor([1, 0, 0, 1]), edge_ids=ids.to(dtype))
    sampler = HopwiseSampler([-1], num_threads=1, edge_ids=True)
    (batch,) = NodeLoader(graph, None, None, torch.arange(3), sampler, 3, edge_features=rows)
    assert torch.equal(batch.blocks[0].edge_features, rows[ids])


def test_edge_features_need_edge_ids_and_all_rows(make: Callable[..., NodeLoader], graph: Graph) -> None:
    rows = torch.zeros(graph.num_edges, 3)
    with pytest.raises(ValueError, match="the sampler returns none; give it edge_ids=True"):
        make(edge_features=rows)
    sampler = HopwiseSampler([3, 2], num_threads=1, edge_ids=True)
    with pytest.raises(ValueError, match="edge_features has 1499 rows, the graph 1500 edges"):
        make(edge_features=rows[1:], sampler=sampler)
    for ids, said in (
        ([0, 9], "edge_features has 9 rows, the graph edge ids up to 9; give a row per id"),
        ([-1, 3], "edge_features has rows by edge id, and the graph has the id -1; number the edges from 0"),
    ):
        other = Graph(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), edge_ids=torch.tensor(ids))
        with pytest.raises(ValueError, match=said):
            NodeLoader(other, None, None, torch.arange(2), sampler, 2, edge_features=rows[:9])


def test_stores_are_checked_after_each_epoch(make: Callable[..., NodeLoader]) -> None:
    class Late(HostFeatures):
        def check(self) -> None:
            raise ValueError("id 7 is out of range")

    batches = iter(make(features=Late(torch.randn(NUM_NODES, 6), 1)))
    for _ in range(7):
        next(batches)
    with pytest.raises(ValueError, match="id 7 is out of range"):
        next(batches)
    assert no_threads()


@pytest.mark.parametrize("prefetch", [0, 2, 3])
def test_bounds_hold_for_items_and_bytes(make: Callable[..., NodeLoader], prefetch: int) -> None:
    loader = make(prefetch=prefetch)
    assert loader.ahead == ("threads" if prefetch else "none")
    assert loader.max_items == max(2 * prefetch, 1) + 1
    assert loader.max_bytes == 0
    largest = max(batch.held_bytes for batch in loader)
    assert loader.max_bytes == loader.max_items * largest


def test_a_timeline_records_the_next_iterator(make: Callable[..., NodeLoader]) -> None:
    loader = make()
    loader.timeline = Timeline(first=2, count=2)
    list(loader)
    assert {(s.lane, s.item) for s in loader.timeline.spans()} == {
        (lane, item) for lane in ("sample", "gather", "train") for item in (2, 3)
    }


def test_earlier_epochs_do_not_change_an_order(make: Callable[..., NodeLoader]) -> None:
    in_turn, jumping = make(), make()
    list(in_turn)
    second = digests(in_turn)
    list(jumping)
    jumping.set_epoch(5)
    fifth = digests(jumping)
    jumping.set_epoch(1)
    assert digests(jumping) == second
    in_turn.set_epoch(5)
    assert digests(in_turn) == fifth


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"prefetch": -1}, ValueError, "prefetch is -1"),
        ({"prefetch": 1.5}, TypeError, "prefetch is 1.5; it must be an integer"),
        ({"prefetch": True}, TypeError, "prefetch is True; it must be an integer"),
        ({"prefetch": 2**40}, ValueError, "prefetch is 1099511627776; it must be at most 65536"),
        ({"drop_last": None}, TypeError, "drop_last is None; it must be True or False"),
        ({"prioritize_loading": "no"}, TypeError, "prioritize_loading is 'no'; it must be True or False"),
        ({"seeds": SEEDS.to_sparse()}, ValueError, "seeds has the layout torch.sparse_coo; it must be dense"),
        ({"sampler": WalkSampler(3)}, TypeError, "sampler is a WalkSampler; it must be one of nodes"),
        ({"seed": 2**64}, ValueError, "seed is 18446744073709551616"),
        ({"stages": [FunctionStage("gather", abs)]}, ValueError, "stage 'gather' needs a name of its own"),
        ({"stages": [FunctionStage("a", abs)] * 2}, ValueError, "stage 'a' needs a name of its own"),
        ({"stages": [FunctionStage("move 2", abs)]}, ValueError, "stage 'move 2' needs a name of its own"),
        ({"stages": [FunctionStage("", abs)]}, ValueError, "stage '' needs a name of its own"),
        ({"seeds": SEEDS[:0]}, ValueError, "seeds is empty"),
        ({"seeds": torch.tensor([0, NUM_NODES])}, ValueError, "seeds holds node 200; valid ids are 0 to 199"),
        ({"seeds": torch.tensor([0, -5])}, ValueError, "seeds holds node -5"),
        ({"seeds": torch.tensor([4, 9, 1, 9])}, ValueError, "seeds holds node 9 more than once"),
        ({"features": torch.zeros(NUM_NODES - 1, 3)}, ValueError, "features has 199 rows, the graph 200"),
        ({"labels": torch.zeros(NUM_NODES + 1)}, ValueError, r"labels has shape \[201\], the graph 200"),
        ({"labels": [0] * NUM_NODES}, TypeError, "labels is a list"),
        (
            {"labels": torch.zeros(NUM_NODES, device="meta")},
            ValueError,
            "labels lies on meta; it must lie on cpu or cuda",
        ),
        ({"features": HostFeatures}, TypeError, r"features is the class HostFeatures; .* HostFeatures\(tensor\)"),
        ({"features": torch.ones(NUM_NODES, 3, requires_grad=True)}, ValueError, r"a gradient.*features\.detach\(\)"),
        (
            {"sampler": HopwiseSampler},
            TypeError,
            r"sampler is the class HopwiseSampler; .* HopwiseSampler\(\[10, 5\]\)",
        ),
        ({"labels": torch.eye(NUM_NODES).to_sparse()}, ValueError, r"labels has the layout torch.sparse_coo.*to_dense"),
        ({"features": np.zeros((NUM_NODES, 3))}, TypeError, r"features is an ndarray.*torch\.from_numpy"),
        ({"features": [[0.0]] * NUM_NODES}, TypeError, r"features is a list.*torch\.as_tensor"),
        ({"features": torch.eye(NUM_NODES).to_sparse()}, ValueError, "features has the layout torch.sparse_coo"),
        ({"edge_features": [0.0]}, TypeError, "edge_features is a list"),
        ({"graph": (SEEDS, SEEDS)}, TypeError, r"graph is a tuple; it must be a loader.Graph: Graph\.from_edges"),
        ({"shuffle": "no"}, TypeError, "shuffle is 'no'; it must be True or False"),
        ({"shufle": True}, TypeError, r"shufle is no option of NodeLoader; did you mean shuffle\?"),
        ({"num_workers": 4}, TypeError, "num_workers is no option of NodeLoader; threads of this process load ahead"),
        (
            {"pin_memory": True},
            TypeError,
            "pin_memory is no option of NodeLoader; the loader moves mini-batches itself",
        ),
        ({"collate_fn": len}, TypeError, "collate_fn is no option of NodeLoader; a stage changes mini-batches"),
        (
            {"num_neighbors": [5]},
            TypeError,
            "num_neighbors is no option of NodeLoader; the sampler has them: FusedSamp",
        ),
        ({"colour": "red"}, TypeError, "colour is no option of NodeLoader; it knows stages, shuffle"),
        ({"stores": {}}, TypeError, "stores is no option of NodeLoader"),
        ({"stages": 3}, TypeError, "stages is 3; it must be a list of loader.pipeline.Stage"),
        ({"stages": [abs]}, TypeError, "stages is .*; it must be a list of loader.pipeline.Stage"),
        ({"session": 3}, TypeError, "session is an int; it must be the session that sampler"),
        ({"seeds": SEEDS.to("meta")}, ValueError, "seeds lies on meta; it must lie on the CPU or on a GPU"),
        ({"seeds": torch.tensor([2**63], dtype=torch.uint64)}, ValueError, "9223372036854775808; it must fit int64"),
        ({"seeds": torch.arange(NUM_NODES) % 2}, ValueError, "seeds has .*, all of them 0 or 1, like a mask of dtype"),
        (
            {"graph": Graph(torch.tensor([0, 1]), torch.tensor([1]), num_src=3)},
            ValueError,
            "NodeLoader wants a graph of one set of nodes, this one has 1 dest",
        ),
        ({"device": "gpu"}, ValueError, "device is 'gpu'; it must be cpu, cuda or cuda:N"),
        (
            {"sampler": "fused"},
            TypeError,
            "sampler is 'fused'; it must be a loader.samplers.Sampler, e.g. FusedSampler",
        ),
        ({"device": "meta"}, ValueError, "device is 'meta'"),
        ({"seeds": torch.tensor([])}, ValueError, "seeds is empty; a loader needs at least one seed"),
        (
            {"seeds": SEEDS.float()},
            TypeError,
            r"seeds has dtype torch\.float32; it must be an .* type: seeds\.long\(\)",
        ),
        ({"seeds": SEEDS[:, None]}, ValueError, r"it must have 1 dimension: seeds\.view\(-1\)"),
        (
            {"features": torch.zeros(3, 1)},
            ValueError,
            "features has 3 rows, the graph .* nodes; give a row per node",
        ),
    ],
)
def test_bad_arguments_are_refused(
    make: Callable[..., NodeLoader], change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make(**change)

"""`memory` of a data module whose graph has types: what is refused, planned and placed, and that mini-batches stay."""

from __future__ import annotations

import copy
import dataclasses
import logging
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hetero_datasets import make_hetero
from marks import needs_gpu
from shop import write_shop

from loader.datamodules.nodes import GraphDataModule
from loader.datamodules.tasks import TaskDataModule
from loader.datasets import HeteroDataset, RelationalDataset
from loader.graph import HeteroGraph
from loader.memory import budget as memory_budget
from loader.memory.budget import MemoryBudget
from loader.memory.graph import GraphMemory
from loader.memory.hetero import SplitSeeds, locked_bytes, seeds_of_splits
from loader.memory.hetero_plan import HeteroPlan
from loader.memory.hetero_reads import HeteroReads
from loader.memory.plan_report import memory_card
from loader.samplers import FusedSampler, TreeSampler, fused
from loader.samplers import base as samplers_base
from loader.samplers.gpu.sizes import TOGETHER, GpuOptions
from loader.samplers.tree_options import TreeOptions
from loader.stores import CachedFeatures, HostFeatures, auto_features
from loader.stores.cached import cached_rows, hottest
from loader.stores.rows import RowFormat

GPU, FREE = torch.device("cuda", 0), 2**34


class OfGPU:
    """The options of a sampler on a GPU, where there is none: the process works on the CPU, so it samples there."""

    batches_per_launch = TOGETHER
    place = GPU

    @property
    def device(self) -> torch.device:
        return self.place

    def on(self: Any, device: torch.device) -> Any:
        moved = copy.copy(self)
        moved.place = device
        return moved

    def open(self: Any, graph: HeteroGraph) -> Any:
        return self.as_cpu().open(graph)


class FusedOfGPU(OfGPU, GpuOptions):
    picks = FusedSampler.picks

    def as_cpu(self) -> FusedSampler:
        return FusedSampler(self.fanouts, seed=self.seed, expand=self.expand)


class TreesOfGPU(OfGPU, TreeOptions):
    def as_cpu(self) -> TreeSampler:
        return TreeSampler(self.fanouts, seed=self.seed, times=self.times, trees=self.trees)


def timed_dataset() -> HeteroDataset:
    data = make_hetero()
    counts = {name: len(ids) for name, ids in data.graph.node_types.items()}
    edges = {}
    for key in data.graph.edge_types:
        places, rows = data.graph.entries(key)
        edges[key] = torch.stack([data.graph.lists.indices[places].long() - data.graph.node_types[key[0]].start, rows])
    times = {name: torch.arange(n) % 7 for name, n in counts.items()}
    return dataclasses.replace(data, graph=HeteroGraph.from_edges(edges, counts, node_times=times))


KINDS: dict[str, Any] = {
    "fused": lambda: (make_hetero(), FusedOfGPU([3, 3], seed=2)),
    "trees": lambda: (make_hetero(), TreesOfGPU([3, 3], seed=2, trees="paths")),
    "times": lambda: (timed_dataset(), TreesOfGPU([3, 3], seed=2, times="node")),
}


def seeds_of(data: HeteroDataset, sampler: Any) -> dict[str, SplitSeeds]:
    if not sampler.timed:
        return seeds_of_splits(data)
    times = data.graph.lists.node_times
    assert times is not None
    start = data.graph.node_types[data.target].start
    return {split: SplitSeeds(ids, times[ids + start], data.labels[ids]) for split, ids in data.splits.items()}


def plan_of(data: HeteroDataset, sampler: Any, memory: int = 2**40, options: Any = None, **more: Any) -> HeteroPlan:
    sizes = more.pop("sizes", (8, 8))
    samplers = [(sampler, size) for size in sizes]
    return MemoryBudget(memory, options or {}).plan_types(data, seeds_of(data, sampler), samplers, 2, 0, **more)


def module_of(data: HeteroDataset, sampler: Any, **options: Any) -> GraphDataModule:
    return GraphDataModule(data, sampler, **{"batch_size": 8, "prefetch": 2, **options})


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was placed: kinds of the graph and of stores, with the ids of cached rows. All of it lies in host memory."""
    found: list[Any] = []

    def place(self: GraphMemory, graph: HeteroGraph, *_: Any) -> HeteroGraph:
        found.append((self.kind, self.only_lists))
        return graph

    def open_rows(kind: str, tensor: Any, device: torch.device, *, cache: Any, context: Any, **_: Any) -> HostFeatures:
        count = cached_rows(RowFormat(tensor), cache["fraction"], None) if cache else 0
        found.append((kind, hottest(cache["hotness"], count, None).tolist() if cache else None, sorted(cache)))
        return HostFeatures(tensor, 1)

    monkeypatch.setattr(GraphMemory, "place", place)
    monkeypatch.setattr(memory_budget, "open_rows", open_rows)
    monkeypatch.setattr(memory_budget, "free_bytes", lambda device: FREE)
    monkeypatch.setattr(GraphDataModule, "device", GPU)
    monkeypatch.setattr("loader.datamodules.nodes._current", lambda device: torch.no_grad())
    return found


@pytest.fixture
def on_cpu(placed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The process works on the CPU, so that samplers and stores give mini-batches."""
    monkeypatch.setattr(GraphDataModule, "device", torch.device("cpu"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0, 0.2, 0.5, 1, 1.5])
def test_graph_and_rows_go_where_the_plan_says(
    placed: list[Any], caplog: pytest.LogCaptureFixture, kind: str, share: float
) -> None:
    data, sampler = KINDS[kind]()
    whole = plan_of(data, sampler)
    memory = whole.needs.total + int(share * (whole.nbytes - whole.needs.total))
    module = module_of(data, sampler, memory=memory / 2**30)
    with caplog.at_level(logging.INFO, "loader"):
        module.setup()
    plan, (graph, *stores) = module.memory_plan, placed
    assert isinstance(plan, HeteroPlan)
    assert graph == (plan.lists, True)
    for name, (where, ids, given) in zip(("author", "term"), stores, strict=True):
        kept = plan.split.rows[name]
        assert where == plan.rows[name]
        assert ids == (kept.tolist() if where == "cached" and kept is not None else None)
        assert given == (["fraction", "hotness"] if where == "cached" else [])
    assert plan.nbytes <= plan.budget == memory
    (record,) = [r for r in caplog.records if r.name == "loader.memory.budget"]
    assert record.getMessage() == str(plan)
    assert (plan.split.bus == 0) == (share >= 1)


def large_dataset() -> HeteroDataset:
    """Of which a part of a type's rows is kept."""
    g = torch.Generator().manual_seed(0)
    counts, hubs = {"a": 5000, "b": 3000}, torch.randint(60, (20_000,), generator=g)
    pairs = torch.stack([hubs**2 % 5000, torch.randint(3000, hubs.shape, generator=g)])
    graph = HeteroGraph.from_edges({("a", "to", "b"): pairs, ("b", "back", "a"): pairs.flip(0)}, counts)
    features = {name: torch.randn(n, 32, generator=g) for name, n in counts.items()}
    ids = torch.arange(3000)
    splits = {"train": ids[:1500], "val": ids[1500:2000], "test": ids[2000:]}
    return HeteroDataset("large", graph, features, "b", ids % 3, splits, num_classes=3)


def test_hot_rows_of_a_type_are_cached(placed: list[Any]) -> None:
    data, sampler = large_dataset(), FusedOfGPU([4, 4])
    needs = plan_of(data, sampler, sizes=(64, 64)).needs.total
    module = module_of(data, sampler, memory=(needs + 150_000) / 2**30, batch_size=64)
    module.setup()
    plan = module.memory_plan
    assert isinstance(plan, HeteroPlan)
    assert "cached" in plan.rows.values()
    for name, (where, ids, _) in zip(("a", "b"), placed[1:], strict=True):
        kept = plan.split.rows[name]
        assert kept is not None
        assert (where, ids or []) == (plan.rows[name], kept.tolist())
    # Sources of edges are few of type a, which mini-batches read again and again.
    kept = plan.split.rows["a"]
    assert kept is not None
    sources = set((torch.arange(60) ** 2 % 5000).tolist())
    assert set(kept[:20].tolist()) <= sources or sources <= set(kept.tolist())


def digests(module: GraphDataModule) -> list[str]:
    module.setup()
    found = [
        batch.digest() for loader in ("train", "val", "test") for batch in getattr(module, f"{loader}_dataloader")()
    ]
    module.close()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_mini_batches_do_not_depend_on_the_budget(on_cpu: None, kind: str) -> None:
    data, sampler = KINDS[kind]()
    expected = digests(module_of(data, sampler.as_cpu(), features=partial(HostFeatures, num_threads=1)))
    whole = plan_of(data, sampler)
    for share in (0, 0.5, 2):
        memory = whole.needs.total + int(share * (whole.nbytes - whole.needs.total))
        assert digests(module_of(data, sampler, memory=memory / 2**30)) == expected


def test_tasks_on_tables_have_a_plan(placed: list[Any], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")
    dataset = RelationalDataset(write_shop(tmp_path / "shop"), "again", cache_dir=tmp_path / "cache")
    module = TaskDataModule(dataset, TreesOfGPU([4, 4], times="both"), batch_size=32, prefetch=2, memory=1)
    module.setup()
    plan, data = module.memory_plan, module.data
    assert isinstance(plan, HeteroPlan)
    assert data is not None
    assert plan.rows == dict.fromkeys(data.features, "device")
    assert placed[0] == ("device", True)
    sizes = {split: module.items(split).ids.numel() for split in ("train", "val", "test")}
    # Of each seed its id, its time and its label: of validation twice, in two loaders.
    of_seeds = sum(sizes.values()) + sizes["val"]
    timed = data.graph.by_time("both")
    assert plan.needs.tables >= of_seeds * (4 + 8 + 4) + timed.ranks.nbytes + timed.values.nbytes


def test_lists_by_time_are_placed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, given = timed_dataset().graph, []

    def place(self: Any, **arrays: Any) -> Any:
        given.append((self, arrays))
        return copy.copy(self)

    timed = graph.by_time("node")
    monkeypatch.setattr(type(graph.lists), "place", place)
    sampler = TreesOfGPU([3], times="node")
    for kind, where in (("device", GPU), ("pinned", "pinned")):
        moved = GraphMemory(kind, only_lists=True).place(graph, sampler, GPU, lambda _: [])
        assert given.pop() == (timed.lists, {"indptr": where, "indices": where})
        assert moved.lists is graph.lists
        assert moved.by_time("node").lists is not timed.lists
        assert moved.by_time("node").ranks is timed.ranks
        assert graph.by_time("node") is timed


def test_inspect_shows_what_training_chooses(placed: list[Any]) -> None:
    data, sampler = make_hetero(), FusedOfGPU([3, 3])
    whole = plan_of(data, sampler, sizes=(8, 6))
    memory = (whole.needs.total + whole.nbytes) // 2
    plan = plan_of(data, sampler, memory, sizes=(8, 6))
    assert memory_card(memory, data, [3, 3], (8, 6), 2, 0) == plan.card()
    assert plan.card()["features"] == plan.rows


def test_rows_of_8_bits_take_what_they_take() -> None:
    data, sampler = large_dataset(), FusedOfGPU([4, 4])
    whole = plan_of(data, sampler, sizes=(64, 64))
    memory = whole.needs.total + 150_000
    plain, eight = (
        plan_of(data, sampler, memory, options, sizes=(64, 64)) for options in ({}, {"storage_dtype": "int8"})
    )
    assert eight.nbytes <= eight.budget
    assert eight.needs.tables == plain.needs.tables + 2 * 512  # scales of 32 columns of each type
    assert sum(eight.shares.values()) > 2 * sum(plain.shares.values())
    halves = plan_of(data, sampler, memory, {"storage_dtype": "float16", "dtype": "float32"}, sizes=(64, 64))
    assert halves.needs == plain.needs
    assert sum(plain.shares.values()) < sum(halves.shares.values()) < sum(eight.shares.values())


def test_without_validation_one_loader_counts() -> None:
    data, sampler = KINDS["fused"]()
    with_val = plan_of(data, sampler).needs
    data = dataclasses.replace(data, splits={**data.splits, "val": data.splits["val"][:0]})
    needs = plan_of(data, sampler).needs
    assert needs.outstanding_rows < with_val.outstanding_rows
    assert needs.outstanding < with_val.outstanding
    assert needs.workspace == with_val.workspace


def test_a_type_without_features_has_no_rows() -> None:
    data, sampler = KINDS["fused"]()
    data = dataclasses.replace(data, features={})
    plan = plan_of(data, sampler)
    assert (plan.rows, plan.lists, plan.needs.outstanding_rows) == ({}, "device", 0)


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (FusedOfGPU([4, -1]), "fanout -1 has none; leave one of them out"),
        (FusedOfGPU([4], labor=True), "labor=True has none"),
        (TreesOfGPU([4, -1], times="node"), "fanout -1 has none"),
        (TreesOfGPU([4], weights="edge_weights"), "memory counts no tables of weights"),
        (TreeSampler([4]), "memory is that of a GPU, but TreeSampler runs on the CPU; leave memory out"),
    ],
)
def test_samplers_without_a_bound_are_refused(sampler: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        module_of(make_hetero(), sampler, memory=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (0, "memory is 0 B, less than the .* that training needs: .* for the sampler's workspace, .* in flight"),
        (17, r"memory is 17.00 GiB, more than the 16.00 GiB that are free on the GPU; give at most that, or 'auto'"),
    ],
)
def test_a_budget_is_refused_before_anything_is_read(
    placed: list[Any], monkeypatch: pytest.MonkeyPatch, kind: str, memory: float, message: str
) -> None:
    def read(*_: Any, **__: Any) -> None:
        raise AssertionError("something was read")

    monkeypatch.setattr(HeteroReads, "of", read)
    data, sampler = KINDS[kind]()
    module = module_of(data, sampler, memory=memory)
    with pytest.raises(ValueError, match=message) as raised:
        module.setup()
    assert "\n" not in str(raised.value)
    assert placed == []


def hopwise() -> FusedOfGPU:
    sampler = FusedOfGPU([3, 3])
    sampler.schedule = "hopwise"
    return sampler


@pytest.mark.parametrize(
    ("samplers", "message"),
    [
        ((hopwise(), None), "schedule is 'hopwise'; a HeteroGraph is sampled by one launch"),
        (
            (TreesOfGPU([3], times="node"), TreesOfGPU([3], times="node", missing_times="always")),
            "sampler and eval_sampler read the lists by times .*; give both the same times and missing_times",
        ),
        ((TreesOfGPU([99] * 8, trees="paths"), None), "memory counts all that fanouts allow, and 8 trees may have"),
    ],
)
def test_what_types_cannot_have_is_refused(placed: list[Any], samplers: Any, message: str) -> None:
    sampler, other = samplers
    data = timed_dataset()
    if sampler.fanouts == (99,) * 8:  # whose lists have to be long
        pairs = torch.randint(60, (2, 9000), generator=torch.Generator().manual_seed(0))
        graph = HeteroGraph.from_edges({("author", "knows", "author"): pairs}, {"author": 60})
        data = dataclasses.replace(data, graph=graph, features={"author": data.features["author"]})
    module = module_of(data, sampler, eval_sampler=other, memory=1)
    with pytest.raises(ValueError, match=message) as raised:
        module.setup()
    assert "\n" not in str(raised.value)
    assert placed == []


def test_rows_that_must_not_be_locked_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data, sampler = KINDS["fused"]()
    needs = plan_of(data, sampler).needs.total
    asked = []

    def may_lock(nbytes: int) -> bool:
        asked.append(nbytes)
        return nbytes == 0

    monkeypatch.setattr(memory_budget, "may_lock", may_lock)
    with pytest.raises(ValueError, match=r"each process would page-lock .* of lists and rows, more than half"):
        plan_of(data, sampler, needs)
    lists = data.graph.lists
    assert lists.edge_ids is not None
    arrays = [lists.indptr, lists.indices, lists.edge_ids, *data.features.values()]
    assert asked == [sum(array.nbytes for array in arrays)]
    assert plan_of(data, sampler).lists == "device"
    assert asked[-1] == 0


@pytest.mark.parametrize("timed", [True, False])
def test_lists_by_time_lock_themselves_alone(timed: bool) -> None:
    data = timed_dataset()
    lists, pinned = data.graph.lists, SimpleNamespace(lists="pinned", rows={})
    assert lists.node_times is not None
    of_lists = lists.indptr.nbytes + lists.indices.nbytes
    locked = locked_bytes(cast(HeteroPlan, pinned), data, {}, timed)
    assert locked == of_lists if timed else locked >= of_lists + lists.node_times.nbytes


def test_ignored_times_are_told_of_the_named_sampler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(samplers_base, "_warned_of_times", False)
    with caplog.at_level(logging.WARNING):
        plan_of(timed_dataset(), FusedOfGPU([3, 2]))
    (told,) = (line for line in caplog.messages if "ignores the times" in line)
    assert told.startswith("FusedOfGPU ")


def test_features_of_one_place_are_refused() -> None:
    for features in (HostFeatures, partial(CachedFeatures, fraction=0.5)):
        with pytest.raises(
            ValueError, match=r"memory and features=\w+ are given, and memory decides where the rows lie"
        ):
            module_of(make_hetero(), FusedOfGPU([3]), memory=1, features=features)


def test_options_of_rows_go_to_each_store(placed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def open_rows(kind: str, tensor: Any, device: torch.device, **options: Any) -> HostFeatures:
        given.append((kind, device, options["dtype"]))
        return HostFeatures(tensor, 1)

    monkeypatch.setattr(memory_budget, "open_rows", open_rows)
    module = module_of(make_hetero(), FusedOfGPU([3]), memory=1, features=partial(auto_features, dtype="float16"))
    module.setup()
    assert given == [("device", GPU, "float16")] * 2


class TestGPU:
    pytestmark = needs_gpu

    @staticmethod
    def sampler_of(kind: str) -> Any:
        if kind == "fused":
            return fused([4, 3], device="cuda")
        return TreeSampler([4, 3], times="node" if kind == "times" else "none", device="cuda", batches_per_launch=8)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("share", [0, 0.5, 2])
    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_batches_are_the_cpus_and_fit(self, kind: str, share: float, prefetch: int) -> None:
        data, sampler = timed_dataset() if kind == "times" else large_dataset(), self.sampler_of(kind)
        size = 8 if kind == "times" else 64
        on_cpu: Any = FusedSampler([4, 3]) if kind == "fused" else TreeSampler([4, 3], times=sampler.times)
        expected = digests(module_of(data, on_cpu, features=HostFeatures, batch_size=size))
        samplers, seeds = [(sampler, size), (sampler, size)], seeds_of(data, sampler)
        whole = MemoryBudget(2**40, {}).plan_types(data, seeds, samplers, prefetch, 0)
        memory = whole.needs.total + int(share * (whole.nbytes - whole.needs.total))
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        module = module_of(data, sampler, memory=memory / 2**30, prefetch=prefetch, batch_size=size)
        module.setup()
        plan = module.memory_plan
        assert isinstance(plan, HeteroPlan)
        for epoch in range(5):
            train = module.train_dataloader()
            train.set_epoch(epoch)
            half = iter(train)  # amid an epoch
            next(half)
            for batch in module.val_dataloader():
                assert batch.batch_size
            del half
            for loader in (train, module.test_dataloader()):
                for batch in loader:
                    assert batch.batch_size
        torch.cuda.synchronize()
        assert torch.cuda.max_memory_allocated() - before <= plan.nbytes <= plan.budget
        module.close()
        sampler = self.sampler_of(kind)  # the other was closed with its module
        again = module_of(data, sampler, memory=memory / 2**30, prefetch=prefetch, batch_size=size)
        assert digests(again) == expected

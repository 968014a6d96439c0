"""`memory` of a data module: what is refused, what is planned and placed, and on a GPU the same bytes in its bounds."""

from __future__ import annotations

import dataclasses
import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from marks import needs_gpu
from small_datamodule import Recorder, lines, make_datamodule, make_dataset, make_trainer

from loader.datamodules.nodes import GraphDataModule
from loader.datasets import NodeDataset
from loader.graph import Graph
from loader.memory import budget as memory_budget
from loader.memory.budget import MemoryBudget, available_bytes
from loader.memory.graph import GraphMemory
from loader.memory.plan import MemoryPlan
from loader.memory.plan_report import memory_card
from loader.memory.split import Reads
from loader.samplers import FusedSampler, WalkSampler, fused
from loader.samplers.gpu.sizes import TOGETHER, GpuOptions
from loader.stores import CachedFeatures, HostFeatures, auto_features
from loader.stores.cached import cached_rows, hottest
from loader.stores.host_part import gpu_bytes
from loader.stores.rows import RowFormat

GPU = torch.device("cuda", 0)
FREE = 2**34


class SamplerOfGPU(GpuOptions):
    """The options of a sampler on a GPU, where there is none."""

    batches_per_launch = TOGETHER

    @property
    def device(self) -> torch.device:
        return GPU

    def open(self, graph: Graph) -> Any:
        raise AssertionError("nothing is sampled here")


def without_gpu(**changes: Any) -> GraphDataModule:
    return make_datamodule(**{"sampler": SamplerOfGPU([4, 3]), "features": None, **changes})


def needed(sampler: GpuOptions, prefetch: int = 2) -> tuple[int, int]:
    """Bytes of a data module whatever is kept, and of what may be kept."""
    data = make_dataset()
    plan = MemoryBudget(2**40, {}).plan(data, [(sampler, 15), (sampler, 15)], prefetch, 0)
    return plan.needs.total, plan.nbytes - plan.needs.total


def large_dataset() -> NodeDataset:
    """Its arrays, and those of its mini-batches, take mebibytes."""
    g = torch.Generator().manual_seed(1)
    n = 100_000
    graph = Graph.from_edges(*torch.randint(n, (2, 2_000_000), generator=g), n)
    train, val, test = (ids.sort().values for ids in torch.randperm(n, generator=g)[:30_000].split(10_000))
    splits = {"train": train, "val": val, "test": test}
    return NodeDataset("large", graph, torch.randn(n, 64, generator=g), torch.arange(n) % 4, splits, num_classes=4)


@pytest.fixture
def no_gpu_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "free_bytes", lambda device: FREE)
    monkeypatch.setattr(GraphDataModule, "device", GPU)
    monkeypatch.setattr("loader.datamodules.nodes._current", lambda device: torch.no_grad())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory": -1}, "memory is -1; it must be 'auto', or a finite number of GiB from 0 on"),
        ({"memory": "all"}, "memory is 'all'; it must be 'auto', or a number of GiB"),
        ({"graph": "device"}, "memory and graph='device' are given, and memory decides where the graph lies; give one"),
        ({"features": HostFeatures}, "memory and features=HostFeatures are given"),
        ({"features": partial(CachedFeatures, fraction=0.5)}, "memory and features=CachedFeatures are given"),
        ({"features": partial(auto_features, gpu_share=0.7)}, "memory and gpu_share=0.7 are given"),
        ({"features": partial(auto_features, device="cpu")}, "memory is that of a GPU, but features has device='cpu'"),
        ({"features": partial(auto_features, num_threads=3)}, "memory and num_threads=3 of features are given"),
        ({"edge_features": torch.zeros(1500, 2)}, "memory counts no rows of edges"),
        ({"sampler": FusedSampler([4, 3])}, "but FusedSampler runs on the CPU; leave memory out"),
        ({"eval_sampler": FusedSampler([4, 3])}, "but FusedSampler runs on the CPU; leave memory out"),
        ({"sampler": SamplerOfGPU([4, -1])}, "fanout -1 has none"),
        ({"eval_sampler": SamplerOfGPU([4, 3], labor=True)}, "labor=True has none"),
    ],
)
def test_what_memory_does_not_go_with(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        without_gpu(**{"memory": 1, **changes})


def test_a_flag_is_no_memory() -> None:
    with pytest.raises(TypeError, match="memory is True; it must be a number"):
        without_gpu(memory=True)


def test_walks_have_no_memory() -> None:
    samplers = [WalkSampler(4)]
    with pytest.raises(ValueError, match="but WalkSampler runs on the CPU"):
        MemoryBudget.checked(1, "auto", None, None, samplers)


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (0, "memory is 0 B, less than the .* MiB that training needs: .* for the sampler's workspace, .* in flight"),
        (0.02, "memory is 20.48 MiB, less than the .* MiB that training needs"),
        (17, r"memory is 17.00 GiB, more than the 16.00 GiB that are free on the GPU; give at most that, or 'auto'"),
    ],
)
def test_a_budget_is_refused_before_anything_is_read(
    no_gpu_needed: None, monkeypatch: pytest.MonkeyPatch, memory: float, message: str
) -> None:
    def read(*_: Any, **__: Any) -> None:
        raise AssertionError("something was read")

    for where, name in ((Reads, "of"), (GraphMemory, "place"), (memory_budget, "open_rows")):
        monkeypatch.setattr(where, name, read)
    datamodule = without_gpu(memory=memory)
    with pytest.raises(ValueError, match=message) as raised:
        datamodule.setup()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("share", [0, 0.2, 0.5, 1, 1.5])
def test_lists_and_rows_go_where_the_plan_says(
    no_gpu_needed: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, share: float
) -> None:
    placed: list[Any] = []

    def place(self: GraphMemory, graph: Graph, *_: Any) -> Graph:
        placed.append((self.kind, self.nodes))
        return graph

    def open_rows(kind: str, tensor: Any, device: torch.device, *, cache: Any, context: Any, **_: Any) -> HostFeatures:
        count = cached_rows(RowFormat(tensor), cache["fraction"], None) if cache else 0
        placed.append((kind, hottest(cache["hotness"], count, None) if cache else None))
        assert device == GPU
        return HostFeatures(tensor, 1)

    monkeypatch.setattr(GraphMemory, "place", place)
    monkeypatch.setattr(memory_budget, "open_rows", open_rows)
    needs, data = needed(SamplerOfGPU([4, 3]))
    datamodule = without_gpu(memory=(needs + int(share * data)) / 2**30)
    with caplog.at_level(logging.INFO, "loader"):
        datamodule.setup()
    plan = datamodule.memory_plan
    assert plan is not None
    (lists, nodes), (rows, ids) = placed
    assert (lists, rows) == (plan.lists, plan.rows)
    for kept, found in ((plan.split.lists, nodes), (plan.split.rows, ids)):
        assert (kept is None) == (found is None) or not kept.numel()
        assert kept is None or not kept.numel() or torch.equal(kept, found)
    assert plan.nbytes <= plan.budget
    (record,) = [r for r in caplog.records if r.name == "loader.memory.budget"]
    assert record.getMessage() == str(plan)
    assert (plan.split.bus == 0) == (share >= 1.5)


@given(count=st.integers(1, 10**9), data=st.data())
def test_a_share_of_rows_is_that_many(count: int, data: st.DataObject) -> None:
    kept = data.draw(st.integers(0, count))
    assert int(min(1.0, (kept + 0.5) / count) * count) == kept


def test_inspect_shows_what_training_chooses(no_gpu_needed: None) -> None:
    data, sampler = make_dataset(), SamplerOfGPU([4, 3])
    needs, more = needed(sampler)
    memory = needs + more // 2
    plan = MemoryBudget(memory, {}).plan(data, [(sampler, 15), (sampler, 12)], 2, 0)
    assert memory_card(memory, data, [4, 3], (15, 12), 2, 0) == plan.card()
    assert str(plan) == str(MemoryBudget(memory, {}).plan(data, [(sampler, 15), (sampler, 12)], 2, 0))


def test_large_tables_have_room_for_host_threads(no_gpu_needed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[dict[str, Any]] = []

    def open_rows(kind: str, tensor: Any, device: torch.device, *, cache: Any, context: Any, **_: Any) -> HostFeatures:
        options.append(cache)
        return HostFeatures(tensor, 1)

    monkeypatch.setattr(GraphMemory, "place", lambda self, graph, *_: graph)
    monkeypatch.setattr(memory_budget, "open_rows", open_rows)
    sampler = SamplerOfGPU([4, 3])
    without, more = needed(sampler)
    before = memory_card(without, make_dataset(), [4, 3], (15, 15), 2, 0)["needs"]
    monkeypatch.setattr("loader.stores.cached.LARGE_TABLE_BYTES", 0)
    needs, same = needed(sampler)
    data = make_dataset()
    rows = RowFormat(data.features)
    assert same == more
    assert gpu_bytes(rows, 1) < needs - without
    datamodule = without_gpu(memory=(needs + more // 2) / 2**30)
    datamodule.setup()
    assert datamodule.memory_plan is not None
    assert datamodule.memory_plan.rows == "cached"
    assert [cache["host_threads"] for cache in options] == [None]
    card = memory_card(needs + more // 2, data, [4, 3], (15, 15), 2, 0)
    # Each of two loaders begins a gather ahead: 12 mini-batches have rows in place of 10.
    assert card["needs"]["outstanding_rows"] * 10 == before["outstanding_rows"] * 12
    assert card["needs"]["outstanding"] > before["outstanding"]
    added = sum(card["needs"][part] - before[part] for part in ("host_part", "outstanding_rows", "outstanding"))
    assert added == needs - without


def plan_of(data: NodeDataset, share: float, options: Any = None, prefetch: int = 2) -> MemoryPlan:
    """The plan with this share of what may be kept, but for what a lookahead takes."""
    sampler = SamplerOfGPU([10, 5])
    samplers: list[Any] = [(sampler, 1024), (sampler, 1024)]
    whole = MemoryBudget(2**40, options or {}).plan(data, samplers, prefetch, 0)
    memory = whole.needs.total + int(share * (whole.nbytes - whole.needs.total))
    return MemoryBudget(memory, options or {}).plan(data, samplers, prefetch, 0)


def test_a_cache_of_some_mini_batches_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = large_dataset()
    plan = plan_of(data, 0.6)
    assert (plan.rows, plan.lookahead) == ("cached", 8)
    assert plan.nbytes <= plan.budget
    assert plan.card()["lookahead"] == 8
    assert [plan_of(data, share).lookahead for share in (0, 1)] == [0, 0]
    assert plan_of(data, 0.6, prefetch=0).lookahead == 0
    assert plan_of(data, 0.6, {"storage_dtype": "float16", "dtype": "float32"}).lookahead == 0
    assert plan_of(data, 0.7, {"storage_dtype": "float16", "dtype": "float16"}).lookahead == 8
    for name, bound in (("_LEAST_RENEWED", 2.0), ("_MOST_RENEWED", 0.4)):
        with monkeypatch.context() as patch:
            patch.setattr(memory_budget, name, bound)
            assert plan_of(data, 0.6).lookahead == 0
    monkeypatch.setattr("loader.stores.cached.LARGE_TABLE_BYTES", 0)  # threads of the host help
    assert plan_of(data, 0.6).lookahead == 0


def test_rows_of_8_bits_take_what_they_take() -> None:
    data = large_dataset()
    whole = plan_of(data, 0.3)
    assert whole.narrower is not None
    samplers: list[Any] = [(SamplerOfGPU([10, 5]), 1024)] * 2
    eight = MemoryBudget(whole.budget, {"storage_dtype": "int8"}).plan(data, samplers, 2, 0)
    assert eight.narrower is None
    assert eight.nbytes <= eight.budget
    assert eight.needs.tables == whole.needs.tables + 512  # scales of 64 columns, as torch's allocator counts them
    assert eight.split.row_bytes == pytest.approx(64 * eight.share_of_rows * data.num_nodes)
    assert eight.share_of_rows > 2 * whole.share_of_rows
    assert whole.narrower.storage_dtype == "int8"
    assert whole.narrower.share_of_rows == pytest.approx(eight.share_of_rows, rel=0.05)
    assert whole.narrower.bus == pytest.approx(eight.split.bus, rel=0.05)
    assert f"; features.storage_dtype=int8 would keep {whole.narrower.share_of_rows:.1%} of the rows" in str(whole)
    data.features.mul_(torch.logspace(-3, 3, data.num_nodes)[:, None])  # a scale for each row
    by_row = MemoryBudget(whole.budget, {"storage_dtype": "int8"}).plan(data, samplers, 2, 0)
    assert by_row.needs.tables - eight.needs.tables >= 4 * data.num_nodes - 512


def test_rows_that_must_not_be_locked_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "may_lock", lambda nbytes: nbytes == 0)
    sampler = SamplerOfGPU([4, 3])
    needs, _ = needed(sampler)
    with pytest.raises(ValueError, match=r"each process would page-lock .* of lists and rows, more than half"):
        MemoryBudget(needs, {}).plan(make_dataset(), [(sampler, 15), (sampler, 15)], 2, 0)
    assert MemoryBudget(2**40, {}).plan(make_dataset(), [(sampler, 15), (sampler, 15)], 2, 0).rows == "device"


def test_without_validation_one_loader_counts(no_gpu_needed: None) -> None:
    data = make_dataset()
    with_val = memory_card(2**40, data, [4, 3], (15, 15), 2, 0)["needs"]
    splits = {**data.splits, "val": data.splits["val"][:0]}
    data = dataclasses.replace(data, splits=splits)
    needs = memory_card(2**40, data, [4, 3], (15, 15), 2, 0)["needs"]
    assert needs["outstanding_rows"] < with_val["outstanding_rows"]
    assert needs["outstanding"] < with_val["outstanding"]
    assert needs["workspace"] == with_val["workspace"]


def test_auto_leaves_room_for_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "free_bytes", lambda device: FREE)
    model = torch.nn.Linear(1000, 1000, bias=False)
    assert available_bytes(10, GPU, model) == FREE
    assert available_bytes("auto", GPU, None) == int(0.75 * FREE)
    assert available_bytes("auto", GPU, model) == int(0.75 * (FREE - 16_000_000))
    monkeypatch.setattr(memory_budget, "free_bytes", lambda device: 1000)
    assert available_bytes("auto", GPU, model) == 0


class TestOnGPU:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 2])
    def test_training_sees_the_cpus_batches(self, tmp_path: Path, share: float) -> None:
        sampler = fused([4, 3], device="cuda")
        needs, more = needed(sampler)
        logs = []
        for device in ("cpu", "gpu"):
            options: dict[str, Any] = {}
            if device == "gpu":
                options = {"sampler": sampler, "features": None, "memory": (needs + int(share * more)) / 2**30}
            datamodule = make_datamodule(**options)
            logs.append(tmp_path / device)
            make_trainer(tmp_path, max_epochs=2, accelerator=device, devices=1).fit(
                Recorder(logs[-1]), datamodule=datamodule
            )
            if device == "gpu":
                plan = datamodule.memory_plan
                if share in (0, 2):
                    assert (plan.lists, plan.rows) == (("device", "device") if share else ("pinned", "pinned"))
                    assert (plan.split.bus == 0) == (share == 2)
            datamodule.close()
        assert lines(logs[0]) == lines(logs[1])
        assert lines(logs[0], "val") == lines(logs[1], "val")

    @pytest.mark.parametrize("share", [0, 0.5, 2])
    @pytest.mark.parametrize(
        ("prefetch", "large", "helped"), [(0, False, False), (2, False, False), (2, True, False), (2, True, True)]
    )
    @pytest.mark.parametrize("val", [True, False])
    def test_memory_stays_in_the_budget(
        self, monkeypatch: pytest.MonkeyPatch, share: float, prefetch: int, large: bool, helped: bool, val: bool
    ) -> None:
        if helped:  # by threads of the host, however small the table is
            monkeypatch.setattr("loader.stores.cached.LARGE_TABLE_BYTES", 0)
            monkeypatch.setattr("loader.stores.cached.available_cpus", lambda: 4)
            monkeypatch.setattr("loader.stores.host_part._LEAST_IDS", 1)
        data, size = (large_dataset(), 1024) if large else (make_dataset(), 15)
        if not val:
            data = dataclasses.replace(data, splits={**data.splits, "val": data.splits["val"][:0]})
        sampler = fused([10, 5] if large else [4, 3], device="cuda")
        whole = MemoryBudget(2**40, {}).plan(data, [(sampler, size), (sampler, size)], prefetch, 0)
        needs, more = whole.needs.total, whole.nbytes - whole.needs.total
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        memory = (needs + int(share * more)) / 2**30
        options = {"sampler": sampler, "features": None, "memory": memory, "prefetch": prefetch}
        datamodule = make_datamodule(dataset=data, batch_size=size, **options)
        datamodule.setup()
        assert getattr(datamodule.features, "host_threads", 0) == (4 if helped and share == 0.5 else 0)
        renewed = share == 0.5 and large and prefetch and not helped
        assert getattr(datamodule.features, "lookahead", 0) == (8 if renewed else 0)
        for epoch in range(20):
            train = datamodule.train_dataloader()
            train.set_epoch(epoch)
            if val:  # amid an epoch
                half = iter(train)
                next(half)
                for batch in datamodule.val_dataloader():
                    assert batch.batch_size
                del half
            for loader in (train, datamodule.test_dataloader()):
                for batch in loader:
                    assert batch.batch_size
        torch.cuda.synchronize()
        assert datamodule.memory_plan is not None
        assert torch.cuda.max_memory_allocated() - before <= datamodule.memory_plan.nbytes
        assert datamodule.memory_plan.nbytes <= datamodule.memory_plan.budget
        datamodule.close()

    def test_a_budget_beyond_the_card_is_refused(self) -> None:
        datamodule = make_datamodule(sampler=fused([4, 3], device="cuda"), features=None, memory=10**6)
        with pytest.raises(ValueError, match="that are free on the GPU; give at most that, or 'auto'"):
            datamodule.setup()

    def test_auto_keeps_a_small_graph_whole(self) -> None:
        datamodule = make_datamodule(sampler=fused([4, 3], device="cuda"), features=None, memory="auto")
        datamodule.setup()
        assert datamodule.memory_plan is not None
        assert (datamodule.memory_plan.lists, datamodule.memory_plan.rows) == ("device", "device")
        datamodule.close()

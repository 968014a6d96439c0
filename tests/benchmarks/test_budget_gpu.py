"""The benchmark of budgets of GPU memory, as far as it runs without a GPU, and its tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _bus
import budget_gpu
import pipeline_gpu
import pytest
import torch
from _report_aims import memory_held, papers, papers_ratio, within_bound
from _report_rows import budgets

from loader.datamodules.nodes import GraphDataModule
from loader.graph import Graph
from loader.memory import budget as memory_budget
from loader.memory.graph import GraphMemory
from loader.samplers.gpu.sizes import GpuOptions
from loader.stores import HostFeatures

GPU = torch.device("cuda", 0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[budget_gpu.Shape]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # small things, which more threads make slower where others work
    shape = budget_gpu.Shape(2000, 30_000, 8, 3, 100, (None, "25 %", "1 GiB"), 2)
    for name, value in {"SHAPES": {"products": shape}, "BATCH_SIZE": 32, "WARM_UP": 2, "ALONE": 2}.items():
        monkeypatch.setattr(budget_gpu, name, value)
    monkeypatch.setattr(pipeline_gpu, "HIDDEN", 8)
    yield shape
    torch.set_num_threads(before)


def test_a_run_without_a_gpu(small: budget_gpu.Shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.json"
    monkeypatch.setattr(
        sys, "argv", ["budget_gpu.py", "--device", "cpu", "--epochs", "1", "--shapes", "products", "--out", str(out)]
    )
    budget_gpu.main()
    result = json.loads(out.read_text())
    rows = result["shapes"]["products"]["rows"]
    assert [row["budget"] for row in rows] == [None, "25 %", "1 GiB"]
    assert all(row["batches"] == 3 and row["epoch_s"] > 0 and row["rows_read"] > 96 for row in rows)
    needs = result["shapes"]["products"]["needs_bytes"]
    assert rows[1]["budget_bytes"] == needs + (4 * 2001 + 4 * 30_000 + 4 * 8 * 2000) // 4
    assert rows[1]["plan"]["needed_bytes"] == needs
    assert rows[2]["plan"]["bus_bytes_a_batch"] == 0
    assert sum(line.startswith("| ") for line in budgets(result)) == 4
    assert max(memory_held(result)) <= 1
    assert papers(result) == papers_ratio(result) == []
    assert within_bound("25 %", 2, 60)(result) == ("not measured", False)  # lines are counted on a GPU


def test_an_epoch_is_judged_by_its_lines() -> None:
    result = json.loads((budget_gpu.RESULTS / "budget_gpu.json").read_text())
    row = next(row for row in result["shapes"]["products"]["rows"] if row["budget"] == "10 %")
    assert row["lines_s"] == pytest.approx((row["row_lines"] + row["list_lines"]) * 128 / row["copy_rate"])
    for over, met in ((row["over_lines"] + 1e-6, True), (row["over_lines"] - 1e-6, False)):
        assert within_bound("10 %", over, row["epoch_s"])(result)[1] is met
    assert not within_bound("10 %", 2, row["epoch_s"] - 1e-6)(result)[1]
    (line,) = [line for line in budgets(result) if line.startswith("| 10 % | ")]
    assert f"| {row['over_lines']:.2f}x |" in line


@pytest.mark.parametrize("row_bytes", [128, 260, 400, 512])
def test_lines_of_rows_are_counted_once(row_bytes: int) -> None:
    ids = torch.randperm(500, generator=torch.Generator().manual_seed(row_bytes))[:200]
    touched = {byte // 128 for i in ids.tolist() for byte in range(i * row_bytes, (i + 1) * row_bytes)}
    assert _bus.lines_of_rows(ids.int(), row_bytes) == len(touched)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_lines_of_lists_are_counted_once(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    picks = [torch.randint(3000, (n,), generator=generator) for n in (0, 40, 500)]
    touched = {edge * dtype.itemsize // 128 for some in picks for edge in some.tolist()}
    assert _bus.lines_of((some.int() for some in picks), dtype.itemsize) == len(touched)


def test_too_small_a_budget_is_a_row(small: budget_gpu.Shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.json"
    words = ["--device", "cpu", "--shapes", "products", "--budgets", "0.001 GiB", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["budget_gpu.py", *words])
    budget_gpu.main()
    (row,) = json.loads(out.read_text())["shapes"]["products"]["rows"]
    assert "less than the" in row["refused"]
    assert any("refused: memory is" in line for line in budgets(json.loads(out.read_text())))


class SamplerOfGPU(GpuOptions):
    """The options of a sampler on a GPU, where there is none."""

    def __init__(self, fanouts: Any, *, device: torch.device) -> None:
        super().__init__(fanouts)
        self.batches_per_launch = budget_gpu.TOGETHER

    @property
    def device(self) -> torch.device:
        return GPU

    def open(self, graph: Graph) -> Any:
        raise AssertionError("nothing is sampled here")


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
def test_a_budget_is_given_to_the_data_module(
    small: budget_gpu.Shape, monkeypatch: pytest.MonkeyPatch, stored: str
) -> None:
    monkeypatch.setattr(memory_budget, "free_bytes", lambda device: 2**34)
    monkeypatch.setattr(GraphDataModule, "device", GPU)
    monkeypatch.setattr("loader.datamodules.nodes._current", lambda device: torch.no_grad())
    monkeypatch.setattr(budget_gpu, "fused", SamplerOfGPU)
    monkeypatch.setattr(GraphMemory, "place", lambda self, graph, *_: graph)
    opened: list[Any] = []
    monkeypatch.setattr(
        memory_budget, "open_rows", lambda *a, **options: opened.append((a, options)) or HostFeatures(a[1])
    )
    locked = budget_gpu.Locked()
    data = budget_gpu.draw("products", small, torch.device("cpu"), locked, budget_gpu.Log())
    options: Any = {"storage_dtype": stored, "dtype": "float32"}
    whole = budget_gpu.plan_of(data, 2**50, options)
    row_bytes = 8 * getattr(torch, stored).itemsize
    budget = budget_gpu.budget_bytes("25 %", whole.needs.total, data, row_bytes)
    datamodule = budget_gpu.make(data, budget, torch.device("cuda"), options)
    datamodule.setup()
    assert datamodule.memory_plan is not None
    assert budget is not None
    assert datamodule.memory_plan.card() == budget_gpu.plan_of(data, budget, options).card()
    (((kind, _, device), given),) = opened
    assert (kind, device, given["storage_dtype"]) == (datamodule.memory_plan.rows, GPU, stored)
    without = budget_gpu.make(data, None, torch.device("cuda"), options)
    assert (without.graph_memory.kind, without.memory_plan) == ("device", None)

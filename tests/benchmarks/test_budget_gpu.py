"""The benchmark of budgets of GPU memory, as far as it runs without a GPU, and its tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import budget_gpu
import pipeline_gpu
import pytest
import torch
from _report_budget import memory_held, papers_budget, papers_epoch, tables, within_bound

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
    assert sum(line.startswith("| ") for line in tables(result)) == 4
    for judge in (within_bound("25 %", float("inf"), float("inf")), memory_held):
        assert judge(result)[1]
    for judge in (papers_epoch, papers_budget, within_bound("10 %", 2, 60)):
        assert judge(result) == ("not measured", False)


def test_too_small_a_budget_is_a_row(small: budget_gpu.Shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.json"
    words = ["--device", "cpu", "--shapes", "products", "--budgets", "0.001 GiB", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["budget_gpu.py", *words])
    budget_gpu.main()
    (row,) = json.loads(out.read_text())["shapes"]["products"]["rows"]
    assert "less than the" in row["refused"]
    assert any("refused: memory is" in line for line in tables(json.loads(out.read_text())))


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

"""The benchmark of R-GAT, as it runs without a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import rgat_gpu
import torch

OPTIONS = "--device cpu --scale 0.0002 --batches 2 --batch-size 8 --fanouts 3,2,2 --steps 2 --rounds 1 --json"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def measured(*more: str) -> dict[str, Any]:
        path = tmp_path / "rgat.json"
        monkeypatch.setattr(sys, "argv", ["rgat_gpu.py", *OPTIONS.split(), str(path), *more])
        rgat_gpu.main()
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    return measured


def test_every_row_is_written(run: Any) -> None:
    pytest.importorskip("torch_geometric")
    found = run()
    assert [row["by"] for row in found["rows"]] == ["ours", "loading alone", "torch_geometric"]
    assert found["gpu"] is None
    assert found["seeds"] == 1200
    assert all(row[name] > 0 for row, name in zip(found["rows"], ("epoch_ms", "loading_ms", "slower_by"), strict=True))


def test_a_row_without_memory_ends_no_run(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> dict[str, Any]:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate much\nmore")

    monkeypatch.setattr(rgat_gpu.Bench, "theirs", fails)
    monkeypatch.setattr(rgat_gpu.Bench, "ours", fails)
    rows = run()["rows"]
    assert rows[0] == {
        "by": "ours",
        "failed": "OutOfMemoryError: CUDA out of memory. Tried to allocate much",
        "peak_gib": None,
    }
    assert rows[1]["loading_ms"] > 0
    assert "failed" in rows[2]


def test_both_models_have_the_same_sizes() -> None:
    pytest.importorskip("torch_geometric")
    types = [("a", "to", "b"), ("b", "rev_to", "a"), ("b", "and", "b")]
    sizes = {"num_features": {"a": 1024, "b": 1024}, "num_classes": 19, "edge_types": types, "target": "b"}
    mine, theirs = rgat_gpu.ours(sizes, 2, "cpu", False).model.net, rgat_gpu.TheirNet(sizes, 2)
    ours = [weight.shape for weight in mine.first] + [weight.shape for weight in mine.weights[0]]
    others = [conv.lin.weight.t().shape for convs in theirs.convs for conv in convs.convs.values()]
    assert ours == others

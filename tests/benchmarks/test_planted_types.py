"""Full-batch training learns planted classes, and the result has both sides and their share."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_geometric")
planted_types: Any = pytest.importorskip("planted_types")


def test_full_batch_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted_types, "by_train_py", lambda *_: {"test": 40.0, "seconds": 1.0})
    result = tmp_path / "result.json"
    options = ["--scale", "0.002", "--device", "cpu", "--seeds", "1", "--steps", "26", "--lr", "0.03"]
    monkeypatch.setattr(
        sys, "argv", ["planted_types.py", *options, "--cache-dir", str(tmp_path), "--json", str(result)]
    )
    planted_types.main()
    found = json.loads(result.read_text(encoding="utf-8"))
    (row,) = found["rows"]
    assert row["full_batch"]["test"] > 20  # of 349 classes
    assert 0 < row["full_batch"]["step"] < 26
    assert found["share"] == pytest.approx(40.0 / row["full_batch"]["test"])

"""Where the real graphs lie, and a small .npz file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SHARED_DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """`shared_data("ogbn_arxiv")`: the folder of all real graphs; skips the test where that one is absent."""

    def find(needed: str) -> Path:
        if not (SHARED_DATA / needed).exists():
            pytest.skip(f"the real graph {needed} is not in {SHARED_DATA}")
        return SHARED_DATA

    return find


@pytest.fixture
def npz_file(tmp_path: Path) -> Callable[..., Path]:
    """`npz_file(train=None, labels=...)`: writes a valid file of 6 nodes, with these arrays changed or left out."""

    def write(**changes: Any) -> Path:
        arrays = {
            "edge_index": np.array([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 0]]),
            "features": np.arange(12, dtype=np.float64).reshape(6, 2),
            "labels": np.array([0, 1, 2, 0, 1, 2]),
            "train": np.array([0, 1, 2]),
            "val": np.array([3]),
            "test": np.array([5, 4]),
        }
        arrays.update(changes)
        path = tmp_path / "mine.npz"
        np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
        return path

    return write

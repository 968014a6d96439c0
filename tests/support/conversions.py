"""A small conversion in the cache of datasets, for the tests of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from loader.datasets.cache_lock import conversion_lock
from loader.datasets.cache_writer import CacheWriter

KEY = {"dataset": "toy", "source": [["a", 1, 2]], "options": {"undirected": True}}
ARRAYS = {
    "features": np.arange(20, dtype=np.float32).reshape(5, 4),
    "labels": np.array([0, 1, 2, 1, 0]),
    "empty": np.empty((0, 4), dtype=np.float32),
}


def write(folder: Path, *, mark: int = 1) -> None:
    """Converts into `folder`; `mark` is a property, and the value of the array `marks`."""
    with conversion_lock(folder), CacheWriter(folder, KEY) as writer:
        for name, array in ARRAYS.items():
            writer.write(name, array)
        writer.write("marks", np.full(1000, mark))
        writer.properties["mark"] = mark

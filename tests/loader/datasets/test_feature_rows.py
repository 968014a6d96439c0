"""Features come back from a conversion bit by bit, in whichever form it keeps them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conversions import KEY
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from loader.datasets import feature_rows
from loader.datasets.cache import open_cache
from loader.datasets.cache_lock import conversion_lock
from loader.datasets.cache_writer import CacheWriter
from loader.datasets.feature_rows import read_rows, write_rows


def through_the_cache(folder: Path, table: NDArray[np.float32], step: int) -> tuple[torch.Tensor, bool]:
    """The table as it comes back, and whether a table was kept."""
    steps: list[int] = []
    with conversion_lock(folder), CacheWriter(folder, KEY) as writer:
        rows = lambda: (table[at : at + step] for at in range(0, len(table), step))  # noqa: E731
        write_rows(writer, table.shape, rows, steps.append)  # type: ignore[arg-type]
    assert sum(steps) >= len(table)
    arrays = open_cache(folder, KEY, mapped=frozenset({"features"})).arrays
    return read_rows(arrays), "features" in arrays


@given(
    rows=st.integers(0, 40),
    columns=st.integers(0, 60),
    share=st.sampled_from([0.0, 0.005, 0.1, 0.5, 1.0]),
    step=st.integers(1, 50),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_bit_comes_back(tmp_path_factory, rows, columns, share, step, seed) -> None:
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((rows, columns), dtype=np.float32)
    table[rng.random(table.shape) >= share] = 0
    table[rng.random(table.shape) < share / 10] = -0.0
    found, _ = through_the_cache(tmp_path_factory.mktemp("cache") / "toy-0123456789ab", table, step)
    assert found.shape == table.shape
    assert found.numpy().tobytes() == table.tobytes()


def test_mostly_zeros_take_little_room(tmp_path: Path) -> None:
    table = np.zeros((500, 400), dtype=np.float32)
    table[:, 7] = 1
    found, kept_as_table = through_the_cache(tmp_path / "toy-0123456789ab", table, 100)
    assert not kept_as_table
    assert torch.equal(found, torch.from_numpy(table))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.npy")) < table.nbytes / 8


@pytest.mark.parametrize("largest", [0, 4 << 30])
def test_filled_or_large_tables_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int) -> None:
    monkeypatch.setattr(feature_rows, "_LARGEST", largest)
    table = np.zeros((500, 400), dtype=np.float32)
    if largest:
        table[250:] = 1  # the first parts are empty
    assert through_the_cache(tmp_path / "toy-0123456789ab", table, 100)[1]


def test_torch_default_type_changes_no_table(tmp_path: Path) -> None:
    table = np.zeros((50, 40), dtype=np.float32)
    table[:, 7] = 2.5
    torch.set_default_dtype(torch.float64)
    try:
        found, kept_as_table = through_the_cache(tmp_path / "toy-0123456789ab", table, 10)
    finally:
        torch.set_default_dtype(torch.float32)
    assert not kept_as_table
    assert torch.equal(found, torch.from_numpy(table))

"""Columns far from 0 for their deviation, in types that keep too few digits of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loader.stores import HostFeatures, MemmapFeatures

KINDS = ["int8", "float8", "float16", "bfloat16"]


def far(offset: float, num_rows: int = 2000) -> torch.Tensor:
    """The second of three columns lies around `offset`."""
    x = torch.randn(num_rows, 3, generator=torch.Generator().manual_seed(0))
    x[:, 1] += offset
    return x


@pytest.mark.parametrize(
    ("kind", "offset"), [("int8", 1000), ("float8", 20), ("float16", 1e4), ("bfloat16", 1000), ("int8", -1e5)]
)
@pytest.mark.parametrize("in_file", [False, True])
def test_columns_far_from_zero_are_refused(kind: str, offset: float, in_file: bool, tmp_path: Path) -> None:
    x = far(offset).sort(0).values  # parts of a sorted column differ less than all of it
    np.save(tmp_path / "x.npy", x.numpy())
    message = r"would lose [\d.]+ of numbers of column 1 of features, .* 25% of .* deviation of 1 around .*: subtract"
    store: Any = partial(MemmapFeatures, tmp_path / "x.npy") if in_file else partial(HostFeatures, x)
    with pytest.raises(ValueError, match=message):
        store(storage_dtype=kind)
    HostFeatures((x - x.mean(0)) / x.std(0), storage_dtype=kind)  # as the message says


@pytest.mark.parametrize(("kind", "offset"), [("float16", 1e4), ("bfloat16", 1000)])
def test_types_of_gathered_rows_are_checked(kind: str, offset: float) -> None:
    message = f"^dtype is torch.{kind}, and would lose .* of numbers of column 1 of .*, or leave dtype null$"
    with pytest.raises(ValueError, match=message):
        HostFeatures(far(offset), dtype=kind)
    with pytest.raises(ValueError, match=f"^storage_dtype is torch.{kind}, and would"):
        HostFeatures(far(offset), dtype=kind, storage_dtype=kind)
    HostFeatures(far(0), dtype=kind, storage_dtype="int8")


@pytest.mark.parametrize("kind", KINDS)
def test_constant_and_nearer_columns_are_kept(kind: str) -> None:
    nearer = {"int8": 50, "float8": 4, "float16": 1000, "bfloat16": 50}
    x = torch.cat([far(nearer[kind]), torch.full((2000, 2), 1000.3)], 1)
    x[:, 4] *= 1 + 1e-7 * torch.randn(2000)  # by rounding alone
    store = HostFeatures(x, 1, dtype="float32", storage_dtype=kind)
    lost = (store.gather(torch.arange(2000)) - x)[:, :3].std(0) / x[:, :3].std(0)
    assert float(lost.max()) < 0.25


def test_numbers_too_small_for_float16_are_refused() -> None:
    with pytest.raises(ValueError, match=r"would lose 1e-09 of numbers of column 1 .* deviation of 1e-09 around"):
        HostFeatures(1e-9 * far(0, 20_000), storage_dtype="float16")


def test_missing_numbers_do_not_hide_others() -> None:
    x = far(1e4)
    x[::10, 1] = torch.nan
    x[5, 1] = torch.inf
    with pytest.raises(ValueError, match="of numbers of column 1"):
        HostFeatures(x, storage_dtype="float16")

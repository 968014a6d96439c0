"""Rows of 8 bits: what they become, what they lose, and what is refused."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from narrow_rows import CODES, decoded, encoded, float8_values

from loader import _core
from loader.stores import HostFeatures, deviations, scaled_codes
from loader.stores.rows import RowFormat

TYPES = {"int8": torch.int8, "float8": torch.float8_e4m3fn}


def test_float8_values_are_those_of_torch() -> None:
    every = torch.arange(256, dtype=torch.uint8)
    wanted = torch.from_numpy(float8_values())
    assert torch.equal(every.view(torch.float8_e4m3fn).float().nan_to_num(7e7), wanted.nan_to_num(7e7))


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 31, 32, 100, 130])
def test_every_code_is_decoded_as_defined(kind: str, width: int) -> None:
    # All 256 codes at every place of a vector, scales of all sizes, the smallest and largest numbers included.
    table = torch.arange(256 * width, dtype=torch.int64).remainder(256).to(torch.uint8).view(256, width)
    table = torch.stack([row.roll(i) for i, row in enumerate(table)])
    ids = torch.randint(256, (400,), generator=torch.Generator().manual_seed(width))
    for shape in ((1, width), (256, 1)):
        scales = torch.logspace(-44, 38, max(shape)).view(shape).float()
        out = torch.empty(len(ids), width)
        name = str(TYPES[kind]).removeprefix("torch.")
        _core.Gatherer(2).gather_converted(table, ids, out, name, scales)
        of = scales if shape[0] == 1 else scales[ids]
        wanted = decoded(table[ids], of, kind)
        same = (out.view(torch.int32) == wanted.view(torch.int32)) | (out.isnan() & wanted.isnan())
        assert bool(same.all())


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(CODES),
    num_rows=st.integers(1, 60),
    columns=st.integers(1, 40),
    given_type=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    returned=st.sampled_from(["float32", "float16", "bfloat16", None]),
    rows_differ=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_stored_rows_equal_the_reference(
    kind: str,
    num_rows: int,
    columns: int,
    given_type: torch.dtype,
    returned: str | None,
    rows_differ: bool,
    seed: int,
) -> None:
    random = torch.Generator().manual_seed(seed)
    x = torch.rand(num_rows, columns, generator=random) + 0.5
    x *= torch.randint(0, 2, x.shape, generator=random) * 2 - 1
    x[0], x[-1] = -x[0].abs(), x[-1].abs()  # a few rows alike would be a column far from 0, which is refused
    half = given_type == torch.float16 or returned == "float16"
    wide = 2.0 if kind == "int8" or half else 7.0  # float8 has some range of its own
    wide = wide if min(num_rows, columns) >= 20 else 0.5
    sizes = torch.logspace(-wide, wide, num_rows if rows_differ else columns)
    x = (x * (sizes[:, None] if rows_differ else sizes)).to(given_type)
    store = HostFeatures(x, 1, storage_dtype=kind, dtype=returned)
    by_row = bool(store._format.by_row)
    if min(num_rows, columns) >= 20 and (kind == "int8" or wide > 2):
        assert by_row == rows_differ
    table, scales = encoded(x, kind, by_row)
    ids = torch.randint(num_rows, (50,), generator=random)
    wanted = decoded(table[ids], scales[ids] if by_row else scales, kind, store.dtype)
    found = store.gather(ids)
    assert store.dtype == (given_type if returned is None else getattr(torch, returned))
    assert found.dtype == store.dtype
    assert torch.equal(found, wanted)
    store.close()


def test_rows_of_all_shapes_are_kept() -> None:
    for shape in ((30,), (30, 2, 5), (30, 0), (0, 4)):
        x = torch.rand(shape) + 1
        store = HostFeatures(x, 1, storage_dtype="int8")
        ids = torch.arange(shape[0])
        assert store.gather(ids).shape == shape
        assert torch.allclose(store.gather(ids), x, rtol=0.02)
        assert store.storage_dtype == torch.int8
    with pytest.raises(ValueError, match=r"ids\[0\] is 30; the table has 30 rows"):
        HostFeatures(torch.rand(30, 4), 1, storage_dtype="float8").gather(torch.tensor([30]))


def test_integers_and_bits_of_their_own_stay() -> None:
    own = torch.randint(-128, 128, (20, 3)).to(torch.int8)
    store = HostFeatures(own, 1, storage_dtype="int8")
    assert store.dtype == torch.int8
    assert not store._format.coded
    assert torch.equal(store.gather(torch.arange(20)), own)


def test_what_is_lost_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(4000, 32, generator=torch.Generator().manual_seed(0))
    x[:, 3] = x[:, 3].abs().pow(1.5)  # a longer tail than the others have
    x[5:90, 7] = 0
    with caplog.at_level(logging.INFO, "loader.stores.scaled_codes"):
        store = HostFeatures(x, 1, storage_dtype="int8")
        for _ in range(3):
            store.gather(torch.arange(4000))
    (line,) = [record.getMessage() for record in caplog.records]
    relative = ((store.gather(torch.arange(4000)) - x) / x).abs().clamp_max(1)
    errors = relative.nansum(0) / (x != 0).sum(0)
    assert errors.argmax() == 3
    assert line == (
        f"features are kept as int8 with a scale for each column: numbers lose {100 * errors.mean():.2g} % on average, "
        f"and {100 * errors.max():.2g} % in column 3, where it is most"
    )


@pytest.mark.parametrize("kind", CODES)
def test_numbers_that_do_not_fit_are_refused(kind: str) -> None:
    name = "int8" if kind == "int8" else "float8_e4m3fn"
    for bad in (float("inf"), float("-inf"), float("nan")):
        x = torch.rand(50, 4)
        x[7, 2] = bad
        with pytest.raises(
            ValueError, match=rf"storage_dtype is torch.{name}, and features\[7, 2\] is {bad:g}; 8 bits"
        ):
            HostFeatures(x, storage_dtype=kind)
    x = torch.rand(1000, 1) + 1
    x[5] = 1e7  # beside which all other numbers of the column are nothing
    way = "float8 or bfloat16" if kind == "int8" else "bfloat16"
    lost = rf"numbers of column 0 of features would lose \d+% on average, .* they reach 1e\+07, .*, or take {way}$"
    with pytest.raises(ValueError, match=lost):
        HostFeatures(x, storage_dtype=kind)
    with pytest.raises(TypeError, match="into each other, and into int8 and float8"):
        HostFeatures(torch.zeros(4), storage_dtype="int32")
    with pytest.raises(TypeError, match=r"dtype is torch\.int8 for rows of torch\.float32"):
        HostFeatures(torch.zeros(4), storage_dtype="int8", dtype="int8")
    with pytest.raises(TypeError, match=r"storage_dtype is torch\.int8 for rows of torch.float64"):
        HostFeatures(torch.zeros(4, 2, dtype=torch.float64), storage_dtype="int8")


@pytest.mark.parametrize("kind", CODES)
def test_encoding_works_in_parts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1003, 9, generator=torch.Generator().manual_seed(1))
    whole = RowFormat(x, storage_dtype=kind)
    wanted = whole.stored(x)
    sizes = []
    encode = scaled_codes.encode

    def counted(rows: torch.Tensor, *others: Any) -> torch.Tensor:
        sizes.append(len(rows))
        return encode(rows, *others)

    monkeypatch.setattr(scaled_codes, "_PART", 9 * 100)
    monkeypatch.setattr(deviations, "_SAMPLED", 100)
    monkeypatch.setattr(scaled_codes, "encode", counted)
    rows = RowFormat(x, storage_dtype=kind)
    rows.by_row = whole.by_row
    assert torch.equal(rows.stored(x), wanted)
    assert max(sizes) == 100
    assert torch.equal(rows.codes_of(x, 17, 500)[:, :9], wanted[17:500, :9])
    gathered = HostFeatures(x, 1, storage_dtype=kind).gather(torch.arange(60))
    assert torch.equal(rows.decoded(wanted[:60], torch.arange(60)), gathered)


def test_rows_are_padded_where_that_saves_lines() -> None:
    assert scaled_codes.pitch_of(100, 128) == 128  # 1.75 lines become 1
    assert scaled_codes.pitch_of(100, 32) == 100  # four lines in any case
    assert scaled_codes.pitch_of(128, 128) == 128
    assert scaled_codes.pitch_of(50, 128) == 64
    assert scaled_codes.pitch_of(0, 128) == 0
    for line in (32, 64, 128):
        for columns in range(1, 700):
            pitch = scaled_codes.pitch_of(columns, line)
            assert columns <= pitch <= columns * 4 / 3
            begins = np.arange(line) * pitch
            lines = ((begins + columns - 1) // line - begins // line + 1).mean()
            packed = np.arange(line) * columns
            assert lines == scaled_codes.lines_of_row(columns, pitch, line)
            assert lines <= ((packed + columns - 1) // line - packed // line + 1).mean()


@pytest.mark.parametrize("storage_dtype", TYPES)
def test_torch_default_type_changes_no_code(storage_dtype: str) -> None:
    rows = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    tables = [rows, rows * torch.logspace(-3, 3, 9, dtype=torch.float32)[:, None], rows[:0]]

    def gathered() -> list[torch.Tensor]:
        stores = [HostFeatures(table, storage_dtype=storage_dtype) for table in tables]
        return [store.gather(torch.arange(len(table))) for store, table in zip(stores, tables, strict=True)]

    wanted = gathered()
    torch.set_default_dtype(torch.float64)
    try:
        found = gathered()
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))

"""Digests by which a checkpoint knows its data."""

from __future__ import annotations

import math
from hashlib import sha256

import pytest
import torch

from loader.datasets.digests import are_alike, digest_of, sums_of


def test_digests_are_those_of_the_bytes() -> None:
    arrays = [torch.arange(3000.0), torch.arange(12).view(3, 4).t(), torch.rand(4) > 0.5, torch.empty(0)]
    expected = sha256(b"".join(array.numpy().tobytes() for array in arrays) + b"none").hexdigest()[:16]
    assert digest_of(*arrays, None) == expected


def test_types_that_numpy_lacks_have_digests() -> None:
    rows = torch.arange(10.0).bfloat16()
    assert digest_of(rows) == digest_of(rows.view(torch.int16)) != digest_of(rows.half())


@pytest.mark.parametrize("length", [0, 1])
def test_digests_do_not_depend_on_strides(length: int) -> None:
    array = torch.as_strided(torch.arange(3, dtype=torch.int32), (length,), (0,))  # as a mapped file may have it
    assert digest_of(array) == digest_of(torch.zeros(length, dtype=torch.int32))


@pytest.mark.parametrize("shape", [(2, 20_000), (3, 7), (5, 2000, 3)])
def test_digests_of_transposed_arrays_take_no_copy(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    array = torch.arange(math.prod(shape)).view(shape)
    turned, wanted = array.transpose(0, -1).contiguous().transpose(0, -1), digest_of(array)
    monkeypatch.setattr(torch.Tensor, "reshape", None)  # would copy
    assert digest_of(turned) == wanted


@pytest.mark.parametrize("num_rows", [1, 63, 1000])
def test_features_are_known_but_for_last_bits(num_rows: int) -> None:
    x = torch.randn(num_rows, 7, generator=torch.Generator().manual_seed(0))
    x[:, 0] = x[:, 0] * 10 + 1e6  # large numbers do not hide others
    x[:, 3] = torch.nan
    sums = sums_of(x)
    assert all(isinstance(one, float) for one in sums)
    assert are_alike(sums, sums_of(x * (1 + 1e-6)))
    for other in (x[:, [0, 1, 2, 3, 5, 4, 6]], x * torch.tensor([1, 1, 1, 1, 1, 1, 1.5]), x[1:], x[:, :6]):
        assert not are_alike(sums, sums_of(other))


def test_features_without_numbers_are_alike() -> None:
    for shape in ((5, 0), (0, 5)):
        assert are_alike(sums_of(torch.zeros(shape)), sums_of(torch.zeros(shape)))


def test_other_entries_have_to_be_equal() -> None:
    assert are_alike("a", "a")
    assert not are_alike(["a"], ["b"])
    assert not are_alike([1.0], None)
    assert not are_alike([1.0], [1.0, 2.0])

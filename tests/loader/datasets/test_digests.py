"""Digests by which a checkpoint knows its data."""

from __future__ import annotations

from hashlib import sha256

import pytest
import torch

from loader.datasets.digests import digest_of


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

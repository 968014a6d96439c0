from __future__ import annotations

import numpy as np
import pytest

from loader.datasets import DatasetError
from loader.datasets.numbers import as_int64, check_real


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32", "uint32", "uint64", "int64"])
def test_integers_of_every_type_keep_their_values(dtype):
    assert as_int64(np.array([0, 100], dtype), "it").tolist() == [0, 100]
    check_real(np.array([0, 100], dtype), "they")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1, 2**63], np.uint64), rf"it holds {2**63}; the largest number that is read is {2**63 - 1}"),
        (np.array([1.0]), r"it has dtype float64; it must be integers: convert it by astype\(numpy\.int64\)"),
        (np.array(["1"]), "it has dtype <U1"),
        (np.array([True]), "it has dtype bool"),
    ],
)
def test_values_that_are_not_int64_are_named(array, message):
    with pytest.raises(DatasetError, match=message):
        as_int64(array, "it")


@pytest.mark.parametrize("array", [np.array(["1.0"]), np.array([1j]), np.array([b"1"]), np.array([1], "M8[s]")])
def test_values_that_are_not_real_are_named(array):
    with pytest.raises(DatasetError, match=r"they have dtype .*; they must be real numbers: convert them"):
        check_real(array, "they")

"""Checks of the types of a source's arrays, before they are used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loader.datasets.errors import DatasetError


def check_real(array: NDArray[np.generic], what: str) -> None:
    """Raises DatasetError unless `array` holds real numbers (or truth values)."""
    if array.dtype.kind not in "biuf":
        names = ", names by numpy.unique(names, return_inverse=True)[1]" if is_text(array) else ""
        raise DatasetError(
            f"{what} have dtype {array.dtype}; they must be real numbers: convert them, e.g. by astype(numpy.float32)"
            f"{names}"
        )


def is_text(array: NDArray[np.generic]) -> bool:
    """Whether the array holds strings: names, which a source has to number first."""
    return array.dtype.kind in "US"


def as_int64(array: NDArray[np.generic], what: str) -> NDArray[np.int64]:
    """`array` as int64, without a copy if it has this type.

    Args:
        what: the name of the array, in the singular, for an error.

    Raises:
        DatasetError: it does not hold integers, or one of them is too large.
    """
    if array.dtype.kind not in "iu":
        raise DatasetError(f"{what} has dtype {array.dtype}; it must be integers: convert it by astype(numpy.int64)")
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        raise DatasetError(f"{what} holds {int(array.max())}; the largest number that is read is {2**63 - 1}")
    return array.astype(np.int64, copy=False)

"""The random numbers of dropout on a GPU, by their reference in NumPy; tests/loader/ops/test_gpu.py has the kernels."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from reference_dropout import ROUNDS, Words, draws, philox2
from statistics_of_counts import LEVEL, p_equal

ROWS = np.arange(1 << 18, dtype=np.uint64)
KEY = 0x2545F491


def quad(number: int) -> Words:
    return np.full_like(ROWS, number)


# Of the file kat_vectors of Random123, the authors' own library.
@pytest.mark.parametrize(
    ("rounds", "word", "expected"),
    [
        (7, (0, 0, 0), (0x257A3673, 0xCD26BE2A)),
        (7, (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), (0xAB302C4D, 0x3DC9D239)),
        (7, (0x243F6A88, 0x85A308D3, 0x13198A2E), (0xBEDBBE6B, 0xE4C770B3)),
        (10, (0, 0, 0), (0xFF1DAE59, 0x6CD10DF2)),
        (10, (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), (0x2C3F628B, 0xAB4FD7AD)),
        (10, (0x243F6A88, 0x85A308D3, 0x13198A2E), (0xDD7CE038, 0xF62A4C12)),
    ],
)
def test_reference_philox2_equals_the_published_vectors(
    rounds: int, word: tuple[int, int, int], expected: tuple[int, int]
) -> None:
    low, high, key = word
    first, second = philox2(np.array([low], np.uint64), np.array([high], np.uint64), key, rounds)
    assert (int(first[0]), int(second[0])) == expected


def likeness(rounds: int, p: float) -> float:
    """The largest correlation of what two columns of neighbors keep, in standard deviations of chance.

    Neighbors are rows, quads of columns and keys that differ by little, or in one high bit.
    """
    mean = round(p * 65536) / 65536

    def centred(numbers: Words) -> NDArray[np.float64]:
        return ((numbers < mean * 65536) - mean) / np.sqrt(mean * (1 - mean) * len(ROWS))

    own = centred(draws(ROWS, quad(0), KEY, rounds))
    others = [(ROWS + np.uint64(step), quad(0), KEY) for step in (1, 2, 64, 1 << 16)]
    others += [(ROWS, quad(step), KEY) for step in (1, 2, 16)]
    others += [(ROWS, quad(0), KEY + 1), (ROWS, quad(0), KEY ^ 1 << 31)]
    found = [own @ centred(draws(*other, rounds)).T for other in others]
    found.append((own @ own.T)[np.triu_indices(4, 1)])
    return max(float(np.abs(correlations).max()) for correlations in found) * float(np.sqrt(len(ROWS)))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_neighbors_are_not_alike(p: float) -> None:
    # Of 150 correlations, chance puts one beyond five deviations in one of ten thousand such tests.
    assert likeness(ROUNDS, p) < 5
    assert likeness(3, p) > 20  # the test can tell


@pytest.mark.parametrize("field", range(4))
def test_every_number_is_as_likely(field: int) -> None:
    numbers = draws(ROWS, quad(3), KEY)[field]
    counts = np.bincount((numbers // np.uint64(16)).astype(np.int64), minlength=4096)
    assert p_equal(counts) > LEVEL

"""Subnormal numbers count, whatever mode a thread is in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from loader.graph import Graph
from loader.machine.subnormals import as_doubles, shares_of_largest, with_subnormals
from loader.samplers.walk_frequencies import Frequencies
from loader.samplers.walk_next.walking import integer_weights

LEAST = 5e-324


@pytest.fixture(params=[False, True], ids=["ordinary", "flushing"])
def _mode(request: pytest.FixtureRequest) -> Iterator[None]:
    if not torch.set_flush_denormal(request.param):
        pytest.skip("this processor has no such mode")
    yield
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("_mode")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_shares_of_subnormal_weights_are_exact(dtype: torch.dtype) -> None:
    weights = torch.tensor([4, 0, 1, 3], dtype=dtype)
    with with_subnormals():
        unit = torch.finfo(dtype).smallest_normal / 64
        tiny, mixed = (torch.tensor(w, dtype=dtype) for w in ([4 * unit, 0, unit, 3 * unit], [1, 0, unit]))
    assert shares_of_largest(tiny, 400).tolist() == shares_of_largest(weights, 400).tolist() == [400, 0, 100, 300]
    assert shares_of_largest(mixed, 400).tolist() == [400, 0, 1]
    assert shares_of_largest(tiny[:0], 400).tolist() == []
    assert shares_of_largest(torch.zeros(2, dtype=dtype), 400).tolist() == [0, 0]
    graph, other = (Graph(torch.tensor([0, 4, 4]), torch.tensor([0, 1, 0, 1]), edge_weights=w) for w in (tiny, weights))
    found, expected = (Frequencies(of, 0.5, weighted=True) for of in (graph, other))
    assert torch.equal(found._ends, expected._ends)
    assert torch.equal(integer_weights(graph), integer_weights(other))


@pytest.mark.usefixtures("_mode")
def test_the_mode_is_afterwards_what_it_was() -> None:
    least = torch.tensor([LEAST], dtype=torch.float64)
    before = bool(least > 0)
    with with_subnormals():
        assert bool(least > 0)
    assert bool(least > 0) == before
    with with_subnormals():
        assert as_doubles(least)[0] > 0

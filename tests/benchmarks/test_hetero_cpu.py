"""The benchmark of several types on the CPU: both sides have the same work."""

from __future__ import annotations

from collections.abc import Iterator

import hetero_cpu
import pytest
import torch
from marks import needs_dgl


@pytest.fixture(autouse=True)
def _same_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@needs_dgl
def test_dgl_samples_as_many_edges() -> None:
    rows = hetero_cpu.rows_of(0.01, (1,), 1)
    assert [row["fanouts"] for row in rows] == [[10, 10], [15, 10, 5]]
    for row in rows:
        assert row["edges_of_dgl"] == pytest.approx(row["edges"], rel=0.03)

"""Entries by row and by source: one is the transpose of the other, whatever lies behind the last row."""

from __future__ import annotations

import pytest
import torch
from marks import needs_gpu
from torch import Tensor

from loader.ops import aggregate_sum
from loader.ops.gpu import entries_of, sum_of_entries

SOURCES = 7


def some(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Five rows, an empty one among them; source 4 has none, and three entries belong to no row."""
    indptr = torch.tensor([0, 2, 2, 5, 6, 9], dtype=dtype)
    return indptr, torch.tensor([3, 0, 6, 3, 3, 1, 2, 6, 5, 0, 0, 4], dtype=torch.int32)


def dense(begins: Tensor, entries: Tensor, columns: int) -> Tensor:
    found = torch.zeros(len(begins) - 1, columns)
    for row, (a, b) in enumerate(zip(begins.tolist(), begins[1:].tolist(), strict=False)):
        for column in entries[a:b].tolist():
            found[row, column] += 1
    return found


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_sources_have_the_transpose(dtype: torch.dtype) -> None:
    indptr, indices = some(dtype)
    found = entries_of(indptr, indices, SOURCES)
    assert torch.equal(dense(found.begins, found.rows, 5), dense(indptr, indices, SOURCES).t())
    assert found.begins.dtype == dtype
    assert found.rows.dtype == indices.dtype


class TestOnAGpu:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("dim", [8, 128, 300])
    def test_long_rows_are_summed(self, dim: int) -> None:
        """Few rows and sources with many entries, on both sides of what a group of lanes sums."""
        lengths = torch.tensor([63, 64, 65, 0, 256, 257, 3000, 1])
        indptr = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int().cuda()
        g = torch.Generator().manual_seed(0)
        indices = torch.randint(40, (int(lengths.sum()),), generator=g).int().cuda()
        x = torch.randn(40, dim, device="cuda", requires_grad=True)
        found = sum_of_entries(x, entries_of(indptr, indices, 40))
        matrix = dense(indptr, indices, 40).cuda()
        torch.testing.assert_close(found, matrix @ x, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(aggregate_sum(x, indptr, indices), found, rtol=1e-4, atol=1e-4)
        mix = torch.randn_like(found)
        (mine,) = torch.autograd.grad(found, x, mix)
        torch.testing.assert_close(mine, matrix.t() @ mix, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
    def test_sums_and_gradients_are_the_same(self, dtype: torch.dtype) -> None:
        indptr, indices = (of.cuda() for of in some(dtype))
        x = torch.randn(SOURCES, 8, dtype=torch.float64, device="cuda", requires_grad=True)
        found, wanted = sum_of_entries(x, entries_of(indptr, indices, SOURCES)), aggregate_sum(x, indptr, indices)
        torch.testing.assert_close(found, wanted)
        mix = torch.randn_like(found)
        (mine,), (theirs,) = (torch.autograd.grad((of * mix).sum(), x) for of in (found, wanted))
        torch.testing.assert_close(mine, theirs)

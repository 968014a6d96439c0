from __future__ import annotations

import pytest
import torch
from marks import needs_gpu
from torch import Tensor
from torch.nn import functional as F

from loader.ops.grouped import Grouped, Span, product_by_head

RUNS = [(2, 8), (0, 0), (1, 4), (2, 12)]  # a type twice, an empty run


def by_rows(types: Tensor, weight: Tensor) -> Tensor:
    return weight[types]


@pytest.mark.parametrize("tile", [1, 4])
def test_each_row_has_the_weights_of_its_type(tile: int) -> None:
    g = torch.Generator().manual_seed(0)
    types = torch.tensor([t for t, size in RUNS for _ in range(size)])
    x = torch.randn(len(types), 5, generator=g, dtype=torch.float64, requires_grad=True)
    weight, square = (torch.randn(3, n, 5, generator=g, dtype=torch.float64, requires_grad=True) for n in (6, 1))
    bias = torch.randn(3, 6, generator=g, dtype=torch.float64, requires_grad=True)
    scale, shift = square[:, 0], 2 * square[:, 0]
    group = Grouped(RUNS, tile, torch.device("cpu"), 3)
    found = [
        group.linear(x, weight, bias),
        group.norm(x, scale, shift),
        group.plus(x, bias[:, :5]),
        group.rows(bias),
    ]
    wanted = [
        torch.einsum("ni,noi->no", x, by_rows(types, weight)) + by_rows(types, bias),
        F.layer_norm(x, (5,)) * by_rows(types, scale) + by_rows(types, shift),
        x + by_rows(types, bias)[:, :5],
        by_rows(types, bias),
    ]
    given = [x, weight, bias, square]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
        mix = torch.randn(one.shape, generator=g, dtype=torch.float64)
        a, b = (
            torch.autograd.grad((of * mix).sum(), given, allow_unused=True, retain_graph=True) for of in (one, other)
        )
        for mine, theirs in zip(a, b, strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                torch.testing.assert_close(mine, theirs)


def test_no_rows_are_taken() -> None:
    group = Grouped([(0, 0), (1, 0)], 1, torch.device("cpu"), 2)
    x, weight, bias = torch.ones(0, 5), torch.ones(2, 6, 5), torch.ones(2, 6)
    assert group.linear(x, weight, bias).shape == (0, 6)
    assert group.norm(x, weight[:, 0], weight[:, 0]).shape == (0, 5)
    assert group.plus(x, bias[:, :5]).shape == (0, 5)
    assert group.rows(bias).shape == (0, 6)


@pytest.mark.parametrize("tile", [1, 4])
def test_added_rows_keep_the_narrow_dtype(tile: int) -> None:
    """Their gradient is summed in float32: in bfloat16, 1 would be lost beside 512."""
    x = torch.zeros(2048, 3, dtype=torch.bfloat16, requires_grad=True)
    rows = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], requires_grad=True)
    found = Grouped([(0, 1024), (1, 1024)], tile, torch.device("cpu"), 2).plus(x, rows)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found[::1024].float(), rows.detach())
    (of_rows,) = torch.autograd.grad(found.float().sum(), rows)
    torch.testing.assert_close(of_rows, torch.full((2, 3), 1024.0))


class TestOnAGpu:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("columns", [8, 6, 128, 300, 600])
    @pytest.mark.parametrize("relu", [False, True])
    def test_norms_are_those_of_torch(self, columns: int, relu: bool) -> None:
        """By one launch, or, where the columns are no multiple of 4 or too many, by torch's."""
        g = torch.Generator().manual_seed(columns)
        runs = [(2, 32), (0, 0), (1, 16), (2, 8)]
        types = torch.tensor([t for t, size in runs for _ in range(size)])
        x, residual = (torch.randn(len(types), columns, generator=g, dtype=torch.float64) for _ in range(2))
        weight, shift, bias = (torch.randn(3, columns, generator=g, dtype=torch.float64) for _ in range(3))
        given = [of.requires_grad_() for of in (x, weight, shift, bias, residual)]
        normed = F.layer_norm(x + bias[types], (columns,)) * weight[types] + shift[types]
        wanted = residual + (normed.relu() if relu else normed)
        mix = torch.randn(wanted.shape, generator=g, dtype=torch.float64)
        here = [of.detach().float().cuda().requires_grad_() for of in given]
        group = Grouped(runs, 8, torch.device("cuda"), 3)
        found = group.norm(here[0], here[1], here[2], bias=here[3], residual=here[4], relu=relu)
        torch.testing.assert_close(found.double().cpu(), wanted, rtol=1e-4, atol=1e-4)
        gradients = torch.autograd.grad((found * mix.float().cuda()).sum(), here)
        for mine, theirs in zip(gradients, torch.autograd.grad((wanted * mix).sum(), given), strict=True):
            torch.testing.assert_close(mine.double().cpu(), theirs, rtol=1e-3, atol=2e-3)

    def test_dropout_has_keys_of_its_own(self) -> None:
        group = Grouped([(0, 4096)], 128, torch.device("cuda"), 1)
        x, ones = torch.randn(4096, 128, device="cuda"), torch.ones(1, 128, device="cuda")
        torch.manual_seed(0)
        first, second = group.keys(2)
        dropped = [group.norm(x, ones, 100 * ones, dropout=0.25, key=key) == 0 for key in (first, first, second)]
        assert torch.equal(dropped[0], dropped[1])
        for one in dropped:
            assert abs(float(one.float().mean()) - 0.25) < 0.005
        assert abs(float((dropped[0] & dropped[2]).float().mean()) - 0.0625) < 0.003


def test_products_are_by_head_and_type() -> None:
    g = torch.Generator().manual_seed(0)
    spans = [Span(1, 0, 3, 8), Span(0, 24, 2, 4), Span(2, 32, 2, 0), Span(1, 32, 1, 8)]
    rows = torch.randn(40, generator=g, dtype=torch.float64, requires_grad=True)
    shapes = [(2, width, 5) for width in (2, 4, 0)]
    matrices = [torch.randn(shape, generator=g, dtype=torch.float64, requires_grad=True) for shape in shapes]
    found = product_by_head(spans, rows, matrices)
    wanted = [
        torch.einsum("nhf,hfc->nhc", rows[s.begin : s.begin + s.size * s.a_node].view(s.size, 2, s.a_node // 2),
                     matrices[s.node_type]).reshape(s.size, 10)
        for s in spans
    ]  # fmt: skip
    torch.testing.assert_close(found, torch.cat(wanted))
    assert torch.autograd.gradcheck(lambda *of: product_by_head(spans, of[0], of[1:]), (rows, *matrices))

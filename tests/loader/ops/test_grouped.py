from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from loader.ops.grouped import Grouped

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
    group = Grouped(RUNS, tile, torch.device("cpu"))
    found = [
        group.linear(x, group.spread(weight), group.spread(bias)),
        group.norm(x, group.spread(scale), group.spread(shift)),
        group.rows(group.spread(bias)),
    ]
    wanted = [
        torch.einsum("ni,noi->no", x, by_rows(types, weight)) + by_rows(types, bias),
        F.layer_norm(x, (5,)) * by_rows(types, scale) + by_rows(types, shift),
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
    group = Grouped([(0, 0), (1, 0)], 1, torch.device("cpu"))
    x, weight, bias = torch.ones(0, 5), torch.ones(2, 6, 5), torch.ones(2, 6)
    assert group.linear(x, group.spread(weight), group.spread(bias)).shape == (0, 6)
    assert group.norm(x, group.spread(weight[:, 0]), group.spread(weight[:, 0])).shape == (0, 5)
    assert group.rows(group.spread(bias)).shape == (0, 6)

from __future__ import annotations

from typing import Any

import pytest
import torch
from marks import needs_gpu
from torch import Tensor

from loader.ops.first_layers import FirstLayer, halves, write_to

SIZES = [4, 0, 2, 3]  # the third has zeros
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("columns", [0, 1, 3])
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("most", [0, 2**24])
def test_halves_and_gradients_are_the_plain_sums(
    device: str, columns: int, k: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not columns and not k:
        return
    monkeypatch.setattr("loader.ops.first_layers._MOST_ONES", most)
    g = torch.Generator().manual_seed(0)

    def some(*shape: int) -> Any:
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(device)

    bias = some(6).requires_grad_()
    numbers, matrix = (some(7, k), some(k, 6).requires_grad_()) if k else (None, None)
    table = some(5 * columns, 6).requires_grad_() if columns else None
    codes = (
        torch.stack([torch.randint(5 * c, 5 * c + 5, (7,), generator=g) for c in range(columns)], 1)
        if columns
        else None
    )
    codes = None if codes is None else codes.to(device)
    memory = torch.zeros(9, 6, dtype=torch.float64, device=device)
    places = memory.split(SIZES)
    with_bias = None if table is None else torch.cat([table[:5] + bias.detach(), table[5:]])
    layer = FirstLayer(bias, numbers, matrix, codes, with_bias)
    stand_ins = write_to(layer, [places[i] for i in (0, 1, 3)])
    stand_ins.insert(2, (memory.new_zeros(2, 3),) * 2)
    found = halves(memory, SIZES, *map(list, zip(*stand_ins, strict=True)))

    plain: Tensor = bias.expand(7, 6)
    if numbers is not None and matrix is not None:
        plain = plain + numbers @ matrix
    if codes is not None and table is not None:
        plain = plain + table[codes].sum(1)
    wanted = torch.cat([plain[:4], memory.new_zeros(2, 6), plain[4:]]).split(3, 1)
    mix, weights = [some(9, 3) for _ in range(2)], [of for of in (bias, matrix, table) if of is not None]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
    mine, theirs = (
        torch.autograd.grad((of[0] * mix[0]).sum() + (of[1] * mix[1]).sum(), weights) for of in (found, wanted)
    )
    torch.testing.assert_close(mine, theirs)

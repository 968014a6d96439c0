from __future__ import annotations

import torch

from loader.ops.halves import halves, place


def test_halves_are_those_of_a_copy() -> None:
    g = torch.Generator().manual_seed(0)
    rows = [torch.randn(n, 6, generator=g, dtype=torch.float64, requires_grad=True) for n in (4, 0, 3)]
    zeros = torch.zeros(2, 6, dtype=torch.float64)
    sizes = [4, 0, 2, 3]
    memory = torch.empty(9, 6, dtype=torch.float64)
    places = memory.split(sizes)
    places[2].zero_()
    none = zeros[:, :3]
    stand_ins = [place(rows[0], places[0]), place(rows[1], places[1]), (none, none), place(rows[2], places[3])]
    found = halves(memory, sizes, *map(list, zip(*stand_ins, strict=True)))
    wanted = torch.cat([rows[0], rows[1], zeros, rows[2]]).split(3, 1)
    assert [torch.equal(a, b) for a, b in zip(found, wanted, strict=True)] == [True, True]
    mix = [torch.randn(9, 3, generator=g, dtype=torch.float64) for _ in range(2)]
    gradients = [
        torch.autograd.grad(sum((a * b).sum() for a, b in zip(of, mix, strict=True)), rows) for of in (found, wanted)
    ]
    for mine, theirs in zip(*gradients, strict=True):
        assert torch.equal(mine, theirs)

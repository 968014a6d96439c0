"""Room for the rows of mini-batches, by those of some."""

from __future__ import annotations

import pytest
import torch

from loader.memory.counting import most_rows


def test_room_for_rows_goes_by_their_spread() -> None:
    counts = torch.randn(100, generator=torch.Generator().manual_seed(0)).mul(100).add(100_000).long()
    mean, spread = float(counts.double().mean()), float(counts.double().std())
    assert most_rows(counts, 1) == int(mean + 8 * spread) + 1024
    assert most_rows(counts, 4) == int(4 * mean + 16 * spread) + 4 * 1024
    # Few mini-batches do not tell how they vary, and some vary a lot.
    few, odd = counts[:10], counts * torch.arange(100)
    assert most_rows(few, 3) == int(3.75 * int(few.max())) + 3 * 1024
    assert most_rows(odd, 1) <= 1.25 * int(odd.max()) + 1024


@pytest.mark.parametrize("together", [1, 3, 6, 12])
def test_any_mini_batches_together_have_room(together: int) -> None:
    g = torch.Generator().manual_seed(1)
    counts = torch.poisson(torch.full((100 + 100_000 * together,), 40.0), generator=g).long() * 1000
    room = most_rows(counts[:100], together)
    assert room >= int(counts[100:].view(-1, together).sum(1).max())
    assert room <= 1.25 * together * int(counts[:100].max()) + together * 1024

"""Which seeds go into which mini-batch, on which rank."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loader.items.batches import SeedBatches

SEEDS = torch.arange(100, 200)


def epoch_of(batches: SeedBatches, epoch: int = 0) -> list[list[int]]:
    order = batches.order(epoch)
    return [batches.batch(order, step).tolist() for step in range(len(batches))]


@given(
    n=st.integers(1, 60),
    batch_size=st.integers(1, 20),
    world_size=st.integers(1, 5),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
)
def test_ranks_share_equally(n: int, batch_size: int, world_size: int, shuffle: bool, drop_last: bool) -> None:
    if drop_last and n < batch_size * world_size:
        return
    seeds = torch.arange(n)
    options: dict[str, Any] = {"shuffle": shuffle, "drop_last": drop_last, "seed": 3, "world_size": world_size}
    ranks = [epoch_of(SeedBatches(seeds, batch_size, rank=r, **options), 2) for r in range(world_size)]

    assert len({tuple(len(b) for b in rank) for rank in ranks}) == 1  # as many, and as large, on every rank
    batches = [b for rank in ranks for b in rank]
    assert all(len(set(b)) == len(b) for b in batches)
    assert all(1 <= len(b) <= batch_size for b in batches)
    flat = [v for b in batches for v in b]
    if drop_last:
        assert len(flat) == len(set(flat)) == n - n % (batch_size * world_size)
    else:
        assert set(flat) == set(range(n))
        assert len(flat) - n < world_size


def test_a_step_of_all_ranks_is_the_batch_of_a_single_one() -> None:
    single = epoch_of(SeedBatches(SEEDS, 20, shuffle=True, seed=1))
    pair = [epoch_of(SeedBatches(SEEDS, 10, shuffle=True, seed=1, rank=r, world_size=2)) for r in range(2)]
    assert [a + b for a, b in zip(*pair, strict=True)] == single


def test_without_shuffle_the_order_is_the_users() -> None:
    seeds = torch.tensor([5, 3, 9, 1])
    assert epoch_of(SeedBatches(seeds, 3)) == [[5, 3, 9], [1]]
    assert epoch_of(SeedBatches(seeds, 3, drop_last=True), 7) == [[5, 3, 9]]


def test_the_order_depends_on_seed_and_epoch_and_nothing_else() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return SeedBatches(SEEDS, 7, shuffle=True, seed=seed).order(epoch).tolist()

    torch.manual_seed(0)
    first = order(4, 2)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert order(4, 2) == first
    assert torch.equal(torch.get_rng_state(), state)
    orders = {tuple(order(seed, epoch)) for seed in (0, 1, 2, 2**64 - 1) for epoch in range(5)}
    assert len(orders) == 20
    assert all(sorted(o) == SEEDS.tolist() for o in orders)


def test_fingerprint_tells_sets_and_orders_apart() -> None:
    prints = {SeedBatches(s, 1).fingerprint() for s in (SEEDS, SEEDS.flip(0), SEEDS[:-1], SEEDS + 1)}
    assert len(prints) == 4
    assert SeedBatches(SEEDS.int(), 1).fingerprint() in prints


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"batch_size": -3}, ValueError, "batch_size is -3"),
        ({"batch_size": 2.5}, TypeError, "batch_size is 2.5"),
        ({"batch_size": True}, TypeError, "batch_size is True"),
        ({"seeds": [1, 2]}, TypeError, "seeds is a list"),
        ({"seeds": torch.ones(3, dtype=torch.bool)}, TypeError, "mask.nonzero"),
        ({"seeds": torch.ones(3)}, TypeError, "integer"),
        ({"seeds": torch.ones(3, 1, dtype=torch.int64)}, ValueError, "1 dimension"),
        ({"seeds": SEEDS[:0]}, ValueError, "seeds is empty"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"seed": 2**64}, ValueError, "seed is"),
        ({"world_size": 0}, ValueError, "world_size is 0"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank is 2"),
        ({"rank": -1}, ValueError, "rank is -1"),
        ({"batch_size": 101, "drop_last": True}, ValueError, "drop_last leaves no mini-batch"),
        ({"batch_size": 51, "drop_last": True, "world_size": 2}, ValueError, "100 seeds .* 2 x 51"),
    ],
)
def test_bad_arguments(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"seeds": SEEDS, "batch_size": 10, **change}
    with pytest.raises(error, match=message):
        SeedBatches(**arguments)

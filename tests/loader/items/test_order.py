"""The order of an epoch: a permutation, as likely as any other, whose positions are computed one by one."""

from __future__ import annotations

import itertools
from math import factorial

import numpy as np
import pytest
import reference_order
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from statistics_of_counts import LEVEL, p_equal, p_same

from loader import _core
from loader.items import Order

CPU = torch.device("cpu")
SEEDS = st.integers(0, 2**64 - 1)


def epoch_of(num_items: int, seed: int = 0, epoch: int = 0) -> list[int]:
    return Order(num_items, shuffle=True, seed=seed).at(epoch, 0, num_items, CPU).tolist()


class TestPermutation:
    @pytest.mark.parametrize("num_items", [*range(1, 70), 255, 256, 257, 65_535, 65_536, 65_537, 100_003, 1 << 20])
    def test_every_item_comes_once(self, num_items: int) -> None:
        found = np.sort(np.array(epoch_of(num_items, seed=num_items)))
        assert np.array_equal(found, np.arange(num_items))

    @settings(deadline=None, max_examples=60)
    @given(num_items=st.integers(1, 20_000), seed=SEEDS, epoch=st.integers(0, 2**64 - 1))
    def test_every_item_comes_once_with_any_key(self, num_items: int, seed: int, epoch: int) -> None:
        assert sorted(epoch_of(num_items, seed, epoch)) == list(range(num_items))

    @settings(deadline=None, max_examples=60)
    @given(num_items=st.integers(1, 300), seed=SEEDS, epoch=st.integers(0, 2**64 - 1))
    def test_small_orders_equal_the_network_in_python(self, num_items: int, seed: int, epoch: int) -> None:
        assert _core.order_key(seed, epoch) == reference_order.order_key(seed, epoch)
        assert epoch_of(num_items, seed, epoch) == reference_order.order(num_items, seed, epoch)

    @settings(deadline=None, max_examples=60)
    @given(num_items=st.integers(1 << 15, 1 << 60), seed=SEEDS, data=st.data())
    def test_large_orders_equal_the_network_in_python(self, num_items: int, seed: int, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, num_items - 1))
        found = Order(num_items, shuffle=True, seed=seed).at(7, first, min(5, num_items - first), CPU)
        key = reference_order.order_key(seed, 7)
        expected = [reference_order.position_to_item(first + i, num_items, key) for i in range(len(found))]
        assert found.tolist() == expected


class TestChance:
    """Of orders under many keys. The keys are fixed, so each test passes always or never."""

    @pytest.mark.parametrize("num_items", [2, 3, 4, 5])
    @pytest.mark.parametrize("vary", ["epoch", "seed"])
    def test_all_orders_are_equally_likely(self, num_items: int, vary: str) -> None:
        number = {order: i for i, order in enumerate(itertools.permutations(range(num_items)))}
        counts = np.zeros(factorial(num_items), dtype=np.int64)
        for i in range(60_000):
            seed, epoch = (i, 3) if vary == "seed" else (3, i)
            counts[number[tuple(epoch_of(num_items, seed, epoch))]] += 1
        assert p_equal(counts) > LEVEL

    @pytest.mark.parametrize("num_items", [977, 1000, 1024])
    def test_every_position_may_have_every_item(self, num_items: int) -> None:
        epochs = 10_000
        orders = np.array([epoch_of(num_items, 11, epoch) for epoch in range(epochs)])
        for position in (0, 1, num_items // 2, num_items - 1):
            assert p_equal(np.bincount(orders[:, position], minlength=num_items)) > LEVEL
        for item in (0, 1, 2, num_items - 1):
            positions = np.nonzero(orders == item)[1]
            assert p_equal(np.bincount(positions, minlength=num_items)) > LEVEL

    def test_neighbors_are_not_kept_together(self) -> None:
        num_items, epochs = 1000, 4000
        orders = np.array([epoch_of(num_items, 5, epoch) for epoch in range(epochs)])
        steps = (orders[:, 1::2] - orders[:, ::2]) % num_items  # of pairs that do not overlap
        assert p_equal(np.bincount(steps.ravel(), minlength=num_items)[1:]) > LEVEL

    def test_epochs_that_follow_each_other_are_independent(self) -> None:
        found = [epoch_of(10, 1, epoch) for epoch in range(40_001)]
        moved = np.zeros((10, 10), dtype=np.int64)
        for before, after in itertools.pairwise(found):
            moved[before[0], after[0]] += 1
        assert p_equal(moved) > LEVEL
        assert p_same(moved[:, 0], moved[:, 9]) > LEVEL


class TestKey:
    def test_seed_and_epoch_decide_and_nothing_else(self) -> None:
        torch.manual_seed(0)
        first = epoch_of(100, 4, 2)
        torch.manual_seed(1)
        state = torch.get_rng_state()
        assert epoch_of(100, 4, 2) == first
        assert torch.equal(torch.get_rng_state(), state)
        seeds, epochs = (0, 1, 2, 2**32, 2**64 - 1), range(5)
        assert len({tuple(epoch_of(100, seed, epoch)) for seed in seeds for epoch in epochs}) == 25

    @pytest.mark.parametrize("bit", [*range(64)])
    def test_every_bit_of_the_seed_counts(self, bit: int) -> None:
        assert epoch_of(100, 5 ^ 1 << bit) != epoch_of(100, 5)
        assert epoch_of(100, 0, 1 << bit) != epoch_of(100, 0, 0)  # and of the epoch

    def test_once_colliding_epochs_have_different_orders(self) -> None:
        """Of a generator with 2**32 states these two epochs of seed 0 got the same."""
        assert epoch_of(1000, 0, 38_061) != epoch_of(1000, 0, 161_863)

    def test_epochs_may_be_asked_for_in_any_sequence(self) -> None:
        order = Order(50, shuffle=True, seed=9)
        for epoch in (0, 5, 5, 0, 2, 1):
            assert order.at(epoch, 0, 50, CPU).tolist() == epoch_of(50, 9, epoch)


class TestPositions:
    @pytest.mark.parametrize("num_items", [1, 2, 37, 1000])
    def test_a_single_position_equals_the_whole_orders(self, num_items: int) -> None:
        order, whole = Order(num_items, shuffle=True, seed=3), epoch_of(num_items, 3, 6)
        assert [int(order.at(6, i, 1, CPU)) for i in range(num_items)] == whole

    @settings(deadline=None, max_examples=60)
    @given(data=st.data(), shuffle=st.booleans())
    def test_runs_are_slices_of_the_whole(self, data: st.DataObject, shuffle: bool) -> None:
        num_items = data.draw(st.integers(1, 500))
        order = Order(num_items, shuffle=shuffle, seed=8)
        first, length = data.draw(st.integers(0, num_items - 1)), data.draw(st.integers(1, 40))
        stride = data.draw(st.integers(length, 120))
        whole = epoch_of(num_items, 8, 1) if shuffle else list(range(num_items))
        positions = [p + i for p in range(first, num_items, stride) for i in range(min(length, num_items - p))]
        positions = positions[: data.draw(st.integers(1, len(positions)))]
        found = order.at(1, first, len(positions), CPU, length=length, stride=stride)
        if isinstance(found, slice):
            found = torch.arange(num_items)[found]
        assert found.tolist() == [whole[p] for p in positions]

    def test_without_shuffle_a_piece_is_not_copied(self) -> None:
        order = Order(100, shuffle=False)
        assert order.at(4, 20, 10, CPU, length=10, stride=10) == slice(20, 30)
        assert order.at(4, 20, 35, CPU, length=10, stride=10) == slice(20, 55)
        assert order.at(4, 20, 10, CPU, length=10, stride=40) == slice(20, 30)
        assert torch.equal(order.at(4, 20, 12, CPU, length=10, stride=40), torch.tensor([*range(20, 30), 60, 61]))

    @pytest.mark.parametrize(("first", "count"), [(0, 11), (10, 1), (5, 6)])
    def test_positions_beyond_the_end_are_refused(self, first: int, count: int) -> None:
        with pytest.raises(ValueError, match="position 10 of an order of 10 items"):
            Order(10, shuffle=True).at(0, first, count, CPU, length=count, stride=count)

    @pytest.mark.parametrize("length", [10, 2**62, 2**63 - 1])
    def test_one_run_may_be_longer_than_the_order(self, length: int) -> None:
        order = Order(10, shuffle=True, seed=3)
        found = order.at(1, 2, 8, CPU, length=length, stride=length)
        assert torch.equal(found, order.at(1, 2, 8, CPU))

    @pytest.mark.parametrize(
        ("first", "count", "length", "stride", "position"),
        [
            (6, 6, 5, 0, "10"),  # not the last one of them
            (9, 2, 2, 1, "10"),
            (0, 5, 1, 2**62, r"2\*\*63 or beyond"),
            (2**63 - 1, 2, 2, 1, r"2\*\*63 or beyond"),
            (2**63 - 1, 1, 2**63 - 1, 2**63 - 1, str(2**63 - 1)),
        ],
    )
    def test_any_position_beyond_the_end_is_refused(
        self, first: int, count: int, length: int, stride: int, position: str
    ) -> None:
        with pytest.raises(ValueError, match=f"position {position} of an order of 10 items"):
            Order(10, shuffle=True).at(0, first, count, CPU, length=length, stride=stride)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("num_items", [1, 2, 37, 65_535, 65_536, 1_000_003, 1 << 40])
def test_a_gpu_computes_the_same(num_items: int) -> None:
    gpu, order = torch.device("cuda", torch.cuda.current_device()), Order(num_items, shuffle=True, seed=2**63 + 1)
    for first, length, stride in ((0, 1, 1), (num_items // 3, 7, 7), (num_items // 5, 3, 10)):
        left = num_items - first
        count = min(5000, left // stride * length or min(left, length))
        found = order.at(3, first, count, gpu, length=length, stride=stride)
        assert found.device == gpu
        assert torch.equal(found.cpu(), order.at(3, first, count, CPU, length=length, stride=stride))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seed": -1}, ValueError, r"seed is -1; it must be in \[0, 2\*\*64\)"),
        ({"seed": 2**64}, ValueError, "seed is 18446744073709551616"),
        ({"seed": 1.5}, TypeError, "seed is 1.5; it must be an integer"),
        ({"num_items": 0}, ValueError, "num_items is 0; it must be at least 1"),
        ({"num_items": 2**62 + 1}, ValueError, r"num_items is 4611686018427387905; at most 2\*\*62"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, int], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Order(**{"num_items": 10, "shuffle": True, **arguments})

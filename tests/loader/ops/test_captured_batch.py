"""Live blocks: the functions of loader.ops.mean find arrays and sizes when they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from marks import needs_gpu
from torch import Tensor

from loader.ops import aggregate_mean, concat_self_mean, linear_self_mean, self_and_mean
from loader.ops.captured_batch import CapturedBatch, Kind, Room
from loader.samples import Block, LazyRows, MiniBatch

SIZES = st.lists(st.integers(0, 10**6), min_size=3, max_size=3).map(tuple)


@given(a=SIZES, b=SIZES)
def test_room_holds_the_block_it_was_made_of(a: Any, b: Any) -> None:
    first, second = Room(a, a[:2]), Room(b, b[:2])
    both = first.union(second)
    assert both.holds(first)
    assert both.holds(second)
    assert both.frontiers in {a, b} or not (first.holds(second) or second.holds(first))
    wider = both.widened(0.02, 128)
    assert wider.frontiers[0] == both.frontiers[0]
    assert all(size >= 1.02 * old - 1 and size % 128 == 0 for size, old in zip(wider.edges, both.edges, strict=True))


def test_nothing_on_the_cpu_is_live() -> None:
    batch = MiniBatch(torch.arange(2), (1, 2), (Block(torch.tensor([0, 1]), torch.tensor([1]), 2, 1),))
    batch = batch.replace(x=torch.zeros(2, 4), y=torch.zeros(1, dtype=torch.int64))
    assert Kind.of(batch) is None
    with pytest.raises(ValueError, match="cannot be captured: it needs features, contiguous, and labels, all on a GPU"):
        CapturedBatch(batch, Room.of(batch))


def make_batch(
    num_seeds: int, degrees: tuple[int, ...], dim: int = 12, types: tuple[torch.dtype, torch.dtype] | None = None
) -> MiniBatch:
    """A mini-batch of one hop more than there are degrees' upper bounds, on the GPU; sizes follow from the degrees."""
    g = torch.Generator().manual_seed(sum(degrees) + num_seeds)
    index_type, id_type = types or (torch.int64, torch.int32)
    frontiers, blocks = [num_seeds], []
    for degree in degrees:
        num_dst = frontiers[-1]
        num_src = num_dst + num_dst * degree // 2 + 1
        counts = torch.randint(degree + 1, (num_dst,), generator=g)
        indptr = torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0)))
        indices = torch.randint(num_src, (int(indptr[-1]),), generator=g)
        blocks.insert(0, Block(indptr.to("cuda", index_type), indices.to("cuda", id_type), num_src, num_dst))
        frontiers.append(num_src)
    return MiniBatch(
        torch.arange(frontiers[-1], device="cuda"),
        tuple(frontiers),
        tuple(blocks),
        x=torch.randn(frontiers[-1], dim, generator=g).cuda(),
        y=torch.randint(3, (num_seeds,), generator=g).cuda(),
    )


def padded(x: Tensor, rows: int) -> Tensor:
    """With rows that nobody may read."""
    return torch.cat((x.detach(), x.new_full((rows - x.shape[0], x.shape[1]), torch.nan))).requires_grad_()


def expect_rows(got: Tensor, wanted: Tensor, *, exact: bool = True) -> None:
    """The first rows are as wanted, the others zeros."""
    assert not got[wanted.shape[0] :].any()
    torch.testing.assert_close(got[: wanted.shape[0]], wanted, **({"rtol": 0, "atol": 0} if exact else {}))


def test_fewer_seeds_fit_if_labels_are_classes() -> None:
    def kind(seeds: int, dtype: torch.dtype = torch.int64, *shape: int, dim: int = 12) -> Kind:
        types = ((torch.int32, torch.int32),)
        labels = dtype, torch.Size((seeds, *shape))
        return Kind(torch.device("cuda:0"), seeds, types, (torch.float32, dim), labels)

    assert kind(20).has_fewer_seeds_than(kind(30))
    assert not kind(30).has_fewer_seeds_than(kind(30))
    assert not kind(40).has_fewer_seeds_than(kind(30))
    assert not kind(20, dim=13).has_fewer_seeds_than(kind(30))
    assert not kind(20, torch.int32).has_fewer_seeds_than(kind(30, torch.int32))
    assert not kind(20, torch.float32, 5).has_fewer_seeds_than(kind(30, torch.float32, 5))
    assert not kind(20, torch.int64, 5).has_fewer_seeds_than(kind(30, torch.int64, 5))


class TestOnGPU:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("types", [(torch.int32,) * 2, (torch.int64, torch.int32), (torch.int64,) * 2])
    @pytest.mark.parametrize("dim", [1, 3, 12, 100, 256])
    def test_a_captured_block_reads_the_latest_block(self, dim: int, types: Any) -> None:
        batches = [make_batch(40, (degree,), dim, types) for degree in (3, 9, 0, 300)]
        room = Room.of(batches[0])
        for batch in batches[1:]:
            room = room.union(Room.of(batch))
        room = Room((50, *room.frontiers[1:]), room.edges).widened(0.02, 128)
        captured = CapturedBatch(batches[0], room)
        weights = [torch.randn(s, device="cuda", requires_grad=True) for s in ((6, dim), (6, dim), (6,))]
        for batch in batches:
            block, x = batch.blocks[0], batch.x
            assert x is not None
            assert captured.holds(batch)
            captured.load(batch)
            stand_in = captured.blocks[0]
            # x where the kernels find it
            wanted = linear_self_mean(x, block, *weights)
            got = linear_self_mean(captured.batch.x, stand_in, *weights)
            torch.testing.assert_close(got[:40], wanted)
            assert torch.equal(got[40:], weights[2].expand(got.shape[0] - 40, 6))
            wanted_grads = torch.autograd.grad(wanted.square().sum(), weights)
            grad = torch.zeros_like(got)
            grad[:40] = 2 * wanted.detach()
            for a, b in zip(torch.autograd.grad(got, weights, grad), wanted_grads, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize(
        "function",
        [
            aggregate_mean,
            lambda x, block: self_and_mean(x, block)[1],
            concat_self_mean,
            lambda x, block: concat_self_mean(x, block, relu=True),
        ],
        ids=["mean", "self_and_mean", "concat", "concat_relu"],
    )
    def test_other_functions_read_rows_with_room_to_spare(self, function: Callable[..., Tensor]) -> None:
        large, small = make_batch(30, (8, 6)), make_batch(30, (3, 400))
        room = Room.of(large).union(Room.of(small)).widened(0.02, 128)
        captured = CapturedBatch(large, room)
        for batch in (large, small, large):
            # Of the second block: the first one's `x` is the mini-batch's own.
            captured.load(batch)
            block, stand_in = batch.blocks[1], captured.blocks[1]
            x = torch.randn(block.num_src, 20, device="cuda", requires_grad=True)
            wanted = function(x, block)
            spare = padded(x, stand_in.num_src)
            got = function(spare, stand_in)
            expect_rows(got, wanted)
            grad = torch.randn_like(wanted)
            (wanted_grad,) = torch.autograd.grad(wanted, x, grad)
            (got_grad,) = torch.autograd.grad(got, spare, grad)
            expect_rows(got_grad, wanted_grad, exact=False)

    def test_rows_may_be_gathered_later(self) -> None:
        batches = [make_batch(40, (degree,), 24) for degree in (3, 9, 1)]
        captured = CapturedBatch(batches[1], Room.of(batches[1]).widened(0.1, 16))
        weights = [torch.randn(s, device="cuda", requires_grad=True) for s in ((6, 24), (6, 24), (6,))]
        for batch in batches:
            assert batch.x is not None
            ids = torch.randperm(10_000, device="cuda")[: batch.x.shape[0]].int()
            table = torch.full((10_000, 24), torch.nan, device="cuda")
            table[ids.long()] = batch.x
            lazy = batch.replace(x=None, rows=LazyRows(table, ids))
            assert captured.holds(lazy)
            wanted = linear_self_mean(batch.x, batch.blocks[0], *weights)
            captured.load(lazy)
            assert captured.batch.x is not None
            got = linear_self_mean(captured.batch.x, captured.blocks[0], *weights)
            torch.testing.assert_close(got[:40], wanted)
            assert torch.equal(got[40:], weights[2].expand(got.shape[0] - 40, 6))
        assert Kind.of(lazy.replace(rows=LazyRows(table, ids.long()))) is None

    @pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool, torch.bfloat16])
    @pytest.mark.parametrize("shape", [(), (1,), (7,), (3000,)])
    def test_labels_may_have_any_size_and_place(self, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        batch = make_batch(31, (5,))
        drawn = torch.randint(2, (100, *shape), generator=torch.Generator().manual_seed(0)).cuda().to(dtype)
        captured = CapturedBatch(batch.replace(y=drawn[:31]), Room.of(batch))
        assert captured.batch.y is not None
        for first in (0, 1, 2, 3, 64, 69):
            y = drawn[first : first + 31]
            captured.load(batch.replace(y=y))
            assert torch.equal(captured.batch.y, y)
        spread = drawn[::2][:31]
        captured.load(batch.replace(y=spread))
        assert torch.equal(captured.batch.y, spread)

    def test_missing_seeds_get_the_ignored_label(self) -> None:
        full, fewer = make_batch(30, (5, 5)), make_batch(20, (5, 5))
        full, fewer = (b.replace(y=torch.arange(b.batch_size, device="cuda") % 3) for b in (full, fewer))
        captured = CapturedBatch(full, Room.of(full).union(Room.of(fewer)), ignored_label=-7)
        assert captured.holds(fewer)
        assert not CapturedBatch(full, captured.room).holds(fewer)
        assert fewer.y is not None
        assert not captured.holds(fewer.replace(y=fewer.y.float()))
        assert not CapturedBatch(fewer, captured.room, ignored_label=-7).holds(full)
        assert captured.batch.y is not None
        for batch in (full, fewer, full, fewer):
            captured.load(batch)
            assert batch.y is not None
            wanted = [*batch.y.tolist(), *[-7] * (30 - batch.batch_size)]
            assert captured.batch.y.tolist() == wanted

    def test_every_load_draws_one_key_for_each_activation(self) -> None:
        batch = make_batch(30, (5, 5))
        captured = CapturedBatch(batch, Room.of(batch))
        x = torch.randn(batch.blocks[1].num_src, 16, device="cuda")
        captured.load(batch)
        concat_self_mean(x, captured.blocks[1], dropout=0.4)
        captured.check_draws()
        for seed in (1, 2):
            torch.manual_seed(seed)
            captured.load(batch)
            got = concat_self_mean(x, captured.blocks[1], dropout=0.4)
            torch.manual_seed(seed)
            assert torch.equal(got, concat_self_mean(x, batch.blocks[1], dropout=0.4))
        with pytest.raises(RuntimeError, match="drops elements more than once with the same block"):
            captured.check_draws()
        captured.forget_draws()
        captured.check_draws()

    def test_unsupported_uses_of_a_captured_block_fail(self) -> None:
        batch = make_batch(30, (5, 5))
        captured = CapturedBatch(batch, Room.of(batch))
        captured.load(batch)
        x, y = captured.batch.x, captured.batch.y
        assert x is not None
        assert y is not None
        with pytest.raises(ValueError, match="x lies on meta; a captured block needs it on the GPU"):
            aggregate_mean(x, captured.blocks[0])
        assert (x.relu() @ torch.ones(12, 2, device="cuda")).is_meta
        with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
            captured.blocks[0].indices.tolist()
        with pytest.raises(ValueError, match=r"x has shape \(3, 12\)"):
            linear_self_mean(
                x[:3], captured.blocks[0], *(torch.ones(s, device="cuda") for s in ((2, 12), (2, 12), (2,)))
            )

    def test_kinds_ignore_degrees_but_not_other_shapes(self) -> None:
        batch = make_batch(30, (5, 5))
        assert batch.x is not None
        assert batch.y is not None
        kind = Kind.of(batch)
        assert kind is not None
        assert kind == Kind.of(make_batch(30, (7, 2)))
        for other in (
            make_batch(29, (5, 5)),
            make_batch(30, (5, 5), dim=13),
            make_batch(30, (5, 5), types=(torch.int32, torch.int32)),
            batch.replace(x=batch.x.half()),
            batch.replace(y=batch.y.float()),
        ):
            assert kind != Kind.of(other)
        for cannot in (
            batch.replace(x=None),
            batch.replace(y=None),
            batch.to("cpu"),
            batch.replace(x=batch.x.t().contiguous().t()),
            make_batch(3, (1,) * 9),
        ):
            assert Kind.of(cannot) is None

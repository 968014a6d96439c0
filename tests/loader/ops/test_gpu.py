"""The mean over neighbors on the GPU: against a reference in float64, and what it promises about streams and bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import reference_dropout
import torch
from marks import HAS_GPU, needs_gpu
from torch import Tensor

from loader.ops import (
    aggregate_mean,
    aggregate_row_mean,
    aggregate_sum,
    concat_self_mean,
    linear_self_mean,
    self_and_mean,
)
from loader.ops.captured_batch import draw_keys
from loader.samples import Block

INDEX_TYPES = [(torch.int32, torch.int32), (torch.int64, torch.int32), (torch.int64, torch.int64)]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def random_block(num_dst: int, num_src: int, degrees: Tensor, types: int = 0, picked: int | None = None) -> Block:
    """On the GPU; parallel edges happen. Only the first `picked` sources, by default all, have edges."""
    g = torch.Generator().manual_seed(num_dst)
    indptr = torch.cat((torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)))
    indices = torch.randint(num_src if picked is None else picked, (int(indptr[-1]),), generator=g)
    index_type, id_type = INDEX_TYPES[types]
    return Block(indptr.to("cuda", index_type), indices.to("cuda", id_type), num_src, num_dst)


def mixed_block(types: int = 0) -> Block:
    """Empty rows, short ones, one just too long for a group of lanes, one long one."""
    degrees = torch.randint(12, (400,), generator=torch.Generator().manual_seed(0))
    degrees[7], degrees[8], degrees[9], degrees[399] = 256, 257, 5000, 300
    return random_block(400, 900, degrees, types)


def matrix(block: Block) -> Tensor:
    """`[num_dst, num_src]` float64: the mean as a dense matrix."""
    degrees = (block.indptr[1:] - block.indptr[:-1]).long()
    rows = torch.repeat_interleave(torch.arange(block.num_dst, device="cuda"), degrees)
    dense = torch.zeros(block.num_dst, block.num_src, dtype=torch.float64, device="cuda")
    dense.index_put_((rows, block.indices.long()), 1 / degrees[rows].double(), accumulate=True)
    return dense


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_concat_on_the_cpu_follows_its_definition() -> None:
    block = Block(torch.tensor([0, 2, 2]), torch.tensor([0, 2]), 3, 2)
    x = torch.randn(3, 4)
    own, mean = self_and_mean(x.relu(), block)
    assert torch.equal(concat_self_mean(x, block, relu=True), torch.cat((own, mean), 1))
    torch.manual_seed(0)
    got = concat_self_mean(x, block, dropout=0.5)
    torch.manual_seed(0)
    assert torch.equal(got, torch.cat(self_and_mean(torch.nn.functional.dropout(x, 0.5), block), 1))
    with pytest.raises(ValueError, match=r"dropout is 1.0; it must be in \[0, 1\)"):
        concat_self_mean(x, block, dropout=1.0)


@pytest.mark.parametrize("relu", [False, True])
def test_linear_on_the_cpu_follows_its_definition(relu: bool) -> None:
    block = Block(torch.tensor([0, 2, 2]), torch.tensor([0, 2]), 3, 2)
    x, weights, bias = torch.randn(3, 4), torch.randn(2, 5, 4), torch.randn(5)
    own, mean = self_and_mean(x.relu() if relu else x, block)
    expected = own @ weights[0].t() + mean @ weights[1].t() + bias
    torch.testing.assert_close(linear_self_mean(x, block, *weights, bias, relu=relu), expected)
    with pytest.raises(ValueError, match=r"dropout is -0.5; it must be in \[0, 1\)"):
        linear_self_mean(x, block, *weights, bias, dropout=-0.5)


class TestOnGPU:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("widths", [(1, 1), (47, 5), (100, 64), (257, 33)])
    @pytest.mark.parametrize("relu", [False, True])
    def test_linear_of_self_and_mean_follows_its_definition(
        self, widths: tuple[int, int], dtype: torch.dtype, relu: bool
    ) -> None:
        block = mixed_block()
        dim, out_dim = widths
        torch.manual_seed(0)
        shapes = ((block.num_src, dim), (out_dim, dim), (out_dim, dim), (out_dim,))
        leaves = [torch.randn(s, device="cuda", dtype=dtype).requires_grad_() for s in shapes]
        x, weight_self, weight_mean, bias = leaves
        out = linear_self_mean(x, block, weight_self, weight_mean, bias, relu=relu)
        assert out.dtype == dtype
        exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
        read = exact[0].relu() if relu else exact[0]
        expected = read[: block.num_dst] @ exact[1].t() + matrix(block) @ read @ exact[2].t() + exact[3]
        grad_out = torch.randn_like(out)
        got, want = torch.autograd.grad(out, leaves, grad_out), torch.autograd.grad(expected, exact, grad_out.double())
        for a, b in zip((out, *got), (expected, *want), strict=True):
            assert a.is_contiguous()
            error = (a.double() - b).norm() / b.norm().clamp(min=1e-9)
            assert error < 2 * TOLERANCE[dtype], error

    @pytest.mark.parametrize("sort", [False, True])
    @pytest.mark.parametrize("last", [0, 3])
    def test_edges_of_no_row_count_nowhere(self, last: int, sort: bool, request: pytest.FixtureRequest) -> None:
        """A padded mini-batch has edges to source 0 behind those of its last row, which may be empty."""
        if sort:
            request.getfixturevalue("deterministic")
        degrees = torch.tensor([2, 0, 700, 1, last], device="cuda")
        indptr = torch.nn.functional.pad(degrees.cumsum(0), (1, 0)).int()
        torch.manual_seed(0)
        indices = torch.randint(90, (int(indptr[-1]),), device="cuda").int()
        padded = torch.cat((indices, indices.new_zeros(3000)))
        x = torch.randn(90, 20, device="cuda", requires_grad=True)
        grads = []
        for edges in (indices, padded):
            own, mean = self_and_mean(x, Block(indptr, edges, 90, 5))
            weights = torch.randn(2, 5, 20, generator=torch.Generator("cuda").manual_seed(1), device="cuda")
            grads += torch.autograd.grad((torch.stack((own, mean)) * weights).sum(), x)
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("sort", [False, True])
    @pytest.mark.parametrize("of_rows", [aggregate_sum, aggregate_row_mean])
    def test_entries_before_the_first_row_count_nowhere(
        self, of_rows: Any, sort: bool, request: pytest.FixtureRequest
    ) -> None:
        if sort:
            request.getfixturevalue("deterministic")
        indptr = torch.tensor([700, 700, 703, 1500], dtype=torch.int32)
        indices = torch.randint(90, (2000,), generator=torch.Generator().manual_seed(0)).int()
        x = torch.randn(90, 20, generator=torch.Generator().manual_seed(1))
        weights = torch.randn(3, 20, generator=torch.Generator().manual_seed(2))
        grads = []
        for device in ("cpu", "cuda"):
            leaf = x.to(device).requires_grad_()
            out = of_rows(leaf, indptr.to(device), indices.to(device))
            grads.append(torch.autograd.grad((out * weights.to(device)).sum(), leaf)[0].cpu())
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-5)

    def test_without_columns_the_bias_has_its_gradient(self) -> None:
        block = mixed_block()
        x, bias = torch.ones(block.num_src, 0, device="cuda"), torch.ones(3, device="cuda", requires_grad=True)
        none = torch.ones(3, 0, device="cuda")
        torch.full((1 << 20,), float("nan"), device="cuda")  # memory that may be handed out next
        out = linear_self_mean(x, block, none, none, bias)
        out.sum().backward()
        torch.testing.assert_close(out, torch.ones_like(out))
        torch.testing.assert_close(bias.grad, torch.full_like(bias, block.num_dst))

    @pytest.mark.parametrize("needed", range(4))
    def test_linear_computes_the_gradients_that_are_asked_for(self, needed: int) -> None:
        block = mixed_block()
        leaves = [torch.randn(s, device="cuda") for s in ((block.num_src, 8), (3, 8), (3, 8), (3,))]
        leaves[needed].requires_grad_()
        x, *rest = leaves
        linear_self_mean(x, block, *rest).sum().backward()
        own, mean = self_and_mean(x, block)
        (expected,) = torch.autograd.grad((own @ rest[0].t() + mean @ rest[1].t() + rest[2]).sum(), leaves[needed])
        torch.testing.assert_close(leaves[needed].grad, expected, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("dim", [1, 3, 8, 47, 100, 256, 257, 602])
    def test_forward_and_backward_follow_the_definition(self, dim: int, dtype: torch.dtype) -> None:
        block = mixed_block()
        x = torch.randn(block.num_src, dim, device="cuda", dtype=dtype).requires_grad_()
        grad_own, grad_mean = torch.randn(2, block.num_dst, dim, device="cuda", dtype=dtype)
        dense = matrix(block)
        expected = dense @ x.detach().double()
        expected_grad = dense.t() @ grad_mean.double()
        scale = TOLERANCE[dtype]
        mean = aggregate_mean(x, block)
        assert (mean.dtype, mean.shape) == (dtype, (block.num_dst, dim))
        torch.testing.assert_close(mean.double(), expected, rtol=scale, atol=scale)
        (grad,) = torch.autograd.grad(mean, x, grad_mean)
        assert grad.dtype == dtype
        torch.testing.assert_close(grad.double(), expected_grad, rtol=4 * scale, atol=4 * scale)

        own, mean = self_and_mean(x, block)
        assert own.data_ptr() == x.data_ptr()
        (grad,) = torch.autograd.grad((own, mean), x, (grad_own, grad_mean))
        both = expected_grad.clone()
        both[: block.num_dst] += grad_own.double()
        torch.testing.assert_close(grad.double(), both, rtol=4 * scale, atol=4 * scale)

        cat = concat_self_mean(x, block)
        torch.testing.assert_close(cat[:, :dim], x[: block.num_dst], rtol=0, atol=0)
        torch.testing.assert_close(cat[:, dim:].double(), expected, rtol=scale, atol=scale)
        (grad,) = torch.autograd.grad(cat, x, torch.cat((grad_own, grad_mean), 1))
        torch.testing.assert_close(grad.double(), both, rtol=4 * scale, atol=4 * scale)

    @pytest.mark.parametrize("types", range(len(INDEX_TYPES)))
    @pytest.mark.parametrize("dim", [47, 64])
    def test_every_width_of_ids_gives_the_mean(self, types: int, dim: int) -> None:
        block = mixed_block(types)
        x = torch.randn(block.num_src, dim, device="cuda", requires_grad=True)
        grad_out = torch.randn(block.num_dst, dim, device="cuda")
        dense = matrix(block).float()
        mean = aggregate_mean(x, block)
        torch.testing.assert_close(mean, dense @ x, rtol=1e-4, atol=1e-4)
        (grad,) = torch.autograd.grad(mean, x, grad_out)
        torch.testing.assert_close(grad, dense.t() @ grad_out, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("in_deterministic_mode", [False, True])
    def test_gradients_pass_gradcheck(self, in_deterministic_mode: bool) -> None:
        block = random_block(6, 11, torch.tensor([3, 0, 1, 5, 2, 4]))
        x = torch.randn(11, 5, dtype=torch.float64, device="cuda", requires_grad=True)
        torch.use_deterministic_algorithms(in_deterministic_mode)
        try:
            assert torch.autograd.gradcheck(lambda t: aggregate_mean(t, block), (x,), nondet_tol=1e-12)
            assert torch.autograd.gradcheck(lambda t: self_and_mean(t, block), (x,), nondet_tol=1e-12)
            assert torch.autograd.gradcheck(lambda t: concat_self_mean(t, block, relu=True), (x,), nondet_tol=1e-12)

            def dropped(t: Tensor) -> Tensor:
                torch.manual_seed(3)
                return concat_self_mean(t, block, relu=True, dropout=0.4)

            assert torch.autograd.gradcheck(dropped, (x,), nondet_tol=1e-12)
            rest = [torch.randn(s, dtype=torch.float64, device="cuda") for s in ((2, 5), (2, 5), (2,))]
            inputs = [t.requires_grad_() for t in (x, *rest)]

            def layer(*t: Tensor) -> Tensor:
                torch.manual_seed(3)
                return linear_self_mean(t[0], block, *t[1:], relu=True, dropout=0.4)

            assert torch.autograd.gradcheck(layer, inputs, nondet_tol=1e-12)
        finally:
            torch.use_deterministic_algorithms(False)

    def test_hubs_on_both_sides_have_exact_means(self) -> None:
        n = 100_000
        indptr = torch.tensor([0, n, n, n + 1, 2 * n])  # the last row is source 0, again and again
        indices = torch.cat((torch.arange(n), torch.tensor([3]), torch.zeros(n - 1, dtype=torch.int64)))
        block = Block(indptr.int().cuda(), indices.int().cuda(), n, 4)
        x = torch.randn(n, 100, device="cuda", requires_grad=True)
        mean = aggregate_mean(x, block)
        expected = torch.stack((x.double().mean(0), torch.zeros(100, device="cuda").double(), *x[[3, 0]].double()))
        torch.testing.assert_close(mean.double(), expected, rtol=1e-4, atol=1e-6)
        grad_out = torch.randn(4, 100, device="cuda")
        (grad,) = torch.autograd.grad(mean, x, grad_out)
        by_hand = (grad_out[0].double() / n).expand(n, 100).clone()
        by_hand[3] += grad_out[2].double()
        by_hand[0] += grad_out[3].double()
        torch.testing.assert_close(grad.double(), by_hand, rtol=1e-4, atol=1e-6)

    def test_sources_with_many_destinations_have_exact_gradients(self) -> None:
        block = random_block(3000, 3100, torch.full((3000,), 6), picked=4)
        x = torch.randn(3100, 33, device="cuda", requires_grad=True)
        grad_out = torch.randn(3000, 33, device="cuda")
        (grad,) = torch.autograd.grad(aggregate_mean(x, block), x, grad_out)
        torch.testing.assert_close(grad.double(), matrix(block).t() @ grad_out.double(), rtol=1e-4, atol=1e-4)

    @pytest.mark.usefixtures("deterministic")
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_deterministic_mode_gives_the_same_bits(self, dtype: torch.dtype) -> None:
        block = random_block(3000, 3100, torch.full((3000,), 6), picked=40)  # 450 destinations a source: long rows
        x = torch.randn(3100, 64, device="cuda", dtype=dtype, requires_grad=True)
        grad_out = torch.randn(3000, 64, device="cuda", dtype=dtype)
        grads = [torch.autograd.grad(aggregate_mean(x, block), x, grad_out)[0] for _ in range(10)]
        assert all(torch.equal(grads[0], g) for g in grads[1:])
        expected = matrix(block).t() @ grad_out.double()
        torch.testing.assert_close(grads[0].double(), expected, rtol=TOLERANCE[dtype] * 4, atol=TOLERANCE[dtype] * 4)

    def test_the_mean_has_the_same_bits_every_time(self) -> None:
        block = mixed_block()
        x = torch.randn(block.num_src, 100, device="cuda")
        first = aggregate_mean(x, block)
        assert all(torch.equal(first, aggregate_mean(x, block)) for _ in range(20))

    def test_empty_blocks_give_zeros(self) -> None:
        no_edges = Block(torch.zeros(4, dtype=torch.int32).cuda(), torch.zeros(0, dtype=torch.int32).cuda(), 5, 3)
        x = torch.randn(5, 7, device="cuda", requires_grad=True)
        mean = aggregate_mean(x, no_edges)
        assert torch.equal(mean, torch.zeros(3, 7, device="cuda"))
        (grad,) = torch.autograd.grad(mean, x, torch.ones_like(mean))
        assert torch.equal(grad, torch.zeros_like(x))
        nobody = Block(torch.zeros(1, dtype=torch.int32).cuda(), torch.zeros(0, dtype=torch.int32).cuda(), 5, 0)
        mean = aggregate_mean(x, nobody)
        assert mean.shape == (0, 7)
        (grad,) = torch.autograd.grad(mean.sum(), x)
        assert torch.equal(grad, torch.zeros_like(x))
        assert aggregate_mean(torch.empty(5, 0, device="cuda"), no_edges).shape == (3, 0)

    @pytest.mark.parametrize("layout", ["transposed", "columns of a wider array", "off by one", "one row repeated"])
    def test_input_and_gradient_may_have_any_layout(self, layout: str) -> None:
        block = mixed_block()
        n = block.num_src
        x = {
            "transposed": lambda: torch.randn(64, n, device="cuda").t(),
            "columns of a wider array": lambda: torch.randn(n, 100, device="cuda")[:, 3:67],
            "off by one": lambda: torch.randn(n * 64 + 1, device="cuda")[1:].view(n, 64),
            "one row repeated": lambda: torch.randn(1, 64, device="cuda").expand(n, 64),
        }[layout]()
        leaf = x.detach().requires_grad_()
        mean = aggregate_mean(leaf, block)
        torch.testing.assert_close(mean.double(), matrix(block) @ x.double(), rtol=1e-4, atol=1e-4)
        mean.sum().backward()  # the gradient of a sum is an expanded scalar
        expected = matrix(block).t().sum(1, keepdim=True).expand(n, 64)
        torch.testing.assert_close(leaf.grad.double(), expected, rtol=1e-4, atol=1e-4)

    def test_one_of_two_gradients_is_enough(self) -> None:
        block = mixed_block()
        x = torch.randn(block.num_src, 20, device="cuda", requires_grad=True)
        own, mean = self_and_mean(x, block)
        (grad,) = torch.autograd.grad(own.sum(), x, retain_graph=True)
        expected = torch.zeros_like(x)
        expected[: block.num_dst] = 1
        assert torch.equal(grad, expected)
        (grad,) = torch.autograd.grad(mean.sum(), x)
        expected = matrix(block).sum(0)[:, None].expand_as(x)
        torch.testing.assert_close(grad.double(), expected, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("dim", [5, 64])
    def test_relu_on_the_way_equals_relu_before(self, dim: int, dtype: torch.dtype) -> None:
        block = mixed_block()
        x = torch.randn(block.num_src, dim, device="cuda", dtype=dtype).requires_grad_()
        grad_out = torch.randn(block.num_dst, 2 * dim, device="cuda", dtype=dtype)
        cats = (concat_self_mean(x, block, relu=True), torch.cat(self_and_mean(x.relu(), block), 1))
        results = [(cat.detach(), torch.autograd.grad(cat, x, grad_out)[0]) for cat in cats]
        torch.testing.assert_close(results[0], results[1], rtol=TOLERANCE[dtype] * 2, atol=TOLERANCE[dtype] * 2)

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("dim", [7, 64, 256])
    @pytest.mark.parametrize("p", [0.1, 0.5])
    def test_dropout_on_the_way_scales_kept_values(self, dim: int, dtype: torch.dtype, p: float) -> None:
        """The mask is read off blocks whose destinations are all sources and whose neighbors are themselves."""
        n = 4000
        itself = Block(torch.arange(n + 1).int().cuda(), torch.arange(n).int().cuda(), n, n)
        ones = torch.ones(n, dim, device="cuda", dtype=dtype, requires_grad=True)
        torch.manual_seed(5)
        both = concat_self_mean(ones, itself, dropout=p)
        own, mean = both[:, :dim], both[:, dim:]
        assert torch.equal(own, mean)
        kept = own != 0
        threshold = round(p * 65536)
        torch.manual_seed(5)
        assert torch.equal(kept.cpu(), reference_dropout.kept(n, dim, draw_keys(1)[0], threshold))
        scale = 65536 / (65536 - threshold)
        assert torch.equal(own[kept], torch.full_like(own[kept], scale))
        share = kept.double().mean().item()
        assert abs(share - (1 - p)) < 5 * (p * (1 - p) / (n * dim)) ** 0.5
        for axis in (0, 1):  # neither a row nor a column, nor neighbors, are alike
            marginal = kept.double().mean(axis)
            count = n if axis == 0 else dim
            assert ((marginal - share).abs() < 6.5 * (p * (1 - p) / count) ** 0.5).all()
        if dim > 7:
            centred = kept.double() - share
            assert abs((centred[:, 1:] * centred[:, :-1]).mean().item()) < 6 * p * (1 - p) / (n * dim) ** 0.5
            assert abs((centred[1:] * centred[:-1]).mean().item()) < 6 * p * (1 - p) / (n * dim) ** 0.5

        # The gradient is dropped where the value was.
        (grad,) = torch.autograd.grad(own.sum(), ones)
        assert torch.equal(grad != 0, kept)

        # One key, one mask: whatever the block, the type, the alignment.
        block = mixed_block()
        x = torch.randn(block.num_src, dim, device="cuda", dtype=torch.float64)
        torch.manual_seed(5)
        got = concat_self_mean(x, block, dropout=p)
        dropped = x * kept[: block.num_src] * scale
        torch.testing.assert_close(got, torch.cat(self_and_mean(dropped, block), 1), rtol=1e-6, atol=1e-6)
        torch.manual_seed(6)
        assert not torch.equal(concat_self_mean(x, block, dropout=p), got)

    @pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
    def test_autocast_narrows_only_the_concatenation(self, low: torch.dtype) -> None:
        block = mixed_block()
        x = torch.randn(block.num_src, 100, device="cuda", requires_grad=True)
        with torch.autocast("cuda", low):
            cat = concat_self_mean(x, block)
            assert cat.dtype == low
            assert aggregate_mean(x, block).dtype == torch.float32
            assert concat_self_mean(x.to(low), block).dtype == low
            assert concat_self_mean(x.double(), block).dtype == torch.float64
        torch.testing.assert_close(cat, concat_self_mean(x, block).to(low))
        grad_out = torch.randn_like(cat)
        (grad,) = torch.autograd.grad(cat, x, grad_out)
        assert grad.dtype == torch.float32
        (expected,) = torch.autograd.grad(concat_self_mean(x, block), x, grad_out.float())
        torch.testing.assert_close(grad, expected)

        rest = [torch.randn(s, device="cuda", requires_grad=True) for s in ((6, 100), (6, 100), (6,))]
        with torch.autocast("cuda", low):
            out = linear_self_mean(x, block, *rest)
        assert out.dtype == low
        grads = torch.autograd.grad(out, [x, *rest], torch.ones_like(out))
        assert all(g.dtype == torch.float32 for g in grads)
        wanted = torch.autograd.grad(linear_self_mean(x, block, *rest).sum(), [x, *rest])
        for a, b in zip(grads, wanted, strict=True):
            assert (a - b).norm() < 0.02 * b.norm()

    def test_nothing_waits_for_the_gpu(self) -> None:
        block = mixed_block()
        x = torch.randn(block.num_src, 100, device="cuda", requires_grad=True)
        rest = [torch.randn(s, device="cuda", requires_grad=True) for s in ((6, 100), (6, 100), (6,))]
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            own, mean = self_and_mean(x, block)
            (own.sum() + mean.sum()).backward()
            concat_self_mean(x, block, relu=True, dropout=0.5).sum().backward()
            aggregate_mean(x, block).sum().backward()
            linear_self_mean(x, block, *rest, relu=True, dropout=0.5).sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_runs_on_the_current_stream(self) -> None:
        block = random_block(2000, 3000, torch.full((2000,), 10))
        x = torch.randn(3000, 64, device="cuda", requires_grad=True)
        grad_out = torch.randn(2000, 64, device="cuda")
        expected = (2 * aggregate_mean(x, block)).detach()
        (expected_grad,) = torch.autograd.grad(aggregate_mean(2 * x, block), x, grad_out)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            doubled = 2 * x  # not there yet when the host gets here
            mean = aggregate_mean(doubled, block)
            (grad,) = torch.autograd.grad(mean, x, grad_out)
        stream.synchronize()
        torch.testing.assert_close(mean, expected)
        torch.testing.assert_close(grad, expected_grad)

    def test_is_recorded_in_a_cuda_graph(self) -> None:
        block = mixed_block()
        x = torch.randn(block.num_src, 64, device="cuda")
        aggregate_mean(x, block)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            mean = aggregate_mean(x, block)
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert torch.equal(mean, aggregate_mean(x, block))

    def test_wrong_arguments_are_refused(self) -> None:
        block = random_block(3, 4, torch.tensor([1, 2, 1]))
        x = torch.zeros(4, 2, device="cuda")
        with pytest.raises(ValueError, match=r"x has shape \(5, 2\); the block needs \[4, F\]"):
            aggregate_mean(torch.zeros(5, 2, device="cuda"), block)
        with pytest.raises(ValueError, match="x lies on cpu, the block on cuda:0"):
            aggregate_mean(torch.zeros(4, 2), block)
        with pytest.raises(TypeError, match=r"torch\.int32; on the GPU it must be float32"):
            aggregate_mean(x.int(), block)
        with pytest.raises(ValueError, match="indptr on cpu"):
            aggregate_mean(x, Block(block.indptr.cpu(), block.indices, 4, 3))
        with pytest.raises(TypeError, match=r"torch\.int32 and indices of torch\.int64"):
            aggregate_mean(x, Block(block.indptr, block.indices.long(), 4, 3))
        with pytest.raises(ValueError, match="not contiguous"):
            aggregate_mean(x, Block(block.indptr, block.indices.repeat_interleave(2)[::2], 4, 3))
        with pytest.raises(ValueError, match=r"indptr has shape \(4,\).*\[6\]"):
            aggregate_mean(x, Block(block.indptr, block.indices, 4, 5))
        with pytest.raises(ValueError, match="3 destinations, but only 2 sources"):
            aggregate_mean(x[:2], Block(block.indptr, block.indices, 2, 3))

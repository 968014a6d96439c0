"""The mean over neighbors: against a definition in float64, and its promises about threads and memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from forks import in_forked_child, needs_fork
from hypothesis import given, settings
from hypothesis import strategies as st

from loader import _core
from loader.ops import aggregate_mean, aggregate_sum, concat_self_mean, linear_self_mean, self_and_mean
from loader.ops import gpu as ops_gpu
from loader.samples import Block

INDEX_TYPES = [(torch.int32, torch.int32), (torch.int64, torch.int32), (torch.int64, torch.int64)]


@pytest.fixture(autouse=True)
def _keep_thread_count() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def make_block(rows: list[list[int]], num_src: int, types: tuple[torch.dtype, torch.dtype] = INDEX_TYPES[0]) -> Block:
    indptr = torch.tensor([0, *[len(r) for r in rows]]).cumsum(0).to(types[0])
    indices = torch.tensor([s for r in rows for s in r], dtype=types[1])
    return Block(indptr, indices, num_src, len(rows))


def random_block(num_dst: int, num_src: int, max_degree: int, seed: int = 0, types: int = 0) -> Block:
    g = torch.Generator().manual_seed(seed)
    degrees = torch.randint(max_degree + 1, (num_dst,), generator=g).tolist()
    return make_block(
        [torch.randint(num_src, (d,), generator=g).tolist() for d in degrees], num_src, INDEX_TYPES[types]
    )


def rows_of(block: Block) -> list[list[int]]:
    ends, indices = block.indptr.tolist(), block.indices.tolist()
    return [indices[a:b] for a, b in pairwise(ends)]


def by_definition(x: torch.Tensor, block: Block) -> torch.Tensor:
    """The mean, spelled out in Python floats."""
    table = x.double().tolist()
    out = [
        [sum(table[s][f] for s in row) / len(row) if row else 0.0 for f in range(x.shape[1])] for row in rows_of(block)
    ]
    return torch.tensor(out, dtype=torch.float64).view(block.num_dst, x.shape[1])


def gradient_by_definition(grad_out: torch.Tensor, block: Block) -> torch.Tensor:
    grad = [[0.0] * grad_out.shape[1] for _ in range(block.num_src)]
    table = grad_out.double().tolist()
    for i, row in enumerate(rows_of(block)):
        for s in row:
            for f in range(grad_out.shape[1]):
                grad[s][f] += table[i][f] / len(row)
    return torch.tensor(grad, dtype=torch.float64).view(block.num_src, grad_out.shape[1])


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    num_src = draw(st.integers(1, 12))
    rows = draw(st.lists(st.lists(st.integers(0, num_src - 1), max_size=11), max_size=num_src))
    return make_block(rows, num_src, draw(st.sampled_from(INDEX_TYPES)))


@settings(max_examples=60, deadline=None)
@given(blocks(), st.integers(0, 19), st.sampled_from([torch.float32, torch.float64]), st.integers(1, 3))
def test_forward_and_backward_follow_the_definition(block: Block, dim: int, dtype: torch.dtype, threads: int) -> None:
    torch.set_num_threads(threads)
    g = torch.Generator().manual_seed(dim)
    x = torch.randn(block.num_src, dim, generator=g, dtype=dtype).requires_grad_()
    grad_out = torch.randn(block.num_dst, dim, generator=g, dtype=dtype)
    out = aggregate_mean(x, block)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), by_definition(x.detach(), block), rtol=1e-5, atol=1e-5)
    (grad_x,) = torch.autograd.grad(out, x, grad_out)
    torch.testing.assert_close(grad_x.double(), gradient_by_definition(grad_out, block), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5, 6, 7, 8, 9, 40])
@pytest.mark.parametrize("smallest", [2.0**-149, 2.0**-133])
def test_subnormal_numbers_keep_their_mean(degree: int, smallest: float) -> None:
    x = torch.full((degree, 19), smallest)
    assert torch.equal(aggregate_mean(x, make_block([list(range(degree))], degree)), x[:1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("transposed", [False, True])
def test_narrow_types_are_summed_in_float32(dtype: torch.dtype, transposed: bool) -> None:
    block = random_block(60, 90, 40)
    x = torch.randn(7, 90).to(dtype).t() if transposed else torch.randn(90, 7).to(dtype)
    x.requires_grad_()
    grads = torch.randn(60, 7).to(dtype), torch.randn(60, 7).to(dtype)
    own, mean = self_and_mean(x, block)
    assert (own.dtype, mean.dtype) == (dtype, dtype)
    wide = x.detach().float().requires_grad_()
    expected = self_and_mean(wide, block)
    assert torch.equal(mean, expected[1].to(dtype))
    (grad,) = torch.autograd.grad((own, mean), x, grads)
    (wide_grad,) = torch.autograd.grad(expected, wide, [g.float() for g in grads])
    assert torch.equal(grad, wide_grad.to(dtype))


def test_autocast_on_the_cpu_sums_in_float32() -> None:
    block = random_block(60, 90, 40)
    x = torch.randn(90, 8, requires_grad=True)
    weights = torch.randn(5, 8), torch.randn(5, 8), torch.randn(5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        both = concat_self_mean(x, block)
        out = linear_self_mean(x, block, *weights)
        assert aggregate_mean(x, block).dtype == torch.float32  # as every op that autocast does not name
    assert (both.dtype, out.dtype) == (torch.bfloat16, torch.bfloat16)
    assert torch.equal(both, torch.cat(self_and_mean(x, block), 1).bfloat16())
    torch.testing.assert_close(out.float(), linear_self_mean(x, block, *weights), rtol=0.05, atol=0.1)
    (grad,) = torch.autograd.grad(out.float().sum(), x)
    assert grad.dtype == torch.float32


def test_gradients_pass_gradcheck() -> None:
    block = random_block(7, 12, 5)
    x = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: aggregate_mean(t, block), (x,))
    assert torch.autograd.gradcheck(lambda t: self_and_mean(t, block), (x,))


@pytest.mark.parametrize("used", [(True, True), (True, False), (False, True)])
def test_self_and_mean_gives_slice_and_mean(used: tuple[bool, bool]) -> None:
    block = random_block(9, 20, 5)
    x = torch.randn(20, 4, requires_grad=True)
    weights = torch.randn(2, 9, 4)
    grads = []
    for own, mean in (self_and_mean(x, block), (x[:9], aggregate_mean(x, block))):
        parts = [(w * part).sum() for w, part, use in zip(weights, (own, mean), used, strict=True) if use]
        grads.append(torch.autograd.grad(sum(parts), x)[0])  # type: ignore[arg-type]
    torch.testing.assert_close(grads[0], grads[1])
    assert self_and_mean(x, block)[0].data_ptr() == x.data_ptr()


@pytest.mark.parametrize("types", range(len(INDEX_TYPES)))
@pytest.mark.parametrize("dim", [1, 37, 64])
def test_threads_do_not_change_the_bits(types: int, dim: int) -> None:
    block = random_block(8000, 9000, 20, seed=3, types=types)  # large enough to be split
    x = torch.randn(9000, dim, requires_grad=True)
    grad_out = torch.randn(8000, dim)
    results = []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        out = aggregate_mean(x, block)
        results.append((out.detach(), torch.autograd.grad(out, x, grad_out)[0]))
    for out, grad in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(grad, results[0][1])


def test_a_hub_among_leaves_has_its_mean() -> None:
    torch.set_num_threads(4)
    block = make_block([[*range(5000)], [], [4999]], 5000)
    x = torch.randn(5000, 8)
    expected = torch.stack((x.double().mean(0), torch.zeros(8), x[4999].double())).double()
    torch.testing.assert_close(aggregate_mean(x, block).double(), expected, rtol=1e-4, atol=1e-5)


def test_an_input_without_gradient_needs_no_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("mean_backward was called")

    monkeypatch.setattr(_core, "mean_backward", refuse)
    block = random_block(5, 9, 4)
    weight = torch.randn(3, 2, requires_grad=True)
    (aggregate_mean(torch.randn(9, 3), block) @ weight).sum().backward()
    assert weight.grad is not None


def test_input_and_gradient_may_be_non_contiguous() -> None:
    block = random_block(6, 10, 4)
    wide = torch.randn(4, 10, requires_grad=True)
    out = aggregate_mean(wide.t(), block)
    torch.testing.assert_close(out.double(), by_definition(wide.detach().t(), block))
    out.sum().backward()  # the gradient of a sum is an expanded scalar
    torch.testing.assert_close(
        wide.grad.t().double(), gradient_by_definition(torch.ones(6, 4), block), rtol=1e-5, atol=1e-6
    )


def test_python_threads_may_call_at_the_same_time() -> None:
    torch.set_num_threads(2)
    block = random_block(8000, 9000, 12)
    x = torch.randn(9000, 64)
    expected = aggregate_mean(x, block)
    equal: list[bool] = []

    def work() -> None:
        equal.extend(torch.equal(aggregate_mean(x, block), expected) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert equal == [True] * 80


@needs_fork
def test_a_forked_child_makes_threads_of_its_own() -> None:
    block = random_block(8000, 9000, 12)
    x, out = torch.randn(9000, 64), torch.empty(8000, 64)
    _core.mean_forward(block.indptr, block.indices, x, out, 2)  # the parent's threads exist now
    in_forked_child(lambda: _core.mean_forward(block.indptr, block.indices, x, out, 2))


@needs_fork
def test_a_fork_amid_an_aggregation_does_not_hang() -> None:
    many = 4000
    block = Block(torch.arange(many + 1, dtype=torch.int32) * 500, torch.arange(many * 500).int() % many, many, many)
    x = torch.randn(many, 512)
    small, ones = make_block([[0, 1]], 2), torch.ones(2, 4)
    begun, stop = threading.Event(), threading.Event()

    def aggregate() -> None:  # a call takes long, and holds the lock of all aggregations
        out = torch.empty(many, 512)
        while not stop.is_set():
            begun.set()
            _core.mean_forward(block.indptr, block.indices, x, out, 2)

    def use() -> None:
        out = torch.empty(1, 4)
        _core.mean_forward(small.indptr, small.indices, ones, out, 2)
        assert torch.equal(out, ones[:1])

    busy = threading.Thread(target=aggregate)
    busy.start()
    try:
        for _ in range(3):
            begun.wait()
            begun.clear()
            time.sleep(0.02)
            in_forked_child(use)
    finally:
        stop.set()
        busy.join()


@pytest.mark.parametrize("function", [aggregate_mean, self_and_mean, concat_self_mean])
def test_other_than_a_block_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="x is a Tensor and block is None; give a tensor, then a Block"):
        function(torch.zeros(2, 4), None)


def test_weights_of_other_shapes_are_refused() -> None:
    x, block = torch.zeros(2, 4), make_block([[0, 1]], 2)
    wide, narrow, bias = torch.zeros(8, 4), torch.zeros(4, 8), torch.zeros(8)
    with pytest.raises(
        ValueError, match=r"weight_self has shape \(4, 8\), weight_mean \(8, 4\); .* both must be \[out, 4\]"
    ):
        linear_self_mean(x, block, narrow, wide, bias)
    with pytest.raises(ValueError, match=r"bias has shape \(4,\); with these weights it must be \[8\]"):
        linear_self_mean(x, block, wide, wide, bias[:4])
    with pytest.raises(TypeError, match="bias is None; it must be a torch tensor"):
        linear_self_mean(x, block, wide, wide, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dropout is 'half'; it must be a number"):
        linear_self_mean(x, block, wide, wide, bias, dropout="half")  # type: ignore[arg-type]


def test_wrong_shapes_and_types_are_refused() -> None:
    block = make_block([[0, 1]], 2)
    with pytest.raises(ValueError, match=r"x has shape \(3, 4\); the block needs \[2, F\]"):
        aggregate_mean(torch.zeros(3, 4), block)
    with pytest.raises(ValueError, match=r"x has shape \(2,\)"):
        aggregate_mean(torch.zeros(2), block)
    with pytest.raises(TypeError, match=r"x has dtype torch\.int32; it must be float32, float64, float16 or bfloat16"):
        aggregate_mean(torch.zeros(2, 4, dtype=torch.int32), block)
    with pytest.raises(ValueError, match="meta"):
        aggregate_mean(torch.zeros(2, 4, device="meta"), block)


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([1, 2], [0, 1], "starts at 1; it must start at 0"),
        ([0, 3], [0, 1], "ends at 3; it must end at the number of edges, 2"),
        ([0, 2, 1, 2], [0, 1], r"not monotone: indptr\[1\] = 2 > 1"),
        ([0, 2], [0, 7], "source 7 at edge 1; valid local ids are 0 to 1"),
        ([0, 2], [-1, 0], "source -1 at edge 0"),
    ],
)
def test_blocks_that_contradict_themselves_are_refused(indptr: list[int], indices: list[int], message: str) -> None:
    block = Block(torch.tensor(indptr), torch.tensor(indices), 2, len(indptr) - 1)
    with pytest.raises(ValueError, match=message):
        aggregate_mean(torch.zeros(2, 4), block)


def test_a_large_blocks_first_offence_is_named() -> None:
    torch.set_num_threads(3)
    num_edges = 2**21 + 600  # large enough to be checked by several threads
    block = Block(torch.arange(0, num_edges + 1, 10), torch.zeros(num_edges // 10 * 10).int(), 5, num_edges // 10)
    x = torch.zeros(5, 1)
    block.indices[2_000_000] = 5
    block.indices[123_456] = -5
    with pytest.raises(ValueError, match="source -5 at edge 123456"):
        aggregate_mean(x, block)
    block.indptr[150_000] = 0
    block.indptr[1_000] = 0
    with pytest.raises(ValueError, match=r"indptr\[999\] = 9990 > 0"):
        aggregate_mean(x, block)


def test_the_core_refuses_bad_arguments() -> None:
    block = make_block([[0, 1]], 2)
    x, out = torch.zeros(2, 4), torch.zeros(1, 4)
    with pytest.raises(ValueError, match="num_threads is 0"):
        _core.mean_forward(block.indptr, block.indices, x, out, 0)
    with pytest.raises(ValueError, match="input has 4 columns, output 3"):
        _core.mean_forward(block.indptr, block.indices, x, torch.zeros(1, 3), 1)
    with pytest.raises(ValueError, match="indptr has 2 elements; it must have 3"):
        _core.mean_forward(block.indptr, block.indices, x, torch.zeros(2, 4), 1)
    with pytest.raises(TypeError, match="must not be the wider one"):
        _core.mean_forward(block.indptr, block.indices.long(), x, out, 1)
    with pytest.raises(ValueError, match="not contiguous"):
        _core.mean_forward(block.indptr, block.indices, torch.zeros(4, 2).t(), out, 1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("types", range(len(INDEX_TYPES)))
def test_cuda_equals_cpu(types: int) -> None:
    block = random_block(300, 500, 12, types=types)
    moved = Block(block.indptr.cuda(), block.indices.cuda(), block.num_src, block.num_dst)
    x = torch.randn(500, 16)
    grad_out = torch.randn(300, 16)
    results = []
    for device, b in (("cpu", block), ("cuda", moved)):
        leaf = x.to(device).requires_grad_()
        out = aggregate_mean(leaf, b)
        assert out.device.type == device
        results.append((out.detach().cpu(), torch.autograd.grad(out, leaf, grad_out.to(device))[0].cpu()))
    torch.testing.assert_close(results[0], results[1])


class TestSum:
    @pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
    def test_is_the_sum_of_each_row(self, index_type: torch.dtype) -> None:
        x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
        indptr = torch.tensor([0, 2, 2, 6, 9], dtype=index_type)
        indices = torch.tensor([0, 6, 1, 1, 2, 5, 3, 4, 0, 6, 6], dtype=index_type)  # two more than the rows end at
        wanted = torch.stack([x[indices[a:b].long()].sum(0) for a, b in pairwise(indptr)])
        assert torch.allclose(aggregate_sum(x, indptr, indices), wanted)
        assert torch.autograd.gradcheck(lambda rows: aggregate_sum(rows, indptr, indices), x)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_narrow_rows_may_be_long(self, dtype: torch.dtype) -> None:
        x = torch.ones(1, 2, dtype=dtype)
        count = 70_000 if dtype is torch.bfloat16 else 60_000
        found = aggregate_sum(x, torch.tensor([0, count]), torch.zeros(count, dtype=torch.int64))
        assert torch.equal(found, torch.full((1, 2), float(count)).to(dtype))
        zeros = aggregate_sum(torch.zeros(1, 2, dtype=dtype), torch.tensor([0, 70_000]), torch.zeros(70_000).long())
        assert torch.equal(zeros, torch.zeros(1, 2, dtype=dtype))

    def test_shapes_that_disagree_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"x, indptr and indices have shapes \(3,\), \(2,\) and \(1,\)"):
            aggregate_sum(torch.ones(3), torch.tensor([0, 1]), torch.tensor([0]))


def test_blocks_beyond_int32_are_refused_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops_gpu, "_MOST", 2)
    with pytest.raises(ValueError, match="there are 3 rows and 2 edges; a GPU sums over at most 2 of each: split"):
        ops_gpu.check(torch.ones(3, 2), make_block([[0], [2]], 3))

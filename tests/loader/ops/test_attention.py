"""Attention over rows on a CPU, and products by head: formulas for each row, and gradients by differences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from marks import HAS_GPU
from torch.nn import functional as F

from loader.ops import attention_gpu
from loader.ops.attention import AttendedPlaces, attend
from loader.ops.attention_gpu import AttendedRelation, AttendedRows, BySource, padded

LENGTHS = (2, 0, 3, 1, 4)


def case(relations: int = 2, heads: int = 2, width: int = 3) -> tuple[AttendedPlaces, AttendedRows]:
    """Rows of two relations in turns, and two entries that belong to no row."""
    g = torch.Generator().manual_seed(0)
    indptr = torch.tensor([0, *LENGTHS]).cumsum(0)
    entries = torch.randint(6, (int(indptr[-1]) + 2,), generator=g)
    every = torch.arange(len(LENGTHS))
    at = every * heads * width
    found = [AttendedRelation(r, 0, every[r::relations], at[r::relations], width) for r in range(relations)]
    return AttendedPlaces(found, [], len(LENGTHS) * heads * width), AttendedRows(indptr, entries)


def drawn(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_each_row_is_its_softmax() -> None:
    places, rows = case()
    x, vectors, sinks = drawn(6, 3), [drawn(2, 3, seed=2), drawn(2, 3, seed=3)], drawn(5, 2, seed=4)
    found = attend(places, rows, [x], vectors, sinks, 0.2).view(5, 2, 3)
    for i in range(5):
        read = x[rows.entries[rows.indptr[i] : rows.indptr[i + 1]]]
        for k in range(2):
            shares = F.leaky_relu(read @ vectors[i % 2][k] + sinks[i, k], 0.2).softmax(0)
            torch.testing.assert_close(found[i, k], shares @ read)
    assert not found[1].any()


def test_gradients_are_those_of_differences() -> None:
    places, rows = case()
    given = [drawn(6, 3), drawn(2, 3, seed=2), drawn(2, 3, seed=3), drawn(5, 2, seed=4)]
    for of in given:
        of.requires_grad_()

    def call(x: Any, one: Any, two: Any, sinks: Any) -> Any:
        return attend(places, rows, [x], [one, two], sinks, 0.2)

    assert torch.autograd.gradcheck(call, given)


def test_a_relation_may_have_no_entries() -> None:
    """One of other width, between the sums of others."""
    rows = AttendedRows(torch.tensor([0, 0, 2]), torch.tensor([1, 0]))
    found = [
        AttendedRelation(0, 0, torch.tensor([0]), torch.tensor([0]), 8),
        AttendedRelation(1, 1, torch.tensor([1]), torch.tensor([3]), 8),
    ]
    x, vectors, sinks = [drawn(2, 3), drawn(2, 5)], [drawn(2, 3), drawn(2, 5)], drawn(2, 2)
    sums = attend(AttendedPlaces(found, [], 16), rows, x, vectors, sinks, 0.2)
    wanted = F.leaky_relu(x[1] @ vectors[1].t() + sinks[1], 0.2)[[1, 0]].softmax(0).t() @ x[1][[1, 0]]
    assert not sums.view(2, 8)[:, :3].any()
    torch.testing.assert_close(sums.view(2, 8)[:, 3:], wanted)


def test_large_scores_do_not_overflow() -> None:
    places, rows = case(relations=1)
    found = attend(places, rows, [drawn(6, 3).float()], [1e4 * drawn(2, 3).float()], drawn(5, 2).float(), 0.2)
    assert found.isfinite().all()


def test_sums_have_the_dtype_of_rows() -> None:
    places, rows = case(relations=1)
    x, vectors, sinks = drawn(6, 3).bfloat16(), [drawn(2, 3).float()], drawn(5, 2).float()
    found = attend(places, rows, [x], vectors, sinks, 0.2)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, attend(places, rows, [x.float()], vectors, sinks, 0.2).bfloat16())


def test_no_rows_are_no_sums() -> None:
    rows = AttendedRows(torch.zeros(1).long(), torch.zeros(0).long())
    assert attend(AttendedPlaces([], [], 0), rows, [drawn(6, 3)], [None], drawn(0, 2), 0.2).shape == (0,)


def test_entries_are_listed_by_source() -> None:
    indptr, entries = torch.tensor([0, 2, 2, 5]), torch.tensor([3, 1, 1, 0, 3, 2, 0])  # the last two are of no row
    begins, order, row = BySource(indptr, entries, 4).lists
    assert begins.tolist() == [0, 1, 3, 3, 5]
    assert order[:5].tolist() == [3, 1, 2, 0, 4]
    assert row[:5].tolist() == [0, 0, 2, 2, 2]
    assert {of.dtype for of in (begins, order, row)} == {torch.int32}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_cpu_pads_no_columns(dtype: torch.dtype) -> None:
    x = torch.ones(2, 3, dtype=dtype)
    assert padded(x) is x


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(
    ("dtype", "tensor_cores"), [(torch.float32, True), (torch.bfloat16, True), (torch.bfloat16, False)]
)
@pytest.mark.parametrize(("width", "heads"), [(1024, 4), (512, 4), (72, 6), (8, 1), (4104, 6)])
def test_a_gpu_sums_as_a_cpu_does(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, tensor_cores: bool, width: int, heads: int
) -> None:
    """Over short rows and a long one, of sources of which one has many entries."""
    monkeypatch.setattr(attention_gpu, "TENSOR_CORES", tensor_cores)
    g = torch.Generator().manual_seed(0)
    lengths = torch.randint(8, (3000,), generator=g)
    lengths[7], count = 3000, 500
    indptr = torch.cat([torch.zeros(1).long(), lengths.cumsum(0)])
    entries = torch.randint(count, (int(indptr[-1]) + 5,), generator=g)
    entries[::9] = 3
    every = torch.arange(len(lengths))
    found = [AttendedRelation(r, 0, every[r::2], every[r::2] * heads * width, width) for r in range(2)]
    places = AttendedPlaces(found, [], len(lengths) * heads * width)
    given = [drawn(count, width), *(drawn(heads, width, seed=s) * width**-0.5 for s in (2, 3)), drawn(3000, heads)]
    given[0] = given[0].to(dtype).double()  # so that all read the same numbers
    mix, results = drawn(places.size, seed=5).to(dtype).double(), []
    for device, kind in (("cpu", torch.float64), ("cuda", dtype), ("cuda", dtype)):
        wide = torch.float64 if device == "cpu" else torch.float32
        x, *others = (of.to(device, wide).requires_grad_() for of in given)
        rows = [one._replace(order=one.order.to(device), at=one.at.to(device)) for one in places.relations]
        of_rows = indptr.to(device), entries.int().to(device)
        sources = AttendedRows(*of_rows, BySource(*of_rows, count))
        out = attend(places._replace(relations=rows), sources, [x.to(kind)], others[:2], others[2], 0.2)
        gradients = torch.autograd.grad((out * mix.to(device, kind)).sum(), (x, *others))
        results.append([out.detach(), *gradients])
    for exact, mine, again in zip(*results, strict=True):
        assert torch.equal(mine, again)
        error = (mine.cpu().double() - exact).norm() / exact.norm()
        assert float(error) < (3e-2 if dtype == torch.bfloat16 else 1e-4)

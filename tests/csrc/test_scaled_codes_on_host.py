"""Kernels that read rows of codes, on fibers of the host: gathers from every place, and the mean over neighbors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cuda_on_host import module_on_host
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from narrow_rows import CODES, decoded
from torch import Tensor

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]

BAD = 2**40


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return module_on_host("scaled_codes_on_host", tmp_path_factory)


def aligned(tensor: Tensor, past: int = 0) -> Tensor:
    """A copy that begins `past` bytes after a line of 128 bytes."""
    room = torch.empty(tensor.nbytes + 256, dtype=torch.uint8)
    begin = -room.data_ptr() % 128 + past
    return room[begin : begin + tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)


def same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


slow = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@slow
@given(
    kind=st.sampled_from(CODES),
    narrow=st.booleans(),
    placement=st.sampled_from([0, 1, 2]),
    columns=st.sampled_from([1, 2, 3, 4, 6, 12, 47, 100, 128, 130, 300]),
    spare=st.sampled_from([0, 4, 28]),
    past=st.sampled_from([0, 4, 64]),
    by_row=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_gathers_decode_every_row(
    core: Any, kind: str, narrow: bool, placement: int, columns: int, spare: int, past: int, by_row: bool, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    num_rows, n, pitch = 90, 70, columns + spare
    count = next(c for c in (4, 2, 1) if columns % c == 0 and pitch % c == 0 and past % c == 0)
    table = torch.randint(256, (num_rows, pitch), generator=random, dtype=torch.uint8)
    if kind == "float8":
        table[(table & 127) == 127] = 0  # NaN: its payload is not defined
    table = aligned(table, past)
    scales = aligned(torch.rand(num_rows if by_row else columns, generator=random).exp2())
    ids = torch.randint(num_rows, (n,), generator=random)
    ids[::17] = torch.tensor([-1, num_rows, BAD, -BAD, num_rows])[: len(ids[::17])]
    valid = (ids >= 0) & (ids < num_rows)
    known = ids.where(valid, 0)
    hot = torch.randperm(num_rows, generator=random)[:30].sort().values
    slots = torch.full((num_rows,), -1, dtype=torch.int32)
    slots[hot] = torch.arange(30, dtype=torch.int32)
    cache = aligned(table[hot], past)
    host = table.clone()
    if placement == 2:  # a row that is cached is read there
        host[hot] = 255 - table[hot]
    host = aligned(host, past)
    dtype = torch.bfloat16 if narrow else torch.float32
    out = aligned(torch.full((n, columns), 3.0, dtype=dtype))
    hits, raised, notes = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int32), torch.zeros(4).long()
    core.gather(
        kind, narrow, placement, count, 2, host.data_ptr(), num_rows, pitch, columns, scales.data_ptr(), by_row,
        cache.data_ptr(), slots.data_ptr(), hits.data_ptr(), ids.data_ptr(), n, out.data_ptr(), raised.data_ptr(),
        notes.data_ptr(),
    )  # fmt: skip
    of = scales[known][:, None] if by_row else scales[None]
    wanted = decoded(table[known][:, :columns], of, kind, dtype)
    assert same_bits(out[valid], wanted[valid])
    assert not out[~valid].any()
    assert int(raised) == 1
    assert int(notes[0]) in ids[~valid]
    if placement == 2:
        assert int(hits) == int((slots[known][valid] >= 0).sum())


@slow
@given(
    kind=st.sampled_from(CODES),
    columns=st.sampled_from([1, 3, 4, 8, 20, 100, 136, 300]),
    spare=st.sampled_from([0, 4, 28]),
    by_row=st.booleans(),
    relu=st.booleans(),
    threshold=st.sampled_from([0, 20_000]),
    rows_per_group=st.sampled_from([1, 2, 3, 8, 32]),
    seed=st.integers(0, 1000),
)
def test_means_are_those_of_decoded_rows(
    core: Any, kind: str, columns: int, spare: int, by_row: bool, relu: bool, threshold: int, rows_per_group: int,
    seed: int,
) -> None:  # fmt: skip
    random = torch.Generator().manual_seed(seed)
    num_rows, num_src, num_dst, pitch = 90, 270, 260, columns + spare  # up to 17 rows a warp
    table = torch.randint(256, (num_rows, pitch), generator=random, dtype=torch.uint8)
    if kind == "float8":
        table[(table & 127) == 127] = 0
    table = aligned(table)
    scales = aligned(torch.rand(num_rows if by_row else columns, generator=random).exp2())
    degrees = torch.randint(9, (num_dst,), generator=random)
    degrees[3], degrees[4] = 32, 70  # a warp's picks at once, and more
    degrees[5] = 700  # for a block of threads
    indptr = torch.cat((torch.zeros(1).long(), degrees.cumsum(0))).int()
    indices = torch.randint(num_src, (int(indptr[-1]),), generator=random).int()
    nodes = torch.randint(num_rows, (num_src,), generator=random).int()
    of = scales[:, None] if by_row else scales[None]
    whole = aligned(decoded(table[:, :columns], of, kind))

    order = torch.randperm(num_dst, generator=random)
    places = (2 * torch.randperm(num_dst, generator=random) + 1) * columns  # the second half of a row

    def mean(code: str, rows: Tensor, width: int, elsewhere: bool = False, sums: bool = False) -> Tensor:
        out = aligned(torch.full((num_dst, 2 * columns), 3.0))
        moved = (order.data_ptr(), places.data_ptr()) if elsewhere else (0, 0)
        core.mean(
            code, width, indptr.data_ptr(), indices.data_ptr(), num_dst, num_src, len(indices), rows.data_ptr(),
            rows.stride(0), nodes.data_ptr(), columns, scales.data_ptr(), by_row, out.data_ptr(), relu, threshold,
            rows_per_group, 2, *moved, sums,
        )  # fmt: skip
        return out

    wide = 4 if columns % 4 == 0 else 1
    wanted, apart = mean("float32", whole, wide), mean("float32", whole, wide, elsewhere=True)
    at = places.unsqueeze(1) + torch.arange(columns)
    # Rows that are taken in turns are long from 65 entries on: the sum of one of these has another order.
    assert torch.allclose(apart.view(-1)[at], wanted[order, columns:], rtol=1e-4, atol=1e-3)
    own = whole[nodes[:num_dst].long()]
    if not threshold:
        assert torch.equal(wanted[:, :columns], own.relu() if relu else own)
    for width in (4, 1):
        if columns % width == 0 and pitch % width == 0:
            assert same_bits(mean(kind, table, width), wanted)
            moved = mean(kind, table, width, elsewhere=True)
            assert same_bits(moved.view(-1)[at], apart.view(-1)[at])
            assert bool((moved[:, :columns] == 3).all())
    if columns % 4 == 0 and pitch % 4 == 0 and not relu and not threshold:  # by a warp for some rows
        sums = mean("float32", whole, wide, sums=True)
        entries = whole[nodes[indices.long()].long()]
        exact = torch.segment_reduce(entries.double(), "sum", lengths=degrees)
        assert torch.allclose(sums[:, columns:].double(), exact, rtol=1e-4, atol=1e-3)
        assert same_bits(mean("float32", whole, 0), wanted)
        assert same_bits(mean("float32", whole, 0, elsewhere=True).view(-1)[at], apart.view(-1)[at])
        assert same_bits(mean("float32", whole, 0, sums=True), sums)
        assert same_bits(mean(kind, table, 0), wanted)

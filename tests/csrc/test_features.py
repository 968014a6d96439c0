"""The core's gather and buffer pool, below the feature stores."""

from __future__ import annotations

import pytest
import torch

from loader import _core


def test_pool_keeps_a_few_buffers_and_frees_them() -> None:
    pool = _core.BufferPool(2)
    held = [pool.take(nbytes) for nbytes in (3 << 20, 1 << 20, 5 << 20)]
    assert pool.idle_bytes == 0
    assert len(memoryview(held[0])) == 3 << 20
    held.clear()
    assert (3 << 20) + (5 << 20) <= pool.idle_bytes <= 2 * (8 << 20)  # the smallest was freed
    again = pool.take(5 << 20)
    small = pool.take(1 << 10)  # not from a buffer thousands of times as large
    assert pool.idle_bytes >= 3 << 20
    pool.clear()
    del again, small
    assert pool.idle_bytes == 0
    with pytest.raises(ValueError, match="nbytes is 0"):
        pool.take(0)
    with pytest.raises(ValueError, match="keep is -1"):
        _core.BufferPool(-1)


def test_the_core_refuses_bad_arguments() -> None:
    gatherer = _core.Gatherer(2)
    assert gatherer.num_threads == 2
    table, nodes = torch.zeros(10, 4), torch.tensor([1, 2])
    with pytest.raises(TypeError, match=r"out has dtype torch\.float64"):
        gatherer.gather(table, nodes, torch.zeros(2, 4, dtype=torch.float64))
    with pytest.raises(ValueError, match="rows of 20 bytes, the table of 16"):
        gatherer.gather(table, nodes, torch.zeros(2, 5))
    with pytest.raises(ValueError, match="ids has 2 elements; it must have 3"):
        gatherer.gather(table, nodes, torch.zeros(3, 4))
    with pytest.raises(ValueError, match="out is not contiguous"):
        gatherer.gather(table, nodes, torch.zeros(4, 2).t())
    with pytest.raises(ValueError, match="table has no dimension"):
        gatherer.gather(torch.tensor(1.0), nodes, torch.zeros(2))


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("n", [1023, 1024, 1025, 3001, 40_000])
def test_each_part_is_gathered_once(n: int, in_file: bool) -> None:
    table = torch.arange(5000 * 64).view(5000, 64)  # rows of 512 bytes
    ids = torch.randint(5000, (n,), generator=torch.Generator().manual_seed(n)).sort().values
    out = torch.full((n, 64), -1)
    _core.Gatherer(3, in_file).gather(table, ids, out)
    assert torch.equal(out, table[ids])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_first_bad_id_of_many_is_named(dtype: torch.dtype) -> None:
    ids = torch.zeros(200_000, dtype=dtype)  # more than one thread checks
    ids[[70_000, 150_000, 199_999]] = torch.tensor([10, -1, 11], dtype=dtype)
    out = torch.full((200_000, 1), 7.0)
    with pytest.raises(ValueError, match=r"ids\[70000\] is 10; the table has 10 rows"):
        _core.Gatherer(3).gather(torch.zeros(10, 1), ids, out)
    assert bool((out == 7).all())  # nothing was written

"""The part of the host in a gather: its share, its memory, and its rows on streams and with pages that are none."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from fake_cuda import FakeCuda
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from loader.stores import host_part
from loader.stores.host_part import HostPart, Share, gpu_bytes, rows_per_part
from loader.stores.rows import CONVERTIBLE, RowFormat


def settled(host: float, gpu: float, overhead: float = 0.0, rounds: int = 60) -> Share:
    """The share after some gathers of a host and a GPU with these speeds; the host also has an overhead."""
    share = Share()
    for _ in range(rounds):
        share.learn(share.value, 1000 * (share.value / host + overhead), 1000 * (1 - share.value) / gpu)
    return share


@given(host=st.floats(1, 100), gpu=st.floats(1, 100), overhead=st.floats(0, 0.002))
def test_both_end_together(host: float, gpu: float, overhead: float) -> None:
    share = settled(host, gpu, overhead).value
    assert Share.LEAST <= share <= Share.MOST
    if Share.LEAST < share < Share.MOST:
        assert share / host + overhead == pytest.approx((1 - share) / gpu, rel=0.02)


def test_a_share_has_bounds() -> None:
    assert settled(1e6, 1).value == Share.MOST
    assert settled(1, 1e6).value == Share.LEAST
    share = Share()
    share.learn(0.5, 0.0, 0.0)  # a clock may not have moved
    assert Share.LEAST <= share.value <= Share.MOST


def test_one_odd_gather_moves_it_little() -> None:
    share = settled(30, 20)
    before = share.value
    share.learn(before, 1000.0, 0.1)
    assert abs(share.value - before) <= Share.STEP * before


def test_a_share_is_a_number_of_ids() -> None:
    share = Share()
    assert share.of(0) == 0
    assert share.of(1) == 0
    assert share.of(1000) == int(1000 * Share.FIRST)


def test_buffers_hold_at_most_the_table() -> None:
    assert rows_per_part(RowFormat(torch.empty(10, 4))) == 10
    assert rows_per_part(RowFormat(torch.empty(10**6, 128))) == host_part._PART_BYTES // 512
    assert rows_per_part(RowFormat(torch.empty(3, 10**7, dtype=torch.uint8))) == 1


def test_memory_of_a_gather_is_planned() -> None:
    form = RowFormat(torch.empty(10**6, 128))
    n = 500_000
    found = gpu_bytes(form, n, 4)
    assert found >= n * (3 * 4 + 8 + 4 + 2) + host_part._PART_BYTES
    assert found <= 64 << 20  # it stays small beside the rows of a mini-batch, which take 244 MiB
    assert gpu_bytes(form, n, 8) - found >= n * 3 * 4 - 3 * 512  # of the allocator's rounding
    halves = RowFormat(torch.empty(10**6, 128), dtype="float16")
    assert gpu_bytes(halves, n, 4) - found >= host_part._PART_BYTES // 2
    assert gpu_bytes(form, 2 * n, 4) > found


class Cuda(FakeCuda):
    """With what only a store asks for."""

    def device(self, device: Any) -> Any:
        return nullcontext()

    def stream(self, stream: Any) -> Any:
        return _Current(self, stream)


class _Current:
    def __init__(self, cuda: Cuda, stream: Any) -> None:
        self.cuda, self.stream = cuda, stream

    def __enter__(self) -> None:
        self.before = self.cuda.current_stream()
        self.cuda.set_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        self.cuda.set_stream(self.before)


class Torch:
    """The module, with streams that are none and without page-locked memory."""

    def __init__(self) -> None:
        self.cuda = Cuda()

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *args: Any, pin_memory: bool = False, **options: Any) -> Tensor:
        return torch.empty(*args, **options)

    def zeros(self, *args: Any, pin_memory: bool = False, **options: Any) -> Tensor:
        return torch.zeros(*args, **options)


class Buffer:
    """As `PinnedBuffer`, in ordinary memory."""

    def __init__(self, nbytes: int) -> None:
        self.memory = torch.empty(max(nbytes, 1), dtype=torch.uint8)
        self.event = host_part.torch.cuda.Event()
        self.closed = False

    def rows(self, count: int, form: RowFormat) -> Tensor:
        return self.memory[: count * form.nbytes].view(form.storage_dtype).view(count, *form.shape)

    def close(self) -> None:
        self.closed = True


class Kernel:
    """As the kernel of `CachedFeatures`: it counts, and gathers the rows of the ids that are in range."""

    def __init__(self, part: HostPart, table: Tensor, form: RowFormat, slots: Tensor) -> None:
        self.part, self.table, self.form, self.slots = part, table, form, slots
        self.read_over_the_bus = self.hits = self.stood_in = self.asked = 0
        self.reports = 0

    def launch(self, ids: Tensor, out: Tensor, stood_in: int | None = None) -> None:
        good = (ids >= 0) & (ids < self.form.num_rows)
        hot = self.slots[ids[good].long()] >= 0
        if stood_in is not None:
            assert bool(hot.all()), "the first ids are all in the cache, or were replaced by one that is"
            self.stood_in += stood_in
        self.hits += int(hot.sum())
        self.asked += ids.numel()
        self.read_over_the_bus += int((~hot).sum())
        self.reports += int(not good.all())
        out[good] = self.table[ids[good].long()].to(self.form.dtype)

    def forget(self) -> None:
        self.reports = 0

    def gather(self, ids: Tensor) -> Tensor:
        return self.part.gather(ids, self.launch, self.forget)


def kernel_of(monkeypatch: pytest.MonkeyPatch, table: Tensor, hot: list[int], **options: Any) -> Kernel:
    monkeypatch.setattr(host_part, "torch", Torch())
    monkeypatch.setattr(host_part, "PinnedBuffer", Buffer)
    form = RowFormat(table, **options)
    stored = form.stored(table)
    slots = torch.full((form.num_rows,), -1, dtype=torch.int32)
    slots[hot] = torch.arange(len(hot), dtype=torch.int32)
    part = HostPart(stored, slots, hot[0], form, 2)
    part.least = 1
    return Kernel(part, stored, form, slots)


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("kept", [*CONVERTIBLE, torch.uint8, torch.bool, torch.int16, torch.float64])
def test_both_together_gather_all_rows(monkeypatch: pytest.MonkeyPatch, index: torch.dtype, kept: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    for shape in ((300,), (300, 1), (300, 7), (300, 4, 8), (300, 129)):
        table = (torch.randn(shape, generator=generator) * 9).to(kept)
        for returned in CONVERTIBLE if kept in CONVERTIBLE else (kept,):
            for hot in ([7], list(range(0, 300, 3)), list(range(300))):
                kernel = kernel_of(monkeypatch, table, hot, dtype=returned)
                for n in (0, 1, 2, 1000):
                    ids = torch.randint(300, (n,), generator=generator, dtype=index)
                    assert torch.equal(kernel.gather(ids), table[ids.long()].to(returned))


def test_cold_rows_are_shared_and_hits_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    table, hot = torch.randn(500, 6), list(range(100, 200))
    kernel = kernel_of(monkeypatch, table, hot)
    ids = torch.randint(500, (4000,), generator=torch.Generator().manual_seed(1))
    assert torch.equal(kernel.gather(ids), table[ids])
    cold = (ids < 100) | (ids >= 200)
    cut = kernel.part.share.of(4000)
    assert kernel.asked == 4000
    assert kernel.stood_in == int(cold[:cut].sum()) > 0
    assert kernel.read_over_the_bus == int(cold[cut:].sum()) > 0
    assert kernel.hits - kernel.stood_in == int((~cold).sum())


def test_few_ids_are_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.randn(500, 6)
    kernel = kernel_of(monkeypatch, table, [3])
    kernel.part.least = 100
    ids = torch.arange(99)
    assert torch.equal(kernel.gather(ids), table[ids])
    assert (kernel.stood_in, kernel.read_over_the_bus) == (0, 98)


@pytest.mark.parametrize("least", [1, 10_000])
@pytest.mark.parametrize(("at", "bad"), [(0, -1), (999, 500), (3, 2**31 - 1), (700, -(2**31)), (1, 2**40)])
def test_a_bad_id_is_raised_at_once(monkeypatch: pytest.MonkeyPatch, least: int, at: int, bad: int) -> None:
    table = torch.randn(500, 6)
    kernel = kernel_of(monkeypatch, table, [3])
    kernel.part.least = least
    for index in (torch.int64,) if abs(bad) > 2**31 else (torch.int32, torch.int64):
        ids = torch.arange(1000, dtype=index) % 500
        ids[at] = bad
        with pytest.raises(ValueError, match=rf"ids\[{at}\] is {bad}; the table has 500 rows"):
            kernel.gather(ids)
        assert kernel.reports == 0
        assert torch.equal(kernel.gather(ids[:1].clamp(0, 5)), table[ids[:1].clamp(0, 5).long()])


def test_times_move_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(monkeypatch, torch.randn(500, 6), [3])
    cuda, part, launch = host_part.torch.cuda, kernel.part, kernel.launch

    def slow(ids: Tensor, out: Tensor, stood_in: int | None = None) -> None:
        launch(ids, out, stood_in)
        # The host's rows take twice the time per id, in seconds of a clock that only this moves.
        cuda.current_stream().now += ids.numel() * (1e-6 if stood_in is None else 2e-6)

    for _ in range(40):
        part.gather(torch.arange(1000) % 500, slow, kernel.forget)
        cuda.host = max(stream.now for stream in cuda.streams)
    assert part.share.value == pytest.approx(1 / 3, abs=0.01)


def test_a_closed_part_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(monkeypatch, torch.randn(500, 6), [3])
    ring = list(kernel.part._ring)
    kernel.part.close()
    kernel.part.close()
    assert all(buffer.closed for buffer in ring)
    with pytest.raises(RuntimeError, match="was closed; make a new one"):
        kernel.gather(torch.arange(10))

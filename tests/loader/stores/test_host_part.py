"""The part of the host in a gather: its share, its memory, and its rows on streams and with pages that are none."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fake_cuda import FakeCuda
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from loader import _core
from loader.stores import host_part
from loader.stores.host_part import HostPart, Share, gpu_bytes, rows_of_room
from loader.stores.rows import CONVERTIBLE, RowFormat


def settled(host: float, gpu: float, overhead: float = 0.0, rounds: int = 60) -> Share:
    """The share after some gathers of a host and a GPU with these speeds; the host also has an overhead."""
    share = Share(1, 1)
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
    share = Share(1, 1)
    share.learn(0.5, 0.0, 0.0)  # a clock may not have moved
    assert Share.LEAST <= share.value <= Share.MOST


def test_one_odd_gather_moves_it_little() -> None:
    share = settled(30, 20)
    before = share.value
    share.learn(before, 1000.0, 0.1)
    assert abs(share.value - before) <= Share.STEP * before


def test_rows_from_one_place_on_are_the_hosts() -> None:
    share = Share(10, 7)
    assert share.first(65) == int((1 - Share.FIRST) * 65)  # nothing was read yet
    reads = np.array([0, 100, 0, 0, 300, 0, 100])
    for _ in range(60):
        share.count(reads)
    for value, first in ((0.9, 15), (0.8, 20), (0.5, 45), (0.2, 50), (0.1, 65)):
        share.value = value
        assert share.first(69) == pytest.approx(first, abs=1)
    share.value = Share.LEAST
    assert share.first(62) == 62


@given(reads=st.lists(st.integers(0, 1000), min_size=1, max_size=8), value=st.floats(Share.LEAST, Share.MOST))
def test_the_host_gets_its_share(reads: list[int], value: float) -> None:
    share = Share(1000, len(reads))
    for _ in range(80):
        share.count(np.array(reads))
    share.value = value
    first = share.first(1000 * len(reads))
    assert 0 <= first <= 1000 * len(reads)
    hosts = sum(count * min(1.0, max(0.0, i + 1 - first / 1000)) for i, count in enumerate(reads))
    assert not sum(reads) or hosts == pytest.approx(value * sum(reads), abs=2e-3 * sum(reads) + 1)


def test_room_is_at_most_the_tables() -> None:
    assert rows_of_room(RowFormat(torch.empty(10, 4))) == 10
    assert rows_of_room(RowFormat(torch.empty(10**6, 128))) == host_part._ROOM_BYTES // 512
    assert rows_of_room(RowFormat(torch.empty(3, 8 * 10**7, dtype=torch.uint8))) == 1


def test_memory_of_a_gather_is_planned() -> None:
    form = RowFormat(torch.empty(10**6, 128))
    n = 500_000
    found = gpu_bytes(form, n)
    assert found >= 2 * n * 16 + host_part._ROOM_BYTES
    assert found <= 88 << 20  # it stays small beside the rows of a mini-batch, which take 244 MiB
    assert gpu_bytes(form, 1000) <= 1000 * (2 * 16 + 512) + 2 * 8 * (2 + 256) + 7 * 512  # of the allocator's rounding
    halves = RowFormat(torch.empty(10**6, 128), dtype="float16")
    assert gpu_bytes(halves, n) - found >= host_part._ROOM_BYTES // 2
    assert gpu_bytes(form, 2 * n) > found


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


class Ring:
    """As `UploadRing`, to memory of the host."""

    def __init__(self, form: RowFormat, nbytes: int, device: torch.device, num_threads: int) -> None:
        self.threads, self.core, self.closed = _core.Gatherer(num_threads), self, False
        self.uploads: list[int] = []

    def upload(self, table: Tensor, ids: Tensor, out: Tensor, stream: int) -> None:
        self.uploads.append(len(ids))
        self.threads.gather(table, ids, out)

    def close(self) -> None:
        self.closed = True


ROWS_A_RANGE, RANGES = 9, 60  # of tables of at most 500 rows


class Kernel:
    """As the kernel of `CachedFeatures`: it counts, and gathers the rows of the ids that are in range."""

    def __init__(self, part: HostPart, table: Tensor, form: RowFormat, hot: Tensor) -> None:
        self.part, self.table, self.form, self.hot = part, table, form, hot
        self.read_over_the_bus = self.hits = self.asked = self.reports = 0

    def launch(self, ids: Tensor, out: Tensor, *, misses_below: int) -> None:
        good = (ids >= 0) & (ids < self.form.num_rows)
        hot = torch.zeros_like(good)
        hot[good] = self.hot[ids[good].long()]
        wanted = hot | (good & (ids < misses_below))
        self.hits += int(hot.sum())
        self.asked += ids.numel()
        self.read_over_the_bus += int((wanted & ~hot).sum())
        self.reports += int(not good.all())
        rows = self.table[ids[wanted].long()].to(self.form.dtype)
        out[wanted] = rows.view(len(rows), self.form.dim).view(out.dtype)

    def find_misses(self, ids: Tensor, first: int) -> host_part.Misses:
        good = (ids >= 0) & (ids < self.form.num_rows)
        missed = good.clone()
        missed[good] = ~self.hot[ids[good].long()]
        n = len(ids) if first < self.form.num_rows else 0
        places = (missed & (ids >= first)).nonzero().view(-1).flip(0)  # in any order
        found, positions = torch.full((n + n % 2,), -1, dtype=ids.dtype), torch.full((n,), -1)
        found[: len(places)], positions[: len(places)] = ids[places], places
        ranges = torch.bincount(ids[missed].long() // ROWS_A_RANGE, minlength=RANGES)
        counts = torch.cat((torch.tensor([len(places), int(not good.all())]), ranges))
        return host_part.Misses(torch.cat((counts, found.view(torch.int64))), positions)

    def forget(self) -> None:
        self.reports = 0

    def gather(self, ids: Tensor) -> Tensor:
        return self.part.begin(ids, self)()


def kernel_of(monkeypatch: pytest.MonkeyPatch, table: Tensor, hot: list[int], **options: Any) -> Kernel:
    monkeypatch.setattr(host_part, "torch", Torch())
    monkeypatch.setattr(host_part, "UploadRing", Ring)
    monkeypatch.setattr(host_part, "time", SimpleNamespace(perf_counter=lambda: host_part.torch.cuda.host))
    monkeypatch.setattr(Tensor, "record_stream", lambda tensor, stream: None)
    form = RowFormat(table, **options)
    stored = form.stored(table)
    part = HostPart(stored, torch.device("cpu"), form, 2, rows_a_range=ROWS_A_RANGE, ranges=RANGES)
    part.least = 1
    is_hot = torch.zeros(form.num_rows, dtype=torch.bool)
    is_hot[hot] = True
    return Kernel(part, stored, form, is_hot)


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


def test_missed_rows_are_shared_and_hits_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    table, hot = torch.randn(500, 6), list(range(100, 200))
    kernel = kernel_of(monkeypatch, table, hot)
    ids = torch.randint(500, (4000,), generator=torch.Generator().manual_seed(1))
    assert torch.equal(kernel.gather(ids), table[ids])
    missed = (ids < 100) | (ids >= 200)
    first = int((1 - Share.FIRST) * 500)
    assert kernel.asked == 4000
    assert sum(kernel.part._ring.uploads) == int((missed & (ids >= first)).sum()) > 0
    assert kernel.read_over_the_bus == int((missed & (ids < first)).sum()) > 0
    assert kernel.hits == int((~missed).sum())


def test_rows_arrive_in_several_rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_part, "_ROOM_BYTES", 7 * 24)
    for dtype in ("float32", "float16"):
        table = torch.randn(500, 6)
        kernel = kernel_of(monkeypatch, table, [1, 2, 3], dtype=dtype)
        ids = torch.randint(500, (400,), generator=torch.Generator().manual_seed(1))
        assert torch.equal(kernel.gather(ids), table[ids].to(kernel.form.dtype))
        assert len(kernel.part._ring.uploads) > 20
        assert max(kernel.part._ring.uploads) == 7


def test_gathers_are_begun_before_others_are_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.randn(500, 6)
    kernel = kernel_of(monkeypatch, table, list(range(0, 500, 3)))
    generator = torch.Generator().manual_seed(2)
    ids = [torch.randint(500, (n,), generator=generator) for n in (300, 1, 0, 400)]
    begun = [kernel.part.begin(i, kernel) for i in ids]
    for i in (1, 0, 3, 2):
        assert torch.equal(begun[i](), table[ids[i]])
    never_finished = kernel.part.begin(ids[0], kernel)
    kernel.part.close()
    with pytest.raises(RuntimeError, match="was closed; make a new one"):
        never_finished()


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 5])
def test_tables_may_begin_anywhere(monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    table = torch.randn(500 * 6 + offset)[offset:].view(500, 6)
    kernel = kernel_of(monkeypatch, table, [3])
    ids = torch.arange(499, -1, -1)
    assert torch.equal(kernel.gather(ids), table[ids])


def test_few_ids_are_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.randn(500, 6)
    kernel = kernel_of(monkeypatch, table, [3])
    kernel.part.least = 100
    ids = torch.arange(99)
    assert torch.equal(kernel.gather(ids), table[ids])
    assert (kernel.part._ring.uploads, kernel.read_over_the_bus) == ([], 98)


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
    kernel = kernel_of(monkeypatch, torch.randn(500, 6), [0])
    cuda, part, launch = host_part.torch.cuda, kernel.part, kernel.launch

    def slow(ids: Tensor, out: Tensor, *, misses_below: int) -> None:
        before = kernel.read_over_the_bus
        launch(ids, out, misses_below=misses_below)
        # Seconds of a clock that only this test moves.
        cuda.current_stream().now += (kernel.read_over_the_bus - before) * 1e-6

    real = part._ring.upload

    def upload(table: Tensor, ids: Tensor, out: Tensor, stream: int) -> None:
        real(table, ids, out, stream)
        cuda.host += len(ids) * 2e-6  # the host takes twice the time per row

    monkeypatch.setattr(part._ring, "upload", upload)
    monkeypatch.setattr(kernel, "launch", slow)
    for _ in range(40):
        kernel.gather(torch.arange(1000) % 499 + 1)
        cuda.host = max(cuda.host, *(stream.now for stream in cuda.streams))
    assert part.share.value == pytest.approx(1 / 3, abs=0.01)


def test_a_closed_part_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(monkeypatch, torch.randn(500, 6), [3])
    ring = kernel.part._ring
    kernel.part.close()
    kernel.part.close()
    assert ring.closed
    with pytest.raises(RuntimeError, match="was closed; make a new one"):
        kernel.gather(torch.arange(10))


@pytest.mark.parametrize(("nbytes", "buffers"), [(3, 4), (8, 0), (0, 1)])
def test_a_ring_without_room_is_refused(nbytes: int, buffers: int) -> None:
    with pytest.raises(ValueError, match=rf"ring has {nbytes} bytes for {buffers} buffers; give at least one byte"):
        _core.RowUploader(_core.Gatherer(1), torch.empty(nbytes, dtype=torch.uint8), buffers, 0)

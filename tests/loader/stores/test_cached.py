"""What the cache holds, how it counts, and when the host's threads help; that it returns the right bytes is in
test_gpu.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from marks import needs_gpu
from small_loader import NUM_NODES, digests, small_loader
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.machine.pinning import _locked
from loader.samplers import HopwiseSampler
from loader.samples import MiniBatch
from loader.stores import CachedFeatures, StoreContext, cached, host_part
from loader.stores.cached import _Kernels, threads_for
from loader.stores.host_part import gpu_bytes
from loader.stores.rows import RowFormat


def gpu(test: Callable[..., None]) -> Callable[..., None]:
    for mark in needs_gpu:
        test = mark(test)
    return test


@pytest.mark.parametrize(
    ("host_threads", "error", "message"),
    [
        (-1, ValueError, "host_threads is -1; it must be at least 0"),
        (5000, ValueError, "host_threads is 5000; it must be at most 1024"),
        ("all", TypeError, "host_threads is 'all'; it must be an integer of at least 0"),
        (True, TypeError, "host_threads is True; it must be an integer"),
    ],
)
def test_odd_numbers_of_threads_are_refused(host_threads: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        CachedFeatures(torch.zeros(10, 4), fraction=0.5, hotness=torch.zeros(10), host_threads=host_threads)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lookahead": -1}, ValueError, "lookahead is -1; it must be at least 0"),
        ({"lookahead": 17}, ValueError, "lookahead is 17; it must be at most 16"),
        ({"lookahead": True}, TypeError, "lookahead is True; it must be an integer"),
        ({"lookahead": 8, "host_threads": 2}, ValueError, "lookahead is 8 and host_threads is 2; only one of them"),
        ({"lookahead": 8, "dtype": "float16"}, ValueError, "kept as torch.float32 and returned as torch.float16; with"),
    ],
)
def test_odd_lookaheads_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        CachedFeatures(torch.zeros(10, 4), fraction=0.5, hotness=torch.zeros(10), **options)


def test_a_budget_pays_for_lookahead() -> None:
    rows = RowFormat(torch.zeros(1000, 256))
    room = 100 * (1024 + 12) + 1000 * 5
    assert cached.cached_rows(rows, None, room / 2**30, lookahead=8) == 100
    assert cached.cached_rows(rows, None, (room - 1) / 2**30, lookahead=8) == 99
    assert cached.cached_rows(rows, 0.25, None, lookahead=8) == 250


def test_large_tables_have_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    small = RowFormat(torch.zeros(10, 4))
    large = RowFormat(torch.zeros(10, 4))
    large.num_rows = cached.LARGE_TABLE_BYTES // 16 + 1
    for processors, wanted in ((16, 14), (8, 7), (4, 4), (3, 0), (1, 0)):
        monkeypatch.setattr(cached, "available_cpus", lambda count=processors: count)
        assert threads_for(large, None) == wanted
        assert threads_for(small, None) == 0
        assert threads_for(large, 0) == 0
        assert threads_for(small, 3) == 3


@gpu
def test_hits_are_counted() -> None:
    table = torch.rand(1000, 100)
    scores = torch.zeros(1000)
    scores[300:400] = 1
    store = CachedFeatures(table, fraction=0.1, hotness=scores)
    assert store.num_cached == 100
    assert store.cached_bytes == 100 * 400 + 1000 * 4
    assert np.isnan(store.hit_rate)
    store.gather(torch.arange(1000).cuda())
    assert store.hit_rate == 0.1
    store.gather(torch.arange(300, 400))
    assert store.hit_rate == 200 / 1100
    store.reset_hit_rate()
    store.gather(torch.tensor([5, 300, 399, 400]))
    assert store.hit_rate == 0.5
    store.close()


@gpu
def test_stores_of_inference_mode_serve_outside() -> None:
    with torch.inference_mode():
        store = CachedFeatures(torch.rand(1000, 100), fraction=0.1, hotness=torch.zeros(1000))
        store.gather(torch.arange(1000))
    store.reset_hit_rate()
    assert np.isnan(store.hit_rate)
    store.close()


@gpu
def test_the_cache_holds_the_hottest_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    src = torch.randint(50, (4000,), generator=generator) ** 2 // 5
    graph = Graph.from_edges(src, torch.randint(500, (4000,), generator=generator), 500)
    table = torch.rand(500, 20)
    sampler, begins = HopwiseSampler(5, 2), range(0, 100, 20)

    def batches() -> list[MiniBatch]:
        return [sampler.sample(graph, torch.arange(begin, begin + 20)) for begin in begins]

    context = StoreContext(graph, batches)
    for hotness in ("degree", "visits"):
        store = CachedFeatures(table, fraction=0.1, hotness=hotness, context=context)
        nodes = torch.randint(500, (2000,), generator=generator)
        assert torch.equal(store.gather(nodes).cpu(), table[nodes])
        store.reset_hit_rate()
        for batch in batches():
            store.gather(batch.input_nodes)
        assert store.hit_rate > 0.15  # a tenth of the rows would be a tenth of the reads
        store.close()


def ids_of(groups: int, each: int, seed: int = 0) -> list[list[Tensor]]:
    """Distinct ids per gather, on the GPU; half of them are read by many gathers."""
    generator = torch.Generator().manual_seed(seed)
    weights = 1 / (torch.arange(20_000) + 100.0)
    return [[torch.multinomial(weights, 4000, generator=generator).cuda() for _ in range(each)] for _ in range(groups)]


def error_of(step: Callable[[], object]) -> str:
    """What a ValueError says that `step` raises; "" if it raises none."""
    try:
        step()
    except ValueError as error:
        return str(error)
    return ""


class TestLookahead:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("row", [100, 3])
    @pytest.mark.parametrize("index", [torch.int32, torch.int64])
    def test_rows_are_right_and_fewer_are_missed(self, index: torch.dtype, row: int) -> None:
        table, hotness = torch.randn(20_000, row), -torch.arange(20_000)
        ahead, still = (CachedFeatures(table, fraction=0.1, hotness=hotness, lookahead=n) for n in (8, 0))
        for group in ids_of(5, 8):
            ids = [each.to(index) for each in group]
            for each, finish in zip(ids, ahead.begin_together(ids), strict=True):
                assert torch.equal(finish().cpu(), table[each.cpu().long()])
            for each in ids:
                still.gather(each)
        assert 1 - ahead.hit_rate < 0.9 * (1 - still.hit_rate)
        for store in (ahead, still):
            store.check()
            store.close()

    def test_gathers_on_other_streams_see_whole_rows(self) -> None:
        table = torch.randn(20_000, 100)
        store = CachedFeatures(table, fraction=0.1, hotness=-torch.arange(20_000), lookahead=8)
        streams = [torch.cuda.Stream() for _ in range(3)]
        found: list[tuple[Tensor, Tensor]] = []
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
        begun = [(group, store.begin_together(group)) for group in ids_of(2, 8)]
        for turn in range(8):
            for number, (group, finishes) in enumerate(begun):
                with torch.cuda.stream(streams[(turn + number) % 2]):
                    found.append((group[turn], finishes[turn]()))
                with torch.cuda.stream(streams[2]):
                    found.append((group[turn], store.gather(group[turn])))
        torch.cuda.synchronize()
        for ids, rows in found:
            assert torch.equal(rows.cpu(), table[ids.cpu()])
        before = torch.cuda.memory_allocated()
        store.close()
        assert torch.cuda.memory_allocated() < before - store.num_cached * 400

    @pytest.mark.parametrize("order_from", [0, 2**31])
    def test_ids_in_any_order_and_changed_rows(self, order_from: int) -> None:
        table = torch.randn(50_000, 20)
        store = CachedFeatures(table, fraction=0.3, hotness=-torch.arange(50_000), lookahead=4)
        store._open().order_from = order_from
        generator = torch.Generator().manual_seed(3)
        for n in (0, 1, 1025, 40_000):
            group = [torch.randint(50_000, (n,), generator=generator) for _ in range(4)]
            found = []
            for finish in store.begin_together([ids.cuda() for ids in group]):
                rows = finish()
                found.append(rows.clone())
                rows.zero_()  # behind what the renewal reads
            for ids, rows in zip(group, found, strict=True):
                assert torch.equal(rows.cpu(), table[ids])
        store.check()
        store.close()

    def test_an_id_out_of_range_is_told(self) -> None:
        store = CachedFeatures(torch.randn(100, 4), fraction=0.1, hotness=-torch.arange(100), lookahead=2)
        finish, _ = store.begin_together([torch.tensor([3, 100]).cuda(), torch.tensor([5]).cuda()])
        assert not finish()[1].any()
        with pytest.raises(ValueError, match=r"ids\[1\] = 100; the table has 100 rows"):
            store.check()
        store.close()

    def test_many_bad_ids_are_told_once(self) -> None:
        table = torch.randn(50_000, 100)
        store = CachedFeatures(table, fraction=0.1, hotness=-torch.arange(50_000), lookahead=4)
        generator = torch.Generator().manual_seed(4)
        for bad in range(3):
            group = [torch.randint(50_000, (100_000,), generator=generator).cuda() for _ in range(4)]
            group[bad] = torch.full((100_000,), 50_000 + bad, device="cuda")
            steps = (*store.begin_together(group), store.check, store.check)
            errors = [error for error in map(error_of, steps) if error]
            assert len(errors) == 1
            assert f"= {50_000 + bad}; the table has 50000 rows" in errors[0]
        (finish,) = store.begin_together(group[:1])
        assert torch.equal(finish().cpu(), table[group[0].cpu()])
        store.check()
        store.close()

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_mini_batches_have_the_same_bytes(self, prefetch: int) -> None:
        generator = torch.Generator().manual_seed(0)
        graph = Graph.from_edges(*torch.randint(NUM_NODES, (2, 2000), generator=generator), NUM_NODES)
        found = []
        for lookahead in (0, 8):
            store = CachedFeatures(
                torch.arange(NUM_NODES * 4.0).view(-1, 4),
                fraction=0.2,
                hotness=-torch.arange(NUM_NODES),
                lookahead=lookahead,
            )
            loader = small_loader(graph, features=store, prefetch=prefetch, device="cuda")
            found.append([digests(batch.to("cpu") for batch in loader) for _ in range(2)])
            loader.close()
            store.close()
        assert found[0] == found[1]

    @pytest.mark.parametrize(("lookahead", "pinned", "blocks"), [(8, True, 12), (8, False, 0), (0, True, 0)])
    def test_fewer_blocks_read_beside_pinned_lists(self, lookahead: int, pinned: bool, blocks: int) -> None:
        generator = torch.Generator().manual_seed(0)
        graph = Graph.from_edges(*torch.randint(NUM_NODES, (2, 2000), generator=generator), NUM_NODES)
        context = StoreContext(graph.pin_memory() if pinned else graph.to("cuda"))
        table = torch.randn(NUM_NODES, 4)
        store = CachedFeatures(table, fraction=0.2, lookahead=lookahead, context=context)
        assert store._open().blocks == blocks
        store.close()

    def test_a_group_too_long_is_refused(self) -> None:
        store = CachedFeatures(torch.randn(100, 4), fraction=0.1, hotness=-torch.arange(100), lookahead=2)
        with pytest.raises(ValueError, match="group has 17 gathers; at most 16"):
            store.begin_together([torch.arange(3).cuda()] * 17)
        store.close()


TABLE_ROWS = 60_000


def helped(table: Tensor, **options: Any) -> CachedFeatures:
    """15 % of the rows are cached, and threads of the host help."""
    return CachedFeatures(table, **{"fraction": 0.15, "hotness": scores(len(table)), "host_threads": 3, **options})


def scores(count: int) -> Tensor:
    """Distinct ones."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))


def cached_of(store: CachedFeatures) -> Tensor:
    """Whether each row is cached, by those scores."""
    return scores(store.num_rows) >= store.num_rows - store.num_cached


class TestHostThreads:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("index", [torch.int32, torch.int64])
    @pytest.mark.parametrize("options", [{}, {"dtype": "bfloat16"}, {"storage_dtype": "float16", "dtype": "float32"}])
    def test_any_number_of_rows_arrives(self, index: torch.dtype, options: dict[str, Any]) -> None:
        table = torch.randn(TABLE_ROWS, 100)
        store = helped(table, **options)
        kept = table.to(store.storage_dtype)
        generator = torch.Generator().manual_seed(1)
        for n in (0, 1, host_part._LEAST_IDS - 1, host_part._LEAST_IDS, 200_000, 1_000_000):
            ids = torch.randint(TABLE_ROWS, (n,), generator=generator)
            for nodes in (ids, ids.sort().values):
                expected = kept[nodes].to(store.dtype)
                assert torch.equal(store.gather(nodes.to(index).cuda()).cpu(), expected)
                assert torch.equal(store.gather(nodes.to(index)).cpu(), expected)
        store.check()
        store.close()

    @pytest.mark.parametrize("index", [torch.int32, torch.int64])
    def test_ids_of_missed_rows_are_found(self, index: torch.dtype) -> None:
        store = helped(torch.randn(TABLE_ROWS, 4), fraction=0.3)
        gatherer = store._open()
        kernels = _Kernels(store, gatherer)
        is_missed = ~cached_of(store)
        generator = torch.Generator().manual_seed(2)
        for n in (0, 1, 31, 32, 1023, 1024, 1025, 5000, 300_000):
            ids = torch.randint(TABLE_ROWS, (n,), generator=generator, dtype=index)
            missed = is_missed[ids.long()]
            ranges = torch.bincount(ids[missed].long() // gatherer.rows_a_range, minlength=_core.miss_ranges)
            for first in (0, 1, TABLE_ROWS // 3, TABLE_ROWS - 1, TABLE_ROWS):
                found, positions = (a.cpu() for a in kernels.find_misses(ids.cuda(), first))
                counts, found = found[: 2 + _core.miss_ranges], found[2 + _core.miss_ranges :].view(index)
                expected = (missed & (ids >= first)).nonzero().view(-1)
                assert counts[:2].tolist() == [len(expected), 0]
                assert torch.equal(counts[2:], ranges)
                assert len(positions) == (n if first < TABLE_ROWS else 0)
                assert torch.equal(positions[: len(expected)].sort().values, expected)
                assert torch.equal(found[: len(expected)], ids[positions[: len(expected)]])
            for at in {0, n // 2, n - 1} if n else ():
                for bad in (-1, TABLE_ROWS, 2**31 - 1):
                    wrong = ids.clone()
                    wrong[at] = bad
                    assert int(kernels.find_misses(wrong.cuda(), 0).found[1]) == 1
        store.check()  # it reports nothing else
        store.close()

    @pytest.mark.parametrize("index", [torch.int32, torch.int64])
    def test_missed_rows_are_read_up_to_one(self, index: torch.dtype) -> None:
        table = torch.randn(TABLE_ROWS, 50)
        store = helped(table, fraction=0.3)
        kernels = _Kernels(store, store._open())
        generator = torch.Generator().manual_seed(3)
        for n in (1, 5000, 300_000):
            ids = torch.randint(TABLE_ROWS, (n,), generator=generator, dtype=index)
            for below in (0, 1, TABLE_ROWS // 3, TABLE_ROWS):
                out = torch.full((n, 50), -7.0, device="cuda")
                kernels.launch(ids.cuda(), out, misses_below=below)
                wanted = cached_of(store)[ids.long()] | (ids < below)
                assert torch.equal(out.cpu(), torch.where(wanted[:, None], table[ids.long()], -7.0))
        store.close()

    @pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
    def test_hits_stay_exact(self, fraction: float) -> None:
        table = torch.randn(TABLE_ROWS, 16)
        store = helped(table, fraction=fraction)
        assert store.num_cached == max(1, int(fraction * TABLE_ROWS))
        hot = cached_of(store)
        hits = total = 0
        for seed in range(6):
            ids = torch.randint(TABLE_ROWS, (90_000,), generator=torch.Generator().manual_seed(seed))
            assert torch.equal(store.gather(ids.cuda()).cpu(), table[ids])
            hits, total = hits + int(hot[ids].sum()), total + len(ids)
            assert store.hit_rate == hits / total
        store.reset_hit_rate()
        store.gather(hot.nonzero().view(-1)[:1].expand(50_000).cuda())
        assert store.hit_rate == 1
        store.close()

    def test_a_bad_id_is_raised_once(self) -> None:
        table = torch.randn(TABLE_ROWS, 16)
        store = helped(table)
        for n in (100, 80_000):
            good = torch.randint(TABLE_ROWS, (n,), generator=torch.Generator().manual_seed(n))
            for at, bad in ((0, -1), (n // 2, 2**40), (n - 1, TABLE_ROWS)):
                ids = good.clone()
                ids[at] = bad
                with pytest.raises(ValueError, match=rf"ids\[{at}\] is {bad}; the table has {TABLE_ROWS} rows"):
                    store.gather(ids.cuda())
                store.check()
                assert torch.equal(store.gather(good.cuda()).cpu(), table[good])
        store.close()

    def test_the_share_stays_in_its_bounds(self) -> None:
        store = helped(torch.randn(TABLE_ROWS, 128))
        share = store._host.share
        for seed in range(30):
            store.gather(torch.randint(TABLE_ROWS, (100_000,), generator=torch.Generator().manual_seed(seed)).cuda())
            torch.cuda.synchronize()
        assert share.LEAST <= share.value <= share.MOST
        assert share.value != share.FIRST  # it was moved by what was measured
        store.close()

    def test_threads_and_streams_take_turns(self) -> None:
        table = torch.randn(TABLE_ROWS, 64)
        store, wrong = helped(table), []

        def gather(seed: int) -> None:
            generator = torch.Generator().manual_seed(seed)
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(8):
                    ids = torch.randint(TABLE_ROWS, (70_000,), generator=generator)
                    if not torch.equal(store.gather(ids.cuda()).cpu(), table[ids]):
                        wrong.append(seed)

        threads = [threading.Thread(target=gather, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        store.close()

    def test_rows_are_right_while_memory_is_used_again(self) -> None:
        """Nothing waits between gathers, whose freed memory others write."""
        table = torch.randn(TABLE_ROWS, 64)
        store = helped(table)
        generator = torch.Generator().manual_seed(0)
        ids = [torch.randint(TABLE_ROWS, (50_000 + 1000 * i,), generator=generator).cuda() for i in range(10)]
        found = []
        for nodes in ids:
            found.append(store.gather(nodes).double().sum(1))
            torch.full((4_000_000,), -1, device="cuda")
        for nodes, sums in zip(ids, found, strict=True):
            assert torch.equal(sums.cpu(), table[nodes.cpu()].cuda().double().sum(1).cpu())
        store.close()

    def test_memory_is_as_planned(self) -> None:
        n, table = 300_000, torch.randn(200_000, 64)
        for options in ({}, {"storage_dtype": "float16", "dtype": "float32"}):
            store = helped(table, **options)
            form = RowFormat(table, **options)
            for index in (torch.int32, torch.int64):
                ids = torch.randint(len(table), (n,), dtype=index).cuda()
                store._host.share.value = store._host.share.MOST
                torch.cuda.synchronize()
                before = torch.cuda.memory_allocated()
                torch.cuda.reset_peak_memory_stats()
                rows = store.gather(ids)
                torch.cuda.synchronize()
                beside = rows.nbytes + 2**20 + 4 * n + 2**16 + 2**20  # the rows, and the order in which they are read
                assert torch.cuda.max_memory_allocated() - before <= beside + gpu_bytes(form, n)
                del rows
            store.close()

    def test_a_closed_store_frees_its_buffers(self) -> None:
        before = dict(_locked)
        store = helped(torch.randn(TABLE_ROWS, 64))
        store.gather(torch.arange(TABLE_ROWS).cuda())
        assert len(_locked) > len(before) + 1
        store.close()
        store.close()
        assert dict(_locked) == before
        with pytest.raises(RuntimeError, match="was closed; make a new one"):
            store.gather(torch.arange(3))

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_a_loader_brings_the_same_mini_batches(self, monkeypatch: pytest.MonkeyPatch, prefetch: int) -> None:
        generator = torch.Generator().manual_seed(0)
        graph = Graph.from_edges(*torch.randint(NUM_NODES, (2, 3000), generator=generator), NUM_NODES)
        table = torch.randn(NUM_NODES, 6, generator=generator)
        found = []
        for threads in (0, 2):
            store = helped(table, host_threads=threads)
            if store._host is not None:
                store._host.least = 1
            assert store.asynchronous == (threads == 0)
            loader = small_loader(graph, features=store, prefetch=prefetch, device="cuda")
            found.append([digests(batch.to("cpu") for batch in loader) for _ in range(2)])
            loader.close()
            store.close()
        assert found[0] == found[1]

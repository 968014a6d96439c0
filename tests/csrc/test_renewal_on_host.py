"""The cache that takes in what the next gathers need: Python, bindings and kernels as they are, on the host."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from cuda_on_host import module_on_host
from small_loader import NUM_NODES, digests, small_loader
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.stores import CachedFeatures, cached, kernel
from loader.stores.renewal import Gathers, Renewal
from loader.stores.rows import RowFormat

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return module_on_host("renewal_on_host", tmp_path_factory)


@pytest.fixture(autouse=True)
def on_host(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "CudaRenewal", core.CudaRenewal)
    assert _core.renewal_tally_bytes == core.renewal_tally_bytes
    assert _core.most_together == core.most_together


class Cache:
    """A table, some of whose rows are cached, and gathers as kernels make them."""

    def __init__(self, num_rows: int, count: int, row: int = 16, dtype: torch.dtype = torch.uint8, seed: int = 0):
        self.random = torch.Generator().manual_seed(seed)
        self.table = torch.randint(256, (num_rows, row), generator=self.random).to(dtype)
        self.hot = torch.randperm(num_rows, generator=self.random)[:count].sort().values
        self.rows = self.table[self.hot].clone()
        self.slots = torch.full((num_rows,), -1, dtype=torch.int32)
        self.slots[self.hot] = torch.arange(count, dtype=torch.int32)
        self.missed = 0
        self.renewal = Renewal(self.rows, self.slots, self.hot)
        self.owners = self.renewal._arrays[2]

    def gather(self, ids: Tensor) -> Tensor:
        rows = self.empty(ids)
        self.read_misses(ids, self.mark_misses(ids), rows)
        self.read_cached(ids, rows)
        return rows

    def empty(self, ids: Tensor) -> Tensor:
        return torch.empty(len(ids), self.table.shape[1], dtype=self.table.dtype)

    def raise_bad_id(self) -> None:
        """Plain code reports nothing."""

    def mark_misses(self, ids: Tensor) -> Tensor:
        marks = self._places(ids) < 0
        self.missed += int(marks.sum())
        return marks

    def read_misses(self, ids: Tensor, marks: Tensor, rows: Tensor) -> None:
        known = ids.long().clamp(0, len(self.table) - 1)
        rows[marks] = self.table[known[marks]].masked_fill((known != ids)[marks, None], 0)

    def read_cached(self, ids: Tensor, rows: Tensor) -> None:
        places = self._places(ids)
        rows[places >= 0] = self.rows[places[places >= 0]]

    def _places(self, ids: Tensor) -> Tensor:
        known = ids.long().clamp(0, len(self.table) - 1)
        return torch.where(known == ids, self.slots[known].long(), -1)

    def ids(self, n: int, dtype: torch.dtype = torch.int64) -> Tensor:
        """Distinct ones, of which the first are in many gathers."""
        weights = 1 / (torch.arange(len(self.table)) + 3.0)
        return torch.multinomial(weights, n, generator=self.random).to(dtype)

    def cached(self) -> set[int]:
        """The rows that are in the cache, after a look at whether all is in order."""
        held = (self.slots >= 0).nonzero().flatten()
        places = self.slots[held].long()
        assert torch.equal(self.owners[places], held.int())
        assert int((self.owners >= 0).sum()) == len(held)  # the other slots are nobody's
        assert torch.equal(self.rows[places], self.table[held])
        return set(held.tolist())


def worth(group: Sequence[Tensor], turn: int, hot: set[int], row: int) -> int:
    """How soon a row is read again after a gather of the group; hot rows come after those, and then the others."""
    for later in range(turn + 1, len(group)):
        if row in set(group[later].tolist()):
            return later - turn - 1
    return 100 if row in hot else 101


def run(cache: Cache, group: Sequence[Tensor]) -> None:
    """Gathers a group, and compares what is cached after each gather with plain code."""
    hot = set(cache.hot.tolist())
    for turn, finish in enumerate(cache.renewal.begin(group, cache)):
        before = cache.cached()
        assert torch.equal(finish(), cache.table[group[turn].long()])
        after = cache.cached()
        if len(group) == 1:
            assert after == before
            continue
        candidates = before | set(group[turn].tolist())
        best = sorted(worth(group, turn, hot, row) for row in candidates)[: len(before)]
        assert sorted(worth(group, turn, hot, row) for row in after) == best


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    ("row", "dtype"), [(16, torch.uint8), (3, torch.float32), (3, torch.uint8), (40, torch.float32)]
)
def test_the_rows_worth_most_stay(row: int, dtype: torch.dtype, index: torch.dtype) -> None:
    cache = Cache(3001, 400, row, dtype)
    for sizes in ([5], [700, 300, 900], [1500] * 4, [50]):
        run(cache, [cache.ids(n, index) for n in sizes])
    assert cache.missed > 0


@pytest.mark.parametrize("count", [1, 50, 200])
def test_a_cache_of_any_size_is_renewed(count: int) -> None:
    cache = Cache(200, count)
    for _ in range(3):
        run(cache, [cache.ids(n) for n in (60, 1, 90, 100)])
    assert (count == 200) == (cache.missed == 0)


def test_the_longest_group_is_known_to_its_end() -> None:
    cache = Cache(500, 60)
    run(cache, [cache.ids(20) for _ in range(_core.most_together)])


def test_fewer_rows_are_missed_than_without() -> None:
    cache, still = Cache(3000, 500), Cache(3000, 500)
    for _ in range(4):
        group = [cache.ids(900) for _ in range(8)]
        run(cache, group)
        for ids in group:
            still.gather(ids)
    assert cache.missed < 0.8 * still.missed


def test_empty_gathers_change_nothing() -> None:
    cache = Cache(100, 20)
    before = cache.slots.clone()
    run(cache, [torch.zeros(0, dtype=torch.int64)] * 2)
    assert torch.equal(cache.slots, before)


def test_ids_out_of_range_are_passed_over() -> None:
    cache = Cache(100, 20)
    bad = torch.tensor([5, 100, -1, 7, 2**40, 9])
    first, second = cache.renewal.begin([cache.ids(50), bad], cache)
    first()
    rows = second()
    assert torch.equal(rows[[0, 3, 5]], cache.table[[5, 7, 9]])
    assert not rows[[1, 2, 4]].any()
    assert len(cache.cached()) == 20


def test_repeated_ids_return_the_right_rows() -> None:
    cache = Cache(300, 40)
    for _ in range(10):
        group = [torch.randint(300, (400,), generator=cache.random) for _ in range(4)]
        for ids, finish in zip(group, cache.renewal.begin(group, cache), strict=True):
            assert torch.equal(finish(), cache.table[ids])
            cache.cached()
    # Slots that are nobody's are filled again.
    for _ in range(2):
        for finish in cache.renewal.begin([cache.ids(100) for _ in range(3)], cache):
            finish()
    assert len(cache.cached()) == 40


def test_groups_that_take_turns_return_the_right_rows() -> None:
    cache = Cache(1000, 150)
    groups = [[cache.ids(n) for n in (300, 200, 400)] for _ in range(2)]
    begun = [cache.renewal.begin(group, cache) for group in groups]
    for turn in range(3):
        for group, finishes in zip(groups, begun, strict=True):
            assert torch.equal(finishes[turn](), cache.table[group[turn]])
            assert len(cache.cached()) == 150
            with cache.renewal.alone():
                assert torch.equal(cache.gather(group[turn]), cache.table[group[turn]])


def test_a_gather_lets_go_of_its_ids() -> None:
    cache = Cache(100, 20)
    group = [cache.ids(30) for _ in range(3)]
    alive = [weakref.ref(ids) for ids in group]
    finishes = cache.renewal.begin(group, cache)
    del group
    for turn, finish in enumerate(finishes):
        finish()
        assert [ids() is not None for ids in alive] == [later > turn for later in range(3)]
    with pytest.raises(RuntimeError, match="gather 1 of its group was made already"):
        finishes[1]()


def test_a_closed_cache_has_no_gathers() -> None:
    cache = Cache(100, 20)
    finishes = cache.renewal.begin([cache.ids(30), cache.ids(30)], cache)
    finishes[0]()
    cache.renewal.close()
    assert cache.renewal._arrays == ()
    with pytest.raises(RuntimeError, match="was closed, or renewing its cache failed; make a new one"):
        finishes[1]()


def test_a_group_that_was_dropped_is_forgotten() -> None:
    cache = Cache(1000, 150)
    cache.renewal.begin([cache.ids(300), cache.ids(500)], cache)[0]()
    run(cache, [cache.ids(400), cache.ids(400)])


def test_a_failed_gather_leaves_the_cache_usable() -> None:
    cache = Cache(1000, 150)

    def refused(*arguments: Tensor) -> None:
        raise RuntimeError("refused")

    for part in ("raise_bad_id", "mark_misses", "read_misses", "read_cached"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cache, part, refused)
            finish, _ = cache.renewal.begin([cache.ids(300), cache.ids(300)], cache)
            with pytest.raises(RuntimeError, match="refused"):
                finish()
    run(cache, [cache.ids(400), cache.ids(400)])


@pytest.mark.parametrize("launches", range(5))
def test_a_failed_renewal_ends_the_cache(core: Any, launches: int) -> None:
    cache = Cache(1000, 150)
    ids = [cache.ids(300), cache.ids(300)]
    cache.renewal.begin(ids, cache)[0]()
    finish, other = cache.renewal.begin(ids, cache)
    core.refuse_launch(3 + launches)  # behind those that forget and note uses
    with pytest.raises(RuntimeError, match="renewing a cache of rows"):
        finish()
    core.refuse_launch(-1)
    for late in (other, cache.renewal.begin(ids[:1], cache)[0]):
        with pytest.raises(RuntimeError, match="renewing its cache failed; make a new one"):
            late()


class OnHost(CachedFeatures):
    """The store as it is, on the CPU, with gathers by plain code."""

    def __init__(self, cache: Cache, lookahead: int) -> None:
        self._format, self._device, self._gatherer = RowFormat(cache.table), torch.device("cpu"), Any
        self._host, self.host_threads, self.lookahead = None, 0, lookahead
        self._renewal = cache.renewal if lookahead else None
        self._cache = cache

    def _gathers(self) -> Gathers:
        return self._cache

    def _launch(self, gatherer: Any, ids: Tensor, out: Tensor, **options: int) -> None:
        out.copy_(self._cache.gather(ids))

    def check(self) -> None:
        self._cache.cached()


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_mini_batches_have_the_same_bytes(prefetch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cached, kernel):
        monkeypatch.setattr(module, "made_current", lambda device: nullcontext())
    generator = torch.Generator().manual_seed(0)
    graph = Graph.from_edges(*torch.randint(NUM_NODES, (2, 2000), generator=generator), NUM_NODES)
    found, missed = [], []
    for lookahead in (0, 4):
        cache = Cache(NUM_NODES, NUM_NODES // 4)
        loader = small_loader(graph, features=OnHost(cache, lookahead), prefetch=prefetch)
        found.append([digests(loader) for _ in range(3)])
        loader.close()
        missed.append(cache.missed)
    assert found[0] == found[1]
    if prefetch:
        assert missed[1] < missed[0]  # without, no gather is known ahead


@pytest.mark.parametrize(
    ("name", "wrong", "error", "message"),
    [
        ("turn", 16, ValueError, "turn is 16; it must be 0 to 15"),
        ("ids", torch.zeros(3), TypeError, r"ids has dtype torch.float32; it must be torch.int32 or torch.int64"),
        ("ids", torch.zeros(3, dtype=torch.int64, device="meta"), ValueError, "ids lies on meta; it must lie on cpu"),
        ("ids", torch.zeros(6, dtype=torch.int64)[::2], ValueError, "ids is not contiguous"),
        ("ids", 17, TypeError, "ids is int; it must be a tensor"),
        ("next", torch.zeros(2, dtype=torch.uint8), ValueError, "next has 2 elements; it must have 3"),
        ("next", torch.zeros(3), TypeError, r"next has dtype torch.float32; it must be torch.uint8"),
        ("next", torch.zeros(3, dtype=torch.uint8, device="meta"), ValueError, "next lies on meta"),
        ("next", torch.zeros(6, dtype=torch.uint8)[::2], ValueError, "next is not contiguous"),
        (
            "rows",
            torch.zeros(2, 16, dtype=torch.uint8),
            ValueError,
            "rows has 2 rows of 16 bytes; it must have 3 of 16",
        ),
        ("rows", torch.zeros(3, 8, dtype=torch.uint8), ValueError, "rows has 3 rows of 8 bytes; it must have 3 of 16"),
        ("rows", torch.zeros(3, 16, dtype=torch.int8), TypeError, r"rows has dtype torch.int8; those that are cached"),
        ("rows", torch.zeros(3, 16, dtype=torch.uint8, device="meta"), ValueError, "rows lies on meta"),
        ("rows", torch.zeros(16, 3, dtype=torch.uint8).t(), ValueError, "rows is not contiguous"),
    ],
)
def test_what_does_not_fit_a_gather_is_refused(name: str, wrong: Any, error: type[Exception], message: str) -> None:
    cache, ids = Cache(10, 2), torch.arange(3)
    core = cache.renewal._core
    assert core is not None
    good = {"ids": ids, "next": torch.zeros(3, dtype=torch.uint8), "turn": 0}
    read: dict[str, Any] = {"rows": torch.zeros(3, 16, dtype=torch.uint8)}
    streams = dict.fromkeys(("choice_stream", "bus_stream", "stream"), 0)
    core.forget(0)
    core.note(**good, stream=0)
    core.renew(**good, **read, **streams)
    with pytest.raises(error, match=message):
        core.renew(**{**good, **read, name: wrong}, **streams)
    if name != "rows":
        with pytest.raises(error, match=message):
            core.note(**{**good, name: wrong}, stream=0)


def test_arrays_that_do_not_fit_are_refused(core: Any) -> None:
    number = dict.fromkeys(("owners", "leaving", "coming"), torch.zeros(2, dtype=torch.int32))
    tally = torch.zeros(core.renewal_tally_bytes, dtype=torch.uint8)
    good = {**number, "slots": torch.zeros(5, dtype=torch.int32), "uses": torch.zeros(8, dtype=torch.uint8)}
    rows = torch.zeros(2, 4)
    core.CudaRenewal(rows, **good, tally=tally)
    for name, size in (("owners", 2), ("leaving", 2), ("coming", 2), ("uses", 8)):
        wrong = {**good, name: torch.zeros(size + 1, dtype=good[name].dtype)}
        with pytest.raises(ValueError, match=f"{name} has {size + 1} elements; it must have {size}"):
            core.CudaRenewal(rows, **wrong, tally=tally)

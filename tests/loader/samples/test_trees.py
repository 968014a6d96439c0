"""Rows of a mini-batch of trees: each distinct node is gathered once, and `x` is as if each copy had been."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lightning.pytorch.plugins.precision import HalfPrecision
from marks import needs_gpu
from torch import Tensor

from loader import NodeLoader
from loader.graph import HeteroGraph
from loader.pipeline import Stage
from loader.samplers import TreeSampler
from loader.samples import LazyRows, TreeMiniBatch
from loader.samples import distinct as distinct_module
from loader.samples.distinct import Distinct
from loader.samples.lazy_rows import LazyFeatures
from loader.samples.segments import Segments
from loader.stores import CachedFeatures, DeviceFeatures, HostFeatures, PinnedFeatures

WRITES, BACK = ("author", "writes", "paper"), ("paper", "rev_writes", "author")
X = {"author": torch.randn(40, 3), "paper": torch.randn(25, 5)}
YEARS = torch.arange(25) + 1990


def graph_of() -> HeteroGraph:
    g = torch.Generator().manual_seed(0)
    pairs = torch.stack([torch.randint(40, (300,), generator=g), torch.randint(25, (300,), generator=g)])
    return HeteroGraph.from_edges({WRITES: pairs, BACK: pairs.flip(0)}, {"author": 40, "empty": 0, "paper": 25})


def batch_of(trees: str = "unique", seed: int = 0) -> TreeMiniBatch:
    sampler = TreeSampler([4, 3], trees=trees, seed=seed, edge_ids=True)
    return sampler.sample(graph_of(), {"paper": torch.tensor([3, 3, 7, 24])})


def gathered(batch: TreeMiniBatch) -> TreeMiniBatch:
    return batch.with_rows({f"node/{name}": rows[batch.ids(f"node/{name}")] for name, rows in X.items()})


@pytest.mark.parametrize("trees", ["unique", "paths"])
def test_unique_and_row_are_numpys(trees: str) -> None:
    batch = batch_of(trees)
    assert batch.nodes.unique().numel() < batch.nodes.numel()
    for name, ids in batch.n_id.items():
        unique, row = np.unique(ids.numpy(), return_inverse=True)
        assert batch.unique[name].tolist() == unique.tolist()
        assert batch.row[name].tolist() == row.tolist()
        assert batch.row[name].dtype == torch.int32
        assert torch.equal(batch.ids(f"node/{name}"), batch.unique[name])
        assert torch.equal(batch.ids(f"node/{name}/year"), batch.unique[name])


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    hops=st.integers(1, 4),
    factor=st.sampled_from([0, 8, 10**9]),
    wide=st.booleans(),
    draw=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_distinct_nodes_are_numpys(sizes: list[int], hops: int, factor: int, wide: bool, draw: Any) -> None:
    types, first = {}, 0
    for t, size in enumerate(sizes):
        types[f"t{t}"], first = range(first, first + size), first + size
    new, nodes = [], []
    for _ in range(hops):
        counts = [draw.draw(st.integers(0, 12)) if len(ids) else 0 for ids in types.values()]
        new.append(counts)
        for ids, n in zip(types.values(), counts, strict=True):
            nodes += draw.draw(st.lists(st.integers(ids.start, ids.stop - 1), min_size=n, max_size=n)) if n else []
    dtype = torch.int64 if wide else torch.int32
    segments, given_nodes = Segments(types, (), new), torch.tensor(nodes, dtype=dtype)
    before = distinct_module._PLACES_PER_NODE
    distinct_module._PLACES_PER_NODE = factor  # a table, or a sort
    try:
        found = Distinct.of(given_nodes, segments)
    finally:
        distinct_module._PLACES_PER_NODE = before
    unique, row = np.unique(np.array(nodes, dtype=np.int64), return_inverse=True)
    assert found.unique.dtype == dtype
    assert found.unique.tolist() == unique.tolist()
    assert found.row.tolist() == row.tolist()
    for t, (name, ids) in enumerate(types.items()):
        mine = segments.of_type(given_nodes, t).long() - ids.start
        assert torch.equal(found.ids_of(name).long(), mine.unique())
        assert torch.equal(found.ids_of(name)[found.row_of(name)].long(), mine)
    some = draw.draw(st.lists(st.sampled_from(list(types)), unique=True, min_size=1))
    for name, ids in zip(some, found.ids_of_types(some), strict=True):
        assert ids.dtype == dtype
        assert torch.equal(ids, found.ids_of(name))
    numbers = [segments.type_of(name) for name in some]
    parts = segments.of_types(given_nodes, numbers)
    for t, ids in zip(numbers, parts, strict=True):
        assert torch.equal(ids, segments.of_type(given_nodes, t))
    segments.within_types(parts, numbers)
    for t, ids in zip(numbers, parts, strict=True):
        assert torch.equal(ids, segments.of_type(given_nodes, t) - types[f"t{t}"].start)
    assert given_nodes.tolist() == nodes
    assert found.unique.tolist() == unique.tolist()


@pytest.mark.parametrize("trees", ["unique", "paths"])
def test_rows_are_those_of_all_nodes(trees: str) -> None:
    batch = batch_of(trees)
    found = gathered(batch)
    assert found.x is not None
    assert set(found.x) == set(X)
    assert len(found.x) == 2
    assert "empty" not in found.x
    assert [found.has(f"node/{name}") for name in ("author", "paper", "empty")] == [True, True, False]
    for name, rows in X.items():
        assert torch.equal(found.unique_x[name], rows[batch.n_id[name].unique().long()])
        assert torch.equal(found.x[name], rows[batch.n_id[name].long()])
        assert found.x[name] is found.x[name]
    plain = batch.replace(x={name: rows[batch.n_id[name].long()] for name, rows in X.items()})
    assert found.digest() == plain.digest()
    assert plain.unique_x == {}


def test_rows_may_stay_in_their_table() -> None:
    batch = batch_of("paths")
    found = gathered(batch)
    lazy = batch.with_rows({f"node/{name}": LazyRows(rows, batch.ids(f"node/{name}")) for name, rows in X.items()})
    shapes = {tuple(t.shape) for t in lazy.tensors()}
    for name, rows in X.items():
        assert (*batch.unique[name].shape, rows.shape[1]) not in shapes
        assert isinstance(lazy.unique_x, LazyFeatures)
        assert lazy.unique_x.lazy[name].table is rows
    for one in (lazy, lazy.to("cpu"), lazy.map(torch.clone), pickle.loads(pickle.dumps(lazy))):
        assert one.digest() == found.digest()
        for name in X:
            assert torch.equal(one.unique_x[name], found.unique_x[name])
            assert torch.equal(one.x[name], found.x[name])
    away = lazy.map(lambda t: t.to("meta"))  # a table is not copied
    assert {name: rows.shape for name, rows in away.unique_x.items()} == {
        name: rows.shape for name, rows in found.unique_x.items()
    }
    assert not isinstance(away.unique_x, LazyFeatures)


def test_rows_are_made_when_asked_for() -> None:
    found = gathered(batch_of("paths"))
    few, held = found.nbytes, found.held_bytes
    shapes = {tuple(t.shape) for t in found.tensors()}
    count = found.num_nodes_of("author")
    assert (count, 3) not in shapes
    assert found.x is not None
    _ = found.x["author"]
    assert found.nbytes == few
    assert found.held_bytes == held + count * 12


def test_more_rows_of_a_type_are_distinct() -> None:
    found = gathered(batch_of("paths"))
    year, edge = "node/paper/year", "edge/author__writes__paper"
    more = found.with_rows({year: YEARS[found.ids(year)], edge: found.ids(edge)})
    assert torch.equal(more.rows[year], YEARS[more.n_id["paper"].long()])
    assert torch.equal(more.rows[edge], more.ids(edge))
    assert more.x is not None
    assert torch.equal(more.x["author"], X["author"][more.n_id["author"].long()])


def test_labels_and_rows_come_in_any_order() -> None:
    batch = batch_of()
    labels = torch.arange(4)
    rows = {f"node/{name}": X[name][batch.ids(f"node/{name}")] for name in X}
    together = batch_of().with_rows({"seed": labels, **rows})
    one_by_one = batch_of().with_rows({"node/paper": rows["node/paper"]}).with_rows({"seed": labels})
    one_by_one = one_by_one.with_rows({"node/author": rows["node/author"]})
    moved = together.to("cpu").map(torch.clone)
    assert together.digest() == one_by_one.digest() == moved.digest()


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda batch: pickle.loads(pickle.dumps(batch))])
def test_copies_have_the_rows(make: Any) -> None:
    found = gathered(batch_of("paths"))
    digest = gathered(batch_of("paths")).digest()
    assert make(found).digest() == digest


def test_a_copy_on_another_device_is_complete() -> None:
    found = gathered(batch_of("paths"))
    meta = found.to("meta")
    assert all(t.is_meta for t in meta.tensors())
    assert [t.shape for t in meta.tensors()] == [t.shape for t in found.tensors()]
    assert meta.x is not None
    assert meta.x["author"].is_meta


def test_precision_plugins_convert_what_the_model_reads() -> None:
    found = gathered(batch_of("paths"))
    half = HalfPrecision("bf16-true").convert_input(found)
    assert half.x["author"].dtype == torch.bfloat16
    assert torch.equal(half.x["author"].float(), found.x["author"].bfloat16().float())
    assert torch.equal(half.nodes, found.nodes)
    assert all(a.shape == b.shape for a, b in zip(half.map(torch.clone).tensors(), half.tensors(), strict=True))


def test_pyg_gets_a_row_for_each_node() -> None:
    batch = batch_of("unique")
    data = gathered(batch).to_pyg()
    for name, rows in X.items():
        assert torch.equal(data[name].x, rows[data[name].n_id])
        assert data[name].num_nodes == batch.num_nodes_of(name)


class Asked(HostFeatures):
    """Counts the rows that it gathers."""

    rows = 0

    def gather(self, ids: Tensor) -> Tensor:
        self.rows += ids.numel()
        return super().gather(ids)


class Sums(Stage):
    """Reads `x`, as a user's stage."""

    name, device, asynchronous = "sums", None, False

    def run(self, item: Any) -> Any:
        return item.replace(y=torch.stack([item.x[name].sum() for name in X]))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_stores_gather_distinct_rows(prefetch: int) -> None:
    stores = {name: Asked(rows) for name, rows in X.items()}
    seeds = ("paper", torch.arange(25).repeat(4))
    sampler = TreeSampler([4, 3], trees="paths", seed=2)
    loader = NodeLoader(graph_of(), stores, None, seeds, sampler, 20, shuffle=True, prefetch=prefetch)
    wanted, nodes = dict.fromkeys(X, 0), 0
    for batch in loader:
        for name in X:
            wanted[name] += batch.n_id[name].unique().numel()
            assert torch.equal(batch.x[name], X[name][batch.n_id[name].long()])
        nodes += batch.nodes.numel()
    assert {name: store.rows for name, store in stores.items()} == wanted
    assert 3 * sum(wanted.values()) < nodes
    assert loader.stats.moved["gather"] == sum(n * X[name].shape[1] * 4 for name, n in wanted.items())


def test_a_stage_after_the_gathering_reads_rows() -> None:
    seeds, sampler = ("paper", torch.arange(25)), TreeSampler([4, 3], seed=2)
    loader = NodeLoader(graph_of(), X, None, seeds, sampler, 10, stages=[Sums()], prefetch=2)
    for batch in loader:
        wanted = torch.stack([X[name][batch.n_id[name].long()].sum() for name in X])
        torch.testing.assert_close(batch.y, wanted)


class TestOnGpu:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("factor", [0, 8, 10**9])
    def test_distinct_nodes_are_the_cpus(self, factor: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(distinct_module, "_PLACES_PER_NODE", factor)
        g = torch.Generator().manual_seed(0)
        types = {"a": range(0), "b": range(0, 7), "c": range(7, 100_000), "d": range(100_000, 100_001)}
        for count in (0, 1, 50, 200_000):
            sizes = [[min(len(ids), 1) * count for ids in types.values()]] * 2
            parts = [torch.randint(ids.start, ids.stop, (count,), generator=g) for ids in types.values() if len(ids)]
            nodes, segments = torch.cat(parts * 2).int(), Segments(types, (), sizes)
            mine, other = Distinct.of(nodes.cuda(), segments), Distinct.of(nodes, segments)
            assert torch.equal(mine.unique.cpu(), other.unique)
            assert torch.equal(mine.row.cpu(), other.row)
            for name in types:
                assert torch.equal(mine.ids_of(name).cpu(), other.ids_of(name))
                assert torch.equal(mine.row_of(name).cpu(), other.row_of(name))

    @pytest.mark.parametrize("prefetch", [0, 3])
    @pytest.mark.parametrize("features", ["host", "device", "pinned", "cached"])
    def test_mini_batches_are_the_cpus(self, features: str, prefetch: int) -> None:
        make: dict[str, Any] = {
            "host": HostFeatures,
            "device": lambda rows: DeviceFeatures(rows, "cuda"),
            "pinned": lambda rows: PinnedFeatures(rows, "cuda"),
            "cached": lambda rows: CachedFeatures(rows, "cuda", fraction=0.4, hotness=torch.rand(len(rows))),
        }
        graph, seeds = graph_of(), ("paper", torch.arange(25).repeat(8))

        def digests(device: str, stores: dict[str, Any]) -> list[str]:
            sampler = TreeSampler([4, 3], trees="paths", seed=2, device=device)
            loader = NodeLoader(
                graph.to(device), stores, None, seeds, sampler, 20, shuffle=True, prefetch=prefetch, device=device
            )
            return [batch.digest() for batch in loader]

        assert digests("cuda", {name: make[features](rows) for name, rows in X.items()}) == digests("cpu", dict(X))

    @pytest.mark.parametrize("factor", [0, 10**9])
    def test_the_host_waits_once_for_distinct_nodes(self, factor: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(distinct_module, "_PLACES_PER_NODE", factor)
        batch = batch_of("paths").to("cuda")
        Distinct.of(batch.nodes, batch.segments)  # the first one sends numbers to the GPU
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with pytest.warns(UserWarning, match="synchronizing") as waits:
                Distinct.of(batch.nodes, batch.segments)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        # Loaders of other tests may still wait in threads of their own.
        own = [w for w in waits if "synchronizing" in str(w.message) and w.filename == distinct_module.__file__]
        assert len(own) == 1, [f"{w.filename}:{w.lineno}: {w.message}" for w in waits]

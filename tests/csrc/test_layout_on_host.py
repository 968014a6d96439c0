"""What a captured step does before its layers: the GPU's kernels on the host, beside what torch makes of the same."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
import torch
from cuda_on_host import module_on_host
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from loader import _core
from loader.graph import HeteroGraph
from loader.ops import captured_hetero_batch, captured_hetero_moves, mapped_rows, times_since
from loader.ops.captured_hetero_batch import CapturedHeteroBatch, HopRoom
from loader.ops.captured_hetero_moves import LoadedHops, MovedHops
from loader.ops.captured_trees import CapturedTrees
from loader.ops.hop_layout import HopLayout
from loader.ops.mapped_rows import MappedRows
from loader.samplers import FusedSampler, Request, TreeSampler

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]

COUNTS = {"a": 90, "b": 5, "p": 70, "q": 3}
EDGE_TYPES = [("a", "w", "p"), ("p", "c", "p"), ("p", "rev_w", "a"), ("q", "o", "b"), ("a", "z", "b")]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return module_on_host("layout_on_host", tmp_path_factory)


@pytest.fixture(autouse=True)
def on_host(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda_move_hops", "cuda_map_entries", "cuda_encode_times"):
        monkeypatch.setattr(_core, name, getattr(core, name), raising=False)
    for module in (captured_hetero_moves, mapped_rows, times_since):
        monkeypatch.setattr(module, "launch_place", lambda like: (0, 0))


def mini_batches(trees: bool, seed: int) -> list[Any]:
    """Of changing size, the last ones with fewer seeds; with features and labels."""
    g = torch.Generator().manual_seed(seed)
    edges = {
        key: torch.stack([torch.randint(COUNTS[end], (200,), generator=g) for end in (key[0], key[2])])
        for key in EDGE_TYPES
    }
    times = {name: torch.randint(50, (n,), generator=g) for name, n in COUNTS.items()}
    graph = HeteroGraph.from_edges(edges, COUNTS, node_times=times if trees else None)
    make: Any = TreeSampler([4, 3], times="node") if trees else FusedSampler([4, 3], expand="new")
    session, found = make.open(graph), []
    for number, size in enumerate([12, 12, 12, 7]):
        ids = torch.randperm(COUNTS["p"], generator=g)[:size] + graph.node_types["p"].start
        at = torch.randint(10, 60, (size,), generator=g)
        request = Request(torch.stack([ids, at], 1) if trees else ids, 0, number)
        (batch,) = (finish() for finish in session.begin([request]))
        rows = {f"node/{name}": torch.randn(len(batch.ids(f"node/{name}")), 3) for name in COUNTS}
        found.append(batch.with_rows({**rows, "seed": torch.zeros(size, dtype=torch.int64)}))
    return found


def layouts_of(captured: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[HopLayout, MovedHops]:
    """The layout of what was loaded, and what the kernel finds of the same."""
    taken: list[LoadedHops] = []

    def taking(hops: LoadedHops) -> MovedHops:
        taken.append(hops)
        return captured_hetero_moves.moved(hops)

    monkeypatch.setattr(captured_hetero_batch, "moved", taking)
    layout = captured.layout
    return layout, captured_hetero_moves._moved_by_kernel(taken[0])


@pytest.mark.parametrize("trees", [False, True])
@pytest.mark.parametrize(("share", "step"), [(0.0, 1), (0.3, 32)])
def test_layouts_are_those_of_torch(trees: bool, share: float, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(8):
        batches = mini_batches(trees, seed)
        kind: Any = CapturedTrees if trees else CapturedHeteroBatch
        room = reduce(HopRoom.union, map(kind.room_of, batches)).widened(share, step)
        captured = kind(batches[0], room)
        for batch in [*batches, batches[0]]:
            assert captured.holds(batch)
            captured.load(batch)
            layout, found = layouts_of(captured, monkeypatch)
            assert torch.equal(found.indptr, layout.indptr)
            assert torch.equal(found.indices, layout.indices)
            assert torch.equal(found.distinct, layout.row)
            assert (found.tree is not None) == trees
            if trees:
                assert torch.equal(found.tree, layout.tree)
            sources = [layout.names.index(batch.edge_types[r][0]) for of in batch.segments.into for r in of]
            for hops in (1, 2):
                mapped = MappedRows(layout, hops, sources)
                lists = layout.rows_of(hops), layout.entries_of(hops)
                wanted = mapped.entries(layout, hops)
                for one, other in zip(mapped._entries_by_kernel(*lists, layout.row), wanted, strict=True):
                    assert torch.equal(one, other)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seconds=st.lists(st.integers(-(2**36), 2**36), min_size=1, max_size=20),
    nodes=st.integers(0, 50),
    half=st.sampled_from([1, 3, 32, 50]),
    seed=st.integers(0, 1000),
)
def test_times_are_those_of_torch(seconds: list[int], nodes: int, half: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    seed_times = torch.tensor([(0, second) for second in seconds])[:, 1]  # as pairs of seeds and times have them
    tree, row = torch.randint(len(seconds), (nodes,), generator=g), torch.randint(9, (nodes,), generator=g)
    known = torch.stack([torch.randint(-800_000, 800_000, (9,), generator=g), torch.randint(86_400, (9,), generator=g)])
    rows, frequency = known.t().float().contiguous(), torch.rand(half, generator=g) * 1e-3
    out = times_since._by_kernel(seed_times, tree, row, rows, frequency)
    wanted = times_since.encode_since(seed_times, tree, row, rows, frequency)
    torch.testing.assert_close(out, wanted, rtol=0, atol=2e-6)
    exact: Tensor = (seed_times[tree] - (known[0] * 86_400 + known[1])[row]).double() / 86_400
    angles = exact.unsqueeze(1) * frequency.double()
    torch.testing.assert_close(out.double(), torch.cat([angles.sin(), angles.cos()], 1), rtol=0, atol=1e-3)


def test_what_does_not_fit_is_refused(core: Any) -> None:
    batches = mini_batches(True, 0)
    captured = CapturedTrees(batches[0], CapturedTrees.room_of(batches[0]))
    captured.load(batches[0])
    n, rows = captured._num_nodes, len(captured._segment_of_row)
    fixed = (
        captured._slots_of, captured._first_unique, captured._segment, captured._place, captured._type,
        captured._segment_of_row, captured._place_of_row,
    )  # fmt: skip
    loaded = [captured._indptr, captured._indices, captured._row, captured._tree]
    to = [torch.empty(rows + 1, dtype=torch.int32), torch.empty_like(captured._indices), torch.empty(n).long()]
    for sizes, given_arrays, out, message in (
        (captured._sizes[:6], loaded, [*to, to[2]], "sizes has"),
        (
            captured._sizes,
            [captured._indptr[:rows], *loaded[1:]],
            [*to, to[2]],
            f"indptr has {rows} elements; it must have more",
        ),
        (captured._sizes, [captured._indptr.long(), *loaded[1:]], [*to, to[2]], "indptr has dtype torch.int64"),
        (captured._sizes, loaded, [*to, None], "tree must be loaded where it is written"),
        (captured._sizes, loaded, [*to[:2], to[2][1:], to[2]], "the new distinct has"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            core.cuda_move_hops((0, 0), sizes, captured._of_types, fixed, tuple(given_arrays), tuple(out))
    ids, of = torch.zeros(3).long(), torch.zeros(4).long()
    lists = loaded[0], loaded[1], to[2]
    with pytest.raises(ValueError, match="out has 5 elements; it must have 6"):
        core.cuda_encode_times((0, 0), (ids, ids, ids), torch.zeros(3, 2), torch.zeros(1), torch.zeros(5))
    with pytest.raises(ValueError, match="of_node has 4 elements; it must have 6"):
        core.cuda_map_entries((0, 0), lists, (of, of, of, of), loaded[0], loaded[1])

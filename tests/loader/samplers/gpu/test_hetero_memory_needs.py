"""What a GPU sampler of types or trees needs at most: no mini-batch, and no workspace for one, is larger."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hetero_datasets import make_hetero
from hypothesis import given, settings
from hypothesis import strategies as st

from loader import _core
from loader.graph import HeteroGraph
from loader.machine.gpu import counted_bytes
from loader.samplers import FusedSampler, TreeSampler
from loader.samplers.gpu import hetero_memory_needs
from loader.samplers.gpu.hetero_memory_needs import _engine
from loader.samplers.gpu.hetero_sizes import HeteroSizes
from loader.samplers.gpu.memory_needs import SamplerNeeds, check_counted, graph_of_sizes
from loader.samplers.gpu.sizes import GpuOptions, with_headroom
from loader.samplers.gpu.tree_sizes import TreeSizes
from loader.samplers.gpu.tree_thread_blocks import block_for
from loader.samplers.tree_options import TreeOptions

KEYS = [("a", "w", "p"), ("p", "c", "p"), ("p", "rev_w", "a"), ("v", "of", "p")]


def graph_of(seed: int, pairs: int = 600, timed: bool = False) -> HeteroGraph:
    g = torch.Generator().manual_seed(seed)
    counts = {"a": 90, "p": 70, "v": 5}

    def ends(key: tuple[str, str, str]) -> torch.Tensor:
        return torch.stack([torch.randint(counts[name], (pairs,), generator=g) for name in (key[0], key[2])])

    edges = {key: ends(key) for key in KEYS}
    times = {name: torch.arange(n) for name, n in counts.items()} if timed else None
    return HeteroGraph.from_edges(edges, counts, node_times=times)


def sizes_of(sampler: Any, graph: HeteroGraph, multiprocessors: int = 132) -> HeteroSizes:
    kind = TreeSizes if isinstance(sampler, TreeOptions) else HeteroSizes
    lists = graph_of_sizes(graph.lists)
    return kind(sampler, graph, lists, "naive", cached=False, multiprocessors=multiprocessors)


def workspace_bytes(sizes: HeteroSizes, sampler: Any, graph: HeteroGraph, num_seeds: int) -> int:
    """Of the arrays of a plan, as a session makes them."""
    plan = sizes.new_plan(num_seeds, ahead=True)
    arrays = _engine(sampler, graph, sizes.graph).plan(**sizes.asked(plan, num_seeds))
    return sum(counted_bytes(length * getattr(torch, dtype).itemsize) for _, dtype, length, _ in arrays)


def learnt(sizes: HeteroSizes, batch: Any) -> None:
    """What a session remembers of a mini-batch."""
    frontiers = torch.tensor(batch.sizes).sum(1).cumsum(0).tolist()
    sizes._largest = (frontiers, [block.num_edges for block in batch.blocks[::-1]])
    sizes.learn_rows([block.indptr.numel() - 1 for block in batch.blocks[::-1]])


def with_options(sampler: Any, together: int) -> Any:
    sampler.batches_per_launch = together
    return sampler


@given(
    seed=st.integers(0, 1000),
    fanouts=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    size=st.integers(1, 60),
    together=st.sampled_from([1, 8]),
    options=st.fixed_dictionaries(
        {"replace": st.booleans(), "expand": st.sampled_from(["all", "new"]), "edge_ids": st.booleans()}
    ),
)
@settings(max_examples=40, deadline=None)
def test_needs_bound_whatever_is_learned(
    seed: int, fanouts: list[int], size: int, together: int, options: dict[str, Any]
) -> None:
    graph, sampler = graph_of(seed), with_options(GpuOptions(fanouts, **options), together)
    needs, sizes = SamplerNeeds.of(sampler, graph, [size]), sizes_of(sampler, graph)
    before = workspace_bytes(sizes, sampler, graph, size)
    batch = FusedSampler(fanouts, num_threads=1, **options).sample(graph, {"a": torch.arange(size)})
    assert batch.nodes.numel() <= needs.nodes
    learnt(sizes, batch)
    sizes.slots = together
    plan = sizes.new_plan(size, ahead=True)
    assert plan.frontiers[-1] <= needs.nodes
    assert plan.layout.length * plan.layout.dtype.itemsize <= needs.batch
    assert max(before, workspace_bytes(sizes, sampler, graph, size)) <= needs.workspace
    assert plan.frontiers[-1] >= batch.nodes.numel()
    assert all(a >= block.num_edges for a, block in zip(plan.edges, batch.blocks[::-1], strict=True))


@given(
    seed=st.integers(0, 1000),
    fanouts=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    size=st.integers(1, 60),
    together=st.sampled_from([1, 8]),
    options=st.sampled_from(
        [
            {},
            {"trees": "paths"},
            {"trees": "paths", "replace": True, "edge_ids": True},
            {"times": "node", "last": True},
            {"times": "node", "trees": "paths", "bound": "edge"},
        ]
    ),
    grown=st.floats(1, 100),
    table=st.integers(0, 12),
)
@settings(max_examples=40, deadline=None)
def test_needs_of_trees_bound_whatever_is_learned(
    seed: int, fanouts: list[int], size: int, together: int, options: dict[str, Any], grown: float, table: int
) -> None:
    timed = "times" in options
    graph, sampler = graph_of(seed, timed=timed), with_options(TreeOptions(fanouts, **options), together)
    needs = SamplerNeeds.of(sampler, graph, [size])
    sizes: Any = sizes_of(sampler, graph)
    sizes._guess = grown
    before = workspace_bytes(sizes, sampler, graph, size)
    seeds = torch.arange(size).repeat(2)[:size]
    times = torch.full((size,), 60) if timed else None
    batch = TreeSampler(fanouts, num_threads=1, **options).sample(graph, {"a": seeds}, times)
    assert batch.nodes.numel() <= needs.nodes
    learnt(sizes, batch)
    # A session makes room for more than was found: for a part of the trees at first, and where one did not fit.
    sizes._largest = tuple([int(grown * n) for n in part] for part in sizes._largest)
    sizes._most_rows = [int(grown * n) for n in sizes._most_rows]
    sizes.slots, tables = together, sizes.tables()
    sizes._table = tables[min(table, len(tables) - 1)]
    plan = sizes.new_plan(size, ahead=True)
    assert plan.frontiers[-1] <= needs.nodes
    assert plan.layout.length * plan.layout.dtype.itemsize <= needs.batch
    assert max(before, workspace_bytes(sizes, sampler, graph, size)) <= needs.workspace
    assert plan.frontiers[-1] >= batch.nodes.numel()


def test_more_seeds_need_no_less() -> None:
    graph, sampler = graph_of(1), with_options(GpuOptions([4, 3]), 8)
    fewer, more = SamplerNeeds.of(sampler, graph, [5]), SamplerNeeds.of(sampler, graph, [5, 40])
    assert all(a <= b for a, b in zip(fewer, more, strict=True))
    trees = with_options(TreeOptions([4, 3]), 8)
    assert SamplerNeeds.of(trees, graph, [500]).nodes == 100 * SamplerNeeds.of(trees, graph, [5]).nodes


def test_edge_ids_of_the_graph_are_looked_up() -> None:
    graph = graph_of(1)
    plain, ids = (
        SamplerNeeds.of(with_options(GpuOptions([3], edge_ids=wanted), 1), graph, [20]) for wanted in (False, True)
    )
    most = sizes_of(GpuOptions([3]), graph).largest_plans(20)[-1].edges[0]
    assert ids.batch >= plain.batch + 2 * 4 * most


def test_seeds_of_several_types_may_have_more() -> None:
    """Which bounds of one type are then no bounds; what was found counts."""
    graph = graph_of(1)
    sizes = sizes_of(GpuOptions([1], expand="new"), graph)
    sizes._largest, sizes._most_rows = ([40, 10**4], [10**4]), [10**4]
    plan = sizes.new_plan(40, ahead=False)
    assert plan.frontiers[-1] == graph.num_nodes
    assert plan.rows == [graph.lists.num_dst]
    assert plan.edges[0] >= 10**4 or plan.edges[0] == plan.rows[0]


@pytest.mark.parametrize("paths", [False, True])
def test_the_extension_tells_sizes_of_trees(paths: bool) -> None:
    graph = graph_of(1, timed=True)
    sampler = TreeOptions([3], trees="paths" if paths else "unique", times="node")
    engine = _engine(sampler, graph, graph_of_sizes(graph.lists))
    with pytest.raises(RuntimeError, match="a sampler of device -1 only tells sizes"):
        engine.launch([], 0, 0)
    assert type(engine).__name__ in dir(_core)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "hopwise"}, "schedule is 'hopwise'; a HeteroGraph is sampled by one launch"),
        ({"pad_to_capacity": True}, "pad_to_capacity is for graphs with one type; leave it out"),
        ({"reads": "sectors"}, "reads is 'sectors', which is for graphs with one type; leave it out"),
    ],
)
def test_options_of_one_type_are_refused(options: dict[str, Any], message: str) -> None:
    sampler = with_options(GpuOptions([3]), 1)
    for name, value in options.items():
        setattr(sampler, name, value)
    with pytest.raises(ValueError, match=message):
        SamplerNeeds.of(sampler, make_hetero().graph, [5])


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (GpuOptions({KEYS[0]: [2], KEYS[1]: [-1]}), "memory needs an upper bound of the sizes, but fanout -1 has none"),
        (TreeOptions([3], labor=True), "memory needs an upper bound of the sizes, but labor=True has none"),
        (
            TreeOptions([3], weights="edge_weights"),
            "memory counts no tables of weights; leave one of memory and weights",
        ),
    ],
)
def test_what_has_no_bound_is_refused(sampler: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_counted(sampler)


def test_trees_that_may_be_too_large_are_refused() -> None:
    sampler = with_options(TreeOptions([1000] * 8, trees="paths"), 1)
    with pytest.raises(ValueError, match=r"memory counts all that fanouts allow, and 40 trees may have \d+ lists and"):
        SamplerNeeds.of(sampler, graph_of(1), [40])


def test_sets_that_may_be_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(**_: Any) -> None:
        raise OverflowError("a mini-batch of up to 9 nodes is more than a hash set's 2^30; use node_set='bitmap'")

    monkeypatch.setattr(hetero_memory_needs, "_engine", lambda *_: SimpleNamespace(plan=plan))
    with pytest.raises(
        ValueError, match=r"memory counts all that fanouts allow, and a mini-batch of up to 9 nodes is m"
    ):
        SamplerNeeds.of(with_options(GpuOptions([3]), 1), graph_of(1), [9])


def test_seeds_of_several_types_keep_headroom() -> None:
    """Seeds of one type reach ten nodes, those of both twenty, which no bound for seeds of one type allows."""
    pairs = torch.cartesian_prod(torch.arange(10), torch.arange(20)).t()
    edges = {("x", "to", "a"): pairs, ("y", "to", "b"): pairs}
    graph = HeteroGraph.from_edges(edges, {"a": 20, "b": 20, "x": 10, "y": 10, "spare": 40})
    sampler = GpuOptions([10], expand="new")
    sizes = sizes_of(sampler, graph)
    assert sizes._reach.most(20).frontiers == [20, 30]
    seeds = {"a": torch.arange(10), "b": torch.arange(10)}
    learnt(sizes, FusedSampler([10], expand="new", num_threads=1).sample(graph, seeds))
    assert sizes.new_plan(20, ahead=False).frontiers[-1] == min(with_headroom(40), graph.num_nodes)


@pytest.mark.parametrize(
    ("edges", "trees", "threads"),
    [
        (10, 100, 64),  # few edges for a larger block
        (110, 450, 128),
        (110, 1800, 64),
        (270, 256, 256),  # all trees at once in blocks of 256, or of 128 threads, or of none
        (270, 1024, 128),
        (270, 8192, 64),
        (376, 512, 256),
        (376, 4096, 128),
        (564, 1024, 256),
        (3000, 8192, 256),
    ],
)
def test_blocks_follow_edges_and_trees(edges: int, trees: int, threads: int) -> None:
    """As was fastest on an H200, which has 132 multiprocessors."""
    assert block_for(edges, trees, 132).threads == threads
    sizes = sizes_of(TreeOptions([3]), graph_of(1))
    assert sizes.asked(sizes.new_plan(0, ahead=False), 0)["threads"] == 64

"""The GPU's sampler of trees on fibers of the host, from end to end, beside an oracle in NumPy."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import tree_cases
from cuda_on_host import module_on_host
from fake_gpu_sampler import FakeGPU
from hetero_graphs import WHOLE_LISTS, with_hubs
from sampler_needs import check_needs

from loader import _core
from loader.graph import HeteroGraph
from loader.samplers import Request, TreeSampler
from loader.samplers.gpu import tree_thread_blocks
from loader.samplers.gpu import trees as gpu_trees
from loader.samplers.gpu.memory_needs import SamplerNeeds
from loader.samplers.relations import node_types_of
from loader.samplers.trees import pairs_of

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return module_on_host("trees_on_host", tmp_path_factory)


# Of tables and of room for new nodes in shared memory: few, so that small trees need more.
@pytest.fixture(params=[(64, 32), (256, 256)], ids=["little shared memory", "more"])
def gpu(engine: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[FakeGPU]:
    sizes = (400, 64), (math.inf, 96)
    blocks = [tree_thread_blocks.TreeBlock(edges, threads, *request.param, math.inf) for edges, threads in sizes]
    monkeypatch.setattr(tree_thread_blocks, "BLOCKS", blocks)
    yield FakeGPU(monkeypatch, engine)
    gc.collect()  # while a workspace that ends finds the patches


@pytest.mark.parametrize("first", range(0, 100, 50))
def test_random_trees_are_the_oracles(gpu: FakeGPU, first: int) -> None:
    makers = tree_cases.makers_of("cuda")
    found = [tree_cases.check(number, makers) for number in range(first, first + 50)]
    assert [what for what in found if what] == []


def graph_of(pairs: int = 600) -> HeteroGraph:
    g = torch.Generator().manual_seed(1)

    def edges(a: int, b: int) -> torch.Tensor:
        return torch.stack([torch.randint(a, (pairs,), generator=g), torch.randint(b, (pairs,), generator=g)])

    relations = {("a", "w", "p"): edges(90, 70), ("p", "c", "p"): edges(70, 70), ("p", "rev_w", "a"): edges(70, 90)}
    times = {name: torch.randint(50, (n,), generator=g) for name, n in (("a", 90), ("p", 70))}
    return HeteroGraph.from_edges(relations, {"a": 90, "p": 70}, node_times=times)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"trees": "paths", "edge_ids": True, "replace": True},
        {"times": "node", "last": True},
        {"times": "node", "trees": "paths", "bound": "edge", "window": 9, "edge_ids": True},
    ],
)
@pytest.mark.parametrize("fanouts", [[4, 3], [2, 2, 2]])
def test_a_workspace_takes_no_more_than_its_needs(gpu: FakeGPU, fanouts: list[int], options: dict[str, Any]) -> None:
    graph, size = graph_of(), 40
    sampler = TreeSampler(fanouts, seed=5, batches_per_launch=3, device="cuda", **options)
    needs = SamplerNeeds.of(sampler, graph, [size])
    session = sampler.open_trees(graph)
    g = torch.Generator().manual_seed(0)
    for i, count in enumerate((1, size, 2, size, 3)):
        seeds = torch.randint(90, (count,), generator=g)
        if sampler.timed:
            seeds = pairs_of(seeds, torch.full((count,), 20 + 10 * i))
        for finish in session.begin([Request(seeds, 1, 3 * i + k) for k in range(1 + i % 3)]):
            check_needs(session, needs, finish())
    session.close()


@pytest.mark.parametrize("trees", ["unique", "paths"])
def test_several_mini_batches_share_a_launch(gpu: FakeGPU, trees: str) -> None:
    graph, options = graph_of(), {"seed": 3, "trees": trees, "times": "node", "edge_ids": True}
    session = TreeSampler([4, 3], device="cuda", batches_per_launch=4, **options).open(graph)
    on_cpu = TreeSampler([4, 3], **options).open(graph)
    g = torch.Generator().manual_seed(0)
    for sizes in ([0], [3, 1, 20, 7], [50, 2]):
        seeds = [torch.randint(160, (n,), generator=g).sort().values for n in sizes]
        pairs = [torch.stack([ids, torch.randint(50, ids.shape, generator=g)], 1) for ids in seeds]
        group = [Request(pair, 1, i) for i, pair in enumerate(pairs)]
        found = [finish().digest() for finish in session.begin(group)]
        assert found == [finish().digest() for finish in on_cpu.begin(group)]


def in_trees(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "weight_tables"}


@pytest.mark.parametrize("options", WHOLE_LISTS)
@pytest.mark.parametrize(
    "kind",
    [
        {"trees": "unique", "times": "edge", "window": 60},
        {"trees": "paths", "times": "edge", "bound": "edge"},
        {"trees": "unique"},
    ],
)
def test_ranges_of_hubs_are_looked_at(gpu: FakeGPU, kind: dict[str, Any], options: dict[str, Any]) -> None:
    graph = with_hubs(3000, torch.float64 if "window" in kind else torch.float32)
    fanouts = {
        ("a", "w", "p"): [3, 70, 0],
        ("p", "c", "p"): [-1, 0, 40],
        ("p", "rev_w", "a"): [0, 5, -1],
        ("a", "t", "a"): [2, -1, 1024],
    }
    given: dict[str, Any] = {"seed": 3, "edge_ids": True, **kind, **in_trees(options)}
    session = TreeSampler(fanouts, device="cuda", batches_per_launch=3, **given).open(graph)
    on_cpu = TreeSampler(fanouts, **given).open(graph)
    seeds = [torch.tensor(ids) for ids in ([0, 0, 7, 3000], [3000, 3003], [4, 3000, 3002])]
    if "times" in kind:
        seeds = [torch.stack([ids, 90 - 30 * torch.arange(len(ids))], 1) for ids in seeds]
    for first in (0, 3):
        group = [Request(of, 1, first + i) for i, of in enumerate(seeds)]
        found = [finish().digest() for finish in session.begin(group)]
        assert found == [finish().digest() for finish in on_cpu.begin(group)]
    session.close()


@pytest.mark.parametrize("fanout", [4, -1])
@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_bad_weights_are_named_and_do_no_harm(gpu: FakeGPU, weight: float, fanout: int) -> None:
    graph = with_hubs(3000)
    sampler: dict[str, Any] = {"weights": "edge_weights", "times": "edge"}
    session = TreeSampler([fanout, 3], device="cuda", **sampler).open(graph)
    lists = graph.by_time("edge").lists
    assert lists.edge_weights is not None
    place = int(lists.indptr[2 * 3000]) + 700  # in the list of the first node of type p
    before = float(lists.edge_weights[place])
    seeds = torch.tensor([[3000, 99]])
    lists.edge_weights[place] = weight
    with pytest.raises(ValueError, match=rf"edge_weights\[{place}\] is {weight}; a weight must be finite"):
        session.begin([Request(seeds, 0, 0)])[0]()
    lists.edge_weights[place] = before
    found = session.begin([Request(seeds, 0, 0)])[0]()
    wanted = TreeSampler([fanout, 3], **sampler).open(graph).begin([Request(seeds, 0, 0)])[0]()
    assert found.digest() == wanted.digest()
    session.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"picks": "tables"}, "a row of a tree sees a part of its list, which has no table of weights: use Race"),
        ({"picks": "labor", "last": True}, "the last entries are picked once and without weights"),
        ({"replace": True, "last": True}, "the last entries are picked once and without weights"),
        ({"picks": "labor", "replace": True}, "LABOR picks a neighbor once: replace must be false"),
    ],
)
def test_picks_that_trees_lack_are_refused(engine: Any, wrong: dict[str, Any], message: str) -> None:
    graph = with_hubs(30)
    lists, cells = graph.lists, torch.zeros(graph.lists.num_edges, dtype=torch.int64)
    picks = {"tables": _core.WeightTables(cells, cells), "labor": _core.Labor(False, 1, 0)}
    given: dict[str, Any] = {"paths": False, "last": False, "replace": False, "edge_ids": False, **wrong}
    with pytest.raises(ValueError, match=message):
        engine.TreeCudaSampler_i32_i32(
            lists.indptr,
            lists.indices,
            fanouts=[[4] * 4],
            relation_fanouts=torch.full((4,), 4, dtype=torch.int16),
            types=node_types_of(graph),
            times=None,
            device=0,
            **{**given, "picks": picks.get(wrong.get("picks", ""))},
        )


def test_bad_seeds_are_told(gpu: FakeGPU) -> None:
    session = TreeSampler([4, 3], device="cuda", times="node").open(graph_of())
    with pytest.raises(ValueError, match="seeds holds node 160; valid ids are 0 to 159"):
        session.begin([Request(torch.tensor([[160, 3]]), 0, 0)])[0]()
    with pytest.raises(ValueError, match="mixed"):
        session.begin([Request(torch.tensor([[100, 3], [5, 3]]), 0, 0)])[0]()
    assert session.begin([Request(torch.tensor([[5, 30], [5, 20]]), 0, 0)])[0]().batch_size == 2


@pytest.mark.parametrize(
    ("place", "wrong", "error", "message"),
    [
        (0, lambda seeds: seeds.int(), TypeError, r"seeds has dtype torch.int32; it must be torch.int64"),
        (
            0,
            lambda seeds: seeds.view(-1)[:3],
            ValueError,
            "seeds has 3 elements; it must have an id and a time of each",
        ),
        (0, lambda seeds: seeds.repeat(50, 1), ValueError, "there are 100 seeds; the plan is for up to 2"),
        (0, lambda seeds: seeds.t(), ValueError, "seeds is not contiguous"),
        (0, lambda seeds: seeds.to("meta"), ValueError, "seeds lies on meta; it must lie on cpu"),
        (2, lambda memory: memory[: len(memory) // 2], ValueError, r"memory has \d+ bytes; the plan needs \d+"),
        (2, lambda memory: memory.to("meta"), ValueError, "memory lies on meta"),
        (3, lambda _: torch.zeros(4, dtype=torch.int32), TypeError, "incompatible function arguments"),
    ],
)
def test_bad_arrays_of_trees_are_refused(
    gpu: FakeGPU,
    monkeypatch: pytest.MonkeyPatch,
    place: int,
    wrong: Callable[[torch.Tensor], Any],
    error: type[Exception],
    message: str,
) -> None:
    session = TreeSampler([4, 3], device="cuda", times="node").open(graph_of())
    launch, launched = gpu_trees.TreeWorkspace.launch, []

    def noted(space: Any, batches: list[Any], plan: Any) -> Any:
        launched.append((space.engine, batches[0], plan))
        return launch(space, batches, plan)

    monkeypatch.setattr(gpu_trees.TreeWorkspace, "launch", noted)
    session.begin([Request(torch.tensor([[5, 30], [5, 20]]), 0, 0)])[0]()
    engine, batch, plan = launched[-1]
    with pytest.raises(error, match=message):
        engine.launch([(*batch[:place], wrong(batch[place]), *batch[place + 1 :])], plan.blocks, 0)
    asked = session._space.asked(plan, 2)
    for trees_at in (-4, 2):
        with pytest.raises(ValueError, match=f"trees_at is {trees_at}; it must be at least 0, and a multiple of 4"):
            engine.plan(**{**asked, "trees_at": trees_at})
    assert session.begin([Request(torch.tensor([[5, 30]]), 0, 0)])[0]().batch_size == 1


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_seeds_have_times_where_no_edge_has_one(
    gpu: FakeGPU, monkeypatch: pytest.MonkeyPatch, index: torch.dtype
) -> None:
    """The kernels get the ids alone, which are given beside the times."""
    if index == torch.int64:  # as if there were as many nodes
        for module in ("csc", "hetero"):
            monkeypatch.setattr(f"loader.graph.{module}._INT32_MAX", -1)
    edges = torch.zeros(2, 0, dtype=torch.int64)
    graph = HeteroGraph.from_edges({("p", "c", "p"): edges}, {"p": 70}, node_times={"p": torch.arange(70)})
    assert graph.lists.indices.dtype == index
    sampler: dict[str, Any] = {"times": "node", "seed": 1}
    pairs = torch.tensor([[5, 30], [6, 20], [7, 60]])
    found = TreeSampler([2], device="cuda", **sampler).open(graph).begin([Request(pairs, 0, 0)])[0]()
    expected = TreeSampler([2], **sampler).open(graph).begin([Request(pairs, 0, 0)])[0]()
    assert found.digest() == expected.digest()

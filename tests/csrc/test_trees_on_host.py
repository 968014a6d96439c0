"""The GPU's sampler of trees on fibers of the host, from end to end, beside an oracle in NumPy."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import tree_cases
from cuda_on_host import module_on_host
from fake_gpu_sampler import FakeGPU

from loader.graph import HeteroGraph
from loader.samplers import Request, TreeSampler
from loader.samplers.gpu import trees as gpu_trees

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return module_on_host("trees_on_host", tmp_path_factory)


# Of tables and of room for new nodes in shared memory: few, so that small trees need more.
@pytest.fixture(params=[(64, 32), (256, 256)], ids=["little shared memory", "more"])
def gpu(engine: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[FakeGPU]:
    for name in ("_SHARED_FEW", "_SHARED_MANY"):
        monkeypatch.setattr(gpu_trees, name, request.param)
    monkeypatch.setattr(gpu_trees, "_THREADS_FEW", 64)
    monkeypatch.setattr(gpu_trees, "_THREADS_MANY", 96)
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
        (3, lambda trees: trees[1:], ValueError, r"trees has \d+ elements; it must have \d+"),
        (3, lambda trees: trees.long(), TypeError, r"trees has dtype torch.int64; it must be torch.int32"),
        (3, lambda trees: trees.to("meta"), ValueError, "trees lies on meta"),
        (3, lambda trees: None, TypeError, "trees is NoneType; it must be a tensor"),
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

"""The typed sampler of the GPU on fibers of the host, from end to end, beside an oracle in NumPy."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import typed_cases
from cuda_on_host import module_on_host
from fake_gpu_sampler import FakeGPU

from loader.graph import HeteroGraph
from loader.samplers import CudaSampler, FusedSampler, HopwiseSampler, Request

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return module_on_host("engine_on_host", tmp_path_factory)


@pytest.fixture
def gpu(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGPU]:
    yield FakeGPU(monkeypatch, engine)
    gc.collect()  # while a workspace that ends finds the patches


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_mini_batches_are_the_oracles(gpu: FakeGPU, first: int) -> None:
    makers = typed_cases.makers_of("cuda")
    found = [typed_cases.check(number, makers) for number in range(first, first + 50)]
    assert [what for what in found if what] == []


def graph_of(pairs: int = 600) -> HeteroGraph:
    g = torch.Generator().manual_seed(1)

    def edges(a: int, b: int) -> torch.Tensor:
        return torch.stack([torch.randint(a, (pairs,), generator=g), torch.randint(b, (pairs,), generator=g)])

    relations = {("a", "w", "p"): edges(90, 70), ("p", "c", "p"): edges(70, 70), ("p", "rev_w", "a"): edges(70, 90)}
    return HeteroGraph.from_edges(relations, {"a": 90, "p": 70})


@pytest.mark.parametrize("node_set", ["bitmap", "hash"])
@pytest.mark.parametrize("expand", ["all", "new"])
def test_several_mini_batches_share_a_launch(gpu: FakeGPU, node_set: str, expand: str) -> None:
    graph = graph_of()
    options: dict[str, Any] = {"seed": 3, "expand": expand, "edge_ids": True}
    session = CudaSampler([4, 3], node_set=node_set, batches_per_launch=4, **options).open(graph)
    oracle = HopwiseSampler([4, 3], **options)
    g = torch.Generator().manual_seed(0)
    for sizes in ([0], [3, 1, 20, 7], [50, 2]):
        group = [Request(torch.randperm(160, generator=g)[:n].sort().values.int(), 1, i) for i, n in enumerate(sizes)]
        found = [finish() for finish in session.begin(group)]
        for batch, request in zip(found, group, strict=True):
            wanted = oracle.sample(graph, request.seeds, epoch=1, batch=request.batch)
            assert batch.sizes == wanted.sizes
            assert torch.equal(batch.nodes, wanted.nodes)
            for a, b in zip(batch.blocks, wanted.blocks, strict=True):
                assert torch.equal(a.indptr, b.indptr)
                assert torch.equal(a.indices, b.indices)
                assert torch.equal(a.edge_ids, b.edge_ids)
    session.close()


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([0, 160], "holds node 160; valid ids are 0 to 159"),
        ([-1], "holds node -1"),
        ([5, 7, 5], "holds node 5 more than once"),
        ([95, 5], "seeds of several node types are mixed, at node 5"),
    ],
)
@pytest.mark.parametrize("node_set", ["bitmap", "hash"])
def test_bad_seeds_are_named_and_do_no_harm(gpu: FakeGPU, seeds: list[int], message: str, node_set: str) -> None:
    graph = graph_of()
    session = CudaSampler([4, 3], node_set=node_set).open(graph)
    with pytest.raises(ValueError, match=message):
        session.begin([Request(torch.tensor(seeds, dtype=torch.int32), 0, 0)])[0]()
    good = session.begin([Request(torch.tensor([3, 95], dtype=torch.int32), 0, 0)])[0]()
    assert torch.equal(good.nodes, FusedSampler([4, 3]).sample(graph, torch.tensor([3, 95])).nodes)
    session.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labor": True}, "labor=True looks at whole lists"),
        ({"schedule": "hopwise"}, "schedule is 'hopwise'; a HeteroGraph is sampled by one launch"),
        ({"pad_to_capacity": True}, "pad_to_capacity is for graphs with one type"),
        ({"reads": "sectors"}, "reads is 'sectors'"),
    ],
)
def test_options_for_one_type_are_refused(gpu: FakeGPU, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CudaSampler([4, 3], **options).open(graph_of())

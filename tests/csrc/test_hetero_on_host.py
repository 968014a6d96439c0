"""The typed sampler of the GPU on fibers of the host, from end to end, beside an oracle in NumPy."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import hetero_cases
import pytest
import torch
from cuda_on_host import module_on_host
from fake_gpu_sampler import FakeGPU
from hetero_graphs import WHOLE_LISTS, with_hubs
from sampler_needs import check_needs

from loader.graph import HeteroGraph
from loader.samplers import CudaSampler, FusedSampler, HopwiseSampler, Request
from loader.samplers.gpu.memory_needs import SamplerNeeds

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
    makers = hetero_cases.makers_of("cuda")
    found = [hetero_cases.check(number, makers) for number in range(first, first + 50)]
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


@pytest.mark.parametrize("node_set", ["bitmap", "hash"])
@pytest.mark.parametrize("expand", ["all", "new"])
def test_lists_taken_whole_share_out_their_entries(gpu: FakeGPU, node_set: str, expand: str) -> None:
    graph = with_hubs(5000)
    fanouts = {
        ("a", "w", "p"): [-1, 0, -1],
        ("p", "c", "p"): [-1, -1, 2],
        ("p", "rev_w", "a"): [-1, -1, -1],
        ("a", "t", "a"): [0, -1, 0],
    }
    options: dict[str, Any] = {"seed": 3, "expand": expand, "edge_ids": True}
    session = CudaSampler(fanouts, node_set=node_set, batches_per_launch=3, **options).open(graph)
    on_cpu = FusedSampler(fanouts, **options).open(graph)
    seeds = [torch.tensor(ids, dtype=torch.int32) for ids in ([0, 7, 5000], [], [5001, 5003], [4, 5000, 5002])]
    group = [Request(ids, 1, number) for number, ids in enumerate(seeds)]
    found = [finish() for finish in session.begin(group)]
    assert found[0].sizes[1] != found[2].sizes[1]
    assert [each.digest() for each in found] == [finish().digest() for finish in on_cpu.begin(group)]
    session.close()


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize(
    "options", [{}, {"edge_ids": True, "replace": True}, {"node_set": "hash"}, {"node_set": "bitmap"}]
)
def test_a_workspace_takes_no_more_than_its_needs(gpu: FakeGPU, options: dict[str, Any], expand: str) -> None:
    graph, size = graph_of(), 40
    fanouts = {("a", "w", "p"): [3, 2, 4], ("p", "c", "p"): [0, 2, 1], ("p", "rev_w", "a"): [4, 3, 0]}
    sampler = CudaSampler(fanouts, seed=5, batches_per_launch=3, expand=expand, **options)
    needs = SamplerNeeds.of(sampler, graph, [size])
    session = sampler.open(graph)
    g = torch.Generator().manual_seed(0)
    for i, sizes in enumerate(([1], [size] * 5, [2, size], [size] * 4)):
        seeds = [torch.randperm(90, generator=g)[:n].int() for n in sizes]  # of type a
        for finish in session.begin([Request(ids, 1, 5 * i + k) for k, ids in enumerate(seeds)]):
            check_needs(session, needs, finish())
    session.close()


@pytest.mark.parametrize("options", WHOLE_LISTS)
@pytest.mark.parametrize("expand", ["all", "new"])
def test_long_lists_are_scanned_in_pieces(gpu: FakeGPU, options: dict[str, Any], expand: str) -> None:
    graph = with_hubs(5000, torch.float64 if expand == "all" else torch.float32)
    fanouts = {
        ("a", "w", "p"): [3, 70, 0],
        ("p", "c", "p"): [-1, 0, 40],
        ("p", "rev_w", "a"): [0, 5, -1],
        ("a", "t", "a"): [2, -1, 1024],
    }
    options = {"seed": 3, "expand": expand, "edge_ids": True, **options}
    session = CudaSampler(fanouts, batches_per_launch=3, **options).open(graph)
    on_cpu = FusedSampler(fanouts, **options).open(graph)
    seeds = [torch.tensor(ids, dtype=torch.int32) for ids in ([0, 7, 5000], [5001, 5003], [4, 5000, 5002])]
    for first in (0, 3):  # what the first launch leaves behind does no harm
        group = [Request(ids, 1, first + i) for i, ids in enumerate(seeds)]
        found = [finish().digest() for finish in session.begin(group)]
        assert found == [finish().digest() for finish in on_cpu.begin(group)]
    session.close()


@pytest.mark.parametrize("options", WHOLE_LISTS)
def test_very_long_lists_join_groups_of_pieces(gpu: FakeGPU, options: dict[str, Any]) -> None:
    graph = with_hubs(70_000)
    seeds = torch.tensor([70_000, 70_001])
    found = CudaSampler([5, 2], **options).sample(graph, seeds.int())
    assert found.digest() == FusedSampler([5, 2], **options).sample(graph, seeds).digest()


def test_bad_weights_are_named_and_do_no_harm(gpu: FakeGPU) -> None:
    graph = with_hubs(5000)
    weights = graph.lists.edge_weights
    assert weights is not None
    place = int(graph.lists.indptr[2 * 5000]) + 5  # in the list of the first node of type p
    before, weights[place] = float(weights[place]), -1.0
    options: dict[str, Any] = {"weights": "edge_weights", "weight_tables": False}
    session = CudaSampler([4, 3], **options).open(graph)
    hub = torch.tensor([5000], dtype=torch.int32)
    with pytest.raises(ValueError, match=rf"edge_weights\[{place}\] is -1.0; a weight must be finite and at least 0"):
        session.begin([Request(hub, 0, 0)])[0]()
    weights[place] = before
    found = session.begin([Request(hub, 0, 0)])[0]()
    assert found.digest() == FusedSampler([4, 3], **options).sample(graph, hub.long()).digest()
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
        ({"labor": True, "node_set": "bitmap"}, "labor=True of a HeteroGraph goes with a hash set, but node_set is"),
        (
            {"weights": "edge_weights", "weight_tables": False, "node_set": "bitmap"},
            "weight_tables=False of a HeteroGraph goes with a hash set",
        ),
        ({"schedule": "hopwise"}, "schedule is 'hopwise'; a HeteroGraph is sampled by one launch"),
        ({"pad_to_capacity": True}, "pad_to_capacity is for graphs with one type"),
        ({"reads": "sectors"}, "reads is 'sectors'"),
    ],
)
def test_options_for_one_type_are_refused(gpu: FakeGPU, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CudaSampler([4, 3], **options).open(graph_of())

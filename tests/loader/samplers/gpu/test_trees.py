"""Trees of a GPU are those of the CPU, byte for byte, and the oracle's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import tree_cases
from hetero_graphs import WHOLE_LISTS, with_hubs
from marks import needs_gpu
from torch import Tensor

from loader.graph import HeteroGraph
from loader.samplers import Request, TreeSampler

pytestmark = needs_gpu


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_trees_are_the_oracles(first: int) -> None:
    makers = tree_cases.makers_of("cuda")
    found = [tree_cases.check(number, makers) for number in range(first, first + 50)]
    assert [what for what in found if what] == []


def large() -> HeteroGraph:
    g = torch.Generator().manual_seed(0)
    edges, times, weights = {}, {}, {}
    for key, a, b, count in (
        (("a", "w", "p"), 200_000, 100_000, 900_000),
        (("p", "rev_w", "a"), 100_000, 200_000, 900_000),
        (("p", "c", "p"), 100_000, 100_000, 1_500_000),
        (("f", "t", "p"), 30, 100_000, 500_000),
        (("p", "rev_t", "f"), 100_000, 30, 500_000),
    ):
        skewed = (a * torch.rand(count, generator=g) ** 3).long()
        edges[key] = torch.stack([skewed, torch.randint(b, (count,), generator=g)])
        times[key] = torch.randint(10_000, (count,), generator=g)
        weights[key] = torch.rand(count, generator=g).sub(0.1).relu()
    sizes = {"a": 200_000, "p": 100_000, "f": 30}
    return HeteroGraph.from_edges(edges, sizes, edge_times=times, edge_weights=weights)


def pairs(sizes: tuple[int, ...]) -> list[Tensor]:
    g = torch.Generator().manual_seed(1)
    ids = [200_000 + torch.randint(100_000, (n,), generator=g) for n in sizes]
    return [torch.stack([of, torch.randint(10_000, of.shape, generator=g)], 1) for of in ids]


@pytest.mark.parametrize("trees", ["unique", "paths"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("fanouts", [[10, 10], [15, 10, 5], [-1, 3], [40, 2]])
def test_large_mini_batches_in_groups_are_the_cpus(fanouts: list[int], last: bool, trees: str) -> None:
    are_the_cpus(fanouts, trees, last=last)


def in_trees(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "weight_tables"}


@pytest.mark.parametrize("trees", ["unique", "paths"])
@pytest.mark.parametrize("picking", WHOLE_LISTS)
@pytest.mark.parametrize("fanouts", [[10, 10], [15, 10, 5], [-1, 3], [40, 2]])
def test_picks_that_look_at_ranges_are_the_cpus(fanouts: list[int], picking: dict[str, Any], trees: str) -> None:
    are_the_cpus(fanouts, trees, **in_trees(picking))


def are_the_cpus(fanouts: list[int], trees: str, **picking: Any) -> None:
    graph = large()
    options: dict[str, Any] = {"seed": 5, "edge_ids": True, "trees": trees, "times": "edge", **picking}
    session = TreeSampler(fanouts, device="cuda", batches_per_launch=4, **options).open(graph.to("cuda"))
    on_cpu = TreeSampler(fanouts, **options).open(graph)
    given = pairs((300, 1, 0, 200))
    found = session.begin([Request(of.cuda(), 1, i) for i, of in enumerate(given)])
    wanted = on_cpu.begin([Request(of, 1, i) for i, of in enumerate(given)])
    for mine, other in zip(found, wanted, strict=True):
        assert mine().digest() == other().digest()
    session.close()


def test_what_does_not_fit_gets_more_room() -> None:
    graph = large()
    session = TreeSampler([20, 20], device="cuda", times="edge").open(graph.to("cuda"))
    on_cpu = TreeSampler([20, 20], times="edge").open(graph)
    for batch, size in enumerate((1, 3, 2000, 50)):
        (of,) = pairs((size,))
        if size < 50:
            of[:, 1] = 0  # early seeds see little
        found = session.begin([Request(of.cuda(), 0, batch)])[0]()
        assert found.digest() == on_cpu.begin([Request(of, 0, batch)])[0]().digest()
    session.close()


def test_hubs_are_cut_at_their_time() -> None:
    count = 100_000
    times = torch.arange(count).flip(0)
    edges = torch.stack([torch.arange(1, count + 1), torch.zeros(count, dtype=torch.int64)])
    graph = HeteroGraph.from_edges({("n", "to", "n"): edges}, {"n": count + 1}, edge_times={("n", "to", "n"): times})
    at = torch.arange(0, count, count // 64)
    of = torch.stack([torch.zeros_like(at), at], 1)
    session = TreeSampler([-1], device="cuda", times="edge").open(graph.to("cuda"))
    found = session.begin([Request(of.cuda(), 0, 0)])[0]()
    assert found.blocks[0].indptr.diff().tolist()[: at.numel()] == (at + 1).tolist()
    assert found.digest() == TreeSampler([-1], times="edge").open(graph).begin([Request(of, 0, 0)])[0]().digest()
    session.close()


@pytest.mark.parametrize("picking", WHOLE_LISTS)
@pytest.mark.parametrize("trees", ["unique", "paths"])
def test_hubs_are_looked_at_in_every_tree(trees: str, picking: dict[str, Any]) -> None:
    graph = with_hubs(100_000, torch.float64 if trees == "paths" else torch.float32)
    pairs_of = torch.stack([torch.full((64,), 100_000), torch.arange(64) + 30], 1)
    options: dict[str, Any] = {"trees": trees, "times": "edge", "window": 50, **in_trees(picking)}
    session = TreeSampler([1024, 2], device="cuda", **options).open(graph.to("cuda"))
    found = session.begin([Request(pairs_of.cuda(), 0, 1)])[0]()
    assert (
        found.digest() == TreeSampler([1024, 2], **options).open(graph).begin([Request(pairs_of, 0, 1)])[0]().digest()
    )
    session.close()


@pytest.mark.parametrize("picking", WHOLE_LISTS)
def test_a_graph_in_pinned_memory_is_sampled_alike(picking: dict[str, Any]) -> None:
    graph, (of,) = large(), pairs((200,))
    options: dict[str, Any] = {"times": "edge", **in_trees(picking)}
    session = TreeSampler([5, 5], device="cuda", **options).open(graph.pin_memory())
    found = session.begin([Request(of.cuda(), 0, 0)])[0]()
    assert found.digest() == TreeSampler([5, 5], **options).open(graph).begin([Request(of, 0, 0)])[0]().digest()
    session.close()


def test_bad_weights_are_named() -> None:
    graph = with_hubs(3000)
    on = graph.to("cuda")
    session = TreeSampler([4, 3], device="cuda", weights="edge_weights", times="edge").open(on)
    weights, indptr = on.by_time("edge").lists.edge_weights, on.by_time("edge").lists.indptr
    assert weights is not None
    place = int(indptr[2 * 3000]) + 700  # in the list of the first node of type p
    weights[place] = -1.0
    with pytest.raises(ValueError, match=rf"edge_weights\[{place}\] is -1.0; a weight must be finite"):
        session.begin([Request(torch.tensor([[3000, 99]]).cuda(), 0, 0)])[0]()
    session.close()


def test_bad_seeds_are_told() -> None:
    session = TreeSampler([4, 3], device="cuda", times="edge").open(large().to("cuda"))
    with pytest.raises(ValueError, match="seeds holds node 300030; valid ids are 0 to 300029"):
        session.begin([Request(torch.tensor([[300_030, 3]]).cuda(), 0, 0)])[0]()
    with pytest.raises(ValueError, match="mixed"):
        session.begin([Request(torch.tensor([[200_000, 3], [5, 3]]).cuda(), 0, 0)])[0]()
    session.close()

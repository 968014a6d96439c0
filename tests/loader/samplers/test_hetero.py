"""Typed mini-batches of the CPU samplers: the oracle's, whatever threads and groups, by the law of each list."""

from __future__ import annotations

from typing import Any

import hetero_cases
import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from loader.graph import Graph, HeteroGraph
from loader.samplers import FusedSampler, HopwiseSampler, Request, SubgraphSampler
from loader.samples.hetero import HeteroMiniBatch


def graph_of(pairs: int = 900, seed: int = 1) -> HeteroGraph:
    g = torch.Generator().manual_seed(seed)

    def edges(a: int, b: int) -> Tensor:
        return torch.stack([torch.randint(a, (pairs,), generator=g), torch.randint(b, (pairs,), generator=g)])

    relations = {("a", "w", "p"): edges(90, 70), ("p", "c", "p"): edges(70, 70), ("p", "rev_w", "a"): edges(70, 90)}
    return HeteroGraph.from_edges(relations, {"a": 90, "p": 70})


def assert_equal(found: HeteroMiniBatch, wanted: HeteroMiniBatch) -> None:
    assert found.sizes == wanted.sizes
    assert found.digest() == wanted.digest()


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_random_mini_batches_are_the_oracles(first: int) -> None:
    makers = hetero_cases.makers_of("cpu")
    found = [hetero_cases.check(number, makers) for number in range(first, first + 100)]
    assert [what for what in found if what] == []


@pytest.mark.parametrize("kind", [FusedSampler, HopwiseSampler])
@pytest.mark.parametrize("options", [{}, {"replace": True}, {"labor": True}])
def test_one_relation_gives_todays_arrays(kind: type[Any], options: dict[str, bool]) -> None:
    g = torch.Generator().manual_seed(0)
    pairs = torch.randint(200, (2, 3000), generator=g)
    plain = Graph.from_edges(*pairs, 200, keep_edge_ids=True)
    typed = HeteroGraph.from_edges({("n", "to", "n"): pairs}, {"n": 200})
    seeds = torch.randperm(200, generator=g)[:20]
    sampler = kind([4, 3, 2], seed=7, edge_ids=True, **options)
    one, several = sampler.sample(plain, seeds, batch=3), sampler.sample(typed, {"n": seeds}, batch=3)
    assert torch.equal(one.nodes, several.nodes)
    assert several.sizes == tuple((n,) for n in np.diff([0, *one.frontier_sizes]))
    for a, b in zip(one.blocks, several.blocks, strict=True):
        assert (a.num_dst, a.num_src, 0) == (b.num_dst, b.num_src, b.first_dst)
        for name in ("indptr", "indices", "edge_ids"):
            mine, other = getattr(a, name), getattr(b, name)
            assert mine.dtype == other.dtype
            assert torch.equal(mine, other)


@pytest.mark.parametrize("expand", ["all", "new"])
def test_threads_and_groups_change_nothing(expand: str) -> None:
    graph = graph_of(20_000)
    options: dict[str, Any] = {"seed": 3, "expand": expand, "edge_ids": True}
    requests = [Request(torch.arange(90 + i, 160), 2, i) for i in range(7)]
    oracle = HopwiseSampler([-1, 5], num_threads=1, **options)
    wanted = [oracle.sample(graph, r.seeds, epoch=2, batch=r.batch) for r in requests]
    for threads in (1, 2, 5):
        session = FusedSampler([-1, 5], num_threads=threads, **options).open(graph)
        for size in (1, 3, 7):
            found = [f() for i in range(0, 7, size) for f in session.begin(requests[i : i + size])]
            for mine, other in zip(found, wanted, strict=True):
                assert_equal(mine, other)
        session.close()


def test_lists_are_picked_uniformly_and_independently() -> None:
    """Two lists of ten entries, three picks each: how often each entry is there, and each pair of the two lists."""
    src = torch.arange(10)
    edges = {("a", "one", "p"): torch.stack([src, src * 0]), ("a", "two", "p"): torch.stack([src, src * 0])}
    graph = HeteroGraph.from_edges(edges, {"a": 10, "p": 1})
    sampler, rounds = FusedSampler([3], num_threads=1, edge_ids=True), 4000
    session = sampler.open(graph)
    seeds = torch.tensor([10])
    counts, pairs = np.zeros((2, 10)), np.zeros((10, 10))
    for batch in range(rounds):
        block = session.begin([Request(seeds, 0, batch)])[0]().blocks[0]
        assert block.indptr.tolist() == [0, 3, 6]
        first, second = (ids.numpy() for ids in block.edge_ids.split(3))
        counts[0, first] += 1
        counts[1, second] += 1
        pairs[np.ix_(first, second)] += 1
    # Three of ten without replacement: the variance of a count is 0.3 * 0.7, and counts sum to a constant.
    for one in counts:
        z = ((one - 0.3 * rounds) ** 2).sum() / (0.3 * 0.7 * rounds) * 0.9
        assert stats.chi2.sf(z, 9) > 1e-4
    z = (pairs - 0.09 * rounds) / np.sqrt(0.09 * 0.91 * rounds)
    assert abs(z).max() < 5


def test_fanouts_by_triples_or_by_text() -> None:
    graph = graph_of()
    by_triples = {("a", "w", "p"): [2, 0], ("p", "c", "p"): [0, -1], ("p", "rev_w", "a"): [3, 1]}
    by_text = {"__".join(relation): fanouts for relation, fanouts in by_triples.items()}
    one, other = (FusedSampler(fanouts) for fanouts in (by_triples, by_text))
    assert one.spec() == other.spec()
    assert one.fanouts == (3, -1)
    seeds = {"p": torch.arange(5)}
    assert_equal(one.sample(graph, seeds), other.sample(graph, seeds))
    first = one.sample(graph, seeds).blocks[-1]
    per_row = first.indptr.diff().view(5, 2)
    assert per_row[:, 0].max() <= 2
    assert per_row[:, 1].max() == 0


def test_one_number_per_relation_holds_for_all_hops() -> None:
    fanouts = dict.fromkeys(graph_of().edge_types, 4)
    assert FusedSampler(fanouts, num_hops=3).fanouts == (4, 4, 4)
    with pytest.raises(ValueError, match="one number per edge type: say num_hops too"):
        FusedSampler(fanouts)


@pytest.mark.parametrize(
    ("fanouts", "message"),
    [
        ({}, "fanouts is an empty dict"),
        ({("a", "w"): [1]}, "fanouts has the key .*; give the edge type"),
        ({"a__w": [1]}, "fanouts has the key 'a__w'"),
        ({("a", "w", "p"): [1], "a__w__p": [1]}, "names the edge type .* twice"),
        ({("a", "w", "p"): [1], ("p", "c", "p"): [1, 2]}, "fanouts has 1 and 2 hops"),
        ({("a", "w", "p"): [1025]}, "the fanout 1025 of .* is not possible: give 0 to 1024"),
        ({("a", "w", "p"): [-2]}, "the fanout -2"),
        ({("a", "w", "p"): [1.5]}, "the fanout 1.5 of .* is not an integer"),
        ({("a", "w", "p"): []}, "0 hops are given; 1 to 8"),
        ({("a", "w", "p"): [1] * 9}, "9 hops are given"),
    ],
)
def test_bad_fanouts_are_refused(fanouts: dict[Any, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        FusedSampler(fanouts)


@pytest.mark.parametrize(
    ("fanouts", "message"),
    [
        ({("a", "w", "p"): [1]}, "fanouts has none for the edge type"),
        ({("a", "x", "p"): [1]}, "fanouts names the edge type .* the graph has"),
    ],
)
def test_fanouts_of_other_relations_are_refused(fanouts: dict[Any, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FusedSampler(fanouts).open(graph_of())


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ({"q": torch.tensor([0])}, "seeds names the node type 'q'; the graph has"),
        ({"p": torch.tensor([70])}, r"seeds\['p'\] holds node 70; valid ids are 0 to 69"),
        ({"p": torch.tensor([-1])}, r"seeds\['p'\] holds node -1"),
        ({"p": torch.tensor([0.5])}, r"seeds\['p'\] is .*; it must be a tensor of integer ids"),
        ({"p": torch.tensor([[1]])}, r"seeds\['p'\] has shape"),
        ({}, "seeds is an empty dict"),
        (torch.tensor([160]), "holds node 160"),
        (torch.tensor([100, 3]), "seeds of several node types are mixed"),
        ({"p": torch.tensor([1, 1])}, r"seeds\['p'\] holds node 1 more than once"),
        (
            {"p": torch.tensor([2**63 + 1], dtype=torch.uint64)},
            r"seeds\['p'\]\[0\] is 9223372036854775809; it must fit",
        ),
    ],
)
def test_bad_seeds_are_refused(seeds: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        FusedSampler([2]).sample(graph_of(), seeds)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_ids_by_type_are_taken(dtype: torch.dtype) -> None:
    ids = torch.tensor([3, 1])
    batch = FusedSampler([2]).sample(graph_of(), {"p": ids.to(dtype)})
    assert torch.equal(batch.nodes, FusedSampler([2]).sample(graph_of(), {"p": ids}).nodes)


def test_options_for_types_need_types() -> None:
    graph = Graph.from_edges(torch.tensor([0]), torch.tensor([1]), 2)
    with pytest.raises(ValueError, match="expand is 'new', but the graph has one type"):
        FusedSampler([2], expand="new").open(graph)
    with pytest.raises(ValueError, match="fanouts is given per edge type, but the graph has one type"):
        FusedSampler({("a", "w", "p"): [1]}).open(graph)
    with pytest.raises(TypeError, match="seeds is a dict, but the graph has one type"):
        FusedSampler([2]).sample(graph, {"p": torch.tensor([0])})
    with pytest.raises(ValueError, match="expand is 'some'; it must be one of"):
        FusedSampler([2], expand="some")


def test_other_samplers_refuse_a_hetero_graph() -> None:
    with pytest.raises((TypeError, ValueError), match="types"):
        SubgraphSampler([2]).open(graph_of())


def test_a_type_without_nodes_or_relations_is_sampled() -> None:
    graph = HeteroGraph.from_edges({}, {"a": 3, "b": 0})
    batch = FusedSampler([2, 2]).sample(graph, {"a": torch.tensor([2, 0])})
    assert batch.nodes.tolist() == [2, 0]
    assert batch.sizes == ((2, 0), (0, 0), (0, 0))
    assert [block.num_edges for block in batch.blocks] == [0, 0]

"""Which rows a cache takes."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import pytest
import torch

from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.samplers import HopwiseSampler
from loader.stores import CachedFeatures, StoreContext, count_visits, degree_hotness, k_hop_hotness, pagerank_hotness
from loader.stores.cached import cached_rows, hottest
from loader.stores.rows import RowFormat
from loader.traverse import k_hop


def test_degree_counts_the_lists_of_a_node(random_graph) -> None:
    graph = random_graph(50, 400)
    counts = Counter(graph.indices.tolist())
    assert degree_hotness(graph).tolist() == [counts[v] for v in range(50)]
    assert degree_hotness(Graph(torch.tensor([0, 0]), torch.tensor([], dtype=torch.int32))).tolist() == [0]


def test_pagerank_hotness_goes_to_in_neighbors(random_graph) -> None:
    graph = random_graph(50, 400)
    seeds = torch.tensor([3, 9])
    own = {v: float(v in (3, 9)) for v in range(50)}
    turned = nx.MultiDiGraph()
    turned.add_nodes_from(range(50))
    for v in range(50):
        turned.add_edges_from((v, u) for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist())
    for given_seeds, personalization in ((None, None), (seeds, own)):
        expected = nx.pagerank(turned, personalization=personalization, tol=1e-12, max_iter=500)
        found = pagerank_hotness(graph, given_seeds)
        assert found.tolist() == pytest.approx([expected[v] for v in range(50)], abs=1e-6)
    hot = hottest("pagerank", 5, StoreContext(graph))
    assert torch.equal(hot, pagerank_hotness(graph).argsort(descending=True)[:5].sort().values)
    with pytest.raises(ValueError, match="seeds holds 50; valid ids are 0 to 49"):
        pagerank_hotness(graph, torch.tensor([50]))


def test_all_neighbors_are_certain_to_be_read(random_graph) -> None:
    graph = random_graph(200, 500)
    seeds = torch.tensor([3, 9, 40])
    found = k_hop_hotness(graph, seeds, [-1, -1], batch_size=3)
    assert found.tolist() == (k_hop(graph, seeds, 2) >= 0).double().tolist()


def test_chances_of_reads_are_those_of_picks() -> None:
    # 0 has the in-neighbors 1 to 10, and 1 has 11 and 12.
    src = torch.cat((torch.arange(1, 11), torch.tensor([11, 12])))
    graph = Graph.from_edges(src, torch.tensor([0] * 10 + [1, 1]), 14)
    found = k_hop_hotness(graph, torch.tensor([0, 13]), [2, 1], batch_size=1)
    pick = 1 / 2 * 2 / 10  # by the first hop; the second hop picks once more for the seed
    both = 1 - (1 - pick) * (1 - 1 / 2 * 1 / 10)
    expected = [0.5] + [both] * 10 + [pick / 2] * 2 + [0.5]
    assert found.tolist() == pytest.approx(expected)
    with pytest.raises(ValueError, match="seeds is empty"):
        k_hop_hotness(graph, torch.tensor([], dtype=torch.int64), [2], 1)
    with pytest.raises(ValueError, match="fanouts is -2"):
        k_hop_hotness(graph, torch.tensor([0]), [-2], 1)


def test_visits_are_counted() -> None:
    batches = [torch.tensor([3, 0, 3]), torch.tensor([], dtype=torch.int64), torch.tensor([1, 3], dtype=torch.int32)]
    assert count_visits(batches, 5).tolist() == [1, 1, 0, 3, 0]
    for bad in (-1, 5):
        with pytest.raises(ValueError, match=f"ids holds {bad}; valid ids are 0 to 4"):
            count_visits([torch.tensor([1, bad])], 5)


def test_visits_are_those_of_the_run_itself(random_graph) -> None:
    graph, seeds, sampler = random_graph(200, 1500), torch.arange(60), HopwiseSampler(4, 2, seed=3)
    loader = NodeLoader(graph, None, None, seeds, sampler, 16, shuffle=True, seed=9)
    expected = torch.zeros(200, dtype=torch.int64)
    for batch in loader:
        expected[batch.input_nodes.long()] += 1
    loader.set_epoch(0)
    assert torch.equal(count_visits(loader, 200), expected)
    loader.set_epoch(0)
    hot = hottest("visits", 20, StoreContext(graph, lambda: loader))
    assert expected[hot].min() >= expected[~torch.isin(torch.arange(200), hot)].max()


def test_the_hottest_are_taken(random_graph) -> None:
    scores = torch.tensor([1.0, 5.0, 2.0, 5.0, 0.0, 2.0])
    assert hottest(scores, 3, None).tolist() == [1, 2, 3]
    assert hottest(scores, 0, None).tolist() == []
    assert hottest(scores, 6, None).tolist() == [0, 1, 2, 3, 4, 5]
    graph = random_graph(200, 1500)
    degrees = degree_hotness(graph)
    hot = hottest("degree", 20, StoreContext(graph))
    assert degrees[hot].min() >= degrees[~torch.isin(torch.arange(200), hot)].max()


def test_the_cache_has_the_asked_size() -> None:
    rows = RowFormat(torch.zeros(1000, 256))
    assert cached_rows(rows, 0.25, None) == 250
    assert cached_rows(rows, 0, None) == 0
    assert cached_rows(rows, 1, None) == 1000
    assert cached_rows(rows, None, (4000 + 10 * 1024 + 1023) / 2**30) == 10
    assert cached_rows(rows, None, 1) == 1000
    assert (
        cached_rows(RowFormat(torch.zeros(1000, 256), storage_dtype="float16"), None, (4000 + 10 * 1024) / 2**30) == 20
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give exactly one"),
        ({"fraction": 0.5, "budget_gib": 1}, "give exactly one"),
        ({"fraction": 1.5}, "fraction is 1.5"),
        ({"budget_gib": 1e-9}, "the table of 10 places takes"),
        (
            {"fraction": 0.5, "hotness": "age"},
            "hotness is 'age'; it must be 'degree', 'pagerank', 'visits' or a tensor",
        ),
        ({"fraction": 0.5, "hotness": torch.zeros(9)}, r"shape \[9\]; it must have one score for 10 rows"),
        ({"fraction": 0.5}, "hotness='degree' needs a graph"),
    ],
)
def test_bad_options_of_a_cache_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CachedFeatures(torch.zeros(10, 4), **options)


def test_visits_without_mini_batches_are_refused(random_graph) -> None:
    with pytest.raises(ValueError, match="hotness='visits' counts mini-batches, and the context has none"):
        CachedFeatures(torch.zeros(200, 4), fraction=0.5, hotness="visits", context=StoreContext(random_graph()))


def test_a_graph_of_another_size_is_refused(random_graph) -> None:
    with pytest.raises(ValueError, match="features has 10 rows, the graph 200 nodes"):
        CachedFeatures(torch.zeros(10, 4), fraction=0.5, context=StoreContext(random_graph()))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda graph: degree_hotness(None), "graph is None; it must be a loader.Graph"),
        (lambda graph: pagerank_hotness(None), "graph is None; it must be a loader.Graph"),
        (lambda graph: pagerank_hotness(graph, [1]), r"seeds is \[1\]; it must be a tensor of node ids"),
        (lambda graph: pagerank_hotness(graph, torch.ones(200) > 0), r"torch\.bool; it must be an integer type"),
        (lambda graph: k_hop_hotness(graph, None, [5], 1), "seeds is None; it must be a tensor of node ids"),
        (lambda graph: k_hop_hotness(graph, torch.tensor([1]), "10,5", 1), "fanouts is '10,5'; it must be a list"),
        (lambda graph: k_hop_hotness(graph, torch.tensor([1]), 5, 1), "fanouts is 5; it must be a list of integers"),
        (lambda graph: count_visits(torch.arange(3), 5), r"batches is a Tensor; it must be a list .*: \[ids\]"),
        (lambda graph: count_visits([3], 5), "batches holds 3; it must hold mini-batches, or tensors of int32 or"),
    ],
)
def test_what_is_no_tensor_is_refused(random_graph, call, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call(random_graph())

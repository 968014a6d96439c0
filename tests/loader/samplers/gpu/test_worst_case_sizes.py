"""What fanouts allow: no mini-batch around seeds of one type has more, and long lists are bounded exactly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hetero_datasets import make_hetero
from hetero_graphs import hetero_edges
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.graph import HeteroGraph
from loader.samplers import FusedSampler, TreeSampler
from loader.samplers.gpu import worst_case_sizes as reach_module
from loader.samplers.gpu.worst_case_sizes import Reach, longest_lists

KEY, BACK = ("a", "to", "b"), ("b", "rev_to", "a")


def sizes_of(batch: Any) -> tuple[list[int], list[int], list[int]]:
    """Nodes within each number of hops, and rows and edges of each hop."""
    frontiers = torch.tensor(batch.sizes).sum(1).cumsum(0).tolist()
    blocks = batch.blocks[::-1]
    return frontiers, [block.indptr.numel() - 1 for block in blocks], [block.num_edges for block in blocks]


@given(
    made=hetero_edges(),
    fanouts=st.lists(st.sampled_from([1, 2, 3, -1]), min_size=1, max_size=3),
    options=st.fixed_dictionaries({"replace": st.booleans(), "expand": st.sampled_from(["all", "new"])}),
    kind=st.sampled_from(["one", "unique", "paths", "labor"]),
    data=st.data(),
)
@settings(max_examples=80, deadline=None)
def test_no_mini_batch_reaches_more(
    made: Any, fanouts: list[int], options: dict[str, Any], kind: str, data: Any
) -> None:
    edges, counts, _ = made
    graph = HeteroGraph.from_edges(edges, counts)
    types = [name for name, n in counts.items() if n]
    if not types:
        return
    name = data.draw(st.sampled_from(types))
    if kind in ("unique", "paths"):
        sampler: Any = TreeSampler(fanouts, trees=kind, replace=options["replace"], num_threads=1)
    elif kind == "labor":
        sampler = FusedSampler(fanouts, labor=True, expand=options["expand"], num_threads=1)
    else:
        sampler = FusedSampler(fanouts, num_threads=1, **options)
    seeds = torch.arange(data.draw(st.integers(1, counts[name])))
    reach = Reach(sampler, graph, distinct=kind != "paths")
    if sampler.in_trees:
        most = [[n * seeds.numel() for n in part] for part in reach.most(1)]
    else:
        most = list(reach.most(seeds.numel()))
    for batch in range(3):
        found = sizes_of(sampler.sample(graph, {name: seeds}, batch=batch))
        for part, bounds in zip(found, most, strict=True):
            assert all(a <= b for a, b in zip(part, bounds, strict=True))


def test_long_lists_are_reached_whole() -> None:
    """A bipartite graph of all pairs: each list is longer than the fanout, so that bounds are exact until nodes end."""
    pairs = torch.cartesian_prod(torch.arange(50), torch.arange(40)).t()
    graph = HeteroGraph.from_edges({KEY: pairs, BACK: pairs.flip(0)}, {"a": 50, "b": 40})
    most = Reach(FusedSampler([3, 2], expand="new"), graph).most(4)
    assert most == ([4, 16, 40], [4, 12], [12, 24])
    all_again = Reach(FusedSampler([3, 2]), graph).most(4)
    assert all_again == ([4, 16, 48], [4, 16], [12, 32])
    ended = Reach(FusedSampler([30, 30], expand="new"), graph).most(4)
    assert ended.frontiers == [4, 54, 90]
    by_relation = Reach(FusedSampler({KEY: [3, 0], BACK: [0, 1]}, expand="new"), graph).most(4)
    assert by_relation == ([4, 16, 28], [4, 12], [12, 12])


def test_short_lists_bound_wide_fanouts() -> None:
    pairs = torch.stack([torch.arange(20), torch.arange(20) // 5])  # lists of five, and of one back
    graph = HeteroGraph.from_edges({KEY: pairs, BACK: pairs.flip(0)}, {"a": 20, "b": 4})
    assert longest_lists(graph) == [1, 5]
    assert Reach(FusedSampler([1000, 1000]), graph).most(2).edges == [10, 20]
    assert Reach(FusedSampler([7, 7], replace=True), graph).most(2).edges == [14, 112]  # of a list of one, too


@pytest.mark.parametrize("rows", [1, 3, 1 << 20])
def test_longest_lists_are_those_of_relations(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(reach_module, "_ROWS", rows)
    graph = make_hetero().graph
    order = [graph.edge_types[r] for into in graph.relations_into.values() for r in into]
    assert longest_lists(graph) == [int(graph.in_degrees(key).max()) for key in order]


def test_graphs_without_edges_reach_their_seeds() -> None:
    graph = HeteroGraph.from_edges({}, {"a": 3, "b": 0})
    assert longest_lists(graph) == []
    assert Reach(FusedSampler([2]), graph).most(2) == ([2, 2], [0], [0])
    empty = HeteroGraph.from_edges({KEY: torch.zeros(2, 0, dtype=torch.int64)}, {"a": 3, "b": 0})
    assert longest_lists(empty) == [0]

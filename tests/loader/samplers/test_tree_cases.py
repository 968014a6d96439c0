"""Trees of the CPU sampler: the oracle's, whatever threads, and what others found of tables."""

from __future__ import annotations

from typing import Any

import pytest
import relational
import torch
import tree_cases

from loader.graph import HeteroGraph
from loader.samplers import TreeSampler
from loader.samples import hetero_subgraph_of


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_random_trees_are_the_oracles(first: int) -> None:
    makers = tree_cases.makers_of("cpu")
    found = [tree_cases.check(number, makers) for number in range(first, first + 100)]
    assert [what for what in found if what] == []


@pytest.mark.parametrize("options", [{}, {"times": "edge", "trees": "paths", "bound": "edge", "window": 3}])
def test_a_graph_without_edges_has_trees_of_seeds(options: dict[str, Any]) -> None:
    key, times = ("a", "to", "a"), torch.empty(0, dtype=torch.int64)
    edges, given = {key: torch.empty((2, 0), dtype=torch.int64)}, {"times": "node"} | options
    graph = HeteroGraph.from_edges(edges, {"a": 5}, node_times={"a": torch.arange(5)}, edge_times={key: times})
    batch = TreeSampler([2, 2], **given).sample(graph, {"a": torch.tensor([3, 3])}, {"a": torch.tensor([1, 2])})
    assert batch.nodes.tolist() == [3, 3]
    assert batch.tree.tolist() == [0, 1]
    assert batch.num_edges == 0


@relational.needs_data
@pytest.mark.parametrize("known", relational.golden(), ids=lambda known: f"{known['set']}{known['fanout']}")
def test_trees_of_tables_are_the_known_ones(known: dict[str, Any]) -> None:
    graph = tree_cases.graph_of(relational.graph_of(known["set"]))
    sampler = TreeSampler(known["fanout"], times="node", last=known.get("strategy") == "last")
    seeds, times = ({known["seed_type"]: torch.tensor(known[what])} for what in ("seeds", "times"))
    batch = sampler.sample(graph, seeds, times)
    found = hetero_subgraph_of(batch)
    counts, digests = {}, {}
    for key, (source, target) in found.edges.items():
        if source.numel():
            tree = batch.tree_of(key[0])[source]
            assert torch.equal(tree, batch.tree_of(key[2])[target])
            triple = tree, found.nodes[key[0]][source], found.nodes[key[2]][target]
            counts["__".join(key)] = source.numel()
            digests["__".join(key)] = relational.digest(*(column.numpy() for column in triple))
    assert counts == known["edges"]
    if "sha256" in known:
        assert digests == known["sha256"]

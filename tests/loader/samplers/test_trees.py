"""Options of `TreeSampler`, what it refuses, and what its mini-batches become."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from loader.graph import Graph, HeteroGraph
from loader.samplers import TreeSampler
from loader.samplers.gpu.trees import TreeWorkspace
from loader.samplers.gpu.worst_case_sizes import Most
from loader.samples import TreeMiniBatch

KEY = ("a", "to", "b")
BACK = ("b", "rev_to", "a")


def graph_of(times: list[float] | None = None) -> HeteroGraph:
    pairs = torch.tensor([[0, 1, 2, 3, 4], [0, 0, 0, 0, 0]])
    of_edges = None if times is None else {KEY: torch.tensor(times), BACK: torch.tensor(times)}
    return HeteroGraph.from_edges({KEY: pairs, BACK: pairs.flip(0)}, {"a": 5, "b": 2}, edge_times=of_edges)


NAN = float("nan")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"times": "edges"}, "times is 'edges'; it must be one of 'none', 'node', 'edge', 'both'"),
        ({"trees": "path"}, "trees is 'path'; it must be one of 'unique', 'paths'"),
        ({"times": "edge", "rule": ">"}, "rule is '>'; it must be one of '<=', '<'"),
        ({"times": "edge", "missing_times": "sometimes"}, "missing_times is 'sometimes'; it must be one of"),
        ({"times": "edge", "missing_times": "always", "window": 3}, "window is 3 and missing_times is 'always'"),
        ({"times": "edge", "window": 0}, "window is 0"),
        ({"last": True}, "last says what of the times is seen, but times is 'none'"),
        ({"times": "edge", "bound": "edge"}, "bound is 'edge', but trees is 'unique'"),
        ({"times": "edge", "last": True, "replace": True}, "last=True takes the latest entries"),
        ({"batches_per_launch": 1}, "batches_per_launch is 1, but the sampler runs on the CPU; leave it out, or"),
    ],
)
def test_options_that_are_not_there_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TreeSampler([2], **options)


def test_a_device_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="device is 'gpu'; it must be cpu, cuda or cuda:N"):
        TreeSampler([2], device="gpu")


def test_others_options_are_named() -> None:
    with pytest.raises(TypeError, match="weight_tables"):
        TreeSampler([2], weight_tables=True)
    with pytest.raises(TypeError, match=r"HeteroGraph\.of\(graph\)"):
        TreeSampler([2]).open(Graph.from_edges(torch.tensor([0]), torch.tensor([1]), 2))


def test_each_type_of_seeds_has_its_times() -> None:
    graph, sampler = graph_of([1, 2, 3, 4, 5]), TreeSampler([5], times="edge")
    seeds = {"a": torch.tensor([0]), "b": torch.tensor([0, 0])}
    times = {"a": torch.tensor([9]), "b": torch.tensor([2, 4])}
    assert sampler.sample(graph, seeds, times).blocks[0].indptr.diff().tolist() == [1, 2, 4]
    with pytest.raises(ValueError, match=r"times\['a'\] has shape \[2\] for 1 seeds"):
        sampler.sample(graph, seeds, {"a": torch.tensor([9, 2]), "b": torch.tensor([4])})
    with pytest.raises(TypeError, match=r"seeds of the types .* give a dict"):
        sampler.sample(graph, seeds, torch.tensor([9, 2, 4]))
    with pytest.raises(ValueError, match="times has none for the seeds of 'b'"):
        sampler.sample(graph, seeds, {"a": torch.tensor([9])})
    with pytest.raises(ValueError, match="each seed needs a time"):
        sampler.sample(graph, seeds)


@pytest.mark.parametrize("seeds", [torch.tensor([True, False]), torch.tensor([0.5, 1.0])])
def test_seeds_with_times_are_ids(seeds: torch.Tensor) -> None:
    graph, sampler = graph_of([1, 2, 3, 4, 5]), TreeSampler([5], times="edge")
    with pytest.raises(TypeError, match=f"^seeds has dtype {seeds.dtype}; it must be an integer type"):
        sampler.sample(graph, seeds, torch.tensor([3, 4]))
    batch = sampler.sample(graph, torch.tensor([0, 5], dtype=torch.uint8), torch.tensor([3, 4]))
    assert batch.nodes[:2].tolist() == [0, 5]


def test_times_of_types_keep_their_precision() -> None:
    second = 1_700_000_001  # of float32, a multiple of 128 follows
    graph, sampler = graph_of([second, second + 1, second + 2, second + 3, second + 4]), TreeSampler([5], times="edge")
    seeds = {"a": torch.tensor([0]), "b": torch.tensor([0])}
    for at in (torch.tensor([second + 2]), [float(second + 2)], np.array([second + 2])):
        for other in (torch.tensor([5.0]), torch.tensor([5], dtype=torch.uint8)):
            batch = sampler.sample(graph, seeds, {"a": other, "b": at})
            assert batch.seed_times.tolist() == [5, second + 2]
            assert batch.blocks[0].indptr.diff().tolist() == [0, 3]
    with pytest.raises(TypeError, match=r"times\['b'\] is 'noon'; it must be a tensor or a list of times"):
        sampler.sample(graph, seeds, {"a": torch.tensor([5]), "b": "noon"})
    with pytest.raises(ValueError, match=r"times\['b'\]\[0\] is 0.5; times are whole numbers"):
        sampler.sample(graph, seeds, {"a": torch.tensor([5]), "b": [0.5]})


@pytest.mark.parametrize("rule", ["<=", "<"])
def test_missing_times_are_always_or_never_seen(rule: str) -> None:
    graph, at = graph_of([NAN, 2, 3, NAN, 5]), torch.tensor([1, 2, 3, 9])
    seeds = {"b": torch.zeros(4, dtype=torch.int64)}
    seen = {"<=": [0, 1, 2, 3], "<": [0, 0, 1, 3]}[rule]
    for missing, more in (("always", 2), ("never", 0)):
        sampler = TreeSampler([-1], times="edge", rule=rule, missing_times=missing)
        counts = sampler.sample(graph, seeds, {"b": at}).blocks[0].indptr.diff().tolist()
        assert counts == [n + more for n in seen]


@pytest.mark.parametrize("rule", ["<=", "<"])
def test_below_an_edge_without_time_others_are_seen(rule: str) -> None:
    graph = graph_of([NAN] * 5)
    sampler = TreeSampler([-1, -1], times="edge", rule=rule, trees="paths", bound="edge", missing_times="always")
    batch = sampler.sample(graph, {"b": torch.tensor([0])}, {"b": torch.tensor([7])})
    assert [sum(sizes) for sizes in batch.sizes] == [1, 5, 5]


def test_a_mini_batch_becomes_pygs() -> None:
    graph, sampler = graph_of([1, 2, 3, 4, 5]), TreeSampler([2, 2], times="edge", last=True)
    batch = sampler.sample(graph, {"b": torch.tensor([0, 0])}, {"b": torch.tensor([2, 4])})
    assert isinstance(batch, TreeMiniBatch)
    assert len(repr(batch)) < 200
    data = batch.to_pyg()
    assert data["b"].seed_time.tolist() == [2, 4]
    assert data["b"].batch.tolist() == [0, 1]
    assert data["a"].batch.tolist() == [0, 0, 1, 1]
    assert data["a"].n_id.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="to_pyg"):
        batch.to_dgl()


def test_learnt_rows_are_not_cut() -> None:
    """Mini-batches of one session may find their nodes at other hops."""
    space: Any = object.__new__(TreeWorkspace)
    space._relations, space._fanouts, space._guess, space.most_edges = [5], (-1, -1, -1), 1.0, 2**31 - 1
    space._largest = ([1000, 10_000, 10_060, 10_070], [9000, 9000, 9000])
    space._most_rows = [5000, 45_000, 9050]
    space._reach = SimpleNamespace(most=lambda _: Most([10**5] * 4, [10**5] * 3, [10**5] * 3))  # more than was found
    assert space._capacities_by_hop(1000)[1][2] >= 9050

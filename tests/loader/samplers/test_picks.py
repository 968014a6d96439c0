"""Options of picking: what goes together, what is refused, and what is made of a graph's weights."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch
from graphs import messy_graph

from loader import _core, random_walk
from loader.graph import Graph
from loader.samplers import FusedSampler, HopwiseSampler, picks


def weighed_graph(weights: torch.Tensor | None = None) -> Graph:
    plain = messy_graph(60, 900, 3)
    if weights is None:
        weights = torch.rand(plain.num_edges, generator=torch.Generator().manual_seed(4))
    return Graph(plain.indptr, plain.indices, edge_weights=weights)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"weights": "times"}, ValueError, "weights is 'times'; a graph's weights are named 'edge_weights'"),
        ({"weights": torch.ones(3)}, TypeError, r"weights is tensor.*; it must be the name"),
        ({"weight_tables": False}, ValueError, "it needs weights='edge_weights', and neither replace nor top_k"),
        ({"weight_tables": False, "weights": "edge_weights", "replace": True}, ValueError, "neither replace nor top_k"),
        ({"weight_tables": False, "weights": "edge_weights", "top_k": True}, ValueError, "neither replace nor top_k"),
        ({"top_k": True}, ValueError, "it needs weights='edge_weights'"),
        ({"top_k": True, "weights": "edge_weights", "replace": True}, ValueError, "does not go with top_k=True"),
        ({"labor": True, "replace": True}, ValueError, "does not go with labor=True"),
        ({"labor": True, "weights": "edge_weights"}, ValueError, "leave weights out"),
        ({"layer_dependency": True}, ValueError, "layer_dependency says how LABOR picks; it needs labor=True"),
        ({"batch_dependency": 4}, ValueError, "batch_dependency says how LABOR picks; it needs labor=True"),
        ({"batch_dependency": 0, "labor": True}, ValueError, "batch_dependency is 0; it must be at least 1"),
        ({"batch_dependency": 2**32, "labor": True}, ValueError, "it must be at most 4294967295"),
        ({"batch_dependency": 1.5, "labor": True}, TypeError, "batch_dependency is 1.5; it must be an integer"),
        ({"replace": "yes"}, TypeError, "replace is 'yes'; it must be True or False"),
        ({"replace": None}, TypeError, "replace is None; it must be True or False"),
        ({"labor": "false"}, TypeError, "labor is 'false'; it must be True or False"),
        ({"top_k": 2, "weights": "edge_weights"}, TypeError, "top_k is 2; it must be True or False"),
        ({"edge_ids": "no"}, TypeError, "edge_ids is 'no'; it must be True or False"),
        ({"seed": True}, TypeError, "seed is True; it must be an integer"),
    ],
)
def test_options_that_exclude_each_other_are_refused(options, error, message) -> None:
    with pytest.raises(error, match=message):
        FusedSampler(3, 2, **options)


def test_the_spec_names_options_that_differ() -> None:
    assert "weights" not in FusedSampler(3, 2).spec()
    by_weight = FusedSampler(3, 2, weights="edge_weights").spec()
    assert by_weight == {**FusedSampler(3, 2).spec(), "weights": "edge_weights"}
    assert FusedSampler(3, 2, weights="edge_weights", top_k=True).spec()["top_k"] is True
    labor = FusedSampler(3, 2, labor=True, layer_dependency=True, batch_dependency=9).spec()
    assert (labor["labor"], labor["layer_dependency"], labor["batch_dependency"]) == (True, True, 9)
    assert HopwiseSampler(3, 2, labor=True).spec() == FusedSampler(3, 2, labor=True).spec()


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("top_k", [False, True])
def test_the_edge_of_a_bad_weight_is_named(bad, top_k) -> None:
    graph = weighed_graph()
    assert graph.edge_weights is not None
    graph.edge_weights[[77, 500]] = bad  # after the graph looked at them
    end = int(torch.searchsorted(graph.indptr, 77, right=True)) - 1
    with pytest.raises(ValueError, match=rf"edge_weights\[77\], of the edge {int(graph.indices[77])} -> {end}, is"):
        FusedSampler(3, 2, weights="edge_weights", top_k=top_k).sample(graph, torch.tensor([1]))


def test_a_graph_without_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="FusedSampler picks by the weights of the edges, but the graph has none"):
        FusedSampler(3, 2, weights="edge_weights").sample(messy_graph(9, 30, 0), torch.tensor([1]))


def test_tables_are_made_once_for_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    for name in ("make_weight_tables", "order_by_weight"):
        core = getattr(_core, name)
        monkeypatch.setattr(_core, name, lambda *a, core=core, name=name: (made.append(name), core(*a))[1])
    graph, seeds = weighed_graph(), torch.arange(9)

    def sample(**options: Any) -> str:
        return FusedSampler([3, 3], weights="edge_weights", **options).sample(graph, seeds).digest()

    first = sample()
    assert made == ["make_weight_tables"]
    sample(replace=True)
    sample(seed=3)
    assert made == ["make_weight_tables"]
    sample(top_k=True)
    sample(top_k=True)
    assert made == ["make_weight_tables", "order_by_weight"]
    assert graph.edge_weights is not None
    graph.edge_weights.pow_(40)
    assert sample() != first
    assert made[2:] == ["make_weight_tables"]


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"top_k": True}])
@pytest.mark.parametrize("name", ["indptr", "indices", "edge_ids"])
def test_tables_are_those_of_changed_lists(name: str, options: dict[str, bool]) -> None:
    graph, seeds = weighed_graph(), torch.arange(9)
    assert graph.edge_weights is not None
    graph.edge_weights[::3] = 0
    graph.edge_ids = torch.arange(graph.num_edges)
    sampler = FusedSampler([3, 3], weights="edge_weights", edge_ids=True, **options)
    before = sampler.sample(graph, seeds).digest()
    if name == "indptr":
        graph.indptr[1:] = graph.indptr.diff().flip(0).cumsum(0)
    else:
        setattr(graph, name, getattr(graph, name).flip(0))
    other = Graph(graph.indptr, graph.indices, edge_weights=graph.edge_weights, edge_ids=graph.edge_ids)
    assert before != sampler.sample(graph, seeds).digest() == sampler.sample(other, seeds).digest()


def test_weights_may_come_from_inference_mode() -> None:
    expected = FusedSampler([3, 3], weights="edge_weights").sample(weighed_graph(), torch.arange(9)).digest()
    with torch.inference_mode():
        graph = weighed_graph()
    assert FusedSampler([3, 3], weights="edge_weights").sample(graph, torch.arange(9)).digest() == expected
    nodes = random_walk(graph, torch.arange(9), 4, seed=2)
    assert torch.equal(nodes, random_walk(weighed_graph(), torch.arange(9), 4, seed=2))


def test_tables_do_not_keep_their_graph_alive() -> None:
    for zeros in (False, True):
        graph = weighed_graph()
        assert graph.edge_weights is not None
        graph.edge_weights[::9] *= not zeros
        FusedSampler([3], weights="edge_weights").sample(graph, torch.tensor([1]))
        before, alive = len(picks._made), weakref.ref(graph)
        del graph
        gc.collect()
        assert alive() is None
        assert len(picks._made) < before


def test_a_copied_sampler_picks_the_same() -> None:
    graph, seeds = weighed_graph(), torch.arange(20)
    for options in ({"weights": "edge_weights"}, {"labor": True, "batch_dependency": 3}):
        sampler = FusedSampler([3, 3], **options)
        expected = sampler.sample(graph, seeds, batch=7).digest()
        for other in (copy.copy(sampler), pickle.loads(pickle.dumps(sampler))):
            assert other.spec() == sampler.spec()
            assert other.sample(graph, seeds, batch=7).digest() == expected


def test_the_core_refuses_tables_of_another_length() -> None:
    graph = weighed_graph()
    short = torch.zeros(graph.num_edges - 1, dtype=torch.int64)
    for how, name in (
        (_core.WeightTables(short, short), "cells"),
        (_core.WeightOrder(short.int()), "order"),
    ):
        with pytest.raises(ValueError, match=f"{name} has {graph.num_edges - 1} elements"):
            _core.FusedSampler(graph.indptr, graph.indices, [3], False, False, 1, 1, how)
    with pytest.raises(TypeError, match="picks is a str"):
        _core.FusedSampler(graph.indptr, graph.indices, [3], False, False, 1, 1, "labor")  # type: ignore[arg-type]


def test_labor_refuses_keys_without_phases() -> None:
    graph = weighed_graph()
    engine = _core.FusedSampler(graph.indptr, graph.indices, [3], False, False, 1, 1, _core.Labor(False, 2, 5))
    with pytest.raises(ValueError, match="1 keys, 1 next keys and 0 phases"):
        engine.sample([torch.zeros(1, dtype=torch.int32)], [1], [2], [])

"""Induced subgraphs on the GPU from end to end on the host: Python, bindings and kernels as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cuda_on_host import module_on_host
from hypothesis import given, settings
from hypothesis import strategies as st
from induced_oracle import expected_edges, node_sets, rows_of, small_graphs

from loader.graph import Graph
from loader.graph.induced import _on_cpu, _on_gpu, _Question

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return module_on_host("induced_on_host", tmp_path_factory)


def question(graph: Graph, nodes: Any, sets: Any = None, rows: Any = None, of_rows: Any = None, num: int = 1) -> Any:
    ids = torch.as_tensor(nodes).to(graph.indices.dtype)
    return _Question((graph.indptr, graph.indices), graph.num_src, ids, sets, rows, of_rows, num)


@settings(deadline=None, max_examples=60)
@given(st.data(), small_graphs())
def test_kernels_find_what_the_cpu_finds(core: Any, data: Any, graph: Graph) -> None:
    nodes, sets, count = data.draw(node_sets(graph.num_nodes))
    rows = data.draw(st.lists(st.integers(0, graph.num_nodes - 1)))
    asked = torch.tensor(rows).long()
    of_rows = torch.tensor([data.draw(st.integers(0, count - 1)) for _ in rows], dtype=torch.int32)
    whole = torch.unique(nodes)
    for one in (
        question(graph, whole),
        question(graph, nodes, sets, num=count),
        question(graph, whole, rows=asked),
        question(graph, nodes, sets, asked, of_rows, count),
    ):
        here, there = _on_cpu(one, 2), _on_gpu(core, one, 0, 0)
        assert here[:2] == there[:2] == (None, None)
        assert all(torch.equal(a, b) for a, b in zip(here[2], there[2], strict=True))
        if one.of_rows is None:
            known = expected_edges(
                rows_of(graph),
                one.nodes.tolist(),
                None if one.sets is None else sets.tolist(),
                rows if one.rows is not None else None,
            )
            assert list(zip(*(part.tolist() for part in there[2]), strict=True)) == known


def test_long_lists_are_cut_into_chunks(core: Any) -> None:
    g = torch.Generator().manual_seed(1)
    hub = torch.randint(400, (5000,), generator=g)
    graph = Graph.from_edges(
        torch.cat([hub, torch.arange(400)]), torch.cat([torch.full_like(hub, 9), torch.arange(400)]), 400
    )
    one = question(graph, torch.randperm(400, generator=g)[:300])
    here, there = _on_cpu(one, 1), _on_gpu(core, one, 0, 0)
    assert all(torch.equal(a, b) for a, b in zip(here[2], there[2], strict=True))
    assert there[2].sources.numel() > 20 * core.induced_chunk


@pytest.mark.parametrize("room", [0, 1, 63, 64, 65, 5000, 5399, 5400, 9000])
def test_lists_longer_than_their_room_are_found(core: Any, room: int) -> None:
    g = torch.Generator().manual_seed(2)
    hub = torch.randint(400, (5000,), generator=g)
    graph = Graph.from_edges(
        torch.cat([hub, torch.arange(400)]), torch.cat([torch.full_like(hub, 399), torch.arange(400)]), 400
    )
    one = question(graph, torch.cat([torch.tensor([399]), torch.randperm(399, generator=g)]))
    here, there = _on_cpu(one, 1), _on_gpu(core, one, 0, 0, room)
    assert all(torch.equal(a, b) for a, b in zip(here[2], there[2], strict=True))
    assert there[2].sources.numel() == 5400


@pytest.mark.parametrize("every", [1, 2, 31, 32, 33, 64, 1000])
def test_empty_lists_between_others_are_passed(core: Any, every: int) -> None:
    targets = torch.arange(0, 2000, every).repeat_interleave(3)
    g = torch.Generator().manual_seed(every)
    graph = Graph.from_edges(torch.randint(2000, targets.shape, generator=g), targets, 2000)
    one = question(graph, torch.randperm(2000, generator=g))
    here, there = _on_cpu(one, 1), _on_gpu(core, one, 0, 0)
    assert all(torch.equal(a, b) for a, b in zip(here[2], there[2], strict=True))
    assert there[2].sources.numel() == targets.numel()


def test_wrong_nodes_are_told_alike(core: Any) -> None:
    graph = Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 0, 2]), 3)
    sets = torch.tensor([1, 1, 0, 0, 1], dtype=torch.int32)
    for one in (
        question(graph, [2, 1, 2, 1]),
        question(graph, [0, 1, 0]),
        question(graph, [2, 1, 0, 0, 2], sets, num=2),
        question(graph, [1, 3, -1]),
        question(graph, [2, 1, 0, 1, 0], sets, num=1),
        question(graph, [0, 1, 2, 3, 4], -sets, num=2),
    ):
        assert _on_cpu(one, 1)[:2] == _on_gpu(core, one, 0, 0)[:2] != (None, None)


def test_a_refused_launch_is_an_error(core: Any) -> None:
    graph = Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 0, 2]), 3)
    core.refuse_launch(1)
    with pytest.raises(RuntimeError, match="finding an induced subgraph on the GPU failed: "):
        _on_gpu(core, question(graph, [0, 1]), 0, 0)

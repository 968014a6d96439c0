"""Induced subgraphs are those of plain Python."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hetero_graphs import hetero_edges
from hypothesis import given, settings
from hypothesis import strategies as st
from induced_oracle import expected_edges, node_sets, rows_of, small_graphs
from marks import HAS_GPU

from loader.graph import Graph, HeteroGraph, induced_edges, induced_edges_by_type, induced_subgraph


def triples(found: Any) -> list[tuple[int, int, int]]:
    return list(zip(*(part.tolist() for part in found), strict=True))


@settings(deadline=None, max_examples=150)
@given(st.data(), small_graphs(), st.integers(1, 3))
def test_edges_are_those_of_plain_python(data: Any, graph: Graph, threads: int) -> None:
    nodes = data.draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True))
    found = induced_edges(graph, torch.tensor(nodes).long(), num_threads=threads)
    assert triples(found) == expected_edges(rows_of(graph), nodes)
    assert {part.dtype for part in found} == {torch.int64}


@settings(deadline=None, max_examples=150)
@given(st.data(), small_graphs())
def test_edges_stay_within_their_sets(data: Any, graph: Graph) -> None:
    nodes, sets, count = data.draw(node_sets(graph.num_nodes))
    found = induced_edges(graph, nodes, sets=sets, num_sets=count)
    assert triples(found) == expected_edges(rows_of(graph), nodes.tolist(), sets.tolist())


def test_threads_change_no_byte() -> None:
    g = torch.Generator().manual_seed(1)
    graph = Graph.from_edges(*torch.randint(3000, (2, 40000), generator=g), 3000)
    nodes = torch.randperm(3000, generator=g)[:2000]
    one, many = (induced_edges(graph, nodes, num_threads=n) for n in (1, 5))
    assert all(torch.equal(a, b) for a, b in zip(one, many, strict=True))
    assert one.sources.numel() > 10000


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_a_subgraph_keeps_what_edges_have(dtype: torch.dtype) -> None:
    graph = Graph(
        torch.tensor([0, 2, 5, 6, 7]),
        torch.tensor([1, 3, 0, 1, 1, 3, 2]),
        edge_ids=torch.arange(70, 77),
        edge_weights=torch.arange(7).float(),
        edge_times=torch.arange(10, 17),
        edge_types=torch.tensor([0, 1, 0, 1, 0, 1, 0]),
        node_times=torch.tensor([5, 6, 7, 8]),
    )
    part = induced_subgraph(graph, torch.tensor([3, 1, 0], dtype=dtype))
    assert part.indptr.tolist() == [0, 0, 3, 5]
    assert part.indices.tolist() == [2, 1, 1, 1, 0]
    assert part.edge_ids.tolist() == [72, 73, 74, 70, 71]
    assert part.edge_weights.tolist() == [2, 3, 4, 0, 1]
    assert part.edge_times.tolist() == [12, 13, 14, 10, 11]
    assert part.edge_types.tolist() == [0, 1, 0, 0, 1]
    assert part.node_times.tolist() == [8, 6, 5]
    part.state()
    graph.edge_ids = None
    assert induced_subgraph(graph, torch.tensor([3, 1, 0])).edge_ids.tolist() == [2, 3, 4, 0, 1]


def test_no_nodes_are_an_empty_graph() -> None:
    graph = Graph.from_edges(torch.tensor([0, 1]), torch.tensor([1, 0]), 2)
    part = induced_subgraph(graph, torch.empty(0, dtype=torch.int64))
    assert (part.num_nodes, part.num_edges) == (0, 0)


@settings(deadline=None, max_examples=100)
@given(st.data(), hetero_edges())
def test_relations_are_those_of_plain_python(data: Any, made: Any) -> None:
    edges, sizes, weights = made
    graph = HeteroGraph.from_edges(edges, sizes, edge_weights=weights)
    nodes = {
        name: torch.tensor(data.draw(st.lists(st.integers(0, size - 1), unique=True)) if size else []).long()
        for name, size in sizes.items()
        if data.draw(st.booleans())
    }
    part = induced_subgraph(graph, nodes)
    assert part.metadata() == graph.metadata()
    assert {name: len(of) for name, of in part.node_types.items()} == {name: len(nodes.get(name, [])) for name in sizes}
    for key, pairs in edges.items():
        rows: list[list[int]] = [[] for _ in range(sizes[key[2]])]
        ids: list[list[int]] = [[] for _ in rows]
        order = sorted(range(pairs.shape[1]), key=lambda e: (int(pairs[0, e]), e))
        for e in order:
            rows[int(pairs[1, e])].append(int(pairs[0, e]))
            ids[int(pairs[1, e])].append(e)
        sources, targets = (nodes.get(of, torch.empty(0)).tolist() for of in (key[0], key[2]))
        expected = [
            [(sources.index(u), e) for u, e in zip(rows[v], ids[v], strict=True) if u in sources] for v in targets
        ]
        relation = part.relation(key)
        ends = relation.indptr.tolist()
        entries = list(zip(relation.indices.tolist(), relation.edge_ids.tolist(), strict=True))
        assert [entries[a:b] for a, b in pairwise(ends)] == expected
        if weights is not None:
            of = weights.get(key)
            known = [1.0 if of is None else float(of[e]) for row in expected for _, e in row]
            assert relation.edge_weights.tolist() == pytest.approx(known)


def test_wrong_nodes_are_refused() -> None:
    graph = Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 0, 2]), 3)
    for nodes, said in (
        ([2, 0, 2, 0], "nodes has node 0 twice; give each node once"),
        ([2, 3], r"nodes\[1\] is 3; valid ids are 0 to 2"),
        ([-7], r"nodes\[0\] is -7; valid"),
        ([1, 2**40], rf"nodes\[1\] is {2**40}; valid"),
    ):
        with pytest.raises(ValueError, match=said):
            induced_edges(graph, torch.tensor(nodes))
    sets = torch.tensor([0, 1, 1], dtype=torch.int32)
    with pytest.raises(ValueError, match="nodes has node 2 twice in set 1"):
        induced_edges(graph, torch.tensor([2, 2, 2]), sets=sets, num_sets=2)
    with pytest.raises(TypeError, match="sets is a list; it must be a tensor of int32"):
        induced_edges(graph, torch.tensor([2, 1]), sets=[0, 0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"num_sets is 1\.5; it must be an integer"):
        induced_edges(graph, torch.tensor([2, 1]), sets=sets[:2], num_sets=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"sets has shape \[3\] and dtype torch.int64; it must be int32 \[3\]"):
        induced_edges(graph, torch.tensor([2, 1, 0]), sets=sets.long(), num_sets=2)
    with pytest.raises(ValueError, match=r"sets\[1\] is 1; with num_sets 1 it must be 0 to num_sets - 1"):
        induced_edges(graph, torch.tensor([2, 1, 0]), sets=sets)
    with pytest.raises(ValueError, match=r"nodes has shape \[1, 1\]; it must be a vector"):
        induced_edges(graph, torch.tensor([[2]]))
    with pytest.raises(TypeError, match=r"nodes has dtype torch\.bool; it must be an integer type"):
        induced_edges(graph, torch.tensor([True]))
    with pytest.raises(TypeError, match="nodes is a list; it must be a tensor of node ids"):
        induced_edges(graph, [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="an induced subgraph wants a graph of one set of nodes"):
        induced_edges(Graph(torch.tensor([0, 1]), torch.tensor([1]), num_src=2), torch.tensor([0]))
    with pytest.raises(ValueError, match="num_threads is 0"):
        induced_edges(graph, torch.tensor([0]), num_threads=0)


def test_wrong_nodes_of_types_are_refused() -> None:
    graph = HeteroGraph.from_edges({("a", "to", "b"): torch.tensor([[0, 1], [1, 1]])}, {"a": 2, "b": 3})
    with pytest.raises(ValueError, match=r"nodes\['b'\] has node 1 twice; give each node once"):
        induced_subgraph(graph, {"b": torch.tensor([1, 2, 1])})
    with pytest.raises(ValueError, match=r"nodes\['a'\] holds 2; valid ids are 0 to 1"):
        induced_subgraph(graph, {"a": torch.tensor([2])})
    with pytest.raises(ValueError, match=r"nodes names 'c'; the graph has the node types \['a', 'b'\]"):
        induced_subgraph(graph, {"c": torch.tensor([2])})
    with pytest.raises(TypeError, match="nodes is a Tensor; of a graph with types it must be a dict"):
        induced_subgraph(graph, torch.tensor([2]))


def test_written_lists_are_refused() -> None:
    graph = Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 0, 2]), 3)
    graph.indptr[1] = 9
    with pytest.raises(ValueError, match=r"indptr is not monotone"):
        induced_edges(graph, torch.tensor([0]))


@settings(deadline=None, max_examples=150)
@given(st.data(), hetero_edges())
def test_edges_by_type_are_those_of_python(data: Any, given_edges: Any) -> None:
    edges, sizes, _ = given_edges
    graph = HeteroGraph.from_edges(edges, sizes)
    asked = [name for name in sizes if data.draw(st.booleans())]
    ids = {name: data.draw(st.permutations(range(sizes[name]))) for name in asked}
    nodes = {name: of[: data.draw(st.integers(0, len(of)))] for name, of in ids.items()}
    found = induced_edges_by_type(graph, {name: torch.tensor(of).long() for name, of in nodes.items()})
    assert list(found) == list(graph.edge_types)
    for key, pairs in edges.items():
        among = [nodes.get(key[0], []), nodes.get(key[2], [])]
        wanted = [
            (among[1].index(target), source, number, among[0].index(source))
            for number, (source, target) in enumerate(pairs.t().tolist())
            if source in among[0] and target in among[1]
        ]
        assert graph.lists.edge_ids is not None
        ids_of = graph.lists.edge_ids[found[key].places].tolist()
        got = list(zip(found[key].sources.tolist(), found[key].targets.tolist(), ids_of, strict=True))
        assert got == [(source, target, number) for target, _, number, source in sorted(wanted)]


def test_edges_by_type_refuse_wrong_nodes() -> None:
    graph = HeteroGraph.from_edges({("a", "r", "b"): torch.zeros(2, 1).long()}, {"a": 2, "b": 1})
    with pytest.raises(ValueError, match=r"nodes\['a'\] has node 1 twice; give each node once"):
        induced_edges_by_type(graph, {"a": torch.tensor([1, 1])})
    with pytest.raises(ValueError, match=r"nodes\['a'\] holds 2; valid ids are 0 to 1"):
        induced_edges_by_type(graph, {"a": torch.tensor([2])})
    with pytest.raises(ValueError, match="nodes names 'c'; the graph has the node types"):
        induced_edges_by_type(graph, {"c": torch.tensor([0])})
    with pytest.raises(TypeError, match="HeteroGraph"):
        induced_edges_by_type(Graph.from_edges(torch.tensor([0]), torch.tensor([0]), 1), {})  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("wide", [(False, False), (True, False), (True, True)])
def test_a_gpu_finds_the_same_bytes(pinned: bool, wide: tuple[bool, bool]) -> None:
    g = torch.Generator().manual_seed(4)
    src, dst = torch.randint(5000, (2, 200_000), generator=g)
    hub = torch.randint(5000, (100_000,), generator=g)
    graph = Graph.from_edges(torch.cat([src, hub]), torch.cat([dst, torch.full_like(hub, 7)]), 5000)
    graph.indptr = graph.indptr.to(torch.int64 if wide[0] else torch.int32)
    graph.indices = graph.indices.to(torch.int64 if wide[1] else torch.int32)
    there = graph.pin_memory() if pinned else graph.to("cuda")
    nodes = torch.cat([torch.randperm(5000, generator=g)[:1500] for _ in range(3)])
    sets = torch.arange(3, dtype=torch.int32).repeat_interleave(1500)
    for options, ids in (({}, nodes[:1500]), ({"sets": sets, "num_sets": 3}, nodes), ({}, nodes[:0])):
        here = induced_edges(graph, ids, **options)
        found = induced_edges(there, ids.cuda(), **options)
        assert all(part.device.type == "cuda" for part in found)
        assert all(torch.equal(a, b.cpu()) for a, b in zip(here, found, strict=True))
    with pytest.raises(ValueError, match=f"nodes has node {int(nodes[0])} twice"):
        induced_edges(there, nodes[[0, 1, 0]].cuda())
    with pytest.raises(ValueError, match=r"nodes\[1\] is 5000; valid ids are 0 to 4999"):
        induced_edges(there, torch.tensor([1, 5000, 6000]).cuda())


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
def test_a_gpu_finds_the_same_relations() -> None:
    g = torch.Generator().manual_seed(5)
    edges = {(a, f"{a}{b}", b): torch.randint(300, (2, 9000), generator=g) for a in "ab" for b in "ab"}
    graph = HeteroGraph.from_edges(edges, {"a": 300, "b": 300})
    nodes = {name: torch.randperm(300, generator=g)[:120] for name in "ba"}
    here = induced_subgraph(graph, nodes).lists
    found = induced_subgraph(graph.to("cuda"), {name: ids.cuda() for name, ids in nodes.items()}).lists
    for name in ("indptr", "indices", "edge_ids"):
        assert torch.equal(getattr(here, name), getattr(found, name).cpu())
    by_type = induced_edges_by_type(graph.to("cuda"), {name: ids.cuda() for name, ids in nodes.items()})
    for key, expected in induced_edges_by_type(graph, nodes).items():
        assert all(torch.equal(a, b.cpu()) for a, b in zip(expected, by_type[key], strict=True))

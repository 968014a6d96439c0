"""Links that are held out, and a leak that is planted."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loader.datamodules.link_split import check_no_leak, split_links
from loader.graph import Graph


def graph_of(seed, num_nodes=40, num_edges=300):
    src, dst = torch.randint(num_nodes, (2, num_edges), generator=torch.Generator().manual_seed(seed))
    return Graph.from_edges(src, dst, num_nodes)


def edges_of(graph):
    dst = torch.arange(graph.num_nodes).repeat_interleave(graph.in_degrees().long())
    return list(zip(graph.indices.tolist(), dst.tolist(), strict=True))


@given(st.integers(0, 2**64 - 1))
def test_every_link_is_in_one_part(seed):
    graph = graph_of(seed % 100)
    split = split_links(graph, val=0.1, test=0.25, seed=seed)
    parts = {name: [tuple(pair) for pair in pairs.tolist()] for name, pairs in split.pairs.items()}
    links = {(min(edge), max(edge)) for edge in edges_of(graph) if edge[0] != edge[1]}
    together = [pair for pairs in parts.values() for pair in pairs]
    assert len(together) == len(links)
    assert set(together) == links
    assert len(parts["val"]) == int(0.1 * len(links))
    assert len(parts["test"]) == int(0.25 * len(links))
    seen = parts["train"] + [(v, u) for u, v in parts["train"]]
    assert sorted(edges_of(split.graph)) == sorted(seen)
    assert sorted(edges_of(split.known)) == sorted([*links, *((v, u) for u, v in links)])


def test_the_seed_decides_the_split():
    graph = graph_of(1)
    first, again, other = (split_links(graph, seed=s).pairs["test"] for s in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", ["val", "test"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_planted_leak_is_found(name, turned):
    split = split_links(graph_of(1))
    check_no_leak(split)
    u, v = split.pairs[name][0].tolist()
    if turned:
        u, v = v, u
    edges = torch.tensor([*edges_of(split.graph), (u, v)])
    leaking = dataclasses.replace(split, graph=Graph.from_edges(edges[:, 0], edges[:, 1], 40))
    with pytest.raises(ValueError, match=f"the edge {u} -> {v}, which is a link of the {name} split"):
        check_no_leak(leaking)


@pytest.mark.parametrize("shares", [{"val": 1e-9}, {"test": 1e-9}])
def test_each_part_needs_links(shares):
    with pytest.raises(ValueError, match="leave none for"):
        split_links(graph_of(1), **shares)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"val": 0}, ValueError, "val is 0.0; it must be above 0 and below 1"),
        ({"test": float("nan")}, ValueError, "test is nan; it must be above 0 and below 1"),
        ({"test": -1}, ValueError, "test is -1.0; it must be above 0 and below 1"),
        ({"val": "x"}, TypeError, "val is 'x'; it must be a number"),
        ({"val": 0.6, "test": 0.4}, ValueError, "val and test are 0.6 and 0.4; together they must be below 1"),
        ({"seed": "x"}, TypeError, "seed is 'x'; it must be an integer"),
        ({"graph": [(0, 1)]}, TypeError, "graph is a list; it must be a loader.Graph"),
    ],
)
def test_bad_arguments_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        split_links(**{"graph": graph_of(1), **change})

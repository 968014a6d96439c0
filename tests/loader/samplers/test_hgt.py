"""`HGTSampler` draws by the law of HGT, written once more in plain Python, and gives all edges among its nodes."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hetero_graphs import Edges, hetero_edges, with_hubs
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import HAS_GPU
from reference_hgt import chances, edges_among, lists_of, raced
from statistics_of_counts import LEVEL, p_expected

from loader import NodeLoader
from loader.graph import Graph, HeteroGraph
from loader.samplers import HGTSampler
from loader.samples import HeteroSubgraph

CITES, WRITES, RATES = ("p", "cites", "p"), ("a", "writes", "p"), ("p", "rates", "a")
SIZES = {"a": 6, "p": 5}
# With lists that share neighbors, an edge that is there twice, a loop, and an author without edges.
SMALL: Edges = {
    CITES: torch.tensor([[1, 2, 3, 3, 0], [0, 0, 0, 1, 0]]),
    WRITES: torch.tensor([[0, 1, 1, 2, 3, 3, 4], [0, 0, 1, 1, 1, 1, 3]]),
    RATES: torch.tensor([[4, 0, 2], [0, 1, 2]]),
}


def small() -> HeteroGraph:
    return HeteroGraph.from_edges(SMALL, SIZES)


def edges_of(sample: HeteroSubgraph) -> dict[Any, list[tuple[int, int, int]]]:
    """Relation -> (source, target, edge id) within the types."""
    assert sample.edge_ids is not None
    found = {}
    for key, (sources, targets) in sample.edges.items():
        ends = sample.nodes[key[0]][sources].tolist(), sample.nodes[key[2]][targets].tolist()
        found[key] = list(zip(*ends, sample.edge_ids[key].tolist(), strict=True))
    return found


@settings(deadline=None, max_examples=150)
@given(st.data(), hetero_edges(), st.integers(1, 4), st.booleans())
def test_samples_are_those_of_plain_python(data, made, num_hops: int, one_list: bool) -> None:
    edges, sizes, _ = made
    counts = st.lists(st.integers(0, 4), min_size=num_hops, max_size=num_hops)
    of_all = data.draw(counts)
    by_type = {name: of_all if one_list else data.draw(counts) for name in sizes}
    seeds = {n: data.draw(st.lists(st.integers(0, size - 1), unique=True)) for n, size in sizes.items() if size}
    position = tuple(data.draw(st.integers(0, 2**64 - 1)) for _ in range(3))
    sampler = HGTSampler(of_all if one_list else by_type, seed=position[0], edge_ids=True, num_threads=1)
    graph = HeteroGraph.from_edges(edges, sizes)
    if not seeds:
        return
    given_seeds = {name: torch.tensor(ids, dtype=torch.int64) for name, ids in seeds.items()}
    found = sampler.sample(graph, given_seeds, epoch=position[1], batch=position[2])
    hops = [{name: of_type[hop] for name, of_type in by_type.items()} for hop in range(num_hops)]
    expected = raced(edges, sizes, [(name, v) for name, ids in seeds.items() for v in ids], hops, position)
    nodes = {name: [v for hop in of_type for v in hop] for name, of_type in expected.items()}
    assert {name: ids.tolist() for name, ids in found.nodes.items()} == nodes
    assert found.num_nodes == {name: tuple(map(len, of_type)) for name, of_type in expected.items()}
    there = edges_of(found)
    assert {key: set(of) for key, of in there.items()} == edges_among(edges, nodes)
    assert {key: (len(set(of)),) for key, of in there.items()} == found.num_edges
    assert not found.by_hop


@pytest.mark.parametrize(
    "hops",
    [
        [{"a": 1, "p": 0}],
        [{"a": 2, "p": 0}],
        [{"a": 1, "p": 1}],
        [{"a": 1, "p": 1}, {"a": 1, "p": 1}],
        [{"a": 0, "p": 2}, {"a": 2, "p": 0}],
    ],
)
def test_nodes_are_drawn_with_their_probabilities(hops: list[dict[str, int]]) -> None:
    graph, lists = small(), lists_of(SMALL)
    expected = chances(lists, frozenset({("p", 0), ("p", 1)}), hops)
    assert sum(expected.values()) == 1
    sampler = HGTSampler({name: [hop[name] for hop in hops] for name in ("a", "p")}, seed=3, num_threads=1)
    counts: Counter[frozenset[tuple[str, int]]] = Counter()
    for batch in range(1000):
        found = sampler.sample(graph, {"p": torch.tensor([0, 1])}, batch=batch)
        counts[frozenset((name, v) for name, ids in found.nodes.items() for v in ids.tolist())] += 1
    assert counts.keys() <= expected.keys()
    # What is too rare for the test is one cell.
    often = [way for way, p in expected.items() if p > 1 / 100]
    observed = np.array([counts[way] for way in often] + [sum(counts[way] for way in expected.keys() - set(often))])
    chance = np.array([float(expected[way]) for way in often])
    keep = slice(None) if len(often) < len(expected) else slice(-1)
    assert p_expected(observed[keep], np.append(chance, 1 - chance.sum())[keep]) > LEVEL


def test_all_nodes_are_drawn_if_few_are_left() -> None:
    graph = with_hubs(300)
    found = HGTSampler([10**6] * 2, num_threads=1).sample(graph, {"p": torch.tensor([3, 0])})
    reached = {("p", 3), ("p", 0)}
    edges = {key: torch.stack(_pairs(graph, key)) for key in graph.edge_types}
    for _ in range(2):
        reached |= {(key[0], u) for key, ends in edges.items() for u, v in ends.t().tolist() if (key[2], v) in reached}
    assert {(name, v) for name, ids in found.nodes.items() for v in ids.tolist()} == reached
    assert found.nodes["p"][:2].tolist() == [3, 0]
    for ids, counts in zip(found.nodes.values(), found.num_nodes.values(), strict=True):
        for part in ids.split(list(counts))[1:]:
            assert part.tolist() == sorted(part.tolist())


def _pairs(graph: HeteroGraph, key: tuple[str, str, str]) -> list[torch.Tensor]:
    one = graph.relation(key)
    targets = torch.arange(one.num_dst).repeat_interleave(one.indptr.long().diff())
    return [one.indices.long(), targets]


def test_heavy_lists_do_not_overflow_scores() -> None:
    # A node that all of many lists have, beside one that a single entry of a long list has.
    count = 200_000
    ends = torch.arange(count)
    pairs = torch.cat([torch.stack([torch.zeros_like(ends), ends]), torch.tensor([[1], [0]])], 1)
    graph = HeteroGraph.from_edges({("u", "to", "v"): pairs}, {"u": 2, "v": count})
    sampler = HGTSampler({"u": [1], "v": [0]}, num_threads=1)
    for batch in range(20):
        assert sampler.sample(graph, {"v": ends}, batch=batch).nodes["u"].tolist() == [0]


def test_many_lists_have_coarser_shares() -> None:
    sizes = {"u": 30, "v": 2**23}
    g = torch.Generator().manual_seed(8)
    edges = {("u", "to", "v"): torch.stack([torch.randint(30, (200,), generator=g), torch.arange(200) % 17])}
    graph, hops = HeteroGraph.from_edges(edges, sizes), [{"u": 4, "v": 1}, {"u": 5, "v": 1}]
    found = HGTSampler({"u": [4, 5], "v": [1, 1]}, seed=4, num_threads=1).sample(graph, {"v": torch.arange(17)})
    expected = raced(edges, sizes, [("v", v) for v in range(17)], hops, (4, 0, 0))
    assert found.nodes["u"].tolist() == [v for hop in expected["u"] for v in hop]
    assert found.num_nodes["u"] == (0, 4, 5)


def test_seeds_may_have_several_types_or_none() -> None:
    sampler = HGTSampler([2, 2], edge_ids=True, num_threads=1)
    found = sampler.sample(small(), {"p": torch.tensor([4]), "a": torch.tensor([5, 0])})
    assert (found.nodes["a"][:2].tolist(), found.nodes["p"][0].item()) == ([5, 0], 4)
    assert found.num_seeds == {"a": 2, "p": 1}
    none = sampler.sample(small(), {"p": torch.empty(0, dtype=torch.int64)})
    assert none.num_nodes == {"a": (0, 0, 0), "p": (0, 0, 0)}
    assert none.num_edges == dict.fromkeys(SMALL, (0,))


def test_equal_arguments_give_equal_bytes() -> None:
    graph, seeds = with_hubs(500), {"a": torch.arange(0, 60, 3)}
    options: dict[str, Any] = {"seed": 7, "edge_ids": True}
    one, two = HGTSampler([8, 8], **options, num_threads=1), HGTSampler((8, 8), **options, num_threads=4)
    first = one.sample(graph, seeds, epoch=1, batch=5)
    for _ in range(3):
        two.sample(graph, seeds)  # samples before it change nothing
    assert first.digest() == two.sample(graph, seeds, epoch=1, batch=5).digest()
    again = pickle.loads(pickle.dumps(copy.copy(one)))
    assert first.digest() == again.sample(graph, seeds, epoch=1, batch=5).digest()
    others = [one.sample(graph, seeds, epoch=2, batch=5), one.sample(graph, seeds, epoch=1, batch=6)]
    others.append(HGTSampler([8, 8], seed=8, num_threads=1).sample(graph, seeds, epoch=1, batch=5))
    for other in others:
        assert other.nodes["a"].tolist() != first.nodes["a"].tolist()
    assert one.spec() == two.spec() != HGTSampler([8, 9], **options).spec()
    assert one.spec() != HGTSampler({"a": [8, 8], "p": [8, 8]}, **options).spec()


def test_a_list_holds_for_every_type() -> None:
    graph, seeds = with_hubs(200), {"a": torch.arange(10)}
    of_all = HGTSampler([3, 5], num_threads=1).sample(graph, seeds)
    assert of_all.digest() == HGTSampler({"p": [3, 5], "a": [3, 5]}, num_threads=1).sample(graph, seeds).digest()
    assert of_all.num_nodes["a"] == (10, 3, 5)


def loader_of(graph: HeteroGraph, **options: Any) -> NodeLoader:
    x = {"p": torch.arange(10.0)[:, None] * torch.ones(3), "a": None}
    labels = torch.arange(300) % 7
    sampler = HGTSampler([6, 6], edge_ids=True, seed=2)
    return NodeLoader(graph, x, labels, ("a", torch.arange(200)), sampler, 16, shuffle=True, seed=5, **options)


def test_node_loader_gives_features_and_labels() -> None:
    pytest.importorskip("torch_geometric")
    graph = with_hubs(300)
    for batch in loader_of(graph):
        data = batch.to_pyg()
        seeds = data["a"].n_id[: data["a"].batch_size]
        assert torch.equal(data["a"].y, seeds % 7)
        assert torch.equal(data["a"].input_id, seeds)
        assert torch.equal(data["p"].x[:, 0].long(), data["p"].n_id)
        assert set(data["a"].keys()) == {"n_id", "num_nodes", "batch_size", "input_id", "y"}
        assert set(data["p"].keys()) == {"n_id", "num_nodes", "x"}
        for key in graph.edge_types:
            assert set(data[key].keys()) == {"edge_index", "e_id"}
            assert torch.equal(data[key].edge_index, batch.edges[key])


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_resumed_epoch_goes_on(prefetch: int) -> None:
    graph = with_hubs(300)
    made = loader_of(graph, prefetch=prefetch)
    whole = [batch.digest() for _ in range(2) for batch in made]
    assert len(set(whole)) == len(whole) == 2 * len(made)
    made = loader_of(graph)
    stopped = iter(made)
    begun = [next(stopped).digest() for _ in range(5)]
    state = made.state_dict()
    rest = loader_of(graph, prefetch=prefetch)
    rest.load_state_dict(state)
    assert begun + [batch.digest() for _ in range(2) for batch in rest] == whole


def test_ranks_share_one_sequence() -> None:
    graph = with_hubs(300)
    whole = [batch.digest() for batch in loader_of(graph)]
    ranks = [[batch.digest() for batch in loader_of(graph, rank=r, world_size=2)] for r in range(2)]
    together = [digest for pair in zip(*ranks, strict=True) for digest in pair]
    assert together[: len(whole)] == whole


@pytest.mark.parametrize(
    ("num_samples", "error", "message"),
    [
        ([3, -1], ValueError, r"num_samples\[1\] is -1; it must be at least 0"),
        ({"a": [1, 2], "p": [3]}, ValueError, "num_samples has 1 and 2 hops; give each node type as many"),
        ({"a": [1.5]}, TypeError, r"num_samples\['a'\]\[0\] is"),
        ([], ValueError, "num_samples has no hops"),
        ({"a": []}, ValueError, r"num_samples\['a'\] has no hops"),
        ({}, ValueError, "num_samples is an empty dict"),
        (5, TypeError, "num_samples is 5; it must be a list of integers, one per hop"),
        ("55", TypeError, "num_samples is '55'; it must be a list of integers"),
        ({WRITES: [1]}, TypeError, "num_samples has the key .*; give names of node types"),
    ],
)
def test_wrong_numbers_are_refused(num_samples: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        HGTSampler(num_samples)
    assert "\n" not in str(raised.value)


def test_other_graphs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seeds = small(), {"p": torch.tensor([0])}
    with pytest.raises(ValueError, match="num_samples names the node type 'venue'; the graph has"):
        HGTSampler({"a": [1], "p": [1], "venue": [1]}).sample(graph, seeds)
    with pytest.raises(ValueError, match="num_samples has none for the node type 'a'; give it, 0 where none are drawn"):
        HGTSampler({"p": [1]}).sample(graph, seeds)
    one = Graph.from_edges(torch.tensor([0]), torch.tensor([1]), 2)
    with pytest.raises(TypeError, match=r"this has one; make one by HeteroGraph.of\(graph\)"):
        HGTSampler([1]).sample(one, torch.tensor([0]))
    monkeypatch.setattr(HeteroGraph, "device", torch.device("cuda:1"))
    with pytest.raises(ValueError, match=r"samples on cpu but the graph lies on cuda:1; use graph.to\('cpu'\)"):
        HGTSampler([1]).open(graph)


def test_wrong_seeds_are_refused() -> None:
    sampler = HGTSampler([1])
    with pytest.raises(ValueError, match=r"seeds\['p'\] holds node 1 more than once"):
        sampler.sample(small(), {"p": torch.tensor([1, 1])})
    with pytest.raises(ValueError, match="seeds holds node 7 more than once"):
        sampler.sample(small(), torch.tensor([7, 7]))
    with pytest.raises(ValueError, match="valid ids are 0 to 10"):
        sampler.sample(small(), torch.tensor([11]))
    with pytest.raises(ValueError, match="seeds of several node types are mixed"):
        sampler.sample(small(), torch.tensor([7, 0]))
    with pytest.raises(ValueError, match="epoch is -1"):
        sampler.sample(small(), {"p": torch.tensor([1])}, epoch=-1)
    sampler.close()
    with pytest.raises(RuntimeError, match="was closed"):
        sampler.sample(small(), {"p": torch.tensor([1])})


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_a_gpu_that_is_missing_is_told() -> None:
    with pytest.raises(RuntimeError, match="HGTSampler on a GPU needs an NVIDIA GPU"):
        HGTSampler([1], device="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("wide", [False, True])
def test_a_gpu_gives_the_same_bytes(wide: bool) -> None:
    graph, seeds = with_hubs(20_000), {"a": torch.arange(0, 3000, 3), "p": torch.tensor([2, 0])}
    if wide:
        graph.lists.indptr, graph.lists.indices = graph.lists.indptr.long(), graph.lists.indices.long()
    options: dict[str, Any] = {"seed": 3, "edge_ids": True}
    for counts in ([700, 50, 700], {"a": [0, 2000], "p": [1, 3]}):
        here = HGTSampler(counts, **options).sample(graph, seeds, epoch=2, batch=1)
        there = HGTSampler(counts, **options, device="cuda").sample(graph.to("cuda"), seeds, epoch=2, batch=1)
        assert there.nodes["a"].device.type == "cuda"
        assert here.digest() == there.digest()


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
def test_a_gpu_refuses_what_it_does_not_read() -> None:
    with pytest.raises(ValueError, match="num_threads is 2, but HGTSampler samples on cuda; leave it out"):
        HGTSampler([1], device="cuda", num_threads=2)
    for graph in (small(), small().pin_memory()):
        with pytest.raises(ValueError, match="samples on cuda:0 but the graph lies on cpu"):
            HGTSampler([1], device="cuda").open(graph)

"""Links of one relation of a graph with several types, beside a slow reference."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import reference_links as reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import HAS_GPU
from statistics_of_counts import LEVEL, p_equal
from torch import Tensor

from loader.graph import HeteroGraph
from loader.samplers import FusedSampler, HopwiseSampler, LinkSampler, Negatives, SubgraphSampler, fused

# The destinations' type comes first, and there is a type between.
SIZES = {"item": 13, "shop": 4, "user": 21}
BUYS, REV = ("user", "buys", "item"), ("item", "rev_buys", "user")
SELLS, KNOWS = ("shop", "sells", "item"), ("user", "knows", "user")
OTHER = ("user", "sees", "item")  # between the same types as BUYS
REVERSES = {BUYS: REV, KNOWS: KNOWS}


def random_pairs(key: tuple[str, str, str], count: int, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(SIZES[key[i]], (count,), generator=g) for i in (0, 2)], 1)


def edges_of(seed: int) -> dict[Any, Tensor]:
    buys = random_pairs(BUYS, 90, seed)
    knows = random_pairs(KNOWS, 60, seed + 1)
    return {
        OTHER: buys[:30].t(),  # the same pairs in another relation stay
        BUYS: buys.t(),
        REV: buys.flip(1)[:60].t(),
        SELLS: random_pairs(SELLS, 30, seed + 2).t(),
        KNOWS: torch.cat([knows, knows.flip(1)[:20]]).t(),
    }


def graph_of(edges: dict[Any, Tensor]) -> HeteroGraph:
    return HeteroGraph.from_edges(edges, SIZES)


def as_pairs(sources: Tensor, targets: Tensor) -> list[tuple[int, int]]:
    return list(zip(sources.tolist(), targets.tolist(), strict=True))


def within(links: Any, sources: Tensor, targets: Tensor) -> list[tuple[int, int]]:
    """Pairs of local ids as ids within their types."""
    nodes = links.around.n_id if hasattr(links.around, "n_id") else links.nodes
    return as_pairs(nodes[links.edge_type[0]][sources], nodes[links.edge_type[2]][targets])


def negatives_of(links: Any) -> list[tuple[int, int]]:
    tails = links.negative_targets.reshape(-1)
    heads = links.negative_sources
    if heads is None:
        heads = links.sources.repeat_interleave(links.negative_targets.shape[1])
    return within(links, heads, tails)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**64 - 1),
    mode=st.sampled_from(["binary", "triplet"]),
    amount=st.sampled_from([1, 2, 0.3, 1.5]),
    strict=st.booleans(),
    count=st.integers(1, 40),
    edge_type=st.sampled_from([BUYS, REV, SELLS, KNOWS]),
    expand=st.sampled_from(["all", "new"]),
)
def test_links_are_those_of_the_reference(seed, mode, amount, strict, count, edge_type, expand) -> None:
    amount = int(amount) or 1 if mode == "triplet" else amount
    edges = edges_of(seed % 1000)
    pairs = random_pairs(edge_type, count, seed % 999)
    sampler = LinkSampler(
        FusedSampler([3, 2], num_threads=1, expand=expand),
        Negatives(mode, amount, strict),
        seed=seed,
        edge_type=edge_type,
    )
    links = sampler.sample(graph_of(edges), pairs, epoch=3, batch=4)
    positives = as_pairs(pairs[:, 0], pairs[:, 1])
    assert within(links, links.sources, links.targets) == positives
    known = {tuple(edge) for edge in edges[edge_type].t().tolist()}
    counts = SIZES[edge_type[0]], None if edge_type == KNOWS else SIZES[edge_type[2]]
    want = reference.negatives(
        mode, amount, strict, [u for u, _ in positives], counts[0], known, seed, 3, 4, num_targets=counts[1]
    )
    assert negatives_of(links) == want
    if strict:
        assert not known & set(want)
        assert edge_type != KNOWS or all(u != v for u, v in want)
    ends: dict[str, set[int]] = {name: set() for name in SIZES}
    for u, v in positives + want:
        ends[edge_type[0]].add(u)
        ends[edge_type[2]].add(v)
    assert links.around.num_seeds == {name: len(ids) for name, ids in ends.items()}
    for name, ids in ends.items():  # ascending within each type
        assert links.around.n_id[name][: len(ids)].tolist() == sorted(ids)
    both, truth = links.pairs()
    assert within(links, *both) == positives + want
    assert truth.tolist() == [1.0] * len(positives) + [0.0] * len(want)


def by_hop(sample: Any) -> list[list[tuple[Any, int, int, int]]]:
    """Of each hop, from the seeds outward: (relation, source, destination, id) of all edges, by ids in the types."""
    found: list[list[tuple[Any, int, int, int]]] = []
    for block in reversed(sample.blocks):
        found.append([])
        for key, ends in block.edge_index_dict.items():
            ids = block.relation(key).edge_ids.tolist()
            of = sample.n_id[key[0]][ends[0]].tolist(), sample.n_id[key[2]][ends[1]].tolist()
            found[-1] += [(key, *edge) for edge in zip(*of, ids, strict=True)]
    return found


def subgraph_edges(sample: Any) -> list[list[tuple[Any, int, int, int]]]:
    found: list[tuple[Any, int, int, int]] = []
    for key, ends in sample.edges.items():
        of = sample.nodes[key[0]][ends[0]].tolist(), sample.nodes[key[2]][ends[1]].tolist()
        found += [(key, *edge) for edge in zip(*of, sample.edge_ids[key].tolist(), strict=True)]
    return [found]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1000),
    exclude=st.sampled_from(["none", "self", "reverse"]),
    kind=st.sampled_from([HopwiseSampler, FusedSampler, SubgraphSampler]),
    count=st.integers(1, 30),
    edge_type=st.sampled_from([BUYS, KNOWS]),
    expand=st.sampled_from(["all", "new"]),
)
def test_excluded_edges_are_those_of_the_reference(seed, exclude, kind, count, edge_type, expand) -> None:
    edges = edges_of(seed)
    graph = graph_of(edges)
    order = torch.randperm(edges[edge_type].shape[1], generator=torch.Generator().manual_seed(seed))
    positives = edges[edge_type].t()[order[:count]]
    options: dict[str, Any] = {} if kind is SubgraphSampler else {"expand": expand}
    fanouts = {key: [4, 3] for key in edges} if kind is SubgraphSampler else [4, 3]
    around = kind(fanouts, edge_ids=True, seed=seed, num_threads=1, **options)
    reverse = REVERSES[edge_type] if exclude == "reverse" else None
    links = LinkSampler(around, exclude=exclude, edge_type=edge_type, reverse=reverse).sample(graph, positives, batch=7)
    nodes = links.nodes if kind is SubgraphSampler else links.around.n_id
    seeds = {name: ids[: links.around.num_seeds[name]] for name, ids in nodes.items()}
    plain = around.sample(graph, seeds, batch=7)
    gone = set()
    if exclude != "none":
        gone = {(edge_type, u, v) for u, v in positives.tolist()}
    if reverse is not None:
        gone |= {(reverse, v, u) for u, v in positives.tolist()}
    listed = subgraph_edges if kind is SubgraphSampler else by_hop
    assert listed(links.around) == [[edge for edge in hop if edge[:3] not in gone] for hop in listed(plain)]
    if kind is SubgraphSampler:
        for key, counts in links.around.num_edges.items():
            assert sum(counts) == links.around.edges[key].shape[1]
        return
    assert torch.equal(links.nodes, plain.nodes)
    for block, before in zip(links.around.blocks, plain.blocks, strict=True):
        assert int(block.indptr[0]) == 0
        assert int(block.indptr[-1]) == block.num_edges
        assert block.indptr.dtype == before.indptr.dtype
        assert block.indptr.numel() == before.indptr.numel()


def test_a_planted_leak_is_found() -> None:
    """Each user buys one item: whoever sees the edge knows the answer. Excluded, nothing is to be seen."""
    buys = torch.stack([torch.arange(13), torch.arange(13)])
    graph = graph_of({BUYS: buys, REV: buys.flip(0)})
    seen = {}
    for exclude, reverse in (("none", None), ("self", None), ("reverse", REV)):
        sampler = LinkSampler(FusedSampler([5, 5], edge_ids=True), exclude=exclude, edge_type=BUYS, reverse=reverse)
        links = sampler.sample(graph, buys.t())
        seen[exclude] = sum(len(hop) for hop in by_hop(links.around))
    assert seen == {"none": 52, "self": 26, "reverse": 0}  # "self" still sees the way back


@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("exclude", ["none", "self", "reverse"])
def test_one_type_gives_the_arrays_of_today(mode, strict, exclude) -> None:
    ends = random_pairs(KNOWS, 200, 3)
    graph = HeteroGraph.from_edges({KNOWS: ends.t()}, {"user": SIZES["user"]})
    negatives, around = Negatives(mode, 2, strict), FusedSampler([3, 2], edge_ids=True, seed=5)
    reverse = KNOWS if exclude == "reverse" else None
    typed = LinkSampler(around, negatives, exclude=exclude, edge_type=KNOWS, reverse=reverse)
    plain = LinkSampler(around, negatives, exclude=exclude)
    for batch in range(3):
        found = typed.sample(graph, ends[20 * batch : 20 * batch + 20], batch=batch)
        wanted = plain.sample(graph.lists, ends[20 * batch : 20 * batch + 20], batch=batch)
        assert [t.tolist() for t in found.tensors()] == [t.tolist() for t in wanted.tensors()]


def test_negatives_are_uniform_in_their_types() -> None:
    graph, counts = graph_of(edges_of(1)), [torch.zeros(SIZES[name]) for name in ("user", "item")]
    sampler = LinkSampler(FusedSampler([1], num_threads=1), Negatives("binary", 10), seed=5, edge_type=BUYS)
    for batch in range(60):
        for pair in negatives_of(sampler.sample(graph, random_pairs(BUYS, 20, 2), batch=batch)):
            for count, v in zip(counts, pair, strict=True):
                count[v] += 1
    assert all(p_equal(count.numpy()) > LEVEL for count in counts)


def test_strict_negatives_are_uniform_over_remaining_nodes() -> None:
    """User 12 buys all but three items, among them none of its own number."""
    left = [3, 8, 12]
    bought = torch.tensor([v for v in range(13) if v not in left])
    graph = graph_of({BUYS: torch.stack([torch.full_like(bought, 12), bought])})
    sampler = LinkSampler(FusedSampler([1]), Negatives("triplet", 100, strict=True), seed=9, edge_type=BUYS)
    counts = dict.fromkeys(left, 0)
    for batch in range(8):
        for u, v in negatives_of(sampler.sample(graph, torch.tensor([[12, 1]]), batch=batch)):
            assert u == 12
            counts[v] += 1
    assert p_equal(torch.tensor(list(counts.values())).numpy()) > LEVEL


def test_a_node_without_negatives_is_named() -> None:
    every = torch.tensor([(u, v) for u in range(21) for v in range(13)]).t()
    graph = graph_of({BUYS: every})
    for mode, message in (
        ("triplet", "node 20 has an edge to every node of their type"),
        ("binary", "no negative link was found"),
    ):
        sampler = LinkSampler(FusedSampler([1]), Negatives(mode, 1, strict=True), edge_type=BUYS)
        with pytest.raises(ValueError, match=message):
            sampler.sample(graph, torch.tensor([[20, 3]]))


def test_strict_negatives_know_other_graphs() -> None:
    edges, negatives = edges_of(3), Negatives("triplet", 20, strict=True)
    whole, part = graph_of(edges), graph_of({**edges, BUYS: edges[BUYS][:, :40]})
    pairs = random_pairs(BUYS, 10, 4)
    drawn = [
        negatives_of(LinkSampler(FusedSampler([1]), negatives, known=known, edge_type=BUYS).sample(graph, pairs))
        for graph, known in ((whole, None), (part, whole), (part, None))
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_copies_sample_the_same() -> None:
    graph, pairs = graph_of(edges_of(3)), random_pairs(BUYS, 10, 4)
    sampler = LinkSampler(
        FusedSampler([3, 2], seed=4),
        Negatives("triplet", 2),
        exclude="reverse",
        edge_type="user__buys__item",
        reverse=["item", "rev_buys", "user"],  # as a configuration file has it
    )
    assert sampler.spec()["edge_type"] == "user__buys__item"
    assert sampler.spec()["reverse"] == "item__rev_buys__user"
    first = sampler.sample(graph, pairs)
    for other in (pickle.loads(pickle.dumps(sampler)), sampler.on(torch.device("cpu"))):
        assert other.spec() == sampler.spec()
        assert other.sample(graph, pairs).digest() == first.digest()
    assert sampler.sample(graph, pairs, batch=1).digest() != first.digest()
    assert first.map(lambda t: t.clone()).digest() == first.digest()
    assert first.wants == (*(kind for kind in first.around.wants if kind != "seed"), "pair")


WRONG = [
    ({}, r"the graph has the relations \[.*\], and links are of one of them: name it, e\.g\. edge_type=\('user'"),
    ({"edge_type": ("user", "likes", "item")}, r"edge_type is \('user', 'likes', 'item'\), which is no relation of"),
    (
        {"edge_type": BUYS, "exclude": "reverse"},
        r"name the relation that has the links' reverses, e\.g\. reverse=\('item', 'rev_buys', 'user'\)",
    ),
    ({"edge_type": BUYS, "reverse": REV}, r"which is of use with exclude='reverse' only; give that, or leave it out"),
    ({"reverse": REV, "exclude": "reverse"}, r"which is of use with edge_type only; give that, or leave it out"),
    (
        {"edge_type": BUYS, "reverse": SELLS, "exclude": "reverse"},
        r"it must go the other way, from 'item' to 'user'",
    ),
    (
        {"edge_type": BUYS, "reverse": ("item", "bought", "user"), "exclude": "reverse"},
        r"reverse is \('item', 'bought', 'user'\), which is no relation of the graph; its relations are",
    ),
    ({"edge_type": "buys"}, r"edge_type is 'buys'; give the edge type, \('author', 'writes', 'paper'\) or"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_bad_relations_are_refused(options, message) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        LinkSampler(FusedSampler([2]), **options).open(graph_of(edges_of(0)))


def test_bad_links_are_refused() -> None:
    graph = graph_of(edges_of(0))
    sampler = LinkSampler(FusedSampler([1]), edge_type=BUYS)
    for pairs, message in (
        ([[1, 13]], r"seeds\[:, 1\], of type 'item', holds node 13; valid ids are 0 to 12"),
        ([[21, 2]], r"seeds\[:, 0\], of type 'user', holds node 21; valid ids are 0 to 20"),
        ([[-1, 2]], r"seeds\[:, 0\], of type 'user', holds node -1"),
        ([1, 2], r"links are \[n"),
    ):
        with pytest.raises(ValueError, match=message):
            sampler.sample(graph, torch.tensor(pairs))
    with pytest.raises(TypeError, match=r"seeds has dtype torch\.float32; it must be an integer type"):
        sampler.sample(graph, torch.rand(3, 2))
    with pytest.raises(ValueError, match=r"edge_type is .*, but the graph has one type; leave it out"):
        sampler.open(graph.lists)


def test_known_graphs_of_other_nodes_are_refused() -> None:
    graph, negatives = graph_of(edges_of(0)), Negatives(strict=True)
    other = HeteroGraph.from_edges({BUYS: torch.zeros(2, 1, dtype=torch.int64)}, {**SIZES, "user": 20})
    for known, message in (
        (graph.relation(KNOWS), "known has one type of nodes, and the graph has several; give a HeteroGraph"),
        (other, "known has the nodes .*'user': 20.*, the graph .*'user': 21.*; they must be equal"),
        (graph_of({KNOWS: edges_of(0)[KNOWS]}), r"known has no relation \('user', 'buys', 'item'\), of which"),
    ):
        with pytest.raises(ValueError, match=message):
            LinkSampler(FusedSampler([1]), negatives, known=known, edge_type=BUYS).open(graph)
    plain = graph.relation(KNOWS)
    with pytest.raises(ValueError, match="known has types of nodes, and the graph has none; give a Graph"):
        LinkSampler(FusedSampler([1]), negatives, known=graph).open(plain)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
class TestOnAGpu:
    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
    @pytest.mark.parametrize("kind", ["minibatch", "subgraph"])
    @pytest.mark.parametrize("exclude", ["none", "self", "reverse"])
    @pytest.mark.parametrize("mode", ["binary", "triplet"])
    @pytest.mark.parametrize("count", [1, 12, 80, 1100])  # ends of the last are too many for one block
    @pytest.mark.parametrize("edge_type", [BUYS, KNOWS])
    def test_a_gpu_gives_the_same_links(self, mode, exclude, kind, dtype, count, edge_type) -> None:
        edges = edges_of(3)
        graph, negatives = graph_of(edges), Negatives(mode, 2, strict=True)
        reverse = REVERSES[edge_type] if exclude == "reverse" else None

        def links(device: str) -> LinkSampler:
            options: dict[str, Any] = {"edge_ids": True, "seed": 3, "device": device}
            if kind == "minibatch":
                around: Any = fused([4, 3], **options)
            else:
                around = SubgraphSampler({key: [4, 3] for key in edges}, **options)
            return LinkSampler(around, negatives, exclude=exclude, edge_type=edge_type, reverse=reverse)

        on_gpu, on_cpu = links("cuda"), links("cpu")
        there = graph.to(on_gpu.device)
        known = edges[edge_type].t()
        for batch in range(2):
            chosen = torch.randint(len(known), (count,), generator=torch.Generator().manual_seed(batch))
            want = on_cpu.sample(graph, known[chosen], batch=batch)
            assert on_gpu.sample(there, known[chosen].to(dtype), batch=batch).digest() == want.digest()
            assert on_gpu.sample(graph.pin_memory(), known[chosen].cuda(), batch=batch).digest() == want.digest()

    def test_bad_ends_are_named(self) -> None:
        graph = graph_of(edges_of(0)).to("cuda")
        sampler = LinkSampler(fused([2], device="cuda"), Negatives("triplet"), edge_type=BUYS)
        with pytest.raises(ValueError, match=r"seeds\[:, 1\], of type 'item', holds node 13; valid ids are 0 to 12"):
            sampler.sample(graph, torch.tensor([[0, 1], [1, 13]]))
        many = random_pairs(BUYS, 3000, 1)
        many[2000, 0] = 21
        with pytest.raises(ValueError, match=r"seeds\[:, 0\], of type 'user', holds node 21; valid ids are 0 to 20"):
            sampler.sample(graph, many)

    def test_a_gpu_counts_what_tries_missed(self) -> None:
        """Every user buys all items but one."""
        buys = torch.tensor([(u, v) for u in range(21) for v in range(13) if v != (u + 7) % 13])
        graph, negatives = graph_of({BUYS: buys.t()}), Negatives("triplet", 3, strict=True)
        got = LinkSampler(fused([1], device="cuda"), negatives, edge_type=BUYS).sample(graph.to("cuda"), buys[:200])
        want = LinkSampler(FusedSampler([1]), negatives, edge_type=BUYS).sample(graph, buys[:200])
        assert got.digest() == want.digest()

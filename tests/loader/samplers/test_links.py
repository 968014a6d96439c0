"""Links and their negatives beside a slow reference."""

import copy
import pickle

import pytest
import reference_links as reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import HAS_GPU
from statistics_of_counts import LEVEL, p_equal

from loader.graph import Graph, HeteroGraph
from loader.items import EdgeItems
from loader.samplers import (
    FusedSampler,
    HopwiseSampler,
    LinkSampler,
    Negatives,
    SubgraphSampler,
    TreeSampler,
    fused,
)

NUM_NODES = 30


def edges_of(seed, num_edges=200, num_nodes=NUM_NODES):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(num_nodes, (num_edges, 2), generator=generator)


def graph_of(edges, num_nodes=NUM_NODES):
    return Graph.from_edges(edges[:, 0], edges[:, 1], num_nodes, keep_edge_ids=True)


def as_pairs(sources, targets):
    return list(zip(sources.tolist(), targets.tolist(), strict=True))


def global_negatives(links):
    tails = links.negative_targets.reshape(-1)
    heads = links.negative_sources
    if heads is None:
        heads = links.sources.repeat_interleave(links.negative_targets.shape[1])
    return as_pairs(links.nodes[heads], links.nodes[tails])


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**64 - 1),
    mode=st.sampled_from(["binary", "triplet"]),
    amount=st.sampled_from([1, 2, 0.3, 1.5]),
    strict=st.booleans(),
    count=st.integers(1, 40),
)
def test_links_are_those_of_the_reference(seed, mode, amount, strict, count):
    amount = int(amount) or 1 if mode == "triplet" else amount
    edges = edges_of(seed % 1000)
    graph = graph_of(edges)
    given_pairs = edges_of(seed % 999, count)  # some are edges, some come twice, some are loops
    sampler = LinkSampler(FusedSampler([3, 2], num_threads=1), Negatives(mode, amount, strict), seed=seed)
    links = sampler.sample(graph, given_pairs, epoch=3, batch=4)
    positives = as_pairs(given_pairs[:, 0], given_pairs[:, 1])
    assert as_pairs(links.nodes[links.sources], links.nodes[links.targets]) == positives
    known = {tuple(edge) for edge in edges.tolist()}
    want = reference.negatives(mode, amount, strict, [u for u, _ in positives], NUM_NODES, known, seed, 3, 4)
    assert global_negatives(links) == want
    if strict:
        assert not known & set(want)
        assert all(u != v for u, v in want)
    ends = sorted({v for pair in positives + want for v in pair})
    assert links.nodes[: links.around.batch_size].tolist() == ends
    pairs, truth = links.pairs()
    assert as_pairs(*links.nodes[pairs]) == positives + want
    assert truth.tolist() == [1.0] * len(positives) + [0.0] * len(want)


def block_edges(batch):
    """Of each hop, from the seeds outward: (source, target, id) by global ids."""
    found = []
    for block in reversed(batch.blocks):
        dst = torch.arange(block.num_dst).repeat_interleave(block.indptr.diff().long())
        ends = batch.nodes[block.indices.long()].tolist(), batch.nodes[dst].tolist()
        found.append(list(zip(*ends, block.edge_ids.tolist(), strict=True)))
    return found


def subgraph_edges(sample):
    ends = sample.nodes[sample.edge_index]
    return [list(zip(*ends.tolist(), sample.edge_ids.tolist(), strict=True))]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 1000),
    exclude=st.sampled_from(["none", "self", "reverse"]),
    kind=st.sampled_from([HopwiseSampler, FusedSampler, SubgraphSampler]),
    count=st.integers(1, 30),
)
def test_excluded_edges_are_those_of_the_reference(seed, exclude, kind, count):
    edges = edges_of(seed)
    both = torch.cat([edges, edges[:100].flip(1)])  # half of the edges have their reverse
    graph = graph_of(both)
    positives = both[torch.randperm(300, generator=torch.Generator().manual_seed(seed))[:count]]
    around = kind([4, 3], edge_ids=True, seed=seed, num_threads=1)
    links = LinkSampler(around, exclude=exclude).sample(graph, positives, batch=7)
    plain = around.sample(graph, links.nodes[: links.around.batch_size], batch=7)
    gone = set()
    if exclude != "none":
        gone = reference.excluded([tuple(pair) for pair in positives.tolist()], exclude == "reverse")
    listed = subgraph_edges if kind is SubgraphSampler else block_edges
    want = [[edge for edge in hop if edge[:2] not in gone] for hop in listed(plain)]
    assert listed(links.around) == want
    assert torch.equal(links.nodes, plain.nodes)
    if kind is SubgraphSampler:
        assert sum(links.around.num_edges) == links.around.edge_index.shape[1]
    else:
        for block in links.around.blocks:
            assert int(block.indptr[0]) == 0
            assert int(block.indptr[-1]) == block.num_edges
            assert block.indptr.dtype == graph.indptr.dtype


def test_truth_is_float32_whatever_the_default():
    sampler = LinkSampler(FusedSampler([2]), Negatives("binary", 1))
    torch.set_default_dtype(torch.float64)
    try:
        links = sampler.sample(Graph.from_edges(torch.arange(9), torch.arange(1, 10), 10), torch.tensor([[1, 2]]))
        assert links.pairs()[1].dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_narrow_pairs_have_the_same_negatives(dtype):
    graph = Graph.from_edges(torch.arange(1000), (torch.arange(1000) + 1) % 1000, 1000)
    sampler, pairs = LinkSampler(FusedSampler([2]), Negatives("binary", 3)), torch.tensor([[1, 2], [3, 4]])
    for batch in range(5):
        found, wanted = (sampler.sample(graph, p, batch=batch) for p in (pairs.to(dtype), pairs))
        assert torch.equal(found.nodes.long(), wanted.nodes.long())
        assert torch.equal(found.pairs()[0], wanted.pairs()[0])


def test_a_planted_leak_is_found():
    """Nodes have one neighbor each: whoever sees the edge knows the answer. Excluded, nothing is to be seen."""
    ids = torch.arange(0, 100, 2)
    edges = torch.cat([torch.stack([ids, ids + 1], 1), torch.stack([ids + 1, ids], 1)])
    graph = graph_of(edges, 100)
    seen = {}
    for exclude in ("none", "self", "reverse"):
        links = LinkSampler(FusedSampler([5, 5], edge_ids=True), exclude=exclude).sample(graph, edges[:50])
        seen[exclude] = sum(
            (v, u) in {(a, b) for hop in block_edges(links.around) for a, b, _ in hop}
            or (u, v) in {(a, b) for hop in block_edges(links.around) for a, b, _ in hop}
            for u, v in edges[:50].tolist()
        )
    assert seen == {"none": 50, "self": 50, "reverse": 0}  # "self" still sees the way back


def test_negatives_are_uniform():
    graph = graph_of(edges_of(1))
    counts = torch.zeros(NUM_NODES, 2)
    for batch in range(60):
        links = LinkSampler(FusedSampler([1], num_threads=1), Negatives("binary", 10), seed=5).sample(
            graph, edges_of(2, 20), batch=batch
        )
        for u, v in global_negatives(links):
            counts[u, 0] += 1
            counts[v, 1] += 1
    assert p_equal(counts[:, 0].numpy()) > LEVEL
    assert p_equal(counts[:, 1].numpy()) > LEVEL


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_strict_negatives_are_uniform_over_remaining_nodes(mode):
    """Node 0 has edges to all but four nodes, so tries run out, and the rest is counted."""
    left = [3, 8, 20, 29]
    targets = torch.tensor([v for v in range(1, NUM_NODES) if v not in left])
    edges = torch.stack([torch.zeros_like(targets), targets], 1)
    if mode == "binary":  # the four are all that is left of all pairs
        every = [(u, v) for u in range(NUM_NODES) for v in range(NUM_NODES) if u != v and (u, v) != (0, 3)]
        edges = torch.tensor([pair for pair in every if pair[0] or pair[1] not in left])
    graph = graph_of(edges)
    sampler = LinkSampler(FusedSampler([1], num_threads=1), Negatives(mode, 50, strict=True), seed=9)
    counts = dict.fromkeys(left, 0)
    for batch in range(8):
        for u, v in global_negatives(sampler.sample(graph, torch.tensor([[0, 1]]), batch=batch)):
            assert u == 0
            counts[v] += 1
    assert p_equal(torch.tensor(list(counts.values())).numpy()) > LEVEL


def test_a_node_without_negatives_is_named():
    n = 5
    every = torch.tensor([(u, v) for u in range(n) for v in range(n)])
    graph = graph_of(every, n)
    for mode, message in (("triplet", "node 2 has an edge to every other"), ("binary", "no negative link was found")):
        sampler = LinkSampler(FusedSampler([1]), Negatives(mode, 1, strict=True))
        with pytest.raises(ValueError, match=message):
            sampler.sample(graph, torch.tensor([[2, 3]]))


def test_strict_negatives_know_unsorted_lists_and_other_graphs():
    edges = edges_of(3)
    sorted_graph = graph_of(edges)
    order = torch.randperm(200)
    dst = torch.arange(NUM_NODES).repeat_interleave(sorted_graph.in_degrees())[order]
    back = order[torch.argsort(dst, stable=True)]
    shuffled = Graph(sorted_graph.indptr, sorted_graph.indices[back])
    pairs, negatives = edges_of(4, 10), Negatives("triplet", 20, strict=True)
    part = graph_of(edges[:100])
    drawn = []
    for graph, known in ((sorted_graph, None), (shuffled, None), (part, sorted_graph)):
        sampler = LinkSampler(FusedSampler([1]), negatives, known=known)
        drawn.append(global_negatives(sampler.sample(graph, pairs)))
    assert drawn[0] == drawn[1] == drawn[2]


def test_copies_sample_the_same():
    graph, pairs = graph_of(edges_of(3)), edges_of(4, 10)
    sampler = LinkSampler(FusedSampler([3, 2], seed=4), Negatives("triplet", 2), exclude="reverse")
    assert sampler.seed == 4
    first = sampler.sample(graph, pairs)
    for other in (copy.copy(sampler), pickle.loads(pickle.dumps(sampler)), sampler.on(torch.device("cpu"))):
        assert other.spec() == sampler.spec()
        assert other.sample(graph, pairs).digest() == first.digest()
    assert sampler.sample(graph, pairs, batch=1).digest() != first.digest()
    clone = first.map(lambda t: t.clone())
    assert clone.digest() == first.digest()
    assert len(first.memory()) <= len(first.tensors())
    assert "Links(positives=10, negatives=20" in repr(first)


@pytest.mark.parametrize("in_trees", [False, True])
def test_known_edges_that_are_replaced_are_seen(in_trees):
    graph, known, later = graph_of(edges_of(0)), graph_of(edges_of(1, 700)), graph_of(edges_of(2, 700))
    pairs, around, edge_type = edges_of(0, 40), FusedSampler([1]), None
    if in_trees:
        graph, known, later = (HeteroGraph.of(one) for one in (graph, known, later))
        around, edge_type = TreeSampler([1], times="none"), ("node", "to", "node")
    negatives = Negatives(num_negatives=9, strict=True)
    sampler = LinkSampler(around, negatives, known=known, edge_type=edge_type)
    first = global_negatives(sampler.sample(graph, pairs))
    if in_trees:
        known, later = known.lists, later.lists
    known.indptr, known.indices, known.edge_ids = later.indptr, later.indices, later.edge_ids
    found = global_negatives(sampler.sample(graph, pairs))
    assert found != first
    assert not set(found) & set(map(tuple, edges_of(2, 700).tolist()))
    known.indices = known.indices + NUM_NODES
    with pytest.raises(ValueError, match="indices holds node"):
        sampler.sample(graph, pairs)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Negatives("both"), ValueError, "mode is 'both'; it must be 'binary' or 'triplet'"),
        (lambda: Negatives("binary", 0), ValueError, "num_negatives is 0; it must be above 0"),
        (lambda: Negatives("binary", "1"), TypeError, "num_negatives is '1'; it must be a number"),
        (lambda: Negatives("triplet", 1.5), ValueError, "a triplet has a whole number"),
        (lambda: Negatives(["binary"]), ValueError, "mode is .*; it must be 'binary' or 'triplet'"),
        (lambda: Negatives(num_negatives="x"), TypeError, "num_negatives is 'x'; it must be a number"),
        (
            lambda: Negatives(num_negatives=float("inf")),
            ValueError,
            "num_negatives is inf; it must be above 0 and below",
        ),
        (lambda: Negatives(strict="no"), TypeError, "strict is 'no'; it must be True or False"),
        (lambda: LinkSampler(FusedSampler([1]), "binary"), TypeError, "negatives is 'binary'; it must be a loader"),
        (
            lambda: LinkSampler(FusedSampler([1]), Negatives(strict=True), known=3),
            TypeError,
            "known is an int; it",
        ),
        (lambda: LinkSampler(None), TypeError, "must be a Sampler that takes nodes"),
        (lambda: LinkSampler(LinkSampler(FusedSampler([1]))), TypeError, "must be a Sampler that takes nodes"),
        (lambda: LinkSampler(FusedSampler([1]), exclude="all"), ValueError, "one of none, self, reverse"),
        (
            lambda: LinkSampler(SubgraphSampler([1], subgraph_type="bidirectional"), exclude="self"),
            ValueError,
            "so a link is seen in the opposite direction; give exclude='reverse'",
        ),
        (lambda: LinkSampler(FusedSampler([1]), known=graph_of(edges_of(0))), ValueError, "known is of use for strict"),
        (lambda: EdgeItems(torch.zeros(3, 3)), TypeError, "must be an integer type"),
        (lambda: EdgeItems(torch.zeros(3, dtype=torch.int64)), ValueError, r"it must be \[n, 2\]"),
        (lambda: EdgeItems(torch.zeros(0, 2, dtype=torch.int64)), ValueError, "pairs is empty"),
        (lambda: EdgeItems([[1, 2]]), TypeError, "pairs is a list; give a tensor"),
    ],
)
def test_bad_arguments_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_bad_links_are_refused():
    graph = graph_of(edges_of(0))
    for pairs, message in (([[1, 30]], "holds node 30"), ([[-1, 2]], "holds node -1"), ([1, 2], r"links are \[n")):
        with pytest.raises(ValueError, match=message):
            LinkSampler(FusedSampler([1])).sample(graph, torch.tensor(pairs))
    with pytest.raises(TypeError, match=r"seeds is a list; it must be a tensor of links"):
        LinkSampler(FusedSampler([1])).sample(graph, [[0, 1]])
    with pytest.raises(ValueError, match="seeds holds node 30"):
        LinkSampler(FusedSampler([1]), Negatives("triplet")).sample(graph, torch.tensor([[30, 1]]))


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
class TestOnAGpu:
    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
    @pytest.mark.parametrize("kind", ["minibatch", "subgraph"])
    @pytest.mark.parametrize("exclude", ["none", "self", "reverse"])
    @pytest.mark.parametrize("mode", ["binary", "triplet"])
    @pytest.mark.parametrize("count", [1, 12, 150, 1100])  # ends of the last are too many for one block
    def test_a_gpu_gives_the_same_links(self, mode, exclude, kind, dtype, count):
        edges = edges_of(3, 6 * count, num_nodes=NUM_NODES if count < 100 else 3000)
        both = torch.cat([edges, edges[: 3 * count].flip(1)])
        graph = graph_of(both, NUM_NODES if count < 100 else 3000)
        negatives, options = Negatives(mode, 2, strict=True), {"edge_ids": True, "seed": 3}

        def around(device):
            return (
                fused([4, 3], device=device, **options)
                if kind == "minibatch"
                else SubgraphSampler([4, 3], device=device, **options)
            )

        on_gpu, on_cpu = (LinkSampler(around(device), negatives, exclude=exclude) for device in ("cuda", "cpu"))
        there = graph.to(on_gpu.device)
        for batch in range(2):
            pairs = both[torch.randperm(len(both), generator=torch.Generator().manual_seed(batch))[:count]]
            want = on_cpu.sample(graph, pairs, batch=batch)
            assert on_gpu.sample(there, pairs.to(dtype), batch=batch).digest() == want.digest()
            assert on_gpu.sample(graph.pin_memory(), pairs.cuda(), batch=batch).digest() == want.digest()

    def test_a_gpu_counts_what_tries_missed(self):
        """Every node has an edge to all but one."""
        n = 40
        edges = torch.tensor([(u, v) for u in range(n) for v in range(n) if v != (u + 7) % n])
        graph, negatives = graph_of(edges, n), Negatives("triplet", 3, strict=True)
        got = LinkSampler(fused([1], device="cuda"), negatives).sample(graph.to("cuda"), edges[:200])
        want = LinkSampler(FusedSampler([1]), negatives).sample(graph, edges[:200])
        assert got.digest() == want.digest()
        assert all(v == (u + 7) % n for u, v in global_negatives(got))

    @pytest.mark.parametrize("count", [1, 2000])
    def test_a_gpu_names_what_it_refuses(self, count):
        n = 5
        every = torch.tensor([(u, v) for u in range(n) for v in range(n)])
        graph, pairs = graph_of(every, n).to("cuda"), torch.tensor([[2, 3]]).repeat(count, 1)
        for mode, message in (("triplet", "node 2 has an edge to every"), ("binary", "no negative link was found")):
            with pytest.raises(ValueError, match=message):
                LinkSampler(fused([1], device="cuda"), Negatives(mode, 1, strict=True)).sample(graph, pairs)
        for end in (-1, 5):
            wrong = torch.cat([pairs, torch.tensor([[0, end]])])
            with pytest.raises(ValueError, match=f"holds node {end}; valid ids are 0 to 4"):
                LinkSampler(fused([1], device="cuda"), Negatives("triplet", 1)).sample(graph, wrong)

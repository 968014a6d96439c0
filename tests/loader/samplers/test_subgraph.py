"""Subgraphs are what torch_geometric's walk finds in the mini-batches of the specification."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import HAS_GPU

from loader.graph import Graph
from loader.samplers import FusedSampler, HopwiseSampler, Request, SubgraphSampler
from loader.samples import subgraph_of


def graph_of(seed, num_nodes=50, num_edges=300):
    generator = torch.Generator().manual_seed(seed)
    src, dst = torch.randint(num_nodes, (2, num_edges), generator=generator)
    return Graph.from_edges(src, dst, num_nodes, keep_edge_ids=seed % 2 == 0)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**20),
    fanouts=st.lists(st.sampled_from([-1, 1, 3, 20]), min_size=1, max_size=4),
    replace=st.booleans(),
    wide=st.booleans(),
)
def test_a_subgraph_is_the_expanded_mini_batch(seed, fanouts, replace, wide):
    graph = graph_of(seed)
    if wide:  # as in a graph of more than 2**31 edges
        graph.indptr = graph.indptr.long()
    options = {"replace": replace, "edge_ids": True, "seed": seed}
    seeds = torch.randperm(50)[:6]
    got = SubgraphSampler(fanouts, **options).sample(graph, seeds, epoch=2, batch=5)
    batch = HopwiseSampler(fanouts, **options).sample(graph, seeds, epoch=2, batch=5)
    assert got.digest() == subgraph_of(batch)[0].digest()
    assert got.batch_size == 6
    dst = torch.arange(50).repeat_interleave(graph.in_degrees())
    places = got.edge_ids if graph.edge_ids is None else torch.argsort(graph.edge_ids)[got.edge_ids]
    assert torch.equal(got.nodes[got.edge_index], torch.stack([graph.indices.long()[places], dst[places]]))


def test_each_node_is_expanded_once():
    graph = graph_of(4)
    got = SubgraphSampler([2, 2, 2], edge_ids=True).sample(graph, torch.arange(5))
    assert got.edge_ids.unique().numel() == got.edge_ids.numel()
    bounds = [0, *torch.tensor(got.num_nodes).cumsum(0).tolist()]
    targets = got.edge_index[1].split(list(got.num_edges))
    for hop, of_hop in enumerate(targets):
        assert bool(((of_hop >= bounds[hop]) & (of_hop < bounds[hop + 1])).all())


@pytest.mark.parametrize(
    "options",
    [
        {"weights": "edge_weights"},
        {"weights": "edge_weights", "replace": True},
        {"weights": "edge_weights", "top_k": True},
        {"weights": "edge_weights", "weight_tables": False},
        {"labor": True},
    ],
)
@pytest.mark.parametrize("seed", [4, 5])  # the graph of 4 has edge ids of its own
def test_other_picks_give_expanded_mini_batches_too(options, seed):
    plain = graph_of(seed)
    weights = torch.rand(300, generator=torch.Generator().manual_seed(seed))
    weights[::3] = 0
    graph = Graph(plain.indptr, plain.indices, edge_ids=plain.edge_ids, edge_weights=weights)
    got = SubgraphSampler([3, 2], edge_ids=True, seed=5, **options).sample(graph, torch.arange(9))
    batch = FusedSampler([3, 2], edge_ids=True, seed=5, **options).sample(graph, torch.arange(9))
    assert got.digest() == subgraph_of(batch)[0].digest()
    assert got.digest() != SubgraphSampler([3, 2], edge_ids=True, seed=5).sample(graph, torch.arange(9)).digest()


@pytest.mark.parametrize("seed", [4, 5])
@pytest.mark.parametrize("edge_ids", [True, False])
def test_bidirectional_ones_are_torch_geometrics(seed, edge_ids):
    sampler = pytest.importorskip("torch_geometric.sampler")
    graph, seeds, options = graph_of(seed), torch.arange(8), {"edge_ids": edge_ids, "seed": 3}
    one = SubgraphSampler([4, 3], **options).sample(graph, seeds, epoch=1)
    two = SubgraphSampler([4, 3], subgraph_type="bidirectional", **options).sample(graph, seeds, epoch=1)
    theirs = sampler.SamplerOutput(one.nodes, *one.edge_index, one.edge_ids).to_bidirectional()
    assert torch.equal(two.nodes, one.nodes)
    assert torch.equal(two.edge_index, torch.stack([theirs.row, theirs.col]))
    if edge_ids:  # theirs are any of the two directions', and ours the lowest
        there = dict.fromkeys(map(tuple, two.edge_index.t().tolist()), 2**60)
        for (source, target), number in zip(one.edge_index.t().tolist(), one.edge_ids.tolist(), strict=True):
            for pair in ((source, target), (target, source)):
                there[pair] = min(there[pair], number)
        assert two.edge_ids.tolist() == list(there.values())
    empty = SubgraphSampler([], subgraph_type="bidirectional").sample(graph, seeds)
    assert empty.edge_index.shape == (2, 0)


@pytest.mark.parametrize("seed", [4, 5])
@pytest.mark.parametrize("replace", [True, False])
def test_induced_ones_have_all_edges_among_their_nodes(seed, replace):
    graph, seeds, options = graph_of(seed), torch.arange(8), {"edge_ids": True, "seed": 3, "replace": replace}
    one = SubgraphSampler([4, 3], **options).sample(graph, seeds, epoch=1)
    two = SubgraphSampler([4, 3], subgraph_type="induced", **options).sample(graph, seeds, epoch=1)
    assert torch.equal(two.nodes, one.nodes)
    local = {node: i for i, node in enumerate(two.nodes.tolist())}
    dst = torch.arange(50).repeat_interleave(graph.in_degrees()).tolist()
    ids = range(graph.num_edges) if graph.edge_ids is None else graph.edge_ids.tolist()
    wanted = [
        (local[target], number, local[source])
        for target, number, source in zip(dst, ids, graph.indices.tolist(), strict=True)
        if source in local and target in local
    ]
    got = zip(two.edge_index[1].tolist(), two.edge_ids.tolist(), two.edge_index[0].tolist(), strict=True)
    assert sorted(got) == sorted(wanted)
    assert SubgraphSampler([4], subgraph_type="induced").spec() != SubgraphSampler([4]).spec()


@pytest.mark.parametrize("options", [{"edge_ids": True}, {"replace": True}, {}])
def test_induced_ones_of_mini_batches_are_the_same(options):
    from loader.samplers.subgraph import _all_edges, _subgraph_of  # a GPU goes this way

    graph, seeds = graph_of(4), torch.arange(8)
    sampler = SubgraphSampler([4, 3], subgraph_type="induced", seed=3, **options)
    batch = FusedSampler([4, 3], seed=3, **options).sample(graph, seeds, epoch=1)
    made = _all_edges(_subgraph_of, graph, sampler, batch)
    assert made.digest() == sampler.sample(graph, seeds, epoch=1).digest()
    labor = SubgraphSampler([4, 3], subgraph_type="induced", seed=3, labor=True).sample(graph, seeds)
    assert labor.num_edges[0] > SubgraphSampler([4, 3], seed=3, labor=True).sample(graph, seeds).edge_index.shape[1]


@pytest.mark.parametrize("fanouts", [[], [0], [3, 0, 2], [1] * 12, [2000, 3], [-1, 5000]])
@pytest.mark.parametrize("shape", ["directional", "bidirectional", "induced"])
def test_all_fanouts_of_torch_geometric_are_possible(fanouts, shape):
    graph = graph_of(5)
    sampler = SubgraphSampler(fanouts, edge_ids=True, subgraph_type=shape, seed=2)
    got = sampler.sample(graph, torch.arange(6))
    assert got.batch_size == 6
    assert len(got.num_nodes) == len(fanouts) + 1
    if shape == "directional":
        picked = fanouts.index(0) if 0 in fanouts else min(len(fanouts), 2)
        assert all(got.num_edges[:picked])
        assert not any(got.num_edges[picked:] if 0 in fanouts else [])
    for made in (copy.copy(sampler), pickle.loads(pickle.dumps(sampler)), sampler.on(torch.device("cpu"))):
        assert made.sample(graph, torch.arange(6)).digest() == got.digest()
    common = [min(k, -1) if k > 1024 else k for k in fanouts]
    assert (
        SubgraphSampler(common, edge_ids=True, subgraph_type=shape, seed=2).sample(graph, torch.arange(6)).digest()
        == got.digest()
    )


def test_what_a_subgraph_cannot_be_is_refused():
    graph = graph_of(5)
    with pytest.raises(ValueError, match="subgraph_type is 'all'; it must be one of directional"):
        SubgraphSampler([2], subgraph_type="all")
    with pytest.raises(ValueError, match="subgraph_type is 'induced', which takes all edges among the nodes, and"):
        SubgraphSampler([2], subgraph_type="induced", weights="edge_weights")
    with pytest.raises(ValueError, match="fanout -2 is not possible"):
        SubgraphSampler([-2])
    with pytest.raises(ValueError, match="33 hops are given"):
        SubgraphSampler([1] * 33)
    hub = Graph.from_edges(torch.arange(2000), torch.zeros(2000, dtype=torch.int64), 2000)
    for sampler, k in ((SubgraphSampler([1999]), 1999), (SubgraphSampler([2000], replace=True), 2000)):
        with pytest.raises(ValueError, match=f"fanout {k} is not possible, as a node has 2000 neighbors"):
            sampler.sample(hub, torch.arange(1))
    assert SubgraphSampler([2000]).sample(hub, torch.arange(1)).num_edges == (2000,)
    with pytest.raises(ValueError, match=r"the fanouts \[0\] need picks without labor"):
        SubgraphSampler([0], labor=True).sample(graph, torch.arange(3))


def test_copies_sample_the_same():
    graph, sampler = graph_of(2), SubgraphSampler([3, 2], seed=7)
    first = sampler.sample(graph, torch.arange(9))
    assert first.edge_ids is None
    for other in (copy.copy(sampler), pickle.loads(pickle.dumps(sampler)), sampler.on(torch.device("cpu"))):
        assert other.spec() == sampler.spec()
        assert other.sample(graph, torch.arange(9)).digest() == first.digest()


def test_a_subgraph_holds_rows():
    got = SubgraphSampler([3], edge_ids=True).sample(graph_of(2), torch.arange(4))
    table, costs = torch.rand(50, 2), torch.rand(300)
    full = got.with_rows({"node/x": table[got.ids("node/x")], "edge/cost": costs[got.ids("edge/cost")]})
    assert full.has("node/x")
    assert not full.has("node/y")
    assert len(full.tensors()) == 5
    moved = full.map(lambda t: t.clone())
    assert moved.digest() == full.digest()
    assert "num_nodes=(4, " in repr(moved)
    with pytest.raises(KeyError, match="wants rows of"):
        got.ids("seed")


def test_a_closed_session_says_so():
    graph, sampler = graph_of(2), SubgraphSampler([3])
    session = sampler.open(graph)
    session.close()
    with pytest.raises(RuntimeError, match="was closed"):
        session.begin([Request(torch.arange(3), 0, 0)])


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(
    "options", [{}, {"edge_ids": True}, {"replace": True}, {"edge_ids": True, "subgraph_type": "induced"}]
)
@pytest.mark.parametrize(("fanouts", "num_nodes"), [([4, 3, 2], 50), ([5, 10, 5, 3], 20_000), ([-1, -1], 20_000)])
def test_a_gpu_samples_the_same(fanouts, num_nodes, options):
    generator = torch.Generator().manual_seed(8)
    src, dst = torch.randint(num_nodes, (2, 6 * num_nodes), generator=generator)
    dst[: 3 * num_nodes // 2] %= 5  # lists that a warp copies
    graph = Graph.from_edges(src, dst, num_nodes, keep_edge_ids="edge_ids" in options)
    if -1 in fanouts and "replace" in options:
        pytest.skip("all neighbors are picked without replacement")
    on_gpu = SubgraphSampler(fanouts, device="cuda", seed=3, **options)
    on_cpu, there = SubgraphSampler(fanouts, seed=3, **options), graph.to(on_gpu.device)
    for batch in range(4):
        seeds = torch.randperm(num_nodes, generator=generator)[: min(7 + 300 * batch, num_nodes // 2)]
        want = on_cpu.sample(graph, seeds, batch=batch)
        got = on_gpu.sample(there, seeds, batch=batch)
        assert got.digest() == want.digest()
        assert got.edge_index.is_contiguous()

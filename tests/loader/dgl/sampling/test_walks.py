"""`random_walk`, `node2vec_random_walk` and `pack_traces`, beside DGL's and as laws."""

import numpy as np
import pytest
import torch
from marks import needs_dgl
from statistics_of_counts import LEVEL, p_equal, p_expected

from loader.dgl import sampling as ours

pytestmark = needs_dgl

PATH = ["follows", "bought", ("item", "bought_by", "user")] * 2


def check(g, traces, edges, path):
    """Each step follows the edge that is named, and nothing follows an end."""
    for step, key in enumerate(path):
        there = traces[:, step + 1] >= 0
        assert torch.equal(there, edges[:, step] >= 0)
        assert not (there & (traces[:, step] < 0)).any()
        source, target = g.find_edges(edges[there, step], etype=key)
        assert torch.equal(source, traces[there, step])
        assert torch.equal(target, traces[there, step + 1])
        stuck = (traces[:, step] >= 0) & ~there
        assert (g.out_degrees(traces[stuck, step], etype=key) == 0).all()


def shape_of(made):
    return [(part.dtype, part.shape) for part in made]


def test_walks_are_formed_as_dgls(g, shop):
    import dgl

    nodes = torch.arange(60, dtype=g.idtype)
    for whole, starts, options in ((g, nodes, {"length": 7}), (shop, torch.arange(30), {"metapath": PATH})):
        made, theirs = (
            package.random_walk(whole, starts, return_eids=True, **options) for package in (ours, dgl.sampling)
        )
        assert shape_of(made) == shape_of(theirs)
        assert torch.equal(made[2], theirs[2])
        check(whole, *made[:2], options.get("metapath") or [whole.canonical_etypes[0]] * 7)
        assert len(ours.random_walk(whole, starts, **options)) == 2


@pytest.mark.parametrize("prob", ["weight", "mask"])
def test_steps_follow_weights(prob):
    import dgl

    ends = torch.zeros(5, dtype=torch.int64), torch.arange(5)
    g = dgl.heterograph({("a", "x", "b"): ends, ("b", "y", "a"): ends[::-1]})
    g.edges["x"].data["weight"] = torch.tensor([1.0, 0, 2, 3, 0.5])
    g.edges["x"].data["mask"] = g.edges["x"].data["weight"] > 0
    dgl.seed(1)
    starts = torch.zeros(4000, dtype=torch.int64)
    traces, _ = ours.random_walk(g, starts, metapath=["x", "y", "x"], prob=prob)
    weights = g.edges["x"].data[prob].double().numpy()
    for step in (1, 3):
        counts = np.bincount(traces[:, step].numpy(), minlength=5)
        assert counts[1] == 0
        assert p_expected(np.delete(counts, 1), np.delete(weights, 1)) > LEVEL
    both = np.bincount((traces[:, 1] * 5 + traces[:, 3]).numpy(), minlength=25)
    chances = np.outer(weights, weights).ravel()
    assert p_expected(both[chances > 0], chances[chances > 0]) > LEVEL


def test_uniform_steps_are_equally_likely():
    import dgl

    g = dgl.graph((torch.arange(6).repeat_interleave(6), torch.arange(6).repeat(6)))
    dgl.seed(2)
    traces, _ = ours.random_walk(g, torch.zeros(6000, dtype=torch.int64), length=2)
    assert p_equal(np.bincount((traces[:, 1] * 6 + traces[:, 2]).numpy(), minlength=36)) > LEVEL


@pytest.mark.parametrize("each", [False, True])
def test_walks_end_as_often_as_asked(shop, each):
    import dgl

    g = dgl.graph(([0, 1], [1, 0]))
    probability = torch.tensor([0.2, 0, 0.5, 1, 0.3]) if each else 0.3
    dgl.seed(3)
    traces, edges, _ = ours.random_walk(
        g, torch.zeros(5000, dtype=torch.int64), length=5, restart_prob=probability, return_eids=True
    )
    assert torch.equal(traces[:, 1:] >= 0, edges >= 0)
    lengths = np.bincount((edges >= 0).sum(1).numpy(), minlength=6)
    stops = np.append(probability.double().numpy() if each else np.full(5, 0.3), 1.0)
    expected = stops * np.append(1, np.cumprod(1 - stops[:-1]))
    assert lengths[expected == 0].sum() == 0
    assert p_expected(lengths[expected > 0], expected[expected > 0]) > LEVEL


def test_metapaths_end_before_the_step(shop):
    dead = torch.tensor([0.0, 0, 0, 1, 0, 0])
    traces, _ = ours.random_walk(shop, torch.arange(30), metapath=PATH, restart_prob=dead)
    assert (traces[:, 4:] == -1).all()
    assert (traces[:, 3] >= 0).any()


@pytest.mark.parametrize("weighted", [False, True])
def test_node2vec_has_its_law(weighted):
    import dgl

    # Of an undirected graph: from 0 to 1, then back (1/p), to 2 which 0 knows (1), or to 3 or 4 (1/q).
    pairs = torch.tensor([[0, 1], [0, 2], [1, 2], [1, 3], [1, 4], [3, 4]])
    ends = torch.cat([pairs, pairs.flip(1)])
    g = dgl.graph((ends[:, 0], ends[:, 1]))
    weight = torch.ones(12)
    if weighted:
        weight[(ends == torch.tensor([1, 3])).all(1)] = 3.0
    g.edata["w"] = weight
    p, q = 2.0, 0.5
    dgl.seed(4)
    traces, edges = ours.node2vec_random_walk(
        g, torch.zeros(8000, dtype=torch.int64), p, q, 2, prob="w" if weighted else None, return_eids=True
    )
    check(g, traces, edges, [g.canonical_etypes[0]] * 2)
    after = traces[traces[:, 1] == 1, 2].numpy()
    expected = np.array([1 / p, 1, (3 if weighted else 1) / q, 1 / q])
    assert p_expected(np.bincount(after, minlength=5)[[0, 2, 3, 4]], expected) > LEVEL


def test_node2vec_is_formed_as_dgls(g):
    import dgl

    nodes = torch.arange(60, dtype=g.idtype)
    made, theirs = (
        package.node2vec_random_walk(g, nodes, 2, 0.5, 6, prob="weight", return_eids=True)
        for package in (ours, dgl.sampling)
    )
    assert shape_of(made) == shape_of(theirs)
    check(g, *made, [g.canonical_etypes[0]] * 6)
    assert isinstance(ours.node2vec_random_walk(g, nodes, 2, 0.5, 6), torch.Tensor)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_packed_traces_are_dgls(shop, dtype):
    import dgl

    traces, types = ours.random_walk(shop, torch.arange(30), metapath=PATH, restart_prob=0.3)
    made, theirs = (package.pack_traces(traces.to(dtype), types.to(dtype)) for package in (ours, dgl.sampling))
    assert (traces < 0).any()
    for mine, their in zip(made, theirs, strict=True):
        assert mine.dtype == their.dtype
        assert torch.equal(mine, their)


def test_dgls_seed_decides(g, shop):
    import dgl

    for walk in (
        lambda: ours.random_walk(g, torch.arange(60), length=9)[0],
        lambda: ours.random_walk(shop, torch.arange(30), metapath=PATH, restart_prob=torch.full((6,), 0.2))[0],
        lambda: ours.node2vec_random_walk(g, torch.arange(60), 2, 0.5, 9),
    ):
        drawn = []
        for seed in (1, 1, 2):
            dgl.seed(seed)
            drawn.append(walk())
        assert torch.equal(drawn[0], drawn[1])
        assert not torch.equal(drawn[0], drawn[2])


def test_no_steps_and_no_walkers_are_possible(g):
    traces, types = ours.random_walk(g, [3, 4], length=0)
    assert traces.tolist() == [[3], [4]]
    assert types.tolist() == [0]
    assert ours.random_walk(g, torch.empty(0, dtype=g.idtype), length=4)[0].shape == (0, 5)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "a metapath or a length, and neither is given"),
        ({"length": 2, "metapath": ["_E"]}, ValueError, "and both are given"),
        ({"length": -1}, ValueError, "length is -1"),
        ({"metapath": "_E"}, TypeError, "metapath is '_E'; it must be a list"),
        ({"metapath": ["other"]}, ValueError, "metapath names 'other'"),
        ({"length": 2, "restart_prob": 1.0}, ValueError, r"restart_prob is 1.0; it must be in \[0, 1\)"),
        ({"length": 2, "restart_prob": torch.rand(3)}, ValueError, r"it must be \[2\], one for each step"),
        ({"length": 2, "restart_prob": torch.tensor([0, 2.0])}, ValueError, r"restart_prob\[1\] is 2.0"),
        ({"length": 2, "restart_prob": "0.5"}, TypeError, "restart_prob is '0.5'"),
        ({"length": 2, "prob": "nothing"}, ValueError, "prob is 'nothing'"),
    ],
)
def test_bad_walks_are_refused(g, options, error, message):
    with pytest.raises(error, match=message):
        ours.random_walk(g, [1], **options)


def test_walks_that_do_not_fit_are_refused(g, shop):
    with pytest.raises(ValueError, match="a walk by length needs a graph with one"):
        ours.random_walk(shop, [1], length=2)
    with pytest.raises(ValueError, match="step 0 ends at 'item', where the next one does not begin"):
        ours.random_walk(shop, [1], metapath=["bought", "follows"])
    with pytest.raises(ValueError, match="nodes holds node 25; valid ids are 0 to 19"):
        ours.random_walk(shop, [25], metapath=["bought_by"])
    with pytest.raises(ValueError, match="node2vec_random_walk walks in graphs with one"):
        ours.node2vec_random_walk(shop, [1], 1, 1, 3)
    with pytest.raises(ValueError, match="traces has 3 columns and types 2 entries"):
        ours.pack_traces(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"traces is .*; it must be a tensor of int32 or int64"):
        ours.pack_traces([[1]], torch.zeros(1, dtype=torch.int64))

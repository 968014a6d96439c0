"""`sample_neighbors`, `sample_neighbors_biased` and `sample_labors`, beside DGL's and as laws."""

import numpy as np
import pytest
import torch
from dgl_edges import edge_ids
from marks import needs_dgl
from statistics_of_counts import LEVEL, p_equal, p_equal_subsets, p_expected

from loader.dgl import sampling as ours

pytestmark = needs_dgl


def counts_of(made, width):
    """How often each of the first `width` nodes was picked."""
    return np.bincount(made.edges()[0].numpy(), minlength=width)


@pytest.mark.parametrize("edge_dir", ["in", "out"])
@pytest.mark.parametrize("prob", [None, "weight", "mask"])
def test_all_neighbors_are_dgls(g, edge_dir, prob):
    import dgl

    g.edata["weight"][::3] = 0
    g.edata["mask"] = g.edata["weight"] > 0.5
    nodes = torch.tensor([7, 0, 59, 7, 30], dtype=g.idtype)  # one of them twice
    made, theirs = (
        package.sample_neighbors(g, nodes, -1, edge_dir=edge_dir, prob=prob) for package in (ours, dgl.sampling)
    )
    assert edge_ids(made) == edge_ids(theirs)
    assert made.idtype == theirs.idtype == g.idtype
    for mine, their in zip(made.edges(order="eid"), g.find_edges(made.edata[dgl.EID]), strict=True):
        assert torch.equal(mine, their)
    assert made.ndata.keys() == theirs.ndata.keys()
    assert made.edata.keys() == theirs.edata.keys()
    assert torch.equal(made.edata["kind"], g.edata["kind"][made.edata[dgl.EID].long()])
    assert torch.equal(made.ndata["feat"], g.ndata["feat"])


@pytest.mark.parametrize("formats", ["coo", "csc"])
def test_restricted_graphs_are_sampled(g, formats):
    import dgl

    nodes = torch.arange(0, 60, 7, dtype=g.idtype)
    made = ours.sample_neighbors(g.formats(formats), nodes, -1)
    assert edge_ids(made) == edge_ids(dgl.sampling.sample_neighbors(g, nodes, -1))


@pytest.mark.parametrize("edge_dir", ["in", "out"])
def test_of_several_types_all_neighbors_are_dgls(shop, edge_dir):
    import dgl

    nodes = {"user": [3, 8, 0], "item": 5}
    fanouts = {"follows": -1, ("user", "bought", "item"): -1, "bought_by": 0}
    made, theirs = (
        package.sample_neighbors(shop, nodes, fanouts, edge_dir=edge_dir, prob="mask")
        for package in (ours, dgl.sampling)
    )
    assert made.ntypes == theirs.ntypes
    assert made.canonical_etypes == theirs.canonical_etypes
    for key in shop.canonical_etypes:
        assert edge_ids(made[key]) == edge_ids(theirs[key])
        assert made[key].edata.keys() == theirs[key].edata.keys()
    assert made["bought_by"].num_edges() == 0
    assert made["bought"].num_edges() > 0
    assert torch.equal(made.nodes["user"].data["feat"], shop.nodes["user"].data["feat"])


def test_features_are_left_out_if_asked(g):
    import dgl

    made, theirs = (
        package.sample_neighbors(g, [1, 2], 3, copy_ndata=False, copy_edata=False) for package in (ours, dgl.sampling)
    )
    assert made.ndata.keys() == theirs.ndata.keys() == set()
    assert made.edata.keys() == theirs.edata.keys() == set()


def test_nodes_of_the_result_may_be_changed_alone(g):
    made = ours.sample_neighbors(g, [1, 2], 3)
    made.ndata["new"] = torch.zeros(60)
    del made.ndata["feat"]
    assert "new" not in g.ndata
    assert "feat" in g.ndata


@pytest.mark.parametrize("replace", [False, True])
def test_picks_are_as_many_as_asked(g, replace):
    nodes = torch.arange(60)
    made = ours.sample_neighbors(g, nodes, 4, replace=replace)
    degrees = g.in_degrees(nodes.to(g.idtype))
    wanted = torch.where(degrees > 0, 4, 0) if replace else degrees.clamp(max=4)
    assert torch.equal(made.in_degrees(), wanted.to(made.in_degrees()))
    assert replace or len(set(edge_ids(made))) == made.num_edges()


def test_uniform_picks_are_equally_likely(full):
    import dgl

    g = full(10, 3000)
    dgl.seed(1)
    made = ours.sample_neighbors(g, torch.arange(10, 3010), 3)
    assert p_equal_subsets(counts_of(made, 10)[:10], 3) > LEVEL
    assert made.num_edges() == 9000


@pytest.mark.parametrize("mask", [False, True])
def test_weighted_picks_follow_weights(full, mask):
    import dgl

    g = full(6, 4000)
    weights = torch.tensor([1.0, 0, 1, 1, 0, 1] if mask else [1.0, 2, 0, 3, 0.5, 4])
    g.edata["w"] = (weights.bool() if mask else weights).repeat(4000)
    dgl.seed(2)
    made = ours.sample_neighbors(g, torch.arange(6, 4006), 1, prob="w")
    counts, chances = counts_of(made, 6)[:6], weights.double().numpy()
    assert counts[chances == 0].sum() == 0
    assert p_expected(counts[chances > 0], chances[chances > 0]) > LEVEL


def test_copies_of_a_node_pick_independently(full):
    import dgl

    g = full(5, 1)
    dgl.seed(3)
    made = ours.sample_neighbors(g, torch.full((600,), 5), 1)
    picks = made.edges()[0].numpy()
    assert p_equal(np.bincount(picks[::2] * 5 + picks[1::2], minlength=25)) > LEVEL


def test_edges_follow_the_order_of_nodes(g):
    nodes = torch.tensor([9, 3, 9, 1, 3])
    made = ours.sample_neighbors(g, nodes, 2, replace=True)
    assert g.in_degrees(nodes.to(g.idtype)).min() > 0
    assert made.edges(order="eid")[1].tolist() == nodes.repeat_interleave(2).tolist()


def test_edge_types_pick_independently():
    import dgl

    ends = torch.arange(4).repeat(2000), torch.arange(2000).repeat_interleave(4)
    g = dgl.heterograph({("a", "x", "b"): ends, ("a", "y", "b"): ends})
    dgl.seed(4)
    made = ours.sample_neighbors(g, {"b": torch.arange(2000)}, 1)
    both = made["x"].edges(order="eid")[0] * 4 + made["y"].edges(order="eid")[0]
    assert p_equal(np.bincount(both.numpy(), minlength=16)) > LEVEL


@pytest.mark.parametrize("weighted", [False, True])
def test_excluded_edges_are_not_picked(full, weighted):
    import dgl

    g = full(8, 2000)
    g.edata["w"] = torch.tensor([1.0, 2, 1, 2, 1, 2, 1, 2]).repeat(2000)
    gone = (torch.arange(2000) * 8)[:, None] + torch.tensor([1, 4])
    dgl.seed(5)
    made = ours.sample_neighbors(
        g, torch.arange(8, 2008), 1, prob="w" if weighted else None, exclude_edges=gone.view(-1)
    )
    counts = np.delete(counts_of(made, 8)[:8], [1, 4])
    assert counts.sum() == 2000
    assert p_expected(counts, np.array([1.0, 1, 2, 2, 1, 2]) if weighted else np.ones(6)) > LEVEL


@pytest.mark.parametrize("edge_dir", ["in", "out"])
def test_of_several_types_excluded_edges_are_missing(shop, edge_dir):
    nodes, gone = {"item": torch.arange(20), "user": torch.arange(30)}, {"bought": torch.arange(0, 120, 5)}
    made = ours.sample_neighbors(shop, nodes, -1, edge_dir=edge_dir, exclude_edges=gone)
    assert edge_ids(made["bought"]) == sorted(set(range(120)) - set(range(0, 120, 5)))
    assert edge_ids(made["bought_by"]) == list(range(120))


def test_dgls_seed_decides(g):
    import dgl

    drawn = []
    for seed in (1, 1, 2):
        dgl.seed(seed)
        drawn.append([edge_ids(ours.sample_neighbors(g, torch.arange(60), 2)) for _ in range(2)])
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][0] != drawn[0][1]


def test_written_weights_are_seen(full):
    g = full(3, 50)
    g.edata["w"] = torch.tensor([1.0, 0, 0]).repeat(50)
    assert counts_of(ours.sample_neighbors(g, torch.arange(3, 53), 1, prob="w"), 3)[:3].tolist() == [50, 0, 0]
    g.edata["w"].copy_(torch.tensor([0.0, 0, 1]).repeat(50))
    assert counts_of(ours.sample_neighbors(g, torch.arange(3, 53), 1, prob="w"), 3)[:3].tolist() == [0, 0, 50]


def test_large_fanouts_take_all(full):
    g = full(1500, 1)
    assert ours.sample_neighbors(g, [1500], 1600).num_edges() == 1500
    with pytest.raises(ValueError, match="fanout is 1400, and node 1500 has 1500 neighbors"):
        ours.sample_neighbors(g, [1500], 1400)
    with pytest.raises(ValueError, match="up to 1024 can be picked"):
        ours.sample_neighbors(g, [1500], 1600, replace=True)


@pytest.mark.parametrize("edge_dir", ["in", "out"])
@pytest.mark.parametrize("fanout", [-1, 1])
def test_biased_picks_follow_tags(edge_dir, fanout):
    import dgl

    ends = torch.arange(6).repeat(3000), torch.arange(3000).repeat_interleave(6)
    g = dgl.heterograph({("a", "x", "b"): ends if edge_dir == "in" else ends[::-1]}, {"a": 3000, "b": 3000})
    tags = torch.zeros(3000, dtype=torch.int64)
    tags[:6] = torch.tensor([0, 1, 2, 2, 1, 2])
    sort = dgl.sort_csc_by_tag if edge_dir == "in" else dgl.sort_csr_by_tag
    g = sort(g, tags)
    bias = torch.tensor([4.0, 0, 1])
    dgl.seed(6)
    made, theirs = (
        package.sample_neighbors_biased(g, torch.arange(3000), fanout, bias, edge_dir=edge_dir)
        for package in (ours, dgl.sampling)
    )
    counts = np.bincount(made.edges()[0 if edge_dir == "in" else 1].numpy(), minlength=6)
    if fanout < 0:
        assert edge_ids(made) == edge_ids(theirs)
        assert counts.tolist() == [3000, 0, 3000, 3000, 0, 3000]
    else:
        assert counts[[1, 4]].sum() == 0
        assert p_expected(counts[[0, 2, 3, 5]], np.array([4.0, 1, 1, 1])) > LEVEL
        assert made.num_edges() == theirs.num_edges() == 3000


def test_another_bias_is_seen(full):
    import dgl

    g = dgl.sort_csc_by_tag(full(2, 40), torch.tensor([0, 1, *[0] * 40]))
    for bias, picked in (([1.0, 0], [40, 0]), ([0.0, 1], [0, 40])):
        made = ours.sample_neighbors_biased(g, torch.arange(2, 42), 1, torch.tensor(bias))
        assert counts_of(made, 2)[:2].tolist() == picked


@pytest.mark.parametrize("edge_dir", ["in", "out"])
def test_labor_takes_all_if_asked(g, edge_dir):
    import dgl

    (made, weights), (theirs, their_weights) = (
        package.sample_labors(g, [4, 8, 15], -1, edge_dir=edge_dir) for package in (ours, dgl.sampling)
    )
    assert edge_ids(made) == edge_ids(theirs)
    assert [(w.dtype, w.shape) for w in weights] == [(w.dtype, w.shape) for w in their_weights]


def test_labor_picks_as_many_on_average(full):
    import dgl

    g = full(2000, 2)
    dgl.seed(7)
    made, _ = ours.sample_labors(g, [2000, 2001], 500)
    first, second = (made.in_edges(node)[0].sort().values for node in (2000, 2001))
    assert torch.equal(first, second)  # a neighbor has one number
    assert abs(len(first) - 500) < 6 * (2000 * 0.25 * 0.75) ** 0.5


def test_labors_random_seed_decides(shop):
    seed = torch.tensor([5])
    nodes = {"item": torch.arange(20)}
    made, again, other = (ours.sample_labors(shop, nodes, 2, random_seed=s)[0] for s in (seed, seed, seed + 1))
    assert edge_ids(made["bought"]) == edge_ids(again["bought"]) != edge_ids(other["bought"])


def test_labors_numbers_hold_for_all_edge_types():
    import dgl

    ends = torch.arange(500), torch.zeros(500, dtype=torch.int64)
    g = dgl.heterograph({("a", "x", "b"): ends, ("a", "y", "b"): ends})
    made, _ = ours.sample_labors(g, {"b": [0]}, 100)
    assert edge_ids(made["x"]) == edge_ids(made["y"])
    assert 40 < made["x"].num_edges() < 160


def test_labors_excluded_edges_are_missing(shop):
    gone = torch.arange(0, 120, 3)
    made, _ = ours.sample_labors(shop, {"item": torch.arange(20)}, -1, exclude_edges={"bought": gone})
    assert edge_ids(made["bought"]) == sorted(set(range(120)) - set(gone.tolist()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 60], 2), "nodes holds node 60; valid ids are 0 to 59"),
        (([-1], 2), "nodes holds node -1"),
        (([1], -2), "fanout is -2; it must be at least 0, or -1 for all"),
        (([1], 2, "both"), "edge_dir is 'both'; it must be 'in' or 'out'"),
        (([1], 2, "in", "nothing"), "prob is 'nothing'; the edges of the graph have"),
        (([1], 2, "in", "pairs"), r"prob is 'pairs', which has shape \[300, 2\]"),
        (([1], {"other": 2}), "fanout names 'other'"),
        (({"other": [1]}, 2), "nodes names the node type 'other'"),
        (({}, 2), "nodes is an empty dict"),
        (([[1]], 2), "nodes has 2 dimensions"),
    ],
)
def test_bad_input_is_refused(g, arguments, message):
    import dgl

    g.edata["pairs"] = torch.rand(300, 2)
    with pytest.raises(ValueError, match=message) as caught:
        ours.sample_neighbors(g, *arguments)
    assert isinstance(caught.value, dgl.DGLError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(([1], 2.5), "fanout is 2.5; it must be an integer"), (([1], 2, "in", 3), "prob is 3; it must be the name")],
)
def test_bad_types_are_refused(g, arguments, message):
    with pytest.raises(TypeError, match=message):
        ours.sample_neighbors(g, *arguments)


def test_missing_parts_of_several_types_are_refused(shop):
    with pytest.raises(TypeError, match="nodes must be given by type"):
        ours.sample_neighbors(shop, [1], 2)
    with pytest.raises(ValueError, match="fanout has none for the edge type"):
        ours.sample_neighbors(shop, {"user": [1]}, {"bought": 2})


def test_unsorted_graphs_and_other_biases_are_refused(g, shop):
    import dgl

    with pytest.raises(ValueError, match=r"call dgl\.sort_csc_by_tag first"):
        ours.sample_neighbors_biased(g, [1], 2, [1.0])
    with pytest.raises(ValueError, match="tags need a graph with one"):
        ours.sample_neighbors_biased(shop, {"user": [1]}, 2, [1.0])
    tagged = dgl.sort_csc_by_tag(g, torch.arange(60) % 3)
    with pytest.raises(ValueError, match=r"bias has shape \[2\], and the graph is sorted by 3 tags"):
        ours.sample_neighbors_biased(tagged, [1], 2, [1.0, 2])


def test_other_forms_of_labor_are_refused(g):
    with pytest.raises(NotImplementedError, match="sample_labors does not know seed2_contribution="):
        ours.sample_labors(g, [1], 2, seed2_contribution=0.5)
    with pytest.raises(TypeError, match=r"importance_sampling is 0.5; it must be an integer"):
        ours.sample_labors(g, [1], 2, importance_sampling=0.5)

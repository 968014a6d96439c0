"""Neighbors that walks visit most often, beside DGL's."""

import pytest
import torch
from marks import needs_dgl

from loader.dgl import sampling as ours
from loader.dgl.sampling.pinsage import most_visited

pytestmark = needs_dgl


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_most_visited_are_dgls(dtype):
    from dgl.sampling.pinsage import _select_pinsage_neighbors

    visits = torch.randint(-1, 9, (40, 24), generator=torch.Generator().manual_seed(1)).to(dtype)
    visits[3] = -1
    rows, nodes, counts = most_visited(visits, 5)
    seeds = torch.arange(100, 140, dtype=dtype)
    theirs = _select_pinsage_neighbors(visits.reshape(-1).clone(), seeds.repeat_interleave(24), 24, 5)
    for mine, their in zip((nodes, seeds[rows], counts), theirs, strict=True):
        assert torch.equal(mine, their.to(mine.dtype))


def test_neighbors_are_formed_as_dgls(shop):
    import dgl

    made, theirs = (
        package.PinSAGESampler(shop, "item", "user", 3, 0.5, 20, 4)(torch.tensor([1, 5, 1]))
        for package in (ours, dgl.sampling)
    )
    assert made.canonical_etypes == theirs.canonical_etypes == [("item", "_E", "item")]
    assert made.num_nodes() == theirs.num_nodes() == 20
    assert made.edata["weights"].dtype == theirs.edata["weights"].dtype
    assert set(made.edges()[1].tolist()) <= {1, 5}
    assert made.in_degrees(5) <= 4


def test_neighbors_are_those_that_walks_reach():
    import dgl

    g = dgl.heterograph(
        {("a", "ab", "b"): ([0, 1, 2, 3], [0, 0, 1, 1]), ("b", "ba", "a"): ([0, 0, 1, 1], [0, 1, 2, 3])}
    )
    made = ours.RandomWalkNeighborSampler(g, 2, 0.0, 50, 9, ["ab", "ba"], weight_column="visits")([0, 3])
    assert sorted(zip(*(part.tolist() for part in made.edges()), strict=True)) == [(0, 0), (1, 0), (2, 3), (3, 3)]
    assert made.edata["visits"].sum() == 200  # two nodes, 50 walks of two traversals


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_walks_end_between_traversals_only(probability):
    import dgl

    g = dgl.graph(([0, 1], [1, 0]))
    dgl.seed(1)
    made = ours.RandomWalkNeighborSampler(g, 3, probability, 2000, 5)([0])
    visits = int(made.edata["weights"].sum())
    assert visits >= 2000
    expected = 2000 * (1 + (1 - probability) + (1 - probability) ** 2)
    assert abs(visits - expected) < 6 * (2000 * 1.0) ** 0.5


def test_dgls_seed_decides(shop):
    import dgl

    sampler = ours.PinSAGESampler(shop, "item", "user", 3, 0.5, 5, 4)
    drawn = []
    for seed in (1, 1, 2):
        dgl.seed(seed)
        drawn.append([part.tolist() for part in sampler(torch.arange(20)).edges()])
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, 0.5, 3, 4), "metapath is None, but the graph has the edge types"),
        ((2, 0.5, 3, 4, ["bought"]), "metapath begins at 'user' and ends at 'item'"),
        ((2, 1.5, 3, 4, ["follows"]), r"termination_prob is 1.5; it must be in \[0, 1\]"),
        ((0, 0.5, 3, 4, ["follows"]), "num_traversals is 0"),
        ((2, 0.5, 3, 0, ["follows"]), "num_neighbors is 0"),
    ],
)
def test_bad_samplers_are_refused(shop, arguments, message):
    with pytest.raises(ValueError, match=message):
        ours.RandomWalkNeighborSampler(shop, *arguments)


def test_node_types_without_edges_are_refused(shop):
    with pytest.raises(ValueError, match="no edge type leads from 'item' to 'item'"):
        ours.PinSAGESampler(shop, "item", "item", 3, 0.5, 5, 4)

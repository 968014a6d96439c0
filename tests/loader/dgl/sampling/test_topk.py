"""`select_topk`, beside DGL's."""

import pytest
import torch
from dgl_edges import edge_ids
from marks import needs_dgl

from loader.dgl import sampling as ours

pytestmark = needs_dgl


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("edge_dir", ["in", "out"])
@pytest.mark.parametrize("k", [-1, 0, 1, 3, 5000])
def test_edges_are_dgls(g, ascending, edge_dir, k):
    import dgl

    g.edata["w"] = torch.randn(300)
    for nodes in (None, torch.tensor([5, 5, 59, 0], dtype=g.idtype)):
        made, theirs = (
            package.select_topk(g, k, "w", nodes, edge_dir=edge_dir, ascending=ascending)
            for package in (ours, dgl.sampling)
        )
        assert edge_ids(made) == edge_ids(theirs)
        assert made.edata.keys() == theirs.edata.keys()


def test_integers_are_weights(g):
    import dgl

    g.edata["w"] = torch.randperm(300) - 150
    made, theirs = (package.select_topk(g, 2, "w") for package in (ours, dgl.sampling))
    assert edge_ids(made) == edge_ids(theirs)


def test_of_several_types_edges_are_dgls(shop):
    import dgl

    for key in shop.canonical_etypes:
        shop.edges[key].data["w"] = torch.randn(shop.num_edges(key))
    k = {"follows": 2, "bought": 1, "bought_by": -1}
    made, theirs = (package.select_topk(shop, k, "w", {"user": [1, 2]}) for package in (ours, dgl.sampling))
    for key in shop.canonical_etypes:
        assert edge_ids(made[key]) == edge_ids(theirs[key])


def test_of_equal_weights_the_lowest_ids_come_first():
    import dgl

    g = dgl.graph((torch.zeros(6, dtype=torch.int64), torch.ones(6, dtype=torch.int64)))
    g.edata["w"] = torch.tensor([1.0, 2, 2, 1, 2, 1])
    assert ours.select_topk(g, 2, "w").edata[dgl.EID].tolist() == [1, 2]
    assert ours.select_topk(g, 2, "w", ascending=True).edata[dgl.EID].tolist() == [0, 3]


def test_written_weights_are_seen(g):
    import dgl

    for _ in range(2):
        g.edata["weight"].copy_(torch.rand(300))
        made, theirs = (package.select_topk(g, 1, "weight") for package in (ours, dgl.sampling))
        assert edge_ids(made) == edge_ids(theirs)


def test_bad_weights_are_refused(g, shop):
    with pytest.raises(ValueError, match="weight is 'w'; the edges of the graph have"):
        ours.select_topk(g, 1, "w")
    with pytest.raises(ValueError, match=r"weight is 'weight', which the edge type .* does not have"):
        ours.select_topk(shop, 1, "weight")
    g.edata["w"] = torch.ones(300)
    g.edata["w"][17] = torch.nan
    with pytest.raises(ValueError, match="the weight of edge 17 is nan"):
        ours.select_topk(g, 1, "w")
    with pytest.raises(ValueError, match="k is -3; it must be at least 0"):
        ours.select_topk(g, -3, "weight")

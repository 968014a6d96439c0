"""`sample_labors` and `LaborSampler` by weights and by importance, beside DGL's own."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from dgl_edges import edge_ids
from marks import needs_dgl

import loader.dgl
from loader.dgl import sampling as ours
from loader.dgl.sampling.neighbors import labor_weights

pytestmark = needs_dgl
WAYS = [
    {"prob": "weight"},
    {"importance_sampling": 1},
    {"importance_sampling": -1},
    {"prob": "weight", "importance_sampling": 1},
    {"prob": "weight", "importance_sampling": -1},
]
ways = pytest.mark.parametrize("how", WAYS, ids=str)


def theirs() -> Any:
    from dgl.sampling.labor import sample_labors

    return sample_labors


def in_order(g: Any, edge_dir: str = "in") -> Any:
    """A graph whose edges are numbered as its lists have them; of others DGL 1.1.3 takes the weights of wrong edges."""
    import dgl

    own, other = g.edges()[::-1] if edge_dir == "in" else g.edges()
    order = torch.argsort(own.long() * g.num_nodes() + other.long())
    made = dgl.graph(tuple(end[order] for end in g.edges()), num_nodes=g.num_nodes(), idtype=g.idtype)
    # DGL's iteration ends before edges of very small weights are sure.
    made.edata["weight"] = 0.1 + torch.rand(g.num_edges(), generator=torch.Generator().manual_seed(5)) ** 2
    return made


@pytest.mark.parametrize("edge_dir", ["in", "out"])
@pytest.mark.parametrize("how", [{"importance_sampling": 0}, *WAYS], ids=str)
def test_all_are_taken_if_asked(g, how, edge_dir) -> None:
    import dgl

    dgl.seed(1)
    g = in_order(g, edge_dir)
    for fanout in (-1, 0):
        (made, found), (their, weights) = (
            f(g, [4, 8, 15], fanout, edge_dir=edge_dir, **how) for f in (ours.sample_labors, theirs())
        )
        assert edge_ids(made) == edge_ids(their)
        assert [w.dtype for w in found] == [w.dtype for w in weights]
        assert [len(w) for w in found] == [len(w) for w in weights]
        by_id = [w[0][of.edata[dgl.EID].argsort()] for w, of in ((found, made), (weights, their)) if len(w[0])]
        assert not by_id or torch.allclose(*by_id, rtol=1e-3)
    whole, weights = ours.sample_labors(g, [4, 8, 15], -1, edge_dir=edge_dir, **how)
    long, same = ours.sample_labors(g, [4, 8, 15], 200, edge_dir=edge_dir, **how)
    assert torch.equal(long.edata[dgl.EID], whole.edata[dgl.EID])
    assert torch.equal(weights[0], same[0])
    assert long.edata[dgl.EID].dtype == g.idtype


@ways
def test_edges_are_picked_as_often_as_by_dgl(g, how) -> None:
    import dgl

    dgl.seed(3)
    g = in_order(g)
    rounds, nodes, counts = 1500, torch.arange(0, 60, 4, dtype=g.idtype), np.zeros((2, 300))
    for number, sample in enumerate((ours.sample_labors, theirs())):
        for _ in range(rounds):
            counts[number, sample(g, nodes, 2, **how)[0].edata[dgl.EID].long().numpy()] += 1
    share = counts.sum(0) / (2 * rounds)
    some = (share > 0) & (share < 1)
    z = (counts[0] - counts[1])[some] / np.sqrt(2 * rounds * (share * (1 - share))[some])
    assert some.sum() > 20
    assert np.abs(z).max() < 4.5
    assert (counts[:, share == 1] == rounds).all()


def test_weights_belong_to_the_edges_of_their_ids(g) -> None:
    import dgl

    made, (weights,) = ours.sample_labors(g, torch.arange(60), -1, prob="weight")
    ids = made.edata[dgl.EID].long()
    assert ids.tolist() != sorted(ids.tolist())
    _, targets = made.edges(order="eid")
    sums = torch.zeros(60).index_add(0, targets.long(), g.edata["weight"][ids])
    expected = g.edata["weight"][ids] * (made.in_degrees() / sums)[targets.long()]
    assert torch.allclose(weights, expected)


@ways
def test_weights_have_a_mean_of_one(g, how) -> None:
    import dgl

    for seed in range(5):
        made, (weights,) = ours.sample_labors(g, torch.arange(60), 2, random_seed=torch.tensor([seed]), **how)
        _, targets = made.edges(order="eid")
        sums = torch.zeros(60).index_add(0, targets.long(), weights.float())
        assert torch.allclose(sums, made.in_degrees().float(), rtol=1e-4)
        again = ours.sample_labors(g, torch.arange(60), 2, random_seed=torch.tensor([seed]), **how)
        assert torch.equal(again[0].edata[dgl.EID], made.edata[dgl.EID])
        assert torch.equal(again[1][0], weights)


def test_weights_of_zero_are_no_edges(full) -> None:
    g = full(5, 200)
    for dtype in (torch.float32, torch.float64):
        g.edata["w"] = torch.tensor([1.0, 0, 3, 0, 2], dtype=dtype).repeat(200)
        made, (weights,) = ours.sample_labors(g, torch.arange(5, 205), 3, prob="w")
        assert made.edges()[0].unique().tolist() == [0, 2, 4]
        assert made.num_edges() == 600
        assert weights.dtype == dtype
    g.edata["mask"] = g.edata["w"] > 0
    assert ours.sample_labors(g, torch.arange(5, 205), -1, prob="mask")[0].num_edges() == 600


def test_bad_weights_are_refused(full) -> None:
    g = full(5, 2)
    g.edata["w"] = torch.tensor([1.0, -2, 3, 0, 2]).repeat(2)
    with pytest.raises(ValueError, match="-2"):
        ours.sample_labors(g, [5], 3, prob="w")


def test_edge_types_share_numbers_with_and_without_weights() -> None:
    import dgl

    ends = torch.arange(500), torch.zeros(500, dtype=torch.int64)
    g = dgl.heterograph({("a", "x", "b"): ends, ("a", "y", "b"): ends, ("a", "z", "b"): ends})
    g.edges["x"].data["w"] = torch.full((500,), 0.5)
    made, weights = ours.sample_labors(g, {"b": [0]}, {"x": 100, "y": 100, "z": 0}, prob="w")
    assert edge_ids(made["x"]) == edge_ids(made["y"])
    assert made["z"].num_edges() == 0
    assert [len(w) for w in weights] == [made["x"].num_edges(), 0, 0]


def test_excluded_edges_lose_their_weights(shop) -> None:
    import dgl

    gone, nodes = torch.arange(0, 120, 3), {"item": torch.arange(20)}
    made, weights = ours.sample_labors(shop, nodes, -1, prob="weight", exclude_edges={"bought": gone})
    assert edge_ids(made["bought"]) == sorted(set(range(120)) - set(gone.tolist()))
    of = dict(zip(shop.canonical_etypes, weights, strict=True))
    assert len(of["user", "bought", "item"]) == made["bought"].num_edges()
    assert dgl.EID in made["bought"].edata


@ways
@pytest.mark.parametrize("layer_dependency", [False, True])
def test_loaders_give_blocks_with_weights(g, how, layer_dependency) -> None:
    import dgl

    sampler = loader.dgl.LaborSampler([4, 2], layer_dependency=layer_dependency, prefetch_node_feats=["feat"], **how)
    options = {"batch_size": 16, "shuffle": True, "seed": 1}
    made = loader.dgl.DataLoader(g, torch.arange(60, dtype=g.idtype), sampler, **options)
    batches = list(made)
    for inputs, outputs, blocks in batches:
        assert torch.equal(blocks[0].srcdata["feat"], g.ndata["feat"][inputs.long()])
        assert torch.equal(blocks[-1].dstdata[dgl.NID], outputs)
        assert torch.equal(blocks[0].dstdata[dgl.NID], blocks[1].srcdata[dgl.NID])
        for block in blocks:
            assert block.srcdata[dgl.NID].unique().numel() == block.num_src_nodes()
            assert block.edata["edge_weights"].sum() == pytest.approx(block.num_edges(), rel=1e-4)
            for end, nodes, ids in zip(
                block.edges(), (block.srcdata[dgl.NID], block.dstdata[dgl.NID]), g.find_edges(block.edata[dgl.EID]),
                strict=True,
            ):  # fmt: skip
                assert torch.equal(nodes[end.long()], ids)
    first = [inputs.tolist() for inputs, _, _ in batches]
    assert [inputs.tolist() for inputs, _, _ in made] != first
    for other in (copy.copy(made), pickle.loads(pickle.dumps(made))):
        other.set_epoch(0)
        assert [inputs.tolist() for inputs, _, _ in other] == first


def test_loaders_take_types(shop) -> None:
    sampler = loader.dgl.LaborSampler([2, 2], prob="weight", importance_sampling=1)
    made = loader.dgl.DataLoader(shop, {"item": torch.arange(20)}, sampler, batch_size=8, seed=2)
    for inputs, outputs, blocks in made:
        assert inputs.keys() == {"user", "item"}
        assert outputs["item"].numel() in (8, 4)
        for key in shop.canonical_etypes:
            assert blocks[1].edges[key].data["edge_weights"].shape == (blocks[1].num_edges(key),)


def test_links_are_sampled_around(g) -> None:
    sampler = loader.dgl.as_edge_prediction_sampler(
        loader.dgl.LaborSampler([3], prob="weight"),
        exclude="self",
        negative_sampler=loader.dgl.negative_sampler.Uniform(2),
    )
    import dgl

    for _, pairs, _, blocks in loader.dgl.DataLoader(g, torch.arange(20, dtype=g.idtype), sampler, batch_size=10):
        asked = set(pairs.edata[dgl.EID].tolist())
        assert not asked & set(blocks[0].edata[dgl.EID].tolist())
        assert blocks[0].edata["edge_weights"].shape == (blocks[0].num_edges(),)


def test_graphs_on_a_gpu_are_refused() -> None:
    on_gpu = SimpleNamespace(device=torch.device("cuda", 0), canonical_etypes=[])
    with pytest.raises(NotImplementedError, match=r"importance_sampling of LABOR needs a graph on the CPU"):
        labor_weights(on_gpu, None, 1)
    assert labor_weights(on_gpu, None, 0) == {}

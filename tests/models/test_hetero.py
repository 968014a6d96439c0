"""Networks for types: torch_geometric's own outputs, types without features, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hetero_datasets import make_hetero
from torch import nn

from loader.loaders import NodeLoader
from loader.samplers import FusedSampler
from loader.samples.hetero import HeteroMiniBatch
from models.hetero import HGT, HeteroNet, ToHetero

pytest.importorskip("torch_geometric")

DATA = make_hetero()
DIMS = {"author": 5, "paper": 0, "term": 3}
EDGES = DATA.graph.edge_types
Make = Callable[[], HeteroNet]
NETS: list[Make] = [
    lambda: ToHetero("graphsage", DIMS, EDGES, "author", 8, 2),
    lambda: ToHetero("gatv2", DIMS, EDGES, "author", 8, 2, heads=2, norm="layer"),
    lambda: HGT(DIMS, EDGES, "author", 8, 2),
]


def batch(fanouts: Any = (3, 3), size: int = 7) -> HeteroMiniBatch:
    seeds = ("author", torch.arange(size))
    loader = NodeLoader(DATA.graph, DATA.features, DATA.labels, seeds, FusedSampler(fanouts), size)
    (found,) = loader
    loader.release()
    assert isinstance(found, HeteroMiniBatch)
    return found


@pytest.mark.parametrize("make", NETS)
def test_outputs_are_those_of_all_edges(make: Make) -> None:
    net = make().eval()
    whole = {name: DATA.features.get(name, torch.ones(len(ids), 1)) for name, ids in DATA.graph.node_types.items()}
    edges = {}
    for key in EDGES:
        one = DATA.graph.relation(key)
        sinks = torch.arange(one.num_dst).repeat_interleave(one.in_degrees().long())
        edges[key] = torch.stack([one.indices.long(), sinks])
    torch.testing.assert_close(net(batch((-1, -1))), net.outputs(whole, edges)[:7], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", NETS)
def test_relations_without_edges_are_possible(make: Make) -> None:
    picks = {key: [2, 2] if key[2] == "paper" else [0, 0] for key in EDGES}
    assert make()(batch(picks)).shape == (7, 2)


def test_to_hetero_is_torch_geometrics() -> None:
    from torch_geometric.nn import to_hetero
    from torch_geometric.nn.models import GraphSAGE

    net = ToHetero("graphsage", DIMS, EDGES, "author", 8, 2).eval()
    theirs = to_hetero(GraphSAGE((-1, -1), 8, 2, 2), (list(DIMS), list(EDGES))).eval()
    sampled = batch().to_pyg()
    x = {**sampled.x_dict, "paper": torch.ones(sampled["paper"].num_nodes, 1)}
    theirs(x, sampled.edge_index_dict)  # which makes its weights
    theirs.load_state_dict(net.net.state_dict())
    torch.testing.assert_close(net(batch()), theirs(x, sampled.edge_index_dict)["author"][:7])


def test_a_type_in_no_relation_is_left_out() -> None:
    net = HGT({**DIMS, "venue": 4}, EDGES, "author", 8, 2)
    assert list(net.in_dims) == ["author", "paper", "term"]
    assert isinstance(net.first, nn.ModuleDict)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ToHetero("gcn", DIMS, EDGES, "author", 8, 2),
            "base is 'gcn'; it must be one of graphsage, gat, gatv2",
        ),
        (
            lambda: ToHetero("graphsage", DIMS, EDGES, "author", 8, 2, heads=2),
            "heads is 2, but graphsage has no attention; leave it out",
        ),
        (lambda: HGT(DIMS, EDGES, "author", 9, 2), "hidden_channels is 9, heads 4; the heads share the width"),
        (lambda: HGT(DIMS, EDGES, "author", 8, 2, dropout=1.0), r"dropout is 1.0; it must be in \[0, 1\)"),
        (
            lambda: HGT(DIMS, EDGES, "author", 8, 2, input_dropout=-1.0),
            r"input_dropout is -1.0; it must be in \[0, 1\)",
        ),
        (
            lambda: HGT(DIMS, EDGES[:3], "author", 8, 2),
            "no relation leads to nodes of type term, so layers have nothing to compute for them; dataset.undirected",
        ),
        (
            lambda: HGT({"a.b": 1}, [("a.b", "to", "a.b")], "a.b", 8, 2),
            "a type is called 'a.b'; a model's weights are named after it",
        ),
        (lambda: HGT(DIMS, EDGES, "author", 8, 2, 3)(batch()), "the mini-batch has 2 hops, the model 3 layers; give"),
        (
            lambda: HGT({**DIMS, "author": 4}, EDGES, "author", 8, 2)(batch()),
            "the mini-batch has 5 features of author, the model reads 4",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: Make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()

"""Embeddings of the ends of links between two types."""

from __future__ import annotations

import pytest
import torch

from loader.graph import HeteroGraph
from loader.samplers import FusedSampler
from models.hetero_links import LinkEncoder

pytest.importorskip("torch_geometric")


@pytest.mark.parametrize("seeds", [{"user": 3}, {"item": 2}])
def test_a_type_without_nodes_has_no_embeddings(seeds) -> None:
    none, sizes = torch.empty((2, 0), dtype=torch.int64), {"user": 5, "item": 4}
    buys = ("user", "buys", "item")
    graph = HeteroGraph.from_edges({buys: none, ("item", "rev_buys", "user"): none}, sizes)
    net = LinkEncoder(
        dict.fromkeys(sizes, 0),
        sizes,
        list(graph.edge_types),
        buys,
        8,
        6,
        1,
        dropout=0.0,
        input_dropout=0.0,
        norm="none",
    )
    batch = FusedSampler([2]).sample(graph, {name: torch.arange(n) for name, n in seeds.items()})
    assert [list(found.shape) for found in net(batch)] == [[seeds.get(name, 0), 6] for name in sizes]

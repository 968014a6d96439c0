"""Heterogeneous graphs of torch_geometric and of DGL as ours."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from hetero_graphs import lists_of, rows_of
from marks import needs_dgl
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from loader.graph import Graph, HeteroGraph, require_graph

SIZES = {"paper": 12, "author": 9, "venue": 2}
KEYS = [("author", "writes", "paper"), ("paper", "cites", "paper"), ("venue", "of", "paper")]


@pytest.fixture
def edges() -> dict[Any, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return {
        key: torch.stack([torch.randint(SIZES[of], (40,), generator=generator) for of in (key[0], key[2])])
        for key in KEYS
    }


def data_of(edges: dict[Any, Tensor]) -> HeteroData:
    data = HeteroData()
    data["paper"].x = torch.rand(12, 3)
    data["author"].num_nodes = 9
    data["venue"].x = torch.rand(2, 1)
    for key, pairs in edges.items():
        data[key].edge_index = pairs
    return data


def test_from_pyg_keeps_types_and_edges(edges: dict[Any, Tensor]) -> None:
    data = data_of(edges)
    graph = HeteroGraph.from_pyg(data)
    assert graph.metadata() == data.metadata()
    assert {name: len(ids) for name, ids in graph.node_types.items()} == SIZES
    assert rows_of(graph.lists) == lists_of(edges, SIZES)
    assert graph.lists.edge_weights is None


def test_from_pyg_keeps_weights_of_some_relations(edges: dict[Any, Tensor]) -> None:
    data = data_of(edges)
    weights = {KEYS[0]: torch.rand(40), KEYS[2]: torch.arange(40)}
    data[KEYS[0]].w, data[KEYS[2]].w = weights[KEYS[0]].view(-1, 1), weights[KEYS[2]]
    graph = HeteroGraph.from_pyg(data, weight_attr="w")
    assert rows_of(graph.lists) == lists_of(edges, SIZES, weights)


def test_from_pyg_keeps_times_of_types_and_relations(edges: dict[Any, Tensor]) -> None:
    data = data_of(edges)
    data["paper"].time, data[KEYS[0]].time = torch.arange(12.0), torch.arange(40).view(-1, 1)
    graph = HeteroGraph.from_pyg(data, time_attr="time")
    assert (graph.timed_types, graph.timed_relations) == (("paper",), (KEYS[0],))
    one = graph.relation(KEYS[0])
    assert torch.equal(one.edge_times, one.edge_ids)
    assert graph.relation(KEYS[1]).node_times.tolist() == list(range(12))


def test_from_pyg_refuses_times_that_are_none(edges: dict[Any, Tensor]) -> None:
    data = data_of(edges)
    data["paper"].time, data["venue"].when = torch.arange(11), torch.tensor([1.5, 2.0])
    with pytest.raises(ValueError, match=r"data\['paper'\]\.time has 11 entries, the type has 12 nodes"):
        HeteroGraph.from_pyg(data, time_attr="time")
    with pytest.raises(ValueError, match=r"data\['venue'\]\.when\[0\] is 1\.5; times are whole"):
        HeteroGraph.from_pyg(data, time_attr="when")
    with pytest.raises(ValueError, match=r"time_attr is 'then', which no type and no relation has; they have .*'time'"):
        HeteroGraph.from_pyg(data, time_attr="then")


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_from_pyg_reads_transposed_matrices(edges: dict[Any, Tensor], layout: torch.layout) -> None:
    data, sorted_edges = data_of(edges), dict(edges)
    for key in KEYS[:2]:
        once = torch.unique(edges[key].flip(0), dim=1)  # row by row, and a row is a destination
        matrix = torch.sparse_coo_tensor(
            once, torch.ones(once.shape[1]), (SIZES[key[2]], SIZES[key[0]]), check_invariants=True
        ).coalesce()
        del data[key].edge_index
        data[key].adj_t = matrix if layout is torch.sparse_coo else matrix.to_sparse_csr()
        sorted_edges[key] = once.flip(0)
    assert rows_of(HeteroGraph.from_pyg(data).lists) == lists_of(sorted_edges, SIZES)


def test_from_pyg_takes_an_edge_index(edges: dict[Any, Tensor]) -> None:
    from torch_geometric import EdgeIndex

    data = data_of(edges)
    data[KEYS[0]].edge_index = EdgeIndex(edges[KEYS[0]], sparse_size=(9, 12))
    graph = HeteroGraph.from_pyg(data)
    assert type(graph.lists.indices) is Tensor
    assert rows_of(graph.lists) == lists_of(edges, SIZES)


def test_from_pyg_names_what_was_given(edges: dict[Any, Tensor]) -> None:
    with pytest.raises(
        TypeError, match=r"data is a Data; it must be a torch_geometric\.data\.HeteroData: Graph\.from_pyg"
    ):
        HeteroGraph.from_pyg(Data(edge_index=edges[KEYS[1]], num_nodes=12))
    with pytest.raises(TypeError, match=r"data is a list; it must be a torch_geometric\.data\.HeteroData$"):
        HeteroGraph.from_pyg([edges])
    data = data_of(edges)
    data["venue", "near", "city"].edge_index = torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(
        ValueError, match=r"names the node type 'city'; the node types are \['paper', 'author', 'venue'\]"
    ):
        HeteroGraph.from_pyg(data)
    data["city"].name = "Rome"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            ValueError, match=r"data\['city'\] does not say how many nodes .* set data\['city'\]\.num_nodes"
        ):
            HeteroGraph.from_pyg(data)
    data["city"].num_nodes = 1
    HeteroGraph.from_pyg(data)
    data["venue", "near", "city"].edge_index = torch.tensor([[2], [0]])
    message = r"data\[\('venue', 'near', 'city'\)\]\.edge_index \(sources\) holds node 2; .* 0 to 1 of type 'venue'"
    with pytest.raises(ValueError, match=message):
        HeteroGraph.from_pyg(data)
    del data["venue", "near", "city"].edge_index
    data["venue", "near", "city"].edge_label_index = torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"data\[\('venue', 'near', 'city'\)\] has neither edge_index nor adj_t; set"):
        HeteroGraph.from_pyg(data)


def test_weights_that_are_not_there_are_named(edges: dict[Any, Tensor]) -> None:
    data = data_of(edges)
    with pytest.raises(ValueError, match=r"weight_attr is 'w', which no relation has; they have \['edge_index'\]"):
        HeteroGraph.from_pyg(data, weight_attr="w")
    data[KEYS[1]].w = torch.rand(39)
    with pytest.raises(ValueError, match=r"data\[.*'cites', 'paper'\)\]\.w has shape \[39\]; it must be \[40\]"):
        HeteroGraph.from_pyg(data, weight_attr="w")
    data[KEYS[1]].w = torch.full((40,), float("nan"))
    with pytest.raises(
        ValueError, match=r"data\[.*'cites', 'paper'\)\]\.w\[0\], of the edge .* is nan; a weight must be"
    ):
        HeteroGraph.from_pyg(data, weight_attr="w")
    data[KEYS[1]].w = ["heavy"] * 40
    with pytest.raises(TypeError, match=r"data\[.*'cites', 'paper'\)\]\.w is a list; it must be a torch tensor"):
        HeteroGraph.from_pyg(data, weight_attr="w")


def test_where_one_type_is_wanted_ways_are_named(edges: dict[Any, Tensor]) -> None:
    data = data_of(edges)
    with pytest.raises(
        TypeError, match=r"a HeteroData; .*: HeteroGraph\.from_pyg\(data\) keeps the types; or give data"
    ):
        Graph.from_pyg(data)
    with pytest.raises(TypeError, match=r"a loader\.Graph or a loader\.HeteroGraph: HeteroGraph\.from_pyg\(graph\)$"):
        require_graph(data)
    with pytest.raises(TypeError, match=r"a loader\.Graph: HeteroGraph\.from_pyg\(graph\)\.relation\(edge_type\)$"):
        require_graph(data, hetero=False)


@needs_dgl
@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("formats", [["coo"], ["csc"], ["csr"]])
def test_from_dgl_keeps_types_and_edges(edges: dict[Any, Tensor], idtype: torch.dtype, formats: list[str]) -> None:
    import dgl

    g = dgl.heterograph({key: tuple(pairs) for key, pairs in edges.items()}, SIZES, idtype=idtype)
    weight = torch.rand(40)
    g.edges[KEYS[1]].data["w"] = weight
    graph = HeteroGraph.from_dgl(g.formats(formats), weight_attr="w")
    sizes = {name: SIZES[name] for name in g.ntypes}  # DGL sorts types and relations by name
    ordered = {key: edges[key] for key in g.canonical_etypes}
    assert graph.metadata() == (g.ntypes, g.canonical_etypes)
    assert rows_of(graph.lists) == lists_of(ordered, sizes, {KEYS[1]: weight})


@needs_dgl
def test_from_dgl_takes_one_type_too(edges: dict[Any, Tensor]) -> None:
    import dgl

    g = dgl.graph(tuple(edges[KEYS[1]]), num_nodes=12)
    graph = HeteroGraph.from_dgl(g)
    assert graph.metadata() == (["_N"], [("_N", "_E", "_N")])
    assert torch.equal(graph.lists.indices, Graph.from_dgl(g).indices)


@needs_dgl
def test_from_dgl_names_what_is_wrong(edges: dict[Any, Tensor]) -> None:
    import dgl

    with pytest.raises(TypeError, match=r"g is a list; it must be a dgl\.DGLGraph"):
        HeteroGraph.from_dgl([edges])
    g = dgl.heterograph({key: tuple(pairs) for key, pairs in edges.items()}, SIZES)
    with pytest.raises(ValueError, match=r"weight_attr is 'w', which no relation has; they have \[\]"):
        HeteroGraph.from_dgl(g, weight_attr="w")
    g.edges[KEYS[0]].data["w"] = torch.full((40,), -1.0)
    with pytest.raises(
        ValueError, match=r"g\.edges\[.*'writes', 'paper'\)\]\.data\['w'\]\[0\], of the edge .* is -1\.0"
    ):
        HeteroGraph.from_dgl(g, weight_attr="w")
    with pytest.raises(ValueError, match=r"g is a block, .* give the graph it is of"):
        HeteroGraph.from_dgl(dgl.to_block(g))
    with pytest.raises(TypeError, match=r"a loader\.Graph or a loader\.HeteroGraph: HeteroGraph\.from_dgl\(graph\)$"):
        require_graph(g)
    with pytest.raises(TypeError, match=r"HeteroGraph\.from_dgl\(g\) keeps them"):
        Graph.from_dgl(g)

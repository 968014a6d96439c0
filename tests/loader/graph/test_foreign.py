"""A graph of another library is refused with the line that converts it."""

from __future__ import annotations

import pytest
import torch

from loader.graph import Graph, require_graph
from loader.machine.optional import import_dgl
from loader.samplers import HopwiseSampler

SRC, DST = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])


def way_out(graph: object) -> Graph:
    """The graph that the message of the refusal makes of `graph`."""
    with pytest.raises(TypeError, match=r"it must be a loader\.Graph: ") as refused:
        require_graph(graph)
    made: Graph = eval(str(refused.value).partition("loader.Graph: ")[2], {"Graph": Graph, "graph": graph})
    return made


def check(graph: Graph) -> None:
    assert torch.equal(graph.indptr, Graph.from_edges(SRC, DST, 3).indptr)
    assert torch.equal(graph.indices, Graph.from_edges(SRC, DST, 3).indices)


def test_pyg_data_is_answered_with_its_conversion() -> None:
    data = pytest.importorskip("torch_geometric.data").Data(edge_index=torch.stack((SRC, DST)), num_nodes=3)
    check(way_out(data))
    with pytest.raises(TypeError, match=r"graph is a torch_geometric\.Data"):
        HopwiseSampler([2], num_threads=1).sample(data, torch.tensor([0]))


def test_a_dgl_graph_is_answered_with_its_conversion() -> None:
    try:
        dgl = import_dgl("this test")
    except ImportError as error:
        pytest.skip(str(error))
    check(way_out(dgl.graph((SRC, DST))))


@pytest.mark.parametrize(
    ("graph", "kind"), [((SRC, DST), "a tuple"), (None, "None"), (torch.eye(3), "a torch.Tensor"), ({}, "a dict")]
)
def test_anything_else_is_named(graph: object, kind: str) -> None:
    with pytest.raises(TypeError, match=rf"graph is {kind}; .*Graph\.from_edges\(src, dst, num_nodes\)"):
        require_graph(graph)

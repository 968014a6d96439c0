"""What a loader read once, and whether its `Data` still has it."""

import copy

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from loader.graph import Graph, HeteroGraph
from loader.pyg import GraphSAINTNodeSampler, NeighborLoader, ShaDowKHopSampler
from loader.pyg.edges_read import EdgesRead

EDGES = torch.tensor([[0, 1], [1, 2]])
GRAPH = Graph.from_edges(*EDGES, 3)


def test_what_was_read_is_recognized():
    data = Data(edge_index=EDGES.clone(), num_nodes=3, w=torch.ones(2), x=torch.zeros(3, 1))
    read = EdgesRead(data, "w", GRAPH)
    read.check(data, "Loader")
    data.x = torch.ones(3, 4)  # which is not of the edges
    data.note = "new"
    read.check(data, "Loader")
    other = copy.deepcopy(data)
    assert read.differs(other) == "data.edge_index"  # it may have been written to
    read.again(other).check(other, "Loader")
    data.w += 1
    with pytest.raises(ValueError, match=r"data\.w is another than when this Loader was made, .*; make a new loader"):
        read.check(data, "Loader")
    read = EdgesRead(data, None, GRAPH)
    data.w += 1
    read.check(data, "Loader")
    data.num_nodes = 4
    with pytest.raises(ValueError, match="data has 4 nodes now and had 3 when this Loader was made"):
        read.check(data, "Loader")


@pytest.mark.parametrize("write", [lambda edges: edges.numpy(), lambda edges: edges.data])
def test_writes_that_torch_does_not_count_are_seen(write):
    key = ("a", "to", "a")
    for data, inputs in ((Data(num_nodes=3), None), (HeteroData({"a": {"num_nodes": 3}}), "a")):
        owner = data[key] if inputs else data
        owner.edge_index = EDGES.clone()
        before = NeighborLoader(data, [-1], input_nodes=inputs, batch_size=3)
        write(owner.edge_index)[1] = 0
        with pytest.raises(ValueError, match="edge_index is another than when this NeighborLoader was made"):
            next(iter(before))
        (batch,) = NeighborLoader(data, [-1], input_nodes=inputs, batch_size=3)
        assert (batch[key] if inputs else batch).edge_index.tolist() == [[0, 1], [0, 0]]


def test_loaders_of_subgraphs_see_such_writes():
    data = Data(edge_index=EDGES.clone(), num_nodes=3)
    loaders = [ShaDowKHopSampler(data, 1, 2, batch_size=3), GraphSAINTNodeSampler(data, 2)]
    data.edge_index.numpy()[1] = 0
    for made in loaders:
        with pytest.raises(ValueError, match=f"edge_index is another than when this {type(made).__name__} was made"):
            next(iter(made))


def test_stores_are_not_looked_at():
    read = EdgesRead((1, 2), None, GRAPH)
    assert read.differs((3, 4)) is None
    read.check((3, 4), "Loader")


def test_edges_of_each_type_are_recognized():
    data, key = HeteroData(), ("a", "to", "b")
    data["a"].num_nodes, data["b"].x = 2, torch.zeros(3, 1)
    data[key].edge_index, data[key].w = EDGES.clone(), torch.ones(2)
    graph = HeteroGraph.from_edges({key: EDGES}, {"a": 2, "b": 3})
    read = EdgesRead(data, "w", graph)
    data["b"].w = torch.ones(3)  # which is not of the edges
    read.check(data, "Loader")
    data[key].w += 1
    with pytest.raises(ValueError, match=r"data\[\('a', 'to', 'b'\)\]\.w is another than when this Loader was made"):
        read.check(data, "Loader")
    read = EdgesRead(data, None, graph)
    del data[key].edge_index
    with pytest.raises(ValueError, match=r"data\[\('a', 'to', 'b'\)\]\.edge_index is another than when"):
        read.check(data, "Loader")
    data[key].edge_index = EDGES.clone()
    read = EdgesRead(data, None, graph)
    data["b"].x = torch.zeros(4, 1)
    with pytest.raises(ValueError, match=r"data\['b'\] has 4 nodes now and had 3 when this Loader was made"):
        read.check(data, "Loader")

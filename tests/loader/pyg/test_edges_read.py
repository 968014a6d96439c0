"""What a loader read once, and whether its `Data` still has it."""

import copy

import pytest
import torch
from torch_geometric.data import Data

from loader.pyg.edges_read import EdgesRead

EDGES = torch.tensor([[0, 1], [1, 2]])


def test_what_was_read_is_recognized():
    data = Data(edge_index=EDGES.clone(), num_nodes=3, w=torch.ones(2), x=torch.zeros(3, 1))
    read = EdgesRead(data, "w", 3)
    read.check(data, "Loader")
    data.x = torch.ones(3, 4)  # which is not of the edges
    data.note = "new"
    read.check(data, "Loader")
    other = copy.deepcopy(data)
    assert read.differs(other) == "edge_index"  # it may have been written to
    read.again(other).check(other, "Loader")
    data.w += 1
    with pytest.raises(ValueError, match=r"data\.w is another than when this Loader was made, .*; make a new loader"):
        read.check(data, "Loader")
    read = EdgesRead(data, None, 3)
    data.w += 1
    read.check(data, "Loader")
    data.num_nodes = 4
    with pytest.raises(ValueError, match="data has 4 vertices now and had 3 when this Loader was made"):
        read.check(data, "Loader")


def test_stores_are_not_looked_at():
    read = EdgesRead((1, 2), None, 3)
    assert read.differs((3, 4)) is None
    read.check((3, 4), "Loader")

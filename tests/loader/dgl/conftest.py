"""Graphs of DGL that several files of tests sample."""

import pytest
import torch

NUM_NODES, NUM_EDGES = 60, 300


@pytest.fixture(params=[torch.int32, torch.int64])
def g(request):
    from loader.machine.optional import import_dgl

    dgl = import_dgl("this test")
    generator = torch.Generator().manual_seed(1)
    src, dst = torch.randint(NUM_NODES, (2, NUM_EDGES), generator=generator)
    made = dgl.graph((src, dst), num_nodes=NUM_NODES, idtype=request.param)
    made.ndata["feat"] = torch.rand(NUM_NODES, 3)
    made.ndata["more"] = torch.arange(NUM_NODES)
    made.ndata["label"] = torch.arange(NUM_NODES) % 4
    made.edata["weight"] = torch.rand(NUM_EDGES)
    made.edata["kind"] = torch.arange(NUM_EDGES)
    return made


@pytest.fixture
def both(g):
    """An undirected graph, and the reverse of each edge."""
    import dgl

    src, dst = g.edges()
    simple = dgl.graph((torch.cat([src, dst]), torch.cat([dst, src])), num_nodes=NUM_NODES)
    back = torch.cat([torch.arange(NUM_EDGES, 2 * NUM_EDGES), torch.arange(NUM_EDGES)])
    simple.ndata["feat"] = torch.rand(NUM_NODES, 3)
    simple.edata["kind"] = torch.arange(2 * NUM_EDGES)
    return simple, back

"""Graphs of torch_geometric and DGL as ours."""

from types import SimpleNamespace

import pytest
import torch
from marks import needs_dgl
from torch_geometric.data import Data, HeteroData, TemporalData
from torch_geometric.datasets import FakeDataset

from loader.graph import Graph

NUM_NODES = 40


@pytest.fixture
def edges():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(NUM_NODES, (2, 300), generator=generator)


def assert_has(graph, edges):
    """The graph has these edges, and tells their places."""
    dst = torch.arange(NUM_NODES).repeat_interleave(graph.in_degrees())
    assert torch.equal(edges[:, graph.edge_ids], torch.stack([graph.indices.long(), dst]))
    assert sorted(graph.edge_ids.tolist()) == list(range(edges.shape[1]))


def test_from_pyg_keeps_every_edge(edges):
    graph = Graph.from_pyg(Data(edge_index=edges, num_nodes=NUM_NODES))
    assert graph.num_nodes == NUM_NODES
    assert_has(graph, edges)


def test_from_pyg_keeps_weights_and_times(edges):
    weights, times, ages = torch.rand(300, 1), torch.arange(300), torch.arange(NUM_NODES)
    data = Data(edge_index=edges, num_nodes=NUM_NODES, w=weights, edge_time=times, node_age=ages)
    graph = Graph.from_pyg(data, weight_attr="w", time_attr="edge_time")
    assert torch.equal(graph.edge_weights, weights.view(-1)[graph.edge_ids])
    assert torch.equal(graph.edge_times, graph.edge_ids)
    assert torch.equal(Graph.from_pyg(data, time_attr="node_age").node_times, ages)


@pytest.mark.parametrize(("name", "array"), [("edge_time", "edge_times"), ("t", "node_times")])
def test_as_many_edges_as_nodes_go_by_name(name, array):
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    data = Data(edge_index=edges, num_nodes=3, **{name: torch.arange(3)})
    assert data.is_edge_attr(name) == (array == "edge_times")  # it is torch_geometric's rule
    graph = Graph.from_pyg(data, time_attr=name)
    other = {"edge_times": graph.node_times, "node_times": graph.edge_times}[array]
    assert getattr(graph, array) is not None
    assert other is None


def test_times_of_events_are_of_edges():
    events = TemporalData(src=torch.tensor([0, 1, 2]), dst=torch.tensor([1, 2, 0]), t=torch.tensor([30, 10, 20]))
    assert events.num_nodes == events.num_events
    graph = Graph.from_pyg(events, time_attr="t")
    assert graph.node_times is None
    assert torch.equal(graph.edge_times, events.t[graph.edge_ids])


def test_times_of_neither_are_refused(edges):
    data = Data(edge_index=edges, num_nodes=NUM_NODES, t=torch.arange(7))
    with pytest.raises(ValueError, match=r"time_attr is 't', and data\.t has shape \[7\]; .* \[40\], .* or \[300\]"):
        Graph.from_pyg(data, time_attr="t")


def test_advice_on_types_says_what_it_changes():
    data = HeteroData()
    data["a"].x, data["b"].x = torch.rand(3, 2), torch.rand(2, 5)
    data["a"].y = torch.rand(3)
    data["a"].names = ["p", "q", "r"]
    data["a"].z, data["b"].z = torch.rand(3, 2), torch.rand(2, 2)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1], [1, 1]])
    with pytest.raises(TypeError, match=r"so first make these even: names, x, y$"):
        Graph.from_pyg(data)
    one = data.to_homogeneous()
    assert "names" not in one
    assert one.x[:3, 2:].count_nonzero() == 0
    assert one.y.isnan().sum() == 2
    assert torch.equal(one.z, torch.cat([data["a"].z, data["b"].z]))
    assert Graph.from_pyg(one).num_edges == 2


@pytest.mark.parametrize("shape", [(150, 2), (1, 300), (300, 2), (299,), (300, 1, 1)])
def test_weights_are_one_per_edge(edges, shape):
    data = Data(edge_index=edges, num_nodes=NUM_NODES, w=torch.rand(*shape))
    with pytest.raises(ValueError, match=r"data\.w has shape .*; it must be \[300\], a weight per edge"):
        Graph.from_pyg(data, weight_attr="w")


@needs_dgl
@pytest.mark.parametrize("formats", [["csc"], ["csr"], ["csr", "csc"], ["coo"]])
@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
def test_from_dgl_reads_every_format(edges, formats, idtype):
    import dgl

    from loader.graph.interop import dgl_edges

    g = dgl.graph(tuple(edges), num_nodes=NUM_NODES, idtype=idtype)
    g.edata["w"] = torch.rand(300)
    restricted = g.formats(formats)
    graph = Graph.from_dgl(restricted, weight_attr="w")
    assert_has(graph, edges)
    assert torch.equal(graph.edge_weights, g.edata["w"][graph.edge_ids])
    some = torch.tensor([7, 0, 299, 7], dtype=idtype)
    assert torch.equal(torch.stack(dgl_edges(restricted, some)).long(), edges[:, some.long()])


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_from_pyg_reads_a_transposed_matrix(edges, layout):
    once = torch.unique(edges, dim=1)
    adj_t = torch.sparse_coo_tensor(
        once.flip(0), torch.ones(once.shape[1]), (NUM_NODES, NUM_NODES), check_invariants=True
    )
    matrix = adj_t.coalesce() if layout is torch.sparse_coo else adj_t.to_sparse_csr()
    data = Data(num_nodes=NUM_NODES)
    data.adj_t = matrix
    graph = Graph.from_pyg(data)
    order = torch.argsort(once[1] * NUM_NODES + once[0])  # entries come row by row, and a row is a destination
    assert_has(graph, once[:, order])


def test_entries_out_of_order_keep_their_weights():
    rows, columns = torch.tensor([[2, 0, 1, 0], [0, 1, 2, 1]])
    data = Data(num_nodes=3, w=torch.tensor([10.0, 20, 30, 40]))
    data.adj_t = torch.sparse_coo_tensor(torch.stack([rows, columns]), torch.ones(4), (3, 3), check_invariants=True)
    graph = Graph.from_pyg(data, weight_attr="w")
    assert graph.indptr.tolist() == [0, 2, 3, 4]
    assert graph.indices.tolist() == [1, 1, 2, 0]
    assert graph.edge_weights.tolist() == [20, 40, 30, 10]
    assert graph.edge_ids.tolist() == [1, 3, 2, 0]


def test_from_pyg_takes_an_edge_index(edges):
    from torch_geometric import EdgeIndex

    order = torch.argsort(edges[1], stable=True)
    index = EdgeIndex(edges[:, order], sparse_size=(NUM_NODES, NUM_NODES), sort_order="col")
    graph = Graph.from_pyg(Data(edge_index=index, num_nodes=NUM_NODES))
    assert type(graph.indices) is torch.Tensor
    assert_has(graph, edges[:, order])


def test_from_pyg_names_missing_attributes(edges):
    with pytest.raises(
        TypeError, match=r"of one type: HeteroGraph\.from_pyg\(data\) keeps the types; or give data\.to_hom"
    ):
        Graph.from_pyg(HeteroData())
    with pytest.raises(TypeError, match="data is a list; it must be a torch_geometric"):
        Graph.from_pyg([edges])
    with pytest.raises(ValueError, match="neither edge_index nor adj_t"):
        Graph.from_pyg(Data(x=torch.zeros(3, 1)))
    with pytest.raises(ValueError, match=r"neither edge_index nor adj_t; Graph\.from_dgl takes a DGLGraph"):
        Graph.from_pyg(SimpleNamespace(num_nodes=3, is_homogeneous=True))
    with pytest.raises(TypeError, match="adj_t is a list; it must be a sparse torch tensor or a SparseTensor"):
        Graph.from_pyg(Data(x=torch.zeros(3, 1), adj_t=[]))
    with pytest.raises(ValueError, match=r"edge_index has \[9, 2\]; it must be a tensor \[2, num_edges\]"):
        Graph.from_pyg(Data(edge_index=torch.zeros(9, 2, dtype=torch.int64), num_nodes=3))
    data = Data(edge_index=edges, num_nodes=NUM_NODES, name="w")
    with pytest.raises(ValueError, match=r"weight_attr is 'v'; data has \['edge_index', 'name', 'num_nodes'\]"):
        Graph.from_pyg(data, weight_attr="v")
    with pytest.raises(TypeError, match=r"data.name is a str"):
        Graph.from_pyg(data, weight_attr="name")


def test_from_pyg_names_what_was_given(edges):
    data = Data(edge_index=edges, num_nodes=3, w=torch.ones(7, 2))
    for given in (data, Data(edge_index=edges.to(torch.uint64), num_nodes=3)):
        with pytest.raises(
            ValueError, match=r"edge_index holds node [0-9]+, but data has 3 nodes, 0 to 2; .* data\.num_nodes"
        ):
            Graph.from_pyg(given)
    with pytest.raises(TypeError, match=r"edge_index has dtype torch\.float32; .* type: edge_index\.long\(\)"):
        Graph.from_pyg(Data(edge_index=edges.float(), num_nodes=NUM_NODES))
    with pytest.raises(ValueError, match=r"weight_attr is 'w', and data\.w has shape \[7, 2\]; it must be \[300\]"):
        Graph.from_pyg(data, weight_attr="w")
    with pytest.raises(TypeError, match=r"data is a FakeDataset; .*, one graph: data\[0\]"):
        Graph.from_pyg(FakeDataset(num_graphs=1))


class TestDGL:
    @pytest.fixture(autouse=True)
    def _dgl(self):
        pytest.importorskip("dgl", exc_type=ImportError)

    @pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
    def test_from_dgl_keeps_every_edge(self, edges, idtype):
        import dgl

        g = dgl.graph((edges[0], edges[1]), num_nodes=NUM_NODES, idtype=idtype)
        g.edata["w"] = torch.rand(300)
        graph = Graph.from_dgl(g, weight_attr="w")
        assert_has(graph, edges)
        assert torch.equal(graph.edge_weights, g.edata["w"][graph.edge_ids])

    def test_from_dgl_names_missing_attributes(self, edges):
        import dgl

        with pytest.raises(TypeError, match="g is a list; it must be a dgl"):
            Graph.from_dgl([edges])
        with pytest.raises(ValueError, match=r"weight_attr is 'w'; g.edata has \[\]"):
            Graph.from_dgl(dgl.graph((edges[0], edges[1]), num_nodes=NUM_NODES), weight_attr="w")
        typed = dgl.heterograph({("a", "to", "b"): (edges[0], edges[1])})
        with pytest.raises(TypeError, match=r"types \['a', 'b'\] of nodes and 1 of edges; HeteroGraph\.from_dgl\(g\)"):
            Graph.from_dgl(typed)
        with pytest.raises(ValueError, match=r"g is a block, .* give the graph it is of"):
            Graph.from_dgl(dgl.to_block(dgl.graph((edges[0], edges[1]))))

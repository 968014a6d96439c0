"""What a mini-batch takes from the attributes of a `Data`."""

import networkx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import ToSparseTensor
from torch_geometric.utils import from_networkx, to_edge_index

from loader.pyg import LinkNeighborLoader, NeighborLoader

EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])


def graph(**more):
    return Data(edge_index=EDGES, num_nodes=4, **more)


@pytest.mark.parametrize("made", [NeighborLoader, LinkNeighborLoader])
@pytest.mark.parametrize(
    ("value", "what"),
    [
        (list("abcd"), "a list, a value per node"),
        (tuple("abcde"), "a tuple, a value per edge"),
        (np.array(list("abcd")), "an array of <U1, a value per node"),
        (np.array([{}, {}, {}, {}]), "an array of object, a value per node"),
    ],
)
def test_text_is_named_when_a_loader_is_made(made, value, what):
    data = graph(names=value)
    number = "n_id" if "node" in what else "e_id"
    with pytest.raises(TypeError, match=rf"data\.names is {what}, .* del data\.names.* look it up by batch\.{number}"):
        made(data, [2])
    names = data.names  # the way out
    del data.names
    for batch in made(data, [2]):
        assert len([names[i] for i in batch[number].tolist()]) == batch[number].numel()


def test_a_graph_of_networkx_with_labels_is_refused():
    labelled = networkx.relabel_nodes(networkx.path_graph(4), str)
    networkx.set_node_attributes(labelled, {str(i): f"town {i}" for i in range(4)}, "label")
    with pytest.raises(TypeError, match=r"data\.label is a list, a value per node"):
        NeighborLoader(from_networkx(labelled), [2])


def test_text_of_the_graph_is_copied():
    for batch in NeighborLoader(graph(classes=["a", "b"], title="towns"), [2]):
        assert batch.classes == ["a", "b"]
        assert batch.title == "towns"


def test_x_with_other_rows_is_refused_at_once():
    with pytest.raises(ValueError, match=r"data\.x has shape \[3, 2\], data 4 nodes"):
        NeighborLoader(graph(x=torch.zeros(3, 2)), [2])


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo])
@pytest.mark.parametrize("typed", [False, True])
def test_weights_within_adj_t_are_refused(layout, typed):
    data = HeteroData(town={"num_nodes": 4}, town__to__town={"edge_index": EDGES}) if typed else graph()
    (store,) = data.edge_stores
    nodes = "town" if typed else None
    assert next(iter(NeighborLoader(ToSparseTensor(layout=layout)(data), [2], nodes))).num_edges > 0
    store.edge_weight = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    data = ToSparseTensor(layout=layout)(data)
    (store,) = data.edge_stores
    with pytest.raises(ValueError, match=r"adj_t has values other than 1, which mini-batches would lose"):
        NeighborLoader(data, [2], nodes)
    index, store.edge_weight = to_edge_index(store.adj_t)  # the way out
    store.edge_index = index.flip(0)
    del store.adj_t
    (batch,) = NeighborLoader(data, [-1], nodes, batch_size=4)
    (found,) = batch.edge_stores
    wanted = {(0, 1, 1.0), (1, 2, 2.0), (2, 3, 3.0), (3, 0, 4.0), (0, 2, 5.0)}
    assert {
        (*edge, w) for edge, w in zip(found.edge_index.t().tolist(), found.edge_weight.tolist(), strict=True)
    } == wanted


def test_as_many_edges_as_nodes_go_by_name():
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    data = Data(edge_index=edges, num_nodes=4, edge_time=torch.arange(4), time=torch.arange(4) + 10)
    for batch in NeighborLoader(data, [2, 2]):
        assert torch.equal(batch.edge_time, batch.e_id)
        assert torch.equal(batch.time, batch.n_id + 10)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_weights_may_be_integers(dtype):
    weights = torch.tensor([3, 0, 1, 2, 5])
    data = graph(w=weights.to(dtype), v=weights.double())
    for ours, theirs in zip(
        *(NeighborLoader(data, [1, 1], seed=3, weight_attr=name) for name in ("w", "v")), strict=True
    ):
        assert torch.equal(ours.e_id, theirs.e_id)
        assert ours.w.dtype == dtype
    data.w = torch.full((5,), 2**53 + 1)
    with pytest.raises(ValueError, match=r"data\.w holds integers beyond 2\*\*53"):
        NeighborLoader(data, [1], weight_attr="w")


def test_all_neighbors_have_the_edges_of_weight_zero():
    data = graph(w=torch.tensor([1.0, 0, 1, 0, 1]))
    whole = [batch.e_id.tolist() for batch in NeighborLoader(data, [-1, -1])]
    assert [batch.e_id.tolist() for batch in NeighborLoader(data, [-1, -1], weight_attr="w")] == whole
    for batch in NeighborLoader(data, [-1, 2], weight_attr="w"):
        assert bool((data.w[batch.e_id] > 0).all())
    with pytest.raises(ValueError, match=r"edge_weights\[[0-9]\], of the edge . -> ., is -1\.0; a weight must be"):
        NeighborLoader(graph(w=-torch.ones(5)), [-1], weight_attr="w")

"""torch_geometric's models of random walks on ours."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("torch_geometric")

import copy
import itertools
import pickle
from collections.abc import Callable

import torch_geometric.nn

from loader.pyg import MetaPath2Vec, Node2Vec

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 0, 4], [1, 0, 2, 1, 3, 2, 4, 0]])
PATH = [("a", "to", "b"), ("b", "to", "a")]
TYPED = {PATH[0]: torch.tensor([[0, 1, 2, 0], [0, 1, 4, 3]]), PATH[1]: torch.tensor([[0, 1, 4, 3], [0, 1, 2, 0]])}


def test_walks_follow_edges_and_windows_are_torch_geometrics() -> None:
    model = Node2Vec(EDGES, 8, walk_length=6, context_size=3, walks_per_node=2, p=0.25, q=4, num_nodes=6)
    torch.manual_seed(0)
    pos, neg = model.sample([0, 1, 2, 5])
    torch.manual_seed(0)
    assert torch.equal(model.sample([0, 1, 2, 5])[0], pos)
    theirs = torch_geometric.nn.Node2Vec(EDGES, 8, walk_length=6, context_size=3, walks_per_node=2, num_nodes=6)
    assert [w.shape for w in theirs.sample([0, 1, 2, 5])] == [pos.shape, neg.shape]
    edges = set(map(tuple, EDGES.t().tolist()))
    for window in pos.tolist():
        for here, there in itertools.pairwise(window):
            assert (here, there) in edges or here == there == 5  # which has no edges
    assert pos[:8, 0].tolist() == [0, 1, 2, 5] * 2
    loss = model.loss(pos, neg)
    loss.backward()
    assert torch.isfinite(loss)
    theirs.load_state_dict(model.state_dict())
    assert torch.allclose(theirs.loss(pos, neg), loss)
    assert len(list(model.loader(batch_size=4))) == 2


def test_a_model_can_be_copied_and_pickled() -> None:
    model = Node2Vec(EDGES, 8, walk_length=6, context_size=3, num_nodes=6)
    torch.manual_seed(0)
    pos = model.pos_sample(torch.arange(6))
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.manual_seed(0)
        assert torch.equal(made.pos_sample(torch.arange(6)), pos)


def test_a_directed_edge_is_followed_from_its_source() -> None:
    model = Node2Vec(torch.tensor([[0, 1], [1, 2]]), 4, walk_length=4, context_size=4, num_nodes=3)
    assert model.pos_sample(torch.tensor([0])).tolist() == [[0, 1, 2, 2]]


def test_metapaths_follow_their_edges() -> None:
    g = torch.Generator().manual_seed(0)
    writes = torch.stack([torch.randint(10, (40,), generator=g), torch.randint(20, (40,), generator=g)])
    edges = {("author", "writes", "paper"): writes, ("paper", "by", "author"): writes.flip(0)}
    path = [("author", "writes", "paper"), ("paper", "by", "author")]
    options = {"walk_length": 5, "context_size": 3, "walks_per_node": 2, "num_negative_samples": 2}
    sizes = {"author": 12, "paper": 20}
    model = MetaPath2Vec(edges, 8, path, num_nodes_dict=sizes, **options)
    theirs = torch_geometric.nn.MetaPath2Vec(edges, 8, path, num_nodes_dict=sizes, **options)
    batch = torch.arange(12)
    assert [w.shape for w in theirs._sample(batch)] == [w.shape for w in model._sample(batch)]
    known = set(map(tuple, writes.t().tolist()))
    for window in model._pos_sample(batch).tolist():
        for here, there in itertools.pairwise(window):
            if there == model.dummy_idx:
                assert here == there or here >= 10
            else:
                author, paper = sorted((here, there))
                assert (author, paper - 12) in known
    theirs.load_state_dict(model.state_dict())
    pos, neg = model._sample(batch)
    assert torch.allclose(theirs.loss(pos, neg), model.loss(pos, neg))
    assert int(neg.max()) < model.dummy_idx


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
def test_walks_on_a_gpu_are_the_cpus() -> None:
    model = Node2Vec(EDGES, 8, walk_length=6, context_size=3, p=0.25, q=4, num_nodes=6)
    torch.manual_seed(0)
    expected = model.pos_sample(torch.arange(6))
    model = model.cuda()
    torch.manual_seed(0)
    pos = model.pos_sample(torch.arange(6))
    assert torch.equal(pos.cpu(), expected)
    model.loss(*model.sample([0, 1, 2])).backward()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Node2Vec(EDGES, 8, walk_length=3, context_size=5), "context_size is 5, walk_length 3; a walk must be"),
        (lambda: Node2Vec(EDGES, 8, walk_length=3, context_size=0), "context_size is 0; it must be at least 1"),
        (lambda: Node2Vec(None, 8, walk_length=3, context_size=2), r"edge_index is None; it must be a tensor \[2,"),
        (lambda: Node2Vec(EDGES.t(), 8, walk_length=3, context_size=2), r"edge_index has shape .*; it must be \[2,"),
        (lambda: Node2Vec(EDGES, 8, 3, 2, num_nodes=3), "edge_index holds node 4; valid ids are 0 to 2"),
        (lambda: Node2Vec(EDGES - 1, 8, 3, 2), "edge_index holds node -1"),
        (lambda: Node2Vec(EDGES.float(), 8, 3, 2), "edge_index has dtype torch.float32; it must be torch.int64"),
        (lambda: Node2Vec(EDGES, 8, 3, 2, p=0), "p is 0; it must be greater than 0 and finite"),
        (lambda: Node2Vec(EDGES, 8, 3, 2, walks_per_node=0), "walks_per_node is 0; it must be at least 1"),
        (
            lambda: Node2Vec(EDGES, 8, 3, 2, walk_per_node=3),
            "walk_per_node is no option of Node2Vec; did you mean walks_",
        ),
        (lambda: Node2Vec(EDGES, 0, 3, 2), "embedding_dim is 0; it must be at least 1"),
        (lambda: MetaPath2Vec(EDGES, 8, ["c"], 3, 2), "edge_index_dict is .*; it must be a dict from types of edges"),
        (lambda: MetaPath2Vec({("a", "b"): EDGES}, 8, [("a", "b")], 3, 5), "context_size is 5, walk_length 3"),
        (
            lambda: MetaPath2Vec({("a", "b"): EDGES}, 8, [("a", "b")], 3, 2),
            "walk_length is 3, and metapath has 1 types of edges, from 'a' to 'b'; it repeats only if it ends where",
        ),
        (
            lambda: MetaPath2Vec(TYPED, 8, PATH, 2, 2, num_nodes_dict={"a": 3, "b": 2}),
            r"edge_index_dict\[\('a', 'to', 'b'\)\]\[1\], of type 'b', holds node 4; valid ids are 0 to 1",
        ),
        (
            lambda: MetaPath2Vec(TYPED, 8, PATH, 2, 2, num_nodes_dict={"a": 3}),
            r"num_nodes_dict has \['a'\], and edge_index_dict 'b'; give it, too",
        ),
        (
            lambda: MetaPath2Vec(TYPED, 8, PATH, 2, 2)._pos_sample(torch.tensor([3])),
            "batch, of type 'a', holds node 3; valid ids are 0 to 2",
        ),
        (lambda: MetaPath2Vec({}, 8, [], 3, 2), r"metapath is \[\]; it must be a list of types of edges"),
        (lambda: MetaPath2Vec({("a", "b"): EDGES}, 8, ["c"], 3, 2), r"metapath holds 'c'; edge_index_dict has \[\('a'"),
    ],
)
def test_what_is_no_model_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()

"""The objective of node2vec against its definition, pair by pair."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from models.node2vec import Node2Vec


def by_pairs(model: Node2Vec, walks: Tensor, negatives: Tensor) -> Tensor:
    """`torch_geometric.nn.Node2Vec.loss` on its windows, which leaves nothing out; pairs after an end are."""

    def half(rows: Tensor, positive: bool) -> Tensor:
        losses = []
        for walk in rows.tolist():
            for i in range(len(walk) - model.context_size + 1):
                for v in walk[i + 1 : i + model.context_size]:
                    if walk[i] >= 0 and v >= 0:
                        product = model.embedding.weight[walk[i]] @ model.embedding.weight[v]
                        losses.append(-F.logsigmoid(product if positive else -product))
        return torch.stack(losses).mean()

    others = [[int(w[0]), *n] for w, each in zip(walks, negatives.tolist(), strict=True) for n in each]
    return half(walks, True) + half(torch.tensor(others), False)


@pytest.mark.parametrize(("length", "context", "num_negatives"), [(6, 4, 1), (6, 7, 2), (5, 2, 3)])
def test_loss_and_gradient_are_those_of_the_definition(length: int, context: int, num_negatives: int) -> None:
    g = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = Node2Vec(30, 5, context)
    walks = torch.randint(30, (8, length + 1), generator=g)
    walks[1, 3:] = -1
    walks[2, 1:] = -1
    negatives = torch.randint(30, (8, num_negatives, length), generator=g)
    loss = model.loss(walks, negatives)
    expected = by_pairs(model, walks, negatives)
    assert torch.allclose(loss, expected, rtol=1e-5)
    (sparse,) = torch.autograd.grad(loss, [model.embedding.weight])
    assert sparse.is_sparse
    (dense,) = torch.autograd.grad(expected, [model.embedding.weight])
    dense = dense.to_dense() if dense.is_sparse else dense
    assert torch.allclose(sparse.to_dense(), dense, atol=1e-6)
    named = set(walks[walks >= 0].tolist()) | set(negatives.flatten().tolist())
    assert set(sparse.coalesce().indices()[0].tolist()) <= named


def test_walks_that_end_at_once_have_no_pairs() -> None:
    model = Node2Vec(9, 4, 3)
    walks = torch.tensor([[2, -1, -1, -1]])
    only_negatives = model.loss(walks, torch.tensor([[[1, 2, 3]]]))
    assert torch.isfinite(only_negatives)
    only_negatives.backward()


def test_bad_arguments_are_refused() -> None:
    for name in ("num_nodes", "dim", "context_size"):
        with pytest.raises(ValueError, match=f"{name} is 0"):
            Node2Vec(**{"num_nodes": 3, "dim": 4, "context_size": 2, name: 0})
        with pytest.raises(TypeError, match=f"{name} is 'x'; it must be an integer"):
            Node2Vec(**{"num_nodes": 3, "dim": 4, "context_size": 2, name: "x"})
    with pytest.raises(TypeError, match="sparse is 'no'; it must be True or False"):
        Node2Vec(3, 4, 2, sparse="no")  # type: ignore[arg-type]
    for value in (0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="init_std"):
            Node2Vec(3, 4, 2, init_std=value)
    model = Node2Vec(9, 4, 5)
    with pytest.raises(ValueError, match="walks have 4 vertices, a window has 5"):
        model.loss(torch.zeros(2, 4, dtype=torch.int64), torch.zeros(2, 1, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="no negative samples"):
        model.loss(torch.zeros(2, 6, dtype=torch.int64), torch.zeros(2, 0, 5, dtype=torch.int64))


def test_calling_the_model_gives_its_rows() -> None:
    model = Node2Vec(9, 4, 2)
    assert model().shape == (9, 4)
    assert torch.equal(model(torch.tensor([3, 1])), model.embedding.weight[[3, 1]])


def test_the_embedding_begins_with_its_deviation() -> None:
    for std in (1.0, 0.1):
        torch.manual_seed(0)
        model = Node2Vec(2000, 16, 2, init_std=std)
        assert model.embedding.weight.std().item() == pytest.approx(std, rel=0.02)
        torch.manual_seed(0)
        assert torch.equal(model.embedding.weight, std * torch.nn.Embedding(2000, 16).weight)

"""The objective of node2vec against its definition, pair by pair."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from models.node2vec import OBJECTIVES, Node2Vec


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


def by_windows(model: Node2Vec, walks: Tensor, negatives: Tensor) -> Tensor:
    """word2vec's objective: the mean over all sizes of the windows, and over all of a walk's negative samples."""
    assert model.context is not None
    losses, pairs = [], 0
    for walk, others in zip(walks.tolist(), negatives.flatten(1).tolist(), strict=True):
        nodes = [v for v in walk if v >= 0]
        for i, u in enumerate(nodes):
            x = model.embedding.weight[u]
            apart = torch.stack([-F.logsigmoid(-x @ model.context.weight[n]) for n in others]).mean()
            for size in range(1, model.context_size):
                for v in nodes[max(0, i - size) : i] + nodes[i + 1 : i + 1 + size]:
                    losses.append(-F.logsigmoid(x @ model.context.weight[v]) + model.negative_weight * apart)
                    pairs += 1
    return torch.stack(losses).sum() / pairs


@pytest.mark.parametrize(("length", "context", "weight"), [(6, 4, None), (6, 7, 1.5), (5, 2, None)])
def test_two_tables_have_word2vecs_objective(length: int, context: int, weight: float | None) -> None:
    g = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = Node2Vec(30, 5, context, objective="word2vec", negative_weight=weight, init_std=1.0)
    assert model.context is not None
    torch.nn.init.normal_(model.context.weight)
    walks = torch.randint(30, (8, length + 1), generator=g)
    walks[1, 3:] = -1
    walks[2, 1:] = -1
    negatives = torch.randint(30, (8, 2, length), generator=g)
    tables = list(model.parameters())
    loss, expected = model.loss(walks, negatives), by_windows(model, walks, negatives)
    assert torch.allclose(loss, expected, rtol=1e-5)
    found, dense = torch.autograd.grad(loss, tables), torch.autograd.grad(expected, tables)
    assert all(gradient.is_sparse for gradient in found)
    for of_table, gradient in zip(found, dense, strict=True):
        assert torch.allclose(of_table.to_dense(), gradient, atol=1e-6)


def test_word2vec_begins_as_word2vec_does() -> None:
    torch.manual_seed(0)
    model = Node2Vec(2000, 16, 2, objective="word2vec")
    assert model.negative_weight == 5
    assert model.context is not None
    assert not model.context.weight.any()
    weight = model.embedding.weight.detach()
    assert weight.abs().max() <= 0.5 / 16
    assert weight.std().item() == pytest.approx(1 / 16 / 12**0.5, rel=0.02)


def test_negative_pairs_have_their_weight() -> None:
    torch.manual_seed(0)
    walks, negatives = torch.randint(9, (4, 6)), torch.randint(9, (4, 1, 5))
    losses = []
    for weight in (1.0, 2.0, 3.0):
        torch.manual_seed(0)
        losses.append(Node2Vec(9, 4, 3, negative_weight=weight).loss(walks, negatives))
    assert losses[0] < losses[1]
    assert torch.allclose(losses[2] - losses[1], losses[1] - losses[0])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_walks_that_end_at_once_have_no_pairs(objective: str) -> None:
    model = Node2Vec(9, 4, 3, objective=objective)
    walks = torch.tensor([[2, -1, -1, -1]])
    only_negatives = model.loss(walks, torch.tensor([[[1, 2, 3]]]))
    assert torch.isfinite(only_negatives)
    only_negatives.backward()
    assert model.embedding.weight.grad is not None
    assert bool(torch.isfinite(model.embedding.weight.grad.to_dense()).all())


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
        with pytest.raises(ValueError, match="negative_weight"):
            Node2Vec(3, 4, 2, negative_weight=value)
    for objective in ("skip-gram", None, 2):
        with pytest.raises(ValueError, match="it must be 'torch_geometric' or 'word2vec'"):
            Node2Vec(3, 4, 2, objective=objective)  # type: ignore[arg-type]
    model = Node2Vec(9, 4, 5)
    with pytest.raises(ValueError, match="walks have 4 nodes, a window has 5"):
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

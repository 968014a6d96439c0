"""The logistic regression and the scores, against scikit-learn where it is installed, and by their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.embedding_probe import LogisticRegression, f1_scores, top_labels


def problem(num_classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    y = torch.randint(num_classes, (300,), generator=g)
    x = torch.randn(300, 6, generator=g) + 0.8 * torch.eye(6)[y]
    return x, y


@pytest.mark.parametrize("c", [0.1, 10.0])
def test_the_regression_equals_scikit_learns(c: float) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    x, y = problem()
    theirs = linear_model.LogisticRegression(C=c, max_iter=1000, tol=1e-8).fit(x.numpy(), y.numpy())
    ours = LogisticRegression(4, c=c).fit(x, y).logits(x).softmax(1)
    assert np.allclose(ours.numpy(), theirs.predict_proba(x.numpy()), atol=1e-3)


def test_each_label_has_its_own_regression() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    x, y = problem()
    labels = torch.stack([y == 0, y < 2, y % 2 == 1], 1).float()
    ours = LogisticRegression(3, multilabel=True).fit(x, labels).logits(x)
    for i in range(3):
        theirs = linear_model.LogisticRegression(max_iter=1000, tol=1e-8).fit(x.numpy(), labels[:, i].numpy())
        assert np.allclose(ours[:, i].numpy(), theirs.decision_function(x.numpy()), atol=1e-3)


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_gradient_is_zero_at_the_solution(multilabel: bool) -> None:
    """The definition of a minimum, where there is no scikit-learn."""
    x, y = problem()
    probe = LogisticRegression(4, multilabel=multilabel, c=0.5)
    target = torch.eye(4)[y] if multilabel else y
    probe.fit(x, target)
    assert probe.weight is not None
    logits = probe.logits(x)
    said = logits.sigmoid() if multilabel else logits.softmax(1)
    wrong = said - torch.eye(4, dtype=torch.float64)[y]
    assert (x.double().T @ wrong + probe.weight / probe.c).abs().max() < 2e-2
    assert wrong.sum(0).abs().max() < 2e-2
    assert (logits.argmax(1) == y).float().mean() > 0.45


def test_the_penalty_is_chosen_by_cross_validation() -> None:
    """Where few numbers tell the labels, and many are noise, a strong penalty is better; scikit-learn says so, too."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    model_selection = pytest.importorskip("sklearn.model_selection")
    g = torch.Generator().manual_seed(0)
    y = torch.randint(3, (120,), generator=g)
    x = torch.cat([torch.eye(3)[y] + 0.8 * torch.randn(120, 3, generator=g), torch.randn(120, 60, generator=g)], 1)
    choices = [100.0, 1.0, 0.01]
    probe = LogisticRegression(3, c=choices).fit(x, y)
    folds = model_selection.PredefinedSplit(np.arange(120) % 5)
    theirs = linear_model.LogisticRegression(max_iter=1000, tol=1e-8)
    search = model_selection.GridSearchCV(theirs, {"C": choices}, cv=folds).fit(x.numpy(), y.numpy())
    assert probe.c == search.best_params_["C"] == 0.01
    assert torch.equal(probe.logits(x), LogisticRegression(3, c=0.01).fit(x, y).logits(x))
    labels = torch.stack([y == 0, y < 2, y % 2 == 1], 1).float()
    several = LogisticRegression(3, multilabel=True, c=choices).fit(x, labels)
    fold, said = torch.arange(120) % 5, torch.empty(120, 3, dtype=torch.float64)
    scores = []
    for c in choices:
        for part in range(5):
            fitted = LogisticRegression(3, multilabel=True, c=c).fit(x[fold != part], labels[fold != part])
            said[fold == part] = fitted.logits(x[fold == part])
        scores.append(f1_scores(top_labels(said, labels), labels)[1])
    assert several.c == choices[int(np.argmax(scores))]


def test_equal_scores_take_the_first_penalty() -> None:
    y = torch.arange(20) % 2
    x = torch.nn.functional.one_hot(y).double()
    for choices in ([1.0, 10.0], [10.0, 1.0]):
        assert LogisticRegression(2, c=choices).fit(x, y).c == choices[0]
    with pytest.raises(ValueError, match="4 nodes are too few to choose"):
        LogisticRegression(2, c=[1.0, 10.0]).fit(x[:4], y[:4])


def test_the_probe_fits_in_inference_mode() -> None:
    x, y = problem()
    with torch.inference_mode():
        assert torch.equal(LogisticRegression(4).fit(x + 0, y).logits(x), LogisticRegression(4).fit(x, y).logits(x))


def test_a_node_keeps_its_number_of_labels() -> None:
    logits = torch.tensor([[0.1, 3.0, 2.0], [5.0, 4.0, 6.0], [1.0, 1.0, 1.0]])
    labels = torch.tensor([[1.0, 0, 0], [1, 1, 0], [0, 0, 0]])
    assert top_labels(logits, labels).tolist() == [[False, True, False], [True, False, True], [False] * 3]


def test_f1_scores_are_micro_and_macro_averages() -> None:
    said = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 0]])
    true = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 0, 0]])
    micro, macro = f1_scores(said, true)
    assert micro == pytest.approx(2 * 2 / 7)
    assert macro == pytest.approx((0.5 + 2 / 3 + 0) / 3)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="c is 0"):
        LogisticRegression(3, c=0)
    with pytest.raises(ValueError, match="max_iter is 0"):
        LogisticRegression(3, max_iter=0)
    with pytest.raises(RuntimeError, match="fit"):
        LogisticRegression(3).logits(torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        ([[0.0]], torch.tensor([0]), TypeError, "x is a list; it must be a torch tensor"),
        (
            torch.rand(3, 2),
            torch.tensor([0, 1]),
            ValueError,
            r"x has shape \[3, 2\] and y \[2\]; they must be \[n, dim\]",
        ),
        (torch.rand(3), torch.tensor([0, 1, 0]), ValueError, r"x has shape \[3\] and y \[3\]"),
        (torch.rand(2, 2), torch.tensor([0, 2]), ValueError, "y holds class 2; valid classes are 0 to 1"),
        (
            torch.rand(2, 2),
            torch.tensor([0.0, 1.0]),
            TypeError,
            "y has dtype torch.float32; it must be an integer type",
        ),
        (torch.rand(0, 2), torch.tensor([], dtype=torch.int64), ValueError, "y is empty"),
    ],
)
def test_what_cannot_be_fitted_is_named(x, y, error, message):
    with pytest.raises(error, match=message):
        LogisticRegression(2).fit(x, y)

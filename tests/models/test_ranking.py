"""Measures of ranking beside scikit-learn and a slow reference."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch.plugins.precision import HalfPrecision
from sklearn.metrics import average_precision_score, roc_auc_score

from models.ranking import auc, average_precision, hits, mrr, ranks

SCORES = st.lists(st.integers(-3, 3), min_size=1, max_size=20)  # few values: many ties


@given(SCORES, SCORES)
def test_auc_is_scikit_learns(positive, negative):
    got = auc(torch.tensor(positive).float(), torch.tensor(negative).float())
    want = roc_auc_score([1] * len(positive) + [0] * len(negative), positive + negative)
    assert np.isclose(got, want)


@given(SCORES, SCORES)
def test_average_precision_is_scikit_learns(positive, negative):
    got = average_precision(torch.tensor(positive).float(), torch.tensor(negative).float())
    want = average_precision_score([1] * len(positive) + [0] * len(negative), positive + negative)
    assert np.isclose(got, want)


def test_measures_are_exact_whatever_torchs_type_is():
    positive, negative = torch.randn(2, 500, generator=torch.Generator().manual_seed(0))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # as within a run with trainer.precision=bf16-true
    try:
        placed = ranks(positive, negative[:, None])
        found = [auc(positive, negative), average_precision(positive, negative), mrr(placed), hits(placed, 1)]
    finally:
        torch.set_default_dtype(before)
    truth, scores = [1] * 500 + [0] * 500, torch.cat([positive, negative])
    above = (negative > positive).double()
    want = [
        roc_auc_score(truth, scores),
        average_precision_score(truth, scores),
        1 - above.mean() / 2,
        1 - above.mean(),
    ]
    np.testing.assert_allclose(found, want, rtol=1e-9)


def test_average_precision_ignores_torchs_default_type():
    scores = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0))
    with HalfPrecision("bf16-true").forward_context():
        got = average_precision(*scores)
    assert got == pytest.approx(average_precision_score([1] * 1000 + [0] * 1000, scores.view(-1)), rel=1e-6)


@given(st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=1, max_size=9))
def test_equal_scores_share_their_mean_rank(rows):
    scores = torch.tensor(rows).float()
    got = ranks(scores[:, 0], scores[:, 1:])
    for (positive, *negative), rank in zip(rows, got.tolist(), strict=True):
        places = sorted([positive, *negative], reverse=True)
        best, worst = places.index(positive) + 1, len(places) - places[::-1].index(positive)
        assert rank == (best + worst) / 2


def test_mrr_and_hits_average_the_ranks():
    placed = torch.tensor([1.0, 2.0, 4.0, 20.0], dtype=torch.float64)
    assert mrr(placed) == (1 + 1 / 2 + 1 / 4 + 1 / 20) / 4
    assert [hits(placed, k) for k in (1, 3, 10)] == [0.25, 0.5, 0.75]


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"positive has shape \[3\] and negative \[2, 4\]; they must be"):
        ranks(torch.rand(3), torch.rand(2, 4))


@pytest.mark.parametrize("positive", [[math.nan, 1.0], [1.0, 1.0]])
def test_measures_of_nan_are_nan(positive):
    positive, negative = torch.tensor(positive), torch.tensor([[1.0, math.nan], [0.0, 0.5]])
    placed = ranks(positive, negative)
    assert placed.isnan().tolist() == [True, False]
    measures = auc(positive, negative[0]), average_precision(positive, negative[0]), mrr(placed), hits(placed, 1)
    assert all(math.isnan(measure) for measure in measures)
    assert math.isnan(hits(placed, 10))
    with_one = torch.tensor([math.nan, 1.0])
    assert math.isnan(auc(with_one, torch.ones(3)))
    assert math.isnan(average_precision(with_one, torch.ones(3)))

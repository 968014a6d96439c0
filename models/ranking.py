"""How well scores tell links from others: AUC, average precision, mean reciprocal rank, hits.

Scores of a model that diverged are NaN. All measures of them are NaN, too, so no run is chosen for them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def auc(positive: Tensor, negative: Tensor) -> float:
    """The share of pairs of a positive and a negative in which the positive has the higher score; a tie counts half.

    Args:
        positive, negative: `[n]` and `[m]` scores, at least one each.
    """
    if positive.isnan().any() or negative.isnan().any():
        return math.nan
    ordered = torch.sort(negative.double()).values
    scores = positive.double().contiguous()
    below = torch.searchsorted(ordered, scores, right=False)
    not_above = torch.searchsorted(ordered, scores, right=True)
    return float((below + not_above).double().mean() / 2 / negative.numel())


def average_precision(positive: Tensor, negative: Tensor) -> float:
    """The mean, over positives, of the share of positives among all that score at least as high.

    The area under the curve of precision over recall, by steps, as scikit-learn's `average_precision_score` has it.

    Args:
        positive, negative: `[n]` and `[m]` scores, at least one positive.
    """
    if positive.isnan().any() or negative.isnan().any():
        return math.nan
    scores = positive.double().contiguous()

    def at_least(ordered: Tensor) -> Tensor:
        return ordered.numel() - torch.searchsorted(ordered, scores, right=False)

    true, false = (at_least(torch.sort(part.double()).values) for part in (positive, negative))
    return float((true.double() / (true + false)).mean())


def ranks(positive: Tensor, negative: Tensor) -> Tensor:
    """`[n]` the rank of each positive among its own negatives, from 1; of equal scores the mean rank. It is NaN if one
    of these scores is.

    Args:
        positive: `[n]` scores.
        negative: `[n, k]` scores.

    Raises:
        ValueError: they have other shapes.
    """
    if negative.dim() != 2 or positive.shape != negative.shape[:1]:
        raise ValueError(
            f"positive has shape {list(positive.shape)} and negative {list(negative.shape)}; they must be [n], [n, k]"
        )
    above = (negative > positive[:, None]).sum(1)
    equal = (negative == positive[:, None]).sum(1)
    unknown = positive.isnan() | negative.isnan().any(1)
    return (1 + above + equal.double() / 2).masked_fill(unknown, math.nan)


def mrr(ranks: Tensor) -> float:
    """The mean of one over the rank."""
    return float((1 / ranks).mean())


def hits(ranks: Tensor, k: int) -> float:
    """The share of ranks of at most `k`."""
    return float((ranks <= k).double().masked_fill(ranks.isnan(), math.nan).mean())

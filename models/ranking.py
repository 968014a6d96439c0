"""How well scores tell links from others: AUC, average precision, mean reciprocal rank, hits."""

from __future__ import annotations

import torch
from torch import Tensor


def auc(positive: Tensor, negative: Tensor) -> float:
    """The share of pairs of a positive and a negative in which the positive has the higher score; a tie counts half.

    Args:
        positive, negative: `[n]` and `[m]` scores, at least one each.
    """
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
    scores = positive.double().contiguous()

    def at_least(ordered: Tensor) -> Tensor:
        return ordered.numel() - torch.searchsorted(ordered, scores, right=False)

    true, false = (at_least(torch.sort(part.double()).values) for part in (positive, negative))
    return float((true / (true + false)).mean())


def ranks(positive: Tensor, negative: Tensor) -> Tensor:
    """`[n]` the rank of each positive among its own negatives, from 1; of equal scores the mean rank.

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
    return 1 + above + equal.double() / 2


def mrr(ranks: Tensor) -> float:
    """The mean of one over the rank."""
    return float((1 / ranks).mean())


def hits(ranks: Tensor, k: int) -> float:
    """The share of ranks of at most `k`."""
    return float((ranks <= k).double().mean())

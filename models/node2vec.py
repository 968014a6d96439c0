"""node2vec: skip-gram with negative sampling on random walks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from loader.machine.arguments import as_finite, as_flag, as_size, shown

# The weight of negative pairs that each objective has, if no other is given.
OBJECTIVES = {"torch_geometric": 1.0, "word2vec": 5.0}


class Node2Vec(nn.Module):
    """An embedding of nodes that tells those on one walk from nodes at random.

    The objective of node2vec (Grover and Leskovec, KDD 2016), which with uniform walks is DeepWalk's (Perozzi et al.,
    KDD 2014) with negative sampling (Mikolov et al., NeurIPS 2013). There are two forms of it.

    "torch_geometric" is that of `torch_geometric.nn.Node2Vec`. One table has a row `x_u` for each node. Each window
    of `context_size` consecutive nodes of a walk pairs its first one with the others. For negative samples, the
    start of a walk and as many nodes at random as it has steps take the place of a walk. The loss is the mean of
    `-log sigmoid(x_u . x_v)` over pairs of walks, plus `negative_weight` times the mean of `-log(1 - sigmoid(x_u .
    x_v))` over pairs of negative ones.

    "word2vec" is that of word2vec and gensim, by which the authors of node2vec trained. Each node has a row `x_u` in
    the embedding and a row `y_u` in `context`, which is only needed to train. Each node of a walk is paired with
    those at most `context_size - 1` steps before and after it. word2vec draws the size of each window, uniformly from 1
    to the largest. Here a pair at distance `d` has instead the probability that it is drawn as its weight,
    `(context_size - d) / (context_size - 1)`, so the gradient is the expected one (Levy, Goldberg and Dagan, TACL
    2015). To each pair belongs the mean over all negative samples of its walk, where word2vec draws
    `negative_weight` of them and adds them up. The expectation is the same, but word2vec leaves out a negative sample
    that happens to be the pair's own node. The loss is the weighted mean over the pairs of `-log sigmoid(x_u . y_v)
    - negative_weight * log(1 - sigmoid(x_u . y_n))`. word2vec draws negative samples by frequency to the power 0.75:
    `WalkSampler(negative_exponent=0.75)`.

    Pairs with a node after the end of a walk are left out. The products of all pairs of a walk are one matrix product
    of its nodes' rows: they are never gathered by pairs.

    Args:
        num_nodes: number of nodes.
        dim: width of the embedding.
        context_size: nodes of a window, at least 2.
        sparse: gradients have the rows of the mini-batch only, for `torch.optim.SparseAdam`.
        init_std: standard deviation of the normal numbers that the embedding begins with; greater than 0 and finite.
            None: as in the objective. torch_geometric has 1. With 0.1 its objective learns in fewer epochs: the
            products of rows of 128 such numbers are near 0, in place of 11 and -11, for which the loss is steep.
            word2vec has uniform numbers from `-0.5 / dim` to `0.5 / dim`. `context` begins with 0.
        objective: "torch_geometric" or "word2vec".
        negative_weight: of negative pairs beside the others, greater than 0 and finite, the negative samples per pair
            of word2vec. None: as in the objective, 1 in torch_geometric and 5 in word2vec.

    Raises:
        TypeError, ValueError: a size is none, or too small; another value is out of its range.
    """

    def __init__(
        self,
        num_nodes: int,
        dim: int = 128,
        context_size: int = 10,
        *,
        sparse: bool = True,
        init_std: float | None = None,
        objective: str = "torch_geometric",
        negative_weight: float | None = None,
    ) -> None:
        super().__init__()
        for name, size, least in (("num_nodes", num_nodes, 1), ("dim", dim, 1), ("context_size", context_size, 2)):
            as_size(name, size, least, most=2**40 if name == "num_nodes" else 2**31 - 1)
        if not isinstance(objective, str) or objective not in OBJECTIVES:
            raise ValueError(f"objective is {shown(objective)}; it must be {' or '.join(map(repr, OBJECTIVES))}")
        for name, value in (("init_std", init_std), ("negative_weight", negative_weight)):
            if value is not None:
                as_finite(name, value, positive=True)
        sparse = as_flag("sparse", sparse)
        self.context_size, self.objective = context_size, objective
        self.negative_weight = OBJECTIVES[objective] if negative_weight is None else float(negative_weight)
        self.embedding = nn.Embedding(num_nodes, dim, sparse=sparse)  # of normal numbers, with deviation 1
        two = objective == "word2vec"
        with torch.no_grad():
            if two and init_std is None:
                self.embedding.weight.uniform_(-0.5 / dim, 0.5 / dim)
            elif init_std is not None:
                self.embedding.weight.mul_(init_std)
        zeros = torch.zeros(num_nodes, dim) if two else None
        self.context = None if zeros is None else nn.Embedding(num_nodes, dim, sparse=sparse, _weight=zeros)

    def forward(self, nodes: Tensor | None = None) -> Tensor:
        """Rows `[n, dim]` of `nodes` `[n]`, or of all nodes."""
        weight: Tensor = self.embedding.weight
        return weight if nodes is None else weight[nodes]

    def loss(self, walks: Tensor, negatives: Tensor) -> Tensor:
        """The loss of one mini-batch, a scalar.

        Args:
            walks: `[walkers, length + 1]`, -1 after the end of a walk.
            negatives: `[walkers, num_negatives, length]`.

        Raises:
            ValueError: walks are shorter than a window, or there are no negatives.
        """
        if walks.shape[1] < self.context_size:
            raise ValueError(
                f"walks have {walks.shape[1]} nodes, a window has {self.context_size}; make walks longer "
                "(walk_length) or windows smaller (context_size)"
            )
        if negatives.shape[1] == 0:
            raise ValueError("there are no negative samples; ask for at least 1 (num_negatives)")
        return self._by_one_table(walks, negatives) if self.context is None else self._by_two(walks, negatives)

    def _by_one_table(self, walks: Tensor, negatives: Tensor) -> Tensor:
        starts = walks[:, :1].repeat_interleave(negatives.shape[1], 0)
        both = torch.cat([walks, torch.cat([starts, negatives.flatten(0, 1)], 1)])
        goes = both >= 0
        # One look-up, so one sparse gradient. A row that is there anyway stands for what comes after an end.
        x = self.embedding(torch.where(goes, both, both[:, :1]))
        sizes = [len(walks), len(both) - len(walks)]
        halves = zip(x.split(sizes), goes.split(sizes), (1.0, -1.0), strict=True)
        losses = [self._half(rows, known, sign) for rows, known, sign in halves]
        return losses[0] + self.negative_weight * losses[1]

    def _half(self, x: Tensor, goes: Tensor, sign: float) -> Tensor:
        """The mean of `-log sigmoid(sign * x_u . x_v)` over the pairs of all windows.

        Args:
            x: `[walkers, length + 1, dim]`.
            goes: `[walkers, length + 1]`, which of them are nodes of the walk.
        """
        length = x.shape[1]
        firsts = length - self.context_size + 1
        products = torch.bmm(x[:, :firsts], x.transpose(1, 2))  # [walkers, firsts, length + 1]
        away = torch.arange(length, device=x.device) - torch.arange(firsts, device=x.device)[:, None]
        pairs = (away > 0) & (away < self.context_size) & goes[:, None]  # a walk that goes on has all before
        losses = F.softplus(-sign * products)
        return torch.where(pairs, losses, 0.0).sum() / pairs.sum().clamp(min=1)

    def _by_two(self, walks: Tensor, negatives: Tensor) -> Tensor:
        assert self.context is not None
        goes = walks >= 0
        there = torch.where(goes, walks, walks[:, :1])  # as above
        y = self.context(torch.cat([there, negatives.flatten(1)], 1))
        products = torch.bmm(self.embedding(there), y.transpose(1, 2))  # [walkers, length + 1, pairs, then negatives]
        near, far = products.split([walks.shape[1], negatives[0].numel()], 2)
        places = torch.arange(walks.shape[1], device=walks.device)
        away = (places - places[:, None]).abs()
        drawn = ((self.context_size - away) / (self.context_size - 1)).clamp(min=0).fill_diagonal_(0)
        pairs = drawn * (goes[:, :, None] & goes[:, None])  # [walkers, length + 1, length + 1]
        losses = (F.softplus(-near) * pairs).sum()
        losses = losses + self.negative_weight * (F.softplus(far).mean(2) * pairs.sum(2)).sum()
        total = pairs.sum()
        return losses / torch.where(total > 0, total, 1.0)

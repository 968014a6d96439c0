"""node2vec: skip-gram with negative sampling on random walks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from loader.machine.arguments import as_finite, as_flag, as_size


class Node2Vec(nn.Module):
    """An embedding of vertices that tells those on one walk from vertices at random.

    The objective of node2vec (Grover and Leskovec, KDD 2016), which with uniform walks is DeepWalk's (Perozzi et al.,
    KDD 2014) with negative sampling (Mikolov et al., NeurIPS 2013), as `torch_geometric.nn.Node2Vec` has it: each
    window of `context_size` consecutive vertices of a walk pairs its first one with the others. For negative samples,
    the start of a walk and as many vertices at random as it has steps take the place of a walk. The loss is the mean
    of `-log sigmoid(x_u . x_v)` over pairs of walks, plus that of `-log(1 - sigmoid(x_u . x_v))` over pairs of
    negative ones. Pairs with a vertex after the end of a walk are left out.

    The products of all pairs of a walk are one matrix product of its vertices' rows: they are never gathered by pairs.

    Args:
        num_nodes: number of vertices.
        dim: width of the embedding.
        context_size: vertices of a window, at least 2.
        sparse: gradients have the rows of the mini-batch only, for `torch.optim.SparseAdam`.
        init_std: standard deviation of the normal numbers that the embedding begins with; greater than 0 and finite. 1
            is torch_geometric's. With 0.1 it learns in fewer epochs: the products of rows of 128 such numbers are near
            0, in place of 11 and -11, for which the loss is steep.

    Raises:
        TypeError, ValueError: a size is none, or too small; `init_std` is out of its range.
    """

    def __init__(
        self,
        num_nodes: int,
        dim: int = 128,
        context_size: int = 10,
        *,
        sparse: bool = True,
        init_std: float = 1.0,
    ) -> None:
        super().__init__()
        for name, size, least in (("num_nodes", num_nodes, 1), ("dim", dim, 1), ("context_size", context_size, 2)):
            as_size(name, size, least, most=2**40 if name == "num_nodes" else 2**31 - 1)
        as_finite("init_std", init_std, positive=True)
        self.context_size = context_size
        self.embedding = nn.Embedding(num_nodes, dim, sparse=as_flag("sparse", sparse))
        with torch.no_grad():
            self.embedding.weight.mul_(init_std)  # which was drawn with 1

    def forward(self, nodes: Tensor | None = None) -> Tensor:
        """Rows `[n, dim]` of `nodes` `[n]`, or of all vertices."""
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
                f"walks have {walks.shape[1]} vertices, a window has {self.context_size}; make walks longer "
                "(walk_length) or windows smaller (context_size)"
            )
        if negatives.shape[1] == 0:
            raise ValueError("there are no negative samples; ask for at least 1 (num_negatives)")
        starts = walks[:, :1].repeat_interleave(negatives.shape[1], 0)
        both = torch.cat([walks, torch.cat([starts, negatives.flatten(0, 1)], 1)])
        goes = both >= 0
        # One look-up, so one sparse gradient. A row that is there anyway stands for what comes after an end.
        x = self.embedding(torch.where(goes, both, both[:, :1]))
        sizes = [len(walks), len(both) - len(walks)]
        halves = zip(x.split(sizes), goes.split(sizes), (1.0, -1.0), strict=True)
        losses = [self._half(rows, known, sign) for rows, known, sign in halves]
        return losses[0] + losses[1]

    def _half(self, x: Tensor, goes: Tensor, sign: float) -> Tensor:
        """The mean of `-log sigmoid(sign * x_u . x_v)` over the pairs of all windows.

        Args:
            x: `[walkers, length + 1, dim]`.
            goes: `[walkers, length + 1]`, which of them are vertices of the walk.
        """
        length = x.shape[1]
        firsts = length - self.context_size + 1
        products = torch.bmm(x[:, :firsts], x.transpose(1, 2))  # [walkers, firsts, length + 1]
        away = torch.arange(length, device=x.device) - torch.arange(firsts, device=x.device)[:, None]
        pairs = (away > 0) & (away < self.context_size) & goes[:, None]  # a walk that goes on has all before
        losses = F.softplus(-sign * products)
        return torch.where(pairs, losses, 0.0).sum() / pairs.sum().clamp(min=1)

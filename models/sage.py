"""GraphSAGE with the mean aggregator, on blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from loader.machine.arguments import as_fraction, as_size
from loader.machine.renamed_arguments import renamed_arguments
from loader.ops import aggregate_mean, linear_self_mean, self_and_mean
from loader.samples import Block, LazyRows

# One gathered element costs about as much as this many multiply-adds of the projection, forward and backward
# together (on an AMD EPYC core: 0.29 ns and 0.09 ns).
_MACS_PER_GATHER = 3

_MOST_LAYERS, _MOST_WIDTH = 1024, 2**31 - 1


class SAGEConv(nn.Module):
    """One layer: `out = W_self x_dst + W_neigh mean(x of the sampled in-neighbors) + b`.

    Equal to `dgl.nn.SAGEConv(..., "mean")` and `torch_geometric.nn.SAGEConv` with the same weights.

    Args:
        in_dim, out_dim: widths of input and output.
    """

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.in_dim = in_dim
        self.out_dim = out_dim
        self.lin_self = nn.Linear(in_dim, out_dim)
        self.lin_neigh = nn.Linear(in_dim, out_dim, bias=False)

    def projects_first(self, num_src: int, num_dst: int, num_edges: int, on_gpu: bool = False) -> bool:
        """Whether to multiply by `W_neigh` before the mean (the result is the same): where that is cheaper.

        Projecting first multiplies `num_src - num_dst` rows more, but narrows each of the gathered rows. On a CPU the
        multiplications count; on a GPU, which has plenty of them, the elements moved: a projected row is read and
        written three times (forward, gradient of `x`, gradient of `W_neigh`), a gathered row twice.
        """
        extra_rows = num_src - num_dst
        if on_gpu:
            return 2 * num_edges * (self.in_dim - self.out_dim) > 3 * extra_rows * (self.in_dim + self.out_dim)
        return num_edges * (self.in_dim - self.out_dim) * _MACS_PER_GATHER > extra_rows * self.in_dim * self.out_dim

    def forward(self, x: Tensor | LazyRows, block: Block, *, relu: bool = False, dropout: float = 0.0) -> Tensor:
        """`x [num_src, in_dim]` -> `[num_dst, out_dim]`.

        `x` goes through ReLU if `relu`, then through dropout of this probability: on a GPU they cost no pass over the
        memory of their own (see `loader.ops.linear_self_mean`). `LazyRows` are read where they lie, unless the layer
        `projects_first`.
        """
        on_gpu = block.captured is not None or x.device.type == "cuda"
        first = self.projects_first(block.num_src, block.num_dst, block.num_edges, on_gpu) and x.device.type != "meta"
        if on_gpu and not first:
            weights = self.lin_self.weight, self.lin_neigh.weight, self.lin_self.bias
            return linear_self_mean(x, block, *weights, relu=relu, dropout=dropout)
        if isinstance(x, LazyRows):
            x = x.gather()
        x = F.dropout(F.relu(x) if relu else x, dropout)
        if first:
            return self.lin_self(x[: block.num_dst]) + aggregate_mean(self.lin_neigh(x), block)
        return self.combine(*self_and_mean(x, block))

    def combine(self, x_dst: Tensor, mean: Tensor) -> Tensor:
        """The layer's output from a mean that was taken before: both `[num_dst, in_dim]` -> `[num_dst, out_dim]`."""
        return torch.addmm(self.lin_self(x_dst), mean, self.lin_neigh.weight.t())


@renamed_arguments({"hidden": "hidden_channels"})
class GraphSAGE(nn.Module):
    """GraphSAGE-mean (Hamilton et al. 2017, https://arxiv.org/abs/1706.02216).

    `num_layers` SAGEConv; between them norm, ReLU and dropout.

    Args:
        in_dim, hidden_channels, out_dim: widths of the input features, of the hidden layers, and of the output.
        num_layers: depth; the sampler needs as many hops.
        dropout: probability in [0, 1) that an element of a hidden layer is dropped in training.
        input_dropout: the same for the input features.
        norm: "none", "batch" or "layer", applied to the hidden layers.

    Raises:
        TypeError, ValueError: a size below 1, a probability outside [0, 1), an unknown norm.
    """

    def __init__(
        self,
        in_dim: int,
        hidden_channels: int,
        out_dim: int,
        num_layers: int = 2,
        dropout: float = 0.5,
        norm: str = "none",
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        for name, size in (
            ("in_dim", in_dim),
            ("hidden_channels", hidden_channels),
            ("out_dim", out_dim),
            ("num_layers", num_layers),
        ):
            as_size(name, size, most=_MOST_LAYERS if name == "num_layers" else _MOST_WIDTH)
        for name, p in (("dropout", dropout), ("input_dropout", input_dropout)):
            as_fraction(name, p)
        if not isinstance(norm, str) or norm not in _NORMS:
            raise ValueError(f"norm is {norm!r}; it must be one of {', '.join(_NORMS)}")
        self.dropout = dropout
        self.input_dropout = input_dropout
        widths = [in_dim, *[hidden_channels] * (num_layers - 1), out_dim]
        self.convs = nn.ModuleList(SAGEConv(a, b) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(_NORMS[norm](hidden_channels) for _ in range(num_layers - 1))

    @property
    def num_layers(self) -> int:
        return len(self.convs)

    @property
    def first(self) -> SAGEConv:
        """The layer that reads the features."""
        first = self.convs[0]
        assert isinstance(first, SAGEConv)
        return first

    @property
    def out_dim(self) -> int:
        last = self.convs[-1]
        assert isinstance(last, SAGEConv)
        return last.out_dim

    def forward(self, blocks: Sequence[Block], x: Tensor | LazyRows) -> Tensor:
        """`x [num_input, in_dim]` -> `[num_output, out_dim]`; `blocks[0]` reads the input nodes.

        Raises:
            ValueError: the mini-batch has another number of hops than the model has layers, or its features another
                width than `in_dim`.
            TypeError: `x` is None, as in mini-batches of a loader without features, or `blocks` is a tensor.
        """
        if isinstance(blocks, Tensor):
            raise TypeError(f"blocks is a tensor {list(blocks.shape)}; call model(batch.blocks, batch.x)")
        if x is None:
            raise TypeError("x is None, so the mini-batch has no features; give the loader some")
        if len(blocks) != self.num_layers:
            raise ValueError(
                f"the mini-batch has {len(blocks)} hops, the model {self.num_layers} layers; "
                "give the sampler as many fanouts as the model has layers"
            )
        width = (x.table if isinstance(x, LazyRows) else x).shape[-1]
        if width != self.first.in_dim:
            raise ValueError(f"x has {width} features, the model's in_dim is {self.first.in_dim}; they must be equal")
        first, *others = zip(self.convs, blocks, strict=True)
        h: Tensor = first[0](x, first[1], dropout=self.input_dropout if self.training else 0.0)
        for norm, (conv, block) in zip(self.norms, others, strict=True):
            # What follows a layer, `activate`, is left to the next one, which reads the rows anyway.
            h = conv(norm(h), block, relu=True, dropout=self.dropout if self.training else 0.0)
        return h

    def activate(self, layer: int, x: Tensor) -> Tensor:
        """Norm, ReLU and dropout after convolution `layer`; the last one is left as it is."""
        if layer == self.num_layers - 1:
            return x
        return F.dropout(F.relu(self.norms[layer](x)), self.dropout, self.training)


_NORMS: dict[str, type[nn.Module]] = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}

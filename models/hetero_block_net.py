"""What models on typed mini-batches have in common whose layers apply all relations at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from loader.machine.arguments import as_fraction, as_size
from loader.ops.captured_hetero_batch import CapturedHeteroBatch
from loader.ops.hop_layout import HopLayout
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.lazy_rows import LazyFeatures
from loader.samples.segments import EdgeType


class HeteroBlockNet(nn.Module):
    """The types and relations of a model, and its options.

    Args:
        in_dims: node type -> width of its features, 0 if it has none, in the order of the graph's types.
        edge_types: the relations, in the order of the graph's.
        target: the node type of the seeds.
        hidden_channels: width of the hidden layers.
        num_layers: depth; the sampler needs as many hops.
        dropout, input_dropout: probabilities in [0, 1) that an element of a hidden layer, of the features, is dropped.
        norm: "none", or "layer": a layer norm per type after each layer but the last.

    Attributes:
        names: the node types.
        written: node types whose nodes each layer writes, the first layer first.
        read: those whose features are read.

    Raises:
        ValueError: a value out of its range, or no relation leads to the target.
    """

    def __init__(
        self,
        in_dims: Mapping[str, int],
        edge_types: Sequence[EdgeType],
        target: str,
        hidden_channels: int,
        num_layers: int,
        *,
        dropout: float,
        input_dropout: float,
        norm: str,
    ) -> None:
        super().__init__()
        self.num_layers, self.target = as_size("num_layers", num_layers), target
        self.hidden_channels = as_size("hidden_channels", hidden_channels)
        self.names, self.in_dims = tuple(in_dims), dict(in_dims)
        self.edge_types: list[EdgeType] = [(str(s), str(name), str(d)) for s, name, d in edge_types]
        for what, value in (("dropout", dropout), ("input_dropout", input_dropout)):
            as_fraction(what, value)
        if norm not in ("none", "layer"):
            way = ", which does not mix the rows of a mini-batch" if norm == "batch" else ""
            raise ValueError(f"norm is {norm!r}; it must be none or layer{way}")
        self.dropout, self.input_dropout = float(dropout), float(input_dropout)
        if all(key[2] != target for key in self.edge_types):
            raise ValueError(
                f"no relation leads to nodes of type {target}, so there is nothing to learn from; "
                "dataset.undirected=true adds the reverse of every edge"
            )
        self._slots = [sum(key[2] == name for key in self.edge_types) for name in self.names]
        written = [{target}]  # the last layer first
        for _ in range(num_layers):
            written.append(written[-1] | {s for s, _, d in self.edge_types if d in written[-1]})
        self.read, self.written = written[-1], written[-2::-1]
        # Of each relation its type of sources and of destinations, and of each type the relations into it.
        self._ends = [(self.names.index(source), self.names.index(sink)) for source, _, sink in self.edge_types]
        self._into = [[(r, s) for r, (s, d) in enumerate(self._ends) if d == t] for t in range(len(self.names))]

    def features(
        self, layout: HopLayout, name: str, dtype: torch.dtype, in_place: torch.dtype | None
    ) -> tuple[Tensor, Tensor | None]:
        """Rows of a type's features, `[n, F]`, and the places of its distinct nodes there; None if they follow on each
        other.

        Args:
            layout: of the mini-batch.
            name: of the type.
            dtype: of the rows, if they are gathered.
            in_place: rows of this dtype are read where they lie; None: all are gathered.

        Raises:
            ValueError: the mini-batch lacks these features.
        """
        width, drops = self.in_dims[name], self.input_dropout > 0 and self.training
        if isinstance(layout.unique_x, LazyFeatures) and in_place is not None and not drops:
            left = layout.unique_x.lazy.get(name)
            if left is not None and left.scales is None and left.dtype == in_place and left.shape[1] == width:
                return left.table, left.nodes
        x = layout.unique_x.get(name)
        if x is None or x.shape[-1] != width:
            has = 0 if x is None else x.shape[-1]
            raise ValueError(
                f"the mini-batch has {has} features of {name}, the model reads {width}; give the loader these"
            )
        return self.drop_inputs(x.to(dtype)), None

    def drop_inputs(self, x: Tensor) -> Tensor:
        """With the dropout of features."""
        return nn.functional.dropout(x, self.input_dropout, self.training)

    def check(self, batch: HeteroMiniBatch | CapturedHeteroBatch) -> None:
        """Raises ValueError if the mini-batch has another number of hops than the model has layers, or other types."""
        hops = len(batch.sizes) - 1
        if hops != self.num_layers:
            raise ValueError(
                f"the mini-batch has {hops} hops, the model {self.num_layers} layers; give the sampler as many fanouts "
                "as the model has layers"
            )
        seg = batch.segments
        if seg.names != self.names or list(seg.edge_types) != self.edge_types:
            raise ValueError(
                f"the mini-batch has node types {list(seg.names)} and relations {list(seg.edge_types)}, the model "
                f"{list(self.names)} and {self.edge_types}; make the model of the same graph"
            )


def uniform(shape: tuple[int, ...], width: int) -> nn.Parameter:
    """As the weights of `torch.nn.Linear` with inputs of this width."""
    bound = width**-0.5
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))

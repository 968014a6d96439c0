"""The sampled neighborhoods of seeds, of which each has a tree of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from loader.samples.hetero import HeteroMiniBatch


@dataclass(eq=False, repr=False)
class TreeMiniBatch(HeteroMiniBatch):
    """The sampled trees of a batch of seeds in a `HeteroGraph`: tree `i` is that of seed `i`.

    No edge leads from one tree to another. A node may lie in several trees, and is in `nodes` once for each of them;
    with `trees="paths"` also several times in one. The new nodes of a hop are in the order of type and, within it, of
    tree.

    Attributes:
        tree: `[num_nodes]` int32, the tree of each node.
        seed_times: `[batch_size]` int64, the times of the seeds, or None if they have none.
        items: `[batch_size]` int64, the seeds' numbers in the list of a loader, or None. Labels of the kind "seed" are
            gathered by these, since a node may be a seed at several times.
    """

    tree: Tensor = None  # type: ignore[assignment]  # it follows attributes that have defaults
    seed_times: Tensor | None = None
    items: Tensor | None = None

    def ids(self, kind: str) -> Tensor:
        return super().ids(kind) if kind != "seed" or self.items is None else self.items

    def to_dgl(self) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Any]]:
        """`(input_nodes, output_nodes, blocks)` of one hop, see `HeteroMiniBatch.to_dgl`.

        Raises:
            ValueError: there are several hops. DGL's blocks follow on each other, and those of trees do not.
        """
        if len(self.blocks) > 1:
            raise ValueError("DGL's blocks sample all nodes so far at each hop, and trees only the new ones: to_pyg()")
        return super().to_dgl()

    def to_pyg(self) -> Any:
        """A `torch_geometric.data.HeteroData`, see `HeteroMiniBatch.to_pyg`.

        Each node type has `batch`, the trees of its nodes. Types of seeds have `seed_time`, and as `input_id` the
        numbers of the seeds in a loader's list, if these are known.
        """
        data = super().to_pyg()
        for name in self.node_types:
            data[name].batch = self.tree_of(name).long()
        begin = 0
        for name, count in self.num_seeds.items():  # they lie type after type
            of_seeds, seeds = data[name], slice(begin, begin + count)
            if count and self.seed_times is not None:
                of_seeds.seed_time = self.seed_times[seeds]
            if count and self.items is not None:
                of_seeds.input_id = self.items[seeds]
            begin += count
        return data

    def tree_of(self, node_type: str) -> Tensor:
        """`[n]` int32, the trees of the nodes of a type, in the order of `n_id`."""
        return self.segments.of_type(self.tree, self.segments.type_of(node_type))

    def tensors(self) -> list[Tensor]:
        return [*super().tensors(), self.tree, *(t for t in (self.seed_times, self.items) if t is not None)]

    def map(self, f: Callable[[Tensor], Tensor]) -> TreeMiniBatch:
        mapped: Any = super().map(f)
        of_seeds = {"seed_times": self.seed_times, "items": self.items}
        return mapped.replace(tree=f(self.tree), **{k: None if t is None else f(t) for k, t in of_seeds.items()})

"""The sampled neighborhoods of seeds, of which each has a tree of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from loader.samples.base import Rows
from loader.samples.distinct import Distinct, OnceRows, SpreadRows
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.lazy_rows import LazyRows, gathered


@dataclass(eq=False, repr=False)
class TreeMiniBatch(HeteroMiniBatch):
    """The sampled trees of a batch of seeds in a `HeteroGraph`: tree `i` is that of seed `i`.

    No edge leads from one tree to another. A node may lie in several trees, and is in `nodes` once for each of them;
    with `trees="paths"` also several times in one. The new nodes of a hop are in the order of type and, within it, of
    tree.

    Stores gather a row for each distinct node, `unique_x`, or leave it in its table. `x[type]` has one for each node,
    and is made of them when it is first asked for.

    Attributes:
        tree: `[num_nodes]` int32, the tree of each node.
        seed_times: `[batch_size]` int64, the times of the seeds, or None if they have none.
        items: `[batch_size]` int64, the seeds' numbers in the list of a loader, or None. Labels of the kind "seed" are
            gathered by these, since a node may be a seed at several times.
    """

    tree: Tensor = None  # type: ignore[assignment]  # it follows attributes that have defaults
    seed_times: Tensor | None = None
    items: Tensor | None = None
    once: Distinct | None = field(default=None, repr=False)  # what `distinct` found

    @property
    def distinct(self) -> Distinct:
        """The distinct nodes. The first call, or that of `prepare`, finds them; the host then waits for the device."""
        if self.once is None:
            self.once = Distinct.of(self.nodes, self.segments)
        return self.once

    @property
    def unique(self) -> dict[str, Tensor]:
        """Node type -> `[u]` distinct ids within the type of the mini-batch's nodes of that type, ascending."""
        return dict(zip(self.node_types, self.distinct.ids_of_types(list(self.node_types)), strict=True))

    @property
    def row(self) -> dict[str, Tensor]:
        """Node type -> `[n]` int32: the place in `unique` of each node of that type, in the order of `n_id`."""
        return {name: self.distinct.row_of(name) for name in self.node_types}

    @property
    def unique_x(self) -> Mapping[str, Tensor]:
        """Node type -> `[u, F]` features of the distinct nodes, in the order of `unique`, of types that have a store:
        `x[type]` is `unique_x[type][row[type]]`. Those that are in their table are gathered when they are asked for.
        """
        return self.x.distinct if isinstance(self.x, SpreadRows) else {}

    def ids(self, kind: str) -> Tensor:
        """Returns the ids of a kind of rows, as `HeteroMiniBatch.ids`; of nodes ("node/TYPE") those of `unique`."""
        if kind == "seed" and self.items is not None:
            return self.items
        return super().ids(kind)

    def _ids_to_gather(self, names: Sequence[str]) -> list[Tensor]:
        return self.distinct.ids_of_types(names)

    def prepare(self, kinds: Collection[str]) -> None:
        if any(kind.startswith("node/") for kind in kinds):
            _ = self.distinct

    def with_rows(self, rows: Mapping[str, Rows]) -> TreeMiniBatch:
        """A copy with rows, see `HeteroMiniBatch.with_rows`. Those of nodes are of the distinct ones."""
        of_nodes = [kind for kind in rows if kind.startswith("node/") and self._type_of(kind) in self.node_types]
        others = {kind: left for kind, left in rows.items() if kind not in of_nodes}
        places = self.distinct.row_of if of_nodes else None  # before the copy, which shall have it
        batch: Any = super().with_rows(others) if others else self
        if places is None:
            return batch
        x, more = SpreadRows.of(batch.x, places), SpreadRows.of(batch.rows, places)
        for kind in of_nodes:
            left, name = rows[kind], self._type_of(kind)
            into, key = (x, name) if kind == f"node/{name}" else (more, kind)
            into.made.pop(key, None)
            # Features alone may stay in their table.
            into.once[key] = OnceRows(gathered(left) if into is more else left, name)
        return batch.replace(x=x if len(x) else None, rows=more)

    def to_dgl(self) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Any]]:
        """`(input_nodes, output_nodes, blocks)` of one hop, see `HeteroMiniBatch.to_dgl`.

        Raises:
            ValueError: there are several hops. DGL's blocks follow on each other, and those of trees do not.
        """
        if len(self.blocks) > 1:
            raise ValueError("DGL's blocks sample all nodes so far at each hop, and trees only the new ones: to_pyg()")
        return super().to_dgl()

    def of_trees(self) -> dict[str, Any]:
        return {
            "tree": {name: self.tree_of(name).long() for name in self.segments.names},
            "seed_times": self.seed_times,
            "positions": self.items,
        }

    def tree_of(self, node_type: str) -> Tensor:
        """`[n]` int32, the trees of the nodes of a type, in the order of `n_id`."""
        return self.segments.of_type(self.tree, self.segments.type_of(node_type))

    def tensors(self) -> list[Tensor]:
        """Lists the arrays of `HeteroMiniBatch.tensors`, then `tree` and, if known, `seed_times` and `items`.

        In place of rows that can be made of those of the distinct nodes, these are last, by name, after the arrays of
        `distinct`.
        """
        plain: Any = self.replace(x=_own(self.x), rows=_own(self.rows))
        found = [*super(TreeMiniBatch, plain).tensors(), self.tree]
        found += [t for t in (self.seed_times, self.items) if t is not None]
        found += [self.once.unique, self.once.row] if self.once is not None else []
        spread = [part.once for part in (self.x, self.rows) if isinstance(part, SpreadRows)]
        return [*found, *(once[name].tensor for once in spread for name in sorted(once))]

    def memory(self) -> list[Tensor]:
        made = [t for part in (self.x, self.rows) if isinstance(part, SpreadRows) for t in part.held()]
        return list({t.untyped_storage().data_ptr(): t for t in [*self.tensors(), *made]}.values())

    def record_stream(self, stream: Any) -> None:
        super().record_stream(stream)
        for once in self.x.once.values() if isinstance(self.x, SpreadRows) else ():
            if isinstance(once.rows, LazyRows):
                once.rows.record_stream(stream)

    def digest(self) -> str:
        """Returns the digest of all arrays, see `Sample.digest`, with rows for all nodes in place of distinct ones."""
        x = None if self.x is None else dict(self.x)
        return super(TreeMiniBatch, self.replace(x=x, rows=dict(self.rows), once=None)).digest()

    def map(self, f: Callable[[Tensor], Tensor]) -> TreeMiniBatch:
        once = None if self.once is None else self.once.map(f)

        def spread(part: Any, own: Any) -> Any:
            if not isinstance(part, SpreadRows) or once is None:
                return own
            found = {name: rows.map(f) for name, rows in part.once.items()}
            return SpreadRows(own, found, once.row_of)

        own = self.replace(x=_own(self.x), rows=_own(self.rows))
        mapped: Any = super(TreeMiniBatch, own).map(f)
        of_seeds = {"seed_times": self.seed_times, "items": self.items}
        return mapped.replace(
            tree=f(self.tree),
            once=once,
            x=spread(self.x, mapped.x),
            rows=spread(self.rows, mapped.rows),
            **{k: None if t is None else f(t) for k, t in of_seeds.items()},
        )


def _own(part: Mapping[str, Tensor] | None) -> Mapping[str, Tensor] | None:
    return part.own() if isinstance(part, SpreadRows) else part

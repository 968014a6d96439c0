"""The random walks of the walkers of one mini-batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from loader.samples.base import Rows, Sample
from loader.samples.lazy_rows import gathered

_TENSORS = ("nodes", "edge_ids", "negatives", "x", "edge_features", "y")


@dataclass(eq=False)
class Walks(Sample):
    """Random walks, one row per walker.

    Attributes:
        nodes: `[walkers, walk_length + 1]` node ids, dtype of `graph.indices`. The first column has the start nodes.
            After the end of a walk there is -1.
        edge_ids: `[walkers, walk_length]` ids of the followed edges, dtype of `graph.edge_ids`, or of `graph.indptr` if
            the graph has no ids. -1: the step followed no edge, because the walk had ended or went back to its start.
            None: the sampler has `edge_ids=False`.
        negatives: `[walkers, num_negatives, walk_length]` random nodes, dtype of `graph.indices`; None: the sampler has
            `num_negatives=0`.
        epoch, index: which epoch and which mini-batch of it this is.
        x: `[walkers, walk_length + 1, F]` features, or None if they were not gathered; zeros after the end of a walk.
        edge_features: `[walkers, walk_length, D]` features of the edges, or None; zeros for a step that followed no
            edge.
        y: `[walkers]` or `[walkers, C]` labels of the start nodes, or None if they were not gathered.
        repeats: see `Sample`.
    """

    nodes: Tensor
    edge_ids: Tensor | None = None
    negatives: Tensor | None = None
    epoch: int = 0
    index: int = 0
    x: Tensor | None = None
    edge_features: Tensor | None = None
    y: Tensor | None = None
    repeats: bool = False

    wants = ("node", "seed", "edge")

    def ids(self, kind: str) -> Tensor:
        """`[n]` ids: of all nodes ("node") or edges ("edge"), row by row, 0 for -1; or of the starts ("seed")."""
        if kind == "node":
            return self.nodes.clamp(min=0).flatten()
        if kind == "seed":
            return self.starts.contiguous()
        if kind == "edge" and self.edge_ids is not None:
            return self.edge_ids.clamp(min=0).flatten()
        return super().ids(kind)

    def has(self, kind: str) -> bool:
        return {"node": self.x, "seed": self.y, "edge": self.edge_features}.get(kind) is not None

    def with_rows(self, rows: Mapping[str, Rows]) -> Walks:
        """A copy with features `x`, labels `y` or features of the edges."""
        changes: dict[str, Any] = {}
        for kind, found in rows.items():
            table = gathered(found)
            if kind == "node":
                changes["x"] = _masked(table, self.nodes)
            elif kind == "edge" and self.edge_ids is not None:
                changes["edge_features"] = _masked(table, self.edge_ids)
            elif kind == "seed":
                changes["y"] = table
            else:
                return super().with_rows(rows)
        return self.replace(**changes)

    @property
    def starts(self) -> Tensor:
        """`[walkers]` the nodes where the walks start."""
        return self.nodes[:, 0]

    @property
    def walk_length(self) -> int:
        """Steps of a walk that does not end early."""
        return self.nodes.shape[1] - 1

    @property
    def batch_size(self) -> int:
        """Number of walkers."""
        return self.nodes.shape[0]

    def tensors(self) -> list[Tensor]:
        """All tensors, in a fixed order: nodes, edge ids, negatives, x, features of the edges, y."""
        return [t for name in _TENSORS if (t := getattr(self, name)) is not None]

    def map(self, f: Callable[[Tensor], Tensor]) -> Walks:
        return self.replace(**{name: f(t) for name in _TENSORS if (t := getattr(self, name)) is not None})

    def __repr__(self) -> str:
        return (
            f"Walks(epoch={self.epoch}, index={self.index}, walkers={self.batch_size}, "
            f"walk_length={self.walk_length}, device='{self.nodes.device}')"
        )


def _masked(rows: Tensor, ids: Tensor) -> Tensor:
    """`rows` in the shape of `ids`, zeros where these are -1."""
    rows = rows.view(*ids.shape, *rows.shape[1:])
    gone = (ids < 0).view(*ids.shape, *[1] * (rows.dim() - ids.dim()))
    return rows.masked_fill(gone, 0)

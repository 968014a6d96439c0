"""A task that the package does not know, uniform walks, made of its seams: items, sampler, sample, store and stage."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from loader.graph import Graph
from loader.items import Items, Seeds
from loader.pipeline import Stage
from loader.samplers import Sampler
from loader.samples import Sample


class Walkers(Items):
    """`walks` walkers at each of the `starts`; an item is `(start, walker)`."""

    kind = "walker"

    def __init__(self, starts: Tensor, walks: int) -> None:
        self.starts, self.walks, self.device = starts, walks, starts.device

    def __len__(self) -> int:
        return self.starts.numel() * self.walks

    def take(self, positions: Tensor | slice, sizes: Sequence[int]) -> list[Seeds]:
        walkers = torch.arange(len(self))[positions]
        return [Seeds(ids) for ids in torch.stack([self.starts[walkers // self.walks], walkers], 1).split(list(sizes))]

    def to(self, device: torch.device, dtype: torch.dtype) -> Walkers:
        return Walkers(self.starts.to(device, dtype), self.walks)

    def fingerprint(self) -> str:
        return hashlib.sha256(repr((self.starts.tolist(), self.walks)).encode()).hexdigest()


@dataclass(eq=False)
class Walks(Sample):
    """`steps` `[walkers, length + 1]`, -1 after a stop, and the rows `x` of their nodes; zeros after a stop."""

    steps: Tensor
    epoch: int
    index: int
    x: Tensor | None = None
    wants = ("node",)

    def tensors(self) -> list[Tensor]:
        return [t for t in (self.steps, self.x) if t is not None]

    def map(self, f: Any) -> Walks:
        return self.replace(steps=f(self.steps), x=None if self.x is None else f(self.x))

    def ids(self, kind: str) -> Tensor:
        return self.steps.clamp(min=0).flatten() if kind == "node" else super().ids(kind)

    def has(self, kind: str) -> bool:
        return self.x is not None

    def with_rows(self, rows: Any) -> Walks:
        return self.replace(x=rows["node"].view(*self.steps.shape, -1) * (self.steps >= 0)[..., None])


class UniformWalks(Sampler):
    items = "walker"

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def spec(self) -> dict[str, Any]:
        return {"picks": "walks", "length": self.length}

    def sample(self, graph: Graph, seeds: Tensor, *, epoch: int = 0, batch: int = 0) -> Walks:
        chance, steps = torch.Generator().manual_seed(epoch * 1_000_003 + batch), [seeds[:, 0].long()]
        for _ in range(self.length):
            at = steps[-1].clamp(min=0)
            degree = graph.indptr[at + 1] - graph.indptr[at]
            picked = graph.indptr[at] + (torch.rand(len(at), generator=chance) * degree).long()
            goes_on = (steps[-1] >= 0) & (degree > 0)
            steps.append(torch.where(goes_on, graph.indices[picked.clamp(max=graph.num_edges - 1)].long(), -1))
        return Walks(torch.stack(steps, 1), epoch, batch)


class Waves:
    """A store without a table: row `v` is sines of `v`."""

    num_rows, row_shape, dim, dtype, device, asynchronous = 10**9, (4,), 4, torch.float32, torch.device("cpu"), False

    def gather(self, nodes: Tensor) -> Tensor:
        return torch.sin(nodes[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001]))

    def check(self) -> None: ...
    def close(self) -> None: ...


class Mean(Stage):
    """The mean of a walk's rows takes their place."""

    name = "mean"

    def run(self, item: Walks) -> Walks:
        return item.replace(x=item.x.mean(1))

"""The protocol of all samplers: seeds in, `MiniBatch` out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from loader.graph import Graph, require_square
from loader.samples import MiniBatch

MAX_FANOUT = 1024
MAX_HOPS = 8


def resolve_fanouts(fanouts: int | Sequence[int], num_hops: int | None = None) -> tuple[int, ...]:
    """Fanouts in hop order (from the seeds outward), one per hop.

    Args:
        fanouts: neighbours picked per vertex at each hop; -1 takes all of them. One number means the same at
            every hop and needs `num_hops`.
        num_hops: number of hops, the model's depth.

    Raises:
        ValueError: a fanout outside -1, 1..1024, or a count that contradicts `num_hops`.
    """
    for k in (fanouts,) if isinstance(fanouts, (int, float)) else fanouts:
        if not isinstance(k, int) or isinstance(k, bool):
            raise TypeError(f"fanout {k!r} is not an integer; give 1 to {MAX_FANOUT}, or -1 for all neighbours")
    if isinstance(fanouts, int):
        if num_hops is None:
            raise ValueError(f"fanouts is the single number {fanouts}: say num_hops too, or give a list")
        resolved = (fanouts,) * num_hops
    else:
        resolved = tuple(int(k) for k in fanouts)
        if num_hops is not None and len(resolved) != num_hops:
            raise ValueError(
                f"fanouts {list(resolved)} has {len(resolved)} entries for {num_hops} layers; "
                f"give {num_hops} of them, or one number for all hops"
            )
    if not 1 <= len(resolved) <= MAX_HOPS:
        raise ValueError(f"{len(resolved)} hops were asked for; 1 to {MAX_HOPS} are possible")
    for k in resolved:
        if k != -1 and not 1 <= k <= MAX_FANOUT:
            raise ValueError(f"fanout {k} is not possible: give 1 to {MAX_FANOUT}, or -1 for all neighbours")
    return resolved


class Sampler(ABC):
    """Samples the L-hop neighbourhood of seeds, hop by hop outward.

    What is sampled depends on nothing but `(graph, seed, epoch, batch, hop, vertex)`: the same
    arguments give the same mini-batch again, whatever was sampled before and on however many threads.

    Args:
        fanouts: see `resolve_fanouts`.
        num_hops: see `resolve_fanouts`.
        replace: pick with replacement: always `fanout` independent picks of a vertex that has neighbours.
        edge_ids: return the ids of the sampled edges.
        seed: of all random choices, `0 <= seed < 2**64`.

    Attributes:
        batches_per_launch: so many mini-batches that were begun (`start`) are sampled together; a loader that works
            ahead begins so many at a time.
        picks: names how it picks: samplers of one name give equal mini-batches, and a run begun with one may go on with
            another. None: it stands for itself.
    """

    batches_per_launch = 1
    picks: str | None = None

    def __init__(
        self,
        fanouts: int | Sequence[int],
        num_hops: int | None = None,
        *,
        replace: bool = False,
        edge_ids: bool = False,
        seed: int = 0,
    ) -> None:
        self.fanouts = resolve_fanouts(fanouts, num_hops)
        self.replace = bool(replace)
        self.edge_ids = bool(edge_ids)
        if not isinstance(seed, int):
            raise TypeError(f"seed is {seed!r}; it must be an integer")
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed is {seed}; it must be in [0, 2**64)")
        self.seed = seed

    @property
    def num_hops(self) -> int:
        return len(self.fanouts)

    @property
    def device(self) -> torch.device:
        """Where the mini-batches lie."""
        return torch.device("cpu")

    @property
    def asynchronous(self) -> bool:
        """Whether `start` returns before the mini-batch is sampled."""
        return False

    @abstractmethod
    def sample(self, graph: Graph, seeds: Tensor, *, epoch: int = 0, batch: int = 0) -> MiniBatch:
        """Samples one mini-batch.

        Args:
            graph: where to sample.
            seeds: `[batch_size]`, integer, distinct vertices of the graph.
            epoch, batch: which epoch and mini-batch this is; both non-negative.

        Raises:
            ValueError: seeds out of range or duplicated.
        """

    def start(self, graph: Graph, seeds: Tensor, *, epoch: int = 0, batch: int = 0) -> Callable[[], MiniBatch]:
        """Begins a mini-batch and returns what finishes it: `start(...)()` is `sample(...)`.

        A GPU sampler only puts its work on the current stream here; finishing waits for the sizes, on whatever
        stream is current then. Others sample at once. Mini-batches are finished in the order they were begun.

        Args and Raises: see `sample`; errors may come from either half.
        """
        sampled = self.sample(graph, seeds, epoch=epoch, batch=batch)
        return lambda: sampled

    def close(self) -> None:  # noqa: B027 - most samplers hold nothing
        """Frees threads and workspaces; the sampler cannot be used afterwards."""


def check_position(epoch: int, batch: int) -> None:
    """Raises ValueError unless both count from 0."""
    if 0 <= epoch < 2**64 and 0 <= batch < 2**64:
        return
    name, value = ("batch", batch) if 0 <= epoch < 2**64 else ("epoch", epoch)
    raise ValueError(f"{name} is {value}; it must be in [0, 2**64)")


def as_seeds(graph: Graph, seeds: Tensor) -> Tensor:
    """`seeds` as a contiguous vector of the graph's vertex type; the core checks range and uniqueness."""
    require_square(graph, "a sampler of neighbours")
    if not isinstance(seeds, Tensor) or seeds.dim() != 1:
        raise ValueError("seeds must be a tensor with 1 dimension")
    if seeds.is_floating_point() or seeds.dtype == torch.bool:
        raise TypeError(f"seeds has dtype {seeds.dtype}; it must be an integer type (mask.nonzero().view(-1))")
    if seeds.dtype == torch.int64 and graph.indices.dtype == torch.int32 and seeds.numel():
        low, high = (int(x) for x in torch.aminmax(seeds))
        if low < 0 or high >= graph.num_nodes:
            bad = low if low < 0 else high
            raise ValueError(f"seeds holds vertex {bad}; valid ids are 0 to {graph.num_nodes - 1}")
    return seeds.to(graph.indices.dtype).contiguous()

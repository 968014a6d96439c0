"""The options of samplers of trees, and what their sessions sample by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import Self

from loader import _core
from loader.graph import Graph, HeteroGraph, require_graph
from loader.graph.times import TIMES, TimedLists, check_rule, check_times
from loader.machine.arguments import as_flag, as_size, check_known, kind_of, shown
from loader.machine.cpus import as_threads, available_cpus
from loader.machine.devices import as_device
from loader.machine.gpu import cuda_device, require_cuda
from loader.samplers.base import OTHERS_OPTIONS, AnyGraph, as_seeds
from loader.samplers.gpu.sizes import TOGETHER, GpuOptions
from loader.samples.trees import TreeMiniBatch

TREES = ("unique", "paths")
BOUNDS = ("seed", "edge")
RANKS_APART = 32  # of those that the kernels search first, see csrc/graph/timed.h


class TreeOptions(GpuOptions):
    """The options of a `TreeSampler`, which sessions read."""

    picks = "trees.h"  # of csrc/sampler/
    in_trees = True

    def __init__(
        self,
        fanouts: int | Sequence[int] | Mapping[Any, Any] = (),
        num_hops: int | None = None,
        *,
        trees: str = "unique",
        times: str = "none",
        rule: str = "<=",
        window: int | None = None,
        bound: str = "seed",
        last: bool = False,
        missing_times: str = "error",
        weights: str | None = None,
        device: str | torch.device = "cpu",
        num_threads: int | None = None,
        batches_per_launch: int | None = None,
        **options: Any,
    ) -> None:
        known = ["replace", "edge_ids", "seed", "labor", "layer_dependency", "batch_dependency"]
        ways = {
            **OTHERS_OPTIONS,
            "disjoint": "every seed has a tree of its own",
            "expand": "a tree grows from what the hop before found: leave it out (train.py: ~sampler.expand)",
            "top_k": "last=True takes the latest entries; the heaviest ones are picked by FusedSampler",
            "weight_tables": "a row sees a part of its list, so trees are picked without tables",
        }
        check_known(type(self).__name__, options, known, ways)
        super().__init__(fanouts, num_hops, weights=weights, weight_tables=weights is None, expand="new", **options)
        for name, value, of in (("trees", trees, TREES), ("times", times, ("none", *TIMES)), ("bound", bound, BOUNDS)):
            if value not in of:
                raise ValueError(f"{name} is {shown(value)}; it must be one of {', '.join(map(repr, of))}")
        check_times("both", missing_times)
        check_rule(rule, window, missing_times)
        self.trees, self.times, self.rule, self.bound, self.missing_times = trees, times, rule, bound, missing_times
        self.window = None if window is None else as_size("window", window, 1, 2**63 - 1)
        self.last, self.timed = as_flag("last", last), times != "none"
        if not self.timed:
            self._require_no_times()
        if bound == "edge" and trees != "paths":
            raise ValueError(
                "bound is 'edge', but trees is 'unique': two edges of other times may lead to one node of a tree; use "
                "trees='paths'"
            )
        if self.last and (self.replace or weights is not None or self.picking.labor):
            other = "replace=True" if self.replace else "weights" if weights is not None else "labor=True"
            raise ValueError(f"last=True takes the latest entries, so nothing is drawn; leave {other} out")
        device = as_device(device)
        self._on_gpu = device.type != "cpu"
        self._device = self._gpu(device) if self._on_gpu else torch.device("cpu")
        self.num_threads = available_cpus() if num_threads is None else as_threads(num_threads)
        if batches_per_launch is not None and not self._on_gpu:
            raise ValueError(
                f"batches_per_launch is {batches_per_launch!r}, but the sampler runs on the CPU; leave it out, or "
                "device='cuda'"
            )
        together = (TOGETHER if self._on_gpu else 1) if batches_per_launch is None else batches_per_launch
        most = _core.cuda_max_batches_per_launch
        self.batches_per_launch = as_size("batches_per_launch", together, most=most)

    def _require_no_times(self) -> None:
        given = {"rule": self.rule != "<=", "window": self.window is not None, "bound": self.bound != "seed"}
        given |= {"last": self.last, "missing_times": self.missing_times != "error"}
        if names := [name for name, is_given in given.items() if is_given]:
            raise ValueError(f"{names[0]} says what of the times is seen, but times is 'none'; give times='both'")

    def _gpu(self, device: torch.device) -> torch.device:
        require_cuda("a GPU sampler")
        return cuda_device(device)

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def asynchronous(self) -> bool:
        return self._on_gpu

    def _moved(self, device: torch.device) -> Self:
        return self._with(_device=cuda_device(device))

    def spec(self) -> dict[str, Any]:
        timed = {"times": self.times, "rule": self.rule, "window": self.window, "bound": self.bound}
        timed |= {"last": self.last, "missing_times": self.missing_times}
        return {**super().spec(), "trees": self.trees, **({} if self.times == "none" else timed)}

    def as_hetero(self, graph: AnyGraph) -> HeteroGraph:
        """The graph that is sampled for `graph`; raises TypeError if it has one type."""
        require_graph(graph)
        if isinstance(graph, Graph):
            raise TypeError("graph has one type of nodes; TreeSampler samples a HeteroGraph: HeteroGraph.of(graph)")
        return graph

    def shaped(self, sample: TreeMiniBatch, graph: AnyGraph) -> Any:
        """A mini-batch of trees of `graph` in the form that this sampler gives."""
        return sample


class Sight(NamedTuple):
    """What a session samples.

    Attributes:
        graph: as given.
        lists: in the order of time, if times count.
        timed: None if they do not.
    """

    graph: HeteroGraph
    lists: Graph
    timed: TimedLists | None

    @classmethod
    def of(cls, sampler: TreeOptions, graph: HeteroGraph) -> Sight:
        graph.require_sound()
        if sampler.times == "none":
            return cls(graph, graph.lists, None)
        timed = graph.by_time(sampler.times, sampler.missing_times)
        return cls(graph, timed.lists, timed)

    @property
    def sees_times(self) -> bool:
        """Whether anything that is listed has a time."""
        return self.timed is not None and self.timed.ranks is not None and self.timed.ranks.numel() > 0

    def core_times(self, sampler: TreeOptions, device: torch.device) -> Any:
        """What the core knows of the times. Its arrays are the core's to keep."""
        timed = self.timed
        if timed is None or timed.ranks is None or not self.sees_times:
            return None
        first_of, of_edge = None, sampler.bound == "edge"
        if of_edge and sampler.window is not None:
            first_of = timed.ranks_of(timed.values, sampler.rule, sampler.window)[0].to(device)
        ranks = timed.ranks.to(device)  # of a graph in pinned memory, too
        return _core.Times(
            ranks,
            ranks[::RANKS_APART].contiguous(),
            _as_bits(timed.always).to(device),
            timed.values.to(device),
            strict=sampler.rule == "<",
            window=sampler.window,
            of_edge=of_edge,
            first_of=first_of,
        )

    def split(self, sampler: TreeOptions, seeds: Tensor) -> tuple[Tensor, Tensor | None]:
        """The seeds' ids and their times.

        Raises:
            TypeError: they are no tensor of ids.
            ValueError: they have no times, or have times that do not count.
        """
        if not isinstance(seeds, Tensor):
            raise TypeError(f"seeds is {kind_of(seeds)}; it must be a tensor of node ids (torch.as_tensor)")
        if self.timed is None:
            if seeds.dim() == 2:
                raise ValueError("the seeds have times, but times is 'none'; give times='both', or ids alone")
            return as_seeds(self.graph, seeds), None
        if seeds.dim() != 2 or seeds.shape[1] != 2:
            raise ValueError(
                f"seeds has shape {list(seeds.shape)}; times is {sampler.times!r}, so each seed needs a time: give "
                "[n, 2], ids and times"
            )
        return as_seeds(self.graph, seeds[:, 0]), seeds[:, 1].to(torch.int64).contiguous()


def _as_bits(flags: Tensor) -> Tensor:
    """`[(n + 31) / 32]` int32, flag i in bit i % 32 of word i / 32."""
    words = torch.zeros((flags.numel() + 31) // 32 * 32, dtype=torch.int64)
    words[: flags.numel()] = flags
    bits = (words.view(-1, 32) << torch.arange(32)).sum(1)
    return torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32)

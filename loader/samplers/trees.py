"""Sampling in trees: each seed has one for itself, and may see its lists up to a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph, HeteroGraph, require_graph
from loader.graph.times import TIMES, check_rule, check_times, seed_times
from loader.machine.arguments import as_flag, as_size, check_known, kind_of, shown
from loader.machine.cpus import as_threads, available_cpus
from loader.machine.devices import as_device
from loader.machine.gpu import cuda_device, require_cuda
from loader.machine.mapped import prepare_random_reads
from loader.machine.pages import use_huge_pages
from loader.samplers.base import OTHERS_OPTIONS, AnyGraph, Request, Session, as_seeds, check_position
from loader.samplers.gpu.sizes import GpuOptions
from loader.samplers.hetero import typed_blocks
from loader.samplers.picks import batch_keys, weights_of
from loader.samplers.relations import fanouts_by_relation, node_types_of, require_type_order, seeds_by_type
from loader.samples.trees import TreeMiniBatch

if TYPE_CHECKING:
    from loader.graph.times import TimedLists

TREES = ("unique", "paths")
BOUNDS = ("seed", "edge")
_PROCESS = os.getpid()  # a forked child shares its parent's memory; to put it on huge pages there would copy it


class TreeSampler(GpuOptions):
    """Samples for each seed a tree of its own, and of timed graphs only what the seed may know.

        sampler = TreeSampler([15, 10], times="both")
        batch = sampler.sample(graph, {"customer": ids}, times)

    A hop picks from the lists of the nodes that the hop before found. Seeds need not be distinct: the same node may be
    asked for at several times. With times, a row sees the entries of its list whose time is not later than the bound of
    its tree, and picks from those. The time of an entry is the later of its edge's time and its source's time.

    The CPU and the GPU give the same bytes, with any number of threads.

    Args:
        fanouts, num_hops: see `NeighborSampler`; per edge type a dict, in which 0 picks nothing.
        trees: "unique": a node is in a tree at most once (torch_geometric's `disjoint=True`). "paths": each pick is a
            node of its own, so a tree may have copies of a node, which pick independently.
        times: which times of the graph count: "node", "edge", "both", or "none". Unless it is "none", each seed needs a
            time.
        rule: "<=" shows what is not later than the seed, "<" what is earlier. If the edges of the graph are the items
            themselves, "<=" shows the item's own edge.
        window: show only what is later than the seed's time minus this, an integer of at least 1.
        bound: "seed": a tree has the time of its seed as bound. "edge": the bound of a picked node is the time of the
            edge that led to it; with `trees="paths"` only, as two edges may lead to one node of a tree.
        last: pick the latest `fanout` entries that a row sees, of equal times those with the highest ids, in place of
            random ones.
        missing_times: see `HeteroGraph.by_time`.
        replace, edge_ids, seed, labor, layer_dependency, batch_dependency: see `PickOptions`.
        weights: "edge_weights" picks by the weights of the edges, without replacement. A row sees a part of its list,
            so there are no tables: all entries that it sees are read. A GPU does not pick by weight, nor by LABOR.
        device: "cpu", or a GPU, on which the graph lies.
        num_threads: of the CPU, see `CoreSampler`.
        batches_per_launch: of a GPU, see `CudaSampler`.

    Raises:
        TypeError, ValueError: an option is out of range, or excludes another.
    """

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
        batches_per_launch: int = 1,
        **options: Any,
    ) -> None:
        known = ["replace", "edge_ids", "seed", "labor", "layer_dependency", "batch_dependency"]
        ways = {
            **OTHERS_OPTIONS,
            "disjoint": "every seed has a tree of its own",
            "expand": "a tree grows from what the hop before found",
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
        self.batches_per_launch = as_size(
            "batches_per_launch", batches_per_launch, most=_core.cuda_max_batches_per_launch
        )

    def _require_no_times(self) -> None:
        given = {"rule": self.rule != "<=", "window": self.window is not None, "bound": self.bound != "seed"}
        given |= {"last": self.last, "missing_times": self.missing_times != "error"}
        if names := [name for name, is_given in given.items() if is_given]:
            raise ValueError(f"{names[0]} says what of the times is seen, but times is 'none'; give times='both'")

    def _gpu(self, device: torch.device) -> torch.device:
        require_cuda("a GPU sampler")
        if self.picking.scans:
            option = "labor=True" if self.picking.labor else "weights"
            raise ValueError(
                f"{option} looks at all entries that a row sees, which only the CPU does; use device='cpu'"
            )
        return cuda_device(device)

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def asynchronous(self) -> bool:
        return self._on_gpu

    def on(self, device: torch.device) -> TreeSampler:
        if "cpu" in (self._device.type, device.type) or self._device == device:
            return self
        moved = self.__class__.__new__(self.__class__)
        moved.__setstate__({**self.__getstate__(), "_device": cuda_device(device)})
        return moved

    def spec(self) -> dict[str, Any]:
        timed = {"times": self.times, "rule": self.rule, "window": self.window, "bound": self.bound}
        timed |= {"last": self.last, "missing_times": self.missing_times}
        return {**super().spec(), "trees": self.trees, **({} if self.times == "none" else timed)}

    def typed(self, graph: AnyGraph) -> HeteroGraph:
        """The graph that is sampled for `graph`; raises TypeError if it has one type."""
        require_graph(graph)
        if isinstance(graph, Graph):
            raise TypeError("graph has one type of nodes; TreeSampler samples a HeteroGraph: HeteroGraph.of(graph)")
        return graph

    def shaped(self, sample: TreeMiniBatch, graph: AnyGraph) -> Any:
        """A mini-batch of trees of `graph` in the form that this sampler gives."""
        return sample

    def open(self, graph: AnyGraph) -> Session:
        """A session for `graph`, a `HeteroGraph`; `HeteroGraph.of` makes one of a graph with one type.

        Its requests have `seeds` `[n]`, ids of the one range, or with times `[n, 2]` int64: ids and times.

        Raises:
            TypeError: it is no `HeteroGraph`.
            ValueError: it lies elsewhere, or lacks the times that count.
            RuntimeError: the sampler was closed.
        """
        return self.open_trees(self.typed(graph))

    def open_trees(self, graph: HeteroGraph) -> Session:
        """`open`, whose session gives the trees as `TreeMiniBatch` objects, see `shaped`."""
        self.require_open()
        if self._on_gpu:
            from loader.samplers.gpu.trees import TreeCudaSession

            return TreeCudaSession(self, graph)
        if graph.device.type != "cpu":
            raise ValueError(
                f"device is 'cpu' but the graph lies on {graph.device}; use graph.to('cpu'), or device='cuda'"
            )
        return TreeSession(self, graph)

    def sample(self, graph: Any, seeds: Any, times: Any = None, *, epoch: int = 0, batch: int = 0) -> TreeMiniBatch:
        """Samples one mini-batch, see `Sampler.sample`.

        Args:
            seeds: `[n]` ids of the one range, type after type, or node type -> ids within the type. They may repeat.
            times: `[n]` integers or whole floats, the seeds' times; of a dict of seeds a dict as well.

        Raises:
            ValueError: there are times that do not count, or none that do.
        """
        if isinstance(seeds, Mapping) and isinstance(graph, HeteroGraph):
            if isinstance(times, Mapping):
                if unknown := [name for name in times if name not in seeds]:
                    raise ValueError(f"times names {shown(unknown[0])}, of which there are no seeds")
                if missing := [name for name in seeds if name not in times]:
                    raise ValueError(f"times has none for the seeds of {missing[0]!r}; each seed needs a time")
                given = {name: torch.as_tensor(times[name]) for name in graph.node_types if name in seeds}
                for name, at in given.items():
                    if at.shape != (len(seeds[name]),):
                        raise ValueError(
                            f"times[{name!r}] has shape {list(at.shape)} for {len(seeds[name])} seeds; give each a time"
                        )
                times = torch.cat(list(given.values()))
            elif times is not None and len(seeds) > 1:
                raise TypeError(
                    f"times is {kind_of(times)} for seeds of the types {list(seeds)}; give a dict: node type -> times"
                )
            seeds = seeds_by_type(graph, seeds)
        if times is not None:
            seeds = pairs_of(seeds, times)
        found: TreeMiniBatch = super().sample(graph, seeds, epoch=epoch, batch=batch)
        return found

    def __repr__(self) -> str:
        timed = "" if self.times == "none" else f", times={self.times!r}, rule={self.rule!r}"
        return f"TreeSampler(fanouts={list(self.fanouts)}, trees={self.trees!r}{timed}, device='{self._device}')"


def pairs_of(seeds: Tensor, times: Tensor) -> Tensor:
    """`[n, 2]` int64 of seeds and their times; raises TypeError or ValueError if they do not go together."""
    if not isinstance(seeds, Tensor) or seeds.dim() != 1:
        raise TypeError(f"seeds is {kind_of(seeds)}; with times it must be a vector of node ids")
    at = seed_times(times)
    if at.numel() != seeds.numel():
        raise ValueError(f"times has {at.numel()} entries for {seeds.numel()} seeds; each seed needs a time")
    return torch.stack([seeds.long(), at.to(seeds.device)], 1)


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
    def of(cls, sampler: TreeSampler, graph: HeteroGraph) -> Sight:
        graph.require_sound()
        if sampler.times == "none":
            return cls(graph, graph.lists, None)
        timed = graph.by_time(sampler.times, sampler.missing_times)
        return cls(graph, timed.lists, timed)

    @property
    def sees_times(self) -> bool:
        """Whether anything that is listed has a time."""
        return self.timed is not None and self.timed.ranks is not None and self.timed.ranks.numel() > 0

    def core_times(self, sampler: TreeSampler, device: torch.device) -> Any:
        """What the core knows of the times. Its arrays are the core's to keep."""
        timed = self.timed
        if timed is None or timed.ranks is None or not self.sees_times:
            return None
        first_of, of_edge = None, sampler.bound == "edge"
        if of_edge and sampler.window is not None:
            first_of = timed.ranks_of(timed.values, sampler.rule, sampler.window)[0].to(device)
        return _core.Times(
            timed.ranks.to(device),  # of a graph in pinned memory, too
            _as_bits(timed.always).to(device),
            timed.values.to(device),
            strict=sampler.rule == "<",
            window=sampler.window,
            of_edge=of_edge,
            first_of=first_of,
        )

    def split(self, sampler: TreeSampler, seeds: Tensor) -> tuple[Tensor, Tensor | None]:
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


class TreeSession(Session):
    """Samples trees of a `HeteroGraph` in the CPU's memory. Threads share out the trees of a mini-batch."""

    def __init__(self, sampler: TreeSampler, graph: HeteroGraph) -> None:
        self._sampler, self._sight = sampler, Sight.of(sampler, graph)
        lists = self._sight.lists
        for array in (lists.indptr, lists.indices):
            if not prepare_random_reads(array) and os.getpid() == _PROCESS:
                use_huge_pages(array)
        self._starts = torch.tensor([ids.start for ids in graph.node_types.values()], dtype=lists.indices.dtype)
        self._engine: Any = _core.TreeSampler(
            lists.indptr,
            lists.indices,
            fanouts=fanouts_by_relation(graph, sampler.fanouts, sampler.relation_fanouts),
            types=node_types_of(graph),
            times=self._sight.core_times(sampler, torch.device("cpu")),
            paths=sampler.trees == "paths",
            last=sampler.last,
            replace=sampler.replace,
            edge_ids=sampler.edge_ids,
            num_threads=sampler.num_threads,
            picks=_picks(sampler, lists),
        )

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], TreeMiniBatch]]:
        sampler, sight, engine = self._sampler, self._sight, self._engine
        if engine is None:
            raise RuntimeError("this session was closed; open another one")
        finish = []
        for request in group:
            check_position(request.epoch, request.batch)
            seeds, times = sight.split(sampler, request.seeds)
            require_type_order(self._starts, seeds)
            keys = batch_keys(sampler.picking, sampler.seed, request.epoch, request.batch)
            sampled = engine.sample(seeds, times if sight.sees_times else None, *keys)
            finish.append(partial(self._finish, sampled, times, request))
        return finish

    def _finish(self, sampled: tuple[Any, ...], times: Tensor | None, request: Request) -> TreeMiniBatch:
        frontiers, edges, rows, new_by_type, offsets, buffer = sampled
        lists, at = self._sight.lists, iter(offsets)
        edge_dtype, node_dtype = lists.indptr.dtype, lists.indices.dtype

        def array(length: int, dtype: torch.dtype) -> Tensor:
            offset = next(at)
            if length == 0:
                return torch.empty(0, dtype=dtype)
            return torch.frombuffer(buffer, dtype=dtype, count=length, offset=offset)

        nodes, tree = array(frontiers[-1], node_dtype), array(frontiers[-1], torch.int32)
        hops = []
        for num_rows, num_edges in zip(rows, edges, strict=True):
            indptr, indices = array(num_rows + 1, edge_dtype), array(num_edges, node_dtype)
            ids = array(num_edges, edge_dtype) if self._sampler.edge_ids else None
            hops.append((indptr, indices, ids if ids is None or lists.edge_ids is None else lists.edge_ids[ids]))
        types = len(self._sight.graph.node_types)
        sizes = [new_by_type[i : i + types] for i in range(0, len(new_by_type), types)]
        return TreeMiniBatch(
            nodes,
            tuple(map(tuple, sizes)),
            typed_blocks(frontiers, hops, True),
            *(self._sight.graph.node_types, self._sight.graph.edge_types),
            *(request.epoch, request.batch),
            tree=tree,
            seed_times=times,
            items=None if times is None else request.numbers,
        )

    def close(self) -> None:
        self._engine = None


def _picks(sampler: TreeSampler, lists: Graph) -> Any:
    """The core's object that says how entries are picked, or None: uniformly."""
    picks = sampler.picking
    if picks.labor:
        return _core.Labor(picks.layer_dependency, picks.batch_dependency, _core.turns_key(sampler.seed))
    if picks.weights is not None:
        return _core.Race(weights_of(lists, "TreeSampler"))
    return None


def _as_bits(flags: Tensor) -> Tensor:
    """`[(n + 31) / 32]` int32, flag i in bit i % 32 of word i / 32."""
    words = torch.zeros((flags.numel() + 31) // 32 * 32, dtype=torch.int64)
    words[: flags.numel()] = flags
    bits = (words.view(-1, 32) << torch.arange(32)).sum(1)
    return torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32)

"""Sampling in trees: each seed has one for itself, and may see its lists up to a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph, HeteroGraph
from loader.graph.checks import check_integers, signed
from loader.graph.times import as_times, seed_times
from loader.machine.arguments import kind_of, shown
from loader.machine.mapped import prepare_random_reads
from loader.machine.pages import use_huge_pages
from loader.samplers.base import AnyGraph, Request, Session, check_position, tell_ignored_times
from loader.samplers.gpu.trees import TreeCudaSession
from loader.samplers.hetero import hetero_blocks
from loader.samplers.picks import batch_keys, weights_of
from loader.samplers.relations import fanouts_by_relation, node_types_of, require_type_order, seeds_by_type
from loader.samplers.tree_options import Sight, TreeOptions
from loader.samples.trees import TreeMiniBatch

_PROCESS = os.getpid()  # a forked child shares its parent's memory; to put it on huge pages there would copy it


class TreeSampler(TreeOptions):
    """Samples for each seed a tree of its own, and of timed graphs only what the seed may know.

        sampler = TreeSampler([15, 10], times="both")
        batch = sampler.sample(graph, {"customer": ids}, times)

    A tree is the sampled neighborhood of one seed. Each hop picks among the in-neighbors of the nodes that the hop
    before found. Seeds may repeat: the same node may be a seed at several times.

    With `times`, a node picks only neighbors that are visible. A neighbor is visible if its time is not later than the
    seed's time; `rule`, `window` and `bound` change this. The time of a neighbor is the later of the time of the edge
    and the time of the neighbor itself, of those that `times` counts. Below, an entry is a neighbor with its edge, and
    a row is a node that picks.

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
            entry that led to it; with `trees="paths"` only, as two edges may lead to one node of a tree.
        last: pick the latest `fanout` entries that a row sees, of equal times those with the highest ids, in place of
            random ones.
        missing_times: see `HeteroGraph.by_time`.
        replace, edge_ids, seed, labor, layer_dependency, batch_dependency: see `PickOptions`.
        weights: "edge_weights" picks by the weights of the edges, without replacement. A row sees a part of its list,
            so there are no tables: all entries that it sees are read.
        device: "cpu", or a GPU, on which the graph lies.
        num_threads: of the CPU, see `CoreSampler`.
        batches_per_launch: of a GPU, 8 if None, see `CudaSampler`.

    Raises:
        TypeError, ValueError: an option is out of range, or excludes another.
    """

    def open(self, graph: AnyGraph) -> Session:
        """A session for `graph`, a `HeteroGraph`; `HeteroGraph.of` makes one of a graph with one type.

        Its requests have `seeds` `[n]`, ids of the one range, or with times `[n, 2]` int64: ids and times.

        Raises:
            TypeError: it is no `HeteroGraph`.
            ValueError: it lies elsewhere, or lacks the times that count.
            RuntimeError: the sampler was closed.
        """
        return self.open_trees(self.as_hetero(graph))

    def open_trees(self, graph: HeteroGraph) -> Session:
        """`open`, whose session gives the trees as `TreeMiniBatch` objects, see `shaped`."""
        self.require_open()
        if not self.timed:
            tell_ignored_times(self, graph)
        if self._on_gpu:
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
                times = _joined_times(graph, seeds, times)
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


def _joined_times(graph: HeteroGraph, seeds: Mapping[str, Tensor], times: Mapping[str, Any]) -> Tensor:
    """`[n]` int64: the times of the seeds of each type, type after type; raises ValueError if there are others."""
    if unknown := [name for name in times if name not in seeds]:
        raise ValueError(f"times names {shown(unknown[0])}, of which there are no seeds")
    if missing := [name for name in seeds if name not in times]:
        raise ValueError(f"times has none for the seeds of {missing[0]!r}; each seed needs a time")
    found = []
    for name in (name for name in graph.node_types if name in seeds):
        at = as_times(label := f"times[{name!r}]", times[name])
        if at.shape != (len(seeds[name]),):
            raise ValueError(f"{label} has shape {list(at.shape)} for {len(seeds[name])} seeds; give each a time")
        found.append(seed_times(at, label))  # torch would join int64 and float32 as float32, which rounds
    return torch.cat(found)


def pairs_of(seeds: Tensor, times: Tensor) -> Tensor:
    """`[n, 2]` int64 of seeds and their times; raises TypeError or ValueError if they do not go together."""
    if not isinstance(seeds, Tensor) or seeds.dim() != 1:
        raise TypeError(f"seeds is {kind_of(seeds)}; with times it must be a vector of node ids")
    check_integers("seeds", seeds)
    at = seed_times(times)
    if at.numel() != seeds.numel():
        raise ValueError(f"times has {at.numel()} entries for {seeds.numel()} seeds; each seed needs a time")
    return torch.stack([signed("seeds", seeds).long(), at.to(seeds.device)], 1)


class TreeSession(Session):
    """Samples trees of a `HeteroGraph` in the CPU's memory. Threads share out the trees of a mini-batch."""

    def __init__(self, sampler: TreeSampler, graph: HeteroGraph) -> None:
        self._sampler, self._sight = sampler, Sight.of(sampler, graph)
        self._samples_of = lists = self._sight.lists
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
            hetero_blocks(frontiers, hops, True),
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

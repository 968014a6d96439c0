"""Sampling trees on the GPU: all hops of all trees in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph, HeteroGraph
from loader.samplers.base import Request
from loader.samplers.gpu.hetero import HeteroBegun, HeteroCudaSession, HeteroWorkspace
from loader.samplers.gpu.session import Begun, check_launches
from loader.samplers.gpu.sizes import GpuOptions
from loader.samplers.gpu.tree_sizes import TreeSizes
from loader.samplers.gpu.workspace import Workspace
from loader.samplers.relations import node_types_of
from loader.samplers.tree_options import Sight, TreeOptions
from loader.samples.trees import TreeMiniBatch

_PILOT = 64  # trees, from which the first sizes are learnt


class TreeWorkspace(TreeSizes, HeteroWorkspace):
    """The kernels' memory for trees of a `HeteroGraph`, see `Workspace`."""

    def __init__(self, sampler: GpuOptions, graph: HeteroGraph) -> None:
        assert isinstance(sampler, TreeOptions)
        self._sampler, self.sight = sampler, Sight.of(sampler, graph)
        super().__init__(sampler, graph, self.sight.lists)

    def _make_engine(self, sampler: GpuOptions, graph: Graph, picks: Any) -> Any:
        trees = self._sampler
        edge_bits, node_bits = (8 * t.itemsize for t in (self._edge_dtype, self._node_dtype))
        make: Any = getattr(_core, f"TreeCudaSampler_i{edge_bits}_i{node_bits}")
        fanouts, times = self._fanouts_on_device(), self.sight.core_times(trees, self.device)
        self._read.append(times)
        return make(
            self._indptr,
            graph.indices,
            fanouts=self._by_relation,
            relation_fanouts=fanouts,
            types=node_types_of(self._hetero),
            times=times,
            paths=trees.trees == "paths",
            last=trees.last,
            replace=trees.replace,
            edge_ids=trees.edge_ids,
            device=self.device.index or 0,
            picks=picks,
        )

    def outgrew(self, table: int, picks: int, rows: int) -> None:
        """Makes room where a mini-batch needed a larger table, or at least these picks and rows in all its hops."""
        self._plans.clear()
        self._planned = None
        self._table = max(self._table, table)
        plan_rows, plan_picks = self._room
        lacks_picks, lacks_rows = picks > plan_picks, rows > plan_rows
        if not lacks_picks and not lacks_rows:
            if table:
                return
            lacks_picks = lacks_rows = True
        if not self.is_learnt:
            self.grow(max(2.0, 1.5 * picks / max(plan_picks, 1), 1.5 * rows / max(plan_rows, 1)))
            return

        def more(sizes: list[int], needed: int) -> list[int]:
            # Which hop lacks room is not known, and one that had none so far becomes no larger by a factor.
            return [max(2 * n, needed // len(self._fanouts)) for n in sizes]

        if lacks_picks:
            nodes, edges = self._largest
            self._largest = more(nodes, picks), more(edges, picks)
        if lacks_rows:
            self._most_rows = more(self._most_rows, rows)

    def grow(self, by: float) -> None:
        """Makes the learnt sizes larger, or the guesses as long as there are none."""
        if not self.is_learnt:
            self._guess *= by
        self._largest = tuple([int(by * n) for n in sizes] for sizes in self._largest)  # type: ignore[assignment]
        self._most_rows = [int(by * n) for n in self._most_rows]
        self._plans.clear()
        self._planned = None

    @property
    def _room(self) -> tuple[int, int]:
        """Rows and picks that the arrays have room for."""
        held = self._arrays
        return held["row_first"].numel() // self.slots, held["picks"].numel() // self.slots


class TreeBegun(HeteroBegun):
    """Trees that were launched."""

    __slots__ = ("numbers", "pairs")

    def __init__(
        self, session: TreeCudaSession, seeds: Tensor, num_seeds: int, epoch: int, index: int, ahead: bool,
        pairs: Tensor | None = None, numbers: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__(session, seeds, num_seeds, epoch, index, ahead)
        self.pairs = pairs  # ids and times of the seeds
        self.numbers = numbers  # of the seeds in a loader's list


class TreeCudaSession(HeteroCudaSession):
    """Samples trees of a `HeteroGraph` on the GPU, see `CudaSession`."""

    workspace, begun = TreeWorkspace, TreeBegun
    _space: TreeWorkspace | None

    def __init__(self, sampler: TreeOptions, graph: HeteroGraph) -> None:
        self._sampler = sampler
        super().__init__(sampler, graph)

    def _take(self, request: Request, ahead: bool) -> Begun:
        space, seeds = self._opened(), request.seeds
        assert isinstance(space, TreeWorkspace)
        sight = space.sight
        if sight.timed is None:
            if not isinstance(seeds, Tensor) or seeds.dim() != 1:
                sight.split(self._sampler, seeds)  # says what is wrong
            return super()._take(request, ahead)
        # Pairs on the GPU are read as they are, and the kernel checks their ids.
        pairs = isinstance(seeds, Tensor) and seeds.dim() == 2 and seeds.size(1) == 2 and seeds.dtype == torch.int64
        if not (pairs and seeds.get_device() == self._index and seeds.is_contiguous()):
            ids, at = sight.split(self._sampler, seeds)
            assert at is not None
            seeds = torch.stack([ids.long(), at], 1).to(self._device, non_blocking=True)
        read = seeds if sight.sees_times else self._as_seeds(seeds[:, 0])
        return TreeBegun(self, read, seeds.size(0), request.epoch, request.batch, ahead, seeds, request.numbers)

    def _launch(self, space: Workspace, together: list[Begun]) -> None:
        assert isinstance(space, TreeWorkspace)
        first = together[0]
        if not space.is_learnt and first.num_seeds > 0:
            self._learn_from_few(space, first)
        super()._launch(space, together)

    def _learn_from_few(self, space: TreeWorkspace, begun: Begun) -> None:
        """Learns the sizes of mini-batches from a part of this one, and waits for it."""
        every = -(-begun.num_seeds // _PILOT)
        seeds = begun.seeds[::every].contiguous()
        few = TreeBegun(self, seeds, seeds.shape[0], begun.epoch, begun.index, begun.ahead)
        launches = 0
        while not space.is_learnt:
            check_launches(launches, few.num_seeds)
            launches += 1
            super()._launch(space, [few])
            report = few.result.wait()
            if report[0] != 0:
                self._outgrew(space, report)
                continue
            space.learn_rows(report[9])
            space.learn(report[3], report[4], 0, did_fit=True)
        space.grow(begun.num_seeds / few.num_seeds)

    def _outgrew(self, space: Workspace, report: Sequence[Any]) -> None:
        assert isinstance(space, TreeWorkspace)
        status, detail, done, _, _, picks, _, rows = report[:8]
        if done:  # it was sampled, and its sizes are known
            return super()._outgrew(space, report)
        self._raise_for(status, detail) if status != 1 else space.outgrew(detail, picks, rows)

    def _empty_batch(self, begun: Any) -> TreeMiniBatch:
        graph, memory, pairs = self._graph, begun.memory, begun.pairs
        return TreeMiniBatch(
            memory, (), self._empty_blocks(begun), graph.node_types, graph.edge_types, begun.epoch, begun.index,
            tree=memory, seed_times=None if pairs is None else pairs.select(1, 1), items=begun.numbers,
        )  # fmt: skip

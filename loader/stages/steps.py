"""What the stages of a loader do: sample, gather rows and move to the device; and where labels come in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from loader.graph import Graph
from loader.pipeline import PipelineStats, Stage
from loader.samplers.base import Request, Sampler
from loader.samples import Block, MiniBatch
from loader.stages.plan import Plan
from loader.stages.transfer import to_gpu
from loader.stores import DeviceFeatures, FeatureStore, HostFeatures

_INDEX_DTYPES = torch.int32, torch.int64
_MEASURED = 16  # so many of the first mini-batches are measured, and then one of so many


@dataclass(slots=True)
class Task:
    """What a mini-batch is made from.

    Attributes:
        seeds: `[batch_size]` vertices.
        epoch, index: of the mini-batch.
        y: labels of the seeds where they lie on the seeds' device; else None, and the last stage gathers them.
    """

    seeds: Tensor
    epoch: int
    index: int
    y: Tensor | None


class Steps:
    """The stages' functions. They know nothing of the loader, so that it goes with its last reference.

    Labels that lie where the seeds do are there before anything is sampled: they are gathered for the mini-batches that
    are sampled together, which takes the host a launch for all of them.

    Args:
        plan: which stages there are; the last one adds labels that are missing.
        graph, sampler: for the stage "sample".
        features: rows by vertex for `x`, or None.
        edge_features: rows by edge id for the blocks, or None.
        labels: `[num_nodes]` or `[num_nodes, C]` on `device`, or None.
        device: where mini-batches arrive.
        stats: where bytes are counted.
    """

    def __init__(
        self,
        plan: Plan,
        graph: Graph,
        sampler: Sampler,
        features: FeatureStore | None,
        edge_features: FeatureStore | None,
        labels: Tensor | None,
        device: torch.device,
        stats: PipelineStats,
    ) -> None:
        self.plan = plan
        self.graph = graph
        self.sampler = sampler
        self.session = sampler.open(graph)
        self.features = features
        self.edge_features = edge_features
        self.labels = labels
        self.device = device
        self.stats = stats
        self._lazy = features if isinstance(features, DeviceFeatures) and features.lazy else None
        self._made = 0  # mini-batches

    def stages(self) -> list[Stage]:
        """The stages in order."""
        functions = {"gather": self.gather, "move": self.move}
        first, *others = self.plan.stages
        together = self.session.together
        return [Stage(first, self.sample, self.start, together), *(Stage(name, functions[name]) for name in others)]

    def labels_of(self, seeds: Sequence[Tensor]) -> Sequence[Tensor | None]:
        """Labels of the seeds of each mini-batch, where they lie on the seeds' device."""
        first = seeds[0]
        if self.labels is None or self.labels.device != first.device or first.dtype not in _INDEX_DTYPES:
            return [None] * len(seeds)
        if len(seeds) == 1:
            return [self.labels.index_select(0, first)]
        labels = self.labels.index_select(0, torch.cat(tuple(seeds)))
        # "Unsafe": what is done to one part in place is not taken for a change of the others.
        parts: tuple[Tensor, ...] = labels.unsafe_split_with_sizes([ids.numel() for ids in seeds])
        return parts

    def sample(self, task: Task) -> MiniBatch:
        (finish,) = self.session.begin([Request(task.seeds, task.epoch, task.index)])
        return _labelled(finish(), task.y)

    def start(self, task: Task) -> Callable[[], MiniBatch]:
        (finish,) = self.session.begin([Request(task.seeds, task.epoch, task.index)], ahead=True)
        y = task.y
        return lambda: _labelled(finish(), y)

    def gather(self, batch: MiniBatch) -> MiniBatch:
        """Fills `x`, and `edge_features` of the blocks."""
        x, blocks = batch.x, batch.blocks
        if self._lazy is not None:
            batch = batch.replace(rows=self._lazy.lazy_rows(batch.nodes))
        elif self.features is not None:
            x = self.features.gather(_near(batch.nodes, self.features))
            self.stats.add_bytes("gather", x.nbytes)
        if self.edge_features is not None:
            # One gather for all hops: few large ones cost less than many small ones.
            ids = [block.edge_ids for block in blocks if block.edge_ids is not None]
            rows = self.edge_features.gather(_near(torch.cat(ids), self.edge_features))
            self.stats.add_bytes("gather", rows.nbytes)
            parts = rows.split([t.numel() for t in ids])
            blocks = tuple(
                dataclasses.replace(block, edge_features=part) for block, part in zip(blocks, parts, strict=True)
            )
        return self._end("gather", batch, blocks, x)

    def move(self, batch: MiniBatch) -> MiniBatch:
        """Copies what is still in host memory."""
        batch, nbytes = to_gpu(batch, self.device)
        self.stats.add_bytes("move", nbytes)
        return self._end("move", batch, batch.blocks, batch.x)

    def check(self) -> None:
        """Raises what the stores' gathers so far had to say."""
        for store in (self.features, self.edge_features):
            if store is not None:
                store.check()

    def _end(self, stage: str, batch: MiniBatch, blocks: tuple[Block, ...], x: Tensor | None) -> MiniBatch:
        """The last stage adds labels that are missing: only there the output nodes surely lie where the labels do."""
        y, last = batch.y, stage == self.plan.stages[-1]
        if last and y is None and self.labels is not None:
            y = self.labels.index_select(0, batch.output_nodes)
        done = batch.replace(blocks=blocks, x=x, y=y)
        if last:
            self._made += 1
            if self._made <= _MEASURED or self._made % _MEASURED == 0:
                self.stats.see_item(done.held_bytes)
        return done


def _labelled(batch: MiniBatch, y: Tensor | None) -> MiniBatch:
    return batch if y is None else batch.replace(y=y)


def check_edge_features(features: FeatureStore | Tensor | None, graph: Graph, sampler: Sampler) -> FeatureStore | None:
    """The store of the edges' features.

    Raises:
        ValueError: the sampler returns no edge ids, or there are fewer rows than edges.
    """
    if features is None:
        return None
    store = HostFeatures(features) if isinstance(features, Tensor) else features
    if not sampler.edge_ids:
        raise ValueError("edge_features are gathered by edge id, and the sampler returns none; give it edge_ids=True")
    if store.num_nodes < graph.num_edges:
        raise ValueError(f"edge_features has {store.num_nodes} rows, the graph {graph.num_edges} edges")
    return store


def _near(ids: Tensor, store: FeatureStore) -> Tensor:
    """Ids that a store takes: on its device, or on the CPU."""
    return ids.cpu() if store.device.type == "cpu" else ids

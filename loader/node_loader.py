"""The loader: seeds in order, sampled, with features and labels, a few mini-batches ahead of the consumer."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from loader.graph import Graph
from loader.items import BatchSequence, NodeItems, Order
from loader.pipeline import PRIORITIES, Pipeline, PipelineIterator, PipelineStats, StageStreams, Timeline
from loader.samplers.base import Sampler
from loader.samples import MiniBatch
from loader.stages.plan import Plan, choose_device, choose_plan
from loader.stages.steps import Steps, Task, check_edge_features
from loader.stores import FeatureStore, HostFeatures

_STATE_VERSION = 2
LOOKAHEAD = ("consumer", "thread")
_MAX_LOOKAHEAD = 16  # a sampler has room for some mini-batches begun and not finished, of all its loaders


class NodeLoader:
    """Iterates over mini-batches: seeds -> sample -> gather features and labels -> move to the device.

    Each `for batch in loader` is an epoch. Epochs are numbered from 0; an epoch counts as begun with its first
    mini-batch, and the next `for` goes on to the next epoch whether the last one was finished or abandoned.
    `set_epoch` chooses the number instead. What an epoch holds is a pure function of the arguments and its
    number: not of `prefetch`, of threads, of devices, or of what ran before.

    With `prefetch=n` the stages run ahead of the consumer and hold at most `n` mini-batches each (under way, or
    waiting for the next stage), and `sampler.batches_per_launch - 1` more between them. With `prefetch=0` all happens
    in the consumer's thread. One iterator is alive at a time: a new one ends the one before it. Closed, abandoned or
    interrupted, an iterator frees its threads after the call that they are in.

    On a GPU each stage has a stream of its own, made once, and a mini-batch is ready for whatever the consumer puts
    on the stream that was current at `next()`; work on another stream has to wait for that one, and to call
    `batch.record_stream(other)`. Where sampler and stores are asynchronous, one host thread launches the work of all
    stages (see `lookahead`), else each stage has a thread. The consumer may be `n` mini-batches ahead of its stream.
    `max_items` and `max_bytes` say what may exist in all.

    `state_dict()` counts the mini-batches that the consumer was given, not those made ahead, and
    `load_state_dict()` goes on with exactly the next one.

    Args:
        graph: where to sample; it lies where the sampler wants it.
        features: a `FeatureStore`, or a tensor `[num_nodes, F]` (then gathered by `HostFeatures`), or None for
            mini-batches without `x`.
        labels: `[num_nodes]` or `[num_nodes, C]`, gathered for the output nodes, or None for mini-batches
            without `y`. They are kept on `device`.
        seeds: `[num_seeds]`, integer, distinct vertices.
        sampler: samples the neighbourhood of each mini-batch's seeds.
        batch_size: seeds of a mini-batch, at least 1.
        shuffle: take the seeds in a new order each epoch, see `loader.items.Order`.
        drop_last: leave out a last mini-batch smaller than the others.
        seed: of the order of the seeds; the sampler has a seed of its own.
        prefetch: mini-batches to hold ready a stage; 0 for none ahead.
        rank, world_size: whose turns this process takes in the global sequence of mini-batches, see
            `loader.items.BatchSequence`.
        device: where the mini-batches arrive, "cpu" or a GPU; None takes the GPU of sampler or stores, if any.
        edge_features: a store (or tensor `[rows, D]`) of rows by edge id, gathered for the edges of every block; the
            sampler must return edge ids.
        prioritize_loading: kernels of the stages go before those of an ordinary stream that wait for the GPU's
            multiprocessors. They are short or, where they read over the bus, few, while one that begins late keeps the
            bus idle. Training by CUDA graphs (`models.training.graphed`) goes before sampling, not before gathering.
        lookahead: who launches the stages where all of them are asynchronous: "consumer", the thread that asks for
            mini-batches, as it asks; or "thread", one of its own.

    Attributes:
        stats: a `PipelineStats`: seconds and bytes of the stages, and of the consumer's waiting.
        steps: what the stages do, see `loader.stages.steps.Steps`.
        device: where the mini-batches arrive.

    Raises:
        TypeError, ValueError: an argument is not as said above; the message says which, and the way out.
        RuntimeError: a GPU was asked for and build or machine have none.
    """

    def __init__(
        self,
        graph: Graph,
        features: FeatureStore | Tensor | None,
        labels: Tensor | None,
        seeds: Tensor,
        sampler: Sampler,
        batch_size: int,
        *,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        prefetch: int = 2,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str | None = None,
        edge_features: FeatureStore | Tensor | None = None,
        prioritize_loading: bool = True,
        lookahead: str = "consumer",
    ) -> None:
        self.items = NodeItems(seeds)
        self._order = Order(len(self.items), shuffle=shuffle, seed=seed)
        self._sequence = BatchSequence(
            len(self.items), batch_size, drop_last=drop_last, rank=rank, world_size=world_size
        )
        if prefetch < 0:
            raise ValueError(f"prefetch is {prefetch}; give 0 (nothing ahead) or more")
        if lookahead not in LOOKAHEAD:
            raise ValueError(f"lookahead is {lookahead!r}; it must be one of {', '.join(LOOKAHEAD)}")
        if not isinstance(sampler, Sampler):
            raise TypeError(f"sampler is a {type(sampler).__name__}; it must be a loader.samplers.Sampler")
        _check_seeds(seeds, graph.num_nodes)
        store = HostFeatures(features) if isinstance(features, Tensor) else features
        if store is not None and store.num_nodes != graph.num_nodes:
            raise ValueError(f"features has {store.num_nodes} rows, the graph {graph.num_nodes} vertices")
        if labels is not None:
            if not isinstance(labels, Tensor):
                raise TypeError(f"labels is a {type(labels).__name__}; it must be a torch tensor")
            if labels.dim() == 0 or labels.shape[0] != graph.num_nodes:
                raise ValueError(f"labels has shape {list(labels.shape)}, the graph {graph.num_nodes} vertices")
        edge_store = check_edge_features(edge_features, graph, sampler)
        stores = [s for s in (store, edge_store) if s is not None]
        self.device = choose_device(device, sampler, stores)
        self.graph = graph
        self.features = store
        self.edge_features = edge_store
        self.labels = labels.to(self.device) if labels is not None else None
        self.neighbor_sampler = sampler
        self.prefetch = int(prefetch)
        plan = choose_plan(self.device, sampler, stores)
        self.stats = PipelineStats(plan.stages)
        self.steps = Steps(plan, graph, sampler, store, edge_store, self.labels, self.device, self.stats)
        self._pipeline = self._make_pipeline(plan, prioritize_loading, lookahead)
        self._next = (0, 0)  # epoch and mini-batch with which the next iterator begins
        self._at: tuple[int, int] | None = None  # epoch and mini-batches given out, of the iterator that runs
        self._running: weakref.ref[_Epoch] | None = None
        self._placed: NodeItems | None = None  # the items where the sampler wants them

    @property
    def batch_size(self) -> int:
        return self._sequence.batch_size

    @property
    def seeds(self) -> Tensor:
        return self.items.ids

    @property
    def epoch(self) -> int:
        """The epoch that the last mini-batch belonged to or, before any, the one to come."""
        return (self._at or self._next)[0]

    @property
    def ahead(self) -> str:
        """Who runs ahead: "none" (`prefetch=0`), "threads" (one a stage), "thread" (one) or "consumer"."""
        return "none" if not self.prefetch else self._pipeline.lookahead or "threads"

    @property
    def max_items(self) -> int:
        """Mini-batches that may exist at one time, the consumer's included."""
        return self._pipeline.max_items + self._pipeline.max_consumed

    @property
    def max_bytes(self) -> int:
        """An upper bound of what `max_items` mini-batches take, by the largest so far; 0 before the first."""
        return self.max_items * self.stats.largest_item

    @property
    def timeline(self) -> Timeline | None:
        """Where the next iterator records what the stages do."""
        return self._pipeline.timeline

    @timeline.setter
    def timeline(self, timeline: Timeline | None) -> None:
        self._pipeline.timeline = timeline

    @property
    def batch_sampler(self) -> SimpleNamespace:
        """Where Lightning looks for `set_epoch`: at `loader.batch_sampler.sampler`, as in torch's loaders."""
        return SimpleNamespace(sampler=self)

    def __len__(self) -> int:
        """Mini-batches of an epoch."""
        return self._sequence.steps()

    def __iter__(self) -> Iterator[MiniBatch]:
        """One epoch. Nothing happens until its first `next()`: an iterator never asked for one costs nothing."""
        return _Epoch(self)

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next to be iterated over, from its first mini-batch.

        After `load_state_dict` of a state in that very epoch it changes nothing: the rest of the epoch follows.
        """
        if epoch < 0:
            raise ValueError(f"epoch is {epoch}; it must be at least 0")
        if self._next[0] != epoch:
            self._next = (int(epoch), 0)
        self._at = None

    def state_dict(self) -> dict[str, Any]:
        """Where the consumer stands, and what it needs to find again; plain numbers and strings.

        `next` is the number, in the global sequence of `epoch`, of the first mini-batch that is left, for all ranks
        together. Until the consumer has asked for more than the last mini-batch, its epoch is not over.
        """
        epoch, following = self._at or self._next
        return {
            "version": _STATE_VERSION,
            "epoch": epoch,
            "next": following,
            "config": self._config(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where `state` was taken: the next iterator gives the rest of that epoch.

        Any iterator that runs is closed.

        Raises:
            ValueError: the state is not one of a `NodeLoader`, or of one with other arguments (`prefetch`, ranks,
                devices and threads may differ, and the sampler may be another one that picks alike); the message names
                the first difference.
        """
        if not isinstance(state, dict) or not {"version", "epoch", "next", "config"} <= state.keys():
            raise ValueError("this is not the state of a NodeLoader; give what its state_dict() returned")
        if state["version"] != _STATE_VERSION:
            raise ValueError(
                f"the state has version {state['version']}, this NodeLoader reads {_STATE_VERSION}; "
                "continue with the release that wrote it"
            )
        own = self._config()
        for key in sorted(own.keys() | state["config"].keys()):
            theirs = state["config"].get(key)
            if theirs != own.get(key):
                raise ValueError(
                    f"cannot resume: {key} was {theirs!r} when the state was saved and is {own.get(key)!r} now; "
                    "restore it, or start a new run from the weights alone"
                )
        epoch, following, most = int(state["epoch"]), int(state["next"]), self._sequence.num_batches
        if epoch < 0 or following < 0:
            raise ValueError(f"the state stands at mini-batch {following} of epoch {epoch}; both count from 0")
        self.close()
        self._next = (epoch, min(following, most))
        self._at = None

    def close(self) -> None:
        """Ends the iterator that runs and its threads; the loader can be iterated over again."""
        running = self._running() if self._running is not None else None
        if running is not None:
            running.close()
        self._running = None

    def __repr__(self) -> str:
        return (
            f"NodeLoader(num_seeds={len(self.items)}, batch_size={self.batch_size}, batches={len(self)}, "
            f"sampler={self.neighbor_sampler!r}, prefetch={self.prefetch}, device='{self.device}')"
        )

    def _config(self) -> dict[str, Any]:
        """All that decides what the mini-batches are."""
        return {
            "batch_size": self._sequence.batch_size,
            "drop_last": self._sequence.drop_last,
            "items": self.items.fingerprint(),
            "kind": self.items.kind,
            "num_edges": self.graph.num_edges,
            "num_items": len(self.items),
            "num_nodes": self.graph.num_nodes,
            **{f"sampler.{name}": value for name, value in self.neighbor_sampler.spec().items()},
            "seed": self._order.seed,
            "shuffle": self._order.shuffle,
        }

    def _begin(self, iterator: _Epoch) -> PipelineIterator:
        """Called by an iterator at its first `next()`."""
        self.close()
        self._running = weakref.ref(iterator)
        epoch, first = self._next
        self._next = (epoch + 1, 0)
        self._at = (epoch, first)
        return self._pipeline.run(self._tasks(epoch, first))

    def _gave(self, iterator: _Epoch, ended: bool) -> None:
        """An iterator gave out one more mini-batch, or said that there is none."""
        if self._at is not None and self._running is not None and self._running() is iterator:
            self._at = None if ended else (self._at[0], self._at[1] + self._sequence.world_size)

    def _make_pipeline(self, plan: Plan, prioritize_loading: bool, lookahead: str) -> Pipeline:
        streams = None
        if self.device.type == "cuda":
            streams = StageStreams(self.device, plan.stages, priorities=PRIORITIES if prioritize_loading else None)
            # What the stages hold still reads the graph and the stores, which may go with the loader.
            weakref.finalize(self, streams.synchronize).atexit = False
        ahead = lookahead if plan.lookahead and self.prefetch else None
        if ahead and self.prefetch > _MAX_LOOKAHEAD:
            raise ValueError(f"prefetch is {self.prefetch}; a GPU sampler is at most {_MAX_LOOKAHEAD} ahead")
        return Pipeline(self.steps.stages(), self.prefetch, self.stats, streams=streams, lookahead=ahead)

    def _tasks(self, epoch: int, first: int) -> Iterator[Task]:
        """What each mini-batch is made from, seeds where the sampler wants them; runs under the sampler's stream."""
        sequence, device = self._sequence, self.neighbor_sampler.device
        if self._placed is None:
            self._placed = self.items.to(device, self.graph.indices.dtype)
        for step in range(sequence.steps(first)):
            turn = sequence.turn(epoch, step, first)
            size = sequence.size(turn.number)
            at = self._order.at(epoch, turn.number * sequence.batch_size, size, device, length=size)
            (seeds,) = self._placed.take(at, [size])
            (y,) = self.steps.labels_of([seeds.ids])
            yield Task(seeds.ids, epoch, turn.number, y)


class _Epoch(Iterator[MiniBatch]):
    """The iterator of one epoch. The loader knows it only weakly, so dropping it ends it."""

    def __init__(self, loader: NodeLoader) -> None:
        self._loader = loader
        self._items: PipelineIterator | None = None
        self._over = False  # by its end or by an error; not by another iterator

    def __next__(self) -> MiniBatch:
        if self._over:
            raise StopIteration
        if self._items is None:
            self._items = self._loader._begin(self)
        elif self._items.closed:
            raise RuntimeError("this iterator was closed, by close() or by a newer iterator of the same NodeLoader")
        try:
            batch = next(self._items)
        except BaseException as error:
            self._over = True
            if isinstance(error, StopIteration):
                self._loader._gave(self, ended=True)
                self._loader.steps.check()
            raise
        self._loader._gave(self, ended=False)
        return batch

    def close(self) -> None:
        """Ends the iterator and its threads."""
        if self._items is not None:
            self._items.close()


def _check_seeds(seeds: Tensor, num_nodes: int) -> None:
    low, high = (int(x) for x in torch.aminmax(seeds))
    if low < 0 or high >= num_nodes:
        bad = low if low < 0 else high
        raise ValueError(f"seeds holds vertex {bad}; valid ids are 0 to {num_nodes - 1}")
    seen = torch.zeros(num_nodes, dtype=torch.bool)
    seen[seeds.long()] = True
    if int(seen.sum()) != seeds.numel():
        values, counts = torch.unique(seeds, return_counts=True)
        twice = int(values[counts > 1][0])
        raise ValueError(f"seeds holds vertex {twice} more than once; remove duplicates with seeds.unique()")

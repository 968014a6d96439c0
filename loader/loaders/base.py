"""The base class of the loaders: takes items in order, samples, gathers rows, and prefetches mini-batches."""

from __future__ import annotations

import copy
import re
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from loader.graph import Graph, HeteroGraph, require_graph
from loader.items import BatchSequence, Items, Order, Turns
from loader.loaders.epoch import Epoch
from loader.loaders.lightning_resume import FitLoopCount, calling_fit_loop, follow
from loader.machine.arguments import as_64_bits, as_flag, as_index, as_size, kind_of, shown
from loader.pipeline import Pipeline, PipelineRun, Stage, StageStreams
from loader.pipeline.threads import join_stopped
from loader.samplers.base import Sampler, Session
from loader.samples import Sample
from loader.stages import AnnounceStage, GatherStage, RequestStage, SampleStage, arrange, choose_device
from loader.stores import FeatureStore, as_store
from loader.timing import PipelineStats, Timeline

MAX_PREFETCH = 2**16  # more would be a mistake; each stage has a slot for each

_STATE_VERSION = 2
_TAKEN = frozenset(("", "sample", "gather", "move", "train", "waiting", "items"))  # names in statistics and pictures
_MOVE = re.compile("move [0-9]+")  # a second move and those after it, see `arrange`
_MEASURED = 16  # the first mini-batches that are measured; after them one in this many is


class Loader:
    """Iterates over mini-batches: items -> sample -> gather the rows that samples want -> move to the device.

    Each `for batch in loader` is an epoch. Epochs are numbered from 0. An epoch begins with its first mini-batch; the
    next `for` is the next epoch, also if the last one was abandoned. `set_epoch` sets the number. The mini-batches of
    an epoch are a pure function of the arguments and its number. They do not depend on `prefetch`, threads, devices,
    the number of ranks (processes that train together) or earlier epochs.

    With `prefetch=n` the stages work before the consumer, your loop, asks for a mini-batch. Each holds at most `n`
    mini-batches, under way or waiting for the next stage, and some more if it or the next one takes several together.
    With `prefetch=0` the consumer's thread does all work. Only one iterator is alive at a time: a new one ends the one
    before it. Only one thread at a time may ask it for a mini-batch. An iterator that is closed, abandoned or
    interrupted ends its threads after their current call.

    On a GPU each stage has its own CUDA stream, made once. A mini-batch is ready for work on the stream that was
    current at `next()`. Another stream that uses it has to wait for that stream; also call
    `batch.record_stream(other)`. If sampler and stores are asynchronous, and only the sampler takes several together,
    the consumer's thread launches the work of all stages when it asks for a mini-batch. Else each stage has a thread.
    The host may be `n` mini-batches ahead of the consumer's stream. `prefetch` bounds how many mini-batches exist at
    one time. The property `max_items` is that bound, and `max_bytes` estimates the bytes of this many mini-batches.

    `state_dict()` counts the mini-batches that the consumer was given, not those that are prefetched.
    `load_state_dict()` continues with exactly the next one, also with another number of ranks.

    A copy (`pickle`, `copy`) has the same state as the loader, and its own sessions, streams and threads. `close()` the
    loader before you pass it to a spawned process: torch then moves its arrays to shared memory, and frees the old ones
    even if a thread reads them. The state stays.

    Args:
        graph: the graph to sample; it lies where the sampler wants it.
        items: the items of an epoch.
        sampler: samples around the items of each mini-batch. It takes items of the kind `sampler.items`.
        batch_size: items of a mini-batch, at least 1.
        stores: kind of rows -> the store, or the tensor, that has them; see `loader.samples.Sample.wants`.
        stages: more stages, which come after the gathering of rows. Their names must differ.
        shuffle: take the items in a new order each epoch, see `loader.items.Order`.
        drop_last: leave out the last mini-batch if it is smaller than the others.
        seed: of the order of the items; the sampler has a seed of its own.
        prefetch: mini-batches to hold ready per stage; 0 for no prefetching.
        rank, world_size: number of this process among those that train together, and their number. They take turns in
            one sequence of mini-batches, see `loader.items.BatchSequence`.
        device: where the mini-batches arrive, "cpu" or a GPU. None takes the GPU of sampler or stores, else the CPU.
        session: a session of `sampler` that several loaders share; the loader does not close it. By default it opens
            its own.
        prioritize_loading: kernels of the stages are run before waiting kernels of an ordinary stream, see
            `Stage.priority`. Training by CUDA graphs is run before sampling, but not before gathering.

    Attributes:
        sequence: the sequence of mini-batches of all ranks, and the turns of this rank.
        stats: a `PipelineStats`: seconds and bytes of the stages, and of the consumer's waiting.
        timeline: records the work of the stages from the next iterator on, or None.
        device: where the mini-batches arrive.
        finished: a function that returns the number of this rank's mini-batches that the consumer is done with in this
            epoch, or None. With it, a state begins with the first mini-batch that the consumer is not done with;
            without it, with the first one that the consumer was not given.
        follows_epochs: whether the loader takes the number of the epoch from Lightning.

    Raises:
        TypeError, ValueError: an argument is not as said above; the message says which, and the way out.
        RuntimeError: a GPU was asked for and build or machine have none.
    """

    def __init__(
        self,
        graph: Graph | HeteroGraph,
        items: Items,
        sampler: Sampler,
        batch_size: int,
        *,
        stores: Mapping[str, FeatureStore | Tensor] | None = None,
        stages: Sequence[Stage] = (),
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        prefetch: int = 2,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str | None = None,
        session: Session | None = None,
        prioritize_loading: bool = True,
    ) -> None:
        require_graph(graph)
        if not isinstance(items, Items):
            raise TypeError(f"items is {kind_of(items)}; it must be a loader.items.Items, as NodeItems(seeds)")
        self.sequence = BatchSequence(len(items), batch_size, drop_last=drop_last, rank=rank, world_size=world_size)
        self._order = Order(len(items), shuffle=shuffle, seed=seed)
        if not isinstance(sampler, Sampler):
            raise TypeError(f"sampler is {kind_of(sampler)}; it must be a loader.samplers.Sampler")
        if sampler.items != items.kind:
            raise ValueError(
                f"{type(sampler).__name__} samples around items of kind '{sampler.items}', but the items are of kind "
                f"'{items.kind}'; give a sampler for these items"
            )
        if session is not None and not isinstance(session, Session):
            raise TypeError(f"session is {kind_of(session)}; it must be the session that sampler.open(graph) returned")
        if session is not None:
            session.require(sampler, graph)
        if not isinstance(stages, Sequence) or not all(isinstance(stage, Stage) for stage in stages):
            raise TypeError(f"stages is {shown(stages)}; it must be a list of loader.pipeline.Stage")
        names = [stage.name for stage in stages]
        for name in names:
            if name in _TAKEN or _MOVE.fullmatch(name) or names.count(name) > 1:
                raise ValueError(
                    f"stage '{name}' needs a name of its own: {sorted(_TAKEN)}, 'move 2' and so on are taken, and the "
                    f"stages are {names}"
                )
        self.stores = _stores_of(stores)
        self.device = choose_device(device, sampler, self.stores)
        self.graph = graph
        self.items = items
        self.neighbor_sampler = sampler
        self.prefetch = as_size("prefetch", prefetch, least=0, most=MAX_PREFETCH)
        self.prioritize_loading = as_flag("prioritize_loading", prioritize_loading)
        self.stats = PipelineStats(())
        self.timeline: Timeline | None = None
        self.finished: Callable[[], int] | None = None
        self.follows_epochs = True
        self._more_stages = tuple(stages)
        self._session = session
        self._opened = session
        self._pipeline: Pipeline | None = None
        self._next = (0, 0)  # epoch and global number of the mini-batch with which the next iterator begins
        self._at: tuple[int, int] | None = None  # the same of what follows what was given out by the iterator that runs
        self._given_epoch: int | None = None  # the last number that `set_epoch` got
        self._resumed = False  # a state was loaded, and no iterator began since
        # Where each mini-batch was that was given out and that `finished` may not count; with the count of the first.
        self._given: deque[tuple[int, int]] = deque()
        self._given_before: int | None = None
        self._running: weakref.ref[Epoch] | None = None

    @property
    def batch_size(self) -> int:
        return self.sequence.batch_size

    @property
    def epoch(self) -> int:
        """The epoch that runs, or the one to come if none does."""
        return (self._at or self._next)[0]

    @property
    def next_epoch(self) -> int:
        """The epoch of the next iterator. One that was abandoned is not gone on with."""
        return self._next[0]

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages, in order."""
        return self._open().stages

    @property
    def ahead(self) -> str:
        """Which threads prefetch: "none" (`prefetch=0`), "threads" (one per stage) or "consumer" (its thread)."""
        return "none" if not self.prefetch else "threads" if self._open().threaded else "consumer"

    @property
    def max_items(self) -> int:
        """The most mini-batches that may exist at one time, including those of the consumer."""
        return self._open().max_items + self._open().max_consumed

    @property
    def max_bytes(self) -> int:
        """About the bytes of `max_items` mini-batches, by the largest one that was measured, which are the first 16 and
        then every 16th; 0 before the first.
        """
        return self.max_items * self.stats.largest_item

    @property
    def batch_sampler(self) -> SimpleNamespace:
        """The object in which Lightning looks for `set_epoch`, at `batch_sampler.sampler`, as in torch's loaders."""
        return SimpleNamespace(sampler=self if self.follows_epochs else None)

    def __len__(self) -> int:
        """Mini-batches of an epoch, on each rank."""
        return self.sequence.steps()

    def __iter__(self) -> Iterator[Any]:
        """One epoch. Nothing happens until its first `next()`: an iterator never asked for one costs nothing."""
        return Epoch(self)

    @property
    def is_resumed(self) -> bool:
        """Whether a state was loaded and no iterator began since."""
        return self._resumed

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next epoch, from its first mini-batch.

        After `load_state_dict` it changes nothing if `epoch` is also what the loader of the state was told: the rest
        follows. If Lightning's fit loop calls this, the loader counts by that loop from now on, see `finished`.
        """
        epoch = as_64_bits("epoch", epoch)
        loop = calling_fit_loop()
        if loop is not None:
            epoch = follow(self, loop)
        if not self._resumed or epoch != (self._next[0] if self._given_epoch is None else self._given_epoch):
            self._next, self._resumed = (epoch, 0), False
        self._given_epoch, self._at = epoch, None
        self._forget_given()

    def state_dict(self) -> dict[str, Any]:
        """The position of the consumer, and the arguments that must be equal to continue there, as plain numbers and
        strings.

        `next` is the number of the first mini-batch that is left of `epoch`, counted over all ranks. `told` is what
        `set_epoch` said last, or None; an iterator that begins without it is of the epoch after. An epoch is over when
        the consumer asks for a mini-batch after the last one. If `finished` says that the consumer is not done with a
        mini-batch, that one is left.
        """
        epoch, following = self._at or self._next
        if self._given_before is not None and self.finished is not None:
            unfinished = max(0, self.finished() - self._given_before)
            if unfinished < len(self._given):
                epoch, following = self._given[unfinished]
        place = {"epoch": epoch, "next": following, "told": self._given_epoch}
        return {"version": _STATE_VERSION, **place, "config": self._config()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where `state` was taken: the next iterator gives the rest of that epoch.

        Any iterator that runs is closed.

        Raises:
            ValueError: the state is not that of a `Loader`, or its loader had other arguments; the message names the
                first difference. `prefetch`, ranks, devices and threads may differ, and the sampler may be another one
                of the same spec.
        """
        parts = {"version", "epoch", "next", "config"}
        if not isinstance(state, dict) or not parts <= state.keys() or not isinstance(state["config"], dict):
            raise ValueError(
                f"the state is {shown(state)}, which is none of a {type(self).__name__}; give what its state_dict() "
                "returned"
            )
        if state["version"] != _STATE_VERSION:
            raise ValueError(
                f"the state has version {state['version']}, this {type(self).__name__} reads {_STATE_VERSION}; "
                "continue with the release that wrote it"
            )
        own = self._config()
        for digest in self.neighbor_sampler.digests(self.graph).keys() - state["config"].keys():
            del own[digest]  # releases before had none
        for key in sorted(own.keys() | state["config"].keys()):
            theirs = state["config"].get(key)
            if theirs != own.get(key):
                raise ValueError(
                    f"cannot resume: {key} was {theirs!r} when the state was saved and is {own.get(key)!r} now; "
                    "restore it, or start a new run with only the weights"
                )
        epoch, following, most = as_index(state["epoch"]), as_index(state["next"]), self.sequence.num_batches
        given_epoch = None if state.get("told") is None else as_index(state["told"])  # releases before had none
        if epoch is None or following is None or epoch < 0 or following < 0:
            raise ValueError(
                f"the state stands at mini-batch {shown(state['next'])} of epoch {shown(state['epoch'])}; both count "
                "from 0: give what state_dict() returned"
            )
        self.close()
        self._next = (epoch, min(following, most))
        self._at, self._given_epoch, self._resumed = None, given_epoch, True
        self._forget_given()

    def done(self) -> None:
        """Tells the loader that the consumer is done with the last mini-batch, and asks for no other.

        A timeline then records the end of that mini-batch, too. Otherwise the request for the next one tells this.
        """
        running = self._running() if self._running is not None else None
        if running is not None:
            running.done()

    def close(self) -> None:
        """Ends the running iterator and its threads. The loader can be iterated over again."""
        running = self._running() if self._running is not None else None
        if running is not None:
            running.close()
        self._running = None
        if self._pipeline is not None:
            join_stopped(self._pipeline.threads)  # of iterators that were dropped

    def drop_prefetched(self) -> None:
        """Ends the iterator that runs. The next one goes on after the mini-batch that was given last."""
        self.close()
        self._next = self._at or self._next

    def release(self) -> None:
        """Ends the iterator and closes the stages and the session. The next epoch makes new ones."""
        self.close()
        pipeline, self._pipeline = self._pipeline, None
        for stage in pipeline.stages if pipeline is not None else ():
            stage.close()

    def gather_from(self, stores: Mapping[str, FeatureStore | Tensor]) -> None:
        """Takes other stores, of the same kinds of rows or of others. The iterator that runs ends.

        Args:
            stores: as those that the loader was made with, which are not closed.
        """
        self.release()
        self.stores = _stores_of(stores)

    def beside(self) -> Loader:
        """A copy that begins where the next iterator of this one would begin, while the one that runs goes on."""
        other = copy.copy(self)
        other._next, other.finished = self._next, self.finished
        return other

    def __getstate__(self) -> dict[str, Any]:
        left = {"_next": self._at or self._next, "stats": copy.deepcopy(self.stats)}
        not_copied = ("_pipeline", "_session", "_opened", "_running", "_at", "timeline", "finished", "_given_before")
        return self.__dict__ | left | dict.fromkeys(not_copied) | {"_given": deque()}

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(items={len(self.items)}, batch_size={self.batch_size}, batches={len(self)}, "
            f"sampler={self.neighbor_sampler!r}, prefetch={self.prefetch}, device='{self.device}')"
        )

    def _config(self) -> dict[str, Any]:
        """All that decides what the mini-batches are."""
        return {
            "batch_size": self.sequence.batch_size,
            "drop_last": self.sequence.drop_last,
            "kind": self.items.kind,
            "num_edges": self.graph.num_edges,
            "num_items": len(self.items),
            "num_nodes": self.graph.num_nodes,
            "ordered items": self.items.fingerprint(),  # after num_items: the first difference is the one that is told
            **{f"sampler.{name}": value for name, value in self.neighbor_sampler.spec().items()},
            "seed": self._order.seed,
            "shuffle": self._order.shuffle,
            **_types_of(self.graph),
            **self.neighbor_sampler.digests(self.graph),
        }

    def _open(self) -> Pipeline:
        """The pipeline, made when it is first needed."""
        if self._pipeline is None:
            stages, stats = self._make_stages(), self.stats
            stats.name([stage.name for stage in stages])
            streams = None
            if self.device.type == "cuda":
                streams = StageStreams(self.device, stages, prioritize=self.prioritize_loading)
                # What the stages hold still reads the graph and the stores, which may go with the loader.
                weakref.finalize(self, streams.synchronize).atexit = False
            self._pipeline = Pipeline(stages, self.prefetch, stats, streams=streams)
        return self._pipeline

    def _make_stages(self) -> list[Stage]:
        sampler = self.neighbor_sampler
        session = self._opened = self._session or sampler.open(self.graph)
        lists = self.graph.lists if isinstance(self.graph, HeteroGraph) else self.graph
        items = self.items.to(sampler.device, lists.indices.dtype)
        stores = dict(self.stores)
        near = "seed" in stores and stores["seed"].device == items.device
        first = SampleStage(
            session,
            items,
            self._order,
            self.sequence,
            labels=stores.pop("seed") if near else None,
            asynchronous=sampler.asynchronous,
            ahead=self.prefetch > 0,
            owns_session=self._session is None,
            prepares=list(stores) if sampler.in_trees else (),
        )
        gather = GatherStage(stores, self.device, self.stats)
        places = [store.device for store in stores.values()]
        stages = arrange(first, gather, self._more_stages, self.device, places, self.stats)
        at = stages.index(gather)
        if (announce := AnnounceStage.of(stages[at - 1], stores)) is not None:
            stages[at - 1] = announce
        elif (request := RequestStage.of(stores)) is not None:
            stages.insert(at, request)
        return stages

    def _begin(self, iterator: Epoch) -> PipelineRun:
        """Called by an iterator at its first `next()`."""
        self.close()
        if isinstance(self.finished, FitLoopCount) and not self.finished.runs:
            self.finished = None
        self._forget_stale()
        pipeline = self._open()
        pipeline.timeline = self.timeline
        self._running = weakref.ref(iterator)
        epoch, first = self._next
        goes_on = self._at == self._next
        self._next, self._resumed = (epoch + 1, 0), False
        self._at = (epoch, first)
        # Lightning asks the shorter one of several loaders for an epoch after the other, and counts on.
        if self._given_before is None or not (goes_on or isinstance(self.finished, FitLoopCount)):
            self._forget_given()
            self._given_before = None if self.finished is None else self.finished()
        return pipeline.run(Turns(self.sequence, epoch, first))

    def _forget_stale(self) -> None:
        """Lets the session go if the graph was written to since it was opened.

        Raises:
            ValueError: it was, and the session is one that several loaders share.
        """
        if self._opened is None or not self._opened.is_stale:
            return
        if self._session is not None:
            raise ValueError(
                "the graph was written to since the session of this loader was opened, which has made its own of it; "
                "open another by sampler.open(graph), or make a new data module"
            )
        self.release()

    def _gave(self, iterator: Epoch, batch: Sample | None) -> None:
        """An iterator gave out one more mini-batch, or said that there is none."""
        if batch is not None:
            given = self.stats.items
            if given <= _MEASURED or given % _MEASURED == 0:
                self.stats.see_item(batch.held_bytes)
        if self._at is not None and self._running is not None and self._running() is iterator:
            if batch is not None:
                self._note_given(self._at)
                self._at = self._at[0], self._at[1] + self.sequence.world_size
            elif not isinstance(self.finished, FitLoopCount):  # whose epoch may go on with a longer loader
                self._at = None

    def take_back(self) -> None:
        """Called if the mini-batch that was given last did not reach the consumer: a state begins with it."""
        if self._at is not None:
            self._at = self._at[0], self._at[1] - self.sequence.world_size
            if self._given:
                self._given.pop()

    def _note_given(self, place: tuple[int, int]) -> None:
        """Keeps where a mini-batch was until `finished` counts it."""
        if self._given_before is None or self.finished is None:
            return
        self._given.append(place)
        for _ in range(min(self.finished() - self._given_before, len(self._given) - 1)):
            self._given.popleft()
            self._given_before += 1

    def _forget_given(self) -> None:
        self._given.clear()
        self._given_before = None


def _types_of(graph: Graph | HeteroGraph) -> dict[str, Any]:
    """Types and relations with their order, as a state has them."""
    if not isinstance(graph, HeteroGraph):
        return {}
    sizes = [[name, len(ids)] for name, ids in graph.node_types.items()]
    return {"node_types": sizes, "edge_types": ["__".join(key) for key in graph.edge_types]}


def _stores_of(stores: Mapping[str, Any] | None) -> dict[str, FeatureStore]:
    """The stores by the kind of their rows; a tensor gets a store.

    Raises:
        TypeError: it is no mapping, or a value is neither a store nor a tensor.
    """
    if stores is not None and not isinstance(stores, Mapping):
        raise TypeError(
            f"stores is {shown(stores)}; it must be a dict from a kind of rows to their store, e.g. "
            "{'node': HostFeatures(x)}"
        )
    made = {kind: as_store(f"stores[{kind!r}]", rows) for kind, rows in (stores or {}).items()}
    return {kind: store for kind, store in made.items() if store is not None}

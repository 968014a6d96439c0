"""The base of torch_geometric's loaders on our pipeline: the pipeline itself, and the plain path through its hooks."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
import torch.utils.data
from torch.utils.data import DistributedSampler

from loader.graph import EdgeType, Graph, HeteroGraph
from loader.items import Items, NodeItems
from loader.loaders.base import Loader
from loader.loaders.own_batches import AskedSampler, seeded
from loader.loaders.torch_options import DataLoaderOptions
from loader.machine.arguments import as_size, kind_of, shown
from loader.pyg.attributes import Attributes, MakeStore, check_attributes
from loader.pyg.edges_read import EdgesRead
from loader.pyg.output_sampler import OutputSampler
from loader.pyg.positions import NO_GRAPH, Batches, EpochSampler
from loader.samplers import Sampler
from loader.stores.base import check_store_factory

if TYPE_CHECKING:
    from torch_geometric.data import Data

_log = logging.getLogger("loader")
_warned: set[tuple[str, str]] = set()


@contextmanager
def _taken_back(loader: Loader) -> Iterator[None]:
    """Leaves a mini-batch to a resumed run, if what is done with it here raises."""
    try:
        yield
    except BaseException:
        loader.take_back()  # a state of now begins with this mini-batch
        raise


class Sampled(NamedTuple):
    """What a loader samples, and how.

    Attributes:
        items: of an epoch; None if there are none.
        sampler: of subgraphs, or of links with subgraphs around them.
        graph: of `data`.
        num_neighbors: picks per node and hop; of several types edge type -> these; None: it has none.
        by_hop: whether edges of subgraphs lie hop by hop.
        weight_attr: name of the weights in `data`.
        time_attr: name of the times in `data`.
    """

    items: Items | None
    sampler: Sampler
    graph: Graph | HeteroGraph
    num_neighbors: list[int] | Mapping[EdgeType, list[int]] | None
    by_hop: bool
    weight_attr: str | None
    time_attr: str | None = None


class DataLoader(torch.utils.data.DataLoader):
    """Base of the loaders that give `torch_geometric.data.Data`. A class has it before torch_geometric's own loader.

    Mini-batches come from our pipeline. If a class or its user gives a hook of torch_geometric (`collate_fn`,
    `filter_fn`, `transform_sampler_output`, a sampler of theirs, a sampler or batch sampler of torch's, feature and
    graph stores), they are made one by one in the thread that iterates, as torch_geometric's loader does it, and the
    log says once that this is slower. With the same seed they are the same mini-batches. While a hook runs, torch's
    generator of the CPU has a seed that follows from the loader's seed, the epoch and the number of the mini-batch.

    The attributes of `data` may be added, changed, replaced or deleted at any time. The next mini-batch that is
    gathered has what is there; of what torch wrote in place on the CPU, up to `prefetch` are gathered already. Torch
    does not count writes to tensors of inference mode: the next epoch has these. The edges, and the weights by which
    neighbors are picked, are read when the loader is made. If they are others when an epoch begins, an error says so.

    `loader(ids)` gives the mini-batch of some positions. As in torch_geometric, a number from torch's generator then
    decides the picks. Several iterators may run at the same time: each is an epoch of its own, with the next number.
    `state_dict` has the position of the newest.

    Attributes:
        data: the whole graph.
        transform: called with each mini-batch, in the thread that iterates.
        device: where the mini-batches arrive.
    """

    _hooks: Any  # torch_geometric's class, whose methods `collate_fn` and `filter_fn` are no hooks
    _role: str  # torch_geometric's name of the attribute that samples
    _method: str  # of that
    filter_fn: Callable[[Any], Any]

    def __init__(
        self,
        data: Any,
        sampled: Sampled,
        batch_size: int,
        *,
        features: MakeStore | None,
        device: torch.device,
        transform: Callable[[Any], Any] | None,
        transform_sampler_output: Callable[[Any], Any] | None,
        filter_per_worker: bool | None,
        neighbor_sampler: Any,
        drawn: dict[str, Any],
        options: DataLoaderOptions,
    ) -> None:
        from torch_geometric.loader.utils import infer_filter_per_worker

        batch_size = as_size("batch_size", batch_size)
        for name, function in (("transform", transform), ("transform_sampler_output", transform_sampler_output)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} is {shown(function)}; it must be a function of a mini-batch, or None")
        if features is not None:
            check_store_factory(features)
        if neighbor_sampler is not None and not callable(getattr(neighbor_sampler, self._method, None)):
            raise TypeError(
                f"neighbor_sampler is {kind_of(neighbor_sampler)}; it must have the method {self._method}, as a "
                "BaseSampler of torch_geometric"
            )
        self.data, self.transform, self.device = data, transform, device
        self.transform_sampler_output, self.custom_cls = transform_sampler_output, None
        self.filter_per_worker = infer_filter_per_worker(data) if filter_per_worker is None else filter_per_worker
        self.num_neighbors = sampled.num_neighbors
        self._pin, self._seed, self._features = options.pin, options.seed, features
        self._num_threads, self._begin_workers = options.num_threads or 0, options.begin
        self._sampled, self._batch_size, self._options = sampled, batch_size, options.loader
        self._read = EdgesRead(data, sampled.weight_attr, sampled.graph, sampled.time_attr)
        self._own = OutputSampler(sampled.sampler, sampled.graph, sampled.num_neighbors, by_hop=sampled.by_hop)
        setattr(self, self._role, self._own if neighbor_sampler is None else neighbor_sampler)
        # What torch_geometric reads at every mini-batch, and the pipeline once.
        names = ("input_data", "neg_sampling", "custom_cls", *(["data"] if isinstance(data, tuple) else []))
        self._fixed = {name: self.__dict__.get(name) for name in names}
        self._attributes: Attributes | None = None
        self._loader: Loader | None = None
        self._plain: str | None = None  # why that goes the plain path
        self._busy: Loader | None = None  # what the newest iterator reads, until it is at its end
        self._begin: dict[str, Any] | None = None  # where a copy begins
        # An epoch that goes on, and the digest of the batch sampler's mini-batches.
        self._expected: tuple[int, str] | None = None
        self._batches = None
        self._init_torchs(batch_size, drawn)
        given = any(value is not None for value in drawn.values())
        if given and sampled.items is not None:
            self._batches = Batches(type(self).__name__, self._torchs, options.seed, len(sampled.items))
        if given and options.loader.get("world_size", 1) != 1:
            raise ValueError(
                f"world_size is {options.loader['world_size']}, and {type(self).__name__} was given a sampler, which "
                "says what this process takes; leave one of them out"
            )
        self._length = len(self._batches) if self._batches is not None else 0
        if sampled.items is not None and not given:
            self._length = len(self._make(stores={}))  # says at once what is wrong
        if not isinstance(data, tuple):
            check_attributes(data)
        self._check_features(self._why_plain())

    def _init_torchs(self, batch_size: int, drawn: dict[str, Any]) -> None:
        """Makes this a DataLoader of torch's, for who asks for its attributes."""
        items, options = self._sampled.items, self._options
        count, ranks = 0 if items is None else len(items), options.get("world_size", 1)
        positions: Any = range(count)
        order: dict[str, Any] = {"shuffle": bool(options.get("shuffle", False)) and count > 0, **drawn}
        if count and ranks != 1 and isinstance(ranks, int) and all(value is None for value in drawn.values()):
            # Lightning asks the sampler whether the ranks share the items already.
            order["sampler"] = DistributedSampler(
                positions, num_replicas=ranks, rank=options.get("rank", 0), shuffle=order["shuffle"]
            )
            order["shuffle"] = False
        last = bool(options.get("drop_last", False))
        collate = self.collate_fn
        torch.utils.data.DataLoader.__init__(
            self, positions, batch_size=batch_size, drop_last=last, collate_fn=collate, **order
        )
        self.num_workers, self.pin_memory = self._num_threads, self._pin  # as given
        del self.collate_fn  # the attribute, which would refer to this object: the method is found without it

    @property
    def batch_sampler(self) -> Any:
        """Torch's batch sampler. Its `sampler` is our loader, or passes the number of an epoch on to it: there
        Lightning looks for `set_epoch`. A user's own class of batch samplers stays as it is.
        """
        torchs, follows = self._torchs, self._sampled.items is not None and self.loader.follows_epochs
        if not follows or (self._batches is not None and type(torchs) is not torch.utils.data.BatchSampler):
            return torchs
        sampler: Any = self.loader if self._batches is None else EpochSampler(torchs.sampler, self.loader)
        return torch.utils.data.BatchSampler(sampler, torchs.batch_size, torchs.drop_last)

    @batch_sampler.setter
    def batch_sampler(self, made: Any) -> None:
        self._torchs = made

    def _finish(self, attributes: Attributes, sample: Any) -> Data:
        """The `Data` of what the sampler gave."""
        raise NotImplementedError

    def _make(self, **more: Any) -> Loader:
        """The pipeline."""
        _, sampler, graph, *_ = self._sampled
        assert self._sampled.items is not None
        given = {"seed": self._seed, "device": self.device, **self._options, **more}
        return Loader(graph, self._sampled.items, sampler, self._batch_size, **given)

    def _make_plain(self, why: str) -> Loader:
        """The pipeline of positions, for the plain path: of items or, from a batch sampler, of mini-batches."""
        items, sampler, graph, *_ = self._sampled
        assert items is not None
        spec = {"plain": why, **sampler.spec(), "items": items.fingerprint(), "num_nodes": graph.num_nodes}
        given = {"seed": self._seed, **self._options, "prefetch": 0, "device": "cpu", "stores": {}}
        size, count = self._batch_size, len(items)
        if self._batches is not None:
            size, count, given["shuffle"], given["drop_last"] = 1, len(self._batches), False, False
        asked = AskedSampler(spec, partial(sampler.digests, graph))
        return Loader(NO_GRAPH, NodeItems(torch.arange(count)), asked, size, **given)

    def _why_plain(self) -> str | None:
        """The hook that asks for the plain path, None without one."""
        if isinstance(self.data, tuple):
            return "(feature_store, graph_store)"
        for name in ("collate_fn", "filter_fn"):
            if name in self.__dict__ or getattr(type(self), name) is not getattr(self._hooks, name):
                return name
        if self.transform_sampler_output is not None:
            return "transform_sampler_output"
        own = self._own
        if getattr(self, self._role) is not own or self._method in own.__dict__:
            return "neighbor_sampler"
        return None if self._batches is None else "a sampler of torch's"

    @property
    def loader(self) -> Loader:
        """The `loader.loaders.Loader` that samples and gathers, with its statistics and `max_bytes`.

        Raises:
            ValueError: there are no items.
        """
        if self._sampled.items is None:
            raise ValueError(f"this {type(self).__name__} has no items, so it has no pipeline; its epochs are empty")
        why = self._why_plain()
        if self._loader is not None and self._plain == why:
            return self._loader
        before = self._loader
        begin = self._begin if before is None else before.state_dict() if before.is_resumed else None
        epoch = 0 if before is None else before.next_epoch
        self.close()
        self._plain = why
        if why is None:
            self._attributes = Attributes(self.data, self.device, self._features)
            self._loader = self._make(stores=self._attributes.stores)
        else:
            self._tell_once(why)
            self._loader = self._make_plain(why)
        if begin is not None:
            self.load_state_dict(begin)
        elif epoch:
            self._loader.set_epoch(epoch)
        return self._loader

    def _tell_once(self, why: str) -> None:
        self._check_features(why)
        who = type(self).__name__
        if (who, why) not in _warned:
            _warned.add((who, why))
            _log.warning(
                "%s: mini-batches go through %s, one by one in the thread that iterates; the pipeline is faster",
                who,
                why,
            )

    def _check_features(self, why: str | None) -> None:
        """Raises ValueError if there is a store for `x` and a hook that does not read it."""
        if self._features is not None and why is not None:
            raise ValueError(f"features is given, which {why} does not read; leave features out")

    def __getstate__(self) -> dict[str, Any]:
        """A copy (`pickle`, `copy`) goes on where this one is, with the attributes of its own `data`."""
        begin = self._begin if self._loader is None else self.state_dict()
        same = self._read.differs(self.data) is None  # else the copy is refused, too
        own = copy.copy(self._own)
        role = {self._role: own} if getattr(self, self._role) is self._own else {}
        gone = dict.fromkeys(("_attributes", "_loader", "_busy", "_plain"))
        return self.__dict__ | gone | role | {"_begin": begin, "_same": same, "_own": own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        same = state.pop("_same")
        self.__dict__.update(state)
        if same:
            self._read = self._read.again(self.data)

    def _check_read(self) -> None:
        """Raises ValueError if something is another than what this read when it was made."""
        who = type(self).__name__
        for name, value in self._fixed.items():
            if self.__dict__.get(name) is not value:
                raise ValueError(f"{name} of this {who} was replaced, and read before; make a new loader")
        self._read.check(self.data, who)

    def _current(self, loader: Loader) -> Attributes:
        """The attributes that `data` has now, whose stores the loader has, too."""
        assert self._attributes is not None
        if not self._attributes.are_those_of(self.data):
            shared = self._busy is not None and self._busy is not loader
            self._attributes = Attributes(
                self.data, self.device, self._features, self._attributes, lambda: loader.gather_from({}), shared
            )
        if loader.stores != self._attributes.stores:
            loader.gather_from(self._attributes.stores)
        return self._attributes

    @property
    def stats(self) -> Any:
        """Seconds and bytes of the stages, a `PipelineStats`."""
        return self.loader.stats

    def __len__(self) -> int:
        """Mini-batches of an epoch, on each rank."""
        return self._length

    def _get_iterator(self) -> Iterator[Any]:  # type: ignore[override]
        """One epoch; see `loader.loaders.Loader`. Nothing happens until its first `next()`."""
        return self._epoch()

    def _epoch(self) -> Iterator[Any]:
        if self._sampled.items is None:
            return
        self._check_read()
        self._begin_workers(self.dataset)
        loader = self.loader
        if self._busy is loader:  # another iterator is amid its epoch, so this one has a pipeline of its own
            loader = self._loader = loader.beside()
        self._busy = loader
        try:
            yield from self._plain_batches(loader) if self._plain is not None else self._batches_of(loader)
        finally:
            if self._busy is loader:
                self._busy = None
            if self._loader is not loader:
                loader.release()

    def _batches_of(self, loader: Loader) -> Iterator[Any]:
        amid = True
        while amid:
            attributes, amid = self._current(loader), False
            for sample in loader:
                with _taken_back(loader):
                    data = self._finish(attributes, sample)
                    if self._pin:
                        data = data.pin_memory()
                    if self.transform is not None:
                        data = self.transform(data)
                yield data
                if not attributes.serve(self.data):  # what is prefetched has rows that are no longer there
                    loader.drop_prefetched()
                    if self.device.type == "cuda":  # what was written there is read on other streams
                        torch.cuda.current_stream(self.device).synchronize()
                    amid = True
                    break

    def _plain_batches(self, loader: Loader) -> Iterator[Any]:
        batches = self._batches
        drawn: list[list[int]] = []
        if batches is not None:
            epoch = loader.next_epoch
            drawn, self._expected = batches.draw(epoch, self._drawn(epoch)), None
        for sample in loader:
            number = sample.index if batches is None else batches.number(sample.index)
            self._own.position = sample.epoch, number
            with _taken_back(loader):
                try:
                    with seeded(self._seed, sample.epoch, number):
                        index = sample.items.tolist()
                        out = self.collate_fn(index if batches is None else drawn[index[0]])
                        if not self.filter_per_worker:
                            out = self.filter_fn(out)
                finally:
                    self._own.position = None
                out = out.to(self.device) if hasattr(out, "to") else out
                out = out.pin_memory() if self._pin and hasattr(out, "pin_memory") else out
            yield out

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next epoch."""
        if self._sampled.items is not None:
            self.loader.set_epoch(epoch)
            self._expected = None

    def state_dict(self) -> dict[str, Any]:
        """The position of the consumer; see `loader.loaders.Loader`. Without items there is none."""
        if self._sampled.items is None:
            return {}
        state = self.loader.state_dict()
        if self._batches is not None and state["next"] > 0:
            state["drawn"] = self._drawn(state["epoch"]) or self._batches.digest
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where `state` was taken."""
        if self._sampled.items is None and state == {}:
            return
        loader, way = self.loader, "the pipeline"
        config = state.get("config") if isinstance(state, dict) else None
        if isinstance(config, dict) and (before := config.get("sampler.plain")) != self._plain:
            raise ValueError(
                f"cannot resume: mini-batches went through {before or way} when the state was saved and go through "
                f"{self._plain or way} now; give this {type(self).__name__} what that one had"
            )
        loader.load_state_dict(state)
        drawn = state.get("drawn")
        self._expected = None if drawn is None else (state["epoch"], drawn)

    def _drawn(self, epoch: int) -> str | None:
        """The digest of what a state says of this epoch."""
        return self._expected[1] if self._expected is not None and self._expected[0] == epoch else None

    def close(self) -> None:
        """Ends the running iterator, and frees threads and workspaces. The next epoch makes new ones."""
        if self._loader is not None:
            self._loader.release()

    def _no_workers(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} has no worker processes, which this is for: num_workers is its number of threads"
        )

    enable_cpu_affinity = enable_multithreading = enable_memory_log = _no_workers

    def __repr__(self) -> str:
        items = self._sampled.items
        return (
            f"{type(self).__name__}(items={0 if items is None else len(items)}, batch_size={self._batch_size}, "
            f"batches={len(self)}, device='{self.device}')"
        )

"""The base classes of all samplers: the configuration, and the session that samples one graph."""

from __future__ import annotations

import copy
import logging
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial, wraps
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor
from typing_extensions import Self

from loader import _core
from loader.datasets.digests import digest_of
from loader.graph import EdgeType, Graph, HeteroGraph, require_graph
from loader.graph.checks import check_integers, check_range, signed
from loader.machine.arguments import as_64_bits, as_flag, as_index, as_seed, as_size, kind_of, shown
from loader.machine.forks import ForkSafeLock
from loader.machine.mapped import require_whole, whole
from loader.samplers.picks import Picks
from loader.samplers.relations import (
    EXPANDS,
    check_distinct_by_type,
    resolve_relation_fanouts,
    seeds_by_type,
    widest,
)
from loader.samplers.relations import MAX_FANOUT as MAX_FANOUT
from loader.samplers.relations import MAX_HOPS as MAX_HOPS

AnyGraph = Graph | HeteroGraph

_log = logging.getLogger(__name__)
_warned_of_times = False


def tell_ignored_times(sampler: object, graph: AnyGraph) -> None:
    """Warns, once per process, that a sampler ignores the times of the graph."""
    global _warned_of_times
    lists = graph.lists if isinstance(graph, HeteroGraph) else graph
    of = [what for what in ("node", "edge") if getattr(lists, f"{what}_times") is not None]
    if of and not _warned_of_times:
        _warned_of_times = True
        _log.warning(
            "%s ignores the times that the graph has of its %ss, so seeds see what is later than they are; "
            "TreeSampler(fanouts, times=%r) counts them, of %s",
            type(sampler).__name__,
            "s and ".join(of),
            of[0] if len(of) == 1 else "both",
            "this graph" if isinstance(graph, HeteroGraph) else "HeteroGraph.of(graph)",
        )


def resolve_fanouts(fanouts: int | Sequence[int], num_hops: int | None = None) -> tuple[int, ...]:
    """Returns one fanout per hop, from the seeds outward.

    Args:
        fanouts: neighbors to pick for each node, one number per hop: 1 to 1024, or -1 for all neighbors. One number
            for all hops needs `num_hops`.
        num_hops: number of hops, 1 to 8, which is the depth of the model. None: the number of `fanouts`.

    Raises:
        TypeError: `fanouts` is a str, a dict or a set, or a number is not an integer.
        ValueError: a fanout is neither -1 nor in 1 to 1024; there are not 1 to 8 hops, or not `num_hops` fanouts; or
            `fanouts` is one number and `num_hops` is None.
    """
    if isinstance(fanouts, (str, bytes, Mapping, Set)):
        what = f"the text {fanouts!r}" if isinstance(fanouts, (str, bytes)) else f"a {type(fanouts).__name__}"
        raise TypeError(f"fanouts is {what}; give a list of integers, e.g. [15, 10, 5]")
    if num_hops is not None:
        num_hops = as_size("num_hops", num_hops, least=0)
    if isinstance(fanouts, Iterable) and getattr(fanouts, "ndim", True):  # an array of no dimension is a number
        resolved = tuple(_as_fanout(k) for k in fanouts)
        if num_hops is not None and len(resolved) != num_hops:
            raise ValueError(
                f"fanouts {list(resolved)} has {len(resolved)} entries for {num_hops} layers; "
                f"give {num_hops} of them, or one number for all hops"
            )
    else:
        resolved = (_as_fanout(fanouts),)
        if num_hops is None:
            raise ValueError(f"fanouts is the single number {fanouts}: say num_hops too, or give a list")
        resolved *= min(num_hops, MAX_HOPS + 1)
    if not 1 <= len(resolved) <= MAX_HOPS:
        raise ValueError(f"{num_hops or len(resolved)} hops are given; 1 to {MAX_HOPS} are possible, e.g. [15, 10]")
    for k in resolved:
        if k != -1 and not 1 <= k <= MAX_FANOUT:
            raise ValueError(f"fanout {k} is not possible: give 1 to {MAX_FANOUT}, or -1 for all neighbors")
    return resolved


def _as_fanout(k: Any) -> int:
    """`k` as an int; TypeError unless it is an integer."""
    if (number := as_index(k)) is not None:
        return number
    raise TypeError(f"fanout {shown(k)} is not an integer; give 1 to {MAX_FANOUT}, or -1 for all neighbors")


class Request(NamedTuple):
    """One mini-batch that is to be sampled.

    Attributes:
        seeds: `[n]`, integer, distinct nodes of the graph; for other kinds of items their ids, see
            `loader.items.Items`.
        epoch, batch: which epoch, and which mini-batch of it; both count from 0.
        numbers: see `loader.items.Seeds`.
    """

    seeds: Tensor
    epoch: int
    batch: int
    numbers: Tensor | None = None


def _require_whole_files(session: Session, files: Sequence[Tensor]) -> None:
    """From now on the samples of a session are of files that were whole when they were read."""
    begin, this = type(session).begin, weakref.ref(session)  # weak: a cycle would keep both

    def finished(finish: Callable[[], Any]) -> Any:
        sample = finish()
        require_whole(files)
        return sample

    def begun(group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], Any]]:
        itself = this()
        assert itself is not None
        require_whole(files)
        return [partial(finished, finish) for finish in begin(itself, group, ahead=ahead)]

    # Of this session only: all others begin without another frame, see tests/loader/test_frames.py.
    session.begin = begun  # type: ignore[method-assign]


class Session(ABC):
    """A sampler at work: one graph, one device. It owns what sampling needs: workspaces, threads, results under way.

    Attributes:
        together: how many requests are best passed in one group.
    """

    together = 1
    # By whom (its spec), for which graph, and the state of that.
    _made_for: tuple[dict[str, Any], weakref.ref[AnyGraph], tuple[int, ...]] | None = None
    _beside: tuple[AnyGraph, tuple[int, ...]] | None = None  # another graph that it has read, and the state of that
    _samples_of: Graph | None = None  # the lists that it samples, if they may be others than the graph's

    @abstractmethod
    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], Any]]:
        """Begins the samples of a group and returns one function per request, which finishes its sample.

        A session on a GPU only puts work on the current stream. Its functions then wait for the sizes of the samples,
        on the stream that is current when they are called. Other sessions sample at once. The functions are called in
        order, each once.

        Args:
            group: at least one request.
            ahead: the group is prefetched. Other work on the device must not wait for it.

        Raises:
            ValueError: seeds are out of range or duplicated. Either this method or a function that it returned raises
                it.
        """

    def check(self) -> None:  # noqa: B027 - most sessions have nothing left to say
        """Raises errors of samples that nobody waited for."""

    def close(self) -> None:  # noqa: B027 - most sessions hold nothing
        """Frees threads and workspaces."""

    @property
    def is_stale(self) -> bool:
        """Whether the graph was written to since: what the session has made of it, as tables of weights, is old."""
        if self._beside is not None and self._beside[0].state() != self._beside[1]:
            return True
        if self._made_for is None:
            return False
        graph = self._made_for[1]()
        return graph is not None and graph.state() != self._made_for[2]

    def require(self, sampler: Sampler, graph: AnyGraph) -> None:
        """Raises ValueError unless a sampler like this one opened the session, for this graph."""
        spec, known, _ = self._made_for or (None, None, None)
        other = None
        if spec is not None and spec != sampler.spec():
            other = "sampler"
        elif known is not None and known() is not graph:
            other = "graph"
        if other is not None:
            raise ValueError(f"session was opened for another {other}; give what {sampler}.open(graph) returned")


def _noted(open_session: Callable[[Any, Any], Session]) -> Callable[[Any, Any], Session]:
    """`open`, whose sessions know what they are for."""

    @wraps(open_session)
    def opened(self: Sampler, graph: AnyGraph) -> Session:
        lists = graph.lists if isinstance(graph, HeteroGraph) else graph
        arrays = lists._arrays() if isinstance(lists, Graph) else {}
        with whole(*arrays.values()):
            session = open_session(self, graph)
        if session._samples_of is not None:  # which may have been made in memory, so that nobody reads the files again
            arrays = session._samples_of._arrays()
        read = [arrays[name] for name in ("indptr", "indices", "edge_ids") if name in arrays]
        if files := [a for a in read if a.device.type == "cpu" and _core.is_watched(a.data_ptr())]:
            _require_whole_files(session, files)
        session._made_for = self.spec(), weakref.ref(graph), graph.state()
        return session

    return opened


class Sampler(ABC):
    """The configuration of a sampler. It can be copied, pickled and compared by its `spec()`.

    A sample is a pure function of `(graph, spec, epoch, batch, seeds)`. Samples made before and the number of threads
    do not change it.

    A sampler implements `open`, or `sample` if it needs no workspace.

    Attributes:
        items: the kind of items that it samples around, see `loader.items.Items`.
        num_hops: hops of a sample from its seeds; a model has a layer per hop. 0 for samples without hops, such as
            walks.
        edge_ids: whether samples hold the ids of their edges.
        timed: whether the seeds are pairs, ids and times.
        in_trees: each seed has a sample of its own.
    """

    items: str = "node"
    num_hops: int = 0
    edge_ids: bool = False
    timed: bool = False
    in_trees: bool = False

    _closed = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "open" in cls.__dict__:  # of a user's, too: a loader has to know what each session is for
            cls.open = _noted(cls.open)  # type: ignore[method-assign]

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._opened: _Opened | None = None  # of the last graph

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """All settings that decide the samples, in plain values. Samplers of equal specs give equal samples.

        So a run that began with one sampler can continue with another one of the same spec.
        """

    def digests(self, graph: AnyGraph) -> dict[str, str]:
        """Digests of what decides the samples beside the spec: of the graph's lists, and of the arrays that are read.

        A loader's state has them, by the names that its messages call them by.
        """
        lists = graph.lists if isinstance(graph, HeteroGraph) else graph
        found = {"the graph's edges": digest_of(lists.indptr, lists.indices)}
        if self.timed:
            found["times"] = digest_of(lists.node_times, lists.edge_times)
        return found | {f"the graph's {name}": digest_of(getattr(lists, name)) for name in self._reads}

    @property
    def _reads(self) -> tuple[str, ...]:
        """Names of the graph's arrays by edge that decide the samples, beside its lists and times."""
        return ()

    @property
    def device(self) -> torch.device:
        """Where the samples lie."""
        return torch.device("cpu")

    @property
    def asynchronous(self) -> bool:
        """Whether `Session.begin` returns before the samples are there."""
        return False

    def on(self, device: torch.device) -> Self:
        """The sampler for a process that works on `device`: a sampler of another GPU is replaced by one of this GPU.

        A configuration says only "cuda". Each of several processes calls this when it knows its own GPU.

        Raises:
            ValueError: the sampler works on another GPU, and cannot move.
        """
        if "cpu" in (self.device.type, device.type) or self.device == device:
            return self
        return self._moved(device)

    def _moved(self, device: torch.device) -> Self:
        """A copy for another GPU, see `on`."""
        raise ValueError(f"{type(self).__name__} samples on {self.device}, but this process works on {device}")

    def _with(self, **changes: Any) -> Self:
        """A copy, without a session, whose attributes have other values."""
        other = copy.copy(self)
        other.__dict__.update(changes)
        return other

    @_noted
    def open(self, graph: AnyGraph) -> Session:
        """A session for `graph`, which the caller closes. An implementation calls `require_open` first.

        Raises:
            ValueError: the graph lies where the sampler cannot read it.
            RuntimeError: the sampler was closed.
        """
        self.require_open()
        return _EagerSession(self, graph)

    def sample(self, graph: Any, seeds: Any, *, epoch: int = 0, batch: int = 0) -> Any:
        """Samples one mini-batch. Any number of threads may call. The session is kept until another graph is sampled.

        Args:
            graph: where to sample.
            seeds: `[batch_size]`, integer, distinct nodes of the graph. For a `HeteroGraph` a dict, node type -> ids
                within the type; or a vector in which node `i` of a type is `graph.node_types[type].start + i`, type
                after type. For a `TreeSampler` or a `WalkSampler` seeds may repeat.
            epoch, batch: number of the epoch and of the mini-batch in it, from 0. They decide the random choices.

        Raises:
            TypeError: `seeds` is no tensor of integers, or is a dict for a graph with one node type.
            ValueError: `seeds` does not have 1 dimension, or an id is out of range or there twice.
            RuntimeError: the sampler was closed.
        """
        if not isinstance(seeds, Mapping):
            return self._sample_by_session(graph, seeds, epoch, batch)
        if not isinstance(graph, HeteroGraph):
            raise TypeError("seeds is a dict, but the graph has one type of nodes; give a tensor of ids")
        ids = seeds_by_type(graph, seeds)
        try:
            return self._sample_by_session(graph, ids, epoch, batch)
        except ValueError as error:
            refused = error
        if "more than once" in str(refused):
            check_distinct_by_type(seeds)  # raises, and names the node by its id within its type
        raise refused

    def _sample_by_session(self, graph: Any, seeds: Any, epoch: int, batch: int) -> Any:
        require_graph(graph)
        opened = self._use(graph)
        try:
            (finish,) = opened.session.begin([Request(seeds, epoch, batch)])
            return finish()
        finally:
            self._leave(opened)

    def close(self) -> None:
        """Closes the session of `sample` when no thread uses it. The sampler opens no other session afterwards."""
        with self._lock:
            self._closed = True
            opened, self._opened = self._opened, None
        self._leave(opened)

    def require_open(self) -> None:
        """Raises RuntimeError if the sampler was closed."""
        if self._closed:
            raise RuntimeError(f"this {type(self).__name__} was closed; make a new one")

    def _use(self, graph: AnyGraph) -> _Opened:
        """The session for `graph`, which the caller leaves."""
        with self._lock:
            self.require_open()
            opened = self._opened
            if opened is not None and opened.graph is graph and not opened.session.is_stale:
                opened.users += 1
                return opened
            self._opened = None
        self._leave(opened)
        made = _Opened(graph, self.open(graph))  # not under the lock: it may take long
        with self._lock:
            opened = made
            if not self._closed:
                opened, self._opened = self._opened, made  # what another thread opened meanwhile is no longer kept
                made.users += 1
        self._leave(opened)
        if opened is made:
            self.require_open()
        return made

    def _leave(self, opened: _Opened | None) -> None:
        """One user less."""
        if opened is not None:
            with self._lock:
                opened.users -= 1
                last = opened.users == 0
            if last:
                opened.session.close()

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins without a session."""
        return {name: held for name, held in self.__dict__.items() if name not in ("_lock", "_opened", "_closed")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Sampler.__init__(self)
        self.__dict__.update(state)


class _Opened:
    """A session of `Sampler.sample`. The last of its users closes it: the sampler that keeps it, calls under way."""

    __slots__ = ("graph", "session", "users")

    def __init__(self, graph: AnyGraph, session: Session) -> None:
        self.graph, self.session, self.users = graph, session, 1


class _EagerSession(Session):
    """Of a sampler without a workspace: it samples when it is asked to begin."""

    def __init__(self, sampler: Sampler, graph: AnyGraph) -> None:
        if type(sampler).sample is Sampler.sample:
            raise TypeError(f"{type(sampler).__name__} implements neither `open` nor `sample`; one of them is needed")
        self._sampler, self._graph = sampler, graph

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], Any]]:
        def sampled(request: Request) -> Callable[[], Any]:
            sample = self._sampler.sample(self._graph, request.seeds, epoch=request.epoch, batch=request.batch)
            if type(sample) in (type(None), tuple, list, dict, Tensor):
                raise TypeError(
                    f"{type(self._sampler).__name__}.sample gives {kind_of(sample)}; it must give a sample, e.g. a "
                    "loader.samples.MiniBatch(nodes, sizes, blocks)"
                )
            return lambda: sample

        return [sampled(request) for request in group]


_TREES = "times are the graph's and the seeds': TreeSampler(fanouts, times='both'), with last=True for the latest"
_WEIGHTS = "weights='edge_weights' picks by the weights of the graph's edges"
# What torch_geometric and DGL call options of samplers, and where these are here.
OTHERS_OPTIONS = {
    "num_neighbors": "its name here is fanouts, e.g. [15, 10]",
    "disjoint": "TreeSampler gives each seed a tree of its own",
    **dict.fromkeys(("time_attr", "temporal_strategy"), _TREES),
    **dict.fromkeys(("weight_attr", "prob"), _WEIGHTS),
}


class PickOptions(TypedDict, total=False):
    """Options of `FusedSampler`, `HopwiseSampler`, `CudaSampler` and `SubgraphSampler`, given by keyword.

    Other samplers take some of them, and say which. By default `seed` is 0, `weights` is None, `weight_tables` is True,
    `batch_dependency` is 1, `expand` is "all", and all others are False.

    These raise ValueError: `replace` with `top_k` or `labor`; `labor` with `weights`; `top_k` without `weights`;
    `weight_tables=False` without `weights`, or with `replace` or `top_k`; `layer_dependency` or a `batch_dependency`
    other than 1 without `labor`.

    Attributes:
        replace: pick with replacement, False by default. A node that has neighbors then gets `fanout` independent
            picks. A fanout of -1 still takes each neighbor once.
        edge_ids: return the ids of the sampled edges.
        seed: of all random choices, `0 <= seed < 2**64`.
        weights: "edge_weights" picks by the graph's edge weights; None picks uniformly. Without replacement, the
            probability of each pick is proportional to its weight among the neighbors that are not picked yet
            (successive sampling, the law of Efraimidis and Spirakis, IPL 2006). An edge of weight 0 is never picked,
            also not by fanout -1.
        weight_tables: with weights: pick from tables, which are made once from the weights of that time. They round
            weights to multiples of 2**-32 of the mean weight of their list, and at least to one of these: an edge 20
            million times lighter than the mean is picked by up to 1 % too often, one four billion times lighter twice
            as often, and one that is lighter still as if it had that weight (csrc/weights/cpu/tables.h). False: weights
            are not rounded; each mini-batch reads the weights of all entries of its lists, so changes in place take
            effect. This draws other random numbers and takes longer. A negative, infinite or NaN weight is then found
            by the mini-batch that reads it. Weights below 1e-290, of float64, are picked in the order of the list.
        top_k: take the heaviest `fanout` edges of each node, of equal ones the first. Nothing is random.
        labor: LABOR-0 (Balin and Catalyurek, "Layer-Neighbor Sampling", NeurIPS 2023). A node gets `fanout`
            neighbors on average. Each neighbor has one random number for all nodes that may pick it, so nodes
            pick common neighbors together, and a mini-batch has fewer nodes.
        layer_dependency: with labor: all hops use the same random numbers, which gives still fewer nodes.
        batch_dependency: with labor: a neighbor gets a new random number only once in this many consecutive
            mini-batches, so they have more nodes in common. With 1, all numbers are new in each mini-batch.
        expand: of a `HeteroGraph`: whose neighbors a hop picks. "all": those of all nodes so far, at every hop anew.
            "new": those of the nodes that the hop before found, so that each node is expanded once, as in
            torch_geometric.
    """

    replace: bool
    edge_ids: bool
    seed: int
    weights: str | None
    weight_tables: bool
    top_k: bool
    labor: bool
    layer_dependency: bool
    batch_dependency: int
    expand: str


class NeighborSampler(Sampler):
    """Base of the samplers of L-hop neighborhoods.

    For a `Graph` the samples are `MiniBatch` objects, for a `HeteroGraph` `HeteroMiniBatch` objects. The classes
    `SubgraphSampler` and `TreeSampler` say what theirs are.

    Args:
        fanouts: neighbors to pick for each node, one number per hop, from the seeds outward: 1 to 1024, or -1 for all
            neighbors. One number for all hops needs `num_hops`. For a `HeteroGraph` also a dict: edge type -> one
            number, or one per hop, where 0 picks none.
        num_hops: number of hops, 1 to 8; by default the number of `fanouts`.
        replace, edge_ids, seed, weights, weight_tables, top_k, labor, layer_dependency, batch_dependency, expand: see
            `PickOptions`.

    Attributes:
        relation_fanouts: of a `HeteroGraph`, edge type -> fanouts in hop order, or None: `fanouts` hold for each of
            them. Given by a dict as `fanouts`, see `resolve_relation_fanouts`; then `fanouts` has the widest.
        picks: the name of the file or library that defines how it picks; a part of the spec.
        picking: the options that decide how it picks.

    Raises:
        TypeError, ValueError: an option is out of range, or excludes another.
    """

    picks = ""
    resolve = staticmethod(resolve_fanouts)

    def __init__(
        self,
        fanouts: int | Sequence[int] | Mapping[Any, Any],
        num_hops: int | None = None,
        *,
        replace: bool = False,
        edge_ids: bool = False,
        seed: int = 0,
        weights: str | None = None,
        weight_tables: bool = True,
        top_k: bool = False,
        labor: bool = False,
        layer_dependency: bool = False,
        batch_dependency: int = 1,
        expand: str = "all",
    ) -> None:
        super().__init__()
        self.relation_fanouts: dict[EdgeType, tuple[int, ...]] | None = None
        if isinstance(fanouts, Mapping):
            self.relation_fanouts = resolve_relation_fanouts(fanouts, num_hops)
            self.fanouts: tuple[int, ...] = widest(self.relation_fanouts)
        else:
            self.fanouts = self.resolve(fanouts, num_hops)
        if expand not in EXPANDS:
            raise ValueError(f"expand is {shown(expand)}; it must be one of {list(EXPANDS)}")
        self.expand = expand
        self.num_hops = len(self.fanouts)
        self.picking = Picks.checked(
            replace=replace,
            weights=weights,
            weight_tables=weight_tables,
            top_k=top_k,
            labor=labor,
            layer_dependency=layer_dependency,
            batch_dependency=batch_dependency,
        )
        self.edge_ids = as_flag("edge_ids", edge_ids)
        self.seed = as_seed(seed)

    @property
    def replace(self) -> bool:
        return self.picking.replace

    def spec(self) -> dict[str, Any]:
        return {
            "picks": self.picks or type(self).__name__,
            "fanouts": self._fanouts_in_spec(),
            **self.picking.spec(),
            "edge_ids": self.edge_ids,
            "seed": self.seed,
            **({} if self.expand == "all" else {"expand": self.expand}),
        }

    @property
    def _reads(self) -> tuple[str, ...]:
        return () if self.picking.weights is None else (self.picking.weights,)

    def require_one_type(self) -> None:
        """Raises ValueError if options of the sampler are for graphs with types."""
        if self.relation_fanouts is not None:
            raise ValueError(
                "fanouts is given per edge type, but the graph has one type; give a list, e.g. [15, 10, 5]"
            )
        if self.expand != "all":
            raise ValueError(
                f"expand is {self.expand!r}, but the graph has one type; leave it out (loader.pyg expands so), or "
                "make a HeteroGraph of it"
            )

    def _fanouts_in_spec(self) -> Any:
        if self.relation_fanouts is None:
            return list(self.fanouts)
        return {"__".join(relation): list(fanouts) for relation, fanouts in self.relation_fanouts.items()}


def check_position(epoch: int, batch: int) -> None:
    """Raises TypeError or ValueError unless both are integers that count from 0."""
    if type(epoch) is int and type(batch) is int and 0 <= epoch < 2**64 and 0 <= batch < 2**64:
        return  # as a loader has them
    as_64_bits("epoch", epoch)
    as_64_bits("batch", batch)


def as_seeds(graph: AnyGraph, seeds: Tensor) -> Tensor:
    """`seeds` as a contiguous vector of the graph's node type; the core checks range and uniqueness. If the graph's
    lists were written to, they are checked again.

    The graph is square, see `require_square`: whoever opens a session checks that.
    """
    graph.require_sound()
    if not isinstance(seeds, Tensor):
        raise TypeError(f"seeds is {kind_of(seeds)}; it must be a tensor of node ids (torch.as_tensor)")
    if seeds.dim() != 1:
        raise ValueError(f"seeds has shape {list(seeds.shape)}; it must have 1 dimension")
    if seeds.layout != torch.strided:
        raise ValueError(f"seeds has the layout {seeds.layout}; it must be dense: .to_dense()")
    dtype = (graph.lists if isinstance(graph, HeteroGraph) else graph).indices.dtype
    if seeds.dtype == dtype:
        return seeds.contiguous()
    check_integers("seeds", seeds)
    if seeds.element_size() >= dtype.itemsize and seeds.numel():  # another type, so it may not fit
        seeds = signed("seeds", seeds)
        check_range("seeds", seeds, graph.num_nodes)
    return seeds.to(dtype).contiguous()

"""`WalkSampler`: random walks of the walkers of a mini-batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import Self

from loader import _core
from loader.graph import Graph, require_graph
from loader.machine.arguments import as_flag, as_seed, as_size, shown
from loader.machine.cpus import available_cpus
from loader.machine.devices import as_device
from loader.machine.gpu import cuda_device, require_cuda
from loader.samplers.base import Request, Sampler, Session, check_position
from loader.samplers.cpu import as_threads
from loader.samplers.picks import WEIGHTS
from loader.samplers.walk_frequencies import Frequencies, as_exponent
from loader.samplers.walk_law import edge_type, walk_law
from loader.samplers.walk_next import Next
from loader.samplers.walk_next.next import as_next
from loader.samplers.walked_graph import WalkedGraph
from loader.samples import Walks

if TYPE_CHECKING:
    from loader.samplers.gpu.walked_graph import CudaWalkedGraph


_MOST_NEGATIVES = 2**31 - 1
_SCHEDULES = ("auto", "sample", "transit")
_MOST_UNEVEN = 1024  # by weight there is no scan that would bound the tries of the second order


class WalkSampler(Sampler):
    """Random walks of `walk_length` steps, each from the start of a walker (csrc/walks/walk.h).

    A walker goes from a node to one of its listed neighbors. A `Graph` lists in-neighbors, so walks go against the
    direction of the edges. On `graph.reverse()` they go along it, as in DGL and PyG. On an undirected graph, which has
    each edge in both directions, this makes no difference.

    A walk ends at a node without neighbors; with a metapath, without neighbors by edges of the next type. The way
    of a walker is a pure function of `(graph, spec, epoch, batch)` and its row in the mini-batch. Walkers that start at
    one node, or meet, continue independently of each other.

    By default all neighbors are equally likely (DeepWalk: Perozzi et al., KDD 2014). Each of several parallel edges
    counts.

    Args:
        walk_length: steps, 0 to 2**24 - 1.
        p, q: node2vec's return and in-out parameters (Grover and Leskovec, KDD 2016), both greater than 0. A walker
            that came from t to v goes to x with a probability proportional to 1/p if x is t, to 1 if x is listed at t,
            and to 1/q otherwise. At the first step all neighbors are equally likely. The three weights are rounded to
            multiples of 2**-32 of the largest one. With p = q = 1 all neighbors are equally likely, and walks are as
            fast as without these options.
        stop: the walk ends before each step with this probability in [0, 1).
        restart: in place of a step, the walker goes back to its start with this probability in [0, 1) (random walk with
            restart: Tong et al., ICDM 2006). `stop` and `restart` are rounded to multiples of 2**-32; their sum must be
            at most 1.
        weights: "edge_weights": the probability of a neighbor is proportional to the weight of its edge. Weights are
            finite and at least 0, and an edge of weight 0 counts as absent. Weights are rounded to multiples of 2**-32
            of the mean weight of their list (csrc/weights/cpu/tables.h). With p and q the probabilities above are
            multiplied by the weights. Then the largest of 1/p, 1 and 1/q may be at most 1024 times the smallest.
        metapath: types of edges (`graph.edge_types`), one per step (metapath2vec: Dong et al., KDD 2017). After the
            last one, the first one follows again. At most 64 types. A type that no edge has ends all walks.
        next: a function of your own for the next node, instead of the laws above; see `loader.Next`. It goes with
            `weights` if it uses them, and not with `p`, `q`, `stop`, `restart`, `metapath` and `edge_ids`.
        num_negatives: random nodes per step of each walk, negative samples for skip-gram (Mikolov et al., NeurIPS
            2013). For graphs of fewer than 2**32 nodes.
        negative_exponent: a node is drawn in proportion to this power of its frequency, the number of edges whose
            lists have it (with `weights` their weight, with `metapath` those of its types): 0, 0.25, 0.5, 0.75 or 1.
            With 0 all nodes are equally likely. word2vec has 0.75, gensim calls it `ns_exponent`. Probabilities are
            rounded to multiples of about 2**-31, and at most 2**30 nodes may have edges.
        edge_ids: return the ids of the edges that were followed.
        seed: of all random choices, `0 <= seed < 2**64`.
        schedule: on a GPU: how it works through the steps (NextDoor: Jangda et al., EuroSys 2021). "sample": a thread
            per walker takes all steps. "transit": before each step, all walkers are ordered by the node that they
            stand on; for steps of the first order without metapath. "auto": `transit` for 200,000 walkers and more if
            the graph lies in pinned memory, else `sample`.
        device: where to walk: "cpu", a GPU, or "auto" for a GPU if this machine has one. The walks are the same on all.
            The graph must lie there; for a GPU it may also lie in pinned memory.
        num_threads: threads of a session on the CPU, 1 to 1024; by default one per processor. The walks do not depend
            on it. On a GPU it has no effect, so one configuration serves both.

    Raises:
        TypeError, ValueError: an argument is not as said above; the message says which.
        NoGpuError: a GPU was asked for, and there is none.
    """

    items = "walker"

    def __init__(
        self,
        walk_length: int,
        *,
        p: float = 1.0,
        q: float = 1.0,
        stop: float = 0.0,
        restart: float = 0.0,
        weights: str | None = None,
        metapath: Sequence[int] | None = None,
        next: Next | Callable[..., Any] | str | None = None,
        num_negatives: int = 0,
        negative_exponent: float = 0.0,
        edge_ids: bool = False,
        seed: int = 0,
        schedule: str = "auto",
        device: str | torch.device = "cpu",
        num_threads: int | None = None,
    ) -> None:
        super().__init__()
        self.walk_length = as_size("walk_length", walk_length, least=0)
        if self.walk_length > _core.max_walk_length:
            raise ValueError(f"walk_length is {walk_length}; it must be at most {_core.max_walk_length}")
        self.law = walk_law(p, q, stop, restart)
        self.p, self.q, self.stop, self.restart = float(p), float(q), float(stop), float(restart)
        self.weights = weights
        if weights is not None:
            self._check_weights()
        self.metapath = None if metapath is None else _path(metapath)
        self._check_metapath()
        self.num_negatives = as_size("num_negatives", num_negatives, least=0, most=_MOST_NEGATIVES)
        self.negative_exponent = as_exponent(negative_exponent)
        if self.negative_exponent and not self.num_negatives:
            raise ValueError(
                f"negative_exponent is {negative_exponent}, but num_negatives is 0; draw some, or leave it out"
            )
        self.edge_ids = as_flag("edge_ids", edge_ids)
        self.seed = as_seed(seed)
        self.num_threads = available_cpus() if num_threads is None else as_threads(num_threads)
        self.next = None if next is None else as_next(next)
        self._check_next()
        self._device = _device(device)
        self.schedule = schedule
        self._check_schedule()

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def asynchronous(self) -> bool:
        return self._device.type == "cuda"

    def _moved(self, device: torch.device) -> Self:
        return self._with(_device=device)

    def _check_weights(self) -> None:
        if not isinstance(self.weights, str) or self.weights not in WEIGHTS:
            raise ValueError(
                f"weights is {shown(self.weights)}; a graph's weights are named {' or '.join(map(repr, WEIGHTS))}"
            )
        accept = self.law.accept
        if accept is not None and (min(accept) + 1) * _MOST_UNEVEN < 2**32:
            raise ValueError(
                f"p and q are {self.p} and {self.q}; with weights the largest of 1/p, 1 and 1/q may be at most "
                f"{_MOST_UNEVEN} times the least"
            )

    def _check_metapath(self) -> None:
        if self.metapath is None:
            return
        if not 1 <= len(self.metapath) <= _core.max_metapath:
            raise ValueError(f"metapath has {len(self.metapath)} types; 1 to {_core.max_metapath} are possible")
        if self.law.accept is not None:
            raise ValueError(
                f"p and q are {self.p} and {self.q}; a metapath has no second order: with it both must be 1"
            )
        if self.weights is not None:
            raise ValueError(
                f"weights is {self.weights!r}; the steps of a metapath take all edges of a type alike: leave one of "
                "them out"
            )
        if self.restart:
            raise ValueError(
                f"restart is {self.restart}; with a metapath it must be 0, because the next type may not fit the "
                "start: use stop"
            )

    def _check_next(self) -> None:
        step = self.next
        if step is None:
            return
        for name, default in (("p", 1), ("q", 1), ("stop", 0), ("restart", 0), ("metapath", None), ("edge_ids", False)):
            if getattr(self, name) != default:
                why = "it returns nodes, not edges" if name == "edge_ids" else "it says itself where walkers go"
                raise ValueError(f"{name} is {getattr(self, name)!r}; it does not go with next: {why}")
        if step.weighs and self.weights is None:
            raise ValueError(f"{step!r} uses weights; name those of the graph: weights={WEIGHTS[0]!r}")
        if self.weights is not None and not step.weighs:
            raise ValueError(f"weights is {self.weights!r}, and {step!r} uses none; leave weights out")

    def _check_schedule(self) -> None:
        if self.schedule not in _SCHEDULES:
            raise ValueError(f"schedule is {shown(self.schedule)}; it must be one of {list(_SCHEDULES)}")
        if self.schedule == "auto":
            return
        if self._device.type == "cpu":
            raise ValueError(f"schedule is '{self.schedule}', but it walks on the CPU; leave it out, or device='cuda'")
        if self.schedule == "transit" and (self.law.accept is not None or self.metapath is not None or self.next):
            raise ValueError(
                "schedule is 'transit', which takes steps of the first order; leave p, q, metapath and next out"
            )

    def spec(self) -> dict[str, Any]:
        own: dict[str, Any] = {} if self.next is None else {"next": self.next.spec()}
        if self.negative_exponent:
            own["negative_exponent"] = self.negative_exponent
        return own | {
            "picks": "walk.h",  # of csrc/walks/, as the GPU's
            "walk_length": self.walk_length,
            "p": self.p,
            "q": self.q,
            "stop": self.stop,
            "restart": self.restart,
            "weights": self.weights,
            "metapath": self.metapath,
            "num_negatives": self.num_negatives,
            "edge_ids": self.edge_ids,
            "seed": self.seed,
        }

    @property
    def _reads(self) -> tuple[str, ...]:
        of_path = () if self.metapath is None else ("edge_types",)
        return of_path if self.weights is None else (*of_path, self.weights)

    def open(self, graph: Graph) -> Session:
        """A session for `graph`. If steps search in the lists (q other than 1), it checks once whether they are sorted,
        and keeps a sorted copy if they are not. For a metapath it makes lists by edge type.

        Raises:
            ValueError: the graph does not lie on the sampler's device, is bipartite, or has no types for the metapath,
                or no node has a frequency for `negative_exponent`.
            RuntimeError: the sampler was closed; `next` cannot be compiled here.
        """
        self.require_open()
        require_graph(graph, hetero=False)
        walked = walked_graph(self, graph)
        if self.next is not None:
            walked.prepare(self.next)
        frequencies = None
        if self.negative_exponent:
            weighted = self.weights is not None
            frequencies = Frequencies(graph, self.negative_exponent, weighted=weighted, metapath=self.metapath)
            frequencies.to(self.device)
        return WalkSession(self, walked, frequencies)

    def __repr__(self) -> str:
        spec = self.spec() | ({} if self.next is None else {"next": self.next})
        changed = {name: value for name, value in spec.items() if value and name not in ("picks", "walk_length")}
        rest = "".join(f", {name}={value!r}" for name, value in changed.items() if value != 1.0 or name not in "pq")
        return f"{type(self).__name__}({self.walk_length}{rest})"


class WalkSession(Session):
    """Walks on one graph. Any number of threads may call."""

    def __init__(
        self, sampler: WalkSampler, graph: WalkedGraph | CudaWalkedGraph, frequencies: Frequencies | None = None
    ) -> None:
        self._sampler, self._frequencies = sampler, frequencies
        self._graph: WalkedGraph | CudaWalkedGraph | None = graph

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], Walks]]:
        for request in group:
            check_position(request.epoch, request.batch)
        walks = [self._walk(request) for request in group]
        return [lambda sample=sample: sample for sample in walks]  # type: ignore[misc]

    def _walk(self, request: Request) -> Walks:
        graph, sampler = self._graph, self._sampler
        if graph is None:
            raise RuntimeError("this session was closed; open another one")
        key = _core.walk_key(sampler.seed, request.epoch, request.batch)
        nodes, edges = walk(graph, sampler, request.seeds, key)
        negatives = None
        if sampler.num_negatives:
            key = _core.negatives_key(sampler.seed, request.epoch, request.batch)
            count = sampler.num_negatives * sampler.walk_length
            negatives = graph.negatives(len(nodes), count, key, self._frequencies)
            negatives = negatives.view(len(nodes), sampler.num_negatives, sampler.walk_length)
        return Walks(nodes, edges, negatives, epoch=request.epoch, index=request.batch)

    def check(self) -> None:
        if self._graph is not None:
            self._graph.check()

    def close(self) -> None:
        self._graph = None


def walk(
    graph: WalkedGraph | CudaWalkedGraph, sampler: WalkSampler, starts: Tensor, key: int
) -> tuple[Tensor, Tensor | None]:
    """Nodes and, if the sampler wants them, edges of the walks from `starts`, by the sampler's law."""
    if sampler.next is not None:
        return graph.walk_by(starts, sampler.walk_length, sampler.next, key), None
    length, law = sampler.walk_length, sampler.law
    if isinstance(graph, WalkedGraph):
        return graph.walk(starts, length, law, key, edge_ids=sampler.edge_ids)
    return graph.walk(starts, length, law, key, edge_ids=sampler.edge_ids, schedule=sampler.schedule)


def searches(sampler: WalkSampler) -> bool:
    """Whether its walks search in lists."""
    return sampler.next.searches if sampler.next else sampler.law.searches(weighted=sampler.weights is not None)


def walked_graph(sampler: WalkSampler, graph: Graph) -> WalkedGraph | CudaWalkedGraph:
    """`graph`, prepared for the walks of `sampler`."""
    needs: dict[str, Any] = {
        "searches": searches(sampler),
        "weighted": sampler.weights is not None,
        "metapath": sampler.metapath,
        "num_threads": sampler.num_threads,
    }
    if sampler.device.type == "cuda":
        from loader.samplers.gpu.walked_graph import CudaWalkedGraph

        return CudaWalkedGraph(graph, sampler.device, **needs)
    return WalkedGraph(graph, **needs)


def _path(metapath: Sequence[int]) -> list[int]:
    if isinstance(metapath, str) or not isinstance(metapath, Iterable) or not getattr(metapath, "ndim", True):
        raise TypeError(f"metapath is {shown(metapath)}; it must be a list of integers, as graph.edge_types")
    return [edge_type(t) for t in metapath]


def _device(device: str | torch.device) -> torch.device:
    if isinstance(device, str) and device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if as_device(device).type == "cpu":
        return torch.device("cpu")
    require_cuda("a walk on a GPU")
    return cuda_device(device)

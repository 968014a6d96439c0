"""`WalkSampler`: random walks of each mini-batch's walkers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loader import _core
from loader.graph import Graph
from loader.items import as_seed, as_size
from loader.machine.cpus import available_cpus
from loader.samplers.base import Request, Sampler, Session, check_position
from loader.samplers.cpu import as_threads
from loader.samplers.walk_law import edge_type, walk_law
from loader.samplers.walked_graph import WalkedGraph
from loader.samples import Walks


class WalkSampler(Sampler):
    """Random walks (csrc/walks/walk.h); `walk_length` steps from the vertex where each walker starts.

    A walker goes from a vertex to one of the neighbours that the graph lists there. A `Graph` lists in-neighbours, so
    walks run against the direction of the edges; `graph.reverse()` is the graph on which they run along it, as those of
    DGL and PyG do. On an undirected graph, which has each edge both ways, it is the same.

    A walk ends at a vertex without neighbours (of the type whose turn it is). Which way a walker takes is a pure
    function of `(graph, spec, epoch, batch)` and its row in the mini-batch: walkers that start at the same vertex, or
    meet, go on independently of each other.

    By default each neighbour is as likely as the others (DeepWalk: Perozzi et al., KDD 2014). Parallel edges count each
    by itself.

    Args:
        walk_length: steps, 0 to 2**24 - 1.
        p, q: node2vec's return and in-out parameters (Grover and Leskovec, KDD 2016), both greater than 0. From the
            vertex t over v, a walker goes to x with a probability in proportion to 1/p if x is t, to 1 if x is listed
            at t, and to 1/q otherwise; the first step takes all neighbours alike. The three are rounded to 32 bits
            below the largest of them. With p = q = 1 all neighbours are alike, and nothing more is drawn or searched.
        stop: the walk ends before each step with this probability in [0, 1).
        restart: the walker goes back to where it started, in the place of a step, with this probability in [0, 1)
            (random walk with restart: Tong et al., ICDM 2006). Both are multiples of 2**-32, to the nearest of which
            they are rounded; together they must be at most 1.
        metapath: types of edges (`graph.edge_types`), in the order in which steps follow them (metapath2vec: Dong et
            al., KDD 2017); after the last one comes the first again. Up to 64.
        num_negatives: of each walk, vertices at random for each of its steps, all vertices alike: negative samples for
            skip-gram (Mikolov et al., NeurIPS 2013). For graphs of less than 2**32 vertices.
        edge_ids: return the ids of the edges that were followed.
        seed: of all random choices, `0 <= seed < 2**64`.
        num_threads: threads of a session, 1 to 1024; by default as many as there are processors. The walks do not
            depend on it.

    Raises:
        TypeError, ValueError: an argument is not as said above; the message says which.
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
        metapath: Sequence[int] | None = None,
        num_negatives: int = 0,
        edge_ids: bool = False,
        seed: int = 0,
        num_threads: int | None = None,
    ) -> None:
        super().__init__()
        self.walk_length = as_size("walk_length", walk_length, least=0)
        if self.walk_length > _core.max_walk_length:
            raise ValueError(f"walk_length is {walk_length}; it must be at most {_core.max_walk_length}")
        self.law = walk_law(p, q, stop, restart)
        self.p, self.q, self.stop, self.restart = float(p), float(q), float(stop), float(restart)
        self.metapath = None if metapath is None else [edge_type(t) for t in metapath]
        self._check_metapath()
        self.num_negatives = as_size("num_negatives", num_negatives, least=0)
        self.edge_ids = bool(edge_ids)
        self.seed = as_seed(seed)
        self.num_threads = min(available_cpus(), _core.max_threads) if num_threads is None else as_threads(num_threads)

    def _check_metapath(self) -> None:
        if self.metapath is None:
            return
        if not 1 <= len(self.metapath) <= _core.max_metapath:
            raise ValueError(f"metapath has {len(self.metapath)} types; 1 to {_core.max_metapath} are possible")
        if self.law.accept is not None:
            raise ValueError(f"p and q are {self.p} and {self.q}; a metapath has no second order: leave both at 1")
        if self.restart:
            raise ValueError(
                f"restart is {self.restart}; with a metapath a walker back at its start would be out of turn: use stop"
            )

    def spec(self) -> dict[str, Any]:
        return {
            "picks": "walk.h",  # of csrc/walks/, as the GPU's
            "walk_length": self.walk_length,
            "p": self.p,
            "q": self.q,
            "stop": self.stop,
            "restart": self.restart,
            "metapath": self.metapath,
            "num_negatives": self.num_negatives,
            "edge_ids": self.edge_ids,
            "seed": self.seed,
        }

    def open(self, graph: Graph) -> Session:
        """A session for `graph`. It checks once whether the lists are sorted if steps search in them (q other than 1)
        and keeps a sorted copy if they are not; for a metapath it makes the lists by type.

        Raises:
            ValueError: the graph does not lie on the CPU, is bipartite, or has no types for the metapath.
            RuntimeError: the sampler was closed.
        """
        self.require_open()
        return WalkSession(self, walked_graph(self, graph))

    def __repr__(self) -> str:
        changed = {name: value for name, value in self.spec().items() if value and name not in ("picks", "walk_length")}
        rest = "".join(f", {name}={value!r}" for name, value in changed.items() if value != 1.0 or name not in "pq")
        return f"{type(self).__name__}({self.walk_length}{rest})"


class WalkSession(Session):
    """Walks on one graph. Any number of threads may call."""

    def __init__(self, sampler: WalkSampler, graph: WalkedGraph) -> None:
        self._sampler = sampler
        self._graph: WalkedGraph | None = graph

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
        nodes, edges = graph.walk(request.seeds, sampler.walk_length, sampler.law, key, edge_ids=sampler.edge_ids)
        negatives = None
        if sampler.num_negatives:
            key = _core.negatives_key(sampler.seed, request.epoch, request.batch)
            count = sampler.num_negatives * sampler.walk_length
            negatives = graph.negatives(len(nodes), count, key)
            negatives = negatives.view(len(nodes), sampler.num_negatives, sampler.walk_length)
        return Walks(nodes, edges, negatives, epoch=request.epoch, index=request.batch)

    def close(self) -> None:
        self._graph = None


def walked_graph(sampler: WalkSampler, graph: Graph) -> WalkedGraph:
    """`graph`, made ready for the walks of `sampler`."""
    return WalkedGraph(graph, searches=sampler.law.searches, metapath=sampler.metapath, num_threads=sampler.num_threads)

"""The samplers of the C++ core: `HopwiseSampler`, `FusedSampler`, `FullSampler`."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loader import _core
from loader.graph import Graph, HeteroGraph, require_graph, require_square
from loader.machine.arguments import check_known
from loader.machine.cpus import as_threads, available_cpus
from loader.machine.mapped import is_mapped, prepare_random_reads
from loader.machine.pages import use_huge_pages
from loader.samplers.base import (
    OTHERS_OPTIONS,
    AnyGraph,
    NeighborSampler,
    PickOptions,
    Session,
    tell_ignored_times,
)
from loader.samplers.core_picks import core_picks
from loader.samplers.core_session import CoreSession
from loader.samplers.hetero import HeteroSession
from loader.samplers.relations import fanouts_by_relation, node_types_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

# A thread is given this many edges at a time, at least: below that, to share the work takes longer than to do it.
PART_EDGES = 2048

# A forked child shares its parent's memory; to put it on huge pages there would copy it.
_PROCESS = os.getpid()


class CoreSampler(NeighborSampler):
    """Base of the samplers in C++.

    Args:
        num_threads: threads of a session, 1 to 1024; by default one per processor. The samples do not depend on it.
        fanouts, num_hops, options: see `NeighborSampler`.

    Raises:
        TypeError: `num_threads` is no integer, or there is no such option.
        ValueError: `num_threads` is out of range.
    """

    picks = "pick.h"  # of csrc/sampler/, as the GPU's
    hetero_engine: type[Any]  # that samples graphs with types
    copies = False  # whether a node of such a graph may be a seed several times; each then picks by itself

    def __init__(
        self,
        fanouts: int | Sequence[int] | Mapping[Any, Any] = (),
        num_hops: int | None = None,
        *,
        num_threads: int | None = None,
        **options: Unpack[PickOptions],
    ) -> None:
        # Python would name the base class, and no way out.
        known = ["fanouts", "num_hops", "num_threads", *PickOptions.__annotations__]
        way = "it samples on the CPU; loader.samplers.fused(..., device=...) samples on either"
        check_known(type(self).__name__, options, known, {**OTHERS_OPTIONS, "device": way})
        super().__init__(fanouts, num_hops, **options)
        self.num_threads = available_cpus() if num_threads is None else as_threads(num_threads)

    @abstractmethod
    def _make_engine(self, graph: Graph, picks: Any) -> _core.FusedSampler | _core.HopwiseSampler:
        """The object of the extension that samples this graph. `picks`: see `core_picks`."""

    def open(self, graph: AnyGraph) -> Session:
        """A session for `graph`. It puts the graph's arrays on huge pages, in place. The first time this takes about
        one second per GiB.

        Arrays that are mapped from files stay there. The system is told that they are read at random, so that it reads
        only the pages of single picks. `FusedSampler` asks for these pages before it reads them.

        Picks by weight need tables, which are made here once per graph, from the weights of this time: see `Weighed`.

        Raises:
            ValueError: the graph is bipartite or not on the CPU, or its arrays contradict each other, or the weights
                are missing or invalid.
            TypeError: the types of its arrays contradict each other.
            RuntimeError: the sampler was closed.
        """
        self.require_open()
        require_graph(graph)
        if graph.device.type != "cpu":
            raise ValueError(
                f"{type(self).__name__} samples on the CPU but the graph lies on {graph.device}; use graph.to('cpu')"
            )
        tell_ignored_times(self, graph)
        if isinstance(graph, HeteroGraph):
            lists, picks = self._prepared(graph.lists)
            hetero = self._make_hetero_engine(graph, lists, picks)
            return HeteroSession(graph, lists, hetero, self, self.num_threads)
        self.require_one_type()
        require_square(graph, type(self).__name__)
        lists, picks = self._prepared(graph)
        return CoreSession(lists, self._make_engine(lists, picks), self, self.num_threads)

    def _make_hetero_engine(self, graph: HeteroGraph, lists: Graph, picks: Any) -> Any:
        """The object of the extension that samples these lists of the graph. `picks`: see `core_picks`."""
        options = {"copies": True} if self.copies else {}
        return self.hetero_engine(
            lists.indptr,
            lists.indices,
            fanouts=fanouts_by_relation(graph, self.fanouts, self.relation_fanouts),
            types=node_types_of(graph),
            once=self.expand == "new",
            replace=self.replace,
            edge_ids=self.edge_ids,
            num_threads=self.num_threads,
            part_edges=PART_EDGES,
            picks=picks,
            in_file=is_mapped(lists.indices),
            **options,
        )

    def _prepared(self, graph: Graph) -> tuple[Graph, Any]:
        """The lists to sample, and the core's object that says how."""
        lists, picks = core_picks(self, graph, self.num_threads)
        for array in (lists.indptr, lists.indices):
            if not prepare_random_reads(array) and os.getpid() == _PROCESS:
                use_huge_pages(array)
        return lists, picks

    def __repr__(self) -> str:
        return f"{type(self).__name__}(fanouts={list(self.fanouts)}, num_threads={self.num_threads})"


class HopwiseSampler(CoreSampler):
    """Samples hop by hop, with a barrier between hops. It is the specification that other samplers are compared
    with.
    """

    hetero_engine = _core.HeteroHopwiseSampler

    def _make_engine(self, graph: Graph, picks: Any) -> _core.HopwiseSampler:
        return _core.HopwiseSampler(
            graph.indptr, graph.indices, self.fanouts, self.replace, self.edge_ids, self.num_threads, PART_EDGES, picks
        )


class FusedSampler(CoreSampler):
    """Samples all hops in one call. Threads share the work in small parts.

    Gives the same bytes as `HopwiseSampler`, with any number of threads. A workspace takes 1 byte per node of the
    graph with up to 3 hops (1.5 with up to 6, 2.5 with 8), and about 10 bytes per edge of the largest mini-batch so
    far. A session makes a workspace for all threads together when it first needs it, and one per thread when it first
    samples a group.

    Of a graph that is mapped from files, the pages that a few hundred picks need are asked for together, before they
    are read, so that the disk works on many at a time.
    """

    hetero_engine = _core.HeteroFusedSampler

    def _make_engine(self, graph: Graph, picks: Any) -> _core.FusedSampler:
        return _core.FusedSampler(
            graph.indptr,
            graph.indices,
            self.fanouts,
            self.replace,
            self.edge_ids,
            self.num_threads,
            PART_EDGES,
            picks,
            is_mapped(graph.indices),
        )


class FullSampler(FusedSampler):
    """Takes all neighbors at every hop.

    Args:
        num_hops: number of hops.
        edge_ids, num_threads: see `CoreSampler`.
    """

    def __init__(self, num_hops: int, *, edge_ids: bool = False, num_threads: int | None = None) -> None:
        super().__init__(-1, num_hops, edge_ids=edge_ids, num_threads=num_threads)

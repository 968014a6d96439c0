"""A graph made ready to be walked on, by CPU threads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph, require_square
from loader.machine.forks import ForkSafeLock
from loader.machine.mapped import watch
from loader.machine.pages import use_huge_pages
from loader.samplers.base import as_seeds
from loader.samplers.walk_frequencies import Frequencies
from loader.samplers.walk_law import WalkLaw
from loader.samplers.walk_lists import copies_of, metapath_lists, sorted_lists, weighted_lists
from loader.samplers.walk_next import Next
from loader.samplers.walk_next.walking import integer_weights, walk

# Once walks that search have as many steps as this share of the edges, a filter of the edges is made. It answers most
# searches by one read, and to make it takes about as long as to search that often.
SIFTS_FROM = 0.25


class WalkedGraph:
    """The arrays that walks read, and the threads that walk. Any number of threads may call; they take turns.

    Walks that search get a filter of the edges, one byte an edge (csrc/walks/edge_filter.h), as soon as they have been
    many. It changes no walk.

    Args:
        graph: square, on the CPU. Its arrays are put on huge pages, in place.
        searches: walks search in the lists (`WalkLaw.searches`), so they are kept in ascending order, too: a copy, if
            the graph's are not. Walks of the second order follow these.
        weighted: walks go by the weights of the edges. Their tables take 16 bytes an edge (24 if nodes are int64),
            and another 16 while they are made.
        metapath: types of edges, or None.
        num_threads: of the session.

    Raises:
        ValueError: the graph lies elsewhere, is bipartite, or has no types for the metapath or no sound weights.
    """

    def __init__(
        self, graph: Graph, *, searches: bool, weighted: bool, metapath: Sequence[int] | None, num_threads: int
    ) -> None:
        require_square(graph, "a random walk")
        if graph.device.type != "cpu" or graph.indptr.device.type != "cpu":
            raise ValueError(
                f"walks on the CPU need a graph there; this one lies on {graph.device}; use graph.to('cpu')"
            )
        cells = None
        if weighted:
            graph, cells = weighted_lists(graph, num_threads)
        self._graph = graph
        indptr, indices, self._places = graph.indptr, graph.indices, None
        self._path: list[int] = []
        groups = 0
        if metapath is not None:
            indptr, indices, self._places, self._path, groups = metapath_lists(graph, metapath)
        self.sorted: Tensor | None = None
        self._order: Tensor | None = None
        if searches:
            self.sorted, self._order = sorted_lists(graph)
        self._weighted = weighted
        self._copies: tuple[Tensor, Tensor] | None = None  # see copies_of
        self._looked = False
        for array in (indptr, indices, self.sorted, cells):
            if array is not None:
                watch(array)
                use_huge_pages(array)
        self._engine = _core.WalkEngine(indptr, indices, self.sorted, cells, groups, num_threads)
        self._filter: Tensor | None = None
        self._weights: Tensor | None = None  # as integers
        self._searched = 0  # steps
        self._lock = ForkSafeLock()

    def walk(
        self, starts: Tensor, length: int, law: WalkLaw, key: int, *, edge_ids: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Nodes `[n, length + 1]` and, if wanted, ids of edges `[n, length]`, of walkers at `starts` `[n]`.

        Raises:
            TypeError, ValueError: `starts` are no nodes of the graph.
        """
        graph = self._graph
        starts = as_seeds(graph, starts)
        if law.sifts:
            self._count(len(starts) * length)
        follows_sorted = law.accept is not None and not self._weighted
        if follows_sorted:
            self._find_copies()
        nodes = torch.empty(len(starts), length + 1, dtype=starts.dtype)
        places = torch.empty(len(starts), length, dtype=graph.indptr.dtype) if edge_ids else None
        accept = law.acceptance(weighted=self._weighted)
        coins = law.stop_below, law.home_below
        self._engine.walk(starts, 0, key, length, *coins, accept, self._path, nodes, places)
        order = self._order if follows_sorted else self._places
        return nodes, None if places is None else named(places, order, graph.edge_ids)

    def prepare(self, step: Next) -> None:
        """Compiles `step` and makes what it reads, so that what is missing is told before the first walk."""
        if "weight" in step.uses:
            with self._lock:
                if self._weights is None:
                    self._weights = integer_weights(self._graph)
        if step.compiled:
            step.cpu_function(self._graph.indptr.dtype, self._graph.indices.dtype)

    def walk_by(self, starts: Tensor, length: int, step: Next, key: int) -> Tensor:
        """Nodes `[n, length + 1]` of walkers at `starts` `[n]`, by `step`, which was prepared.

        Raises:
            TypeError, ValueError: `starts` are no nodes of the graph.
            NextError: `step` did what it may not do.
        """
        starts = as_seeds(self._graph, starts)
        if step.searches:
            self._count(len(starts) * length)
        weights = self._weights if "weight" in step.uses else None
        return walk(self._engine, self._graph, weights, step, starts, length, key)

    def check(self, *, wait: bool = False) -> None:
        """Nothing: `walk` has said all."""

    def negatives(self, walkers: int, count: int, key: int, frequencies: Frequencies | None = None) -> Tensor:
        """`[walkers, count]` nodes at random, of the type of the graph's; all alike, or by `frequencies`."""
        out = torch.empty(walkers, count, dtype=self._graph.indices.dtype)
        bound = self._graph.num_nodes if frequencies is None else frequencies.num_places
        self._engine.negatives(0, key, walkers, count, bound, out)
        return out if frequencies is None else frequencies.nodes(out)

    def _find_copies(self) -> None:
        """Tells the engine, once, how often lists have a node."""
        with self._lock:
            if not self._looked and self.sorted is not None:
                self._copies = copies_of(self._graph, self.sorted)
                if self._copies is not None:
                    self._engine.set_copies(*self._copies)
                self._looked = True

    def _count(self, steps: int) -> None:
        """Makes the filter when it pays."""
        with self._lock:
            self._searched += steps
            if self._filter is None and self._searched > SIFTS_FROM * self._graph.num_edges:
                words = torch.zeros(_core.filter_words(self._graph.num_edges), dtype=torch.int64)
                use_huge_pages(words)
                self._engine.sift_by(words)
                self._filter = words  # whose address the engine has


def named(places: Tensor, *names: Tensor | None) -> Tensor:
    """`places` by the names that they have in each list of names in turn; -1 stays."""
    for table in names:
        if table is not None:
            if table.numel() == 0:
                return places.to(table.dtype)  # of no edges: all are -1
            places = torch.where(places >= 0, table[places.clamp(min=0).long()], -1)
    return places

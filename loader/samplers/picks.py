"""How neighbors are picked, if not uniformly: by the weights of the edges, or by LABOR."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.graph.checks import check_weights
from loader.machine.arguments import as_flag, as_size, shown
from loader.machine.forks import ForkSafeLock
from loader.machine.gpu import wait_for_made
from loader.machine.memo import version_of

WEIGHTS = ("edge_weights",)  # names of what a graph may weigh its edges by

_lock = ForkSafeLock()
_made: weakref.WeakKeyDictionary[Graph, Weighed] = weakref.WeakKeyDictionary()


class Picks(NamedTuple):
    """The options that decide how neighbors are picked, see `PickOptions`."""

    replace: bool = False
    weights: str | None = None
    weight_tables: bool = True
    top_k: bool = False
    labor: bool = False
    layer_dependency: bool = False
    batch_dependency: int = 1

    @classmethod
    def checked(cls, **options: Any) -> Picks:
        """Raises TypeError or ValueError if an option is out of range, or excludes another."""
        dependency = options.pop("batch_dependency")
        period = as_size("batch_dependency", dependency, most=2**32 - 1)
        weights = options.pop("weights")
        flags = {name: as_flag(name, on) for name, on in options.items()}
        picks = cls(weights=weights, batch_dependency=period, **flags)
        if weights is not None and not isinstance(weights, str):
            raise TypeError(f"weights is {shown(weights)}; it must be the name of a graph's weights, {_names()}")
        if weights is not None and weights not in WEIGHTS:
            raise ValueError(f"weights is {weights!r}; a graph's weights are named {_names()}")
        if not picks.weight_tables and (weights is None or picks.replace or picks.top_k):
            raise ValueError(
                "weight_tables=False picks by weight without replacement: it needs "
                f"weights={_names()}, and neither replace nor top_k"
            )
        if picks.top_k and weights is None:
            raise ValueError(f"top_k=True picks the heaviest edges, so it needs weights={_names()}")
        if picks.replace and (picks.top_k or picks.labor):
            raise ValueError(
                f"replace=True does not go with {'top_k' if picks.top_k else 'labor'}=True, which picks an edge once; "
                "leave one of them out"
            )
        if picks.labor and weights is not None:
            raise ValueError("labor=True picks uniformly; leave weights out (null)")
        if not picks.labor and (picks.layer_dependency or period != 1):
            name = "layer_dependency" if picks.layer_dependency else "batch_dependency"
            raise ValueError(f"{name} says how LABOR picks; it needs labor=True")
        return picks

    @property
    def scans(self) -> bool:
        """Whether only a look at the whole list tells which of it are picked."""
        return self.labor or not self.weight_tables

    def spec(self) -> dict[str, Any]:
        """`replace`, and all options that are not the default."""
        return {"replace": self.replace} | {
            name: value for name, value in self._asdict().items() if value != self._field_defaults[name]
        }


class Weighed:
    """The edges of a graph that have a weight above 0, and tables to pick them by.

    Tables are made on the CPU at their first use, and lie where the graph's `indices` lie. A table to pick by weight
    takes 16 bytes per edge, one for the heaviest edges 4 bytes per edge.

    Raises:
        ValueError: the graph has no weights, or one that is negative, infinite or NaN; its edge is named.
    """

    def __init__(self, graph: Graph) -> None:
        weights = graph.edge_weights
        assert weights is not None
        check_weights(weights, graph.indices, graph.indptr)
        self.of = _state_of(graph, weights)
        # No reference to the graph itself: this lives as long as the graph.
        self._rest = _graph_without_zeros(graph, weights)
        wait_for_made(weights.device)
        known = graph if self._rest is None else self._rest
        assert known.edge_weights is not None
        self._indptr, self._indices, self._weights = known.indptr, known.indices, known.edge_weights
        self._lock = ForkSafeLock()
        self._tables: tuple[Tensor, Tensor] | None = None
        self._order: Tensor | None = None

    def part_of(self, graph: Graph) -> Graph:
        """The graph without its edges of weight 0, with the `edge_ids` of the whole graph; or `graph` if no weight is
        0.
        """
        return graph if self._rest is None else self._rest

    def tables(self, num_threads: int) -> tuple[Tensor, Tensor]:
        """`cells` and `ends`, `[num_edges]` int64 each, as csrc/sampler/weighted.h has them."""
        with self._lock:
            if self._tables is None:
                lists = WeighedLists(self._indptr, self._indices, self._weights, None)
                cells, ends = lists.tables(num_threads)
                self._tables = self._placed(cells), self._placed(ends)
            return self._tables

    def order(self, num_threads: int) -> Tensor:
        """`[num_edges]` int32: places in each list, from the heaviest edge to the lightest."""
        with self._lock:
            if self._order is None:
                order = torch.empty(self._weights.numel(), dtype=torch.int32)
                _core.order_by_weight(self._indptr.cpu(), self._weights.cpu(), order, num_threads)
                self._order = self._placed(order)
            return self._order

    def _placed(self, table: Tensor) -> Tensor:
        if self._indices.device.type == "cpu":
            return table.pin_memory() if self._indices.is_pinned() else table
        return table.to(self._indices.device)


def weighed(graph: Graph, who: str) -> Weighed:
    """The `Weighed` of a graph. It is made once for all samplers of the graph, and again after the weights or the lists
    have changed.

    Args:
        who: who asks, as in "FusedSampler".

    Raises:
        ValueError: see `Weighed`.
    """
    weights = weights_of(graph, who)
    with _lock:
        made = _made.get(graph)
        if made is None or made.of != _state_of(graph, weights):
            made = _made[graph] = Weighed(graph)
        return made


def _state_of(graph: Graph, weights: Tensor) -> tuple[int, ...]:
    """Numbers that change with the weights, and with the lists that they are of."""
    return *graph.state(), version_of(weights)


def weights_of(graph: Graph, who: str) -> Tensor:
    """The graph's weights of edges; raises ValueError if it has none."""
    if graph.edge_weights is None:
        raise ValueError(
            f"{who} picks by the weights of the edges, but the graph has none; give them to it: "
            "Graph(..., edge_weights=weights); in a .npz file that is the array edge_weights, "
            "of tables dataset.weight=COLUMN"
        )
    return graph.edge_weights


Keys = tuple[int, int, int]


def batch_keys(picks: Picks, seed: int, epoch: int, batch: int) -> Keys:
    """The key of a mini-batch's picks, the next key and the phase, as csrc/sampler/choice.h defines them."""
    period = picks.batch_dependency
    if period == 1:
        return _core.batch_key(seed, epoch, batch), 0, 0
    turn, phase = divmod(batch, period)
    return _core.batch_key(seed, epoch, turn), _core.batch_key(seed, epoch, turn + 1), phase


class WeighedLists(NamedTuple):
    """The edges of a weight above 0, in the lists that they had."""

    indptr: Tensor  # [num_nodes + 1], of the type it had, as indices
    indices: Tensor  # [kept]
    weights: Tensor  # [kept]
    places: Tensor | None  # [kept], where they were; None where no weight is 0

    def tables(self, num_threads: int) -> tuple[Tensor, Tensor]:
        """`cells` and `ends`, `[kept]` int64 each, on the CPU, as csrc/sampler/weighted.h has them."""
        cells, ends = (torch.empty(self.weights.numel(), dtype=torch.int64) for _ in range(2))
        _core.make_weight_tables(self.indptr.cpu(), self.weights.cpu(), cells, ends, num_threads)
        return cells, ends


def without_zeros(indptr: Tensor, indices: Tensor, weights: Tensor) -> WeighedLists:
    """The lists without the edges of weight 0. The weights were checked."""
    positive = _positive(weights)
    if bool(positive.all()):
        return WeighedLists(indptr, indices, weights, None)
    places = positive.nonzero().view(-1)
    before = torch.zeros(positive.numel() + 1, dtype=indptr.dtype, device=weights.device)
    torch.cumsum(positive, 0, dtype=indptr.dtype, out=before[1:])
    return WeighedLists(before[indptr.long()], indices[places], weights[places], places)


def _positive(weights: Tensor) -> Tensor:
    """Which of the weights, which are at least 0, are above it; subnormal ones are, also if torch takes them as zeros
    (`torch.set_flush_denormal`).
    """
    if not weights.is_floating_point():
        return weights > 0
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[weights.element_size()]
    return weights.detach().view(bits) > 0


def _graph_without_zeros(graph: Graph, weights: Tensor) -> Graph | None:
    """The graph without its edges of weight 0; None where there are none."""
    lists = without_zeros(graph.indptr, graph.indices, weights)
    if lists.places is None:
        return None
    ids = lists.places.to(graph.indptr.dtype) if graph.edge_ids is None else graph.edge_ids[lists.places]
    rest = Graph(
        lists.indptr,
        lists.indices,
        edge_ids=ids,
        edge_weights=lists.weights,
        num_src=graph.num_src,
        validate=False,
    )
    # A graph takes the narrowest types that do; a sampler's have to be those of the whole graph.
    rest.indptr, rest.indices = rest.indptr.to(graph.indptr.dtype), rest.indices.to(graph.indices.dtype)
    return rest.pin_memory() if graph.indices.is_pinned() else rest


def _names() -> str:
    return " or ".join(repr(name) for name in WEIGHTS)

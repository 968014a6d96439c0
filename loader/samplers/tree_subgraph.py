"""Trees as torch_geometric samples them: subgraphs in which each seed has a part of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from loader.graph import Graph, HeteroGraph, require_square
from loader.samplers.base import AnyGraph, Request, Session
from loader.samplers.trees import TreeSampler
from loader.samples import HeteroSubgraph, Subgraph, bidirectional, hetero_subgraph_of, subgraph_of_one
from loader.samples.trees import TreeMiniBatch

EDGES = ("node", "to", "node")  # the relation of a graph with one type


class TreeSubgraphSampler(TreeSampler):
    """The trees of `TreeSampler`, as `HeteroSubgraph` objects or, of a `Graph`, as `Subgraph` objects.

    Of a `Graph`, fanouts are by the edge type ("node", "to", "node").

    Args:
        both: add the reverses of the edges to a `Subgraph`, see `bidirectional`.
        args, options: see `TreeSampler`.
    """

    def __init__(self, *args: Any, both: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self.both = both

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), **({"subgraph_type": "bidirectional"} if self.both else {})}

    def as_hetero(self, graph: AnyGraph) -> HeteroGraph:
        """See `TreeSampler.typed`; a `Graph` gets a name for its nodes, and one for its edges."""
        if not isinstance(graph, Graph):
            return super().as_hetero(graph)
        require_square(graph, type(self).__name__)
        return HeteroGraph(graph, {EDGES[0]: graph.num_nodes}, [EDGES])

    def shaped(self, sample: TreeMiniBatch, graph: AnyGraph) -> HeteroSubgraph | Subgraph:
        shaped = hetero_subgraph_of(sample)
        if not isinstance(graph, Graph):
            return shaped
        one = subgraph_of_one(shaped)
        return bidirectional(one) if self.both else one

    def open(self, graph: AnyGraph) -> Session:
        return _Subgraphs(self.open_trees(self.as_hetero(graph)), partial(self.shaped, graph=graph))


class _Subgraphs(Session):
    def __init__(self, session: Session, shaped: Callable[[TreeMiniBatch], Any]) -> None:
        self._session, self._shaped = session, shaped
        self.together, self._samples_of = session.together, session._samples_of

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], Any]]:
        begun = self._session.begin(group, ahead=ahead)
        return [partial(self._finish, finish, request) for finish, request in zip(begun, group, strict=True)]

    def _finish(self, finish: Callable[[], Any], request: Request) -> HeteroSubgraph | Subgraph:
        shaped: HeteroSubgraph | Subgraph = self._shaped(finish()).replace(positions=request.numbers)
        return shaped

    def check(self) -> None:
        self._session.check()

    def close(self) -> None:
        self._session.close()

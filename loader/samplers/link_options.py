"""The options of samplers of links."""

from __future__ import annotations

from typing import Any

import torch
from typing_extensions import Self

from loader.datasets.digests import digest_of
from loader.graph import EdgeType, HeteroGraph, require_graph
from loader.graph.relations import reversed_type
from loader.machine.arguments import as_seed, shown
from loader.samplers.base import AnyGraph, Sampler
from loader.samplers.hetero_links import HeteroLinkEnds
from loader.samplers.link_ends import LinkEnds
from loader.samplers.negatives import Negatives
from loader.samplers.relations import edge_type_of
from loader.samplers.trees import TreeSampler

EXCLUDE = ("none", "self", "reverse")


class LinkOptions(Sampler):
    """The options of a `LinkSampler`, which sessions read."""

    items = "edge"

    def __init__(
        self,
        sampler: Sampler,
        negatives: Negatives | None = None,
        *,
        exclude: str = "none",
        seed: int | None = None,
        known: AnyGraph | None = None,
        edge_type: EdgeType | str | None = None,
        reverse: EdgeType | str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(sampler, Sampler) or sampler.items != "node":
            raise TypeError(f"sampler is {shown(sampler)}; it must be a Sampler that takes nodes, as FusedSampler")
        if sampler.in_trees and not isinstance(sampler, TreeSampler):
            raise TypeError(f"sampler is {shown(sampler)}; of those that sample in trees it must be a TreeSampler")
        if negatives is not None and not isinstance(negatives, Negatives):
            raise TypeError(
                f"negatives is {shown(negatives)}; it must be a loader.samplers.Negatives, e.g. Negatives('binary', 1)"
            )
        if not isinstance(exclude, str) or exclude not in EXCLUDE:
            raise ValueError(f"exclude is {shown(exclude)}; it must be one of {', '.join(EXCLUDE)}")
        if exclude == "self" and edge_type is None and sampler.spec().get("subgraph_type") == "bidirectional":
            raise ValueError(
                "exclude is 'self', and the sampler's subgraphs are 'bidirectional': they have the reverses of all "
                "edges, so a link is seen in the opposite direction; give exclude='reverse', or "
                "subgraph_type='directional'"
            )
        if known is not None:
            require_graph(known, "known")
        if known is not None and (negatives is None or not negatives.strict):
            raise ValueError(
                "known is of use for strict negatives only; give Negatives(strict=True), or leave known out"
            )
        self.edge_type = None if edge_type is None else edge_type_of("edge_type is", edge_type)
        self.reverse = None if reverse is None else edge_type_of("reverse is", reverse)
        self._check_reverse(exclude)
        self.around, self.negatives, self.exclude, self.known = sampler, negatives, exclude, known
        self.seed = as_seed(getattr(sampler, "seed", 0) if seed is None else seed)
        self.num_hops, self.edge_ids = sampler.num_hops, sampler.edge_ids

    @property
    def device(self) -> torch.device:
        return self.around.device

    def on(self, device: torch.device) -> Self:
        around = self.around.on(device)
        return self if around is self.around else self._with(around=around)

    def spec(self) -> dict[str, Any]:
        drawn = self.negatives
        return {
            **{f"around.{name}": value for name, value in self.around.spec().items()},
            "negatives": None if drawn is None else [drawn.mode, drawn.num_negatives, drawn.strict],
            **({} if drawn is None else {w.name: w.digest for w in drawn.weights if w is not None}),
            "exclude": self.exclude,
            "seed": self.seed,
            "known": None if self.known is None else [self.known.num_nodes, self.known.num_edges],
            **({} if self.edge_type is None else {"edge_type": "__".join(self.edge_type)}),
            **({} if self.reverse is None else {"reverse": "__".join(self.reverse)}),
        }

    def digests(self, graph: AnyGraph) -> dict[str, str]:
        found = self.around.digests(graph)
        if self.known is None:
            return found
        lists = self.known.lists if isinstance(self.known, HeteroGraph) else self.known
        return {**found, "the edges of known": digest_of(lists.indptr, lists.indices)}

    def ends(self, graph: AnyGraph) -> LinkEnds:
        """What links of the graph join.

        Raises:
            ValueError: the graph is bipartite; it has no such relation, or no types; `known` has other nodes.
        """
        require_graph(graph)
        if isinstance(self.around, TreeSampler):
            self.around.as_hetero(graph)  # says what is wrong
        if isinstance(graph, HeteroGraph):
            ends: LinkEnds = HeteroLinkEnds(graph, self.edge_type, self.reverse)
        elif self.edge_type is not None:
            raise ValueError(f"edge_type is {self.edge_type}, but the graph has one type; leave it out")
        else:
            ends = LinkEnds(graph)
        if self.known is not None:
            self.known.require_sound()
            ends.require_known(self.known, graph)
        if self.negatives is not None:
            for weights, ids in zip(self.negatives.weights, (ends.sources, ends.targets), strict=True):
                if weights is not None and len(weights) != len(ids):
                    raise ValueError(f"{weights.name} has {len(weights)} entries, for {len(ids)} nodes; give one each")
        return ends

    @property
    def timed(self) -> bool:  # type: ignore[override]
        """Whether links have times, by which the trees of their ends are sampled."""
        return self.around.timed

    @property
    def in_trees(self) -> bool:  # type: ignore[override]
        """Whether each end of each link has a tree of its own."""
        return self.around.in_trees

    def _check_reverse(self, exclude: str) -> None:
        edge_type, reverse = self.edge_type, self.reverse
        if reverse is None:
            if edge_type is not None and exclude == "reverse":
                raise ValueError(
                    f"exclude is 'reverse', and edge_type {edge_type}: name the relation that has the links' reverses, "
                    f"e.g. reverse={reversed_type(edge_type)}, or take exclude='self'"
                )
            return
        if edge_type is None or exclude != "reverse":
            lacks = "edge_type" if edge_type is None else "exclude='reverse'"
            raise ValueError(f"reverse is {reverse}, which is of use with {lacks} only; give that, or leave it out")
        if (reverse[0], reverse[2]) != (edge_type[2], edge_type[0]):
            raise ValueError(
                f"reverse is {reverse}, and edge_type {edge_type}; it must go the other way, from {edge_type[2]!r} to "
                f"{edge_type[0]!r}"
            )

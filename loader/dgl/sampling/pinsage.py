"""`dgl.sampling.RandomWalkNeighborSampler` and `PinSAGESampler`: neighbors that walks visit most often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from loader.dgl.original_dgl import dgl
from loader.dgl.sampling.frontier import nodes_of, refusing_as_dgl, require_graph
from loader.dgl.sampling.walks import path_of, random_walk
from loader.machine.arguments import as_number, as_size, shown


class RandomWalkNeighborSampler:
    """`dgl.sampling.RandomWalkNeighborSampler`: for each node the nodes of its type that walks from it visit most.

    Args:
        G: the graph.
        num_traversals: how often a walk goes through the metapath, at most.
        termination_prob: a walk ends with this probability before it goes through it again, in [0, 1].
        num_random_walks: walks from each node.
        num_neighbors: visited nodes that are selected for each node, at most. Of those visited equally often, these
            with the highest ids.
        metapath: edge types that lead back to the node type they begin at; None: one step of the only edge type.
        weight_column: name of the numbers of visits in the `edata` of the graph that a call returns.

    Raises:
        TypeError, ValueError: an argument is not as said above. The latter is a `dgl.DGLError`, too.
    """

    @refusing_as_dgl
    def __init__(
        self,
        G: Any,
        num_traversals: int,
        termination_prob: float,
        num_random_walks: int,
        num_neighbors: int,
        metapath: Sequence[Any] | None = None,
        weight_column: str = "weights",
    ) -> None:
        require_graph(G)
        if metapath is None:
            if len(G.canonical_etypes) != 1:
                raise ValueError(f"metapath is None, but the graph has the edge types {G.canonical_etypes}; give one")
            metapath = G.canonical_etypes
        path = path_of(G, metapath)
        if path[0][0] != path[-1][2]:
            raise ValueError(
                f"metapath begins at {path[0][0]!r} and ends at {path[-1][2]!r}; it must end at the type it begins at"
            )
        if not 0 <= as_number("termination_prob", termination_prob) <= 1:
            raise ValueError(f"termination_prob is {termination_prob}; it must be in [0, 1]")
        self.G, self.ntype, self.weight_column = G, path[0][0], weight_column
        self.num_traversals = as_size("num_traversals", num_traversals)
        self.num_random_walks = as_size("num_random_walks", num_random_walks)
        self.num_neighbors = as_size("num_neighbors", num_neighbors)
        self.metapath, self.metapath_hops = path, len(path)
        self.full_metapath = path * self.num_traversals
        self.restart_prob = torch.zeros(len(self.full_metapath), dtype=torch.float32)
        self.restart_prob[self.metapath_hops :: self.metapath_hops] = termination_prob

    @refusing_as_dgl
    def __call__(self, seed_nodes: Any) -> Any:
        """The graph of all nodes of the type, with edges from the selected nodes to `seed_nodes`, `[n]`."""
        seeds = nodes_of(self.G, "seed_nodes", seed_nodes, self.ntype)
        starts = seeds.repeat_interleave(self.num_random_walks)
        traces, _ = random_walk(self.G, starts, metapath=self.full_metapath, restart_prob=self.restart_prob)
        visits = traces[:, self.metapath_hops :: self.metapath_hops].reshape(len(seeds), -1)
        rows, visited, counts = most_visited(visits, self.num_neighbors)
        name = self.ntype
        made = dgl().heterograph(
            {(name, "_E", name): (visited, seeds.to(visited.dtype)[rows])},
            {name: self.G.num_nodes(name)},
            idtype=self.G.idtype,
        )
        made.edata[self.weight_column] = counts.to(self.G.idtype)
        return made


class PinSAGESampler(RandomWalkNeighborSampler):
    """`dgl.sampling.PinSAGESampler`: neighbors by walks to another node type and back.

    See Ying et al., "Graph Convolutional Neural Networks for Web-Scale Recommender Systems", KDD 2018.

    Args:
        ntype: node type whose nodes get neighbors.
        other_type: node type that walks go to and come back from, by the first edge types that lead there and back.
        G, num_traversals, termination_prob, num_random_walks, num_neighbors, weight_column: see
            `RandomWalkNeighborSampler`.

    Raises:
        TypeError, ValueError: an argument is not as said above. The latter is a `dgl.DGLError`, too.
    """

    @refusing_as_dgl
    def __init__(
        self,
        G: Any,
        ntype: str,
        other_type: str,
        num_traversals: int,
        termination_prob: float,
        num_random_walks: int,
        num_neighbors: int,
        weight_column: str = "weights",
    ) -> None:
        require_graph(G)
        path = []
        for ends in ((ntype, other_type), (other_type, ntype)):
            found = [key for key in G.canonical_etypes if (key[0], key[2]) == ends]
            if not found:
                raise ValueError(
                    f"no edge type leads from {shown(ends[0])} to {shown(ends[1])}; the graph has {G.canonical_etypes}"
                )
            path.append(found[0])
        super().__init__(
            G, num_traversals, termination_prob, num_random_walks, num_neighbors, path, weight_column=weight_column
        )


def most_visited(visits: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """The nodes that each row has most often, the most frequent first; of equally frequent ones the highest first.

    Args:
        visits: `[n, m]` nodes, -1 for none.
        most: of each row.

    Returns:
        Rows, nodes and how often the row has the node, `[k]` each.
    """
    nodes = visits.reshape(-1)
    rows = torch.arange(len(visits), device=visits.device).repeat_interleave(visits.shape[1])[nodes >= 0]
    nodes = nodes[nodes >= 0].long()
    size = int(nodes.max()) + 1 if len(nodes) else 1
    pairs, counts = torch.unique(rows * size + nodes, return_counts=True)  # ascending by row and node
    rows, nodes = pairs // size, pairs % size
    order = torch.argsort(counts.flip(0), descending=True, stable=True)  # from the highest node on
    order = len(pairs) - 1 - order
    order = order[torch.argsort(rows[order], stable=True)]
    place = torch.arange(len(order), device=order.device) - torch.searchsorted(rows, rows)
    order = order[place < most]
    return rows[order], nodes[order].to(visits.dtype), counts[order]

"""`EgoSampler`: the ego graphs of ShaDow, each seed's own, with all edges among their nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader.graph import Graph, HeteroGraph, induced_edges, require_graph
from loader.graph.checks import check_range, integer_vector
from loader.machine.arguments import as_size
from loader.machine.mapped import whole
from loader.samplers.base import MAX_HOPS, tell_ignored_times
from loader.samplers.tree_subgraph import EDGES
from loader.samplers.trees import TreeSampler


class EgoGraphs(NamedTuple):
    """The ego graphs of a batch of seeds, one after the other; no edge leads from one to another.

    Attributes:
        nodes: `[N]` int64 ids, ascending within an ego graph.
        ptr: `[seeds + 1]` int64, where each ego graph begins in `nodes`.
        tree: `[N]` int64, the ego graph of each node.
        roots: `[seeds]` int64, places of the seeds in `nodes`.
        edge_index: `[2, E]` int64, places in `nodes`: sources, then targets; ascending by target, each list in its
            order.
        edge_ids: `[E]` ids of the edges in the graph, places in `graph.indices` if it has none.
    """

    nodes: Tensor
    ptr: Tensor
    tree: Tensor
    roots: Tensor
    edge_index: Tensor
    edge_ids: Tensor


class EgoSampler:
    """Samples the ego graph of each seed: the nodes of a tree of picks, and all edges among them.

    A hop picks neighbors of every node that the hop before picked, copies of a node independently (Zeng et al.,
    "Decoupling the Depth and Scope of Graph Neural Networks", NeurIPS 2021). The picks are those of
    `TreeSampler(trees="paths")`, so they are a pure function of (graph, seed, epoch, mini-batch, seed's place), with
    the same bytes on the CPU and on a GPU.

    Args:
        depth: hops, 0 to 8.
        num_neighbors: picks per node and hop, 1 to 1024, or -1 for all neighbors. More are possible without
            replacement if no node has more neighbors.
        replace: pick with replacement.
        seed: of the picks, `0 <= seed < 2**64`.
        device: "cpu" or a GPU, on which the graph lies.
        num_threads: of the CPU.

    Raises:
        TypeError, ValueError: an argument is out of range.
        NoGpuError: a GPU was asked for, and there is none.
    """

    def __init__(
        self,
        depth: int,
        num_neighbors: int,
        *,
        replace: bool = False,
        seed: int = 0,
        device: str | torch.device = "cpu",
        num_threads: int | None = None,
    ) -> None:
        self.depth = as_size("depth", depth, least=0, most=MAX_HOPS)
        self.num_threads = num_threads
        # All neighbors of a copy are those of the node, so a node is then read once.
        trees = "unique" if num_neighbors == -1 else "paths"
        self._sampler = TreeSampler(
            {EDGES: [num_neighbors] * max(self.depth, 1)},
            trees=trees,
            replace=replace,
            seed=seed,
            device=device,
            num_threads=num_threads,
        )
        self._hetero: tuple[Graph, HeteroGraph] | None = None

    @property
    def device(self) -> torch.device:
        """Where it samples."""
        return self._sampler.device

    def sample(self, graph: Graph, seeds: Tensor, *, epoch: int = 0, batch: int = 0) -> EgoGraphs:
        """Samples the ego graphs of `seeds`, `[n]` integer ids, which may repeat.

        Raises:
            TypeError, ValueError: `graph` is no `Graph` of one set of nodes, or lies elsewhere; a seed is no node.
        """
        require_graph(graph, hetero=False)
        num_nodes, count = graph.num_nodes, len(seeds)
        if self._hetero is None or self._hetero[0] is not graph:
            tell_ignored_times(self, graph)  # else the sampler of trees would be named
            self._hetero = graph, HeteroGraph(graph, {EDGES[0]: num_nodes}, [EDGES])
        seeds = seeds.to(self.device)
        if self.depth == 0:
            seeds = integer_vector("seeds", seeds, seeds.device)  # else the sampler looks at them
            check_range("seeds", seeds, num_nodes)
        nodes, tree = seeds.long(), torch.arange(count, device=seeds.device)
        first = tree * num_nodes + nodes  # what stands for a node of an ego graph: these ascend as `nodes` shall
        keys = first
        if self.depth and count:
            made = self._sampler.sample(self._hetero[1], seeds, epoch=epoch, batch=batch)
            keys = made.tree.long() * num_nodes + made.nodes.long()
        keys = torch.unique(keys)
        tree = torch.div(keys, max(num_nodes, 1), rounding_mode="floor")
        nodes = keys - tree * num_nodes
        threads = self.num_threads if self.device.type == "cpu" else None
        found = induced_edges(graph, nodes, sets=tree.int(), num_sets=max(count, 1), num_threads=threads)
        ids = found.places
        if graph.edge_ids is not None:
            with whole(graph.edge_ids):
                ids = graph.edge_ids[ids.to(graph.edge_ids.device)]
        return EgoGraphs(
            nodes,
            torch.searchsorted(tree, torch.arange(count + 1, device=tree.device)),
            tree,
            torch.searchsorted(keys, first),
            torch.stack([found.sources, found.targets]),
            ids.to(nodes.device),
        )

    def spec(self) -> dict[str, Any]:
        """What decides the picks."""
        return {**self._sampler.spec(), "depth": self.depth, "subgraph_type": "ego"}

"""Our samplers in torch_geometric's form, for hooks, `loader(ids)`, `ZipLoader` and others that ask for one output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NodeSamplerInput,
    SamplerOutput,
)
from torch_geometric.sampler.base import NumNeighbors

from loader.graph import EdgeType, Graph, HeteroGraph
from loader.machine.arguments import shown
from loader.pyg.calls import drawn
from loader.samplers import LinkSampler, Sampler, TreeSampler
from loader.samples import HeteroSubgraph, Links, Subgraph


class LinksInput(EdgeSamplerInput):
    """An `EdgeSamplerInput` that knows which edges the links are.

    Args:
        edge_ids: `[n]`, their ids, or None.
        fields: of an `EdgeSamplerInput`.
    """

    def __init__(self, *fields: Any, edge_ids: Tensor | None = None) -> None:
        super().__init__(*fields)
        self.edge_ids = edge_ids

    def __getitem__(self, index: Any) -> LinksInput:
        part = super().__getitem__(index)
        ids = None if self.edge_ids is None else self.edge_ids[torch.as_tensor(index)]
        return LinksInput(part.input_id, part.row, part.col, part.label, part.time, part.input_type, edge_ids=ids)


class OutputSampler(BaseSampler):
    """What a `DataLoader` of `loader.pyg` has as its `node_sampler` or `link_sampler`.

    Args:
        sampler: samples subgraphs, or links with subgraphs around them.
        graph: the graph to sample.
        num_neighbors: picks per node and hop; of several types edge type -> these; None: it has none.
        by_hop: whether the edges of a subgraph lie hop by hop, so that it has numbers of nodes and edges per hop.

    Attributes:
        position: epoch and number of the mini-batch that is sampled next, which decide its picks. None: a number drawn
            from torch's generator does, as in torch_geometric.
    """

    def __init__(
        self,
        sampler: Sampler,
        graph: Graph | HeteroGraph,
        num_neighbors: list[int] | Mapping[EdgeType, list[int]] | None,
        *,
        by_hop: bool,
    ) -> None:
        self.sampler, self.graph, self.by_hop = sampler, graph, by_hop
        self._num_neighbors = None if num_neighbors is None else NumNeighbors(num_neighbors)
        self.position: tuple[int, int] | None = None

    @property
    def num_neighbors(self) -> NumNeighbors | None:
        """Picks per node and hop. They cannot be changed."""
        return self._num_neighbors

    @num_neighbors.setter
    def num_neighbors(self, num_neighbors: Any) -> None:
        raise AttributeError(f"num_neighbors cannot be changed to {shown(num_neighbors)}; make a new loader with it")

    def sample_from_nodes(self, inputs: NodeSamplerInput) -> SamplerOutput | HeteroSamplerOutput:
        """The subgraph around the nodes of `inputs`; see `torch_geometric.sampler.BaseSampler`."""
        if isinstance(self.graph, HeteroGraph):
            return self._hetero(inputs, self.graph)
        out = self._output(self._trees(inputs) if self._in_trees else self._sample(inputs.node))
        out.metadata = inputs.input_id, inputs.time
        return out

    def sample_from_edges(
        self, inputs: EdgeSamplerInput, neg_sampling: Any = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """The subgraph around the ends of the links of `inputs` and of negatives, which our sampler draws.

        Raises:
            ValueError: `neg_sampling` is not that of the loader.
        """
        assert isinstance(self.sampler, LinkSampler)
        drawn = self.sampler.negatives
        asked = None if neg_sampling is None else (neg_sampling.mode.value, neg_sampling.amount)
        if asked != (None if drawn is None else (drawn.mode, drawn.num_negatives)):
            raise ValueError(f"neg_sampling is {neg_sampling}, and the loader draws {drawn}; make a loader with it")
        epoch, batch = self._position()
        pairs = torch.stack([inputs.row, inputs.col], 1)
        times = inputs.time if self.sampler.timed else None
        links = self.sampler.sample(
            self.graph, pairs, times, getattr(inputs, "edge_ids", None), epoch=epoch, batch=batch
        )
        around = links.around
        if links.link_of_tree is not None:
            around = around.replace(tree=batch_of(links))
        hetero = isinstance(around, HeteroSubgraph)
        out: Any = self._hetero_output(around) if hetero else self._output(around)
        times = links.times
        if drawn is not None and drawn.mode == "triplet":
            assert links.negative_targets is not None
            ends = links.sources, links.targets, per_link(links.negative_targets)
            out.metadata = inputs.input_id, *ends, times
            return out
        pairs, truth = links.pairs()
        of_all = None if times is None else times_of(links, truth.numel())
        out.metadata = inputs.input_id, pairs, labels_of(truth, inputs.label, drawn is not None), of_all
        return out

    @property
    def _in_trees(self) -> bool:
        return isinstance(self.sampler, TreeSampler)

    def _trees(self, inputs: NodeSamplerInput) -> Any:
        """Each seed's own subgraph."""
        assert isinstance(self.sampler, TreeSampler)
        seeds, graph = inputs.node, self.graph
        if isinstance(graph, HeteroGraph):
            seeds = seeds + graph.node_types[inputs.input_type].start
        times = None if self.sampler.times == "none" else inputs.time
        epoch, batch = self._position()
        return self.sampler.sample(graph, seeds, times, epoch=epoch, batch=batch)

    def _hetero(self, inputs: NodeSamplerInput, graph: HeteroGraph) -> HeteroSamplerOutput:
        if self._in_trees:
            sample = self._trees(inputs)
        else:
            epoch, batch = self._position()
            sample = self.sampler.sample(graph, {inputs.input_type: inputs.node}, epoch=epoch, batch=batch)
        out = self._hetero_output(sample)
        out.metadata = inputs.input_id, inputs.time
        return out

    def _hetero_output(self, sample: HeteroSubgraph) -> HeteroSamplerOutput:
        out = HeteroSamplerOutput(
            node=sample.nodes,
            row={key: pairs[0] for key, pairs in sample.edges.items()},
            col={key: pairs[1] for key, pairs in sample.edges.items()},
            edge=sample.edge_ids,
            batch=sample.tree,
            num_sampled_nodes=_of_hops(sample.num_nodes) if sample.by_hop else None,
            num_sampled_edges=_of_hops(sample.num_edges) if sample.by_hop else None,
        )
        return out if self.by_hop or not sample.by_hop else out.to_bidirectional()

    def _sample(self, seeds: Tensor) -> Any:
        epoch, batch = self._position()
        return self.sampler.sample(self.graph, seeds, epoch=epoch, batch=batch)

    def _position(self) -> tuple[int, int]:
        return self.position or (drawn(), 0)

    def _output(self, sample: Subgraph) -> SamplerOutput:
        return SamplerOutput(
            node=sample.nodes,
            row=sample.edge_index[0],
            col=sample.edge_index[1],
            edge=sample.edge_ids,
            batch=sample.tree,
            num_sampled_nodes=list(sample.num_nodes) if self.by_hop else None,
            num_sampled_edges=list(sample.num_edges) if self.by_hop else None,
        )


def _of_hops(counts: Mapping[Any, tuple[int, ...]]) -> dict[Any, list[int]]:
    return {key: list(of_hop) for key, of_hop in counts.items()}


def labels_of(truth: Tensor, given: Tensor | None, negatives: bool) -> Tensor | None:
    """Labels of positive links, which were `given`, and of negatives, which are 0.

    Args:
        truth: `[P + N]` float32, 1 for a positive link, else 0.
        given: `[P, ...]`, or None.
    """
    if not negatives:
        return given
    if given is None:
        return truth
    return torch.cat([given, given.new_zeros(truth.numel() - given.shape[0], *given.shape[1:])])


def per_link(negatives: Tensor) -> Tensor:
    """`[P]` or `[P, amount]` negative targets, of `[P, amount]`."""
    return negatives.view(-1) if negatives.shape[1] == 1 else negatives


def batch_of(links: Links) -> Any:
    """Of trees around links: `[N]`, or by node type, the number of the link that the tree of each node belongs to."""
    link, tree = links.link_of_tree, links.around.tree
    assert link is not None
    return {name: link[of] for name, of in tree.items()} if isinstance(tree, dict) else link[tree]


def times_of(links: Links, count: int) -> Tensor:
    """`[P + N]` times of positive links and of negatives, of which there are `count` in all."""
    assert links.times is not None
    return links.times.repeat(-(-count // max(links.batch_size, 1)))[:count]

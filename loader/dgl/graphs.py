"""Graphs of DGL as ours, and the blocks of our mini-batches of one type with their names and features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from loader.graph import Graph, HeteroGraph
from loader.machine.memo import Memo
from loader.machine.optional import import_dgl
from loader.samples import MiniBatch
from loader.samples.interop import dgl_block
from loader.samples.subgraph import ranges

DGLS = "dgl.dataloading, which has it on the CPU"

_graphs = Memo()  # loaders of one graph share it


def graph_of(g: Any, prob: str | None, device: torch.device, uva: bool = False) -> Graph | HeteroGraph:
    """The graph where a sampler reads it, made once. Of several types it is a `HeteroGraph`.

    Args:
        g: the graph.
        prob: name in `g.edata` of the weights by which neighbors are picked, or None.
        device: of the sampler.
        uva: leave it in page-locked host memory.

    Raises:
        ValueError: there are no such weights.
    """
    weights = weights_of(g, prob)
    state = g.num_nodes(), g.num_edges()
    names = tuple(g.ntypes), tuple(g.canonical_etypes), prob, tuple(key for key, _ in weights)
    make: Any = Graph.from_dgl if g.is_homogeneous else HeteroGraph.from_dgl
    memo = _graphs.get(g._graph, state, names, Memo)  # copies of g share its edges, not its names

    def once(key: Any, make: Callable[[], Any]) -> Any:
        return memo.get_of([w for _, w in weights], key, make) if weights else memo.get(g._graph, state, key, make)

    made = once("graph", lambda: make(g, weight_attr=prob).to("cpu"))
    return once((device, uva), lambda: made.pin_memory() if uva else made.to(device))


def weights_of(g: Any, prob: str | None, name: str = "prob") -> list[tuple[Any, Tensor]]:
    """The weights by which neighbors are picked, each with its relation, of all relations that have some.

    Args:
        name: of the argument, for the messages.

    Raises:
        ValueError: no relation has weights of this name.
    """
    if prob is None:
        return []
    frames = {key: g.edges[key].data for key in g.canonical_etypes}
    found = [(key, frame[prob]) for key, frame in frames.items() if prob in frame]
    if not found:
        had = sorted({column for frame in frames.values() for column in frame})
        raise ValueError(f"{name} is {prob!r}; the edges of the graph have {had}")
    return found


def of_one_type(name: str, value: Any, types: list[Any]) -> Any:
    """What a dict by type says of the only type of a graph; other values as they are.

    Args:
        name: of the argument, for the messages.
        types: names of the type: that of nodes, or the short and the full one of edges.

    Raises:
        ValueError: it is of several types, or of another one.
    """
    if not isinstance(value, Mapping):
        return value
    if len(value) != 1:
        raise ValueError(f"{name} is of the types {list(value)}; the graph has the type {types[-1]!r}: give one")
    ((key, only),) = value.items()
    if key not in types:
        raise ValueError(f"{name} is of type {key!r}; the graph has the type {types[-1]!r}")
    return only


def node_types(g: Any) -> list[Any]:
    """Names for `of_one_type`, of nodes."""
    return list(g.ntypes)


def edge_types(g: Any) -> list[Any]:
    """Names for `of_one_type`, of edges."""
    return [*g.etypes, *g.canonical_etypes]


def blocks_of(g: Any, batch: MiniBatch, near: bool) -> list[Any]:
    """DGL's blocks of a mini-batch, with the types of the graph and its type of ids.

    Args:
        near: whether they have the features of the graph, which are gathered when they are read, as in DGL.
    """
    dgl = import_dgl("loader.dgl")
    bare = batch.replace(x=None, y=None, blocks=batch.blocks)
    wide = bare.map(lambda t: t if t.is_floating_point() else t.to(g.idtype))
    made = [dgl_block(dgl, block, wide.nodes, g.canonical_etypes[0]) for block in wide.blocks]
    for block in made:
        block.edata.pop("feat", None)  # of edges, which have their own name
        if near:
            source, target = block._node_frames
            fill(source, g._node_frames[0], block.srcdata[dgl.NID])
            fill(target, g._node_frames[0], block.dstdata[dgl.NID])
            fill(block._edge_frames[0], g._edge_frames[0], block.edata[dgl.EID])
    return made


def fill(frame: Any, whole: Any, ids: Tensor) -> None:
    """Gives a frame of DGL the other columns of the whole graph, as DGL does: rows are gathered when they are read."""
    for name, column in whole._columns.items():
        if name not in frame:
            frame._columns[name] = column.subcolumn(ids)


def with_copies(batch: MiniBatch, places: Tensor) -> MiniBatch:
    """A copy of a mini-batch in which seeds come several times. Each copy has the edges of the seed.

    Other nodes have the first copy as a neighbor.

    Args:
        places: `[n]` of the new seeds among those of the mini-batch; each of these at least once.
    """
    size, count = batch.batch_size, places.numel()
    moved = torch.arange(batch.nodes.numel(), device=places.device) + count - size
    moved[:size] = count
    moved.scatter_reduce_(0, places, torch.arange(count, device=places.device), "amin")
    blocks = []
    for block in batch.blocks:
        rows = torch.cat([places, torch.arange(size, block.num_dst, device=places.device)])
        begins, degrees = block.indptr[rows].long(), block.indptr.diff().long()[rows]
        chosen = ranges(begins, degrees)
        indptr = torch.zeros(rows.numel() + 1, dtype=block.indptr.dtype, device=places.device)
        torch.cumsum(degrees, 0, dtype=indptr.dtype, out=indptr[1:])
        assert block.edge_ids is not None
        blocks.append(
            type(block)(
                indptr,
                moved[block.indices[chosen].long()].to(block.indices.dtype),
                num_src=block.num_src + count - size,
                num_dst=rows.numel(),
                edge_ids=block.edge_ids[chosen],
            )
        )
    return batch.replace(
        nodes=torch.cat([batch.nodes[places], batch.nodes[size:]]),
        frontier_sizes=tuple(number + count - size for number in batch.frontier_sizes),
        blocks=tuple(blocks),
    )


def without_edges(batch: MiniBatch, ids: Tensor) -> MiniBatch:
    """A copy of a mini-batch without some edges, and without the nodes that only these lead to.

    Args:
        ids: `[n]` of the edges.
    """
    num_hops, size = len(batch.blocks), batch.nodes.numel()
    hop = torch.full((size,), num_hops + 1, dtype=torch.int64, device=batch.nodes.device)  # that reaches a node
    hop[: batch.batch_size] = 0
    stays = []
    for number, block in enumerate(reversed(batch.blocks)):
        assert block.edge_ids is not None
        targets = torch.arange(block.num_dst, device=hop.device).repeat_interleave(block.indptr.diff().long())
        stay = (hop[targets] <= number) & ~torch.isin(block.edge_ids, ids.to(block.edge_ids))
        source = block.indices[stay].long()
        hop[source] = hop[source].clamp(max=number + 1)
        stays.append((targets[stay], source, stay))
    order = torch.argsort(batch.nodes, stable=True)
    order = torch.cat([torch.arange(batch.batch_size, device=hop.device), order[order >= batch.batch_size]])
    order = order[torch.argsort(hop[order], stable=True)]  # by hop, and ascending in each; seeds as they were given
    sizes = [int((hop <= number).sum()) for number in range(num_hops + 1)]
    place = torch.empty_like(order)
    place[order] = torch.arange(size, device=hop.device)
    blocks = []
    for number, (block, (target, source, stay)) in enumerate(zip(reversed(batch.blocks), stays, strict=True)):
        rows = torch.argsort(place[target], stable=True)  # each list keeps its order
        indptr = torch.zeros(sizes[number] + 1, dtype=torch.int64, device=hop.device)
        torch.cumsum(torch.bincount(place[target], minlength=sizes[number]), 0, out=indptr[1:])
        assert block.edge_ids is not None
        blocks.append(
            type(block)(
                indptr.to(block.indptr.dtype),
                place[source[rows]].to(block.indices.dtype),
                num_src=sizes[number + 1],
                num_dst=sizes[number],
                edge_ids=block.edge_ids[stay][rows],
            )
        )
    return batch.replace(
        nodes=batch.nodes[order[: sizes[-1]]], frontier_sizes=tuple(sizes), blocks=tuple(reversed(blocks))
    )

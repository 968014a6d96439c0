"""Converts a `HeteroMiniBatch` to DGL's blocks and to PyG's `HeteroData`."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader.machine.optional import import_dgl, import_optional
from loader.samples.hetero import HeteroBlock, HeteroMiniBatch, by_relation, edge_index_dict
from loader.samples.segments import EdgeType
from loader.samples.subgraph import edges_of, ranges


def to_dgl(batch: HeteroMiniBatch) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Any]]:
    """`(input_nodes, output_nodes, blocks)` of a `HeteroMiniBatch`, as `dgl.dataloading.DataLoader` yields them.

    Ids are those within the types. Blocks hold the ids of their nodes in `srcnodes[TYPE].data[dgl.NID]` and
    `dstnodes[TYPE].data[dgl.NID]`, and those of their edges in `edges[RELATION].data[dgl.EID]`, if the sampler returned
    them. Gathered features are in `blocks[0].srcnodes[TYPE].data["feat"]`, features of edges in
    `edges[RELATION].data["feat"]` of each block, gathered labels in `blocks[-1].dstnodes[TYPE].data["label"]`. Blocks
    have the id type of the mini-batch.

    Raises:
        ImportError: DGL is not installed; the message says what to install.
        ValueError: the mini-batch was sampled with expand="new", so its blocks do not follow on each other.
    """
    dgl = import_dgl("to_dgl()")
    if len(batch.blocks) > 1 and batch.batch_size and not batch.expands_all:
        raise ValueError(
            "to_dgl() needs blocks that follow on each other, and this mini-batch was sampled with expand='new'; make "
            "its sampler with expand='all'"
        )
    seg, hops = batch.segments, batch.blocks[::-1]
    n_id, edge_rows = batch.n_id, {}
    found = by_relation(hops, seg)
    counts = found.counts()
    for r, (edge_type, of_hop) in enumerate(zip(batch.edge_types, counts, strict=True)):
        rows = batch.rows.get("edge/" + "__".join(edge_type))
        if rows is not None:
            edge_rows[r] = rows.split(of_hop)
    within = seg.within(batch.nodes.device).to(batch.nodes.dtype)
    sources = within[torch.cat([block.indices for block in hops])[found.places].long()]
    ids = [block.edge_ids for block in hops if block.edge_ids is not None]
    edge_ids = torch.cat(ids)[found.places] if len(ids) == len(hops) else None
    edge = [0]  # where the edges of each relation and hop begin
    for of_hop in counts:
        for count in of_hop:
            edge.append(edge[-1] + count)
    made = []
    for h, block in enumerate(hops):
        num_src = {name: seg.count(t, block.num_src) for t, name in enumerate(seg.names)}
        num_dst = {name: seg.count(t, block.num_dst) for t, name in enumerate(seg.names)}
        arrays, data = {}, {}
        for r, (edge_type, bounds) in enumerate(zip(batch.edge_types, found.bounds, strict=True)):
            begin, end = edge[r * len(hops) + h], edge[r * len(hops) + h + 1]
            indptr = found.indptr[bounds[h] : bounds[h + 1] + 1] - begin
            if indptr.numel() <= num_dst[edge_type[2]]:  # the block has no row of this type
                indptr = indptr.new_zeros(num_dst[edge_type[2]] + 1)
            order = torch.arange(end - begin, dtype=sources.dtype, device=sources.device)
            arrays[edge_type] = "csc", (indptr.to(sources.dtype), sources[begin:end], order)
            data[edge_type] = (begin, end, edge_rows[r][h] if r in edge_rows else None)
        graph = dgl.create_block(arrays, num_src, num_dst)
        for name, of_type in n_id.items():
            graph.srcnodes[name].data[dgl.NID] = of_type[: num_src[name]]
            graph.dstnodes[name].data[dgl.NID] = of_type[: num_dst[name]]
        for edge_type, (begin, end, rows) in data.items():
            if edge_ids is not None:
                graph.edges[edge_type].data[dgl.EID] = edge_ids[begin:end]
            if rows is not None:
                graph.edges[edge_type].data["feat"] = rows
        made.append(graph)
    blocks = made[::-1]
    for name, rows in (batch.x or {}).items():
        blocks[0].srcnodes[name].data["feat"] = rows
    if batch.y is not None:
        blocks[-1].dstnodes[batch.seed_type].data["label"] = batch.y
    seeds = {name: n_id[name][:size] for name, size in zip(seg.names, batch.sizes[0], strict=True)}
    return n_id, seeds, blocks


def to_pyg(batch: HeteroMiniBatch) -> Any:
    """A `torch_geometric.data.HeteroData` of a `HeteroMiniBatch`, as `torch_geometric.loader.NeighborLoader` yields it.

    If the mini-batch was sampled with expand="all", only PyG's part of it is in the result, see `once`.

    All ids are int64. Each node type has `n_id`, ids within the type in the order of the mini-batch, `num_nodes` and
    `num_sampled_nodes` (hops + 1 counts); and `x`, if it was gathered. The type of the seeds has `batch_size`,
    `input_id` and, if they were gathered, `y`, of the seeds only. Each relation has `edge_index`, places within the
    types, hop by hop from the seeds, `num_sampled_edges` (a count per hop) and, if the sampler returned edge ids,
    `e_id`; and `edge_attr`, if it was gathered. Other rows have the name that their kind ends with.

    A mini-batch does not know the positions of its seeds in a loader's list. So `input_id` has their ids, which is what
    NeighborLoader gives for all nodes of a type or a mask.
    """
    HeteroData = import_optional("torch_geometric.data", "to_pyg()", "datasets").HeteroData

    batch = once(batch)
    parts, data = parts_of(batch), HeteroData()
    for (name, ids), count in zip(parts.nodes.items(), batch.sizes[0], strict=True):
        store = data[name]
        store.n_id, store.num_nodes, store.num_sampled_nodes = ids, ids.numel(), parts.num_nodes[name]
        if batch.x is not None and name in batch.x:
            store.x = batch.x[name]
        if count:
            store.batch_size, store.input_id = count, ids[:count]
    if batch.y is not None:
        data[batch.seed_type].y = batch.y
    for edge_type, pairs in parts.edges.items():
        edges = data[edge_type]
        edges.edge_index, edges.num_sampled_edges = pairs, parts.num_edges[edge_type]
        if parts.edge_ids is not None:
            edges.e_id = parts.edge_ids[edge_type]
    for kind, rows in batch.rows.items():
        what, name, *attribute = kind.split("/")
        where = data[name] if what == "node" else data[batch.edge_types[batch.segments.relation_of(name)]]
        where[attribute[0] if attribute else "edge_attr"] = rows
    return data


class Parts(NamedTuple):
    """Nodes and edges of a mini-batch by type, as torch_geometric's samplers return them.

    Attributes:
        nodes: node type -> `[N]` int64 ids within the type.
        edges: edge type -> `[2, E]` int64 places of sources and destinations among these, hop by hop from the seeds.
        edge_ids: edge type -> `[E]` int64, or None.
        num_nodes: node type -> numbers of new nodes: seeds, then hop by hop.
        num_edges: edge type -> numbers of edges of each hop.
    """

    nodes: dict[str, Tensor]
    edges: dict[EdgeType, Tensor]
    edge_ids: dict[EdgeType, Tensor] | None
    num_nodes: dict[str, list[int]]
    num_edges: dict[EdgeType, list[int]]


def parts_of(batch: HeteroMiniBatch) -> Parts:
    """The parts of a mini-batch that samples each node once, see `once`."""
    seg, hops = batch.segments, batch.blocks[::-1]
    nodes = {name: ids.long() for name, ids in batch.n_id.items()}
    num_nodes = {name: [of_hop[t] for of_hop in batch.sizes] for t, name in enumerate(seg.names)}
    if not hops:
        none = {edge_type: batch.nodes.new_empty((2, 0), dtype=torch.int64) for edge_type in seg.edge_types}
        ids = {edge_type: pairs[0] for edge_type, pairs in none.items()}
        return Parts(nodes, none, ids, num_nodes, {edge_type: [] for edge_type in seg.edge_types})
    found = by_relation(hops, seg)
    counts = found.counts()
    edge_ids = None
    if all(block.edge_ids is not None for block in hops):
        every = torch.cat([block.edge_ids for block in hops if block.edge_ids is not None])[found.places].long()
        split = every.split([sum(of_hop) for of_hop in counts])
        edge_ids = dict(zip(seg.edge_types, split, strict=True))
    edges = edge_index_dict(hops, seg, found, counts)
    return Parts(nodes, edges, edge_ids, num_nodes, dict(zip(seg.edge_types, counts, strict=True)))


def once(batch: HeteroMiniBatch) -> HeteroMiniBatch:
    """The part of a mini-batch that expand="new" gives: each node has the picks of the hop after the one that first
    met it, and nodes that only other picks lead to are left out. One that was sampled so is returned as it is.
    """
    if not batch.expands_all:
        return batch
    seg, device = batch.segments, batch.nodes.device
    slots = [len(into) for into in seg.into]
    num_rows = seg.spread([slots] * len(batch.sizes), device)
    first_row = num_rows.cumsum(0) - num_rows
    starts = torch.tensor([batch.node_types[name].start for name in seg.names], device=device)
    kept = [torch.arange(batch.batch_size, device=device)]  # places of the nodes that each hop met first
    local = torch.full((batch.nodes.numel(),), -1, device=device)
    local[: batch.batch_size] = kept[0]
    sizes, blocks, places, num_nodes, edges = [batch.sizes[0]], [], [], batch.batch_size, 0
    for block in reversed(batch.blocks):
        rows = ranges(first_row[kept[-1]], num_rows[kept[-1]])
        chosen, degree = edges_of(block, rows)
        sources = block.indices[chosen].long()
        new = torch.unique(sources[local[sources] < 0])
        new = new[torch.argsort(batch.nodes[new])]  # picks that are left out may have led to some of them earlier
        first_dst = num_nodes - kept[-1].numel()
        num_dst = kept[-1].numel()
        local[new] = torch.arange(num_nodes, num_nodes + new.numel(), device=device)
        num_nodes += new.numel()
        kept.append(new)
        types = torch.searchsorted(starts, batch.nodes[new].long(), right=True) - 1
        sizes.append(tuple(torch.bincount(types, minlength=len(slots)).tolist()))
        indptr = torch.zeros(rows.numel() + 1, dtype=block.indptr.dtype, device=device)
        torch.cumsum(degree, 0, out=indptr[1:])
        ids = None if block.edge_ids is None else block.edge_ids[chosen]
        blocks.append(HeteroBlock(indptr, local[sources].to(block.indices.dtype), first_dst, num_dst, num_nodes, ids))
        places.append(chosen + edges)
        edges += block.num_edges
    every = torch.cat(kept)
    part = HeteroMiniBatch(
        batch.nodes[every],
        tuple(sizes),
        tuple(reversed(blocks)),
        batch.node_types,
        batch.edge_types,
        batch.epoch,
        batch.index,
        y=batch.y,
        repeats=batch.repeats,
    )
    return _with_rows_of(batch, part, every, torch.cat(places))


def _with_rows_of(batch: HeteroMiniBatch, part: HeteroMiniBatch, nodes: Tensor, edges: Tensor) -> HeteroMiniBatch:
    """`part` with the rows of `batch` that are its own.

    Args:
        nodes: `[num_nodes]` places of the part's nodes in `batch.nodes`.
        edges: `[num_edges]` places of the part's edges in the arrays of the blocks, from the seeds outward.
    """
    within = batch.segments.within(nodes.device)[nodes]
    rows: dict[str, Tensor] = {}
    x = None
    if batch.x is not None:
        chosen = {name: part.segments.of_type(within, part.segments.type_of(name)) for name in batch.x}
        x = {name: found[chosen[name]] for name, found in batch.x.items()}
    for kind, found in batch.rows.items():
        what, name, *_ = kind.split("/")
        if what == "node":
            rows[kind] = found[part.segments.of_type(within, part.segments.type_of(name))]
            continue
        relation = [batch.segments.relation_of(name)]
        theirs = by_relation(batch.blocks[::-1], batch.segments, relation).places
        place = torch.empty(batch.num_edges, dtype=torch.int64, device=nodes.device)
        place[theirs] = torch.arange(theirs.numel(), device=nodes.device)
        rows[kind] = found[place[edges[by_relation(part.blocks[::-1], part.segments, relation).places]]]
    return part.replace(x=x, rows=rows)

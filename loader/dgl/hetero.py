"""Graphs of DGL with several types: seeds and edges by type in one numbering, and the blocks of our mini-batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from loader.dgl.graphs import fill
from loader.items.items import as_nodes
from loader.loaders.options import check_distinct
from loader.loaders.torch_options import as_ids
from loader.machine.arguments import shown
from loader.machine.optional import import_dgl
from loader.samples.hetero import HeteroMiniBatch
from loader.stores import FeatureStore


def edge_type(name: str, g: Any, key: Any) -> tuple[str, str, str]:
    """The edge type that DGL calls `key`: a triple, or the name in its middle.

    Raises:
        ValueError: there is none, or several have this name.
    """
    found = [known for known in g.canonical_etypes if key in (known, known[1])]
    if len(found) == 1:
        return found[0]
    what = "several edge types have that name" if found else "the graph has no such edge type"
    raise ValueError(f"{name} names {shown(key)}, but {what}; give one of {g.canonical_etypes}")


def by_node_type(name: str, g: Any, given: Any) -> dict[str, Any]:
    """`given` by node type; what is not by type is of the only node type.

    Raises:
        TypeError: it is not by type, and there are several.
        ValueError: there is no such type.
    """
    if not isinstance(given, Mapping):
        if len(g.ntypes) > 1:
            raise TypeError(f"{name} must be given by type, as {{{g.ntypes[0]!r}: ...}}: the graph has {g.ntypes}")
        return {g.ntypes[0]: given}
    if unknown := [key for key in given if key not in g.ntypes]:
        raise ValueError(f"{name} names the node type {unknown[0]!r}; the graph has {g.ntypes}")
    return dict(given)


def by_edge_type(name: str, g: Any, given: Any) -> dict[tuple[str, str, str], Any]:
    """`given` by edge type, as `by_node_type`."""
    if not isinstance(given, Mapping):
        if len(g.canonical_etypes) > 1:
            example = g.canonical_etypes[0]
            raise TypeError(
                f"{name} must be given by type, as {{{example!r}: ...}}: the graph has {g.canonical_etypes}"
            )
        return {g.canonical_etypes[0]: given}
    found = [(edge_type(name, g, key), value) for key, value in given.items()]
    if len(dict(found)) < len(found):
        raise ValueError(f"{name} names an edge type twice: {list(given)}; give each once")
    return dict(found)


def by_type(name: str, g: Any, given: Any, *, edges: bool) -> dict[Any, Any]:
    """`by_edge_type` or `by_node_type`."""
    return by_edge_type(name, g, given) if edges else by_node_type(name, g, given)


def key_of(g: Any, kind: str) -> tuple[str, Any]:
    """Of a kind of rows, "node/paper", what they are of, and the type; of "node" the only type."""
    what, _, name = kind.partition("/")
    if what in ("node", "seed"):
        return what, name or g.ntypes[0]
    return what, next(key for key in g.canonical_etypes if not name or "__".join(key) == name)


def ranges_of(g: Any, *, edges: bool) -> dict[Any, range]:
    """The ids of each type in one numbering, type after type, as `HeteroGraph` numbers nodes."""
    found, end = {}, 0
    for key in g.canonical_etypes if edges else g.ntypes:
        size = g.num_edges(key) if edges else g.num_nodes(key)
        found[key] = range(end, end + size)
        end += size
    return found


def numbered(name: str, g: Any, given: Any, *, edges: bool, distinct: bool = False) -> Tensor:
    """`[n]` int64 ids of one numbering, of ids by type, in their order.

    Raises:
        TypeError, ValueError: these are no ids by type, there are none, or one is there twice and must not.
    """
    ranges, found = ranges_of(g, edges=edges), []
    for key, ids in by_type(name, g, given, edges=edges).items():
        label, of = f"{name}[{key!r}]", as_ids(f"{name}[{key!r}]", ids)
        if of.numel() == 0:
            continue
        of = as_nodes(label, of).long()
        if distinct:
            check_distinct(label, of, len(ranges[key]))
        low, high = (int(x) for x in torch.aminmax(of))
        if low < 0 or high >= len(ranges[key]):
            bad = low if low < 0 else high
            raise ValueError(f"{label} holds {bad}; valid ids are 0 to {len(ranges[key]) - 1}")
        found.append(of + ranges[key].start)
    if not found:
        raise ValueError(f"{name} is empty; a loader needs at least one seed")
    return torch.cat(found)


def of_types(ids: Tensor, ranges: Mapping[Any, range]) -> dict[Any, Tensor]:
    """Type -> ids within it, of ids of one numbering in any order. Types without any are not there."""
    starts = torch.tensor([of.start for of in ranges.values()], device=ids.device)
    types = torch.bucketize(ids, starts, right=True) - 1
    parts = {key: ids[types == i] - of.start for i, (key, of) in enumerate(ranges.items())}
    return {key: part for key, part in parts.items() if part.numel()}


def fanouts_by_edge_type(g: Any, fanouts: Sequence[Any]) -> dict[tuple[str, str, str], tuple[int, ...]] | list[int]:
    """Fanouts from the input to the seeds, as our samplers take them: by relation, from the seeds outward.

    Raises:
        ValueError: a layer names an unknown edge type, or leaves one out.
    """
    if not any(isinstance(layer, Mapping) for layer in fanouts):
        return list(fanouts)[::-1]
    layers = []
    for layer in reversed(fanouts):
        given = by_edge_type("fanouts", g, layer) if isinstance(layer, Mapping) else None
        if given is not None and (missing := [key for key in g.canonical_etypes if key not in given]):
            raise ValueError(f"fanouts has none for the edge type {missing[0]}; give it, 0 where nothing is picked")
        layers.append(dict.fromkeys(g.canonical_etypes, layer) if given is None else given)
    return {key: tuple(layer[key] for layer in layers) for key in g.canonical_etypes}


def hetero_blocks(g: Any, batch: HeteroMiniBatch, near: bool) -> tuple[Any, Any, list[Any]]:
    """`(input_nodes, output_nodes, blocks)` of a mini-batch as DGL gives them for `g`, without what was gathered.

    Nodes are a dict by type, or a tensor if the graph has one node type.

    Args:
        near: whether blocks have the features of the graph, which are gathered when they are read, as in DGL.
    """
    bare = batch.replace(x=None, y=None, rows={})
    inputs, outputs, blocks = bare.map(lambda t: t if t.is_floating_point() else t.to(g.idtype)).to_dgl()
    for block in blocks if near else ():
        fill_hetero(g, block)
    outputs = {name: ids for name, ids in outputs.items() if ids.numel()}
    if len(g.ntypes) > 1:
        return inputs, outputs, blocks
    return next(iter(inputs.values())), next(iter(outputs.values())), blocks


def put_rows(
    g: Any, batch: HeteroMiniBatch, blocks: list[Any], kind: str, name: str, store: FeatureStore, gathered: bool
) -> None:
    """Puts prefetched features into blocks.

    Args:
        kind: of the rows, as "node/paper".
        name: that they have in the blocks.
        gathered: whether the mini-batch has these rows; else they come from the store.
    """
    what, key = key_of(g, kind)
    if what == "node":
        rows = batch.x[key] if gathered and batch.x is not None else store.gather(batch.n_id[key])
        blocks[0].srcnodes[key].data[name] = rows
    elif what == "seed":
        size = blocks[-1].num_dst_nodes(key)
        blocks[-1].dstnodes[key].data[name] = store.gather(batch.n_id[key][:size])
    else:  # hop by hop from the seeds outward
        rows = batch.rows[kind] if gathered else store.gather(batch.ids(kind))
        hops = blocks[::-1]
        for block, part in zip(hops, rows.split([block.num_edges(key) for block in hops]), strict=True):
            block.edges[key].data[name] = part


def fill_hetero(g: Any, made: Any) -> None:
    """Gives a block or a graph with `dgl.NID` and `dgl.EID` the features of the whole graph."""
    dgl = import_dgl("loader.dgl")
    for name in g.ntypes:
        whole = g._node_frames[g.get_ntype_id(name)]
        if made.is_block:
            fill(made._node_frames[made.get_ntype_id_from_src(name)], whole, made.srcnodes[name].data[dgl.NID])
            fill(made._node_frames[made.get_ntype_id_from_dst(name)], whole, made.dstnodes[name].data[dgl.NID])
        else:
            fill(made._node_frames[made.get_ntype_id(name)], whole, made.nodes[name].data[dgl.NID])
    for key in made.canonical_etypes:
        if dgl.EID in made.edges[key].data:
            whole = g._edge_frames[g.get_etype_id(key)]
            fill(made._edge_frames[made.get_etype_id(key)], whole, made.edges[key].data[dgl.EID])


def without_hetero_edges(g: Any, seeds: Any, blocks: list[Any], left_out: Any) -> tuple[Any, list[Any]]:
    """Blocks without some edges, and without the nodes that only these lead to.

    Args:
        seeds: nodes of the last block, as DGL takes them.
        left_out: ids of the edges, by edge type.

    Returns:
        Input nodes and blocks.
    """
    dgl = import_dgl("loader.dgl")
    excluded = by_edge_type("exclude_eids", g, left_out)
    made: list[Any] = []
    for block in reversed(blocks):
        ends, ids = {}, {}
        for key in g.canonical_etypes:
            source, target = block.edges(etype=key)
            source = block.srcnodes[key[0]].data[dgl.NID][source.long()]
            target = block.dstnodes[key[2]].data[dgl.NID][target.long()]
            of = block.edges[key].data[dgl.EID]
            stay = torch.isin(target, _of_type(g, seeds, key[2]).to(target))
            if key in excluded:
                stay &= ~torch.isin(of, as_ids("exclude_eids", excluded[key]).to(of))
            ends[key], ids[key] = (source[stay], target[stay]), of[stay]
        frontier = dgl.heterograph(ends, {name: g.num_nodes(name) for name in g.ntypes}, idtype=g.idtype)
        less = dgl.to_block(frontier, seeds)
        for key in g.canonical_etypes:
            less.edges[key].data[dgl.EID] = ids[key][less.edges[key].data[dgl.EID].long()]
        fill_hetero(g, less)
        made.insert(0, less)
        seeds = less.srcdata[dgl.NID]
    return seeds, made


def _of_type(g: Any, nodes: Any, name: str) -> Tensor:
    found = by_node_type("seed_nodes", g, nodes).get(name)
    return torch.empty(0, dtype=g.idtype) if found is None else found

"""Holds links of one relation out of a graph with several types."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from loader.datamodules.link_split import LinkSplit, check_on_cpu, check_shares, shared_out
from loader.graph import EdgeType, Graph, HeteroGraph

log = logging.getLogger(__name__)

_NEARLY = 0.9  # of the links of two relations, beyond which one is a copy


def split_hetero_links(
    graph: HeteroGraph, edge_type: EdgeType, reverse: EdgeType | None, *, val: float, test: float, seed: int
) -> LinkSplit:
    """Holds random links of a relation out for validation and test, see `split_links`.

    A link is a pair of nodes with an edge of `edge_type`. If this is its own reverse, the direction does not count, and
    a loop is no link.

    Args:
        graph: on the CPU.
        edge_type: the relation of the links.
        reverse: the relation with their reverses, which are held out, too; or None.
        val, test: shares of the links, rounded down; at least one link remains for each part.
        seed: of the draw, `0 <= seed < 2**64`.

    Raises:
        TypeError, ValueError: a share is none, or the shares leave no links for a part; another relation has the
            reverses of more than half of the links, or nearly the same links, so that a model would see those held out.
    """
    val, test = check_shares(val, test)
    check_on_cpu(graph)
    edges = {key: _ends(graph.relation(key)) for key in graph.edge_types}
    count = len(graph.node_types[edge_type[2]])
    every = edges[edge_type]
    own = reverse == edge_type
    if own:
        every = every.sort(1).values
        every = every[every[:, 0] != every[:, 1]]
    keys = _keys(every, count).unique()
    links = torch.stack([keys // max(count, 1), keys % max(count, 1)], 1)
    for key, ends in edges.items():
        if key not in (edge_type, reverse) and (key[0], key[2]) == (edge_type[0], edge_type[2]):
            _check_no_copy(edge_type, keys, key, _keys(ends, count).unique())
        if key == reverse or (key[0], key[2]) != (edge_type[2], edge_type[0]):
            continue
        turned = ends.sort(1).values if own else ends.flip(1)
        if key == edge_type:
            turned = turned[turned[:, 0] != turned[:, 1]]  # a loop goes with its link
        shown = int(torch.isin(keys, _keys(turned, count)).sum())
        if 2 * shown > keys.numel():
            way = f"name it, reverse={'__'.join(key)}, with exclude=reverse"
            raise ValueError(
                f"the relation {key} has the reverse of {shown} of the {keys.numel()} links of {edge_type}, more than "
                "half of them, so a model would see links that are held out: "
                + (way if reverse is None else f"leave it out of the graph, as reverse is {'__'.join(reverse)}")
            )
    pairs = shared_out(links, val, test, seed)
    held = _keys(torch.cat([pairs["val"], pairs["test"]]), count)
    seen = dict(edges)
    seen[edge_type] = _without(seen[edge_type], held, count)
    if reverse is not None:
        seen[reverse] = _without(seen[reverse].flip(1), held, count).flip(1)
    sizes = {name: len(ids) for name, ids in graph.node_types.items()}
    known = torch.cat([links, links.flip(1)]) if own else links
    return LinkSplit(
        HeteroGraph.from_edges({key: ends.t() for key, ends in seen.items()}, sizes),
        HeteroGraph.from_edges({edge_type: known.t()}, sizes),
        pairs,
    )


def _check_no_copy(edge_type: EdgeType, links: Tensor, key: EdgeType, others: Tensor) -> None:
    """Raises ValueError if another relation has nearly the same links, and warns if the two share more than half of
    those of each.

    The links of "likes" beside "follows", and those of many more "clicks" beside "buys", may be known in advance.
    """
    shown, most = int(torch.isin(links, others).sum()), max(links.numel(), others.numel())
    what = f"the relation {key} has {shown} of the {links.numel()} links of {edge_type} among its {others.numel()}"
    if shown > _NEARLY * most:
        raise ValueError(
            f"{what}, nearly the same ones, so a model would see links that are held out: leave it out of the graph"
        )
    if 2 * shown > most:
        log.warning(
            "%s, so a model sees many of those that are held out; unless they are known in advance, leave it out of "
            "the graph",
            what,
        )


def _ends(relation: Graph) -> Tensor:
    """`[edges, 2]` int64, sources and destinations."""
    dst = torch.arange(relation.num_dst).repeat_interleave(relation.in_degrees().long())
    return torch.stack([relation.indices.long(), dst], 1)


def _keys(pairs: Tensor, num_targets: int) -> Tensor:
    return pairs[:, 0] * num_targets + pairs[:, 1]


def _without(pairs: Tensor, held: Tensor, num_targets: int) -> Tensor:
    return pairs[~torch.isin(_keys(pairs, num_targets), held)]

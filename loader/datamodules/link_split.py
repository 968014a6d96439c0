"""Holds links out of a graph, for a model to predict."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from loader.graph import Graph, require_graph
from loader.items import Order
from loader.machine.arguments import as_number
from loader.samplers.base import AnyGraph


@dataclass(frozen=True)
class LinkSplit:
    """The links of an undirected graph, or of one relation, in three parts, and the graph of the first part.

    Attributes:
        graph: the train links as edges, in both directions; with types also the edges of other relations. A model may
            use only these.
        known: all links as edges, in both directions unless they have two types. Strict negatives are none of these.
        pairs: "train", "val", "test" -> `[n, 2]` int64, each link once, without types the smaller node first.
    """

    graph: AnyGraph
    known: AnyGraph
    pairs: dict[str, Tensor]


def split_links(graph: Graph, *, val: float = 0.05, test: float = 0.10, seed: int = 0) -> LinkSplit:
    """Holds random links out for validation and test, by default as many as Kipf and Welling 2016.

    A link is a pair of different nodes with an edge in either direction, or in both. Loops are no links.

    Args:
        graph: on the CPU.
        val, test: shares of the links, rounded down; at least one link remains for each part.
        seed: of the draw, `0 <= seed < 2**64`.

    Raises:
        TypeError, ValueError: a share is none, or the shares leave no links for a part.
    """
    require_graph(graph, hetero=False)
    val, test = check_shares(val, test)
    check_on_cpu(graph)
    n = graph.num_nodes
    src, dst = graph.indices.long(), torch.arange(n).repeat_interleave(graph.in_degrees().long())
    low, high = torch.minimum(src, dst), torch.maximum(src, dst)
    keys = torch.unique((low * n + high)[low != high])
    links = torch.stack([keys // max(n, 1), keys % max(n, 1)], 1)
    pairs = shared_out(links, val, test, seed)
    split = LinkSplit(_both_ways(pairs["train"], n), _both_ways(links, n), pairs)
    check_no_leak(split)
    return split


def check_on_cpu(graph: AnyGraph) -> None:
    """Raises ValueError for a graph that does not lie on the CPU."""
    if graph.device.type != "cpu":
        raise ValueError(f"the graph lies on {graph.device}; links are split on the CPU: graph.to('cpu')")


def shared_out(links: Tensor, val: float, test: float, seed: int) -> dict[str, Tensor]:
    """The links of each part, at random; raises ValueError if there are none for one."""
    sizes = {"val": int(val * len(links)), "test": int(test * len(links))}
    sizes["train"] = len(links) - sum(sizes.values())
    if short := [split for split in ("train", "val", "test") if sizes[split] < 1]:
        raise ValueError(
            f"val={val} and test={test} of {len(links)} links leave none for {short[0]}; give shares above 0 that "
            "leave some to train on"
        )
    order = Order(len(links), shuffle=True, seed=seed).at(0, 0, len(links), torch.device("cpu"))
    parts = links[order].split([sizes["val"], sizes["test"], sizes["train"]])
    return dict(zip(("val", "test", "train"), parts, strict=True))


def check_shares(val: float, test: float) -> tuple[float, float]:
    """Both as floats; raises TypeError or ValueError unless they are above 0 and leave some links."""
    shares = as_number("val", val), as_number("test", test)
    for name, share in zip(("val", "test"), shares, strict=True):
        if not 0 < share < 1:
            raise ValueError(f"{name} is {share}; it must be above 0 and below 1, a share of the links")
    if sum(shares) >= 1:
        raise ValueError(f"val and test are {val} and {test}; together they must be below 1, to leave some to train on")
    return shares


def check_no_leak(split: LinkSplit) -> None:
    """Raises ValueError if a held-out link is an edge, in either direction, of the graph that a model sees."""
    graph = split.graph
    assert isinstance(graph, Graph)
    dst = torch.arange(graph.num_nodes).repeat_interleave(graph.in_degrees().long())
    edges = graph.indices.long() * graph.num_nodes + dst
    for name in ("val", "test"):
        for ends in (split.pairs[name], split.pairs[name].flip(1)):
            seen = torch.isin(ends[:, 0] * graph.num_nodes + ends[:, 1], edges)
            if bool(seen.any()):
                u, v = ends[int(seen.nonzero()[0])].tolist()
                raise ValueError(
                    f"the graph has the edge {u} -> {v}, which is a link of the {name} split: a model that sees the "
                    "graph knows the answer. Leave the edge out"
                )


def _both_ways(links: Tensor, num_nodes: int) -> Graph:
    src, dst = torch.cat([links, links.flip(1)]).t()
    return Graph.from_edges(src.contiguous(), dst.contiguous(), num_nodes)

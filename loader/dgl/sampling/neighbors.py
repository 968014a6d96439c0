"""`dgl.sampling.sample_neighbors`, `sample_neighbors_biased` and `sample_labors` on our samplers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader.dgl.original_dgl import drawn
from loader.dgl.sampling.frontier import (
    EdgeType,
    by_relation,
    by_type,
    edges_by_type,
    frontier,
    is_out,
    refusing_as_dgl,
    require_graph,
    weights_by_type,
)
from loader.dgl.sampling.lists import Picked, lists_of
from loader.graph.checks import check_weights
from loader.loaders.torch_options import refuse
from loader.machine.arguments import as_flag, as_index, shown
from loader.machine.memo import Memo

_INSTEAD = "dgl.sampling, which has it on the CPU"
_weights = Memo()  # of tags, for the last bias


@refusing_as_dgl
def sample_neighbors(
    g: Any,
    nodes: Any,
    fanout: Any,
    edge_dir: str = "in",
    prob: str | None = None,
    replace: bool = False,
    copy_ndata: bool = True,
    copy_edata: bool = True,
    exclude_edges: Any = None,
    output_device: Any = None,
) -> Any:
    """`dgl.sampling.sample_neighbors`: the graph of all nodes and only the edges that `nodes` pick.

    The edges come in the order of `nodes`. If a node is given several times, its picks are independent. After
    the same `dgl.seed` the same edges are picked, with any number of threads.

    Args:
        g: where to pick; of one or several types.
        nodes: `[n]`, or a dict by type if there are several.
        fanout: picks per node and edge type: 0 to 1024, or -1 for all; or a dict by edge type. Without replacement
            also more, if no node has more neighbors than that.
        edge_dir: "in" picks from the edges that end at the nodes, "out" from those that begin there.
        prob: name in `g.edata` of weights, float32 or float64, or of a mask. Edges of weight 0, or outside of the mask,
            are never picked. Edge types without it are picked uniformly.
        replace: pick with replacement.
        copy_ndata: the graph has the features of nodes.
        copy_edata: the graph has the features of its edges, and their ids as `dgl.EID`.
        exclude_edges: ids of edges that are not picked, or a dict by edge type.
        output_device: where the graph goes; by default it stays where `g` is.

    Raises:
        TypeError, ValueError: an argument is not as said above. The latter is a `dgl.DGLError`, too.
    """
    require_graph(g)
    again = as_flag("replace", replace)
    weights, left_out = weights_by_type(g, "prob", prob), edges_by_type(g, "exclude_edges", exclude_edges)
    seeds, fanouts, out = by_type(g, nodes), by_relation(g, "fanout", fanout), is_out(edge_dir)
    epoch, picked = drawn(), {}
    for number, key in enumerate(g.canonical_etypes):
        at = seeds.get(key[0] if out else key[2])
        if at is not None and fanouts[key] != 0:
            lists = lists_of(g, key, weights.get(key), out=out)
            picked[key] = lists.pick(at, fanouts[key], epoch, number, left_out.get(key), replace=again)
    return frontier(g, seeds, picked, out=out, copy_ndata=copy_ndata, copy_edata=copy_edata, device=output_device)


@refusing_as_dgl
def sample_neighbors_biased(
    g: Any,
    nodes: Any,
    fanout: int,
    bias: Any,
    edge_dir: str = "in",
    tag_offset_name: str = "_TAG_OFFSET",
    replace: bool = False,
    copy_ndata: bool = True,
    copy_edata: bool = True,
    output_device: Any = None,
) -> Any:
    """`dgl.sampling.sample_neighbors_biased`: as `sample_neighbors`, by weights of the neighbors' tags.

    Args:
        g: of one edge type, sorted by `dgl.sort_csc_by_tag`, or for `edge_dir="out"` by `dgl.sort_csr_by_tag`.
        bias: `[num_tags]`, the weight of each tag.
        tag_offset_name: of the column of nodes that the sorting made.
        nodes, fanout, edge_dir, replace, copy_ndata, copy_edata, output_device: see `sample_neighbors`.

    Raises:
        TypeError, ValueError: as `sample_neighbors`; the graph has several edge types or was not sorted.
    """
    require_graph(g)
    if len(g.canonical_etypes) > 1:
        raise ValueError(f"g has the edge types {g.canonical_etypes}; tags need a graph with one")
    (key,), out = g.canonical_etypes, is_out(edge_dir)
    own = key[0] if out else key[2]
    if tag_offset_name not in g.nodes[own].data:
        sort = "sort_csr_by_tag" if out else "sort_csc_by_tag"
        raise ValueError(f"tag_offset_name is {shown(tag_offset_name)}, which nodes do not have; call dgl.{sort} first")
    seeds = by_type(g, nodes if isinstance(nodes, dict) else {own: nodes})
    count = by_relation(g, "fanout", fanout)[key]
    again = as_flag("replace", replace)
    weights = _tag_weights(g, key, bias, g.nodes[own].data[tag_offset_name], out)
    epoch, picked = drawn(), {}
    if count != 0 and own in seeds:
        picked[key] = lists_of(g, key, weights, out=out).pick(seeds[own], count, epoch, 0, replace=again)
    return frontier(g, seeds, picked, out=out, copy_ndata=copy_ndata, copy_edata=copy_edata, device=output_device)


@refusing_as_dgl
def sample_labors(
    g: Any,
    nodes: Any,
    fanout: Any,
    edge_dir: str = "in",
    prob: str | None = None,
    importance_sampling: int = 0,
    random_seed: Any = None,
    seed2_contribution: float = 0,
    copy_ndata: bool = True,
    copy_edata: bool = True,
    exclude_edges: Any = None,
    output_device: Any = None,
) -> tuple[Any, list[Tensor]]:
    """`dgl.sampling.sample_labors`: LABOR, see `loader.dgl.LaborSampler`.

    A node gets `fanout` neighbors on average, by each edge type. A neighbor has one random number for all nodes and
    edge types that may pick it. With `prob` or `importance_sampling` the law is that of
    `loader.samplers.labor.labor_picks`, and the graph lies on the CPU.

    Args:
        random_seed: a tensor of one integer: calls with the same one give a neighbor the same random number. By default
            DGL's generator draws it.
        prob: name in `g.edata` of weights, float32 or float64, or of a mask. Edges of weight 0 are as if they were not
            there. Edge types without it are picked with equal probability. None: so are all.
        importance_sampling: iterations after which the neighbors that several nodes may pick are picked more often
            (LABOR-i); a negative number goes on until that converges.
        seed2_contribution: an option of DGL; must have its default, 0.
        exclude_edges: see `sample_neighbors`; they are left out after they were picked.
        g, nodes, fanout, edge_dir, copy_ndata, copy_edata, output_device: see `sample_neighbors`.

    Returns:
        The graph, and for each edge type `[n]` weights of the messages of its edges, of the type of `prob` or float32,
        whose mean is 1 for each node. It is an empty tensor where nothing is picked, and of edge types that are picked
        with equal probability.

    Raises:
        NotImplementedError: an option of DGL is not supported, or the graph does not lie on the CPU.
        TypeError, ValueError: as `sample_neighbors`.
    """
    refuse("sample_labors", _INSTEAD, {"seed2_contribution": (seed2_contribution or None, None)})
    epoch = drawn() if random_seed is None else _as_seed(random_seed)
    how = {"prob": prob, "importance_sampling": importance_sampling, "exclude_edges": exclude_edges}
    made, importances = labor_frontier(
        g, nodes, fanout, epoch, 0, edge_dir=edge_dir, copy_ndata=copy_ndata, copy_edata=copy_edata, **how
    )
    none = torch.empty(0, dtype=torch.int64)
    importances = {key: importances.get(key, none) for key in g.canonical_etypes}
    made = made if output_device is None else made.to(output_device)
    return made, [of.to(made.device) for of in importances.values()]


def labor_frontier(
    g: Any,
    nodes: Any,
    fanout: Any,
    epoch: int,
    batch: int,
    *,
    edge_dir: str = "in",
    prob: str | None = None,
    importance_sampling: int = 0,
    exclude_edges: Any = None,
    copy_ndata: bool = True,
    copy_edata: bool = True,
) -> tuple[Any, dict[EdgeType, Tensor]]:
    """What `sample_labors` returns, the weights by edge type if there are any.

    Args:
        epoch, batch: they decide the random numbers of the neighbors.
        g, nodes, fanout, edge_dir, prob, importance_sampling, exclude_edges, copy_ndata, copy_edata: see
            `sample_labors`.
    """
    require_graph(g)
    iterations = as_index(importance_sampling)
    if iterations is None:
        raise TypeError(f"importance_sampling is {shown(importance_sampling)}; it must be an integer")
    weights = labor_weights(g, prob, iterations)
    left_out = edges_by_type(g, "exclude_edges", exclude_edges)
    seeds, fanouts, out = by_type(g, nodes), by_relation(g, "fanout", fanout), is_out(edge_dir)
    picked, importances = {}, {}
    for key in g.canonical_etypes:
        at = seeds.get(key[0] if out else key[2])
        if at is None or fanouts[key] == 0:
            continue
        lists = lists_of(g, key, weights.get(key), out=out)
        if key in weights or iterations:
            edges, importance = lists.pick_by_importance(at, fanouts[key], iterations, epoch, batch)
            double = key in weights and weights[key].dtype == torch.float64
            importances[key] = importance if double else importance.float()
        else:
            edges = lists.pick(at, fanouts[key], epoch, batch, labor=True)
        if key in left_out:
            stay = ~torch.isin(edges.ids, left_out[key].to(edges.ids))
            edges = Picked(*(part[stay] for part in edges))
            if key in importances:
                importances[key] = importances[key][stay]
        picked[key] = edges
    made = frontier(g, seeds, picked, out=out, copy_ndata=copy_ndata, copy_edata=copy_edata, device=None)
    return made, importances


def labor_weights(g: Any, prob: str | None, iterations: int) -> dict[EdgeType, Tensor]:
    """Edge type -> `[num_edges]` weights by which LABOR picks.

    Raises:
        NotImplementedError: there are some, or iterations, and the graph does not lie on the CPU.
        TypeError, ValueError: see `weights_by_type`.
    """
    weights = weights_by_type(g, "prob", prob)
    if (weights or iterations) and g.device.type != "cpu":
        raise NotImplementedError(
            f"{'prob' if weights else 'importance_sampling'} of LABOR needs a graph on the CPU, and this one lies on "
            f"{g.device}; give g.cpu()"
        )
    return weights


def _as_seed(value: Any) -> int:
    """The number in a tensor of one integer, as unsigned."""
    if not isinstance(value, Tensor) or value.numel() != 1 or value.is_floating_point():
        raise TypeError(f"random_seed is {shown(value)}; it must be a tensor of one integer")
    return int(value) % 2**64


def _tag_weights(g: Any, key: EdgeType, bias: Any, offsets: Tensor, out: bool) -> Tensor:
    """`[num_edges]` weights of the edges, by id, that the tags of neighbors give. They are kept for the next call.

    Args:
        offsets: `[n, num_tags + 1]`, where the tags begin in the list of each node.
    """
    by_tag = torch.as_tensor(bias)
    if by_tag.shape != (offsets.shape[-1] - 1,):
        raise ValueError(
            f"bias has shape {list(by_tag.shape)}, and the graph is sorted by {offsets.shape[-1] - 1} tags; give a "
            "weight for each"
        )
    by_tag = by_tag.float() if not by_tag.is_floating_point() else by_tag.detach()
    check_weights(by_tag, torch.arange(by_tag.numel()))
    made: dict[Any, Tensor] = _weights.get(g._graph, (g.num_nodes(), g.num_edges()), (key, out), Memo).get_of(
        [offsets], None, dict
    )
    values = tuple(by_tag.tolist()), by_tag.dtype
    if values not in made:
        made.clear()
        indptr, _, ids = g.adj_tensors("csr" if out else "csc", etype=key)
        rows = torch.arange(indptr.numel() - 1, device=indptr.device).repeat_interleave(indptr.diff().long())
        places = torch.arange(rows.numel(), device=rows.device) - indptr.long()[rows]
        tags = (offsets[rows, 1:] <= places[:, None]).sum(1)
        weights = by_tag.to(rows.device)[tags]
        made[values] = weights if ids.numel() == 0 else torch.empty_like(weights).index_copy_(0, ids.long(), weights)
    return made[values]

"""Partitions of a graph by METIS."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from loader.graph.checks import check_integers, signed
from loader.graph.csc import Graph, require_square
from loader.graph.foreign import require_graph
from loader.machine.arguments import as_flag, as_size
from loader.machine.optional import import_optional

_MOST = 2**31 - 1  # of METIS' numbers, as pymetis builds it


def metis_parts(
    graph: Graph,
    num_parts: int,
    *,
    recursive: bool = False,
    node_weights: Tensor | None = None,
    wanted_by: str = "metis_parts",
) -> Tensor:
    """Divides the nodes of a graph into parts of about equal size with few edges between them.

    METIS does it (Karypis and Kumar, SIAM J. Sci. Comput. 1998), by the package pymetis. It sees each pair of nodes
    that an edge joins, in whichever direction, once; loops are left out. Equal graphs give equal parts.

    Args:
        graph: of one type.
        num_parts: number of parts, at least 1. Some may be empty.
        recursive: divide by two again and again, in place of into all parts at once.
        node_weights: `[num_nodes]` integers, at least 0, with a sum below 2**31: parts have about equal sums of these;
            None: equal numbers of nodes.
        wanted_by: who asks, for the message of the ImportError.

    Returns:
        `[num_nodes]` int64 on the CPU, the part of each node. Parts are numbered in the order of their lowest nodes.

    Raises:
        ImportError: pymetis is missing.
        TypeError, ValueError: an argument is not as said above; the graph has 2**31 pairs of nodes or more.
    """
    require_graph(graph, hetero=False)
    require_square(graph, wanted_by)
    num_parts, recursive = as_size("num_parts", num_parts, most=_MOST), as_flag("recursive", recursive)
    if node_weights is not None and node_weights.shape != (graph.num_nodes,):
        raise ValueError(
            f"node_weights has shape {list(node_weights.shape)}; it must be [{graph.num_nodes}], a weight per node"
        )
    if node_weights is not None:
        check_integers("node_weights", node_weights, ": METIS knows whole numbers only")
        given = signed("node_weights", node_weights).cpu().double()  # whose sum does not wrap round
        if given.numel() and (float(given.min()) < 0 or float(given.sum()) > _MOST):
            raise ValueError(
                f"node_weights go from {given.min():.0f} to {given.max():.0f}, with the sum {given.sum():.0f}; "
                "they must be at least 0, with a sum below 2**31: divide them"
            )
    pymetis = import_optional("pymetis", wanted_by, "metis")
    if graph.num_nodes == 0 or num_parts == 1:
        return torch.zeros(graph.num_nodes, dtype=torch.int64)
    indptr = graph.indptr.cpu().long()
    source = graph.indices.cpu().long()
    target = torch.arange(graph.num_nodes).repeat_interleave(indptr.diff())
    apart = source != target
    source, target = source[apart], target[apart]
    keys = torch.unique(torch.cat([target * graph.num_nodes + source, source * graph.num_nodes + target]))
    if keys.numel() > _MOST:
        raise ValueError(f"the graph joins {keys.numel()} ordered pairs of nodes; METIS takes fewer than 2**31")
    ends = torch.bincount(torch.div(keys, graph.num_nodes, rounding_mode="floor"), minlength=graph.num_nodes)
    begins = np.concatenate([[0], ends.cumsum(0).numpy()]).astype(np.int32)
    neighbors = (keys % graph.num_nodes).numpy().astype(np.int32)
    weights = None if node_weights is None else node_weights.cpu().numpy().astype(np.int32)
    # Since 2025 pymetis wants them as one object.
    one = getattr(pymetis, "CSRAdjacency", None)
    lists = {"xadj": begins, "adjncy": neighbors} if one is None else {"adjacency": one(begins, neighbors)}
    _, parts = pymetis.part_graph(num_parts, **lists, vweights=weights, recursive=recursive)
    found = np.asarray(parts, dtype=np.int64)
    of, firsts = np.unique(found, return_index=True)
    number = np.empty(num_parts, dtype=np.int64)
    number[of[np.argsort(firsts)]] = np.arange(of.size)
    return torch.from_numpy(number[found])

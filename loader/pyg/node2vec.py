"""torch_geometric's models of random walks on our walks, which are made on the model's device, with any `p` and `q`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor

from loader.graph import Graph
from loader.graph.checks import MAX_NODES, check_range
from loader.machine.arguments import as_finite, as_size, check_known, shown
from loader.samplers.walk_call import random_walk


class Node2Vec(torch_geometric.nn.Node2Vec):
    """`torch_geometric.nn.Node2Vec`, with walks and negative samples made on the device of the embedding.

    It has the same arguments, attributes and methods, and a `state_dict` of one can be loaded into the other. The walks
    are those of `loader.random_walk`. Their seed is drawn from torch's CPU generator, so `torch.manual_seed` decides
    them. A walk that reaches a node without out-edges stays there. The tensors of `loader()` lie on the device of the
    embedding. On a GPU `num_workers` must be 0, because worker processes cannot use the GPU.

    Raises:
        TypeError, ValueError: `edge_index` is no tensor `[2, num_edges]`, or a window is longer than a walk.
    """

    def __init__(
        self, edge_index: Tensor, embedding_dim: int, walk_length: int, context_size: int, *args: Any, **options: Any
    ) -> None:
        _check_edges("edge_index", edge_index)
        _check_windows(walk_length, context_size)
        given = _given(
            torch_geometric.nn.Node2Vec, edge_index, embedding_dim, walk_length, context_size, *args, **options
        )
        for name in ("p", "q"):
            as_finite(name, given.get(name, 1.0), positive=True)
        _check_nodes("edge_index", edge_index, given.get("num_nodes"))  # it would write beyond its arrays
        super().__init__(edge_index, embedding_dim, walk_length, context_size, *args, **options)
        del self.random_walk_fn  # an operator, which neither a copy nor a pickle of the model can hold

    def pos_sample(self, batch: Tensor) -> Tensor:
        """`[windows * walks_per_node * len(batch), context_size]` windows of walks from `batch`."""
        graph = _on(self, "_walked", lambda: Graph(self.rowptr, self.col))
        starts = batch.to(graph.device).repeat(self.walks_per_node)
        walks = _walks(graph, starts, self.walk_length, p=self.p, q=self.q)
        ended = walks < 0  # stays at the last node that it came to
        last = (~ended).sum(1, keepdim=True) - 1
        return _windows(torch.where(ended, walks.gather(1, last), walks), self.context_size)

    def neg_sample(self, batch: Tensor) -> Tensor:
        """Windows as `pos_sample` gives them, of walks whose nodes, but the first, are drawn uniformly from all."""
        starts = batch.to(self.embedding.weight.device).repeat(self.walks_per_node * self.num_negative_samples)
        others = torch.randint(self.num_nodes, (len(starts), self.walk_length), device=starts.device)
        return _windows(torch.cat([starts[:, None], others], 1), self.context_size)

    def sample(self, batch: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        """The positive and the negative samples of `batch`, as `loader()` yields them."""
        nodes = torch.as_tensor(batch)
        return self.pos_sample(nodes), self.neg_sample(nodes)


class MetaPath2Vec(torch_geometric.nn.MetaPath2Vec):
    """`torch_geometric.nn.MetaPath2Vec`, with walks and negative samples made on the device of the embedding.

    See `Node2Vec`. If a walk reaches a node without edges of the next type, it goes to the dummy node.

    Raises:
        TypeError, ValueError: edges are no tensor `[2, num_edges]`, or `metapath` holds a type that has none.
    """

    def __init__(
        self, edge_index_dict: dict[Any, Tensor], embedding_dim: int, metapath: list[Any], *args: Any, **options: Any
    ) -> None:
        if not isinstance(edge_index_dict, Mapping):
            raise TypeError(
                f"edge_index_dict is {shown(edge_index_dict)}; it must be a dict from types of edges, (source, "
                "relation, destination), to edges [2, num_edges]"
            )
        if not isinstance(metapath, (list, tuple)) or not metapath:
            raise ValueError(f"metapath is {shown(metapath)}; it must be a list of types of edges, one or more")
        for kind in metapath:
            if kind not in edge_index_dict:
                raise ValueError(f"metapath holds {shown(kind)}; edge_index_dict has {list(edge_index_dict)}")
        given = _given(torch_geometric.nn.MetaPath2Vec, edge_index_dict, embedding_dim, metapath, *args, **options)
        counts: Any = given.get("num_nodes_dict")
        for kind, edges in edge_index_dict.items():
            _check_edges(f"edge_index_dict[{kind!r}]", edges)
            _check_nodes(f"edge_index_dict[{kind!r}]", edges, None)
            for end, name in ((0, kind[0]), (1, kind[-1])) if counts is not None else ():
                if name not in counts:
                    raise ValueError(f"num_nodes_dict has {list(counts)}, and edge_index_dict {name!r}; give it, too")
                _check_nodes(f"edge_index_dict[{kind!r}][{end}], of type {name!r},", edges[end], counts[name])
        _check_windows(given["walk_length"], given["context_size"])
        if given["walk_length"] > len(metapath) and metapath[0][0] != metapath[-1][-1]:
            raise ValueError(
                f"walk_length is {given['walk_length']}, and metapath has {len(metapath)} types of edges, from "
                f"{metapath[0][0]!r} to {metapath[-1][-1]!r}; it repeats only if it ends where it begins: shorten the "
                "walks, or close the metapath"
            )
        super().__init__(edge_index_dict, embedding_dim, metapath, *args, **options)
        kinds = sorted(set(metapath))
        self._path = [kinds.index(kind) for kind in metapath]
        # Walks go from the sources, which are listed at the destinations of a `Graph`.
        from_ = [edge_index_dict[kind][0].cpu() + self.start[kind[0]] for kind in kinds]
        to = [edge_index_dict[kind][1].cpu() + self.start[kind[-1]] for kind in kinds]
        types = [torch.full((len(ends),), i) for i, ends in enumerate(to)]
        self._hetero = Graph.from_edges(torch.cat(to), torch.cat(from_), self.dummy_idx, edge_types=torch.cat(types))

    def _pos_sample(self, batch: Tensor) -> Tensor:
        graph, first = _on(self, "_walked", lambda: self._hetero), self.metapath[0][0]
        check_range(f"batch, of type {first!r},", batch, self.end[first] - self.start[first])
        starts = batch.to(graph.device).repeat(self.walks_per_node) + self.start[first]
        walks = _walks(graph, starts, self.walk_length, metapath=self._path)
        return _windows(torch.where(walks < 0, self.dummy_idx, walks), self.context_size)

    def _neg_sample(self, batch: Tensor) -> Tensor:
        device = self.embedding.weight.device
        starts = batch.to(device).repeat(self.walks_per_node * self.num_negative_samples)
        columns = [starts + self.start[self.metapath[0][0]]]
        for i in range(self.walk_length):
            kind = self.metapath[i % len(self.metapath)][-1]
            columns.append(torch.randint(self.start[kind], self.end[kind], (len(starts),), device=device))
        return _windows(torch.stack(columns, 1), self.context_size)


def _given(model: type, *args: Any, **options: Any) -> dict[str, Any]:
    """The arguments of a model of torch_geometric by their names, of which the sizes are checked."""
    signature = inspect.signature(model)
    check_known(model.__name__, options, list(signature.parameters))
    given = signature.bind(*args, **options).arguments
    for name in ("embedding_dim", "walks_per_node", "num_negative_samples"):
        as_size(name, given.get(name, 1))
    return given


def _check_edges(name: str, edges: Any) -> None:
    if not isinstance(edges, Tensor):
        raise TypeError(f"{name} is {shown(edges)}; it must be a tensor [2, num_edges]")
    if edges.dim() != 2 or edges.shape[0] != 2:
        raise ValueError(f"{name} has shape {list(edges.shape)}; it must be [2, num_edges]")


def _check_nodes(name: str, edges: Tensor, num_nodes: int | None) -> None:
    if edges.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name} has dtype {edges.dtype}; it must be torch.int64: {name}.long()")
    if num_nodes is not None:
        num_nodes = as_size("num_nodes", num_nodes)
    if edges.numel():
        check_range(name, edges, MAX_NODES if num_nodes is None else num_nodes)


def _check_windows(walk_length: Any, context_size: Any) -> None:
    context_size = as_size("context_size", context_size)
    as_size("walk_length", walk_length)
    if walk_length < context_size:
        raise ValueError(
            f"context_size is {context_size}, walk_length {walk_length}; a walk must be as long as a window"
        )


def _on(model: Any, name: str, make: Any) -> Graph:
    """The graph where the embedding of `model` lies; kept for the next call, without being a part of its state."""
    device = model.embedding.weight.device
    graph: Graph | None = model.__dict__.get(name)
    if graph is None or graph.device != device:
        graph = model.__dict__[name] = make().to(device)
    return graph


def _walks(graph: Graph, starts: Tensor, length: int, **law: Any) -> Tensor:
    walks = random_walk(graph, starts, length, seed=int(torch.randint(2**63 - 1, ())), **law)
    assert isinstance(walks, Tensor)
    return walks.long()


def _windows(walks: Tensor, size: int) -> Tensor:
    """All windows of all walks, window after window as torch_geometric has them."""
    return walks.unfold(1, size, 1).transpose(0, 1).reshape(-1, size)

"""The sampler around edges, with the signature of `dgl.dataloading.as_edge_prediction_sampler`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from loader.dgl.graphs import DGLS, edge_types, of_one_type
from loader.dgl.hetero import by_edge_type, edge_type
from loader.dgl.negative_sampler import negatives_of
from loader.dgl.original_dgl import dataloading
from loader.dgl.samplers import BlockSampler, names_of
from loader.dgl.subgraphs import ShaDowKHopSampler
from loader.graph.interop import dgl_edges
from loader.items.items import as_nodes
from loader.loaders.torch_options import as_ids
from loader.machine.arguments import kind_of, shown
from loader.machine.optional import import_dgl
from loader.samplers import Negatives


class EdgePredictionSampler:
    """What `as_edge_prediction_sampler` returns."""

    def __init__(
        self,
        sampler: Any,
        exclude: Any = None,
        reverse_eids: Any = None,
        reverse_etypes: Any = None,
        negative_sampler: Any = None,
        prefetch_labels: Any = None,
    ) -> None:
        if not isinstance(sampler, (BlockSampler, ShaDowKHopSampler, dataloading("base").Sampler)):
            raise TypeError(
                f"sampler is {kind_of(sampler)}; it must be a NeighborSampler or LaborSampler of loader.dgl, another "
                "BlockSampler, or a sampler of DGL around nodes"
            )
        try:
            inspect.signature(sampler.sample).bind("g", "seed_nodes", "exclude_eids")
        except TypeError:
            raise TypeError(
                f"{type(sampler).__name__}.sample takes no ids of edges to leave out; it must take (g, seed_nodes, "
                "exclude_eids=None)"
            ) from None
        named = exclude is None or (isinstance(exclude, str) and exclude in ("self", "reverse_id", "reverse_types"))
        if not named and not callable(exclude):
            raise NotImplementedError(
                f"exclude is {shown(exclude)}; None, 'self', 'reverse_id', 'reverse_types' and a function are "
                f"possible, or take {DGLS}"
            )
        if reverse_eids is None and isinstance(exclude, str) and exclude == "reverse_id":
            raise ValueError("exclude='reverse_id' needs reverse_eids, the reverse of each edge")
        by_types = isinstance(exclude, str) and exclude == "reverse_types"
        if (reverse_etypes is not None) != by_types and not callable(exclude):
            raise ValueError(
                f"exclude is {shown(exclude)} and reverse_etypes {shown(reverse_etypes)}; exclude='reverse_types' and "
                "reverse_etypes, a dict from each edge type to its reverse, need each other"
            )
        if reverse_etypes is not None and not isinstance(reverse_etypes, Mapping):
            raise TypeError(f"reverse_etypes is {shown(reverse_etypes)}; it must be a dict: edge type -> its reverse")
        for ids in reverse_eids.values() if isinstance(reverse_eids, Mapping) else [reverse_eids]:
            if ids is not None and not isinstance(ids, Tensor):
                raise TypeError(f"reverse_eids is {shown(ids)}; it must be a tensor of edge ids, [num_edges]")
        self.sampler, self.exclude = sampler, exclude
        self.reverse_eids, self.reverse_etypes = reverse_eids, reverse_etypes
        self.negative_sampler, self.output_device = negative_sampler, None
        self.negatives()
        self.prefetch_labels = names_of("prefetch_labels", prefetch_labels)

    def sample(self, g: Any, seed_edges: Any) -> tuple[Any, ...]:
        """`(input_nodes, pair_graph, blocks)` or, with negatives, `(input_nodes, pair_graph, neg_graph, blocks)`.

        Args:
            seed_edges: `[n]` ids of edges, or a dict to them from the type.
        """
        dgl = import_dgl("loader.dgl")
        if isinstance(seed_edges, Mapping):
            seed_edges = {g.to_canonical_etype(kind): ids for kind, ids in seed_edges.items()}
        graphs = [g.edge_subgraph(seed_edges, relabel_nodes=False)]
        ids = graphs[0].edata[dgl.EID]
        if self.negative_sampler is not None:
            graphs.append(self._build_neg_graph(g, seed_edges))
        graphs = dgl.compact_graphs(graphs)
        graphs[0].edata[dgl.EID] = ids
        nodes = graphs[0].ndata[dgl.NID]
        input_nodes, _, blocks = self.sampler.sample(g, nodes, self._excluded(g, ids, seed_edges))
        return self.assign_lazy_features((input_nodes, *graphs, blocks))

    def assign_lazy_features(self, result: tuple[Any, ...]) -> tuple[Any, ...]:
        """Marks the features of the positive edges to prefetch, which a `DataLoader` then fetches."""
        made: tuple[Any, ...] = dataloading("base").EdgePredictionSampler.assign_lazy_features(self, result)
        return made

    def _build_neg_graph(self, g: Any, seed_edges: Any) -> Any:
        """The graph of the pairs that the negative sampler returns."""
        drawn = self.negative_sampler(g, seed_edges)
        # Not by DGL: to it a short name of the type is another type, and the graph would have no edges.
        none = torch.empty(0, dtype=g.idtype, device=g.device)
        ends = dict.fromkeys(g.canonical_etypes, (none, none))
        ends |= by_edge_type("the result of negative_sampler", g, drawn)
        sizes = {name: g.num_nodes(name) for name in g.ntypes}
        return import_dgl("loader.dgl").heterograph(ends, sizes, idtype=g.idtype)

    def negatives(self) -> Negatives | None:
        """What the negative sampler draws; None if there is none, or if it has a method of its own."""
        return None if self.negative_sampler is None else negatives_of(self.negative_sampler)

    def reverses(self, g: Any) -> Tensor:
        """The reverse of each edge, `[num_edges]`, with `exclude="reverse_id"`."""
        found: Tensor = of_one_type("reverse_eids", self.reverse_eids, edge_types(g))
        return found

    def _excluded(self, g: Any, ids: Tensor, given: Any) -> Any:
        """Ids of the edges to leave out."""
        if self.exclude is None:
            return None
        if callable(self.exclude):  # on copies: DGL's samplers sort the ids that they are given in place
            own = {key: of.clone() for key, of in given.items()} if isinstance(given, Mapping) else given.clone()
            return self.exclude(own)
        if not g.is_homogeneous or self.exclude == "reverse_types":
            return self._excluded_by_type(g, by_edge_type("indices", g, given))
        if self.exclude == "reverse_id":
            ids = torch.cat([ids, self.reverses(g).to(ids)[ids.long()]])
        return g.edge_ids(*dgl_edges(g, ids), return_uv=True)[2]  # all parallel ones: each shows the answer

    def _excluded_by_type(self, g: Any, given: Mapping[Any, Tensor]) -> dict[Any, Tensor]:
        """The same, by type."""
        found = {key: [ids] for key, ids in given.items()}
        for key, ids in given.items():
            if self.exclude == "reverse_id":
                found[key].append(by_edge_type("reverse_eids", g, self.reverse_eids)[key].to(ids)[ids.long()])
            elif self.exclude == "reverse_types":
                back = self._reverse_types(g).get(key)
                if back is not None:
                    found.setdefault(back, []).append(ids)
        # All parallel ones: each shows the answer.
        return {
            key: g.edge_ids(*dgl_edges(g, torch.cat(parts), key), return_uv=True, etype=key)[2]
            for key, parts in found.items()
        }

    def check_types(self, g: Any, seeds: Mapping[Any, Any]) -> None:
        """Raises ValueError for reverses that do not fit a graph of several types.

        Args:
            seeds: ids of edges by type.
        """
        self._reverse_types(g)
        if self.exclude == "reverse_id":
            reverse = by_edge_type("reverse_eids", g, self.reverse_eids)
            for key, ids in seeds.items():
                if key not in reverse:
                    raise ValueError(f"reverse_eids has none for the edge type {key}; give the reverse of each edge")
                _check_reverses(reverse[key], g.num_edges(key))
                if key[0] != key[2]:
                    raise ValueError(
                        f"exclude is 'reverse_id', but edges of {key} have no reverses of the same type; "
                        "exclude='reverse_types' leaves out those of another type (reverse_etypes)"
                    )
                if numel := as_ids("indices", ids).numel():
                    own = as_ids("indices", ids).to(g.device, g.idtype).view(numel)
                    _check_ends(g, own, reverse[key], key)

    def _reverse_types(self, g: Any) -> dict[Any, Any]:
        """Edge type -> its reverse, whose edges have the same ids.

        Raises:
            ValueError: there is no such type, or the reverse leads elsewhere.
        """
        found = {}
        for key, back in (self.reverse_etypes or {}).items():
            forth, back = edge_type("reverse_etypes", g, key), edge_type("reverse_etypes", g, back)
            if (forth[0], forth[2]) != (back[2], back[0]):
                raise ValueError(f"reverse_etypes says that {back} is the reverse of {forth}, which joins other types")
            if g.num_edges(forth) != g.num_edges(back):
                raise ValueError(
                    f"reverse_etypes says that {back} is the reverse of {forth}, but they have {g.num_edges(back)} and "
                    f"{g.num_edges(forth)} edges; an edge and its reverse must have the same id"
                )
            found[forth] = back
        return found


def as_edge_prediction_sampler(
    sampler: BlockSampler,
    exclude: Any = None,
    reverse_eids: Any = None,
    reverse_etypes: Any = None,
    negative_sampler: Any = None,
    prefetch_labels: Any = None,
) -> EdgePredictionSampler:
    """Makes a sampler around edges of a sampler around nodes: `dgl.dataloading.as_edge_prediction_sampler`.

    Args:
        sampler: samples the neighborhood of the ends of edges.
        exclude: None; "self": leave the mini-batch's own edges out of the blocks; "reverse_id": and their reverses, of
            the same type; "reverse_types": and their reverses, of the edge type that `reverse_etypes` names. If a pair
            has parallel edges, all of them are left out, because a parallel edge also shows the answer. DGL leaves out
            only the edges of the given ids. Or a function of the mini-batch's edge ids that returns the ids to leave
            out; see `DataLoader` on functions of your own.
        reverse_eids: `[num_edges]`, with "reverse_id": the id of the reverse of each edge; or a dict by type.
        reverse_etypes: with "reverse_types": edge type -> the type of its reverse, whose edges have the same ids.
        negative_sampler: one of `loader.dgl.negative_sampler`, DGL's `Uniform`, or a function of the graph and the edge
            ids that returns sources and destinations.
        prefetch_labels: names in `g.edata`, gathered for the positive edges: `pair_graph.edata[name]`; by type if there
            are several.

    Raises:
        NotImplementedError: an option of DGL is not supported.
        TypeError, ValueError: an argument is not as said above.
    """
    return EdgePredictionSampler(sampler, exclude, reverse_eids, reverse_etypes, negative_sampler, prefetch_labels)


def links_of(g: Any, indices: Tensor, sampler: EdgePredictionSampler) -> Tensor:
    """The ends of the edges `indices`, `[n, 2]`, on the CPU.

    Raises:
        TypeError, ValueError: these are no ids of edges, or `reverse_eids` are no reverses.
    """
    if indices.dim() == 2:
        raise ValueError(
            f"indices has shape {list(indices.shape)}; it must be ids of edges [n]: graph.edge_ids(src, dst)"
        )
    ids = as_nodes("indices", indices).to(g.device, g.idtype)
    _check_edges("indices", ids, g.num_edges())
    source, target = dgl_edges(g, ids)
    if sampler.exclude == "reverse_id":
        whole = sampler.reverses(g)
        _check_reverses(whole, g.num_edges())
        _check_ends(g, ids, whole, g.canonical_etypes[0])
    return torch.stack([source, target], 1).cpu()


def _check_ends(g: Any, ids: Tensor, whole: Tensor, key: Any) -> None:
    """Raises ValueError unless `whole` says of the edges `ids` of a type which are their reverses."""
    source, target = dgl_edges(g, ids, key)
    reverse = whole.to(ids.device)[ids.long()]
    back, forth = dgl_edges(g, reverse.to(g.idtype), key)
    if not (torch.equal(back, target) and torch.equal(forth, source)):
        at = int(((back != target) | (forth != source)).nonzero()[0])
        raise ValueError(
            f"reverse_eids says that edge {int(reverse[at])}, {int(back[at])} -> {int(forth[at])}, is the "
            f"reverse of edge {int(ids[at])}, {int(source[at])} -> {int(target[at])}"
        )


def _check_reverses(ids: Tensor, num_edges: int) -> None:
    if ids.shape != (num_edges,) or ids.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"reverse_eids has shape {list(ids.shape)} and dtype {ids.dtype}; it must be int64 [{num_edges}], the "
            "reverse of each edge"
        )
    _check_edges("reverse_eids", ids, num_edges)


def _check_edges(name: str, ids: Tensor, num_edges: int) -> None:
    if ids.numel() == 0:
        return
    low, high = (int(x) for x in torch.aminmax(ids))
    if low < 0 or high >= num_edges:
        raise ValueError(f"{name} holds edge {low if low < 0 else high}; valid ids are 0 to {num_edges - 1}")

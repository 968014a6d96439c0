"""`dgl.dataloading.DataLoader` on our pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader.dgl.samplers import DGLS, BlockSampler, EdgePredictionSampler
from loader.graph import Graph
from loader.graph.interop import dgl_edges
from loader.items import EdgeItems, Items, NodeItems
from loader.items.items import as_vertices
from loader.loaders.base import Loader
from loader.loaders.options import check_distinct
from loader.loaders.torch_options import as_ids, device_of, read_options, refuse
from loader.machine.arguments import as_flag, kind_of, shown
from loader.machine.kept import Kept, Seen, version_of
from loader.machine.optional import import_dgl
from loader.samplers import LinkSampler, Sampler, fused
from loader.samples import MiniBatch
from loader.samples.interop import dgl_block
from loader.stores import FeatureStore, HostFeatures, TensorRows, auto_features

_graphs = Kept()  # loaders of one graph share it
_stores = Kept()  # and those of one tensor its rows on a GPU


class DataLoader:
    """Mini-batches of a `dgl.DGLGraph` around vertices or edges: `dgl.dataloading.DataLoader`.

    Around vertices it gives `(input_nodes, output_nodes, blocks)`. Around edges it gives `(input_nodes, pair_graph,
    blocks)` or, with negatives, `(input_nodes, pair_graph, neg_graph, blocks)`. Blocks and graphs are DGL's, with ids
    of the type `g.idtype`. The features that the `prefetch_...` options of the sampler name are gathered ahead. If the
    graph lies where mini-batches arrive, blocks and graphs have the others, too, and gather them when they are read.

    New vertices of a hop come in ascending order of their ids; in DGL they come in order of arrival. The mini-batches
    of an epoch depend only on the arguments and on its number, and are the same on the CPU and on a GPU.

    Features that are prefetched are read when an epoch begins, so between epochs they may be changed or replaced. The
    edges, and the weights by which neighbours are picked, are read when the loader is made. If the graph has others
    when an epoch begins, an error says so.

    Args:
        graph: a graph of one type. It is sorted once for all its loaders.
        indices: `[n]`, distinct vertices; or edge ids if `graph_sampler` samples around edges.
        graph_sampler: a sampler of `loader.dgl`.
        device: where mini-batches are sampled and arrive; by default the device of the graph. A graph on the CPU is
            copied to the GPU.
        use_ddp: the processes of `torch.distributed` take turns in the mini-batches.
        ddp_seed: with `use_ddp`, the seed of the order and of the picks.
        batch_size, drop_last, shuffle: as in DGL.
        use_uva: the graph and the features stay in page-locked host memory, where the GPU reads them.
        use_prefetch_thread, use_alternate_streams, pin_prefetcher: options of DGL without effect here: our pipeline
            always has its own threads and streams.
        gpu_cache: an option of DGL; must be None.
        options: options of torch's DataLoader, see `loader.pyg.NeighborLoader`, and `seed`.

    Raises:
        NotImplementedError: an option of DGL is not supported.
        TypeError, ValueError: an argument is not as said above.
        NoGpuError: a GPU was asked for and build or machine have none.
    """

    def __init__(
        self,
        graph: Any,
        indices: Tensor,
        graph_sampler: BlockSampler | EdgePredictionSampler,
        device: Any = None,
        use_ddp: bool = False,
        ddp_seed: int = 0,
        batch_size: int = 1,
        drop_last: bool = False,
        shuffle: bool = False,
        use_prefetch_thread: bool | None = None,
        use_alternate_streams: bool | None = None,
        pin_prefetcher: bool | None = None,
        use_uva: bool = False,
        gpu_cache: Any = None,
        **options: Any,
    ) -> None:
        self._dgl = import_dgl("loader.dgl")
        refuse("DataLoader", DGLS, {"gpu_cache": (gpu_cache or None, None)})
        if not hasattr(graph, "is_homogeneous"):
            raise TypeError(f"graph is {kind_of(graph)}; it must be a dgl.DGLGraph")
        edges = isinstance(graph_sampler, EdgePredictionSampler)
        if not edges and not isinstance(graph_sampler, BlockSampler):
            raise TypeError(
                f"graph_sampler is {kind_of(graph_sampler)}; it must be one of loader.dgl, as its NeighborSampler"
            )
        if isinstance(indices, dict):
            raise NotImplementedError(f"indices by type are not possible; give a tensor, or take {DGLS}")
        if use_uva and device is None:
            device = "cuda"
        self.device = device_of(graph.device if device is None else device)
        if use_uva and self.device.type != "cuda":
            raise ValueError(f"use_uva lets a GPU read host memory, but device is {self.device}; give a GPU")
        self._given = {
            "graph": graph, "indices": indices, "graph_sampler": graph_sampler, "device": device,
            "batch_size": batch_size, "drop_last": drop_last, "shuffle": shuffle, "use_uva": use_uva,
            "use_ddp": use_ddp, "ddp_seed": ddp_seed, **options,
        }  # fmt: skip
        if as_flag("use_ddp", use_ddp):
            for name in ("seed", "rank", "world_size"):
                if options.get(name) is not None:
                    raise ValueError(
                        f"use_ddp and {name}={shown(options[name])} are given, but with use_ddp the process group says "
                        "which part is whose, and ddp_seed their order; leave one out"
                    )
            options |= {"seed": ddp_seed, **_turns()}
        meaning = read_options("DataLoader", self.device, shuffle=shuffle, drop_last=drop_last, **options)
        if not use_ddp:
            self._given |= {"generator": None, "seed": meaning.seed}  # a copy picks the same
        self.graph, self.indices, self.graph_sampler = graph, as_ids("indices", indices), graph_sampler
        self._uva = as_flag("use_uva", use_uva)
        nodes = graph_sampler.sampler if isinstance(graph_sampler, EdgePredictionSampler) else graph_sampler
        around = fused(
            nodes.fanouts[::-1],  # ours are counted from the seeds
            device=self.device,
            num_threads=meaning.num_threads,
            edge_ids=True,
            seed=meaning.seed,
            **nodes.picking,
        )
        self._prob = nodes.prob
        made = self._graph()
        self._read = [Seen.of(each) for each in self._read_once()]
        self._near = graph.device == self.device  # else DGL, too, would have to move rows when they are asked for
        items: Items
        sampler: Sampler
        if isinstance(graph_sampler, EdgePredictionSampler):
            items, sampler = self._edges(graph_sampler, around)
        else:
            items, sampler = NodeItems(as_vertices("indices", self.indices)), around
            check_distinct("indices", items.ids, graph.num_nodes())
        names = {
            "node": nodes.prefetch_node_feats,
            "seed": nodes.prefetch_labels,
            "edge": nodes.prefetch_edge_feats,
            "pair": graph_sampler.prefetch_labels if edges else [],
        }
        self._names = [(kind, name) for kind, given in names.items() for name in given]
        self._rows: list[_Rows] = []
        self._open_rows(self._features())
        # A sample has one place for rows of a kind. The rest is gathered when the mini-batch is given out.
        self._ahead: dict[str, str] = {}
        for kind, name in self._names:
            if kind == "node" or (kind == "edge" and not edges):
                self._ahead.setdefault(kind, name)
        given = {"seed": meaning.seed, "device": self.device, **meaning.loader}
        self.loader = Loader(made, items, sampler, batch_size, stores=self._stores_ahead(), **given)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy (`pickle`, `copy`) is made of its own graph, as that is now, and goes on where this one is."""
        return _again, (type(self), self._given, self.loader.state_dict())

    @property
    def stats(self) -> Any:
        """Seconds and bytes of the stages, a `PipelineStats`."""
        return self.loader.stats

    def __len__(self) -> int:
        """Mini-batches of an epoch, on each rank."""
        return len(self.loader)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """One epoch; see `loader.loaders.Loader`.

        Raises:
            ValueError: the graph has other edges, vertices or weights than when this loader was made, or a feature is
                gone.
        """
        if not all(map(Seen.is_of, self._read, self._read_once())):
            weights = "" if self._prob is None else f", or other weights {self._prob!r}"
            raise ValueError(
                f"the graph has {self.graph.num_nodes()} vertices and {self.graph.num_edges()} edges now, which are "
                f"not those that this loader was made for{weights}; make a new DataLoader"
            )
        features = self._features()
        seen = [rows.seen for rows in self._rows]  # fewer if opening them failed
        if len(seen) < len(features) or not all(map(Seen.is_of, seen, features)):
            self.loader.gather_from({})
            self._open_rows(features)
            self.loader.gather_from(self._stores_ahead())
        for sample in self.loader:
            if isinstance(sample, MiniBatch):
                blocks = self._blocks(sample)
                yield self._ids(sample.input_nodes), self._ids(sample.output_nodes), blocks
            else:
                blocks = self._blocks(sample.around)
                yield (self._ids(sample.around.input_nodes), *self._pairs(sample), blocks)

    @property
    def batch_sampler(self) -> Any:
        """Where Lightning looks for `set_epoch`, as in torch's loaders."""
        return self.loader.batch_sampler

    def state_dict(self) -> dict[str, Any]:
        """The position of the consumer; see `loader.loaders.Loader`."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where `state` was taken."""
        self.loader.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next epoch. Otherwise each `for` is the epoch after the last one."""
        self.loader.set_epoch(epoch)

    def enable_cpu_affinity(self, *_: Any, **__: Any) -> AbstractContextManager[None]:
        """A context without effect: DGL's binds its workers to processors, and there are none here."""
        return nullcontext()

    def close(self) -> None:
        """Ends the running iterator, and frees threads and workspaces. The next epoch makes new ones."""
        self.loader.release()

    def _ids(self, ids: Tensor) -> Tensor:
        return ids.to(self.graph.idtype)

    def _blocks(self, batch: MiniBatch) -> list[Any]:
        batch = batch.gathered()
        kept = batch.replace(x=None, y=None, blocks=batch.blocks)
        wide = kept.map(lambda t: t if t.is_floating_point() else self._ids(t))
        blocks = [dgl_block(self._dgl, block, wide.nodes) for block in wide.blocks]
        for made in blocks:
            made.edata.pop("feat", None)  # of edges, which have their own name below
        for kind, name, _, store in self._rows:
            here = self._ahead.get(kind) == name
            if kind == "node":
                blocks[0].srcdata[name] = batch.x if here else store.gather(batch.input_nodes)
            elif kind == "seed":
                blocks[-1].dstdata[name] = store.gather(batch.output_nodes)
            elif kind == "edge":
                for made, block in zip(blocks, batch.blocks, strict=True):
                    assert block.edge_ids is not None
                    made.edata[name] = block.edge_features if here else store.gather(block.edge_ids)
        if self._near:
            for made in blocks:
                source, target = made._node_frames
                _fill(source, self.graph._node_frames[0], made.srcdata[self._dgl.NID])
                _fill(target, self.graph._node_frames[0], made.dstdata[self._dgl.NID])
                _fill(made._edge_frames[0], self.graph._edge_frames[0], made.edata[self._dgl.EID])
        return blocks

    def _pairs(self, links: Any) -> list[Any]:
        """The graph of the positive links and, if there are any, that of the negative ones, over the same vertices."""
        seeds = links.nodes[: links.around.batch_size]
        ends, truth = links.pairs()
        positives = links.sources.numel()
        ids = self.indices.to(links.places.device)[links.places]
        graphs = []
        for part in (ends[:, :positives], ends[:, positives:]) if truth.numel() > positives else (ends,):
            source, target = self._ids(part)
            made = self._dgl.graph((source, target), num_nodes=seeds.numel(), idtype=self.graph.idtype)
            made.ndata[self._dgl.NID] = self._ids(seeds)
            graphs.append(made)
        graphs[0].edata[self._dgl.EID] = self._ids(ids)
        for kind, name, _, store in self._rows:
            if kind == "pair":
                graphs[0].edata[name] = store.gather(ids)
        if self._near:
            _fill(graphs[0]._node_frames[0], self.graph._node_frames[0], graphs[0].ndata[self._dgl.NID])
            _fill(graphs[0]._edge_frames[0], self.graph._edge_frames[0], ids)
        return graphs

    def _edges(self, sampler: EdgePredictionSampler, around: Sampler) -> tuple[Items, Sampler]:
        if self.indices.dim() == 2:
            raise ValueError(
                f"indices has shape {list(self.indices.shape)}; it must be ids of edges [n]: graph.edge_ids(src, dst)"
            )
        ids = as_vertices("indices", self.indices).to(self.graph.device, self.graph.idtype)
        _check_edges("indices", ids, self.graph.num_edges())
        source, target = dgl_edges(self.graph, ids)
        if sampler.exclude == "reverse_id":
            assert sampler.reverse_eids is not None
            _check_reverses(sampler.reverse_eids, self.graph.num_edges())
            reverse = sampler.reverse_eids.to(ids.device)[ids.long()]
            back, forth = dgl_edges(self.graph, reverse.to(self.graph.idtype))
            if not (torch.equal(back, target) and torch.equal(forth, source)):
                at = int(((back != target) | (forth != source)).nonzero()[0])
                raise ValueError(
                    f"reverse_eids says that edge {int(reverse[at])}, {int(back[at])} -> {int(forth[at])}, is the "
                    f"reverse of edge {int(ids[at])}, {int(source[at])} -> {int(target[at])}"
                )
        exclude = {None: "none", "self": "self", "reverse_id": "reverse"}[sampler.exclude]
        pairs = torch.stack([source, target], 1).cpu()
        return EdgeItems(pairs), LinkSampler(around, sampler.negatives, exclude=exclude)

    def _graph(self) -> Graph:
        """The graph where the sampler reads it, made once."""
        graph, prob, owner = self.graph, self._prob, self.graph
        state: tuple[int, ...] = graph.num_nodes(), graph.num_edges(), id(graph._graph)
        if prob is not None:
            if prob not in graph.edata:
                raise ValueError(f"prob is {prob!r}; the edges of the graph have {sorted(graph.edata)}")
            owner = graph.edata[prob]
            state = *state, version_of(owner)
        made = _graphs.get(owner, state, "graph", lambda: Graph.from_dgl(graph, weight_attr=prob).to("cpu"))
        device, uva = self.device, self._uva
        return _graphs.get(owner, state, (device, uva), lambda: made.pin_memory() if uva else made.to(device))

    def _read_once(self) -> list[Any]:
        """What the sampler reads: DGL's index, another object after a change of vertices or edges, and the weights."""
        weights = None if self._prob is None else self.graph.edata.get(self._prob)
        return [self.graph._graph, weights]

    def _features(self) -> list[Tensor]:
        """Those that are prefetched, as the graph has them now."""
        found = []
        for kind, name in self._names:
            frame = self.graph.ndata if kind in ("node", "seed") else self.graph.edata
            if name not in frame:
                raise ValueError(f"{name!r} is to be prefetched; the graph has {sorted(frame)}")
            found.append(frame[name])
        return found

    def _open_rows(self, features: list[Tensor]) -> None:
        """Opens the stores of what has changed. Those of before are let go first: a GPU may have no room for both."""
        both = enumerate(zip(self._rows, features, strict=False))  # fewer rows if opening them failed
        kept = {i: rows for i, (rows, now) in both if rows.seen.is_of(now)}
        self._rows = []
        for i, ((kind, name), now) in enumerate(zip(self._names, features, strict=True)):
            self._rows.append(kept.get(i) or _Rows(kind, name, Seen.of(now), self._store(now)))

    def _stores_ahead(self) -> dict[str, FeatureStore]:
        """Of what is gathered ahead, by kind."""
        return {rows.kind: rows.store for rows in self._rows if self._ahead.get(rows.kind) == rows.name}

    def _store(self, rows: Tensor) -> FeatureStore:
        tensor = rows.detach().contiguous()
        if tensor.device == self.device and tensor.device.type != "cpu":
            return TensorRows(tensor)
        if self.device.type == "cpu":
            return HostFeatures(tensor.cpu())
        device, uva = self.device, self._uva
        make = _pinned if uva else auto_features
        return _stores.get(rows, version_of(rows), (device, uva), lambda: make(tensor.cpu(), device))


def _again(cls: type[DataLoader], given: dict[str, Any], state: dict[str, Any]) -> DataLoader:
    made = cls(**given)
    made.loader.load_state_dict(state)
    return made


class _Rows(NamedTuple):
    """Features of a graph: kind, name, the tensor as it was read, and where its rows are."""

    kind: str
    name: str
    seen: Seen
    store: FeatureStore


def _fill(frame: Any, whole: Any, ids: Tensor) -> None:
    """Gives a frame of DGL the other columns of the whole graph, as DGL does: rows are gathered when they are read."""
    for name, column in whole._columns.items():
        if name not in frame:
            frame._columns[name] = column.subcolumn(ids)


def _pinned(tensor: Tensor, device: torch.device) -> FeatureStore:
    from loader.stores import PinnedFeatures

    return PinnedFeatures(tensor, device)


def _turns() -> dict[str, int]:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise ValueError("use_ddp needs torch.distributed; call init_process_group first, or leave it out")
    return {"rank": torch.distributed.get_rank(), "world_size": torch.distributed.get_world_size()}


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

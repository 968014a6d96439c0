"""`dgl.dataloading.DataLoader` on our pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from loader.datasets.digests import digest_of
from loader.dgl.edges import EdgePredictionSampler, links_of
from loader.dgl.features import Rows, store_of
from loader.dgl.graphs import DGLS, blocks_of, edge_types, fill, graph_of, node_types, of_one_type
from loader.dgl.hetero import by_type, hetero_blocks, key_of, numbered, of_types, put_rows, ranges_of
from loader.dgl.original_dgl import dataloading, drawn
from loader.dgl.own_samplers import epoch_of, own_methods, tell
from loader.dgl.samplers import BlockSampler, FanoutSampler, LaborSampler
from loader.dgl.subgraphs import ClusterGCNSampler, SAINTSampler, ShaDowKHopSampler, SubgraphSampler
from loader.items import EdgeItems, HeteroNodeItems, Items, NodeItems
from loader.items.items import as_nodes
from loader.loaders.base import Loader
from loader.loaders.options import are_distinct
from loader.loaders.own_batches import AskedSampler
from loader.loaders.torch_options import as_ids, device_of, read_options, refuse
from loader.machine.arguments import as_flag, kind_of, shown
from loader.machine.memo import Seen
from loader.machine.optional import import_dgl
from loader.samplers import LinkSampler, Sampler
from loader.samples import HeteroMiniBatch, MiniBatch
from loader.stores import FeatureStore

# Arguments and attributes of DGL's and torch's loaders that a loader reads when it is made.
_FIXED = frozenset(
    ("graph", "indices", "graph_sampler", "device", "batch_size", "drop_last", "shuffle", "use_uva", "use_ddp",
     "ddp_seed", "seed", "generator", "dataset", "sampler", "batch_sampler", "collate_fn", "filter_fn", "num_workers",
     "worker_init_fn", "prefetch_factor", "persistent_workers", "pin_memory", "pin_prefetcher", "use_prefetch_thread",
     "use_alternate_streams")
)  # fmt: skip


class DataLoader:
    """Mini-batches of a `dgl.DGLGraph` around nodes or edges: `dgl.dataloading.DataLoader`.

    Around nodes it gives `(input_nodes, output_nodes, blocks)`. Around edges it gives `(input_nodes, pair_graph,
    blocks)` or, with negatives, `(input_nodes, pair_graph, neg_graph, blocks)`. Blocks and graphs are DGL's, with ids
    of dtype `graph.idtype`. Features that the sampler's `prefetch_...` options name are gathered ahead. Other features
    of the graph are gathered when you read them from a block or graph. This works only if `graph` lies on `device`;
    else blocks and graphs have only the prefetched features.

    New nodes of a hop come in ascending order of their ids; in DGL they come in order of arrival. The mini-batches
    of an epoch depend only on the arguments and on its number, and are the same on the CPU and on a GPU. `seed` decides
    the order and the picks. Without `seed`, one number from torch's generator (or from `generator`) decides the order,
    and one number from DGL's generator, which `dgl.seed` seeds, decides the picks. Both numbers are drawn when the
    loader is made.

    Features that are prefetched are read when an epoch begins, so between epochs they may be changed or replaced. The
    edges, and the weights by which neighbors are picked, are read when the loader is made. If the graph has others
    when an epoch begins, an error says so.

    If the sampler is one of DGL's, or it or its negative sampler has methods of your own (`sample_blocks`, `_generate`
    and so on), its `sample` is called for each mini-batch in the thread that asks for it. This is slower, and a log
    message says so. Before the call torch's and DGL's generators are seeded for this mini-batch, and DGL gets one
    thread; after it they go on as before.

    Args:
        graph: a graph of one or several types. It is sorted once for all its loaders. Of several types, nodes are dicts
            by type, as in DGL, and mini-batches around edges are made as those of methods of your own.
        indices: `[n]` nodes; or edge ids if `graph_sampler` samples around edges. A dict, type -> ids, gives
            `output_nodes` as such a dict, as in DGL. If a node is there twice, mini-batches are made as those of
            methods of your own, and its copies in a mini-batch get the same picks; of several types this is refused.
        graph_sampler: a sampler of `loader.dgl`, a subclass of one, or one of DGL.
        device: where mini-batches are sampled and arrive; by default the device of the graph. A graph on the CPU is
            copied to the GPU.
        use_ddp: the processes of `torch.distributed` take turns in the mini-batches.
        ddp_seed: with `use_ddp`, the seed of the order and of the picks.
        batch_size, drop_last, shuffle: as in DGL.
        use_uva: the graph and the features stay in page-locked host memory, where the GPU reads them.
        use_prefetch_thread, use_alternate_streams, pin_prefetcher: options of DGL without effect here: our pipeline
            always has its own threads and streams.
        gpu_cache: an option of DGL; must be None, or a dict such as `{"node": {"feat": 0}}` whose sizes are 0.
        options: options of torch's DataLoader, see `loader.pyg.NeighborLoader`, but for `pin_memory`; and `seed`.

    Raises:
        NotImplementedError: an option of DGL is not supported.
        TypeError, ValueError: an argument is not as said above.
        NoGpuError: a GPU was asked for and build or machine have none.
    """

    def __init__(
        self,
        graph: Any,
        indices: Tensor,
        graph_sampler: Any,
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
        _refuse_cache(gpu_cache)
        if not hasattr(graph, "is_homogeneous"):
            raise TypeError(f"graph is {kind_of(graph)}; it must be a dgl.DGLGraph")
        for name in ("collate_fn", "filter_fn"):
            if hasattr(type(self), name):
                raise TypeError(
                    f"{type(self).__name__} has a {name}, which nobody would call: mini-batches are made by the "
                    "graph_sampler; change them in its sample, or in __iter__"
                )
        edges = isinstance(graph_sampler, EdgePredictionSampler)
        theirs = isinstance(graph_sampler, (dataloading("base").Sampler, SubgraphSampler))
        if not (edges or theirs or isinstance(graph_sampler, BlockSampler)):
            raise TypeError(
                f"graph_sampler is {kind_of(graph_sampler)}; it must be one of loader.dgl, as its NeighborSampler, or "
                "one of DGL"
            )
        own = own_methods(graph_sampler)
        if edges and (not graph.is_homogeneous or graph_sampler.exclude == "reverse_types"):
            own = own or ["EdgePredictionSampler.sample"]
        _refuse_uva(own, use_uva)
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
        if options.get("pin_memory"):
            raise NotImplementedError("DGL's graphs are not page-locked, so pin_memory=True does nothing; leave it out")
        if not use_ddp:
            self._given |= {"generator": None, "seed": meaning.seed}  # a copy has the same order
        self.graph, self.indices, self.graph_sampler = graph, indices, graph_sampler
        self._ranges: dict[Any, range] | None = None  # of several types, the ids of each in the numbering of the items
        if graph.is_homogeneous:
            types = (edge_types(graph) if edges or theirs else []) + (node_types(graph) if not edges else [])
            self._seeds = as_ids("indices", of_one_type("indices", indices, types))
        else:
            around_edges = edges or (theirs and not _are_nodes(graph, indices))
            self._ranges = ranges_of(graph, edges=around_edges)
            distinct = not (edges or theirs)
            self._seeds = numbered("indices", graph, indices, edges=around_edges, distinct=distinct)
            if edges:
                graph_sampler.check_types(graph, by_type("indices", graph, indices, edges=True))
        if self._ranges is None and not (edges or theirs):
            ids = as_nodes("indices", self._seeds)
            if not are_distinct("indices", ids, graph.num_nodes()):
                own = own or [f"{type(graph_sampler).__name__}.sample"]
                _refuse_uva(own, use_uva)
        around = graph_sampler.sampler if edges else graph_sampler
        if isinstance(around, LaborSampler):
            around.check_graph(graph)
        self._uva, self._own, self._begin = as_flag("use_uva", use_uva), own, meaning.begin
        self._picks = () if own else self._settings()
        if "_seed" not in self.__dict__:  # a copy has that of the first one
            self._seed = drawn() if options.get("seed") is None else meaning.seed
        self._rows: list[Rows] = []
        self._ahead: dict[str, str] = {}
        prob = None if own else self._picks[0].prob
        place = torch.device("cpu") if own else self.device
        made = graph_of(graph, prob, place, self._uva)
        self._prob = prob
        self._read = [Seen.of(each) for each in self._read_once()]
        self._near = graph.device == self.device  # else DGL, too, would have to move rows when they are asked for
        links = (
            links_of(graph, self._seeds, graph_sampler)
            if graph.is_homogeneous and isinstance(graph_sampler, EdgePredictionSampler)
            else None
        )
        ids = as_nodes("indices", self._seeds)
        items: Items = NodeItems(ids)
        if self._ranges is not None:
            items = HeteroNodeItems(ids, torch.tensor([of.start for of in self._ranges.values()], device=ids.device))
        options = {"seed": meaning.seed, "device": self.device, **meaning.loader}
        sampler: Sampler = AskedSampler({"seed": self._seed, "methods": own}, self._digests)
        if own:
            options |= {"device": "cpu", "prefetch": 0}
            if type(graph_sampler) not in (ClusterGCNSampler, SAINTSampler, ShaDowKHopSampler):
                tell(own)
        else:
            sampler = self._picks[0].sampler(self.device, num_threads=meaning.num_threads, seed=self._seed)
            if links is not None:
                items = EdgeItems(links)
                exclude = {None: "none", "self": "self", "reverse_id": "reverse"}[graph_sampler.exclude]
                sampler = LinkSampler(sampler, graph_sampler.negatives(), exclude=exclude)
            self._open_rows(self._features())
            # A sample has one place for rows of a kind. The rest is gathered when the mini-batch is given out.
            for kind, name in self._names():
                if kind.startswith("node") or (kind.startswith("edge") and not edges):
                    self._ahead.setdefault(kind, name)
        self.loader = Loader(made, items, sampler, batch_size, stores=self._stores_ahead(), **options)

    def __setattr__(self, name: str, value: Any) -> None:
        """What a loader was made with stays."""
        if name in _FIXED and "loader" in self.__dict__:
            raise AttributeError(f"{name} of a DataLoader cannot be changed; make a new one")
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy (`pickle`, `copy`) is made of its own graph, as that is now, and goes on where this one is."""
        return _again, (type(self), self._given, self._seed, self.loader.state_dict())

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
            ValueError: the graph has other edges, nodes or weights than when this loader was made, or a feature is
                gone.
        """
        if not all(map(Seen.is_of, self._read, self._read_once())):
            weights = "" if self._prob is None else f", or other weights {self._prob!r}"
            raise ValueError(
                f"the graph has {self.graph.num_nodes()} nodes and {self.graph.num_edges()} edges now, which are "
                f"not those that this loader was made for{weights}; make a new DataLoader"
            )
        self._begin(self._seeds)
        if self._own:
            items = iter(self.loader)
            yield from epoch_of(
                self.graph, self.graph_sampler, self.device, self._seed, items, self._as_given, self.loader.take_back
            )
            return
        if self._settings() != self._picks:
            raise ValueError(
                f"the {type(self.graph_sampler).__name__} has other settings now than when this loader was made; make "
                "a new DataLoader"
            )
        features = self._features()
        seen = [rows.seen for rows in self._rows]  # fewer if opening them failed
        if len(seen) < len(features) or not all(map(Seen.is_of, seen, features)):
            self.loader.gather_from({})
            self._open_rows(features)
            self.loader.gather_from(self._stores_ahead())
        for sample in self.loader:
            if isinstance(sample, HeteroMiniBatch):
                inputs, outputs, blocks = hetero_blocks(self.graph, sample, self._near)
                for kind, name, _, store in self._rows:
                    put_rows(self.graph, sample, blocks, kind, name, store, self._ahead.get(kind) == name)
                yield inputs, dict(outputs) if isinstance(self.indices, dict) else outputs, blocks
            elif isinstance(sample, MiniBatch):
                blocks = self._blocks(sample)
                yield self._ids(sample.input_nodes), self._as_given(sample.output_nodes), blocks
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

    def _as_given(self, ids: Tensor) -> Any:
        """Ids of items, in the form of `indices`."""
        if self._ranges is not None:
            found = of_types(ids.to(self.graph.device), self._ranges)
            found = {key: self._ids(of) for key, of in found.items()}
            return found if isinstance(self.indices, dict) else next(iter(found.values()))
        ids = self._ids(ids.to(self.graph.device) if self._own else ids)
        return dict.fromkeys(self.indices, ids) if isinstance(self.indices, dict) else ids

    def _settings(self) -> tuple[Any, ...]:
        """All that decides what the sampler does."""
        sampler: Any = self.graph_sampler
        graph = self.graph
        if not isinstance(sampler, EdgePredictionSampler):
            return sampler.picking(graph), own_methods(sampler), {**sampler.to_prefetch(graph), "pair": []}
        around: Any = sampler.sampler
        names = of_one_type("prefetch_labels", sampler.prefetch_labels, edge_types(graph))
        drawn = sampler.exclude, id(sampler.reverse_eids), sampler.negatives()
        return around.picking(graph), own_methods(sampler), {**around.to_prefetch(graph), "pair": names}, drawn

    def _digests(self) -> dict[str, str]:
        """Settings of a sampler whose methods are called, as far as they are known, and digests of what it reads."""
        sampler: Any = self.graph_sampler
        found = {}
        if isinstance(sampler, EdgePredictionSampler):
            drawn = sampler.negatives()
            found["exclude and negatives"] = (
                f"{'a function' if callable(sampler.exclude) else sampler.exclude}, {drawn}"
            )
            sampler = sampler.sampler
        if isinstance(sampler, FanoutSampler):
            found[f"the {type(sampler).__name__}"] = f"{sampler.fanouts}, {sampler.picking(None)[1:]}"
            frames = [self.graph.edges[key].data for key in self.graph.canonical_etypes]
            if sampler.prob is not None:
                found[f"weights {sampler.prob!r}"] = digest_of(*(frame.get(sampler.prob) for frame in frames))
        return found

    def _names(self) -> list[tuple[str, str]]:
        """Features to prefetch: the kinds of rows, and the names."""
        return [(kind, name) for kind, given in self._picks[2].items() for name in given]

    def _blocks(self, batch: MiniBatch) -> list[Any]:
        batch = batch.gathered()
        blocks = blocks_of(self.graph, batch, self._near)
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
        return blocks

    def _pairs(self, links: Any) -> list[Any]:
        """Graphs over the same nodes: that of the positive links and, if there are any, that of the negative links."""
        seeds = links.nodes[: links.around.batch_size]
        ends, truth = links.pairs()
        positives = links.sources.numel()
        ids = self._seeds.to(links.places.device)[links.places]
        graphs = []
        for part in (ends[:, :positives], ends[:, positives:]) if truth.numel() > positives else (ends,):
            ends, sizes = {self.graph.canonical_etypes[0]: tuple(self._ids(part))}, {self.graph.ntypes[0]: len(seeds)}
            made = self._dgl.heterograph(ends, sizes, idtype=self.graph.idtype)
            made.ndata[self._dgl.NID] = self._ids(seeds)
            graphs.append(made)
        graphs[0].edata[self._dgl.EID] = self._ids(ids)
        for kind, name, _, store in self._rows:
            if kind == "pair":
                graphs[0].edata[name] = store.gather(ids)
        if self._near:
            fill(graphs[0]._node_frames[0], self.graph._node_frames[0], graphs[0].ndata[self._dgl.NID])
            fill(graphs[0]._edge_frames[0], self.graph._edge_frames[0], ids)
        return graphs

    def _read_once(self) -> list[Any]:
        """What the sampler reads: DGL's index, another object after a change of nodes or edges, and the weights."""
        frames = [self.graph.edges[key].data for key in self.graph.canonical_etypes]
        return [self.graph._graph, *(frame.get(self._prob) for frame in frames if self._prob is not None)]

    def _features(self) -> list[Tensor]:
        """Those that are prefetched, as the graph has them now."""
        found = []
        for kind, name in self._names():
            what, key = key_of(self.graph, kind)
            frame = (self.graph.nodes if what in ("node", "seed") else self.graph.edges)[key].data
            if name not in frame:
                raise ValueError(f"{name!r} is to be prefetched; the graph has {sorted(frame)}")
            if frame[name].requires_grad:
                raise ValueError(
                    f"{name!r} needs gradients, which rows that are prefetched do not give; do not prefetch it, or "
                    "detach() it"
                )
            found.append(frame[name])
        return found

    def _open_rows(self, features: list[Tensor]) -> None:
        """Opens the stores of what has changed. Those of before are let go first: a GPU may have no room for both."""
        both = enumerate(zip(self._rows, features, strict=False))  # fewer rows if opening them failed
        unchanged = {i: rows for i, (rows, now) in both if rows.seen.is_of(now)}
        self._rows = []
        for i, ((kind, name), now) in enumerate(zip(self._names(), features, strict=True)):
            self._rows.append(unchanged.get(i) or Rows(kind, name, Seen.of(now), store_of(now, self.device, self._uva)))

    def _stores_ahead(self) -> dict[str, FeatureStore]:
        """Of what is gathered ahead, by kind."""
        return {rows.kind: rows.store for rows in self._rows if self._ahead.get(rows.kind) == rows.name}


def _again(cls: type[DataLoader], given: dict[str, Any], seed: int, state: dict[str, Any]) -> DataLoader:
    made = cls.__new__(cls)
    made._seed = seed
    made.__init__(**given)  # type: ignore[misc]
    made.loader.load_state_dict(state)
    return made


def _refuse_uva(own: list[str], use_uva: bool) -> None:
    if own and use_uva:
        raise NotImplementedError(
            f"use_uva is not possible with {own[0]}, which is called for each mini-batch; leave it out"
        )


def _turns() -> dict[str, int]:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise ValueError("use_ddp needs torch.distributed; call init_process_group first, or leave it out")
    return {"rank": torch.distributed.get_rank(), "world_size": torch.distributed.get_world_size()}


def _are_nodes(g: Any, indices: Any) -> bool:
    """Whether a sampler of DGL's is given nodes, as the types of a dict say; a tensor is of nodes."""
    return not isinstance(indices, dict) or all(key in g.ntypes for key in indices)


def _refuse_cache(gpu_cache: Any) -> None:
    """Raises NotImplementedError if DGL would keep rows in a cache on the GPU, TypeError if it is no dict of dicts."""
    if gpu_cache is None:
        return
    if not isinstance(gpu_cache, Mapping) or not all(isinstance(of, Mapping) for of in gpu_cache.values()):
        raise TypeError(f"gpu_cache is {shown(gpu_cache)}; it must be None, or a dict as {{'node': {{'feat': 0}}}}")
    if any(size > 0 for of in gpu_cache.values() for size in of.values()):
        refuse("DataLoader", DGLS, {"gpu_cache": (gpu_cache, None)})

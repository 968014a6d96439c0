"""The LightningDataModule: a dataset's splits as loaders."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

from loader.datamodules.base import DatasetModule, check_labelled, refuse_types
from loader.datamodules.checkpoint_io import use_safe_checkpoints
from loader.datamodules.hetero import TRIAL_SIZES, check_hetero, open_features, seeds_of, sizes_of, stores_of, times_of
from loader.datasets.classes import check_split_classes
from loader.datasets.hetero import HeteroDataset
from loader.datasets.node_dataset import NodeDataset
from loader.graph import Graph, HeteroGraph
from loader.loaders.base import MAX_PREFETCH, Loader
from loader.loaders.nodes import NodeLoader
from loader.loaders.options import check_dataset, check_sampler
from loader.machine.arguments import as_flag, as_seed, as_size
from loader.memory.budget import MemoryBudget, StoreMakers
from loader.memory.graph import GraphMemory
from loader.memory.hetero import SplitSeeds
from loader.memory.hetero_plan import HeteroPlan
from loader.memory.plan import MemoryPlan
from loader.samplers import Sampler, Session
from loader.samples import Sample
from loader.stores import FeatureStore, HostFeatures, TensorRows
from loader.stores.base import check_store_factory


class GraphDataModule(DatasetModule):
    """A LightningDataModule with the train, validation, test and predict loaders of one dataset.

    Of a `HeteroDataset` they give `HeteroMiniBatch` objects around nodes of its target type, with features of each type
    that has some. A `TreeSampler` by time takes the times of these nodes as those of the seeds.

    Each split has one `NodeLoader`. It is kept until a trainer of another rank, number of processes or device asks for
    it, and Lightning saves its state in checkpoints. A run resumed with `trainer.fit(..., ckpt_path=...)` sees exactly
    the mini-batches that were left, also with another number of processes. The mini-batch in hand at the checkpoint is
    among them.

    Only the train loader shuffles. Lightning tells the train and validation loaders the number of the epoch, which
    decides their mini-batches. Outside of `fit`, validation, test and prediction always use epoch 0, so equal weights
    give equal results. Several processes take turns in the mini-batches of each split, see
    `loader.items.BatchSequence`.

    If there is a trainer when `setup()` is called, mini-batches arrive on the device that it gives this process. A GPU
    sampler for another GPU is then replaced by one for that device. The graph is moved to where the samplers want it.

    Args:
        dataset: a `NodeDataset` or a `HeteroDataset`, or an object whose `load()` returns one.
        sampler: samples for training.
        eval_sampler: samples for validation, test and prediction; by default `sampler`.
        features: a function that makes a store of the dataset's features, see `loader.stores.open_store`. By default
            `HostFeatures`, or what `memory` decides. Of a dataset with types it makes a store for each type that has
            features; `NodeLoader` says which stores these can be.
        edge_features: a store, or a tensor `[rows, D]`, of rows by edge id; see `NodeLoader`.
        batch_size: seeds of a training mini-batch, per process.
        eval_batch_size: seeds of the other mini-batches, by default `batch_size`.
        drop_last: leave out the last training mini-batch of an epoch if it is smaller than the others.
        seed: of the order of the training seeds.
        prefetch: mini-batches held ready per stage, see `NodeLoader`.
        graph: where the graph lies for a GPU sampler: "device", in GPU memory, "pinned", in page-locked host memory, or
            "cached", there with its hottest neighbor lists also in GPU memory. The last is for samplers of neighbors.
            "auto" is as `memory` decides, else "device".
        cached_edges: with graph="cached", the share of the edges in GPU memory, in [0, 1].
        list_hotness: with graph="cached", which lists are cached: "degree", the longest, or "visits", those that save
            most per byte in 100 mini-batches, which are sampled for that (`loader.samplers.list_hotness`).
        memory: GPU memory in GiB for graph, features, sampler and mini-batches in flight, or "auto" for three quarters
            of what is free beside the model. It decides which neighbor lists and feature rows lie in GPU memory, so
            that the fewest bytes cross from the host to the GPU. See `loader.memory.plan`, and `loader.memory.hetero`
            for a dataset with types. It requires graph="auto", `features` None or `auto_features`, and a
            `CudaSampler`, or a `TreeSampler` on a GPU, that picks uniformly. None: `graph` and `features` decide.
        prioritize_loading: see `NodeLoader`.

    Attributes:
        memory_plan: what was chosen for `memory`, from `setup()` on, or None.
        data: the `NodeDataset` or `HeteroDataset`, from `setup()` on.
        move_seconds: host seconds that moved mini-batches to the trainer's device, if a loader had left them elsewhere.

    Raises:
        DatasetError: in `setup()`, fewer than two classes occur among the labels of the splits; or a dataset with types
            meets graph="cached", which it cannot have.
        TypeError, ValueError: a batch size, `prefetch` or `graph` is out of range, or `dataset` or a sampler is of
            another type.
    """

    def __init__(
        self,
        dataset: Any,
        sampler: Sampler,
        eval_sampler: Sampler | None = None,
        features: Callable[[Tensor], FeatureStore] | None = None,
        *,
        batch_size: int = 1024,
        eval_batch_size: int | None = None,
        drop_last: bool = False,
        seed: int = 0,
        prefetch: int = 2,
        graph: str = "auto",
        cached_edges: float = 0.25,
        list_hotness: str = "degree",
        memory: str | float | None = None,
        edge_features: FeatureStore | Tensor | None = None,
        prioritize_loading: bool = True,
    ) -> None:
        super().__init__()
        batch_size = as_size("batch_size", batch_size)
        eval_batch_size = batch_size if eval_batch_size is None else as_size("eval_batch_size", eval_batch_size)
        prefetch = as_size("prefetch", prefetch, least=0, most=MAX_PREFETCH)
        self.graph_memory = GraphMemory(graph, cached_edges, list_hotness)
        for name, value in (("sampler", sampler), ("eval_sampler", eval_sampler)):
            if value is not None or name == "sampler":
                check_sampler(name, value, self.items_kind)
        samplers = [s for s in (sampler, eval_sampler) if s is not None]
        self.budget = MemoryBudget.checked(memory, graph, features, edge_features, samplers)
        self.memory_plan: MemoryPlan | HeteroPlan | None = None
        self.graph_memory.check(samplers)
        check_dataset(dataset)
        features = HostFeatures if features is None else features
        check_store_factory(features)
        self.dataset = dataset
        self.sampler = sampler
        self.eval_sampler = sampler if eval_sampler is None else eval_sampler
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.drop_last = as_flag("drop_last", drop_last)
        self.seed = as_seed(seed)
        self.prefetch = prefetch
        self.data: NodeDataset | HeteroDataset | None = None
        self.move_seconds = 0.0
        self.edge_features = edge_features
        self.prioritize_loading = as_flag("prioritize_loading", prioritize_loading)
        self._make_features: StoreMakers = features
        self._features: FeatureStore | dict[str, FeatureStore] | None = None
        self._graphs: dict[torch.device, Graph | HeteroGraph] = {}  # by the device of the sampler
        self._labels: dict[torch.device, TensorRows] = {}  # likewise
        self._loaders: dict[str, Loader] = {}
        # By id of the sampler, which is kept, so no other one gets its id: samplers may compare by what they are.
        self._sessions: dict[int, tuple[Sampler, Session]] = {}
        self._made_for: dict[str, tuple[Any, ...]] = {}  # what may change later, by the name of the loader
        self._made_with: dict[str, Any] = {}  # likewise the rows of edges, which are not compared by what they are

    items_kind: ClassVar[str] = "node"  # that the samplers take

    # What a model is told of the data, to try whether it can be had before they are read.
    trial_sizes: ClassVar[dict[str, Any]] = {"num_features": 1, "num_classes": 2}
    hetero_trial_sizes: ClassVar[dict[str, Any]] = TRIAL_SIZES  # of a dataset with types

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes of the data that a model needs, from `prepare_data` on."""
        return sizes_of(self._loaded())

    @property
    def num_features(self) -> int | dict[str, int]:
        return self._loaded().num_features

    @property
    def num_classes(self) -> int:
        return self._loaded().num_classes

    @property
    def multilabel(self) -> bool:
        return self._loaded().multilabel

    @property
    def features(self) -> FeatureStore | dict[str, FeatureStore]:
        """The store that all loaders gather from, from `setup()` on; of a dataset with types node type -> store."""
        self._loaded()
        assert self._features is not None
        return self._features

    @property
    def loaders(self) -> dict[str, Loader]:
        """Split -> loader, of those made so far. Their `stats` hold the times of the stages."""
        return dict(self._loaders)

    def learned_from(self) -> Tensor | None:
        return None if self.data is None else self._split("train")

    def prepare_data(self) -> None:
        """Downloads and converts the dataset, once per machine: the other processes find it in the cache."""
        self._load()

    @property
    def device(self) -> torch.device:
        """Where mini-batches arrive: the trainer's device for this process; without a trainer, the sampler's."""
        strategy = getattr(self.trainer, "strategy", None)
        device = self.sampler.device if strategy is None else torch.device(strategy.root_device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        return device

    def setup(self, stage: str | None = None) -> None:
        """Opens the dataset and its feature store, unless that was done before."""
        use_safe_checkpoints(self.trainer)
        self._load()
        if self._features is not None:
            return
        data, device = self._loaded(), self.device
        same = self.eval_sampler is self.sampler
        self.sampler = self.sampler.on(device)
        self.eval_sampler = self.sampler if same else self.eval_sampler.on(device)
        if self.budget is not None:
            samplers = [(self.sampler, self.batch_size), (self.eval_sampler, self.eval_batch_size)]
            chosen = self.budget.choose(data, self._planned_seeds(), samplers, self.prefetch, self.seed, self.trainer)
            self.memory_plan, self.graph_memory, self._make_features = chosen
        graph = self._graph(self.sampler)
        with _current(device):
            self._features = open_features(self._make_features, data, graph, lambda: self._train_batches(graph))

    def placement(self) -> dict[str, str]:
        """Stage -> where and by what it runs, in words, from `setup()` on."""
        places = self._placement(self.train_dataloader())
        stores = dict.fromkeys(f"{type(store).__name__}, rows on {store.device}" for store in stores_of(self.features))
        return {"sample": places["sample"], "gather": "; ".join(stores) or "no features", **places}

    def _placement(self, loader: Loader) -> dict[str, str]:
        sampler = self.sampler
        graph_place = "" if sampler.device.type == "cpu" else ", graph in " + str(self.graph_memory)
        return {
            "sample": f"{type(sampler).__name__} on {sampler.device}{graph_place}",
            "train": str(loader.device),
            "ahead": f"{_AHEAD[loader.ahead]}; at most {loader.max_items} mini-batches exist",
        }

    def train_dataloader(self) -> Loader:
        """The seeds of the train split, shuffled each epoch (with `overfit_batches`: always in their order)."""
        overfit = getattr(self.trainer, "overfit_batches", 0) > 0
        return self._loader("train", self.sampler, self.batch_size, shuffle=not overfit, drop_last=self.drop_last)

    def val_dataloader(self) -> Any:
        """The loader of the validation split. If that is empty, an empty list: Lightning then does not validate."""
        if self._split("val").numel() == 0:
            return []
        return self._eval_loader("val")

    def test_dataloader(self) -> Loader:
        """The loader of the test split."""
        return self._eval_loader("test")

    def predict_dataloader(self) -> Loader:
        """Every node of the graph, in order. With several processes, mini-batches of the last step may repeat those
        of another process; their `repeats` is true.
        """
        return self._eval_loader("predict")

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Moves a mini-batch that is not on the device yet. Copies from pinned memory run asynchronously."""
        if not isinstance(batch, Sample):
            return super().transfer_batch_to_device(batch, device, dataloader_idx)
        if all(t.device == device for t in batch.tensors()):
            return batch
        begin = time.perf_counter()
        batch = batch.to(device, non_blocking=True)
        self.move_seconds += time.perf_counter() - begin
        return batch

    def teardown(self, stage: str | None = None) -> None:
        """Ends the loaders' threads. Data, samplers and statistics stay, because Lightning also calls this after `fit`,
        and `test` may follow. `close()` frees the rest.
        """
        self._end_threads()

    def on_exception(self, exception: BaseException) -> None:
        """Ends the loaders' threads when a run fails or is interrupted; Lightning then calls no `teardown`."""
        self._end_threads()

    def close(self) -> None:
        """Frees loaders, feature store, samplers and copies of the graph. The module cannot be used afterwards."""
        self.teardown()
        for loader in self._loaders.values():
            loader.release()
        for _, session in self._sessions.values():
            session.close()
        self._loaders.clear()
        self._sessions.clear()
        self._made_for.clear()
        self._made_with.clear()
        self._graphs.clear()
        self._labels.clear()
        for store in [] if self._features is None else stores_of(self._features):
            store.close()
        self.sampler.close()
        self.eval_sampler.close()

    def _end_threads(self) -> None:
        for loader in self._loaders.values():
            loader.close()

    def _load(self) -> None:
        if self.data is None:
            data = self.dataset.load() if hasattr(self.dataset, "load") else self.dataset
            if self.items_kind == "walker":
                refuse_types(data, "model=node2vec")
            if isinstance(data, HeteroDataset):
                check_hetero(data.name, self.graph_memory.kind)
            if self.items_kind == "node":
                check_labelled(data)
                for sampler in (self.sampler, self.eval_sampler):
                    times_of(data, data.splits["train"][:0], sampler)
            if data.num_classes:
                check_split_classes(data.splits, data.labels, data.name)
            self.data = data

    def _loaded(self) -> NodeDataset | HeteroDataset:
        if self.data is None:
            raise RuntimeError("the dataset is not open yet; call setup() first")
        return self.data

    def _split(self, split: str) -> Tensor:
        data = self._loaded()
        if split == "predict":
            return torch.arange(data.labels.shape[0])
        return data.splits[split]

    def _planned_seeds(self) -> dict[str, SplitSeeds]:
        """The seeds of each split, as a plan of GPU memory counts them."""
        data, found = self._loaded(), {}
        for split in ("train", "val", "test"):
            ids, times = self._split(split), self._times(split, self.sampler)
            found[split] = SplitSeeds(ids, times, None if times is None else data.labels[ids])
        return found

    def _times(self, split: str, sampler: Sampler) -> Tensor | None:
        """The times of the seeds of a split, for a sampler by time; None for another."""
        return times_of(self._loaded(), self._split(split), sampler)

    def _eval_loader(self, split: str) -> Loader:
        """The loader of a split. Outside of `fit` it always is at epoch 0, so validation has another one there."""
        alone = self.trainer is not None and self.trainer.state.fn != TrainerFn.FITTING
        name = "validate" if alone and split == "val" else split
        loader = self._loader(split, self.eval_sampler, self.eval_batch_size, name=name)
        loader.follows_epochs = not alone
        loader.set_epoch(0)
        return loader

    def _loader(
        self,
        split: str,
        sampler: Sampler,
        batch_size: int,
        *,
        name: str | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
    ) -> Loader:
        name = name or split
        rank, world_size = (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
        device = self.device
        made_for = (id(sampler), rank, world_size, device, shuffle, batch_size, drop_last, self.seed, self.prefetch)
        made_for += self._set_later()
        others = self._made_with.get(name) is not self.edge_features
        if name in self._loaders and (others or self._made_for[name] != made_for):
            self._loaders.pop(name).release()
            self._close_unused_sessions()
        if name not in self._loaders:
            self._loaders[name] = self._make_loader(
                split,
                sampler,
                batch_size,
                shuffle=shuffle,
                drop_last=drop_last,
                seed=self.seed,
                prefetch=self.prefetch,
                rank=rank,
                world_size=world_size,
                device=device,
                session=self._session(sampler),
                prioritize_loading=self.prioritize_loading,
            )
            self._made_for[name], self._made_with[name] = made_for, self.edge_features
        return self._loaders[name]

    def _set_later(self) -> tuple[Any, ...]:
        """What else a subclass makes its loaders of, which its user may set later."""
        return ()

    def _make_loader(self, split: str, sampler: Sampler, batch_size: int, **options: Any) -> Loader:
        """The loader of a split; `options` are those of every `Loader`."""
        data, seeds = self._loaded(), self._split(split)
        if seeds.numel() == 0:
            raise ValueError(f"dataset {data.name} has no nodes in its {split} split; nothing to iterate over")
        times = self._times(split, sampler)
        if times is not None:  # labels go by seed then
            labels, options["times"] = TensorRows(data.labels[seeds].to(sampler.device), data.labels.dtype), times
        else:
            labels = self._labels_on(sampler.device)
        options["edge_features"] = self.edge_features
        return NodeLoader(
            self._graph(sampler), self.features, labels, seeds_of(data, seeds), sampler, batch_size, **options
        )

    def _labels_on(self, device: torch.device) -> TensorRows:
        if device not in self._labels:
            labels = self._loaded().labels
            stored = labels if self.budget is None else self.budget.labels(labels)
            self._labels[device] = TensorRows(stored.to(device), labels.dtype)
        return self._labels[device]

    def _session(self, sampler: Sampler) -> Session:
        """The session of `sampler`, with its workspaces and threads, that all loaders of it share."""
        if id(sampler) not in self._sessions:
            self._sessions[id(sampler)] = sampler, sampler.open(self._graph(sampler))
        return self._sessions[id(sampler)][1]

    def _close_unused_sessions(self) -> None:
        """Closes those of samplers that neither the module nor one of its loaders has by now."""
        used = {id(self.sampler), id(self.eval_sampler), *(self._made_for[name][0] for name in self._loaders)}
        for number in self._sessions.keys() - used:
            self._sessions.pop(number)[1].close()

    def _graph(self, sampler: Sampler) -> Graph | HeteroGraph:
        """The graph where `sampler` reads it; samplers of one device share it."""
        graph = self._loaded().graph
        if sampler.device.type == "cpu":
            return graph
        if sampler.device not in self._graphs:
            self._graphs[sampler.device] = self.graph_memory.place(
                graph, self.sampler, sampler.device, self._train_batches
            )
        return self._graphs[sampler.device]

    def _train_batches(self, graph: Graph | HeteroGraph) -> NodeLoader:
        """The mini-batches of training, sampled one by one, without rows."""
        data, seeds = self._loaded(), self._split("train")
        options: dict[str, Any] = {"shuffle": True, "seed": self.seed, "prefetch": 0}
        options["times"] = self._times("train", self.sampler)
        return NodeLoader(graph, None, None, seeds_of(data, seeds), self.sampler, self.batch_size, **options)


_AHEAD = {
    "none": "nothing runs ahead",
    "threads": "a thread per stage runs ahead",
    "consumer": "the training thread launches all stages ahead, each on its stream",
}


def _current(device: torch.device) -> AbstractContextManager[Any]:
    """Makes a GPU the current one: stores that are not told take that."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

"""The LightningDataModule for link prediction: a loader for training, and held-out links to test on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from lightning.pytorch.trainer.states import TrainerFn, TrainerStatus
from torch import Tensor

from loader import _core
from loader.datamodules.base import DatasetModule
from loader.datamodules.checkpoint_io import use_safe_checkpoints
from loader.datamodules.hetero import open_features, stores_of
from loader.datamodules.hetero_links import split_hetero_links
from loader.datamodules.link_split import LinkSplit, check_shares, split_links
from loader.datasets import DatasetError, DistanceFeatures, HeteroDataset
from loader.datasets.digests import digest_of
from loader.graph import EdgeType, Graph, HeteroGraph
from loader.loaders.base import MAX_PREFETCH
from loader.loaders.links import LinkLoader
from loader.loaders.nodes import NodeLoader
from loader.loaders.options import check_dataset, check_graph_memory, check_sampler
from loader.machine.arguments import as_flag, as_seed, as_size, shown
from loader.machine.renamed_arguments import renamed
from loader.memory.graph import GraphMemory
from loader.samplers import LinkSampler, Negatives, Sampler
from loader.samplers.base import AnyGraph, tell_ignored_times
from loader.samples import Links
from loader.stores import FeatureStore, HostFeatures
from loader.stores.base import check_store_factory

if TYPE_CHECKING:
    from loader.datasets import NodeDataset


@dataclass
class HeldOutLinks:
    """A loader whose one batch is itself: the links of a split, and negatives to compare them with.

    Attributes:
        graph, features: all that the model may use; on the CPU. With types, features are by node type.
        links: `[n, 2]` int64, each once. With types, ends are numbered within their types.
        negatives: `[n, 2]` int64, pairs of nodes that are no links: for the AUC.
        targets: `[n, k]` int64: row `i` has nodes without a link to the first end of link `i`, to rank it among
            them.
        all_nodes: with types, a function of a node type, which returns a loader of all nodes of it.
    """

    graph: AnyGraph
    features: Tensor | dict[str, Tensor]
    links: Tensor
    negatives: Tensor
    targets: Tensor
    all_nodes: Callable[[str], NodeLoader]

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[HeldOutLinks]:
        yield self

    def to(self, device: torch.device, **_: Any) -> HeldOutLinks:
        """Returns this object. The graph stays in host memory; inference moves the parts that it needs."""
        return self


@renamed({"amount": "num_negatives", "ranked": "eval_negatives"})
class LinkDataModule(DatasetModule):
    """A LightningDataModule of the links of a dataset. Some are held out for validation and test.

    A model sees only the graph of the train links, without the links of the mini-batch that it has to predict, see
    `LinkSampler`. Negatives are strict: no negative is a link of any split. The negatives of validation and test are
    the same in every epoch.

    Of a dataset with types, links are the edges of one relation, see `split_hetero_links`. An epoch has each link from
    its source to its destination; if the relation is its own reverse, in both directions.

    Args:
        dataset: an object whose `load()` returns a `NodeDataset` or a `HeteroDataset`, or one of these. Its labels are
            not used. If it has no features, mini-batches have none.
        sampler: samples the neighborhood of the ends; without weights, which the train links do not have.
        features: a function that makes the feature store, see `loader.stores.open_store`.
        batch_size: positive links of a mini-batch, per process. An epoch has each link in both directions, unless they
            are of two types. Of a dataset with types, also nodes of a mini-batch of `all_nodes`.
        val, test: shares of the links to hold out, see `split_links`.
        num_negatives: of training, per positive link.
        eval_negatives: negatives among which a held-out link is ranked.
        exclude, edge_type, reverse: see `LinkSampler`.
        drop_last, prefetch, prioritize_loading: see `loader.loaders.Loader`.
        graph: where the graph lies for a GPU sampler: "device" or "pinned"; "auto" is "device".
        seed: of the split, of the negatives and of the order. Set later, it holds out other links, but not in a fit,
            nor of a model that was trained before.

    Raises:
        TypeError, ValueError: an argument is not as said above.
    """

    def __init__(
        self,
        dataset: Any,
        sampler: Sampler,
        features: Callable[[Tensor], FeatureStore] = HostFeatures,
        *,
        batch_size: int = 512,
        val: float = 0.05,
        test: float = 0.10,
        num_negatives: float = 1,
        eval_negatives: int = 100,
        exclude: str = "reverse",
        drop_last: bool = False,
        prefetch: int = 2,
        graph: str = "auto",
        prioritize_loading: bool = True,
        seed: int = 0,
        edge_type: EdgeType | str | None = None,
        reverse: EdgeType | str | None = None,
    ) -> None:
        super().__init__()
        check_graph_memory(graph, "auto")
        check_dataset(dataset)
        if any(isinstance(one, DistanceFeatures) for one in getattr(dataset, "transforms", ())):
            raise ValueError(_distances_refused(f"transform of dataset {dataset.name}"))
        check_sampler("sampler", sampler, "node")
        GraphMemory(graph).check([sampler])
        check_store_factory(features)
        check_shares(val, test)
        weights = sampler.spec().get("weights")
        if weights is not None:
            raise ValueError(
                f"sampler picks by weights={weights!r}, but the graph of the train links has no weights; leave "
                "weights out"
            )
        self.dataset, self.around = dataset, sampler
        self.batch_size, self.exclude, self.seed = as_size("batch_size", batch_size), exclude, as_seed(seed)
        self.num_negatives = num_negatives
        self.eval_negatives = as_size("eval_negatives", eval_negatives, most=2**31 - 1)
        self.shares: dict[str, Any] = {"val": val, "test": test}
        self.graph_memory = graph
        self._options: dict[str, Any] = {
            "drop_last": as_flag("drop_last", drop_last),
            "prefetch": as_size("prefetch", prefetch, least=0, most=MAX_PREFETCH),
            "prioritize_loading": as_flag("prioritize_loading", prioritize_loading),
        }
        self._make_features = features
        self._relations: dict[str, Any] = {"edge_type": edge_type, "reverse": reverse}
        self._sampler(sampler)  # says at once what is wrong
        self.data: NodeDataset | HeteroDataset | None = None
        self.split: LinkSplit | None = None
        self._drawn: tuple[LinkSplit, tuple[Any, ...]] | None = None  # the split, unless it is the user's, and by what
        self._learners: list[tuple[weakref.ref[Any], str]] = []  # models that were trained, and a digest of what on
        self._loader: LinkLoader | None = None
        self._made_for: tuple[Any, ...] = ()  # what a trainer or its user may change
        self._made_around: Sampler | None = None  # likewise, but not compared by what it is
        self._features: FeatureStore | dict[str, FeatureStore] | None = None

    def _sampler(self, around: Sampler, known: AnyGraph | None = None) -> LinkSampler:
        """The sampler of training."""
        drawn = Negatives("binary", self.num_negatives, strict=True)
        return LinkSampler(around, drawn, exclude=self.exclude, seed=self.seed, known=known, **self._relations)

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes of the data that a model needs, from `prepare_data` on."""
        if isinstance(self.data, HeteroDataset):
            types = self.data.graph.node_types
            return {
                "num_features": {name: self.data.num_features.get(name, 0) for name in types},
                "num_nodes": {name: len(ids) for name, ids in types.items()},
                "edge_types": list(self.data.graph.edge_types),
                "edge_type": self._sampler(self.around).edge_type,
            }
        if not self.num_features:
            return {"num_features": 0, "num_nodes": self.num_nodes}  # each of which the model trains a row for
        return {"num_features": self.num_features}

    @property
    def num_features(self) -> int | dict[str, int]:
        assert self.data is not None
        return self.data.num_features

    @property
    def num_nodes(self) -> int:
        assert self.data is not None
        return self.data.graph.num_nodes

    @property
    def device(self) -> torch.device:
        """Where mini-batches arrive: the trainer's device for this process; without a trainer, the sampler's."""
        strategy = getattr(self.trainer, "strategy", None)
        return self.around.device if strategy is None else torch.device(strategy.root_device)

    def prepare_data(self) -> None:
        """Downloads and converts the dataset, once per machine."""
        if self.data is None:
            data = self.dataset.load() if hasattr(self.dataset, "load") else self.dataset
            if getattr(data, "distances", False):  # of a dataset that was given loaded, or by a function around
                raise ValueError(_distances_refused(f"dataset {data.name}"))
            hetero = isinstance(data, HeteroDataset)
            known = ["__".join(key) for key in data.graph.edge_types] if hetero else []
            if missed := relation_missed(f"dataset {data.name}", hetero, self._relations["edge_type"], known):
                raise DatasetError(missed)
            self._sampler(self.around).ends(data.graph)
            self.data = data

    def setup(self, stage: str | None = None) -> None:
        """Opens the dataset and holds links out, unless that was done before."""
        use_safe_checkpoints(self.trainer)
        self.prepare_data()
        assert self.data is not None
        tell_ignored_times(self.around, self.data.graph)  # the split graph has none
        self._held_out()

    def _held_out(self) -> LinkSplit:
        """The split by the seed and the shares of now, or the one that the user has put in its place.

        Raises:
            ValueError: the model of the trainer has learned from links to hold out: the seed was set since then.
        """
        assert self.data is not None
        by = (self.seed, *self.shares.values())
        drawn = self.split is not None and (
            self._drawn is None or self._drawn[0] is not self.split or self._drawn[1] == by
        )
        trainer: Any = None if self.split is None else self.trainer
        running = trainer is not None and trainer.state.status == TrainerStatus.RUNNING
        if running and not drawn and trainer.global_step > 0:
            self._refuse_learned()
        if not drawn:
            self._draw(by)
        assert self.split is not None
        if running and getattr(trainer, "ckpt_path", None) is None:  # a checkpoint knows what it learned from
            for model, learned_from in self._learners:
                if model() is trainer.lightning_module and learned_from != digest_of(self.split.pairs["train"]):
                    self._refuse_learned()
        return self.split

    def _refuse_learned(self) -> NoReturn:
        raise ValueError(
            f"seed is {self.seed}, which holds out other links than the model was trained without; set it before "
            "fit, with a new model and Trainer"
        )

    def _note_learner(self) -> None:
        """Remembers what the model of a fit that ends has learned from."""
        trainer = self.trainer
        if self.split is None or trainer is None or trainer.state.fn != TrainerFn.FITTING:
            return
        if getattr(trainer, "global_step", 0) > 0:
            known = [one for one in self._learners if one[0]() not in (None, trainer.lightning_module)]
            self._learners = [*known, (weakref.ref(trainer.lightning_module), digest_of(self.split.pairs["train"]))]

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles, such as of `ddp_spawn`: the models that were trained are of this process."""
        return {**self.__dict__, "_learners": []}

    def _draw(self, by: tuple[Any, ...]) -> None:
        assert self.data is not None
        self._free_loader()
        if isinstance(self.data, HeteroDataset):
            sampler = self._sampler(self.around)
            assert sampler.edge_type is not None
            relations = sampler.edge_type, sampler.reverse
            self.split = split_hetero_links(self.data.graph, *relations, **self.shares, seed=self.seed)
        else:
            assert isinstance(self.data.graph, Graph)
            self.split = split_links(self.data.graph, **self.shares, seed=self.seed)
        self._drawn = self.split, by

    def learned_from(self) -> Tensor | None:
        return None if self.split is None else self.split.pairs["train"]

    def train_dataloader(self) -> LinkLoader:
        """The train links, each in both directions unless they have two types, shuffled each epoch (with
        `overfit_batches`: always in their order).

        The loader is kept until a trainer of another rank, number of processes or device asks for it, or one after
        `batch_size`, `seed`, `num_negatives`, `exclude` or `around`, the sampler, was set.
        """
        split = self._held_out()
        rank, world_size = (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
        shuffle = not getattr(self.trainer, "overfit_batches", 0) > 0
        place = (rank, world_size, self.device, shuffle)
        made_for = (*place, self.batch_size, self.seed, self.num_negatives, self.exclude)
        if self._loader is not None and (self._made_for != made_for or self._made_around is not self.around):
            self._free_loader()
        if self._loader is None:
            self._loader = self._make_loader(split, *place)
            self._made_for, self._made_around = made_for, self.around
        return self._loader

    def _make_loader(
        self, split: LinkSplit, rank: int, world_size: int, device: torch.device, shuffle: bool
    ) -> LinkLoader:
        around = self.around.on(device)
        sampler = self._sampler(around, split.known)
        if self.trainer is not None:
            self._check_eval_negatives(split)
        links = split.pairs["train"]
        if sampler.edge_type is None or sampler.reverse == sampler.edge_type:
            links = torch.cat([links, links.flip(1)])
        return LinkLoader(
            self._placed(split.graph, around),
            self._opened_features(),
            links,
            sampler,
            self.batch_size,
            shuffle=shuffle,
            seed=self.seed,
            device=device,
            rank=rank,
            world_size=world_size,
            **self._options,
        )

    def _placed(self, graph: AnyGraph, around: Sampler) -> AnyGraph:
        """The graph where the sampler reads it."""
        if around.device.type != "cuda":
            return graph
        return graph.pin_memory() if self.graph_memory == "pinned" else graph.to(around.device)

    def _opened_features(self) -> Any:
        assert self.data is not None
        assert self.split is not None
        if self._features is None and self.num_features:
            self._features = open_features(self._make_features, self.data, self.split.graph, None)
        return self._features

    def all_nodes(self, graph: AnyGraph, node_type: str) -> NodeLoader:
        """A loader of all nodes of a type, in their order, around which `graph` is sampled. The caller closes it."""
        assert isinstance(graph, HeteroGraph)
        around = self.around.on(self.device)
        ids = torch.arange(len(graph.node_types[node_type]))
        of = self._placed(graph, around), self._opened_features(), None, (node_type, ids), around, self.batch_size
        return NodeLoader(*of, device=self.device, **{**self._options, "drop_last": False})

    def val_dataloader(self) -> HeldOutLinks:
        return self.held_out("val")

    def test_dataloader(self) -> HeldOutLinks:
        return self.held_out("test")

    def held_out(self, name: str) -> HeldOutLinks:
        """The links of "val" or "test", with negatives drawn for them."""
        assert self.data is not None
        split = self._held_out()
        links = split.pairs[name]
        count, batch = len(links), ("val", "test").index(name)
        drawn = torch.empty(2, count, dtype=torch.int64)
        targets = torch.empty(count * self.eval_negatives, dtype=torch.int64)
        draw = self._draws_of_negatives(split)
        draw(batch, None, drawn[0], drawn[1])
        draw(batch, links[:, 0].contiguous(), None, targets)
        return HeldOutLinks(
            split.graph,
            self.data.features,
            links,
            drawn.t().contiguous(),
            targets.view(count, self.eval_negatives),
            partial(self.all_nodes, split.graph),
        )

    def _draws_of_negatives(self, split: LinkSplit) -> Callable[[int, Tensor | None, Tensor | None, Tensor], None]:
        """A function of the number of a held-out part, the sources that are given or None, those to draw or None, and
        the targets to draw: it fills these with pairs that are no links.
        """
        ends = self._sampler(self.around).ends(split.graph)
        known = ends.edges(split.known)
        among = len(ends.sources), len(ends.targets), ends.sources == ends.targets

        def draw(batch: int, given: Tensor | None, sources: Tensor | None, targets: Tensor) -> None:
            # Epochs count up from 0: the last one is never reached, so that training has other negatives.
            at = *among, self.seed, 2**64 - 1, batch
            _core.negatives(*at, given, sources, targets, known.indptr, known.indices, True)

        return draw

    def _check_eval_negatives(self, split: LinkSplit) -> None:
        """Raises DatasetError if there is nothing to rank a held-out link among: else a run would end in that after its
        training.
        """
        assert self.data is not None
        draw = self._draws_of_negatives(split)
        for batch, name in enumerate(("val", "test")):
            given = split.pairs[name][:, 0].unique()
            try:
                draw(batch, given, None, torch.empty_like(given))
            except ValueError as error:
                why = str(error).partition(";")[0]
                raise DatasetError(
                    f"dataset {self.data.name}: {why} to rank its links of the {name} split among; leave the links of "
                    "that node out of the dataset"
                ) from error

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Moves a mini-batch that is not on the device yet."""
        if isinstance(batch, Links) and any(t.device != device for t in batch.tensors()):
            return batch.to(device, non_blocking=True)
        return batch

    def teardown(self, stage: str | None = None) -> None:
        """Ends the loader's threads; `close()` frees the rest."""
        self._note_learner()
        if self._loader is not None:
            self._loader.close()

    def on_exception(self, exception: BaseException) -> None:
        """Ends the loader's threads when a run fails or is interrupted."""
        self._note_learner()
        if self._loader is not None:
            self._loader.close()

    def close(self) -> None:
        """Frees loader, feature store and sampler. The module cannot be used afterwards."""
        self._free_loader()
        self.around.close()

    def _free_loader(self) -> None:
        if self._loader is not None:
            self._loader.release()
            self._loader = None
        if self._features is not None:
            for store in stores_of(self._features):
                store.close()
            self._features = None


def _distances_refused(what: str) -> str:
    """What is said of distances among the features."""
    return (
        f"{what} has DistanceFeatures, whose distances go along links that are held out, so a model would read the "
        "answers; leave it out"
    )


def relation_missed(what: str, hetero: bool, edge_type: Any, relations: Sequence[str] = ()) -> str | None:
    """What is said unless the links of a dataset with types, and only these, have a relation.

    Args:
        what: the dataset.
        hetero: whether it has types.
        edge_type: the relation that was given.
        relations: of the dataset, if they are known.
    """
    if hetero == (edge_type is not None):
        return None
    if not hetero:
        return f"{what} has one type of nodes and edges, and datamodule.edge_type is {shown(edge_type)}; leave it out"
    known = f": {', '.join(relations)}" if relations else ""
    return (
        f"{what} has types of nodes and edges, and task=link predicts links of one relation; name it, "
        f"datamodule.edge_type=SOURCE__NAME__DESTINATION, and the one with their reverses, datamodule.reverse{known}"
    )

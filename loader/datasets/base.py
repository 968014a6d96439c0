"""The base class of all datasets: a description that can be loaded, through a cached conversion."""

from __future__ import annotations

import inspect
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from loader.datasets.cache import (
    CachedArrays,
    cache_folder,
    current_version,
    has_conversion,
    open_cache,
    read_current_meta,
    read_meta,
)
from loader.datasets.cache_lock import conversion_lock
from loader.datasets.cache_writer import CacheWriter
from loader.datasets.errors import CacheError, DatasetError
from loader.datasets.feature_rows import read_rows
from loader.datasets.local_ranks import is_of_this_launch
from loader.datasets.locations import check_folder, check_name, resolve_cache_dir, trusted_conversion
from loader.datasets.node_dataset import SPLITS, NodeDataset
from loader.datasets.progress import ConversionProgress
from loader.graph import Graph
from loader.machine.arguments import as_flag, check_known, kind_of, shown
from loader.machine.hardware import usable_memory
from loader.machine.shared import local_ranks

log = logging.getLogger(__name__)

Data = TypeVar("Data")

MAPPED = frozenset({"features", "labels", "ids", "id_texts", "id_ends"})
_TOPOLOGY = frozenset({"indptr", "indices", "edge_ids", "edge_weights", "edge_times", "edge_types", "node_times"})
_MEMORY_SHARE = 0.5  # of the memory, that the topology may take


class CachedDataset(ABC, Generic[Data]):
    """The description of a dataset of any kind. The first `load()` converts the files; later ones open the conversion.

    Args:
        name: of the dataset; part of the name of its cache folder.
        data_dir: the folder of the files of all datasets. Only downloads are written there and, if `cache_dir` is None,
            conversions.
        cache_dir: the folder of all conversions; None takes `data_dir/cache`, or `~/.cache/gnn-loader` if `data_dir`
            cannot be written to. A conversion there that another user can have written is not used: in its place one is
            made in `~/.cache/gnn-loader`.
        rebuild: convert again, even if there is a conversion. This is done once each time that `rebuild` is set, by one
            of the processes that were launched together. A file that took the place of one of the same size and time of
            modification is not seen to be another: then set this.
        verify: compare features and labels with their checksums whenever the dataset is opened, which reads them once.
            A topology in memory is always compared; one that stays on disk only with this option.
        in_memory: whether the topology is read into memory. False leaves it in its files, from which samplers on the
            CPU read single pages. None reads it if it takes at most half of the memory that this process may use.
        transform: a function that makes another `NodeDataset` of the one that was loaded, for example
            `DistanceFeatures()`, or a list of such functions; of a dataset with types it is another `HeteroDataset`.
            It is called by each `load`, and is no part of the conversion.

    Raises:
        TypeError, ValueError: an option is not as said above; the name cannot be that of a folder.
    """

    kind: ClassVar[type]  # of what is loaded
    mapped = MAPPED  # arrays that are memory-mapped

    def __init__(
        self,
        name: str,
        *,
        data_dir: str | Path = "data",
        cache_dir: str | Path | None = None,
        rebuild: bool = False,
        verify: bool = False,
        in_memory: bool | None = None,
        transform: Callable[[Data], Data] | Sequence[Callable[[Data], Data]] | None = None,
        **unknown: Any,
    ) -> None:
        check_known(type(self).__name__, unknown, sorted(keywords_of(type(self))))
        check_name(name)
        self.name = name
        check_folder("data_dir", data_dir)
        if cache_dir is not None:
            check_folder("cache_dir", cache_dir)
        for what, folder in (("data_dir", data_dir), ("cache_dir", cache_dir)):
            if folder is not None and Path(folder).expanduser().is_file():
                raise ValueError(f"{what} is {folder}, which is a file; it must be the path of a folder")
        self.data_dir = Path(os.path.abspath(Path(data_dir).expanduser()))
        self.cache_dir = resolve_cache_dir(cache_dir, self.data_dir)
        self.rebuild = rebuild
        self.verify = as_flag("verify", verify)
        self.in_memory = None if in_memory is None else as_flag("in_memory", in_memory)
        self.transforms: list[Callable[[Data], Data]] = _as_transforms(transform, self.kind.__name__)

    @property
    def rebuild(self) -> bool:
        """Whether the next `load` converts again."""
        return self._rebuild

    @rebuild.setter
    def rebuild(self, value: bool) -> None:
        self._rebuild = as_flag("rebuild", value)
        self._asked_at = time.time_ns()

    def load(self) -> Data:
        """Opens the dataset. If there is no conversion yet, it is made first.

        The topology is read into memory, unless `in_memory` says otherwise. Features, labels and the user's ids are
        memory-mapped; only features that are mostly zeros are read, too. If several processes of a run are on this
        machine, all arrays are memory-mapped, so that they lie in memory once; the first process compares checksums.

        Raises:
            DatasetError: the source is absent, incomplete, or contradicts itself.
            CacheError: the conversion cannot be written, is damaged, or others can have written it.
        """
        key = {"dataset": self.name, "source": self.source(), "options": self.options()}
        folder = trusted_conversion(cache_folder(self.cache_dir, self.name, key))
        if self.rebuild or not has_conversion(folder):
            with conversion_lock(folder):
                if self._is_done(folder):
                    log.info("%s: another process converted it into %s", self.name, folder)
                else:
                    self._convert(folder, key)
            self.rebuild = False  # once is enough, however often this object is loaded
        else:
            log.info("%s: opened from %s", self.name, folder)
        rank, processes = local_ranks()
        # What stays on disk is not read for its checksums: the graph's own checks read it once.
        arrays = self.mapped if self._fits(folder) else self.mapped | _TOPOLOGY
        cached = open_cache(
            folder,
            key,
            mapped=arrays if processes == 1 else None,
            trusted=arrays if rank == 0 else None,
            verify=self.verify and rank == 0,
        )
        try:
            data = self._assemble(cached)
        except DatasetError:
            # The conversion checked all that is refused here: unless options of this run are to blame, a file was
            # changed since. What is mapped was not compared with its checksums yet.
            open_cache(folder, key, mapped=arrays, verify=True)
            raise
        for transform in self.transforms:
            try:
                data = transform(data)
            except (TypeError, AttributeError) as error:  # most likely it is a function of something else
                what = getattr(transform, "__name__", type(transform).__name__)
                raise TypeError(
                    f"transform {what} of {self.name} failed: {error}; it must take a {self.kind.__name__} and return "
                    "one"
                ) from error
            if not isinstance(data, self.kind):
                raise TypeError(
                    f"a transform of {self.name} returned {kind_of(data)}; it must return a {self.kind.__name__}"
                )
        return data

    @abstractmethod
    def _assemble(self, cached: CachedArrays) -> Data:
        """What is loaded, of the arrays and properties that `convert` wrote."""

    @abstractmethod
    def source(self) -> Any:
        """A description of the state of the source, as JSON, that changes with the source. Downloads the source if
        possible.

        Raises:
            DatasetError: there is no source.
        """

    def options(self) -> dict[str, Any]:
        """Every option that changes the conversion, as JSON."""
        return {}

    @abstractmethod
    def convert(self, writer: CacheWriter, progress: ConversionProgress) -> None:
        """Writes arrays and properties."""

    def draw_splits(self, labels: Tensor) -> dict[str, Tensor] | None:
        """Splits that are drawn whenever the dataset is opened; None if the conversion holds the splits.

        So another seed of the split needs no other conversion.
        """
        return None

    def _splits(self, arrays: dict[str, Tensor]) -> dict[str, Tensor]:
        splits = self.draw_splits(arrays["labels"])
        if splits is None:
            splits = {split: arrays.get(split, torch.empty(0, dtype=torch.int64)) for split in SPLITS}
        return splits

    def _fits(self, folder: Path) -> bool:
        """Whether the topology is to be read into memory."""
        if self.in_memory is not None:
            return self.in_memory
        arrays = read_current_meta(folder)["arrays"]
        nbytes = sum(array["bytes"] for name, array in arrays.items() if name in _TOPOLOGY)
        if nbytes <= _MEMORY_SHARE * usable_memory():
            return True
        log.info("%s: %.1f GiB of topology stay on disk (dataset.in_memory)", self.name, nbytes / 2**30)
        return False

    def _is_done(self, folder: Path) -> bool:
        """Whether another process converted what this one waited for, or was asked to convert again."""
        if not has_conversion(folder):
            return False
        if not self.rebuild:
            return True
        try:
            meta = read_meta(current_version(folder))
        except CacheError:
            return False
        return bool(meta["made_at"] >= self._asked_at) or is_of_this_launch(meta["made_by"])

    def _convert(self, folder: Path, key: dict[str, Any]) -> None:
        log.info("%s: converting into %s", self.name, folder)
        start = time.perf_counter()
        with CacheWriter(folder, key) as writer, ConversionProgress(self.name) as progress:
            self.convert(writer, progress)
        said = "; ".join([f"{self.name}: converted in {time.perf_counter() - start:.1f} s", *progress.notes])
        log.info("%s", said)


class Dataset(CachedDataset[NodeDataset]):
    """The description of a dataset of one type of nodes. The first `load()` converts the files; later ones open the
    conversion.

    Args:
        name: of the dataset; part of the name of its cache folder.
        options: see `CachedDataset`.
    """

    kind = NodeDataset

    @abstractmethod
    def convert(self, writer: CacheWriter, progress: ConversionProgress) -> None:
        """Writes the arrays `indptr indices features labels`, the splits if there are any and `draw_splits` draws none,
        and the properties `num_classes` and `multilabel`. If the source has them, also writes `edge_weights edge_times
        edge_types node_times`, and the property `node_types`, a list of [name, size].
        """

    def _assemble(self, cached: CachedArrays) -> NodeDataset:
        arrays = cached.arrays
        try:
            graph = Graph(
                arrays["indptr"],
                arrays["indices"],
                node_types=dict(node_types) if (node_types := cached.properties.get("node_types")) else None,
                edge_weights=arrays.get("edge_weights"),
                edge_times=arrays.get("edge_times"),
                edge_types=arrays.get("edge_types"),
                node_times=arrays.get("node_times"),
            )
        except ValueError as error:
            raise DatasetError(f"{self.name}: {error}") from error
        return NodeDataset(
            name=self.name,
            graph=graph,
            features=read_rows(arrays),
            labels=arrays["labels"],
            splits=self._splits(arrays),
            num_classes=int(cached.properties["num_classes"]),
            multilabel=bool(cached.properties["multilabel"]),
        )


def keywords_of(cls: type) -> set[str]:
    """The keywords that a class and those above it take."""
    inits = [inspect.signature(vars(base)["__init__"]).parameters for base in cls.__mro__ if "__init__" in vars(base)]
    return {name for parameters in inits for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY}


def _as_transforms(transform: Any, kind: str) -> list[Callable[[Any], Any]]:
    if transform is None:
        return []
    if callable(transform):
        return [transform]
    several = list(transform) if isinstance(transform, Sequence) and not isinstance(transform, str) else [transform]
    for one in several:
        if not callable(one):
            raise TypeError(f"transform is {shown(one)}; it must be a function of a {kind}, or a list of them")
    return several

"""The user's own graph with several types, as NumPy arrays in one .npz file."""

from __future__ import annotations

import contextlib
import dataclasses
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from loader.datasets.cache import CachedArrays
from loader.datasets.cache_writer import CacheWriter
from loader.datasets.errors import DatasetError
from loader.datasets.hetero import HeteroDataset
from loader.datasets.hetero_edges import HeteroEdges, HeteroEdgesDataset
from loader.datasets.locations import fingerprint, given_file, require_file
from loader.datasets.node_dataset import SPLITS, checked_num_classes
from loader.datasets.npz import ALIASES, read_arrays
from loader.datasets.numbers import as_int64
from loader.datasets.splits import (
    as_split_seed,
    check_fractions,
    check_split_times,
    ids_of,
    stratified_split,
    time_split,
)
from loader.datasets.unread_parts import tell_unread
from loader.graph import EdgeType
from loader.machine.arguments import kind_of, shown
from loader.machine.spelling import nearest_name

_OF_NODES = ("num_nodes", "features", "labels", "node_times", "feature_times", *SPLITS)
_OF_EDGES = ("edge_index", "edge_weights", "edge_times")


class HeteroNpzDataset(HeteroEdgesDataset):
    """A .npz file with the arrays below, as `write_hetero_npz` writes it.

    What belongs to a relation; its name begins with `source/name/target/`:

    ================ ============================== ======================================================
    array            shape                          content
    ================ ============================== ======================================================
    `edge_index`     [2, num_edges] integer         row 0 the sources, row 1 the destinations, numbered
                                                    within their types
    `edge_weights`   [num_edges] float32 or float64 finite and at least 0, of the same edges
    `edge_times`     [num_edges] integer            in any unit, of the same edges; or floats that are
                                                    whole numbers, NaN where a time is missing
    ================ ============================== ======================================================

    What belongs to the nodes of a type; its name begins with `type/`:

    ================ ============================== ======================================================
    array            shape                          content
    ================ ============================== ======================================================
    `features`       [num_nodes, num_features]      real numbers, stored as float32
    `num_nodes`      one integer                    needed of a type without features and labels
    `node_times`     [num_nodes] integer            as `edge_times`
    `feature_times`  [num_nodes] integer            the same, of features that are filled in after the time of
                                                    their node, see `HeteroDataset`
    `labels`         [num_nodes] integer            of one type: the class, -1 if there is none
    `train`, `val`,  [size] integer or              the split of the type with labels, as ids or as masks;
    `test`           [num_nodes] bool               all three or none
    ================ ============================== ======================================================

    `num_classes`, one integer, is optional; else there is one class more than the largest label. In a file without
    labels, `target` may name a type; else it is the first one.

    Types and relations are numbered in the order in which the file first names them. `numpy.savez` keeps the order of
    its arguments. A type is named by an array of its own, not by an edge::

        numpy.savez("papers.npz", **{"paper/features": x, "paper/labels": y, "author/num_nodes": 50,
                                     "author/writes/paper/edge_index": edges})

    Args:
        path: of the file. A relative path is also looked for in `data_dir`, if the file is not in the working
            directory.
        name: of the dataset; None takes the name of the file.
        split: fractions of train, val and test, if the file has no split. The split is drawn from the labelled nodes,
            with equal fractions in every class.
        split_seed: seed of that draw.
        split_times: two times, if the file has no split: nodes with a label that are earlier than the first are for
            training, those from the second one on for the test. Nodes without a time are in no split.
        undirected: add the reverse of every edge, see `HeteroEdgesDataset`.
        options: see `HeteroEdgesDataset`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        split: Sequence[float] | None = None,
        split_seed: int = 0,
        split_times: Sequence[int] | None = None,
        undirected: bool = False,
        **options: Any,
    ) -> None:
        if not isinstance(path, (str, Path)):
            raise TypeError(f"path is {path!r}; it must be that of a .npz file")
        super().__init__(name if name is not None else Path(path).absolute().stem, undirected=undirected, **options)
        self.given, self.path = path, given_file(path, self.data_dir)
        self.split = check_fractions(split) if split is not None else None
        self.split_seed = as_split_seed(
            split_seed, drawn=self.split is not None, way="give split=[0.6,0.2,0.2] for a file without one"
        )
        self.split_times = None if split_times is None else check_split_times(split_times)
        if self.split is not None and self.split_times is not None:
            raise ValueError(
                f"split and split_times={list(self.split_times)} are given, and both say the split; give one"
            )

    def source(self) -> list[Any]:
        require_file(self.given, self.path, f"{self.name}: ", "dataset.path", ".npz file")
        return [str(self.path.resolve()), *fingerprint(self.path.parent, [self.path.name])]

    def options(self) -> dict[str, Any]:
        return {**super().options(), "drawn_split": self._drawn() is not None}

    def _drawn(self) -> str | None:
        """The option that says the split, if the file does not."""
        if self.split is not None:
            return f"split={list(self.split)}"
        return None if self.split_times is None else f"split_times={list(self.split_times)}"

    def draw_splits(self, labels: Tensor) -> dict[str, Tensor] | None:
        return None if self.split is None else stratified_split(labels, self.split, self.split_seed)

    def _assemble(self, cached: CachedArrays) -> HeteroDataset:
        data = super()._assemble(cached)
        if self.split_times is None:
            return data
        times = data.graph.lists.node_times
        if data.target not in data.graph.timed_types or times is None:
            raise DatasetError(
                f"{self.name}: split_times is {list(self.split_times)}, but nodes of {data.target} have no times; add "
                f"the array '{data.target}/node_times', or leave it out"
            )
        ids = data.graph.node_types[data.target]
        splits = time_split(data.labels, times[ids.start : ids.stop], self.split_times)
        return dataclasses.replace(data, splits=splits)

    def read(self, writer: CacheWriter) -> HeteroEdges:
        arrays = read_arrays(self.path)
        nodes: dict[str, dict[str, NDArray[np.generic]]] = {}
        edges: dict[EdgeType, NDArray[np.generic]] = {}
        values: dict[str, dict[EdgeType, NDArray[np.generic]]] = {"edge_weights": {}, "edge_times": {}}
        read = ["num_classes", "target"]
        for name, array in arrays.items():
            *owner, what = name.split("/")
            known = {1: _OF_NODES, 3: _OF_EDGES}.get(len(owner), ())
            if what not in known:
                self._check_name(name, what, known)
                continue
            read.append(name)
            if len(owner) == 1:
                nodes.setdefault(owner[0], {})[what] = array
            else:
                (edges if what == "edge_index" else values[what])[owner[0], owner[1], owner[2]] = array
        if not edges:
            raise DatasetError(
                f"{self.path} has no array 'source/name/target/edge_index'; it holds {', '.join(sorted(arrays))}"
            )
        tell_unread(self.name, self.path, arrays, read)
        for key in edges:
            for name in (key[0], key[2]):
                if name not in nodes:
                    raise DatasetError(
                        f"{self.path} does not say how many nodes '{name}' of {'/'.join(key)} has; add the array "
                        f"'{name}/num_nodes'"
                    )
        num_nodes = {name: self._num_nodes(name, of) for name, of in nodes.items()}
        labelled = [name for name, of in nodes.items() if "labels" in of]
        splits = [(name, split) for name, of in nodes.items() for split in SPLITS if split in of]
        if len(labelled) > 1 or any(name not in labelled for name, _ in splits):
            raise DatasetError(
                f"{self.path} has labels of {', '.join(labelled) or 'no type'} and splits of "
                f"{', '.join(sorted({name for name, _ in splits})) or 'no type'}; one type has both"
            )
        if (drawn := self._drawn()) is not None and (splits or not labelled):
            what = f"the split {', '.join(split for _, split in splits)}" if splits else "no labels"
            raise DatasetError(
                f"{self.path} has {what}, and {drawn} asks to draw one; leave out {drawn.partition('=')[0]}"
            )
        if splits and len(splits) < len(SPLITS):
            missing = [split for split in SPLITS if (labelled[0], split) not in splits]
            raise DatasetError(f"{self.path} has no array '{labelled[0]}/{missing[0]}'; add it, or leave out all three")
        target = self._target(arrays, list(nodes), labelled)
        return HeteroEdges(
            edges=edges,
            num_nodes=num_nodes,
            target=target,
            labels=nodes.get(target, {}).get("labels"),
            features={name: of["features"] for name, of in nodes.items() if "features" in of},
            num_classes=self._num_classes(arrays),
            splits={
                split: ids_of(nodes[target][split], num_nodes[target], f"{self.path}: {target}/{split}")
                for _, split in splits
            }
            or None,
            node_times={name: of["node_times"] for name, of in nodes.items() if "node_times" in of},
            feature_times={name: of["feature_times"] for name, of in nodes.items() if "feature_times" in of},
            **values,
        )

    def _check_name(self, name: str, what: str, known: tuple[str, ...]) -> None:
        """Refuses an array that nothing reads if its name is nearly that of one that is read."""
        alias = {**ALIASES, "edge_weight": "edge_weights"}.get(what)
        meant = alias if alias in known else nearest_name(what, known, cutoff=0.85)
        if meant:
            raise DatasetError(
                f"{self.path} has an array '{name}', which is not read; did you mean "
                f"'{name.removesuffix(what)}{meant}'? Rename it, or leave it out"
            )

    def _num_nodes(self, name: str, arrays: dict[str, NDArray[np.generic]]) -> int:
        if "num_nodes" in arrays:
            given = as_int64(arrays["num_nodes"], f"{self.path}: {name}/num_nodes").reshape(-1)
            if given.size != 1 or given[0] < 0:
                raise DatasetError(
                    f"{self.path}: {name}/num_nodes is {given.tolist()}; it must be one number of at least 0"
                )
            return int(given[0])
        for what in ("features", "labels"):
            if what in arrays and arrays[what].ndim:
                return len(arrays[what])
        raise DatasetError(f"{self.path} does not say how many nodes '{name}' has; add the array '{name}/num_nodes'")

    def _target(self, arrays: dict[str, NDArray[np.generic]], types: list[str], labelled: list[str]) -> str:
        if "target" not in arrays:
            return (labelled or types)[0]
        given = arrays["target"].reshape(-1).tolist()
        if len(given) != 1 or given[0] not in (labelled or types):
            raise DatasetError(
                f"{self.path}: target is {shown(given[0] if len(given) == 1 else given)}; it must be "
                f"{'the type with labels, ' if labelled else ''}one of {', '.join(labelled or types)}"
            )
        return str(given[0])

    def _num_classes(self, arrays: dict[str, NDArray[np.generic]]) -> int | None:
        if "num_classes" not in arrays:
            return None
        given = arrays["num_classes"].reshape(-1)
        return checked_num_classes(given[0].item() if given.size == 1 else given.tolist(), str(self.path))


def has_types(path: Path) -> bool:
    """Whether a file is a .npz file of a graph with several types: only its list of contents is read."""
    with contextlib.suppress(OSError, zipfile.BadZipFile, ValueError, EOFError), zipfile.ZipFile(path) as file:
        return any(name.endswith("/edge_index.npy") for name in file.namelist())
    return False


def write_hetero_npz(data: HeteroDataset, path: str | Path) -> None:
    """Writes a dataset as a .npz file that `HeteroNpzDataset` reads.

    Edges are written in the order of their ids if these number the edges of each relation, else in that of the lists.

    Raises:
        TypeError: `data` is no `HeteroDataset`.
        ValueError: a name of a type or relation has a "/", or is empty; the graph has no relation.
    """
    if not isinstance(data, HeteroDataset):
        raise TypeError(f"data is {kind_of(data)}; it must be a loader.datasets.HeteroDataset")
    graph = data.graph
    if not graph.edge_types:
        raise ValueError(f"{data.name} has 0 relations; a file has at least 1, which may have no edges")
    for name in [*graph.node_types, *(key[1] for key in graph.edge_types)]:
        if not name or "/" in name:
            raise ValueError(f"the name {name!r} cannot be part of an array's name; rename it without '/'")
    arrays: dict[str, Any] = {}
    for name, ids in graph.node_types.items():
        arrays[f"{name}/num_nodes"] = np.array(len(ids))
        if name in graph.timed_types:
            assert graph.lists.node_times is not None
            arrays[f"{name}/node_times"] = graph.lists.node_times[ids.start : ids.stop].cpu().numpy()
        if name in data.features:
            arrays[f"{name}/features"] = data.features[name].numpy()
        if name in data.feature_times:
            arrays[f"{name}/feature_times"] = data.feature_times[name].numpy()
        if name == data.target and data.num_classes:
            arrays[f"{name}/labels"] = data.labels.numpy()
            if any(split.numel() for split in data.splits.values()):
                arrays |= {f"{name}/{split}": of.numpy() for split, of in data.splits.items()}
    for key in graph.edge_types:
        one = graph.relation(key)
        assert one.edge_ids is not None
        dst = np.repeat(np.arange(one.num_dst), one.in_degrees().cpu().numpy())
        pairs, order = np.stack([one.indices.cpu().numpy(), dst]), one.edge_ids.cpu().numpy()
        every = np.arange(order.size)
        back = np.argsort(order) if np.array_equal(np.sort(order), every) else every
        arrays[f"{'/'.join(key)}/edge_index"] = pairs[:, back]
        for what in ("edge_weights", "edge_times"):
            if (array := getattr(one, what)) is not None:
                arrays[f"{'/'.join(key)}/{what}"] = array.cpu().numpy()[back]
    if data.num_classes:
        arrays["num_classes"] = np.array(data.num_classes)
    arrays["target"] = np.array(data.target)
    np.savez(path, **arrays)

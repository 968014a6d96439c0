"""The user's own graph, as NumPy arrays in one .npz file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from loader.datasets.cache_writer import CacheWriter
from loader.datasets.edge_list_base import EdgeList, EdgeListDataset
from loader.datasets.errors import DatasetError
from loader.datasets.locations import fingerprint, given_file, require_file
from loader.datasets.node_dataset import SPLITS, checked_num_classes
from loader.datasets.numbers import as_int64, is_text
from loader.datasets.splits import as_split_seed, check_fractions, ids_of, random_split, stratified_split
from loader.datasets.unread_parts import tell_unread
from loader.machine.spelling import nearest_name

_VALUES = ("edge_weights", "edge_times", "edge_types", "node_times")
_OPTIONAL = (*_VALUES, "node_types", "node_type_sizes", "num_classes", "num_nodes", "features", "labels")
_SPARSE_IDS = 10  # times as many nodes as edges are taken for ids of something else
# Names that torch_geometric and others have for what is read here.
ALIASES = {
    **{f"{split}_{word}": split for split in SPLITS for word in ("mask", "idx", "index")},
    **dict.fromkeys(("valid", "validation", "dev"), "val"),
    **dict.fromkeys(("weight", "weights"), "edge_weights"),
    **dict.fromkeys(("x", "X", "feat", "attr"), "features"),
    **dict.fromkeys(("y", "Y", "targets"), "labels"),
}
_TOPOLOGIES: tuple[tuple[str, ...], ...] = (("edge_index",), ("src", "dst"), ("indptr", "indices"))


def read_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """The arrays of a .npz file, by name, in their order.

    Raises:
        DatasetError: it cannot be read as one.
    """
    arrays: dict[str, NDArray[np.generic]] = {}
    name = "the array"
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            for name in getattr(loaded, "files", ()):
                arrays[name] = loaded[name]
    except (
        ValueError,
        OSError,
        MemoryError,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
    ) as error:
        if "Object arrays" in str(error):
            raise DatasetError(
                f"{path}: {name} has Python objects, such as lists of several lengths; save numbers: astype(...)"
            ) from error
        if "pickle" in str(error):
            raise DatasetError(f"{path} is no .npz file; write one by numpy.savez") from error
        raise DatasetError(f"{path} cannot be read as a .npz file ({error}); is it truncated?") from error
    if any(name.endswith("/data.pkl") or name == "data.pkl" for name in arrays):
        raise DatasetError(
            f"{path} was written by torch.save; write the arrays by numpy.savez, e.g. "
            "numpy.savez(path, **{name: tensor.numpy() for name, tensor in saved.items()})"
        )
    if isinstance(loaded, np.ndarray):
        raise DatasetError(f"{path} is a single array; save all of them with numpy.savez")
    return arrays


class NpzDataset(EdgeListDataset):
    """A .npz file (`numpy.savez(path, **arrays)`) with the arrays below.

    The edges, in one of three forms:

    ==================== ============================== =====================================================
    array                shape                          content
    ==================== ============================== =====================================================
    `edge_index`         [2, num_edges] integer         row 0 the sources, row 1 the destinations
    `src`, `dst`         [num_edges] integer            the same as two arrays
    `indptr`, `indices`  [num_nodes + 1], [num_edges]   CSC: the in-neighbors of node v are
                         integer                        `indices[indptr[v]:indptr[v + 1]]`
    ==================== ============================== =====================================================

    What belongs to the nodes. `features` may be left out, and so may `labels` with the split: tasks that read none
    (`task=link`, `model=node2vec`) need none.

    ==================== ============================== =====================================================
    array                shape                          content
    ==================== ============================== =====================================================
    `features`           [num_nodes, num_features]      real numbers, stored as float32
    `labels`             [num_nodes] integer            the class, -1 if there is none (a column
                                                        [num_nodes, 1] is taken as that)
    or `labels`          [num_nodes, num_classes]       zeros and ones: a node may have several labels
    `train`, `val`,      [size] integer or              the split, as node ids or as masks; all three, or
    `test`               [num_nodes] bool               none of them together with the option `split`
    `num_classes`        one integer                    optional; else one more than the largest label (from
                                                        1000 on only if most numbers up to it occur)
    `num_nodes`          one integer                    optional; else as many as `features`, `labels` or `indptr`
                                                        have, or one more than the largest node of an edge
    ==================== ============================== =====================================================

    And if you have them:

    ==================== ============================== =====================================================
    array                shape                          content
    ==================== ============================== =====================================================
    `edge_weights`       [num_edges] float32 or float64 finite and at least 0; like the next two in the order
                                                        of the edges above
    `edge_times`         [num_edges] integer            in any unit
    `edge_types`         [num_edges] integer            from 0 on
    `node_times`         [num_nodes] integer            in any unit
    `node_types`         [num_types] strings            names of the types of nodes: each is a range of
                                                        ids, in this order,
    `node_type_sizes`    [num_types] integer            of this many nodes
    ==================== ============================== =====================================================

    Messages go from the source to the destination of an edge. With `undirected=True` they go in both directions.

    Args:
        path: of the file. A relative path is also looked for in `data_dir`, if the file is not in the working
            directory.
        name: of the dataset; None takes the name of the file.
        split: fractions of train, val and test, if the file has no split. The split is drawn from the labelled
            nodes, with equal fractions in every class. If nodes have several labels, it is drawn from all
            nodes.
        split_seed: seed of that draw.
        options: see `EdgeListDataset`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        split: Sequence[float] | None = None,
        split_seed: int = 0,
        undirected: bool = False,
        self_loops: str = "keep",
        parallel_edges: str = "keep",
        **options: Any,
    ) -> None:
        if not isinstance(path, (str, Path)):
            raise TypeError(f"path is {path!r}; it must be that of a .npz file")
        super().__init__(
            name if name is not None else Path(path).absolute().stem,
            undirected=undirected,
            self_loops=self_loops,
            parallel_edges=parallel_edges,
            **options,
        )
        self.given, self.path = path, given_file(path, self.data_dir)
        self.split = check_fractions(split) if split is not None else None
        self.split_seed = as_split_seed(
            split_seed, drawn=self.split is not None, way="give split=[0.6,0.2,0.2] for a file without one"
        )

    def source(self) -> list[Any]:
        require_file(self.given, self.path, f"{self.name}: ", "dataset.path", ".npz file")
        return [str(self.path.resolve()), *fingerprint(self.path.parent, [self.path.name])]

    def options(self) -> dict[str, Any]:
        return {**super().options(), "drawn_split": self.split is not None}

    def read(self, writer: CacheWriter) -> EdgeList:
        arrays = read_arrays(self.path)
        if any(name.endswith("/edge_index") for name in arrays):
            raise DatasetError(
                f"{self.path} has edges of several types, '.../edge_index'; loader.datasets.HeteroNpzDataset reads it"
            )
        self._check_names(arrays)
        features, labels = arrays.get("features"), arrays.get("labels")
        num_nodes = self._num_nodes(arrays)
        src, dst = self._edges(arrays, num_nodes)
        if num_nodes is None:
            num_nodes = 1 + max(int(src.max(initial=-1)), int(dst.max(initial=-1)))
            if num_nodes > _SPARSE_IDS * (src.size + 100):
                raise DatasetError(
                    f"{self.path}: the largest node of {src.size} edges is {num_nodes - 1}, so most nodes would "
                    "have no edge; number the nodes from 0 on, e.g. by numpy.unique(edges, return_inverse=True), or "
                    "add num_nodes"
                )
        elif src.size and min(src.min(), dst.min()) == 1 and max(src.max(), dst.max()) == num_nodes:
            raise DatasetError(
                f"{self.path}: edges have the nodes 1 to {num_nodes}; valid ids are 0 to {num_nodes - 1}: subtract 1"
            )
        if features is None:
            features = np.empty((num_nodes, 0), dtype=np.float32)
        self._require(
            features.ndim == 2 and len(features) == num_nodes,
            f"features of shape {list(features.shape)}, not [num_nodes, num_features] of {num_nodes} nodes",
            arrays,
        )
        form = next(form for form in _TOPOLOGIES if all(name in arrays for name in form))
        tell_unread(self.name, self.path, arrays, (*form, "features", "labels", *SPLITS, *_OPTIONAL))
        given = [split for split in SPLITS if split in arrays]
        if self.split is not None and given:
            raise DatasetError(
                f"{self.path} has the split {', '.join(given)} and split={list(self.split)} asks to draw one; drop one "
                "of the two"
            )
        splits = None
        bare = [name for name in (*given, *(["split"] if self.split else [])) if labels is None]
        self._require(not bare, f"no array labels, but {' '.join(bare)}", arrays)
        if given:
            missing = [split for split in SPLITS if split not in arrays]
            self._require(
                not missing,
                f"no array {' '.join(missing)} for the split; add it, or draw one: split=[0.6,0.2,0.2] (of train.py: "
                "dataset.split=[0.6,0.2,0.2])",
                arrays,
            )
            splits = {split: ids_of(arrays[split], num_nodes, f"{self.path}: {split}") for split in SPLITS}
        return EdgeList(
            src=src,
            dst=dst,
            features=features,
            labels=labels,
            num_classes=self._num_classes(arrays),
            splits=splits,
            node_types=self._node_types(arrays),
            **{name: arrays[name] for name in _VALUES if name in arrays},
        )

    def _check_names(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        """Refuses an array that nothing reads, if its name is nearly that of one that is read and is not there, or the
        name that others have for it.
        """
        known = (*_OPTIONAL, *SPLITS)
        left = [name for name in _OPTIONAL if name not in arrays]
        edges = next((arrays[name].shape[-1:] for name in ("edge_index", "src", "indices") if name in arrays), ())
        for name in sorted(arrays.keys() - set(known)):
            meant = nearest_name(name, left, cutoff=0.85)
            alias = ALIASES.get(name)
            wanted = arrays[name].shape == edges if alias == "edge_weights" else alias not in SPLITS or not self.split
            if alias is not None and alias not in arrays and wanted:
                meant = alias
            if meant:
                raise DatasetError(
                    f"{self.path} has an array '{name}', which is not read; did you mean '{meant}'? Rename it, "
                    "or leave it out"
                )

    def _num_classes(self, arrays: dict[str, NDArray[np.generic]]) -> int | None:
        if "num_classes" not in arrays:
            return None
        given = arrays["num_classes"]
        if given.size != 1:
            raise DatasetError(
                f"{self.path}: num_classes has shape {list(given.shape)}; it must be one integer, or be left out"
            )
        return checked_num_classes(given.reshape(-1)[0].item(), str(self.path))

    def _num_nodes(self, arrays: dict[str, NDArray[np.generic]]) -> int | None:
        """Number of nodes, if an array other than the edges says it."""
        if "num_nodes" in arrays:
            given = as_int64(arrays["num_nodes"], f"{self.path}: num_nodes").reshape(-1)
            if given.size != 1 or given[0] < 0:
                raise DatasetError(f"{self.path}: num_nodes is {given.tolist()}; it must be one number of at least 0")
            return int(given[0])
        for name in ("features", "labels", "node_times"):
            if name in arrays and arrays[name].ndim:
                return len(arrays[name])
        return max(arrays["indptr"].size - 1, 0) if "indptr" in arrays else None

    def _node_types(self, arrays: dict[str, NDArray[np.generic]]) -> dict[str, int] | None:
        if "node_types" not in arrays and "node_type_sizes" not in arrays:
            return None
        for needed in ("node_types", "node_type_sizes"):
            self._require(needed in arrays, f"types of nodes, but no array '{needed}'", arrays)
        names, sizes = arrays["node_types"], as_int64(arrays["node_type_sizes"], f"{self.path}: node_type_sizes")
        if names.dtype.kind != "U" or names.ndim != 1 or len(set(names.tolist())) != names.size:
            raise DatasetError(f"{self.path}: node_types must be different strings [num_types], one for each type")
        if sizes.shape != names.shape or (sizes < 0).any():
            raise DatasetError(
                f"{self.path}: node_type_sizes is {sizes.tolist()}; it must be {names.size} numbers of at least 0, one "
                "for each of node_types"
            )
        return dict(zip(names.tolist(), sizes.tolist(), strict=True))

    def draw_splits(self, labels: Tensor) -> dict[str, Tensor] | None:
        if self.split is None:
            return None
        if labels.dim() == 2:
            return random_split(labels.shape[0], self.split, self.split_seed)
        return stratified_split(labels, self.split, self.split_seed)

    def _edges(
        self, arrays: dict[str, NDArray[np.generic]], num_nodes: int | None
    ) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        found = [form for form in _TOPOLOGIES if all(name in arrays for name in form)]
        self._require(len(found) == 1, f"{len(found) or 'none'} of the three forms of edges", arrays)
        for name in found[0]:
            array = arrays[name]
            if is_text(array):
                raise DatasetError(
                    f"{self.path}: {name} holds text, such as {array.reshape(-1)[:1].tolist()}; it must be "
                    "integers from 0 to num_nodes - 1, the rows of features: number the nodes, e.g. by "
                    f"numpy.searchsorted(names, {name}), with the names sorted and the features in that order"
                )
            self._require(
                np.issubdtype(array.dtype, np.integer),
                f"{name} of dtype {array.dtype} instead of integers",
                arrays,
            )
            dimensions = 2 if name == "edge_index" else 1
            wanted = "[2, num_edges]" if dimensions == 2 else "[num_nodes + 1]" if name == "indptr" else "[num_edges]"
            self._require(array.ndim == dimensions, f"{name} of shape {list(array.shape)}, not {wanted}", arrays)
        first: Any = arrays[found[0][0]]
        if found[0] == ("edge_index",):
            shape = list(first.shape)
            way = " (edge_index.T has it)" if shape[1] == 2 else ""
            self._require(shape[0] == 2, f"edge_index of shape {shape}, not [2, num_edges]{way}", arrays)
            return first[0], first[1]
        second: Any = arrays[found[0][1]]
        if found[0] == ("src", "dst"):
            return first, second
        indptr = as_int64(first, f"{self.path}: indptr")
        assert num_nodes is not None
        self._check_indptr(indptr, second.size, num_nodes)
        return second, np.repeat(np.arange(num_nodes), np.diff(indptr))

    def _check_indptr(self, indptr: NDArray[np.int64], num_edges: int, num_nodes: int) -> None:
        what = None
        falls = indptr[1:] < indptr[:-1]  # compared: a difference may wrap
        if indptr.size != num_nodes + 1:
            what = f"has {indptr.size} entries, features {num_nodes} rows; it needs one entry more"
        elif indptr[0] != 0 or indptr[-1] != num_edges:
            what = f"goes from {indptr[0]} to {indptr[-1]}; it must go from 0 to len(indices) = {num_edges}"
        elif falls.any():
            v = int(falls.argmax())
            what = f"is not monotone: indptr[{v}] = {indptr[v]} > indptr[{v + 1}] = {indptr[v + 1]}"
        if what is not None:
            raise DatasetError(f"{self.path}: indptr {what}")

    def _require(self, condition: bool, found: str, arrays: dict[str, NDArray[np.generic]]) -> None:
        if not condition:
            raise DatasetError(
                f"{self.path} has {found}; it holds {', '.join(sorted(arrays)) or 'nothing'}, and needs "
                "edge_index (or src dst, or indptr indices); for nodes also features, labels, train, val, test"
            )

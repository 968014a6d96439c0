"""The graphs that random-walk embeddings are compared on, as their authors published them: MATLAB files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from loader.datasets.cache_writer import CacheWriter
from loader.datasets.edge_list_base import EdgeList, EdgeListDataset
from loader.datasets.errors import DatasetError
from loader.datasets.locations import fingerprint
from loader.datasets.splits import check_fractions, random_split
from loader.datasets.unread_parts import tell_unread
from loader.machine.arguments import as_size
from loader.machine.optional import import_optional

# name: (folder, file, origin)
_FILES = {
    "blogcatalog": ("blogcatalog", "blogcatalog.mat", "http://leitang.net/code/social-dimension/data/blogcatalog.mat"),
    "ppi": ("ppi", "Homo_sapiens.mat", "https://snap.stanford.edu/node2vec/Homo_sapiens.mat"),
    "wikipedia": ("wikipedia_pos", "POS.mat", "https://snap.stanford.edu/node2vec/POS.mat"),
}


class MatDataset(EdgeListDataset):
    """blogcatalog (Tang and Liu, KDD 2009), ppi or wikipedia (Grover and Leskovec, KDD 2016): graphs whose nodes
    have several labels and no features, so `features` is `[num_nodes, 0]`.

    They are read from `data_dir/blogcatalog/blogcatalog.mat`, `data_dir/ppi/Homo_sapiens.mat` and
    `data_dir/wikipedia_pos/POS.mat`. Such a file has the matrices `network` `[num_nodes, num_nodes]`, whose entries
    are the edges, row to column, and `group` `[num_nodes, num_labels]` of zeros and ones. Entries that are not all 1
    are stored as the weights of the edges. Nothing is downloaded.

    Args:
        name: "blogcatalog", "ppi" or "wikipedia".
        split: fractions of train, val and test, drawn from all nodes. The papers of DeepWalk and node2vec have no
            validation part: (0.5, 0, 0.5).
        split_seed: seed of that draw.
        undirected: add the reverse of every edge; the files above have both directions.
        options: see `EdgeListDataset`.
    """

    def __init__(
        self,
        name: str,
        *,
        split: Sequence[float] = (0.5, 0.1, 0.4),
        split_seed: int = 0,
        undirected: bool = False,
        self_loops: str = "keep",
        parallel_edges: str = "keep",
        **options: Any,
    ) -> None:
        if name not in _FILES:
            raise ValueError(f"name is '{name}'; it must be one of {', '.join(_FILES)}")
        super().__init__(name, undirected=undirected, self_loops=self_loops, parallel_edges=parallel_edges, **options)
        folder, self._file, self.origin = _FILES[name]
        self.folder = self.data_dir / folder
        self.split = check_fractions(split)
        self.split_seed = as_size("split_seed", split_seed, least=0)

    def source(self) -> list[list[Any]]:
        if not (self.folder / self._file).is_file():
            raise DatasetError(
                f"{self.name}: there is no file {self.folder / self._file}; get it from {self.origin}, or set data_dir "
                f"to the folder that has {self.folder.name}/{self._file}"
            )
        return fingerprint(self.folder, [self._file])

    def read(self, writer: CacheWriter) -> EdgeList:
        path = self.folder / self._file
        reader = import_optional("scipy.io", f"dataset {self.name}", "datasets")
        sparse = import_optional("scipy.sparse", f"dataset {self.name}", "datasets")
        try:
            held = [name for name, *_ in reader.whosmat(path)]
            found = reader.loadmat(path, variable_names=["network", "group"])
        except Exception as error:  # of a damaged file, anything
            if isinstance(error, MemoryError):
                raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise DatasetError(
                f"{self.name}: {path} cannot be read as a MATLAB file ({reason}); copy it again from {self.origin}"
            ) from error
        for needed in ("network", "group"):
            array = found.get(needed)
            if array is None or array.ndim != 2 or array.dtype.kind not in "biuf":
                raise DatasetError(
                    f"{self.name}: {path} has no matrix of numbers '{needed}'; copy the file again from {self.origin}"
                )
        tell_unread(self.name, path, held, ("network", "group"))
        network = sparse.coo_array(found["network"])
        if network.shape[0] != network.shape[1]:
            raise DatasetError(
                f"{self.name}: network in {path} has shape {list(network.shape)}; it must be square, a row and a "
                f"column of each node; copy the file again from {self.origin}"
            )
        group = found["group"]
        weights = network.data.astype(np.float64)
        return EdgeList(
            src=network.row,
            dst=network.col,
            features=np.empty((network.shape[0], 0), dtype=np.float32),
            labels=group.toarray() if sparse.issparse(group) else group,
            edge_weights=None if (weights == 1).all() else weights,
        )

    def draw_splits(self, labels: Tensor) -> dict[str, Tensor]:
        return random_split(labels.shape[0], self.split, self.split_seed)

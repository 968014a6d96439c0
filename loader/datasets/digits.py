"""Handwritten digits as a graph. They need no download, and training takes seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from loader.datasets.cache_writer import CacheWriter
from loader.datasets.edge_list_base import EdgeList, EdgeListDataset
from loader.datasets.splits import check_fractions, stratified_split
from loader.machine.arguments import as_size
from loader.machine.optional import import_optional


class Digits(EdgeListDataset):
    """scikit-learn's 1,797 handwritten digits (8 x 8 pixels, 10 classes), each joined to its nearest
    neighbors.

    Neighbors are the nearest by Euclidean distance between pixels, so labels do not influence the graph. Of equally
    near ones the lower id goes first. So every machine gets the same graph, with any number of threads.

    Args:
        name: of the dataset.
        num_neighbors: nearest neighbors per digit.
        split: fractions of train, val and test, equal in every class.
        split_seed: seed of the split.
        options: see `EdgeListDataset`.
    """

    def __init__(
        self,
        name: str = "digits",
        *,
        num_neighbors: int = 8,
        split: Sequence[float] = (0.6, 0.2, 0.2),
        split_seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self.num_neighbors = as_size("num_neighbors", num_neighbors, most=1796)
        self.split = check_fractions(split)
        self.split_seed = as_size("split_seed", split_seed, least=0)

    def source(self) -> None:
        return None

    def options(self) -> dict[str, Any]:
        # The rule for ties is part of the name: conversions of before it, by whatever order a search had, are not used.
        return {**super().options(), "num_neighbors": self.num_neighbors, "ties": "lower id"}

    def read(self, writer: CacheWriter) -> EdgeList:
        datasets = import_optional("sklearn.datasets", "dataset digits", "datasets")
        pixels, labels = datasets.load_digits(return_X_y=True)
        return EdgeList(
            src=_nearest(pixels, self.num_neighbors).ravel(),
            dst=np.repeat(np.arange(len(pixels)), self.num_neighbors),
            features=pixels / 16.0,  # pixels are 0 to 16
            labels=labels,
            num_classes=10,
        )

    def draw_splits(self, labels: Tensor) -> dict[str, Tensor]:
        return stratified_split(labels, self.split, self.split_seed)


def _nearest(points: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """`[len(points), count]` ids of the nearest other points, by (Euclidean distance, id).

    The coordinates are whole numbers and small, so the squares of the distances are exact in any order of summation.
    """
    size = len(points)
    squares = (points**2).sum(axis=1)
    distances = squares[:, None] + squares - 2 * (points @ points.T)
    keys = distances.astype(np.int64) * size + np.arange(size)
    np.fill_diagonal(keys, np.iinfo(np.int64).max)  # a point itself is left out
    nearest: NDArray[np.int64] = np.sort(np.partition(keys, count - 1)[:, :count]) % size
    return nearest

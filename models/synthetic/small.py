"""A dataset that is drawn at random: planted classes, heavy-tailed degrees, noisy features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.datasets.base import Dataset
from loader.datasets.cache_writer import CacheWriter
from loader.datasets.feature_rows import write_table
from loader.datasets.progress import ConversionProgress
from loader.datasets.splits import check_fractions, random_split
from loader.datasets.transforms import csc_from_keys
from loader.machine.arguments import as_finite, as_flag, as_size
from models.synthetic.planted import PlantedGraph, class_sizes

_GENERATOR_VERSION = 1  # raise it when the same options draw another graph
_FEATURE_BYTES = 1 << 25  # of features drawn at once
_PAIRS = 1 << 23  # renumbered at once
# Several labels per node: each class means a set of labels, which its nodes mostly have and others rarely.
_LABELS_A_CLASS, _LABEL_TRUE, _LABEL_STRAY = 0.1, 0.9, 0.01


class SyntheticDataset(Dataset):
    """A simple symmetric graph of planted classes; see `models.synthetic.planted` for its edges.

    The number of a node says nothing about its class or degree. The features of a node are a vector of length 1,
    which is random per class, plus normal noise. So a classifier needs the neighbors of a node. `label_noise` limits
    the accuracy that any classifier can reach.

    Args:
        name: of the dataset.
        num_nodes: number of nodes.
        mean_degree: directed edges per node; `round(num_nodes * mean_degree / 2)` edges in both directions.
        skew: skew of the degrees, in [0, 1), see `PlantedGraph`.
        max_degree: exact largest degree; None leaves it to `skew`.
        num_features: features per node.
        num_classes: number of planted classes; with `multilabel` also the number of labels.
        homophily: share of the edges that join nodes of the same planted class.
        class_skew: the size of class `c` is proportional to `(c + 1) ** -class_skew`; with 0 all are equal.
        feature_noise: standard deviation of the noise in each feature.
        label_noise: share of the nodes that have the label of a random node in place of their own.
        multilabel: give every node several labels: the set of its class, each label with some noise.
        split: fractions of train, val and test.
        seed: of all random choices.
        options: see `Dataset`.
    """

    def __init__(
        self,
        name: str = "synthetic",
        *,
        num_nodes: int = 10_000,
        mean_degree: float = 15.0,
        skew: float = 0.5,
        max_degree: int | None = None,
        num_features: int = 64,
        num_classes: int = 10,
        homophily: float = 0.65,
        class_skew: float = 0.5,
        feature_noise: float = 1.0,
        label_noise: float = 0.1,
        multilabel: bool = False,
        split: Sequence[float] = (0.6, 0.2, 0.2),
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        num_classes = as_size("num_classes", num_classes, least=2)
        num_nodes = as_size("num_nodes", num_nodes, least=num_classes)
        self.num_features = as_size("num_features", num_features)
        for what, value in (
            ("mean_degree", mean_degree),
            ("class_skew", class_skew),
            ("feature_noise", feature_noise),
            ("label_noise", label_noise),
            ("skew", skew),
            ("homophily", homophily),
        ):
            as_finite(what, value)
        if label_noise > 1:
            raise ValueError(f"label_noise is {label_noise}; it must be at most 1")
        self.feature_noise = feature_noise
        self.label_noise = label_noise
        self.class_skew = class_skew
        self.multilabel = as_flag("multilabel", multilabel)
        self.split = check_fractions(split)
        self.seed = as_size("seed", seed, least=0)
        self.plan = PlantedGraph(
            sizes=class_sizes(num_nodes, num_classes, class_skew),
            num_pairs=round(num_nodes * mean_degree / 2),
            skew=skew,
            max_degree=None if max_degree is None else as_size("max_degree", max_degree),
            homophily=homophily,
        )

    def source(self) -> dict[str, int]:
        return {"generator": _GENERATOR_VERSION}

    def options(self) -> dict[str, Any]:
        plan = self.plan
        return {
            **super().options(),
            "num_nodes": plan.num_nodes,
            "num_pairs": plan.num_pairs,
            "skew": plan.skew,
            "max_degree": plan.max_degree,
            "homophily": plan.homophily,
            "num_classes": plan.sizes.size,
            "class_skew": self.class_skew,
            "num_features": self.num_features,
            "feature_noise": self.feature_noise,
            "label_noise": self.label_noise,
            "multilabel": self.multilabel,
            "split": list(self.split),
            "seed": self.seed,
        }

    def convert(self, writer: CacheWriter, progress: ConversionProgress) -> None:
        n, num_classes = self.plan.num_nodes, self.plan.sizes.size
        # One stream of random numbers for each part: changing one part leaves the others as they are.
        rngs = [np.random.default_rng(s) for s in np.random.SeedSequence(self.seed).spawn(4)]
        number = rngs[0].permutation(n)  # of each node, which the plan counts class by class
        planted = np.empty(n, dtype=np.int64)
        planted[number] = np.repeat(np.arange(num_classes), self.plan.sizes)
        with progress.step("drawing edges"):
            pairs = self.plan.draw(rngs[1])
        with progress.step("sorting edges"):
            keys = _renumbered_both_ways(pairs, number)
            del pairs
            keys.sort()
        with progress.step("writing edges"):
            indptr, indices = csc_from_keys(keys, n)
            del keys
            writer.write("indptr", indptr)
            writer.write("indices", indices)
            del indptr, indices
        writer.write("labels", self._labels(planted, rngs[2]))
        for split, ids in random_split(n, self.split, self.seed).items():
            writer.write(split, ids.numpy())
        with progress.step("drawing features", n) as advance:
            write_table(writer, *self._features(planted, rngs[3]), advance)
        writer.properties.update(num_classes=num_classes, multilabel=self.multilabel)

    def _labels(self, planted: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.generic]:
        shown = np.where(rng.random(planted.size) < self.label_noise, rng.permutation(planted), planted)
        if not self.multilabel:
            return shown
        num_classes = self.plan.sizes.size
        meant = rng.random((num_classes, num_classes)) < _LABELS_A_CLASS
        meant |= np.eye(num_classes, dtype=bool)
        chance = np.where(meant, np.float32(_LABEL_TRUE), np.float32(_LABEL_STRAY))
        return (rng.random((planted.size, num_classes), dtype=np.float32) < chance[shown]).astype(np.float32)

    def _features(
        self, planted: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[tuple[int, int], Iterator[NDArray[np.float32]]]:
        centres = rng.standard_normal((self.plan.sizes.size, self.num_features), dtype=np.float32)
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
        step = max(1, _FEATURE_BYTES // (4 * self.num_features))

        def rows() -> Iterator[NDArray[np.float32]]:
            for at in range(0, planted.size, step):
                part = centres[planted[at : at + step]]
                noise = rng.standard_normal(part.shape, dtype=np.float32)
                noise *= np.float32(self.feature_noise)
                part += noise
                yield part

        return (planted.size, self.num_features), rows()


def _renumbered_both_ways(pairs: NDArray[np.int64], number: NDArray[np.int64]) -> NDArray[np.int64]:
    """Keys `dst * n + src` of every pair in both directions, in the nodes' new numbers."""
    n = number.size
    keys = np.empty(2 * pairs.size, dtype=np.int64)
    for at in range(0, pairs.size, _PAIRS):
        low, high = np.divmod(pairs[at : at + _PAIRS], n)
        a, b = number[low], number[high]
        part = slice(at, at + a.size)
        np.add(a * n, b, out=keys[part])
        keys[pairs.size + at : pairs.size + at + a.size] = b * n + a
    return keys

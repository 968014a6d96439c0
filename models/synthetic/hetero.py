"""Datasets with several types of nodes and edges that are drawn at random, in the shapes of public ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loader.datasets.cache_writer import CacheWriter
from loader.datasets.edge_sorter import cut, in_order, sorting_threads
from loader.datasets.hetero_edges import HeteroEdges, HeteroEdgesDataset
from loader.datasets.splits import check_fractions, random_split
from loader.graph import EdgeType
from loader.machine.arguments import as_finite, as_number, as_size
from models.synthetic.planted import class_sizes, draw_ranks

_GENERATOR_VERSION = 1  # raise it when the same options draw another graph
_PAIRS = 1 << 23  # drawn at once
_ROWS = 1 << 12  # of features, from one stream of random numbers


class Drawn(NamedTuple):
    """Edges of a relation: their number, and the skew of the degrees of sources and of destinations."""

    edges: int
    sources: float
    targets: float


class Shape(NamedTuple):
    """Numbers of nodes by type, the first of which has labels, and of edges by relation. Each has a reverse."""

    nodes: Mapping[str, int]
    relations: Mapping[EdgeType, Drawn]


def _academic(nodes: Sequence[int], edges: Sequence[int]) -> Shape:
    skews = {
        ("author", "writes", "paper"): (0.45, 0.25),
        ("author", "affiliated", "institution"): (0.15, 0.65),
        ("paper", "cites", "paper"): (0.4, 0.45),
        ("paper", "has_topic", "field"): (0.15, 0.7),
    }
    relations = {key: Drawn(count, *skew) for (key, skew), count in zip(skews.items(), edges, strict=True)}
    return Shape(dict(zip(("paper", "author", "institution", "field"), nodes, strict=True)), relations)


# ogbn-mag by Hu et al. 2020 (arXiv:2005.00687); the medium heterogeneous graph of IGB by Khatua et al. 2023
# (arXiv:2302.13522), some of its numbers rounded.
SHAPES = {
    "mag": _academic((736_389, 1_134_649, 8_740, 59_965), (7_145_660, 1_043_998, 5_416_271, 7_505_078)),
    "igb": _academic((10_000_000, 15_544_654, 26_000, 415_054), (39_854_000, 18_000_000, 120_077_694, 77_000_000)),
}


class HeteroSyntheticDataset(HeteroEdgesDataset):
    """Papers of planted classes, their authors, the authors' institutions, and fields of study.

    Every node has a class, that of a paper is its label. An edge joins two nodes of one class, or, with probability
    `1 - homophily`, any two; within a class nodes are drawn by `models.synthetic.planted`. Repeated edges are left
    out, so there are somewhat fewer edges than are drawn. The reverse of every edge is added, see `HeteroEdgesDataset`.
    The features of a node are the centre of its class, of length 1, and noise. All is drawn by the CPU; features are
    drawn in parts, by one thread per processor, and are kept as float32. The result depends on the seed only. Memory:
    about 40 bytes per edge.

    Args:
        name: of the dataset.
        shape: "mag" or "igb", which says numbers of nodes and edges.
        scale: in (0, 1], of these numbers. There is at least one paper of each class.
        num_features, num_paper_features: columns of the features, of all other types and of papers.
        num_classes, homophily, class_skew, feature_noise, label_noise, split, seed: see `SyntheticDataset`. A type of
            fewer nodes than classes has nodes that count for several classes.
        options: see `CachedDataset`, and `check_features` of `HeteroEdgesDataset`.

    Raises:
        ValueError: an option is out of range.
    """

    def __init__(
        self,
        name: str,
        *,
        shape: str,
        scale: float = 1.0,
        num_features: int = 64,
        num_paper_features: int = 128,
        num_classes: int = 349,
        homophily: float = 0.65,
        class_skew: float = 0.5,
        feature_noise: float = 1.0,
        label_noise: float = 0.1,
        split: Sequence[float] = (0.6, 0.2, 0.2),
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(name, undirected=True, **options)
        if shape not in SHAPES:
            raise ValueError(f"shape is {shape!r}; it must be one of {', '.join(SHAPES)}")
        if not 0 < as_number("scale", scale) <= 1:
            raise ValueError(f"scale is {scale}; it must be above 0 and at most 1, a share of the nodes and edges")
        for what, value in (("homophily", homophily), ("label_noise", label_noise)):
            if not 0 <= as_number(what, value) <= 1:
                raise ValueError(f"{what} is {value}; it must be in 0 to 1, a share")
        for what, value in (("class_skew", class_skew), ("feature_noise", feature_noise)):
            as_finite(what, value)
        self.shape, self.scale = shape, float(scale)
        self.num_classes = as_size("num_classes", num_classes, least=2)
        self.widths = as_size("num_features", num_features), as_size("num_paper_features", num_paper_features)
        self.homophily, self.class_skew = homophily, class_skew
        self.feature_noise, self.label_noise = feature_noise, label_noise
        self.split, self.seed = check_fractions(split), as_size("seed", seed, least=0)

    def source(self) -> dict[str, int]:
        return {"generator": _GENERATOR_VERSION}

    def options(self) -> dict[str, Any]:
        return {
            **super().options(),
            "shape": self.shape,
            "scale": self.scale,
            "num_features": list(self.widths),
            "num_classes": self.num_classes,
            "homophily": self.homophily,
            "class_skew": self.class_skew,
            "feature_noise": self.feature_noise,
            "label_noise": self.label_noise,
            "split": list(self.split),
            "seed": self.seed,
        }

    def read(self, writer: CacheWriter) -> HeteroEdges:
        shape = SHAPES[self.shape]
        target = next(iter(shape.nodes))
        least = {target: self.num_classes}
        types = {
            name: PlantedType(
                max(int(count * self.scale), least.get(name, 16)), self.num_classes, self.class_skew, self._rng(0, t)
            )
            for t, (name, count) in enumerate(shape.nodes.items())
        }
        edges = {
            key: self._pairs(types[key[0]], types[key[2]], drawn, self._rng(1, r))
            for r, (key, drawn) in enumerate(shape.relations.items())
        }
        planted, rng = types[target].classes, self._rng(2)
        labels = np.where(rng.random(planted.size) < self.label_noise, rng.permutation(planted), planted)
        features: dict[str, Any] = {
            name: DrawnRows(self.widths[name == target], of, self.num_classes, self.feature_noise, (self.seed, t))
            for t, (name, of) in enumerate(types.items())
        }
        return HeteroEdges(
            edges=dict(edges),
            num_nodes={name: of.classes.size for name, of in types.items()},
            target=target,
            labels=labels.astype(np.int64),
            features=features,
            num_classes=self.num_classes,
            splits=random_split(planted.size, self.split, self.seed),
        )

    def _rng(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=purpose))

    def _pairs(
        self, sources: PlantedType, targets: PlantedType, drawn: Drawn, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """`[2, edges]`, distinct and in the order of the sources."""
        size, keys = targets.classes.size, []
        for begin, end in cut(int(drawn.edges * self.scale), _PAIRS):
            classes = rng.choice(self.num_classes, end - begin, p=sources.shares)
            others = rng.choice(self.num_classes, end - begin, p=targets.shares)
            same = rng.random(end - begin) < self.homophily
            source = sources.draw(rng, classes, drawn.sources)
            target = targets.draw(rng, np.where(same, classes, others), drawn.targets)
            pairs = source * size + target
            keys.append(pairs[source != target] if sources is targets else pairs)
        every = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *keys]))
        return np.stack(np.divmod(every, size))


class PlantedType:
    """Nodes of one type, numbered at random.

    Attributes:
        classes: `[nodes]` the class of each, the first of those that it counts for.
        shares: `[num_classes]` probabilities with which ends of edges have a class.
    """

    def __init__(self, count: int, num_classes: int, class_skew: float, rng: np.random.Generator) -> None:
        groups = min(num_classes, count)  # of nodes; a class has one of them
        self._group = np.arange(num_classes) * groups // num_classes
        self._sizes = class_sizes(count, groups, class_skew)
        self._begins = np.concatenate([[0], np.cumsum(self._sizes)])
        self._number = rng.permutation(count)
        first = np.searchsorted(self._group, np.arange(groups))
        self.classes = np.empty(count, dtype=np.int64)
        self.classes[self._number] = np.repeat(first, self._sizes)
        self.shares = class_sizes(10**9, num_classes, class_skew) / 10**9

    def draw(self, rng: np.random.Generator, classes: NDArray[np.int64], skew: float) -> NDArray[np.int64]:
        """A node of each of these classes."""
        nodes = np.empty(classes.size, dtype=np.int64)
        groups = self._group[classes]
        order = np.argsort(groups, kind="stable")
        counts = np.bincount(groups, minlength=self._sizes.size)
        at = 0
        for group in np.flatnonzero(counts).tolist():
            ranks = draw_ranks(rng, int(self._sizes[group]), int(counts[group]), skew, 1.0)
            nodes[order[at : at + ranks.size]] = self._begins[group] + ranks
            at += ranks.size
        found: NDArray[np.int64] = self._number[nodes]
        return found


class DrawnRows:
    """Features that are drawn when they are read: a table of which slices of rows are taken."""

    ndim, dtype = 2, np.dtype(np.float32)

    def __init__(self, width: int, of: PlantedType, num_classes: int, noise: float, key: tuple[int, int]) -> None:
        self.shape = of.classes.size, width
        self._classes, self._noise, self._key = of.classes, np.float32(noise), key
        centres = self._rng(0, 0).standard_normal((num_classes, width), dtype=np.float32)
        self._centres = centres / np.linalg.norm(centres, axis=1, keepdims=True)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[np.float32]:
        begin, end, _ = rows.indices(len(self))
        first = begin // _ROWS
        parts = in_order(self._part, range(first, -(-end // _ROWS)), sorting_threads())
        every = np.concatenate([np.empty((0, self.shape[1]), dtype=np.float32), *parts])
        return every[begin - first * _ROWS : end - first * _ROWS]

    def _part(self, number: int) -> NDArray[np.float32]:
        classes = self._classes[number * _ROWS : (number + 1) * _ROWS]
        drawn = self._rng(1, number).standard_normal((classes.size, self.shape[1]), dtype=np.float32)
        drawn *= self._noise
        drawn += self._centres[classes]
        return drawn

    def _rng(self, *part: int) -> np.random.Generator:
        seed, number = self._key
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3, number, *part)))

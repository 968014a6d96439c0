"""A dataset that is drawn at random in parts: as `SyntheticDataset`, but of any size in little memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.datasets.base import Dataset
from loader.datasets.cache_writer import CacheWriter
from loader.datasets.edge_sorter import EdgeSorter, Part, cut, in_order, sorting_threads
from loader.datasets.feature_rows import write_table
from loader.datasets.progress import ConversionProgress
from loader.datasets.splits import check_fractions, random_split
from loader.datasets.transforms import check_edge_options
from loader.machine.arguments import as_finite, as_flag, as_number, as_size
from models.synthetic.planted import PlantedGraph, class_sizes

_GENERATOR_VERSION = 1  # raise it when the same options draw another graph
# What is drawn from one stream of random numbers. Another size would draw another graph.
_EDGES, _FEATURE_BYTES = 1 << 20, 1 << 23


class LargeSyntheticDataset(Dataset):
    """A graph of planted classes like `SyntheticDataset`'s, with as many edges as the disk holds.

    Edges are directed, and drawn independently of each other: both ends by `models.synthetic.planted`, the direction by
    a coin. So an edge may be drawn twice, and a node may be joined to itself; the options below say what happens
    then. Edges and features are drawn in parts, each from a random stream of its own (Philox: Salmon et al. 2011,
    Parallel random numbers: as easy as 1, 2, 3), by one thread per processor. The result depends on the seed only. The
    edges are sorted through files, see `loader.datasets.edge_sorter`. Memory: about 40 bytes per node, and 0.5 GiB
    per thread. numpy's powers may differ in their last bit between processors. So if several machines need the same
    graph, copy the conversion.

    Args:
        name: of the dataset.
        num_nodes: number of nodes, below 2^31.
        num_edges: directed edges to draw. With the options below, the graph has a different number.
        undirected: add the reverse of every edge.
        self_loops: "keep", "remove", or "add" (one for every node).
        parallel_edges: "keep" or "remove".
        skew, homophily, class_skew: see `SyntheticDataset`.
        num_features, num_classes, feature_noise, label_noise, split, seed: see `SyntheticDataset`.
        options: see `Dataset`.

    Raises:
        ValueError: an option is out of range.
    """

    def __init__(
        self,
        name: str = "synthetic-large",
        *,
        num_nodes: int,
        num_edges: int,
        undirected: bool = True,
        self_loops: str = "remove",
        parallel_edges: str = "remove",
        skew: float = 0.5,
        num_features: int = 128,
        num_classes: int = 172,
        homophily: float = 0.65,
        class_skew: float = 0.5,
        feature_noise: float = 1.0,
        label_noise: float = 0.1,
        split: Sequence[float] = (0.6, 0.2, 0.2),
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        num_classes = as_size("num_classes", num_classes, least=2)
        num_nodes = as_size("num_nodes", num_nodes, least=num_classes, most=2**31 - 1)
        self.num_edges = as_size("num_edges", num_edges, least=0)
        self.num_features = as_size("num_features", num_features)
        for what, value in (
            ("class_skew", class_skew),
            ("feature_noise", feature_noise),
            ("skew", skew),
            ("homophily", homophily),
        ):
            as_finite(what, value)
        if not 0 <= as_number("label_noise", label_noise) <= 1:
            raise ValueError(f"label_noise is {label_noise}; it must be in 0 to 1, a share of the nodes")
        check_edge_options(self_loops, parallel_edges)
        self.undirected = as_flag("undirected", undirected)
        self.self_loops = self_loops
        self.parallel_edges = parallel_edges
        self.feature_noise = feature_noise
        self.label_noise = label_noise
        self.class_skew = class_skew
        self.split = check_fractions(split)
        self.seed = as_size("seed", seed, least=0)
        self.plan = PlantedGraph(
            sizes=class_sizes(num_nodes, num_classes, class_skew),
            num_pairs=self.num_edges,
            skew=skew,
            max_degree=None,
            homophily=homophily,
        )

    def source(self) -> dict[str, int]:
        return {"generator": _GENERATOR_VERSION}

    def options(self) -> dict[str, Any]:
        return {
            **super().options(),
            "num_nodes": self.plan.num_nodes,
            "num_edges": self.num_edges,
            "undirected": self.undirected,
            "self_loops": self.self_loops,
            "parallel_edges": self.parallel_edges,
            "skew": self.plan.skew,
            "homophily": self.plan.homophily,
            "num_classes": self.plan.sizes.size,
            "class_skew": self.class_skew,
            "num_features": self.num_features,
            "feature_noise": self.feature_noise,
            "label_noise": self.label_noise,
            "split": list(self.split),
            "seed": self.seed,
        }

    def convert(self, writer: CacheWriter, progress: ConversionProgress) -> None:
        n, num_classes = self.plan.num_nodes, self.plan.sizes.size
        threads = sorting_threads()
        # Of each node, which the plan counts class by class. Places in an array of 4-byte numbers are found sooner.
        number = self._stream(0).permutation(np.arange(n, dtype=np.int32))
        with progress.step("drawing edges", self.num_edges) as advance:
            sorter = EdgeSorter(
                n,
                self.num_edges,
                writer.scratch,
                undirected=self.undirected,
                self_loops=self.self_loops,
                parallel_edges=self.parallel_edges,
                threads=threads,
            )
            parts = enumerate(cut(self.num_edges, _EDGES))
            sorter.take((partial(self._edges, at, end - begin, number) for at, (begin, end) in parts), advance)
        planted = np.empty(n, dtype=np.int32)
        planted[number] = np.repeat(np.arange(num_classes, dtype=np.int32), self.plan.sizes)
        del number
        with progress.step("sorting edges", n) as advance:
            sorter.write(writer, advance)
        writer.write("labels", self._labels(planted))
        for split, ids in random_split(n, self.split, self.seed).items():
            writer.write(split, ids.numpy())
        with progress.step("drawing features", n) as advance:
            write_table(writer, (n, self.num_features), self._features(planted, threads), advance)
        writer.properties.update(num_classes=num_classes, multilabel=False)

    def _stream(self, purpose: int, part: int = 0) -> np.random.Generator:
        """The random numbers of a part; streams of different purposes or parts have nothing in common."""
        key = np.random.SeedSequence(self.seed).generate_state(2, np.uint64)
        # The generator counts in the first of four 64-bit words, and never reaches the others.
        return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, part, purpose]))

    def _edges(self, part: int, count: int, number: NDArray[np.int32]) -> Part:
        rng = self._stream(1, part)
        low, high = np.divmod(self.plan.draw_pairs(rng, count, loops=True), self.plan.num_nodes)
        turned = rng.integers(0, 2, low.size, dtype=np.uint8).view(np.bool_)
        return number[np.where(turned, high, low)], number[np.where(turned, low, high)]

    def _labels(self, planted: NDArray[np.int32]) -> NDArray[np.int64]:
        rng = self._stream(2)
        labels = rng.permutation(planted)
        np.copyto(labels, planted, where=rng.random(planted.size, dtype=np.float32) >= self.label_noise)
        return labels.astype(np.int64)

    def _features(self, planted: NDArray[np.int32], threads: int) -> Iterator[NDArray[np.float32]]:
        centres = self._stream(3).standard_normal((self.plan.sizes.size, self.num_features), dtype=np.float32)
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
        step = max(1, _FEATURE_BYTES // (4 * self.num_features))

        def rows(piece: tuple[int, tuple[int, int]]) -> NDArray[np.float32]:
            part, (begin, end) = piece
            found = self._stream(4, part).standard_normal((end - begin, self.num_features), dtype=np.float32)
            found *= np.float32(self.feature_noise)
            found += centres[planted[begin:end]]
            return found

        return in_order(rows, enumerate(cut(planted.size, step)), threads)

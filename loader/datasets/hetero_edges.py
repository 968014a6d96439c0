"""Datasets with several types whose reader yields the edges of each relation, and the conversion of these."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from loader.datasets.base import MAPPED, CachedDataset
from loader.datasets.cache import CachedArrays
from loader.datasets.cache_writer import CacheWriter
from loader.datasets.classes import describe_classes
from loader.datasets.edge_list_base import checked_labels
from loader.datasets.edge_sorter import cut
from loader.datasets.errors import DatasetError
from loader.datasets.feature_rows import check_features, checked_rows, read_rows, rows_at_once, write_rows
from loader.datasets.hetero import HeteroDataset
from loader.datasets.node_dataset import check_split_labels, check_splits
from loader.datasets.numbers import as_int64
from loader.datasets.progress import ConversionProgress
from loader.graph import EdgeType, Graph, HeteroGraph
from loader.graph.checks import check_length, time_vector
from loader.graph.relations import MAX_TYPES, check_edges, check_node_types, reversed_type
from loader.machine.arguments import as_flag

_LISTS = ("indptr", "indices", "edge_ids", "edge_weights", "edge_times", "node_times")


@dataclass
class HeteroEdges:
    """The content of a source, as its reader returns it. The types and relations keep their order.

    Attributes:
        edges: relation -> `[2, num_edges]` integer, sources and destinations, numbered within their types.
        num_nodes: node type -> number of nodes.
        target: the node type with labels.
        labels: `[nodes of target]` integer, negative or NaN for a node without a label; None: the dataset has none.
        features: node type -> `[nodes of the type, num_features]`, any real type.
        num_classes: None takes one more than the largest label.
        splits: ascending int64 ids within `target`; None if the dataset has none.
        edge_weights: relation -> `[num_edges]` float32 or float64.
        node_times: node type -> `[num_nodes]` integers or whole floats, see `HeteroGraph.from_edges`.
        edge_times: relation -> `[num_edges]`, the same of edges.
        feature_times: node type -> `[num_nodes]`, the same of rows of features.
    """

    edges: dict[EdgeType, NDArray[np.generic]]
    num_nodes: dict[str, int]
    target: str
    labels: NDArray[np.generic] | None = None
    features: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    num_classes: int | None = None
    splits: dict[str, torch.Tensor] | None = None
    edge_weights: dict[EdgeType, NDArray[np.generic]] = field(default_factory=dict)
    node_times: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    edge_times: dict[EdgeType, NDArray[np.generic]] = field(default_factory=dict)
    feature_times: dict[str, NDArray[np.generic]] = field(default_factory=dict)


class HeteroEdgesDataset(CachedDataset[HeteroDataset]):
    """A dataset with several types whose reader yields the edges of each relation.

    Args:
        name: of the dataset; part of the name of its cache folder.
        undirected: add the reverse of every edge: in a relation `(d, "rev_" + name, s)` of its own, for a relation of a
            type with itself in the same one, where it stays free of parallel edges. It is what torch_geometric's
            `ToUndirected` does.
        check_features: refuse features that are NaN or infinite, at the conversion.
        options: see `CachedDataset`.
    """

    kind = HeteroDataset
    mapped = MAPPED | {f"{i}.features" for i in range(MAX_TYPES)}

    def __init__(self, name: str, *, undirected: bool = False, check_features: bool = True, **options: Any) -> None:
        super().__init__(name, **options)
        self.undirected = as_flag("undirected", undirected)
        self.check_features = as_flag("check_features", check_features)

    def options(self) -> dict[str, Any]:
        return {**super().options(), "undirected": self.undirected, "check_features": self.check_features}

    @abstractmethod
    def read(self, writer: CacheWriter) -> HeteroEdges:
        """Reads the source; `writer.scratch` is a folder for temporary files."""

    def convert(self, writer: CacheWriter, progress: ConversionProgress) -> None:
        """Writes the lists `indptr indices edge_ids`, `labels`, `I.features` of type number `I`, and if there are any
        `edge_weights`, `edge_times`, `node_times` and the splits. Properties are `node_types`, a list of [name, size],
        `edge_types`, `timed_types`, `timed_relations`, `target`, `num_classes`, and `features`, the types that have
        some.
        """
        with progress.step("reading"):
            found = self.read(writer)
        self._check_features(found)
        if found.target not in found.num_nodes:
            raise DatasetError(
                f"{self.name}: target is '{found.target}', which is no node type; there are {list(found.num_nodes)}"
            )
        size = found.num_nodes[found.target]
        labels: NDArray[np.generic] = np.full(size, -1)
        num_classes = 0
        if found.labels is not None:
            if found.labels.shape not in ((size,), (size, 1)):
                raise DatasetError(
                    f"{self.name}: labels have shape {list(found.labels.shape)}; they must be [{size}], one class for "
                    f"each node of type {found.target}"
                )
            labels, num_classes = checked_labels(found.labels, found.num_classes, size, self.name)
        if found.splits is not None:
            check_splits(found.splits, size, name=self.name)
            check_split_labels(found.splits, torch.from_numpy(labels), num_classes, name=self.name)
        feature_times = self._feature_times(found)
        with progress.step("sorting edges"):
            graph = self._graph(found)
        for array in _LISTS:
            if (values := getattr(graph.lists, array)) is not None:
                writer.write(array, values.numpy())
        writer.write("labels", labels)
        for split, members in (found.splits or {}).items():
            writer.write(split, members.numpy())
        for i, name in enumerate(graph.node_types):
            if name in found.features:
                self._write_features(writer, progress, found.features[name], name, f"{i}.")
            if name in feature_times:
                writer.write(f"{i}.feature_times", feature_times[name].numpy())
        writer.properties.update(
            node_types=[[name, len(ids)] for name, ids in graph.node_types.items()],
            edge_types=[list(key) for key in graph.edge_types],
            timed_types=list(graph.timed_types),
            timed_relations=[list(key) for key in graph.timed_relations],
            features=list(found.features),
            target=found.target,
            num_classes=num_classes,
        )
        progress.notes.append(describe_classes(labels, num_classes, found.num_classes is None))

    def _check_features(self, found: HeteroEdges) -> None:
        for name, table in found.features.items():
            what = f"{self.name}: features of {name}"
            if name not in found.num_nodes:
                raise DatasetError(f"{what}, which is no node type; there are {list(found.num_nodes)}")
            check_features(table, what)
            if len(table) != found.num_nodes[name]:
                raise DatasetError(
                    f"{what} have {len(table)} rows; there are {found.num_nodes[name]} nodes of that type, make them "
                    "equal"
                )

    def _feature_times(self, found: HeteroEdges) -> dict[str, torch.Tensor]:
        times = {}
        for name, array in found.feature_times.items():
            label, size = f"feature_times[{name!r}]", found.num_nodes[name]
            if name not in found.features:
                raise DatasetError(
                    f"{self.name}: there are {label}, but no features of {name}; add them, or leave it out"
                )
            try:
                times[name] = time_vector(label, _tensors({name: array})[name], torch.device("cpu"))
                check_length(label, times[name], size, f"the type has {size} nodes")
            except (TypeError, ValueError) as error:
                raise DatasetError(f"{self.name}: {error}") from error
        return times

    def _graph(self, found: HeteroEdges) -> HeteroGraph:
        edges: dict[EdgeType, torch.Tensor] = {}
        for key, pairs in found.edges.items():
            edges[key] = torch.from_numpy(as_int64(pairs, f"{self.name}: edges of {'/'.join(key)}"))
        weights, times = _tensors(found.edge_weights), _tensors(found.edge_times)
        try:
            if self.undirected:
                sizes = check_node_types(found.num_nodes)
                check_edges(edges, sizes, lambda key: f"edges[{key!r}]")
                edges, weights, times = _with_reverses(edges, weights, times, sizes, self.name)
            return HeteroGraph.from_edges(
                edges,
                found.num_nodes,
                edge_weights=weights or None,
                node_times=_tensors(found.node_times),
                edge_times=times,
            )
        except (TypeError, ValueError) as error:
            raise DatasetError(f"{self.name}: {error}") from error

    def _write_features(
        self,
        writer: CacheWriter,
        progress: ConversionProgress,
        table: NDArray[np.generic],
        name: str,
        prefix: str,
    ) -> None:
        count = len(table)

        def rows() -> Iterator[NDArray[np.float32]]:
            parts = (table[a:b] for a, b in cut(count, rows_at_once(table.shape[1])))
            return checked_rows(parts, f"{self.name}, {name}", self.check_features)

        with progress.step(f"writing features of {name}", count) as advance:
            write_rows(writer, (count, table.shape[1]), rows, advance, prefix)

    def _assemble(self, cached: CachedArrays) -> HeteroDataset:
        arrays, properties = cached.arrays, cached.properties
        sizes = dict(properties["node_types"])
        try:
            lists = Graph(
                arrays["indptr"],
                arrays["indices"],
                num_src=sum(sizes.values()),
                edge_ids=arrays["edge_ids"],
                edge_weights=arrays.get("edge_weights"),
                edge_times=arrays.get("edge_times"),
                node_times=arrays.get("node_times"),
            )
            graph = HeteroGraph(
                lists,
                sizes,
                [tuple(key) for key in properties["edge_types"]],
                timed_types=properties["timed_types"],
                timed_relations=[tuple(key) for key in properties["timed_relations"]],
            )
        except ValueError as error:
            raise DatasetError(f"{self.name}: {error}") from error
        return HeteroDataset(
            name=self.name,
            graph=graph,
            features={
                name: read_rows(arrays, f"{i}.") for i, name in enumerate(sizes) if name in properties["features"]
            },
            target=properties["target"],
            labels=arrays["labels"],
            splits=self._splits(arrays),
            num_classes=int(properties["num_classes"]),
            feature_times={
                name: arrays[f"{i}.feature_times"] for i, name in enumerate(sizes) if f"{i}.feature_times" in arrays
            },
        )


def _tensors(arrays: Mapping[Any, NDArray[np.generic]]) -> dict[Any, torch.Tensor]:
    return {key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in arrays.items()}


def _with_reverses(
    edges: dict[EdgeType, torch.Tensor],
    weights: dict[EdgeType, torch.Tensor],
    times: dict[EdgeType, torch.Tensor],
    sizes: dict[str, int],
    who: str,
) -> tuple[dict[EdgeType, torch.Tensor], ...]:
    """Edges, weights and times with the reverse of every edge, see `HeteroEdgesDataset`."""
    made = dict(edges), dict(weights), dict(times)
    for key, pairs in edges.items():
        back = reversed_type(key)
        if key[0] == key[2]:
            size = max(sizes[key[0]], 1)
            both = torch.cat([pairs[0] * size + pairs[1], pairs[1] * size + pairs[0]]).unique()
            made[0][key] = torch.stack([both // size, both % size])
            if what := "weights" if key in weights else "times" if key in times else "":
                raise DatasetError(
                    f"{who}: undirected is true, but edges of {'/'.join(key)} have {what}, and the two directions may "
                    "differ; list both directions in the source and set undirected=false"
                )
            continue
        if back in edges:
            raise DatasetError(
                f"{who}: undirected is true, but the reverse of {'/'.join(key)}, {'/'.join(back)}, is there already; "
                "set undirected=false, or leave one of them out"
            )
        made[0][back] = pairs.flip(0)
        for of, given in zip(made[1:], (weights, times), strict=True):
            if key in given:
                of[back] = given[key]
    return made

"""What a `GraphDataModule` does with a dataset of several types: features by type, seeds of the target, sizes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from loader.datasets import DatasetError, HeteroDataset, NodeDataset
from loader.graph import Graph
from loader.loaders.hetero import refuse_store
from loader.memory.budget import StoreMakers
from loader.samplers.base import AnyGraph, Sampler
from loader.stores import FeatureStore, StoreContext, open_store

# What a model is told of a dataset with types, to try whether it can be had before the data are read.
TRIAL_SIZES: dict[str, Any] = {
    "num_features": {"node": 1},
    "num_classes": 2,
    "edge_types": [("node", "to", "node")],
    "target": "node",
}


def check_hetero(name: str, graph: str) -> None:
    """Raises DatasetError for what a dataset with types cannot have.

    Args:
        name: of the dataset.
        graph: `datamodule.graph`, which says where a sampler on a GPU reads the graph.
    """
    if graph == "cached":
        raise DatasetError(
            f"dataset {name} has types of nodes and edges, for which no lists are cached; give datamodule.graph=device "
            "or pinned in place of cached"
        )


def sizes_of(data: NodeDataset | HeteroDataset) -> dict[str, Any]:
    """What a model is told of the data. Of types without features the number of features is 0."""
    if isinstance(data, HeteroDataset):
        return {
            "num_features": {name: data.num_features.get(name, 0) for name in data.graph.node_types},
            "num_classes": data.num_classes,
            "edge_types": list(data.graph.edge_types),
            "target": data.target,
        }
    return {"num_features": data.num_features, "num_classes": data.num_classes, "multilabel": data.multilabel}


def seeds_of(data: NodeDataset | HeteroDataset, ids: Tensor) -> Any:
    """The seeds as a `NodeLoader` takes them."""
    return (data.target, ids) if isinstance(data, HeteroDataset) else ids


def times_of(data: NodeDataset | HeteroDataset, ids: Tensor, sampler: Sampler) -> Tensor | None:
    """The times of the seeds, which are those of their nodes, for a sampler by time; None for another.

    Raises:
        DatasetError: the nodes have none.
    """
    if not sampler.timed:
        return None
    if not isinstance(data, HeteroDataset) or data.target not in data.graph.timed_types:
        who = f"nodes of type {data.target}" if isinstance(data, HeteroDataset) else "a graph without types"
        raise DatasetError(
            f"dataset {data.name} has no times of its seeds ({who}), and {type(sampler).__name__} samples by these; "
            "add node_times, or give times='none'"
        )
    assert data.graph.lists.node_times is not None
    return data.graph.lists.node_times[ids + data.graph.node_types[data.target].start]


def open_features(
    make: StoreMakers, data: NodeDataset | HeteroDataset, graph: AnyGraph, batches: Any
) -> FeatureStore | dict[str, FeatureStore]:
    """The store of the features, of a dataset with types one for each type that has some.

    Args:
        make: see `open_store`; or node type -> such a function, for each type with features.
        data: the dataset.
        graph: where samplers read it.
        batches: see `StoreContext`.

    Raises:
        TypeError: `make` makes stores that cannot be one of several.
    """
    if not isinstance(data, HeteroDataset):
        assert isinstance(graph, Graph)
        assert not isinstance(make, dict)
        return open_store(make, data.features, StoreContext(graph, batches))
    if isinstance(make, dict):
        return {name: open_store(make[name], table) for name, table in data.features.items()}
    refuse_store("features", getattr(make, "func", make))
    return {name: open_store(make, table) for name, table in data.features.items()}


def stores_of(features: FeatureStore | dict[str, FeatureStore]) -> list[FeatureStore]:
    """The stores that `open_features` opened."""
    return list(features.values()) if isinstance(features, dict) else [features]

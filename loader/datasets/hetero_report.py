"""Facts of a graph or dataset with several types: sizes by type, degrees by relation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loader.datasets.hetero import HeteroDataset
from loader.graph import Graph, HeteroGraph
from loader.machine.arguments import kind_of
from loader.machine.optional import import_optional

if TYPE_CHECKING:
    from rich.console import Console


def topology_bytes(graph: Graph) -> int:
    """Bytes of the lists, and of the times of nodes and edges."""
    arrays = (graph.indptr, graph.indices, graph.node_times, graph.edge_times)
    return sum(array.nbytes for array in arrays if array is not None)


def hetero_card(data: HeteroDataset | HeteroGraph) -> dict[str, Any]:
    """The facts, as a dict that can be written as JSON.

    Returns:
        `nodes`: of each type its `num_nodes` and `num_features`, None if it has no features.

        `relations`: of each its `num_edges`, and `mean_degree` and `max_degree` of its lists of in-neighbors, one per
        node of the destination type; `share_without`, the share of these nodes that have no in-neighbor.

        `num_nodes`, `num_edges` and `topology_bytes` of the graph.

        Of a dataset also `dataset`, its name, `target`, `num_classes`, `feature_bytes`, and `splits`, the number of
        nodes in each.

    Raises:
        TypeError: it is neither a `HeteroDataset` nor a `HeteroGraph`.
    """
    if not isinstance(data, (HeteroDataset, HeteroGraph)):
        raise TypeError(f"data is {kind_of(data)}; it must be a loader.datasets.HeteroDataset, or a loader.HeteroGraph")
    graph, features = (data, {}) if isinstance(data, HeteroGraph) else (data.graph, data.num_features)
    relations = []
    for key in graph.edge_types:
        degrees = graph.in_degrees(key)
        count = max(degrees.numel(), 1)
        relations.append(
            {
                "edge_type": list(key),
                "num_edges": int(degrees.sum()),
                "mean_degree": int(degrees.sum()) / count,
                "max_degree": int(degrees.max()) if degrees.numel() else 0,
                "share_without": int((degrees == 0).sum()) / count,
            }
        )
    card: dict[str, Any] = {
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "nodes": [
            {"type": name, "num_nodes": len(ids), "num_features": features.get(name)}
            for name, ids in graph.node_types.items()
        ],
        "relations": relations,
        "topology_bytes": topology_bytes(graph.lists),
    }
    if isinstance(data, HeteroGraph):
        return card
    return {
        "dataset": data.name,
        **card,
        "target": data.target,
        "num_classes": data.num_classes,
        "splits": {split: ids.numel() for split, ids in data.splits.items()},
        "feature_bytes": sum(table.nbytes for table in data.features.values()),
    }


def show_hetero_card(card: dict[str, Any], console: Console) -> None:
    """Prints what `hetero_card` returned."""
    Table = import_optional("rich.table", "loader.inspect", "datasets").Table
    console.print(
        f"[bold]{card.get('dataset', 'graph')}[/]: {card['num_nodes']:,} nodes of {len(card['nodes'])} types, "
        f"{card['num_edges']:,} edges of {len(card['relations'])} relations"
    )
    if "dataset" in card:
        splits = ", ".join(f"{split} {size:,}" for split, size in card["splits"].items())
        console.print(f"{card['num_classes']} classes of {card['target']}: {splits}")
    console.print()
    nodes = Table(box=None, pad_edge=False)
    nodes.add_column("type")
    for name in ("nodes", "features"):
        nodes.add_column(name, justify="right")
    for row in card["nodes"]:
        features = "none" if row["num_features"] is None else f"{row['num_features']:,}"
        nodes.add_row(row["type"], f"{row['num_nodes']:,}", features)
    console.print(nodes)
    console.print("\nRelations; degrees are the numbers of in-neighbors")
    relations = Table(box=None, pad_edge=False)
    relations.add_column("relation", overflow="fold")
    for name in ("edges", "mean\ndegree", "largest\ndegree", "without\nneighbors"):
        relations.add_column(name, justify="right")
    for row in card["relations"]:
        relations.add_row(
            " ".join(row["edge_type"]),
            f"{row['num_edges']:,}",
            f"{row['mean_degree']:.1f}",
            f"{row['max_degree']:,}",
            f"{row['share_without']:.0%}",
        )
    console.print(relations)

"""Converts a `HeteroSubgraph` to PyG's `HeteroData`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loader.machine.optional import import_optional

if TYPE_CHECKING:
    from loader.samples.hetero_subgraph import HeteroSubgraph


def heterodata_of(sample: HeteroSubgraph) -> Any:
    """A `torch_geometric.data.HeteroData`, see `HeteroSubgraph.to_pyg`."""
    HeteroData = import_optional("torch_geometric.data", "to_pyg()", "datasets").HeteroData

    data = HeteroData()
    for name, ids in sample.nodes.items():
        store, counts = data[name], sample.num_nodes[name]
        store.n_id, store.num_nodes = ids, ids.numel()
        if sample.by_hop:
            store.num_sampled_nodes = list(counts)
        if counts[0]:
            store.batch_size, store.input_id = counts[0], ids[: counts[0]]
    for edge_type, pairs in sample.edges.items():
        edges = data[edge_type]
        edges.edge_index = pairs
        if sample.by_hop:
            edges.num_sampled_edges = list(sample.num_edges[edge_type])
        if sample.edge_ids is not None:
            edges.e_id = sample.edge_ids[edge_type]
    for kind, rows in sample.rows.items():
        if kind == "seed":
            data[sample.seed_type].y = rows
            continue
        where, attribute = sample.place_of(kind)
        data[where][attribute or ("x" if isinstance(where, str) else "edge_attr")] = rows
    return data

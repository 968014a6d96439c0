"""torch_geometric's `ClusterData` and `ClusterLoader` on our core, and METIS by pymetis."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch_geometric.loader.cluster as theirs
from torch import Tensor
from torch_geometric.utils import select

from loader.graph import Graph, induced_edges
from loader.graph.metis import metis_parts
from loader.loaders.torch_options import device_of
from loader.pyg.numbered_loader import without_own

if hasattr(torch.serialization, "add_safe_globals"):  # of torch 2.4; else torch warns of partitions on disk
    torch.serialization.add_safe_globals([theirs.Partition])


class ClusterData(theirs.ClusterData):
    """`torch_geometric.loader.ClusterData`: a graph in parts with few edges between them, made by METIS.

    The parts come from the package pymetis (`pip install 'gnn-loader[metis]'`), also if torch-sparse or pyg-lib is
    installed. A partition that torch_geometric has saved under `save_dir` is read, if it is one of this graph.

    Args:
        data: the graph, of one type, with `edge_index`. METIS sees each edge in both directions, and no loops.
        num_parts, recursive, save_dir, filename, log, keep_inter_cluster_edges, sparse_format: see torch_geometric.

    Raises:
        ImportError: pymetis is missing.
        ValueError: the partition under `save_dir` is of other edges, or has another `sparse_format`.
    """

    def _permute_data(self, data: Any, partition: Any) -> Any:
        if not self._is_of(data, partition):
            raise ValueError(
                "the partition in save_dir is of another graph, or of another sparse_format or num_parts; remove it, "
                "or give another save_dir or filename"
            )
        return super()._permute_data(data, partition)

    def _is_of(self, data: Any, partition: Any) -> bool:
        """Whether a partition, which may have been read, has the edges of the graph in its format."""
        if partition.sparse_format != self.sparse_format or partition.partptr.numel() != self.num_parts + 1:
            return False
        if partition.node_perm.numel() != data.num_nodes or partition.edge_perm.numel() != data.num_edges:
            return False
        number = torch.empty_like(partition.node_perm)
        number[partition.node_perm] = torch.arange(number.numel(), device=number.device)
        ends = number[data.edge_index.to(number.device)[:, partition.edge_perm]]
        owners, others = ends if self.sparse_format == "csr" else ends.flip(0)
        lengths = partition.indptr.diff()
        listed = torch.arange(lengths.numel(), device=lengths.device).repeat_interleave(lengths)
        return torch.equal(owners, listed) and torch.equal(others, partition.index.to(others.dtype))

    def _metis(self, edge_index: Tensor, num_nodes: int) -> Tensor:
        source, target = edge_index.cpu()
        graph = Graph.from_edges(source, target, num_nodes)
        parts = metis_parts(graph, self.num_parts, recursive=self.recursive, wanted_by=type(self).__name__)
        return parts.to(edge_index.device)


class ClusterLoader(theirs.ClusterLoader):
    """`torch_geometric.loader.ClusterLoader`: mini-batches of several parts, with all edges among their nodes.

    Args:
        cluster_data: a `ClusterData`, ours or torch_geometric's.
        device: where edges are found and mini-batches arrive: "cpu" or a GPU, without workers; by default that of the
            partition.
        options: of torch's DataLoader: `batch_size`, `shuffle`, `num_workers` and so on.
    """

    def __init__(self, cluster_data: Any, *, device: torch.device | str | None = None, **options: Any) -> None:
        partition = cluster_data.partition
        self._device = device_of(partition.index.device if device is None else device)
        options = without_own(type(self).__name__, self._device, options)
        # Lists by row or by column; of rows the targets stand for sources.
        self._graph = Graph(partition.indptr, partition.index).to(self._device)
        self._threads = 1 if options.get("num_workers") else None  # a worker is one of many
        super().__init__(cluster_data, **options)

    def _collate(self, batch: Any) -> Any:
        whole, partition = self.cluster_data.data, self.cluster_data.partition
        parts = torch.as_tensor(batch)
        starts, ends = partition.partptr[parts].tolist(), partition.partptr[parts + 1].tolist()
        nodes = torch.cat([torch.arange(a, b, device=self._device) for a, b in zip(starts, ends, strict=True)])
        threads = self._threads if self._device.type == "cpu" else None
        found = induced_edges(self._graph, nodes, num_threads=threads)
        pairs = [found.targets, found.sources] if partition.sparse_format == "csr" else [found.sources, found.targets]
        out = copy.copy(whole)
        for name, value in whole.items():
            if name == "num_nodes":
                out.num_nodes = nodes.numel()
            elif whole.is_node_attr(name) or whole.is_edge_attr(name):
                ids = nodes if whole.is_node_attr(name) else found.places
                at = value.device if isinstance(value, Tensor) else "cpu"
                rows = select(value, ids.to(at), dim=whole.__cat_dim__(name, value))
                out[name] = rows.to(self._device) if isinstance(rows, Tensor) else rows
        out.edge_index = torch.stack(pairs)
        return out

"""torch_geometric's loaders and models on this package.

If neither pyg-lib nor torch-sparse is installed, torch_geometric's own `NeighborLoader`, `LinkNeighborLoader`,
`NeighborSampler` and `Node2Vec` raise an ImportError. After `import loader.pyg` they work, on our core. So do the names
`HGTLoader`, `ShaDowKHopSampler`, `GraphSAINT...Sampler`, `ClusterData` and `ClusterLoader` of `torch_geometric.loader`:
they are then the classes of this package. If one of the two is installed, the import changes nothing. `backend()` says
who samples.

`loader.pyg.NeighborLoader`, `loader.pyg.LinkNeighborLoader` and `loader.pyg.HGTLoader` have the signatures of
torch_geometric's, but use our pipeline, on the CPU or on a GPU. `loader.pyg.Node2Vec` and `loader.pyg.MetaPath2Vec` are
torch_geometric's models, and make the walks on the device of the model. `loader.pyg.LastNeighborLoader` has the law of
torch_geometric's, of a `TemporalData` that it is given as a whole.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from loader.pyg.backend import backend, install
from loader.pyg.cluster import ClusterData, ClusterLoader
from loader.pyg.graph_saint import (
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
    GraphSAINTSampler,
)
from loader.pyg.hgt_loader import HGTLoader
from loader.pyg.last_neighbors import LastNeighborLoader
from loader.pyg.link_neighbor_loader import LinkNeighborLoader
from loader.pyg.neighbor_loader import NeighborLoader
from loader.pyg.shadow import ShaDowKHopSampler

if TYPE_CHECKING:
    from loader.pyg.node2vec import MetaPath2Vec, Node2Vec

__all__ = [
    "ClusterData",
    "ClusterLoader",
    "GraphSAINTEdgeSampler",
    "GraphSAINTNodeSampler",
    "GraphSAINTRandomWalkSampler",
    "GraphSAINTSampler",
    "HGTLoader",
    "LastNeighborLoader",
    "LinkNeighborLoader",
    "MetaPath2Vec",
    "NeighborLoader",
    "Node2Vec",
    "ShaDowKHopSampler",
    "backend",
]

install()


def __getattr__(name: str) -> Any:
    if name in ("MetaPath2Vec", "Node2Vec"):  # on first use: torch_geometric.nn takes seconds to import
        return getattr(import_module("loader.pyg.node2vec"), name)
    raise AttributeError(f"module 'loader.pyg' has no attribute {name!r}")

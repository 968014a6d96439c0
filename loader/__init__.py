"""A data loader for GNN training: it samples and gathers mini-batches while the model trains."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    from loader import _core as _core
except ImportError as error:
    raise ImportError(
        f"the loader's compiled core is not in {__path__[0]} ({error}). If that is a checkout, install it by "
        "`pip install -e .` there; to use a loader that is installed elsewhere, run Python from another folder"
    ) from error

if TYPE_CHECKING:
    from loader.datamodules.nodes import GraphDataModule
    from loader.graph import Graph, HeteroGraph
    from loader.items import Walkers
    from loader.loaders.links import LinkLoader
    from loader.loaders.nodes import NodeLoader
    from loader.samplers import (
        DGLSampler,
        FullSampler,
        FusedSampler,
        HopwiseSampler,
        LinkSampler,
        Next,
        Sampler,
        TreeSampler,
        WalkSampler,
        random_walk,
    )
    from loader.samples import Block, HeteroMiniBatch, Links, MiniBatch, TreeMiniBatch, Walks

__version__ = "0.1.0"

# Names are fetched on first use, so that reading a graph does not wait for Lightning to be imported.
_HOMES = {
    "Block": "loader.samples",
    "DGLSampler": "loader.samplers",
    "FullSampler": "loader.samplers",
    "FusedSampler": "loader.samplers",
    "Graph": "loader.graph",
    "GraphDataModule": "loader.datamodules.nodes",
    "HeteroGraph": "loader.graph",
    "HeteroMiniBatch": "loader.samples",
    "HopwiseSampler": "loader.samplers",
    "LinkLoader": "loader.loaders.links",
    "LinkSampler": "loader.samplers",
    "Links": "loader.samples",
    "MiniBatch": "loader.samples",
    "Next": "loader.samplers",
    "NodeLoader": "loader.loaders.nodes",
    "Sampler": "loader.samplers",
    "TreeMiniBatch": "loader.samples",
    "TreeSampler": "loader.samplers",
    "WalkSampler": "loader.samplers",
    "Walkers": "loader.items",
    "Walks": "loader.samples",
    "random_walk": "loader.samplers",
}

__all__ = [
    "Block",
    "DGLSampler",
    "FullSampler",
    "FusedSampler",
    "Graph",
    "GraphDataModule",
    "HeteroGraph",
    "HeteroMiniBatch",
    "HopwiseSampler",
    "LinkLoader",
    "LinkSampler",
    "Links",
    "MiniBatch",
    "Next",
    "NodeLoader",
    "Sampler",
    "TreeMiniBatch",
    "TreeSampler",
    "WalkSampler",
    "Walkers",
    "Walks",
    "random_walk",
]


def __getattr__(name: str) -> Any:
    if name == "GraphDataModule":
        from loader.machine.optional import import_optional

        import_optional("lightning.pytorch", "GraphDataModule", "train")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'loader' has no attribute {name!r}")

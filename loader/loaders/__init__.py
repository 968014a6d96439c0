"""Loaders: they iterate over the mini-batches of an epoch."""

from loader.loaders.base import Loader
from loader.loaders.links import LinkLoader
from loader.loaders.nodes import NodeLoader
from loader.loaders.whole_graph import WholeGraph

__all__ = ["LinkLoader", "Loader", "NodeLoader", "WholeGraph"]

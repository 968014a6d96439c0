"""What samplers return, and the same as DGL and PyG know it."""

from loader.samples.lazy_rows import LazyRows
from loader.samples.minibatch import Block, MiniBatch

__all__ = ["Block", "LazyRows", "MiniBatch"]

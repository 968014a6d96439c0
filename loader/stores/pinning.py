"""The page-locked memory of `loader.machine.pinning`, under the name that the stores know."""

from loader.machine.pinning import PinnedTensor, _locked, host_memory

__all__ = ["PinnedTensor", "_locked", "host_memory"]

"""torch_geometric on our core.

`import loader.pyg` makes torch_geometric's own `NeighborLoader`, `LinkNeighborLoader` and `NeighborSampler` work where
neither pyg-lib nor torch-sparse is installed. That needs no call, since all it changes is an ImportError; where one of
the two is installed, it changes nothing. `backend()` tells who samples.

`loader.pyg.NeighborLoader` has the signature of torch_geometric's, and our pipeline under it: on the CPU or on a GPU.
"""

from loader.pyg.backend import backend, install
from loader.pyg.neighbor_loader import NeighborLoader

__all__ = ["NeighborLoader", "backend"]

install()

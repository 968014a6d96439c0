"""torch_geometric on our core.

`import loader.pyg` makes torch_geometric's own `NeighborLoader`, `LinkNeighborLoader` and `NeighborSampler` work where
neither pyg-lib nor torch-sparse is installed. That needs no call, since all it changes is an ImportError; where one of
the two is installed, it changes nothing. `backend()` tells who samples.
"""

from loader.pyg.backend import backend, install

__all__ = ["backend"]

install()

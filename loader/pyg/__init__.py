"""torch_geometric on our core.

`import loader.pyg` makes torch_geometric's own `NeighborLoader`, `LinkNeighborLoader`, `NeighborSampler` and `Node2Vec`
work where neither pyg-lib nor torch-sparse is installed. That needs no call, since all it changes is an ImportError;
where one of the two is installed, it changes nothing. `backend()` tells who samples.

`loader.pyg.NeighborLoader` and `loader.pyg.LinkNeighborLoader` have the signatures of torch_geometric's, and our
pipeline under them: on the CPU or on a GPU.
"""

from loader.pyg.backend import backend, install
from loader.pyg.link_neighbor_loader import LinkNeighborLoader
from loader.pyg.neighbor_loader import NeighborLoader

__all__ = ["LinkNeighborLoader", "NeighborLoader", "backend"]

install()

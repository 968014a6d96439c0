"""Who samples for torch_geometric's own loaders: pyg-lib, torch-sparse or, without them, our core."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any


class _Instead:
    """A module with some of its names replaced, for the one module that is given this in its place."""

    def __init__(self, module: ModuleType, **names: Any) -> None:
        self.__dict__.update(names)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


_OURS = "loader"


def backend() -> str:
    """Who samples for `torch_geometric.loader.NeighborLoader` and the like: "loader", "pyg-lib" or "torch-sparse"."""
    import torch_geometric.sampler.neighbor_sampler as module
    import torch_geometric.typing as typing

    if isinstance(module.torch_geometric, _Instead):
        return _OURS
    return "pyg-lib" if typing.WITH_PYG_LIB else "torch-sparse" if typing.WITH_TORCH_SPARSE else "none"


def install() -> None:
    """Makes our core sample for torch_geometric, if neither pyg-lib nor torch-sparse is installed.

    Only the modules of its neighbor sampler, of Node2Vec and of `dropout_path` are told that pyg-lib is there. Other
    modules would miss functions such as `segment_matmul`.
    """
    if backend() != "none":
        return
    import torch_geometric
    import torch_geometric.sampler.neighbor_sampler as module

    from loader.pyg.torch_ops import register

    register()
    _refuse_ignored_weights(module.NeighborSampler)
    there = ("WITH_PYG_LIB", "WITH_TORCH_SPARSE", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE")
    typing = _Instead(torch_geometric.typing, **dict.fromkeys(there, True))
    module.torch_geometric = _Instead(torch_geometric, typing=typing)
    # Of random walks: Node2Vec and dropout_path ask before they call the operator.
    import torch_geometric.nn.models.node2vec as node2vec
    import torch_geometric.utils.dropout as dropout
    from torch_geometric.transforms import RootedRWSubgraph

    for kind in (module.NeighborSampler, RootedRWSubgraph):
        _bring_along(kind)
    node2vec.WITH_PYG_LIB = True
    _replace_loaders()
    dropout.torch_geometric = module.torch_geometric


def _replace_loaders() -> None:
    """Puts our loaders of subgraphs into `torch_geometric.loader`, in the place of those that need torch-sparse."""
    import torch_geometric.loader

    from loader.pyg import cluster, graph_saint, hgt_loader, shadow

    kinds = (
        hgt_loader.HGTLoader,
        shadow.ShaDowKHopSampler,
        graph_saint.GraphSAINTSampler,
        graph_saint.GraphSAINTNodeSampler,
        graph_saint.GraphSAINTEdgeSampler,
        graph_saint.GraphSAINTRandomWalkSampler,
        cluster.ClusterData,
        cluster.ClusterLoader,
    )
    for kind in kinds:
        setattr(torch_geometric.loader, kind.__name__, kind)


def _bring_along(kind: Any) -> None:
    """Lets a pickle of such an object import this package: a spawned worker that gets one has not done so by itself."""

    def reduce(self: Any, protocol: int) -> tuple[Any, ...]:
        parts = object.__reduce_ex__(self, protocol)
        assert isinstance(parts, tuple)
        made, given, *rest = parts
        return (remade, (made, given), *rest)

    kind.__reduce_ex__ = reduce


def remade(make: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """What `make` makes of `given`. Who unpickles this function has imported `loader.pyg`."""
    return make(*given)


def _refuse_ignored_weights(sampler: Any) -> None:
    """Lets torch_geometric's neighbor sampler refuse weights where it would not hand them on to who samples."""
    begin = sampler.__init__

    @wraps(begin)
    def checked(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        if self.subgraph_type.value == "induced" and getattr(self, "edge_weight", None) is not None:
            raise NotImplementedError(
                "weight_attr goes with subgraph_type='directional' or 'bidirectional': with 'induced', "
                "torch_geometric does not hand the weights on, and neighbors would be picked uniformly"
            )

    sampler.__init__ = checked

"""Names of `dgl.dataloading.negative_sampler`. The negative links are drawn by our `Negatives`."""

from __future__ import annotations

from typing import Any

from loader.dgl.original_dgl import dataloading
from loader.dgl.sampling import global_uniform_negative_sampling
from loader.items import as_size
from loader.machine.arguments import kind_of
from loader.samplers import Negatives


class NegativeSampler:
    """What negative samplers have in common. One of yours implements `_generate`, as in DGL, or is any function."""

    def _generate(self, g: Any, eids: Any, canonical_etype: tuple[str, str, str]) -> Any:
        """Negatives of the edges `eids` of one type: `(sources, destinations)`."""
        raise NotImplementedError(f"{type(self).__name__} has no _generate; implement it")

    def __call__(self, g: Any, eids: Any) -> Any:
        """Negatives of the edges `eids`, drawn by DGL: `(sources, destinations)`, or a dict of them by type."""
        return _theirs()._BaseNegativeSampler.__call__(self, g, eids)


class PerSourceUniform(NegativeSampler):
    """Draws `k` negatives per positive link, from its source to targets that are uniform over all nodes. A negative
    may be an edge.

    Args:
        k: at least 1.
    """

    def __init__(self, k: int) -> None:
        self.k = as_size("k", k)

    def _generate(self, g: Any, eids: Any, canonical_etype: tuple[str, str, str]) -> Any:
        return _theirs().PerSourceUniform._generate(self, g, eids, canonical_etype)


Uniform = PerSourceUniform


class GlobalUniform(NegativeSampler):
    """Draws `k` pairs of nodes per positive link, uniformly from all pairs that are no edges.

    With `replace=True` and without loops the pipeline draws them. Else they are drawn when the mini-batch is asked for,
    in the thread that asks, see `loader.dgl.DataLoader` on methods of your own.

    Args:
        k: at least 1.
        exclude_self_loops: draw no loops.
        replace: pairs are drawn independently, so a pair may come twice in a mini-batch. Otherwise a mini-batch has
            fewer pairs if the graph has fewer.
    """

    def __init__(self, k: int, exclude_self_loops: bool = True, replace: bool = False) -> None:
        self.k, self.exclude_self_loops, self.replace = as_size("k", k), bool(exclude_self_loops), bool(replace)

    def _generate(self, g: Any, eids: Any, canonical_etype: tuple[str, str, str]) -> Any:
        count = len(eids) * self.k
        return global_uniform_negative_sampling(g, count, self.exclude_self_loops, self.replace, canonical_etype)


def negatives_of(sampler: Any) -> Negatives | None:
    """The `Negatives` that a negative sampler of DGL or of this module draws; None if it has to be called itself.

    Raises:
        TypeError: the sampler cannot be called.
    """
    if not callable(sampler):
        raise TypeError(
            f"negative_sampler is {kind_of(sampler)}; it must be a PerSourceUniform (Uniform) or a GlobalUniform of "
            "loader.dgl.negative_sampler or of DGL, or a function of (g, eids)"
        )
    kind = type(sampler)
    if "_generate" in getattr(sampler, "__dict__", {}):
        return None
    theirs = kind.__module__.startswith("dgl.")
    if kind is PerSourceUniform or (theirs and kind.__name__ == "PerSourceUniform"):
        return Negatives("triplet", as_size("k", sampler.k))
    known = kind is GlobalUniform or (theirs and kind.__name__ == "GlobalUniform")
    if known and sampler.replace and sampler.exclude_self_loops:
        return Negatives("binary", as_size("k", sampler.k), strict=True)
    return None


def _theirs() -> Any:
    return dataloading("negative_sampler")

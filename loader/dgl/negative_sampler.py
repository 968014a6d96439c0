"""Names of `dgl.dataloading.negative_sampler`. The negative links are drawn by our `Negatives`."""

from __future__ import annotations

from typing import Any

from loader.items import as_size
from loader.machine.arguments import kind_of
from loader.samplers import Negatives


class PerSourceUniform:
    """Draws `k` negatives per positive link, from its source to targets that are uniform over all vertices. A negative
    may be an edge.

    Args:
        k: at least 1.
    """

    def __init__(self, k: int) -> None:
        self.k = as_size("k", k)

    @property
    def negatives(self) -> Negatives:
        """These negatives for our sampler of links."""
        return Negatives("triplet", self.k)


Uniform = PerSourceUniform


class GlobalUniform:
    """Draws `k` pairs of vertices per positive link, uniformly from all pairs that are no edges and no loops.

    Args:
        k: at least 1.
        exclude_self_loops: must be true.
        replace: must be true: pairs are drawn independently, so a pair may come twice. The default of DGL is false.

    Raises:
        NotImplementedError: one of these two is false.
    """

    def __init__(self, k: int, exclude_self_loops: bool = True, replace: bool = False) -> None:
        if not exclude_self_loops or not replace:
            raise NotImplementedError(
                f"GlobalUniform was given exclude_self_loops={exclude_self_loops}, replace={replace}; pairs are drawn "
                "independently and without loops: give replace=True, and leave exclude_self_loops at its default"
            )
        self.k = as_size("k", k)

    @property
    def negatives(self) -> Negatives:
        """These negatives for our sampler of links."""
        return Negatives("binary", self.k, strict=True)


def negatives_of(sampler: Any) -> Negatives | None:
    """The `Negatives` for a negative sampler of DGL or of this module.

    Raises:
        TypeError: the sampler is none of these.
    """
    if sampler is None:
        return None
    if isinstance(sampler, (PerSourceUniform, GlobalUniform)):
        return sampler.negatives
    name, module = type(sampler).__name__, type(sampler).__module__
    if module.startswith("dgl.") and name == "PerSourceUniform":
        return PerSourceUniform(sampler.k).negatives
    if module.startswith("dgl.") and name == "GlobalUniform":
        return GlobalUniform(sampler.k, sampler.exclude_self_loops, sampler.replace).negatives
    raise TypeError(
        f"negative_sampler is {kind_of(sampler)}; it must be a PerSourceUniform (Uniform) or a GlobalUniform, of "
        "loader.dgl.negative_sampler or of DGL"
    )

"""Weights by which nodes are drawn."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from loader.graph.checks import check_numbers
from loader.machine.arguments import check_dense, kind_of
from loader.machine.subnormals import as_doubles, with_subnormals

_MOST = 2**32 - 1  # numbers among which the core draws

_Doubles = np.ndarray[Any, np.dtype[np.float64]]
_Units = np.ndarray[Any, np.dtype[np.int64]]


class NodeWeights:
    """Turns a number that is uniform in `[0, total)` into a node: node `i` with a probability proportional to its
    weight.

    Weights are rounded to multiples of about 2**-32 of their sum, and at least to one of these unless they are 0.

    Args:
        name: of the weights, in messages.
        weights: `[nodes]`, integers or floats, finite and at least 0, with a positive sum.

    Attributes:
        total: how many numbers there are.

    Raises:
        TypeError, ValueError: the weights are not as said above.
    """

    def __init__(self, name: str, weights: Tensor) -> None:
        if not isinstance(weights, Tensor) or weights.is_complex() or weights.dtype == torch.bool:
            raise TypeError(f"{name} is {kind_of(weights)}; it must be a tensor of numbers, a weight per node")
        check_dense(name, weights)
        check_numbers(name, weights)
        if weights.dim() != 1:
            raise ValueError(f"{name} has shape {list(weights.shape)}; it must have 1 dimension, a weight per node")
        given = as_doubles(weights)
        with with_subnormals():
            units = self._units(name, given)
        self._ends = torch.from_numpy(np.cumsum(units))
        self.name, self.total = name, int(self._ends[-1])
        self.digest = hashlib.sha256(units.tobytes()).hexdigest()[:16]

    @staticmethod
    def _units(name: str, given: _Doubles) -> _Units:
        bad = ~(np.isfinite(given) & (given >= 0))
        if bad.any():
            at = int(bad.argmax())
            raise ValueError(f"{name}[{at}] is {given[at]}; a weight must be finite and at least 0")
        scaled = given / max(given.max(initial=0.0), 5e-324)  # so that no sum overflows
        sums = np.cumsum(scaled)  # one after the other, so the same on every machine
        if not sums.size or sums[-1] == 0:
            raise ValueError(f"{name} are all 0; at least one node must have a positive weight")
        units = np.floor(scaled / sums[-1] * (_MOST - given.size)).astype(np.int64)
        units[(units == 0) & (given > 0)] = 1
        return units

    def __len__(self) -> int:
        return self._ends.numel()

    @property
    def units(self) -> Tensor:
        """`[nodes]` int64: how many numbers each node has."""
        return self._ends.diff(prepend=self._ends.new_zeros(1))

    def nodes(self, drawn: Tensor) -> Tensor:
        """The nodes of numbers in `[0, total)`, int64 on the CPU."""
        return torch.searchsorted(self._ends, drawn, right=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeWeights) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"NodeWeights({len(self)} nodes)"

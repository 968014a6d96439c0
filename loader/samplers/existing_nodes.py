"""The nodes of one type that exist at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from loader.graph.checks import MISSING_TIME
from loader.samplers.node_weights import NodeWeights


class ExistingNodes:
    """The nodes of one type in the order of their times, so that those that exist at a time come first.

    Args:
        what: a message calls the nodes this, as "nodes of type 'item'".
        times: `[nodes]` int64; `MISSING_TIME` for nodes whose time is not known.
        rule: "<=": a node exists at its own time; "<": later only.
        missing_times: "always": a node without a time exists at any time; "never": at none.
        weights: by which the nodes are drawn, or None: uniformly.

    Attributes:
        order: `[n]` int64 nodes on the CPU, of which `counts` tells the number; None if they are drawn by weight.
    """

    def __init__(
        self, what: str, times: Tensor, rule: str, missing_times: str = "error", weights: NodeWeights | None = None
    ) -> None:
        times = times.cpu()
        order = times.argsort(stable=True)  # missing ones are the least
        if missing_times == "never":
            order = order[times[order] != MISSING_TIME]
        self._what, self._rule, self._times, self._order = what, rule, times[order], order
        self.order = order if weights is None else None
        self._ends = None if weights is None else weights.units[order].cumsum(0)

    def counts(self, at: Tensor) -> Tensor:
        """`[n]` int64: how many nodes exist at each time; by weight the sum of their units.

        Raises:
            ValueError: there is none at a time.
        """
        found = torch.searchsorted(self._times, at, right=self._rule == "<=")
        if self._ends is not None:
            found = torch.cat([found.new_zeros(1), self._ends])[found]
        if found.numel() and not bool(found.min()):
            when = "later" if self._rule == "<=" else "not earlier"
            positive = "" if self._ends is None else " with a positive weight"
            none = at[found == 0]
            raise ValueError(
                f"{none.numel()} of {at.numel()} negatives have no end: all {self._what}{positive} are {when} than the "
                f"time of their link, the first {int(none[0])}; leave these links out"
            )
        return found

    def nodes(self, drawn: Tensor) -> Tensor:
        """The nodes of numbers in `[0, count)`, by weight."""
        assert self._ends is not None
        return self._order[torch.searchsorted(self._ends, drawn, right=True)]

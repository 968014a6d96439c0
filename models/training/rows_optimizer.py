"""One optimizer for the parameters of a model and for its tables of trained rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class WithRows(torch.optim.Optimizer):
    """Steps by `dense` and by `rows` as one optimizer: Lightning, schedules and checkpoints know of one.

    Args:
        dense: of parameters with dense gradients.
        rows: of tables whose gradients are sparse, e.g. `torch.optim.SparseAdam`. It changes rows that were read, and
            their moments; those of others stay.
        weight_decay: L2 penalty of rows that were read: so much of a row is added to its gradient.

    Attributes:
        param_groups, state: those of both. They share them.
    """

    def __init__(self, dense: torch.optim.Optimizer, rows: torch.optim.Optimizer, weight_decay: float = 0.0) -> None:
        self.dense, self.rows, self.weight_decay = dense, rows, weight_decay
        self._groups_of_dense = len(dense.param_groups)
        super().__init__([*dense.param_groups, *rows.param_groups], {})
        self._share()

    def _share(self) -> None:
        at = self._groups_of_dense
        for part, groups in ((self.dense, self.param_groups[:at]), (self.rows, self.param_groups[at:])):
            part.__setstate__({"state": self.state, "param_groups": groups})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Called with new groups and states when these are loaded."""
        super().__setstate__(state)
        self._share()

    def __getstate__(self) -> dict[str, Any]:
        parts = {name: vars(self)[name] for name in ("dense", "rows", "weight_decay", "_groups_of_dense")}
        return {**super().__getstate__(), **parts}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A step of both, after the closure, whose result it returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.dense.step()
        if self.weight_decay:
            self._decay()
        self.rows.step()
        return loss

    def _decay(self) -> None:
        for table in (table for group in self.rows.param_groups for table in group["params"]):
            if table.grad is not None:
                table.grad = table.grad.coalesce()
                rows = table.index_select(0, table.grad.indices()[0])
                table.grad.values().add_(rows, alpha=self.weight_decay)

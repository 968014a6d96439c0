"""What the operators for torch_geometric share: the number that decides what they pick, and what they refuse."""

from __future__ import annotations

from typing import Any, NoReturn

import torch


def drawn() -> int:
    """A number from torch's generator, so that torch.manual_seed and the seeds of a DataLoader's workers decide."""
    return int(torch.empty((), dtype=torch.int64).random_())


def refuse(what: str, argument: str | None = None) -> NoReturn:
    """Raises NotImplementedError: `what` is not done, `argument` has to have its default."""
    way_out = f"leave {argument} at its default" if argument else "install pyg-lib for that"
    raise NotImplementedError(f"loader.pyg does not {what.replace('samples', 'sample', 1)}; {way_out}")


def refuse_induced(directed: bool) -> None:
    """Raises NotImplementedError if the subgraphs are induced ones."""
    if not directed:
        refuse("samples induced subgraphs by this operator; subgraph_type='induced' calls torch_sparse's", "directed")


def on_gpu(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: the operators sample on the CPU."""
    raise NotImplementedError(
        "the graph lies on a GPU, and torch_geometric's samplers work on the CPU; move it there, or sample on the GPU "
        "by loader.pyg.NeighborLoader(data, ..., device='cuda')"
    )

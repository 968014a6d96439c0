"""A stage of a pipeline, as it declares itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch


class Stage:
    """One step of a pipeline: an item in, an item out. A subclass implements `run`, or `begin` if it has two halves.

    Attributes:
        name: what statistics, threads, pictures and errors call it. No two stages of a pipeline share one.
        device: the device that it works on, or None for the device of the item.
        priority: of its kernels on a GPU, 0 for none; negative ones go first. PyTorch clips it to what the GPU has.
        asynchronous: whether it only puts work on the current stream. If all stages do, no threads are needed.
        together: this many items are best begun at once. Only the first stage of a pipeline may have more than 1.
    """

    name: str = ""
    device: torch.device | None = None
    priority: int = 0
    asynchronous: bool = False
    together: int = 1

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.run is Stage.run and cls.begin is Stage.begin:
            raise TypeError(f"stage {cls.__name__} implements neither `run` nor `begin`; one of them is needed")

    def run(self, item: Any) -> Any:
        """What the next stage gets. It is called by one thread at a time, in the order of the items."""
        (finish,) = self.begin((item,))
        return finish()

    def begin(self, group: Sequence[Any]) -> Sequence[Callable[[], Any]]:
        """The same for a group, in two halves: begins all items, and returns a function per item that finishes it.

        Several groups may be begun before the first item is finished. Items are finished in order.
        """
        return [partial(self.run, item) for item in group]

    def check(self) -> None:
        """Raises errors of work that nobody waited for. It is called at the end of a run."""

    def close(self) -> None:
        """Frees what the stage holds; it cannot be used afterwards."""

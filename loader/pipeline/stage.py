"""The base class of the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch


class Stage:
    """One step of a pipeline: it takes an item and returns an item. A subclass implements `run`, or `begin` if its work
    has two halves.

    Attributes:
        name: its name in statistics, threads, pictures and errors. The names of a pipeline's stages must differ.
        device: the device that it works on, or None for the device of the item.
        priority: of its kernels on a GPU; 0 for none, a lower number goes first. PyTorch clips it to the GPU's range.
        asynchronous: whether it only puts work on the current stream. Stages that all do so may need no threads.
        together: the best number of items to begin at once; without prefetching it is one.
        depth: results that may be under way or wait to be taken, if they are fewer than the pipeline allows.
        collective: whether the processes of a run do the work of a group together, each with a group of its own. They
            must then begin equally many groups, see `absent`. A collective stage is neither asynchronous nor the first.
    """

    name: str = ""
    device: torch.device | None = None
    priority: int = 0
    asynchronous: bool = False
    together: int = 1
    depth: int = 1 << 62
    collective: bool = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.run is Stage.run and cls.begin is Stage.begin:
            raise TypeError(f"stage {cls.__name__} implements neither `run` nor `begin`; one of them is needed")

    def run(self, item: Any) -> Any:
        """Returns the item for the next stage. One thread at a time calls it, in the order of the items."""
        (finish,) = self.begin((item,))
        return finish()

    def begin(self, group: Sequence[Any]) -> Sequence[Callable[[], Any]]:
        """Runs the stage for a group in two halves: begins all items, and returns a function per item that finishes it.

        Several groups may be begun before the first item is finished. Items are finished in order.
        """
        return [partial(self.run, item) for item in group]

    def prepare(self) -> None:
        """Prepares the stage for a run that begins.

        The consumer's thread calls it, before the first item of the run.
        """

    def absent(self) -> None:
        """Takes part in the work of one group without items. Only a collective stage is asked for this.

        A run that is closed early begins no more groups, but those of the other processes may have begun more, and wait
        for this one. `begin` takes part, too, if it raises; unless another process was lost, no error ends that.
        """
        raise NotImplementedError(f"stage '{self.name}' is collective and has no `absent`")

    def check(self) -> None:
        """Raises errors of work that the host did not wait for. It is called at the end of a run."""

    def close(self) -> None:
        """Frees the resources of the stage. It cannot be used afterwards."""

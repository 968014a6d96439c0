"""The iterator of one epoch of a loader."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Protocol

from loader.pipeline import PipelineRun, Stage


class _Loader(Protocol):
    """What is asked of a `Loader`, whose iterator this is."""

    @property
    def stages(self) -> Sequence[Stage]: ...

    def _begin(self, iterator: Epoch) -> PipelineRun: ...

    def _gave(self, iterator: Epoch, batch: Any) -> None: ...


class Epoch(Iterator[Any]):
    """The iterator of one epoch. The loader knows it only weakly, so dropping it ends it."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader
        self._run: PipelineRun | None = None
        self._over = False  # by its end or by an error; not by another iterator
        self._asked = threading.Lock()  # held while a thread asks; two would take each other's mini-batches, and hang

    def __next__(self) -> Any:
        if not self._asked.acquire(blocking=False):
            raise RuntimeError(
                "two threads ask this iterator for a mini-batch at once; ask in one thread, or give each a loader"
            )
        try:
            if self._over:
                raise StopIteration
            if self._run is None:
                self._run = self._loader._begin(self)
            elif self._run.closed:
                raise RuntimeError(
                    "this iterator was closed, by close() or by a newer iterator of the same loader, which has one at "
                    "a time; to iterate twice at once, make two loaders"
                )
            try:
                batch = next(self._run)
            except BaseException as error:
                self._over = True
                if isinstance(error, StopIteration):
                    self._loader._gave(self, None)
                    for stage in self._loader.stages:
                        stage.check()
                raise
            self._loader._gave(self, batch)
            return batch
        finally:
            self._asked.release()

    def done(self) -> None:
        if self._run is not None:
            self._run.done()

    def close(self) -> None:
        """Ends the iterator and its threads."""
        if self._run is not None:
            self._run.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "the iterator of a loader cannot be copied or pickled; copy the loader, which continues where this one is"
        )

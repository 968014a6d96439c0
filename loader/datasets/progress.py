"""The progress bar of a conversion: on a terminal it shows the current step, elsewhere it is silent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


class ConversionProgress:
    """One line for each step of a conversion, gone when it is done.

    Args:
        title: the dataset's name.

    Attributes:
        notes: what the user is told when it is done.
    """

    def __init__(self, title: str) -> None:
        self._bars = _bars() if sys.stderr.isatty() else None
        self._title = title
        self.notes: list[str] = []

    def __enter__(self) -> ConversionProgress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    @contextmanager
    def step(self, description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Shows a step while it lasts; yields `advance(amount)`.

        Args:
            description: of the step.
            total: the amount of work; None if it is not known.
        """
        bars = self._bars
        if bars is None:
            yield lambda _: None
            return
        task = bars.add_task(description, total=total, title=self._title)
        try:
            yield lambda count: bars.advance(task, count)
        finally:
            bars.update(task, total=total or 1, completed=total or 1)


def _bars() -> Progress | None:
    """The bars of a terminal; None without rich, which the library needs for nothing else."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.fields[title]}: {task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        # It keeps today's stderr: readers' own chatter is redirected away from that while they work.
        console=Console(file=sys.stderr),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )

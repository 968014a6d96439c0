"""The progress bar of a conversion: on a terminal it shows what is being done, elsewhere it is silent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class ConversionProgress:
    """One line for each step of a conversion, gone when it is done.

    Args:
        title: the dataset's name.
    """

    def __init__(self, title: str) -> None:
        # The console keeps today's stderr: readers' own chatter is redirected away from it while they work.
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[title]}: {task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(file=sys.stderr),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not sys.stderr.isatty(),
        )
        self._title = title

    def __enter__(self) -> ConversionProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    @contextmanager
    def step(self, description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Shows a step while it lasts; yields `advance(amount)`.

        Args:
            description: what is being done.
            total: the amount of work; None where nobody knows.
        """
        task = self._bars.add_task(description, total=total, title=self._title)
        try:
            yield lambda amount: self._bars.advance(task, amount)
        finally:
            self._bars.update(task, total=total or 1, completed=total or 1)

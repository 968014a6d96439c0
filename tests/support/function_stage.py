"""A stage made of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loader.pipeline import Stage


class FunctionStage(Stage):
    """Calls `function` with an item or, where there is a `start`, that with a group of items to finish each later."""

    def __init__(
        self,
        name: str,
        function: Callable[[Any], Any],
        start: Callable[[Sequence[Any]], Sequence[Callable[[], Any]]] | None = None,
        together: int = 1,
        *,
        asynchronous: bool = False,
        priority: int = 0,
    ) -> None:
        self.name, self.function, self.start, self.together = name, function, start, together
        self.asynchronous, self.priority = asynchronous, priority

    def run(self, item: Any) -> Any:
        return self.function(item)

    def begin(self, group: Sequence[Any]) -> Sequence[Callable[[], Any]]:
        return super().begin(group) if self.start is None else self.start(group)

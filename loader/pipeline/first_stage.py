"""The first stage, which draws from the source and may have several items begun before it finishes one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from loader.pipeline.stages import StageRunner
from loader.pipeline.streams import Flight

if TYPE_CHECKING:
    from loader.pipeline.pipeline import Pipeline

_END = object()


class FirstStage:
    """Takes items of the source through the first stage, in two halves where the pipeline splits it.

    Then it begins them `Stage.together` at a time, but the very first one alone: the consumer has nothing to do before
    it, and would wait for those begun with it. Leaves the stage's stream the current one.
    """

    def __init__(self, pipeline: Pipeline, source: Iterable[Any]) -> None:
        self._new_flight = pipeline.new_flight
        self._runner = StageRunner(pipeline, 0)
        self._split = pipeline.splits_first
        self._together = 1  # the first time
        self._begun: deque[Flight] = deque()
        self._items = iter(source)
        self._ended = False  # the source, or by an error, which then is the last flight

    def begin(self, most: int) -> None:
        """Begins items until `most` are begun, or as many more as go together."""
        if self._ended or len(self._begun) >= most:
            return
        self._runner.enter()
        while not self._ended and len(self._begun) < most:
            self._begin_together()

    def take(self) -> Flight | None:
        """The next item after the stage, or the error in its place; None at the end."""
        self._runner.enter()
        if not self._split:
            return self._draw(self._runner.run)
        self.begin(1)
        if not self._begun:
            return None
        flight = self._begun.popleft()
        if flight.error is None:
            try:
                self._runner.finish(flight)
            except Exception as error:
                flight = self.failed(flight, error)
        return flight

    def fail(self, error: BaseException) -> None:
        """Puts an error behind the items that were begun."""
        self._begun.append(self._with_error(None, error))

    def failed(self, flight: Flight | None, error: BaseException) -> Flight:
        """The flight with the error in the place of the item; what was begun after it is let go of."""
        self._begun.clear()
        return self._with_error(flight, error)

    def close(self) -> None:
        """Lets go of everything."""
        self._ended = True
        self._begun.clear()
        self._items = iter(())

    def _begin_together(self) -> None:
        flights = []
        for _ in range(self._together):
            flight = self._draw(self._runner.start)
            if flight is None:
                break
            self._begun.append(flight)
            if flight.error is not None:
                break
            flights.append(flight)
        self._together = self._runner.stage.together
        self._runner.started(flights)

    def _draw(self, step: Any) -> Flight | None:
        """The next item of the source, with `step` done to it; None at the end."""
        flight = None
        try:
            item = next(self._items, _END)
            if item is _END:
                self._ended = True
                return None
            flight = self._new_flight(item)
            del item
            step(flight)
        except Exception as error:
            flight = self._with_error(flight, error)
        return flight

    def _with_error(self, flight: Flight | None, error: BaseException) -> Flight:
        """Nothing is drawn after it."""
        self._ended = True
        flight = Flight() if flight is None else flight
        flight.item, flight.error = None, error
        return flight

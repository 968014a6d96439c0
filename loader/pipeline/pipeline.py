"""A pipeline: stages run ahead of the consumer, in order and within a bound, by threads or by streams alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from loader.pipeline.lookahead import DrivenIterator, LookaheadIterator
from loader.pipeline.stages import InlineIterator, PipelineIterator, PipelineStats, Stage
from loader.pipeline.streams import Consumer, Flight, StageStreams
from loader.pipeline.threads import ThreadedIterator
from loader.pipeline.timeline import Timeline


class Pipeline:
    """Pulls the items of a source through stages that run ahead of the consumer.

    Items reach the consumer in the order of the source. A stage begins with an item only when fewer than `depth`
    of its results are under way or waiting to be taken; the first one begins `Stage.together` of them then, though the
    very first item of a run alone, which the consumer is waiting for. So at most
    `max_items = depth * len(stages) + together - 1` items exist beside those of the consumer: that is the bound on
    memory. Without streams the consumer has one, which it was given last. With them it launches work faster than the
    GPU does it, and may be `depth` items ahead of its stream; a `next()` waits until it is no more.

    There are three ways of running ahead, which give the same items:

    - a thread a stage, for stages that make the host work or wait. They begin with the first `next()`, and end when
      the source ends, when a stage fails, and, after the calls they are in, when the iterator is closed,
      garbage-collected or interrupted.
    - no thread, with `lookahead="consumer"`: each `next()` puts the work of items to come on the streams, begins the
      first stage by `Stage.start`, and returns. The first `next()` only begins what comes after its item.
    - one thread that does the same for all stages, with `lookahead="thread"`.

    With `streams`, each stage works under a stream of its own. A stage's stream waits for the event of the stage
    before, the consumer's current stream for that of the last; and every item is recorded (`item.record_stream`) on
    each stream that it comes to, so that its memory is not given up before that stream is done. What the consumer's
    stream holds at the first `next()` is waited for, and when a run ends the consumer's stream waits for the
    stages'. One run of such a pipeline is alive at a time.

    An exception in a stage, or in the source, is raised in the consumer with its own traceback, after the items
    before it were delivered.

    Args:
        stages: at least one, with distinct names.
        depth: results that a stage may have ready; 0 runs all stages in the consumer's thread, on its stream.
        stats: counts here instead of in an object of the pipeline's own.
        streams: one a stage.
        lookahead: "consumer" or "thread", who runs ahead if not a thread a stage; needs streams, `start` in the first
            stage, and another stage after it.

    Attributes:
        timeline: where the next run records what its stages do, or None.

    Raises:
        ValueError: no stages, two of one name, a negative depth, a look-ahead that is not possible, or items of the
            first stage to be begun together without a `start`, or without another stage.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        depth: int,
        stats: PipelineStats | None = None,
        *,
        streams: StageStreams | None = None,
        lookahead: str | None = None,
    ) -> None:
        names = [stage.name for stage in stages]
        if not names:
            raise ValueError("a pipeline needs at least one stage")
        if len(set(names)) != len(names):
            raise ValueError(f"stages {names} must have distinct names")
        if depth < 0:
            raise ValueError(f"depth is {depth}; give 0 (nothing ahead) or more")
        if streams is not None and streams.names != tuple(names):
            raise ValueError(f"the streams are for stages {list(streams.names)}, the stages are {names}")
        if lookahead not in (None, "consumer", "thread"):
            raise ValueError(f"lookahead is {lookahead!r}; it must be consumer, thread or None")
        if lookahead and (streams is None or len(stages) < 2 or stages[0].start is None):
            raise ValueError("looking ahead needs streams, two stages, and a first one that has a `start`")
        if stages[0].together > 1 and (stages[0].start is None or len(stages) < 2):
            raise ValueError(
                f"stage '{names[0]}' begins {stages[0].together} items together; it needs a `start`, and another stage "
                "after it"
            )
        self.stages = tuple(stages)
        self.depth = depth
        self.stats = PipelineStats(names) if stats is None else stats
        self.streams = streams
        self.lookahead = lookahead if depth else None
        self.consumer = Consumer(streams, depth, self.stats) if streams is not None and depth else None
        self.timeline: Timeline | None = None
        self._count = itertools.count()

    @property
    def max_items(self) -> int:
        """Items that may exist at one time, beside those of the consumer."""
        return self.depth * len(self.stages) + self.stages[0].together - 1 if self.depth else 1

    @property
    def splits_first(self) -> bool:
        """Whether the first stage works in two halves."""
        return self.depth > 0 and (self.lookahead is not None or self.stages[0].together > 1)

    @property
    def max_consumed(self) -> int:
        """Items that the consumer may have at one time, given out but not done with."""
        return 1 if self.consumer is None else 1 + self.consumer.lag

    def run(self, source: Iterable[Any]) -> PipelineIterator:
        """Iterates over the items of `source` after all stages."""
        if self.depth == 0:
            return InlineIterator(self, source)
        if self.lookahead is not None:
            return (LookaheadIterator if self.lookahead == "consumer" else DrivenIterator)(self, source)
        return ThreadedIterator(self, source)

    def new_flight(self, item: Any) -> Flight:
        """A flight for the next item of the source."""
        number = next(self._count)
        flight = self.streams.flight() if self.consumer is not None and self.streams is not None else Flight()
        return flight.begin(number, item, self.timeline is not None and self.timeline.wants(number))

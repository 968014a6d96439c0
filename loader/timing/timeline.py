"""What the stages of some mini-batches did when: spans on lanes, by the host's clock and by the GPU's."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loader.machine.arguments import as_size

TRAIN = "train"  # the lane of what the consumer does with an item


@dataclass(frozen=True)
class Span:
    """One stage at work on one item.

    Attributes:
        lane: the stage.
        item: number of the item, counted over all runs of the pipeline.
        begin, end: seconds since the timeline's first span began.
        gpu: on the stage's stream, by CUDA events; else on a thread of the host, by its clock.
    """

    lane: str
    item: int
    begin: float
    end: float
    gpu: bool


class Timeline:
    """Collects the spans of the items `first` to `first + count - 1`.

    On a GPU a stage has two lanes: when its work was put on the stream (host), and when the stream did it (GPU).
    Spans begin when the stage has its input, so waiting shows as a gap. The first stage has two spans per item on the
    host: it begins an item, maybe with others, and finishes it later.

    Args:
        first: items left out before, in which memory and clocks settle.
        count: items recorded.

    Raises:
        TypeError, ValueError: `first` is negative, `count` less than 1, or one of them no integer.
    """

    def __init__(self, first: int = 8, count: int = 8) -> None:
        self.first = as_size("first", first, least=0)
        self.count = as_size("count", count)
        self._host: list[tuple[str, int, float, float]] = []
        self._gpu: list[tuple[str, int, Any, Any]] = []
        self._origin: tuple[Any, float] | None = None  # an event, and the host's clock when it happened

    def wants(self, item: int) -> bool:
        """Whether the item's spans are recorded."""
        return self.first <= item < self.first + self.count

    def add_host(self, lane: str, item: int, begin: float, end: float) -> None:
        """Times of `time.perf_counter()`."""
        self._host.append((lane, item, begin, end))

    def add_gpu(self, lane: str, item: int, begin: Any, end: Any) -> None:
        """Two recorded events with timing."""
        self._gpu.append((lane, item, begin, end))

    def align(self, streams: Any) -> None:
        """Finds out, once, what the host's clock says when the GPU reaches an event; waits for the GPU.

        Args:
            streams: the pipeline's `StageStreams`.
        """
        if self._origin is None:
            event = streams.cuda.Event(enable_timing=True)
            event.record(streams.current())
            event.synchronize()
            self._origin = (event, time.perf_counter())

    def spans(self) -> list[Span]:
        """What was recorded so far, by lane and time; waits for the GPU to be done with it."""
        found = [(lane, item, begin, end, False) for lane, item, begin, end in list(self._host)]
        for lane, item, first, last in list(self._gpu):
            assert self._origin is not None
            event, clock = self._origin
            last.synchronize()
            begin, end = (clock + event.elapsed_time(e) * 1e-3 for e in (first, last))
            found.append((lane, item, begin, end, True))
        zero = min((begin for _, _, begin, _, _ in found), default=0.0)
        spans = [Span(lane, item, begin - zero, end - zero, gpu) for lane, item, begin, end, gpu in found]
        return sorted(spans, key=lambda s: (s.gpu, s.lane, s.begin))

    def write_chrome(self, path: str | Path, lanes: Iterable[str]) -> None:
        """Writes a trace that chrome://tracing and https://ui.perfetto.dev show.

        Args:
            path: of the JSON file.
            lanes: names of the lanes from the top down.
        """
        order = {name: i for i, name in enumerate(lanes)}
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}}
            for pid, name in ((0, "GPU"), (1, "host"))
        ]
        spans = self.spans()
        for pid, lane in sorted({(0 if s.gpu else 1, s.lane) for s in spans}):
            tid = order.get(lane, len(order))
            args = {"name": lane}
            events.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": args})
            events.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}})
        events += [
            {
                "ph": "X",
                "pid": 0 if s.gpu else 1,
                "tid": order.get(s.lane, len(order)),
                "name": f"{s.lane} {s.item}",
                "cat": s.lane,
                "ts": round(s.begin * 1e6, 3),
                "dur": round((s.end - s.begin) * 1e6, 3),
                "args": {"mini-batch": s.item},
            }
            for s in spans
        ]
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n", encoding="utf-8")

"""A record of when the stages worked on some mini-batches: spans on lanes, by the clocks of host and GPU."""

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
    """The time in which one stage worked on one item.

    Attributes:
        lane: the stage.
        item: number of the item, counted over all runs of the pipeline.
        begin, end: seconds since the timeline's first span began.
        gpu: whether it was measured on the stage's stream, by CUDA events; else on a thread of the host, by its clock.
    """

    lane: str
    item: int
    begin: float
    end: float
    gpu: bool


class Timeline:
    """Collects the spans of the items `first` to `first + count - 1`.

    On a GPU a stage has two lanes: the time in which its work was put on the stream (host), and the time in which the
    stream did the work (GPU). Spans begin when the stage has its input, so waiting is shown as a gap. The first stage
    has two spans per item on the host: it begins an item, perhaps with others, and finishes it later.

    Args:
        first: number of items that are left out at the beginning, until memory and clocks are stable.
        count: number of items to record.

    Raises:
        TypeError, ValueError: `first` is negative, `count` less than 1, or one of them no integer.
    """

    def __init__(self, first: int = 8, count: int = 8) -> None:
        self.first = as_size("first", first, least=0)
        self.count = as_size("count", count)
        self._host: list[tuple[str, int, float, float]] = []
        self._gpu: list[tuple[str, int, Any, Any]] = []
        self._gaps: list[tuple[str, float, float]] = []
        self._origin: tuple[Any, float] | None = None  # an event, and the host's clock when it happened

    def wants(self, item: int) -> bool:
        """Whether the item's spans are recorded."""
        return self.first <= item < self.first + self.count

    def add_host(self, lane: str, item: int, begin: float, end: float) -> None:
        """Adds the span of a stage on the host, by times of `time.perf_counter()`."""
        self._host.append((lane, item, begin, end))

    def add_gpu(self, lane: str, item: int, begin: Any, end: Any) -> None:
        """Adds the span of a stage on a GPU, by two recorded events with timing."""
        self._gpu.append((lane, item, begin, end))

    def add_gap(self, name: str, begin: float, end: float) -> None:
        """Names a time in which nothing is trained, such as a validation, by times of `time.perf_counter()`."""
        self._gaps.append((name, begin, end))

    def align(self, streams: Any) -> None:
        """Measures, once, the time of the host's clock at which the GPU reaches an event. Waits for the GPU.

        Args:
            streams: the pipeline's `StageStreams`.
        """
        if self._origin is None:
            event = streams.cuda.Event(enable_timing=True)
            event.record(streams.current())
            event.synchronize()
            self._origin = (event, time.perf_counter())

    def spans(self) -> list[Span]:
        """The spans recorded so far, by lane and time. Waits until the GPU has finished them."""
        found = self._measured()
        zero = min((span.begin for span in found), default=0.0)
        spans = [Span(s.lane, s.item, s.begin - zero, s.end - zero, s.gpu) for s in found]
        return sorted(spans, key=lambda s: (s.gpu, s.lane, s.begin))

    def gaps(self) -> list[tuple[str, float, float]]:
        """Name, begin and end of the gaps that were named between the first span and the last, as times of spans."""
        found = self._measured()
        if not found:
            return []
        zero, last = min(span.begin for span in found), max(span.end for span in found)
        return [(name, begin - zero, end - zero) for name, begin, end in self._gaps if zero <= begin and end <= last]

    def _measured(self) -> list[Span]:
        """The spans recorded so far, by the host's clock."""
        found = [Span(lane, item, begin, end, False) for lane, item, begin, end in list(self._host)]
        for lane, item, first, last in list(self._gpu):
            assert self._origin is not None
            event, clock = self._origin
            last.synchronize()
            begin, end = (clock + event.elapsed_time(e) * 1e-3 for e in (first, last))
            found.append(Span(lane, item, begin, end, True))
        return found

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
        gaps = self.gaps()
        if gaps:
            tid = len(order) + 1
            args = {"name": "gaps"}
            events.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": args})
            events.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}})
        events += [
            {
                "ph": "X",
                "pid": 1,
                "tid": len(order) + 1,
                "name": name,
                "cat": "gap",
                "ts": round(begin * 1e6, 3),
                "dur": round((end - begin) * 1e6, 3),
            }
            for name, begin, end in gaps
        ]
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n", encoding="utf-8")

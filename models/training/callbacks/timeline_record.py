"""What the stages of some mini-batches did when, as a trace and as a picture."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from loader.loaders.nodes import NodeLoader
from loader.machine.arguments import as_flag, kind_of
from loader.timing import TRAIN, Span, Timeline
from models.training.callbacks.curves import title_of_run

LANES = ("sample", "gather", "move", TRAIN)
_COLOURS = {"sample": "tab:blue", "gather": "tab:orange", "move": "tab:green", TRAIN: "tab:red"}


_INCHES = 12  # width of the picture
_CHARACTER = 0.08  # inches that a character of a label takes, with what is between labels


class TimelineRecord(Callback):
    """Records the stages of `count` mini-batches of the training, after the first `first`, and writes both files.

    Args:
        path: of the files, without their endings: `<path>.json`, a Chrome trace, and `<path>.png`.
        enabled: False does nothing at all.
        first, count: see `loader.pipeline.Timeline`.
    """

    def __init__(self, path: str | Path, *, enabled: bool = True, first: int = 8, count: int = 24) -> None:
        self.path = Path(path)
        timeline = Timeline(first, count)  # says what is wrong with them
        self.timeline = timeline if as_flag("enabled", enabled) else None
        self._ended: float | None = None  # when the last epoch had trained, by the host's clock
        self._gap = ""  # what happened since

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.timeline is None:
            return
        loader = trainer.train_dataloader
        if not isinstance(loader, NodeLoader):
            raise TypeError(f"timeline=true needs a NodeLoader, the train loader is {kind_of(loader)}")
        loader.timeline = self.timeline

    def on_train_batch_start(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        if self.timeline is not None and self._ended is not None:
            self.timeline.add_gap(self._gap, self._ended, time.perf_counter())
        self._ended = None

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        # Lightning asks for no mini-batch after the last one, which would say that it is done with that.
        if self.timeline is not None and trainer.is_last_batch and isinstance(trainer.train_dataloader, NodeLoader):
            trainer.train_dataloader.done()
            self._ended, self._gap = time.perf_counter(), "end of an epoch"

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._gap = "validation"

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.timeline is None or not trainer.is_global_zero:
            return
        if isinstance(trainer.train_dataloader, NodeLoader):
            trainer.train_dataloader.timeline = None
        if not self.timeline.spans():
            warnings.warn(
                f"the timeline is empty: training ended before mini-batch {self.timeline.first}; "
                "raise trainer.max_epochs, or lower callbacks.timeline.first",
                stacklevel=2,
            )
            return
        self.timeline.write_chrome(self.path.with_suffix(".json"), LANES)
        draw(self.timeline, self.path.with_suffix(".png"), title_of_run(trainer, pl_module, self.path.parent))


def draw(timeline: Timeline, path: str | Path, title: str = "") -> None:
    """Draws the lanes, one above the other, and writes the picture.

    Args:
        timeline: with at least one span.
        path: of the picture, PNG or SVG by its ending.
        title: written above it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    spans = timeline.spans()
    rows = [
        (gpu, lane) for gpu in (True, False) for lane in LANES if any((s.gpu, s.lane) == (gpu, lane) for s in spans)
    ]
    figure = Figure(figsize=(_INCHES, 1.2 + 0.5 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    # Milliseconds that a character of a label covers.
    character = _CHARACTER / _INCHES * 1e3 * (max(s.end for s in spans) - min(s.begin for s in spans))
    for y, (gpu, lane) in enumerate(rows):
        for i, bar in enumerate(_bars([s for s in spans if (s.gpu, s.lane) == (gpu, lane)])):
            first, last = bar[0], bar[-1]
            begin, length = first.begin * 1e3, (last.end - first.begin) * 1e3
            shade = 0.55 if i % 2 else 0.9  # neighbors stay apart
            axes.barh(y, length, left=begin, height=0.8, color=_COLOURS[lane], alpha=shade, edgecolor="black", lw=0.3)
            label = str(first.item) if len(bar) == 1 else f"{first.item}-{last.item}"
            if length < character * len(label):
                continue  # it would cover those of its neighbors
            axes.text(begin + length / 2, y, label, ha="center", va="center", fontsize=7, clip_on=True)
    for name, start, stop in timeline.gaps():
        begin, length = start * 1e3, (stop - start) * 1e3
        axes.axvspan(begin, begin + length, color="tab:gray", alpha=0.15, lw=0)
        turned = 0 if length >= character * len(name) else 90
        middle = (len(rows) - 1) / 2
        axes.text(begin + length / 2, middle, name, ha="center", va="center", fontsize=7, rotation=turned)
    axes.set_yticks(range(len(rows)), [f"{lane} ({'GPU' if gpu else 'host'})" for gpu, lane in rows])
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds; the numbers are those of the mini-batches, counted from 0")
    axes.set_title(title, fontsize=10)
    axes.grid(axis="x", alpha=0.3)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _bars(spans: list[Span]) -> list[list[Span]]:
    """The spans of a lane, in the order of time: items that the stage worked on together are one bar."""
    bars: list[list[Span]] = []
    for span in sorted(spans, key=lambda s: s.item):
        if bars and span.gpu and span.begin < (bars[-1][-1].begin + bars[-1][-1].end) / 2:
            bars[-1].append(span)
        else:
            bars.append([span])
    return bars

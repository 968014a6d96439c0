"""The curves of a run, as numbers and as a picture."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from models.training.callbacks.epoch_metrics import EpochMetrics

_FORMATS = (".png", ".pdf", ".svg")
_COLOURS = {"train": "tab:blue", "val": "tab:orange"}
_LABELS = {"loss": "loss, mean of an epoch", "acc": "accuracy, share from 0 to 1"}
_BEST = "best"  # of an epoch, the best value of the metric that decides, if its last validation has another
_SHARES = ("auc", "auroc", "ap", "f1", "precision", "recall", "mrr")


class Curves(EpochMetrics):
    """Remembers loss and a score of each epoch, through a resume too, and draws them when training ends.

    The picture names model, dataset and folder of the run, the best checkpoint's epoch, and epochs without a value.

    Args:
        path: of the picture: .png, .pdf or .svg.
        score: its name in the metrics, such as "acc" for train/acc and val/acc.

    Raises:
        ValueError: the path ends otherwise.
    """

    def __init__(self, path: str | Path, score: str = "acc") -> None:
        self.path, self.score = Path(path), score
        self.metrics = tuple(f"{split}/{name}" for name in ("loss", score) for split in ("train", "val"))
        if self.path.suffix not in _FORMATS:
            raise ValueError(f"callbacks.curves.path is {path}; it must end with {', '.join(_FORMATS)}")
        self.epochs: list[dict[str, float]] = []
        self._amid: list[float] = []  # of the metric that decides, in the validations of this epoch

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        monitor = str(getattr(getattr(trainer, "checkpoint_callback", None), "monitor", None))
        value = float(trainer.callback_metrics.get(monitor, math.nan))
        if monitor.startswith("val/") and math.isfinite(value) and not trainer.sanity_checking:
            self._amid.append(value)

    def on_epoch_logged(self, trainer: Trainer, pl_module: LightningModule) -> None:
        checkpoint = getattr(trainer, "checkpoint_callback", None)
        monitor, amid, self._amid = getattr(checkpoint, "monitor", None), self._amid, []
        found = {k: v for k, v in self.metrics_of_epoch(trainer).items() if k in (*self.metrics, monitor)}
        if amid and amid != [found.get(str(monitor))]:  # the last one may be NaN, or of before a resume
            found[_BEST] = (min if getattr(checkpoint, "mode", "min") == "min" else max)(amid)
        self.epochs.append({"epoch": float(trainer.current_epoch), **found})

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.epochs and trainer.is_global_zero:
            best = getattr(trainer, "checkpoint_callback", None)
            monitor = getattr(best, "monitor", None)
            watched = None if monitor is None else (monitor, getattr(best, "mode", "min"))
            self.draw(title_of_run(trainer, pl_module, self.path.parent), watched)

    def draw(self, title: str = "", watched: tuple[str, str] | None = None) -> None:
        """Writes the picture.

        Args:
            title: above it, the first line.
            watched: name of the metric that decides which checkpoint is the best one, and "min" or "max"; None if
                none does.
        """
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(9, 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        best, lines = best_epoch(self.epochs, watched), [title]
        if best is not None and watched is not None:
            lines.append(f"best epoch {best[0]}: {watched[0]} {best[1]:.4g}")
        figure.suptitle("\n".join(filter(None, lines)), fontsize=10)
        for axes, name in zip(figure.subplots(1, 2), ("loss", self.score), strict=True):
            gaps = []
            for split, colour in _COLOURS.items():
                points, lacking = self._points(f"{split}/{name}")
                if lacking:
                    gaps.append(f"{split}: {_gap(lacking, len(self.epochs))}")
                if points:
                    marker = "o" if lacking or len(points) == 1 else None
                    axes.plot(*zip(*points, strict=True), color=colour, label=split, marker=marker, markersize=4)
            if best is not None:
                axes.axvline(best[0], color="tab:gray", linestyle="--", linewidth=1, label="best epoch")
            if axes.get_legend_handles_labels()[0]:
                axes.legend()
            axes.set_xlabel("\n".join(["epoch", *gaps]))
            axes.set_ylabel(_LABELS.get(name, f"{name}, from 0 to 1" if name in _SHARES else name))
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
            axes.grid(alpha=0.3)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(self.path, dpi=120)

    def _points(self, name: str) -> tuple[list[tuple[int, float]], list[int]]:
        """`(epoch, value)` of a metric, and the epochs in which it has no finite value. Epochs count from 1."""
        values = {int(e["epoch"]) + 1: e.get(name, math.nan) for e in self.epochs}
        points = [(epoch, value) for epoch, value in values.items() if math.isfinite(value)]
        return points, [epoch for epoch, value in values.items() if not math.isfinite(value)]

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs, "amid": self._amid}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epochs = list(state_dict["epochs"])
        self._amid = list(state_dict.get("amid", ()))


def best_epoch(epochs: list[dict[str, float]], watched: tuple[str, str] | None) -> tuple[int, float] | None:
    """The first epoch, from 1, with the best value of a metric, and that value; None if no epoch has one.

    Args:
        epochs: rows with `epoch`, from 0, and metrics; with `best` that of several validations of the epoch.
        watched: name of the metric, and "min" or "max".
    """
    if watched is None:
        return None
    name, mode = watched
    values = [(int(e["epoch"]) + 1, e.get(_BEST, e.get(name, math.nan))) for e in epochs]
    known = [(epoch, value) for epoch, value in values if math.isfinite(value)]
    sign = 1 if mode == "min" else -1
    return min(known, key=lambda row: (sign * row[1], row[0]), default=None)


def title_of_run(trainer: Trainer, pl_module: LightningModule, folder: Path) -> str:
    """Model, dataset and folder of a run in one line, for its pictures."""
    network = getattr(pl_module, "net", pl_module)
    model = getattr(network, "architecture", type(network).__name__)
    data = getattr(getattr(getattr(trainer, "datamodule", None), "data", None), "name", None)
    where = os.path.relpath(folder)
    return f"{model}{f' on {data}' if data else ''}, {folder if where.startswith('..') else where}"


def _gap(epochs: list[int], total: int) -> str:
    """Epochs without a value in words: `no value in epochs 1-3, 7`."""
    if len(epochs) == total:
        return "not measured"
    runs: list[list[int]] = []
    for epoch in epochs:
        if runs and epoch == runs[-1][-1] + 1:
            runs[-1].append(epoch)
        else:
            runs.append([epoch])
    shown = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:5]]
    more = f" and {len(epochs) - sum(map(len, runs[:5]))} more" if len(runs) > 5 else ""
    return f"no value in epoch{'s' if len(epochs) > 1 else ''} {', '.join(shown)}{more}"

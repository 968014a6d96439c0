"""The curves of a run, as numbers and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

_FORMATS = (".png", ".pdf", ".svg")


class Curves(Callback):
    """Remembers loss and a score of each epoch, through a resume too, and draws them when training ends.

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

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        row = {"epoch": float(trainer.current_epoch)}
        row.update({k: float(v) for k, v in trainer.callback_metrics.items() if k in self.metrics})
        self.epochs.append(row)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.epochs and trainer.is_global_zero:
            self.draw()

    def draw(self) -> None:
        """Writes the PNG."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(9, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, name in zip(figure.subplots(1, 2), ("loss", self.score), strict=True):
            for split, colour in (("train", "tab:blue"), ("val", "tab:orange")):
                points = [(e["epoch"] + 1, e[f"{split}/{name}"]) for e in self.epochs if f"{split}/{name}" in e]
                if points:
                    marker = "o" if len(points) == 1 else None
                    axes.plot(*zip(*points, strict=True), color=colour, label=split, marker=marker)
                    axes.legend()
            axes.set_xlabel("epoch")
            axes.set_ylabel({"acc": "accuracy"}.get(name, name))
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.grid(alpha=0.3)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(self.path, dpi=120)

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epochs = list(state_dict["epochs"])

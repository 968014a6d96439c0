"""Pictures that are drawn from the results alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _report_cells import Result
from _report_tables import PEERS_MS, auto_ms
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def sampler_gpu(result: Result, path: Path) -> None:
    """Whole sampling on a GPU, ours beside the fastest other system, for each shape that both were measured on."""
    rows = [row for row in result["rows"] if (tuple(row["fanouts"]), row["batch"]) in PEERS_MS]
    ours = [auto_ms(row) for row in rows]
    peers = [PEERS_MS[tuple(row["fanouts"]), row["batch"]] for row in rows]
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    x = np.arange(len(rows))
    bars = axes.bar(x - 0.2, ours, 0.38, label="ours, the faster of one launch and hop by hop", color="tab:blue")
    axes.bar(x + 0.2, peers, 0.38, label="fastest of DGL, GraphBolt, quiver, cuGraph", color="tab:gray")
    axes.bar_label(bars, [f"{peer / own:.1f}x" for own, peer in zip(ours, peers, strict=True)], fontsize=8)
    axes.set_xticks(x, [f"{', '.join(map(str, row['fanouts']))}\nx {row['batch']:,}" for row in rows], fontsize=8)
    axes.set_yscale("log")
    axes.set_ylabel("ms a mini-batch")
    axes.legend(fontsize=8)
    axes.grid(axis="y", alpha=0.3)
    _save(figure, path)


def scan_gpu(result: Result, path: Path) -> None:
    """Picks that scan lists, by each way to share them among warps, as a multiple of the fastest one."""
    rows = [row for row in result["rows"] if row["picks"] != "uniform"]
    schedules = list(dict.fromkeys(row["schedule"] for row in rows))
    kinds = list(dict.fromkeys(row["picks"] for row in rows))
    figure = Figure(figsize=(9, 2.6 * len(kinds)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, kind in zip(np.atleast_1d(figure.subplots(len(kinds))), kinds, strict=True):
        own = [row for row in rows if row["picks"] == kind]
        settings = list(dict.fromkeys((row["graph"], tuple(row["fanouts"]), row["batch_size"]) for row in own))
        x = np.arange(len(settings))
        times = np.full((len(schedules), len(settings)), np.nan)
        for row in own:
            setting = settings.index((row["graph"], tuple(row["fanouts"]), row["batch_size"]))
            times[schedules.index(row["schedule"]), setting] = row["ms"]
        width = 0.8 / len(schedules)
        for i, (schedule, of_schedule) in enumerate(zip(schedules, times, strict=True)):
            axes.bar(
                x + (i - (len(schedules) - 1) / 2) * width, of_schedule / np.nanmin(times, 0), width, label=schedule
            )
        labels = [f"{graph}\n{', '.join(map(str, fanouts))} x {batch:,}" for graph, fanouts, batch in settings]
        axes.set_xticks(x, labels, fontsize=5)
        axes.set_ylabel(f"{kind}: x of the fastest", fontsize=8)
        axes.grid(axis="y", alpha=0.3)
        axes.legend(fontsize=7)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": path.stem}):  # equal results, equal bytes
        figure.savefig(path, metadata={"Date": None})

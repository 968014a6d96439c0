"""Pictures that are drawn from the results alone. Each has a title, units and colours of Okabe and Ito."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from _report_rows import FUSED, PLACES, SCHEDULES, ms_by_way, peers, scans
from _report_schema import Result
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

# Colours that people with any form of color blindness can tell apart (Okabe and Ito, 2008).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#F0E442")
_PLAIN = FuncFormatter(lambda x, _: f"{x:g}")
_MILLIONS = FuncFormatter(lambda x, _: f"{x / 1e6:g}")


@contextmanager
def picture(path: Path, title: str, size: tuple[float, float], **grid: Any) -> Iterator[Any]:
    """Axes to draw on, in an array, and then a file whose bytes depend on what was drawn only."""
    style: Any = {"svg.hashsalt": path.stem, "svg.fonttype": "none", "font.size": 9, "axes.grid": True}
    with rc_context({**style, "grid.alpha": 0.3, "axes.axisbelow": True}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title, fontsize=11)
        yield figure.subplots(squeeze=False, **grid)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})


def _bars(axes: Any, groups: Sequence[str], bars: Mapping[str, Sequence[float]], unit: str, form: str = "") -> None:
    width = 0.8 / len(bars)
    for i, (name, values) in enumerate(bars.items()):
        x = np.arange(len(groups)) + (i - (len(bars) - 1) / 2) * width
        drawn = axes.bar(x, values, width, label=name, color=COLOURS[i], edgecolor="white", linewidth=0.4)
        if form:
            axes.bar_label(drawn, fmt=form, fontsize=7)
    axes.set_xticks(np.arange(len(groups)), groups, fontsize=8)
    axes.set_ylabel(unit)
    axes.grid(visible=False, axis="x")


def _log(axes: Any) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(_PLAIN)


def _setting(row: Result, batch: str) -> str:
    return f"{', '.join(map(str, row['fanouts']))}\nx {row[batch]:,}"


def sampler_gpu(result: Result, folder: Path) -> None:
    rows = [row for row in peers(result) if "peer" in row]
    title = f"Sampling a mini-batch on a GPU ({result['gpu']})"
    with picture(folder / "sampler_gpu_peers.svg", title, (9, 3.6)) as ((axes,),):
        bars = {
            "this package": [row["auto"] for row in rows],
            "fastest of DGL, GraphBolt, torch-quiver, cuGraph": [row["peer"] for row in rows],
        }
        _bars(axes, [_setting(row, "batch") for row in rows], bars, "milliseconds (log scale)", "%.2f")
        _log(axes)
        axes.set_xlabel("fanouts x seeds")
        axes.legend(fontsize=8)


def sampler_gpu_paper(result: Result, folder: Path) -> None:
    rows, graphs = result["rows"], list(dict.fromkeys(row["graph"] for row in result["rows"]))
    for what, title in (("whole", "Whole sampling"), ("device", "Time on the GPU")):
        title += f": times as fast as hop by hop ({result['gpu']})"
        size = {"nrows": 2, "ncols": -(-len(graphs) // 2), "sharey": True}
        with picture(folder / f"sampler_gpu_{what}.svg", title, (10, 5.4), **size) as grid:
            for axes, graph in zip(grid.ravel(), graphs, strict=False):
                mine = [row for row in rows if row["graph"] == graph]
                for name, colour, marker in zip(FUSED, COLOURS, "os^", strict=False):
                    speed = [row["hopwise"][f"{what}_ms"] / row[name][f"{what}_ms"] for row in mine]
                    axes.plot([r["edges"] for r in mine], speed, marker, color=colour, markersize=3, label=name)
                axes.axhline(1, color="gray", linewidth=0.8)
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter(_MILLIONS)
                axes.xaxis.set_minor_formatter(NullFormatter())
                axes.set_title(graph, fontsize=9)
            for axes in grid[:, 0]:
                axes.set_ylabel("times as fast")
            for axes in grid[-1]:
                axes.set_xlabel("sampled edges, millions")
            grid[0, 0].legend(fontsize=8)
    title = f"Time of the host until the kernels are launched ({result['gpu']})"
    with picture(folder / "sampler_gpu_launch.svg", title, (7, 3)) as ((axes,),):
        of = {hops: [row for row in rows if len(row["fanouts"]) == hops] for hops in (2, 3)}
        times = {
            f"{hops} hops": [1e3 * statistics.median(row[name]["launch_ms"] for row in of[hops]) for name in SCHEDULES]
            for hops in of
        }
        _bars(axes, SCHEDULES, times, "microseconds", "%.0f")
        axes.legend(fontsize=8)


def scan_gpu(result: Result, folder: Path) -> None:
    rows = list(scans(result))
    kinds = {"race": "A race by weight", "labor": "LABOR-0"}
    title = f"Picks that scan neighbor lists, by schedule ({result['gpu']})"
    with picture(folder / "scan_gpu.svg", title, (10, 6.4), nrows=len(kinds)) as grid:
        for (axes,), (kind, name) in zip(grid, kinds.items(), strict=True):
            own = [row for row in rows if row["picks"] == kind]
            schedules = list(own[0]["ms"])
            bars = {s: [row["ms"][s] / min(row["ms"].values()) for row in own] for s in schedules}
            groups = [
                f"{row['graph'].replace(' with', chr(10) + 'with')}\n{_setting(row, 'batch_size')}" for row in own
            ]
            _bars(axes, groups, bars, "times the fastest (log scale)")
            _log(axes)
            axes.tick_params(axis="x", labelsize=7)
            axes.set_title(name, fontsize=9)
        grid[-1][0].set_xlabel("graph, fanouts x seeds")
        grid[0][0].legend(fontsize=8, ncols=5, loc="upper right", title="schedule")


def traverse_gpu(result: Result, folder: Path) -> None:
    ways, graphs = ms_by_way(result, "bfs"), list(result["graphs"])
    title = f"Breadth-first search, forward in all levels ({result['gpu']})"
    with picture(folder / "traverse_gpu.svg", title, (9, 6), nrows=2, sharex=True) as grid:
        for (axes,), (place, name) in zip(grid, PLACES.items(), strict=True):
            bars = {", ".join(way): [ms[graph, place] for graph in graphs] for way, ms in ways.items()}
            _bars(axes, graphs, bars, "milliseconds (log scale)")
            _log(axes)
            axes.set_title(f"graph {name}", fontsize=9)
        grid[1][0].legend(
            fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.12), title="schedule, access"
        )


def curves(rows: Sequence[Result], path: Path) -> None:
    """Validation accuracy of one dataset: a row for each depth, over epochs and over seconds."""
    title = f"Validation accuracy on {rows[0]['dataset']}: mean and 95 % band over seeds"
    with picture(path, title, (9, 3.1 * len(rows)), nrows=len(rows), ncols=2, sharey="row") as grid:
        for row, (left, right) in zip(rows, grid, strict=True):
            lowest = []
            for colour, dash, (name, side) in zip(COLOURS, ("-", "--", ":", "-."), row["sides"].items(), strict=False):
                mean = np.array(side["val_mean"])
                width = np.array([np.nan if x is None else x for x in side["val_half_width"]], dtype=float)
                for axes, x in ((left, np.arange(1, mean.size + 1)), (right, np.array(side["seconds_mean"]))):
                    label = f"{name}, {len(side['seeds'])} seeds"
                    axes.plot(x, mean, dash, color=colour, label=label, linewidth=1.2)
                    axes.fill_between(x, mean - width, mean + width, color=colour, alpha=0.25, linewidth=0)
                lowest.append(mean[min(2, mean.size - 1)])
            left.set_ylim(bottom=min(lowest) - 2)  # the first epochs would press the rest into a line
            left.set_ylabel("accuracy, %")
            left.set_xlabel("epoch")
            right.set_xlabel("seconds of training")
            for axes in (left, right):
                axes.set_title(f"{row['layers']} layers", fontsize=9)
            left.legend(fontsize=8)


def convergence(result: Result, folder: Path) -> None:
    for name in result["images"]:
        curves([row for row in result["settings"] if name.endswith(f"-{row['dataset']}.svg")], folder / name)


def scaling_gpu(result: Result, folder: Path) -> None:
    rows = [row for row in result["rows"] if row["features"] == "device"]
    one = rows[0]["epoch_s"]
    title = f"An epoch of the products shape, (15, 10, 5) x 1,024 per GPU ({result['gpu']})"
    with picture(folder / "scaling_gpu_h100.svg", title, (7, 3.4)) as ((axes,),):
        gpus = [row["gpus"] for row in rows]
        axes.plot(gpus, [one / n for n in gpus], "--", color=COLOURS[6], label="one GPU's epoch, divided by the GPUs")
        label = "median of the runs, and each run"
        axes.plot(gpus, [row["epoch_s"] for row in rows], "o-", color=COLOURS[0], label=label)
        for row in rows:
            axes.plot([row["gpus"]] * len(row["runs_s"]), row["runs_s"], "_", color=COLOURS[3], markersize=14)
            text = f"{row['epoch_s']:.3f} s, {row['faster_by']:.2f}x"
            axes.annotate(text, (row["gpus"], row["epoch_s"]), (8, 6), textcoords="offset points", fontsize=8)
        axes.set(
            xlabel="GPUs", ylabel="seconds of an epoch", xticks=gpus, xlim=(0.8, gpus[-1] + 0.7), ylim=(0, 1.15 * one)
        )
        axes.legend(fontsize=8)


DRAWN: dict[str, Callable[[Result, Path], None]] = {
    "sampler_gpu": sampler_gpu,
    "sampler_gpu_paper": sampler_gpu_paper,
    "scan_gpu": scan_gpu,
    "traverse_gpu": traverse_gpu,
    "scaling_gpu_h100": scaling_gpu,
    "convergence": convergence,
    "convergence_gpu": convergence,
    "convergence_labor": convergence,
}

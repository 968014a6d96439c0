"""What the jobs of a sweep ended with: `python -m models.results multirun/train/<sweep>` prints a table.

The table has a row for each combination of options, and a job for each seed behind it. A picture, `results.png`, lies
beside the jobs. `train.py -m` prints the same when all jobs have ended.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra.experimental.callback import Callback

from loader.machine.command_line import OneLineParser, called
from models.training.metrics import ERRORS

# Options that change no result, or only where it lies.
_PLACES = ("ckpt_path", "result_path", "run_dir", "checkpoint_dir", "data_dir", "cache_dir", "callbacks", "debug")


class Job(NamedTuple):
    """A job that has ended.

    Attributes:
        folder: where its result lies.
        settings: equal for jobs of equal options.
        options: those of its command line, name -> value.
        metric: name of the metric that it optimized.
        value: of that metric.
        tested: the other metrics that a test gave, name -> value.
        seconds: that it took, or None if that is not known.
    """

    folder: Path
    settings: str
    options: dict[str, str]
    metric: str
    value: float
    tested: dict[str, float]
    seconds: float | None


class Row(NamedTuple):
    """The jobs of one combination of options, but for seeds."""

    options: dict[str, str]
    metric: str
    jobs: list[Job]


class SweepResults(Callback):
    """A callback of Hydra that prints the table when a sweep has ended."""

    def on_multirun_end(self, config: Any, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        if any(folder.rglob("result.json")):
            show([folder])


def read_jobs(folders: Iterable[Path]) -> list[Job]:
    """The jobs below the folders. Of jobs with equal options, such as a job and one that resumed it, the last counts.

    Raises:
        ValueError: a folder has no result, or a file is no result of a job.
    """
    found: dict[str, tuple[float, Job]] = {}
    for folder in folders:
        paths = sorted(folder.rglob("result.json"))
        if not paths:
            raise ValueError(
                f"there is no result.json below {folder}; give the folder of a sweep or of a run that ended"
            )
        for path in paths:
            job, ended = _read(path), path.stat().st_mtime
            if job.settings not in found or found[job.settings][0] <= ended:
                found.pop(job.settings, None)
                found[job.settings] = ended, job
    return [job for _, job in found.values()]


def _read(path: Path) -> Job:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        metrics = {name: float(value) for name, value in result["metrics"].items()}
        metric, value = str(result["config"]["optimized_metric"]), float(result["metric"])
        given, seconds, settings = result.get("overrides", []), result.get("seconds"), str(result["settings"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no result of a job; remove it, or give another folder") from error
    options = dict(one.lstrip("+").partition("=")[::2] for one in given)
    tested = {name: one for name, one in metrics.items() if name.startswith("test/") and name != metric}
    return Job(path.parent, settings, options, metric, value, tested, seconds)


def rows(jobs: Sequence[Job]) -> list[Row]:
    """The jobs by the options in which they differ, seeds left out, in the order in which they are given."""
    names = dict.fromkeys(name for job in jobs for name in job.options)
    differing = [
        name
        for name in names
        if not name.startswith(("hydra", "~"))
        and name.split(".")[0] not in _PLACES
        and not name.split(".")[-1].endswith("seed")
        and len({job.options.get(name) for job in jobs}) > 1
    ]
    groups: dict[tuple[str, ...], Row] = {}
    for job in jobs:
        options = {name: job.options.get(name, "default") for name in differing}
        key = (*options.values(), job.metric)
        groups.setdefault(key, Row(options, job.metric, [])).jobs.append(job)
    return list(groups.values())


def mean_and_deviation(values: Sequence[float]) -> str:
    """Mean, and from two values on the sample's standard deviation: `0.8123 ± 0.0045`."""
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.4f}"
    return (
        mean if len(values) < 2 or not all(map(math.isfinite, values)) else f"{mean} ± {statistics.stdev(values):.4f}"
    )


def best_of(jobs: Sequence[Job]) -> Job | None:
    """The job with the best value: the highest, of an error the lowest. None if jobs optimized several metrics, or none
    has a value.
    """
    known = [job for job in jobs if not math.isnan(job.value)]
    if not known or len({job.metric for job in known}) > 1:
        return None
    sign = -1 if known[0].metric.endswith(ERRORS) else 1
    return max(known, key=lambda job: sign * job.value)


def show(folders: Sequence[Path], picture: Path | None = None) -> None:
    """Prints the table and the best job, and draws the picture, by default into the first folder.

    Raises:
        ValueError: see `read_jobs`.
    """
    from rich.console import Console
    from rich.table import Table

    jobs = read_jobs(folders)
    found = rows(jobs)
    metrics = list(dict.fromkeys(job.metric for job in jobs))
    tested = list(dict.fromkeys(name for job in jobs for name in job.tested if name not in metrics))
    if "test/test_acc" in (*metrics, *tested):  # then the accuracy on the other splits is no result
        tested = [name for name in tested if name not in ("test/train_acc", "test/val_acc")]
    table = Table(title=f"{len(jobs)} jobs in {', '.join(map(str, folders))}")
    for name in found[0].options:
        table.add_column(name, overflow="fold")
    table.add_column("n", justify="right")
    for name in [*metrics, *tested]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("s per job", justify="right")
    for row in found:
        cells = [mean_and_deviation([job.value for job in row.jobs if job.metric == name]) for name in metrics]
        cells += [mean_and_deviation([job.tested[name] for job in row.jobs if name in job.tested]) for name in tested]
        seconds = [job.seconds for job in row.jobs if job.seconds is not None]
        time = f"{statistics.fmean(seconds):.1f}" if seconds else "-"
        table.add_row(*row.options.values(), str(len(row.jobs)), *cells, time)
    # A pipe has no width: as wide as the table needs to be.
    Console(width=None if sys.stdout.isatty() else 400).print(table)
    if best := best_of(jobs):
        print(f"best: {best.metric} {best.value:.4f} in {best.folder}")
    path = folders[0] / "results.png" if picture is None else picture
    draw(found, path, ", ".join(map(str, folders)))
    print(f"picture: {path}")


def draw(found: Sequence[Row], path: Path, title: str) -> None:
    """Writes the picture: a dot per job, and mean and standard deviation per row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    metrics = list(dict.fromkeys(row.metric for row in found))
    height = 1.4 + 0.35 * max(len(found), 3)
    figure = Figure(figsize=(9, height * len(metrics)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=9)
    for axes, metric in zip(figure.subplots(len(metrics), 1, squeeze=False)[:, 0], metrics, strict=True):
        shown = [row for row in found if row.metric == metric]
        for place, row in enumerate(shown):
            values = [job.value for job in row.jobs if math.isfinite(job.value)]
            if values:
                axes.plot(values, [place] * len(values), "o", color="tab:blue", alpha=0.5, markersize=4)
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                axes.errorbar(
                    statistics.fmean(values), place, xerr=spread, fmt="|", color="black", markersize=12, capsize=4
                )
        labels = [", ".join(f"{name}={value}" for name, value in row.options.items()) or "all" for row in shown]
        axes.set_yticks(
            range(len(shown)), [f"{label} (n={len(r.jobs)})" for label, r in zip(labels, shown, strict=True)]
        )
        axes.tick_params(axis="y", labelsize=8)
        axes.set_ylim(len(shown) - 0.5, -0.5)  # the first row on top, none on the frame
        axes.set_xlabel(f"{metric}: each job, mean and standard deviation")
        axes.grid(axis="x", alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    """The command."""
    parser = OneLineParser(
        prog=called("results"), description="A table of the jobs of sweeps, a picture, and the best job."
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of a sweep, or of a run")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="by default results.png in the first folder")
    arguments = parser.parsed()
    try:
        show(arguments.folders, arguments.picture)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

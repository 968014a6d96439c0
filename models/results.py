"""What the jobs of a sweep ended with: `python -m models.results multirun/train/<sweep>` prints a table.

The table has a row for each combination of options, and a job for each seed behind it. A picture, `results.png`, lies
beside the jobs. `train.py -m` prints the same when all jobs have ended.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra.experimental.callback import Callback
from omegaconf import OmegaConf

from loader.machine.command_line import OneLineParser, called
from models.training.metric_names import is_error

# Options that change no result, or only where it lies.
_PLACES = ("ckpt_path", "result_path", "run_dir", "checkpoint_dir", "data_dir", "cache_dir", "debug")
_DECIDING = ("callbacks.early_stopping", "callbacks.best")  # when a run ends, and which checkpoint is tested
_SHOWING = "models.training.callbacks."  # callbacks that show or keep what a run does, and change nothing
# Columns, where jobs of equal options had others: name -> where a result has it.
_FILES = {"files of the dataset": "files", "files of own classes": "code"}


class Job(NamedTuple):
    """A job that has ended.

    Attributes:
        folder: where its result lies.
        settings: equal for jobs of equal options.
        options: those of its command line, name -> value.
        config: all of its options, and what tells its files, by their full names.
        metric: name of the metric that it optimized.
        value: of that metric.
        least: whether it is better the smaller it is: an error by its name, or by the callbacks that watch it.
        tested: the other metrics that a test gave, name -> value.
        seconds: that it took, or None if that is not known.
    """

    folder: Path
    settings: str
    options: dict[str, str]
    config: dict[str, str]
    metric: str
    value: float
    least: bool
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
    """The jobs below the folders. Of jobs with equal options and data, such as a job and one that resumed it, the last
    counts.

    Raises:
        ValueError: a folder has no result, or a file is no result of a job.
    """
    found: dict[tuple[str | None, ...], tuple[float, Job]] = {}
    for folder in folders:
        paths = sorted(folder.rglob("result.json"))
        if not paths:
            raise ValueError(
                f"there is no result.json below {folder}; give the folder of a sweep or of a run that ended"
            )
        for path in paths:
            job, ended = _read(path), path.stat().st_mtime
            key = job.settings, *map(job.config.get, _FILES)
            if key not in found or found[key][0] <= ended:
                found.pop(key, None)
                found[key] = ended, job
    return [job for _, job in found.values()]


def _read(path: Path) -> Job:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        metrics = {name: float(value) for name, value in result["metrics"].items()}
        metric, value = str(result["config"]["optimized_metric"]), float(result["metric"])
        given, seconds, settings = result.get("overrides", []), result.get("seconds"), str(result["settings"])
        config = dict(_flat(result["config"]))
        config |= {name: str(result[key])[:8] for name, key in _FILES.items() if result.get(key) is not None}
        callbacks = (one for one in (result["config"].get("callbacks") or {}).values() if isinstance(one, dict))
        least = is_error(metric) or any((one.get("monitor"), one.get("mode")) == (metric, "min") for one in callbacks)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no result of a job; remove it, or give another folder") from error
    options = dict(one.lstrip("+").partition("=")[::2] for one in given)
    options |= {name: "left out" for name in options if name.startswith("~")}
    tested = {name: one for name, one in metrics.items() if name.startswith("test/") and name != metric}
    return Job(path.parent, settings, options, config, metric, value, least, tested, seconds)


def without_result(folders: Iterable[Path]) -> list[Path]:
    """The folders of trainings below the folders that wrote no result: they failed, were killed, or still run."""
    found = dict[Path, None]()
    for saved in (path for folder in folders for path in sorted(folder.rglob(".hydra/config.yaml"))):
        job = saved.parents[1]
        if (job / "result.json").exists():
            continue
        config: Any = OmegaConf.to_container(OmegaConf.load(saved))
        trains = isinstance(config, dict) and config.get("mode") == "train" and "optimized_metric" in config
        # A result that goes to another place is not missed here.
        if trains and str(config.get("result_path") or "${run_dir}").startswith("${run_dir}"):
            found[job] = None
    return list(found)


def _flat(config: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The options of a configuration by their full names."""
    if not isinstance(config, dict):
        yield name, str(config)
        return
    for key, value in config.items():
        yield from _flat(value, f"{name}.{key}" if name else str(key))


def rows(jobs: Sequence[Job]) -> list[Row]:
    """The jobs by the options in which they differ, seeds left out, in the order in which they are given. Options of
    the configuration that their command lines lack follow, if jobs differ in them that would be of one row.
    """
    given = dict.fromkeys(name for job in jobs for name in job.options)
    differing = [name for name in given if _decides(name, jobs) and len({job.options.get(name) for job in jobs}) > 1]
    found = _grouped(jobs, {name: [job.options.get(name, "default") for job in jobs] for name in differing})
    hidden = dict[str, None]()
    for row in found:
        known = dict.fromkeys(name for job in row.jobs for name in job.config)
        hidden |= {
            name: None
            for name in known
            # The jobs of a row give an option the same value, or none.
            if name not in row.jobs[0].options
            and _decides(name, jobs)
            and len({job.config.get(name) for job in row.jobs}) > 1
        }
    if not hidden:
        return found
    values = {name: [job.options.get(name, "default") for job in jobs] for name in differing}
    return _grouped(jobs, values | {name: [job.config.get(name, "none") for job in jobs] for name in hidden})


def _grouped(jobs: Sequence[Job], values: Mapping[str, Sequence[str]]) -> list[Row]:
    """A row for each combination of options and metric; `values` has those of the jobs."""
    groups: dict[tuple[str, ...], Row] = {}
    for i, job in enumerate(jobs):
        options = {name: of[i] for name, of in values.items()}
        groups.setdefault((*options.values(), job.metric), Row(options, job.metric, [])).jobs.append(job)
    return list(groups.values())


def _decides(name: str, jobs: Sequence[Job]) -> bool:
    """Whether an option changes results; seeds count as if they did not."""
    if name.startswith("hydra") or name.split(".")[-1].endswith("seed"):
        return False
    place = name.lstrip("~")
    if place == "callbacks":  # without any, the last weights are tested; the other choices only show more or less
        return "none" in {job.options.get(name) for job in jobs}
    group, *rest = place.split(".")
    if group == "callbacks":
        made = {job.config.get(f"callbacks.{rest[0]}._target_", _SHOWING) for job in jobs}
        return place.startswith(_DECIDING) or not all(target.startswith(_SHOWING) for target in made)
    return group not in _PLACES


def mean_and_deviation(values: Sequence[float]) -> str:
    """Mean, and from two values on the sample's standard deviation: `0.8123 ± 0.0045`."""
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.4f}"
    return (
        mean if len(values) < 2 or not all(map(math.isfinite, values)) else f"{mean} ± {statistics.stdev(values):.4f}"
    )


def best_of(jobs: Sequence[Job]) -> Job | None:
    """The job with the best value: the highest, of a loss or another error the lowest. None if jobs optimized several
    metrics, or none has a value.
    """
    known = [job for job in jobs if not math.isnan(job.value)]
    if not known or len({job.metric for job in known}) > 1:
        return None
    sign = -1 if known[0].least else 1
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
    if lacking := without_result(folders):
        few = ", ".join(map(str, lacking[:5])) + (f", ... ({len(lacking)})" if len(lacking) > 5 else "")
        print(f"not counted, as they failed, were killed or still run: jobs without a result, {few}")
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

"""Does a model learn with our sampler what it learns with DGL's? Curves, differences, tests of equivalence.

    python train.py -m experiment=convergence data_dir=...           # the jobs; then
    python benchmarks/convergence.py multirun/convergence            # what they show

Compared within each dataset and depth: every other sampler against `--against`. The final figure of a job is the test
accuracy of its best checkpoint, with all neighbors (no sampling). Its mean over seeds gets an interval by Student's t,
the difference of two means one by Welch's, and two one-sided tests say whether the difference is below the margin.
Seconds are those of training, validation excluded. They compare the samplers only if jobs ran under the same load.

With `--sizes`, one epoch of each sampler is sampled again, for the numbers of nodes and edges of a mini-batch.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from _common import RESULTS, ROOT, write_json
from _intervals import compare, half_width
from _jobs import check_comparable, read_jobs, setting_of, side_of
from _report_pictures import curves
from _sizes import open_dataset_of, sizes_of
from rich.console import Console
from rich.table import Table

METRIC = "test/test_acc"


def summarise(jobs: list[dict[str, Any]], against: str, margin: float, level: float) -> list[dict[str, Any]]:
    """One row for each dataset and depth.

    Args:
        jobs: as `read_jobs` gives them.
        against: the sampler that the others are compared with.
        margin: in points of accuracy.
        level: of intervals and tests.

    Raises:
        ValueError: jobs that cannot be compared, or curves of different length.
    """
    check_comparable(jobs)
    groups: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for job in sorted(jobs, key=lambda j: j["config"]["seed"]):
        groups[setting_of(job)][side_of(job)].append(job)
    rows = []
    for (dataset, layers), sides in sorted(groups.items()):
        config = next(iter(sides.values()))[0]["config"]
        final = {name: [100 * job["metrics"][METRIC] for job in of] for name, of in sides.items()}
        rows.append(
            {
                "dataset": dataset,
                "layers": layers,
                "fanouts": config["sampler"]["fanouts"],
                "batch_size": config["datamodule"]["batch_size"],
                "hidden": config["model"]["hidden_channels"],
                "epochs": config["trainer"]["max_epochs"],
                "sides": {name: _side(of, final[name], level) for name, of in sorted(sides.items())},
                "differences": {
                    name: {
                        **vars(compare(final[name], final[against], margin, level)),
                        "first_loss_gap": _first_loss_gap(sides[name], sides[against]),
                    }
                    for name in sorted(sides)
                    if name != against and against in sides and min(len(sides[name]), len(sides[against])) > 1
                },
            }
        )
    return rows


def add_sizes(rows: list[dict[str, Any]], jobs: list[dict[str, Any]], data_dir: str, cache_dir: str | None) -> None:
    """Adds to each side of `rows` the sizes of a mini-batch, see `sizes_of`."""
    for row in rows:
        here = [job for job in jobs if setting_of(job) == (row["dataset"], row["layers"])]
        data = open_dataset_of(here[0]["config"], data_dir, cache_dir)
        for name, side in row["sides"].items():
            config = next(job["config"] for job in here if side_of(job) == name)
            side.update(sizes_of(config, data))


def _first_loss_gap(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> float | None:
    """The largest difference of the first epoch's training loss between jobs of the same seed.

    Weights, order and dropout begin equal; so with equal mini-batches this is rounding alone.
    """
    losses = [{job["config"]["seed"]: job["epochs"][0]["train/loss"] for job in jobs} for jobs in (a, b)]
    common = losses[0].keys() & losses[1].keys()
    return max((abs(losses[0][seed] - losses[1][seed]) for seed in common), default=None)


def _side(jobs: list[dict[str, Any]], final: list[float], level: float) -> dict[str, Any]:
    lengths = {len(job["epochs"]) for job in jobs}
    if lengths == {0}:
        raise ValueError("the jobs left no curves; sweep with experiment=convergence, which has callbacks.record")
    if len(lengths) > 1:
        raise ValueError(f"the curves have {sorted(lengths)} epochs; turn early stopping off to make them equal")
    curves = np.array([[row["val/acc"] for row in job["epochs"]] for job in jobs]) * 100
    seconds = np.array([[row["seconds"] for row in job["epochs"]] for job in jobs])
    return {
        "seeds": [job["config"]["seed"] for job in jobs],
        "device": sorted({job["config"]["device"] for job in jobs}),
        "test": [round(x, 3) for x in final],
        "test_mean": round(float(np.mean(final)), 3),
        "test_std": round(float(np.std(final, ddof=1)), 3) if len(final) > 1 else None,
        "val_mean": [round(float(x), 3) for x in curves.mean(0)],
        "val_half_width": [round(half_width(list(x), level), 3) if len(jobs) > 1 else None for x in curves.T],
        "seconds_mean": [round(float(x), 3) for x in seconds.mean(0)],
    }


def show(rows: list[dict[str, Any]], against: str, margin: float, level: float) -> Table:
    table = Table("dataset", "layers", "sampler", "seeds", "test accuracy, %", f"less {against}", "within margin")
    table.title = f"intervals of {level:.0%}, margin {margin} points"
    for row in rows:
        for name, side in row["sides"].items():
            difference = row["differences"].get(name)
            table.add_row(
                row["dataset"],
                str(row["layers"]),
                name,
                str(len(side["seeds"])),
                f"{side['test_mean']:.2f} ± {side['test_std'] or 0:.2f}",
                f"{difference['value']:+.2f} [{difference['low']:+.2f}, {difference['high']:+.2f}]"
                if difference
                else "",
                f"{'yes' if difference['equivalent'] else 'not shown'} (p {difference['p_equivalent']:.2g})"
                if difference
                else "",
            )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of a multirun")
    parser.add_argument("--against", default="dgl", help="the sampler to compare with (default: dgl)")
    parser.add_argument("--margin", type=float, default=0.5, help="points of accuracy that do not matter (0.5)")
    parser.add_argument("--level", type=float, default=0.95)
    parser.add_argument("--note", default=None, help="how the jobs ran, for the reader of the results")
    parser.add_argument("--sizes", action="store_true", help="count the nodes and edges of mini-batches")
    parser.add_argument("--data-dir", default="data", help="with --sizes, folder of the datasets' raw files")
    parser.add_argument("--cache-dir", default=None, help="with --sizes, folder of converted datasets")
    parser.add_argument("--json", type=Path, default=RESULTS / "convergence.json")
    parser.add_argument("--images", type=Path, default=ROOT / "docs" / "images")
    arguments = parser.parse_args()
    try:
        jobs = read_jobs(arguments.folders)
        rows = summarise(jobs, arguments.against, arguments.margin, arguments.level)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    if arguments.sizes:
        add_sizes(rows, jobs, arguments.data_dir, arguments.cache_dir)
    Console(width=140).print(show(rows, arguments.against, arguments.margin, arguments.level))
    images = []
    for dataset in sorted({row["dataset"] for row in rows}):
        images.append(f"{arguments.json.stem}-{dataset}.svg")
        curves([row for row in rows if row["dataset"] == dataset], arguments.images / images[-1])
    newest = max(jobs, key=lambda job: job["date"])
    experiments = sorted({job["config"]["task_name"] for job in jobs})
    write_json(
        arguments.json,
        {
            # Of the machine that trained, not of the one that draws.
            **{key: newest[key] for key in ("date", "hardware", "system", "versions")},
            "command": f"python benchmarks/convergence.py {' '.join(f'multirun/{name}' for name in experiments)}"
            + (f" --against {arguments.against}" if arguments.against != "dgl" else "")
            + (" --sizes" if arguments.sizes else ""),
            "jobs": [f"python train.py -m experiment={name}" for name in experiments],
            "benchmark": "convergence",
            "note": arguments.note,
            "against": arguments.against,
            "margin": arguments.margin,
            "level": arguments.level,
            "images": images,
            "settings": rows,
        },
    )


if __name__ == "__main__":
    main()

"""GraphSAGE under the protocol of Shchur et al. 2018 (arXiv:1811.05868), beside the accuracies that paper reports.

    for dataset in coauthor-physics coauthor-cs amazon-computers amazon-photo; do
      python train.py -m experiment=shchur dataset=$dataset 'seed=range(10,30)' callbacks=quiet data_dir=...
    done
    python benchmarks/shchur.py multirun/shchur

Mean and standard deviation over random splits and starts, in percent. The published model (GraphSAGE-mean) aggregates
the whole neighbourhood; ours trains on sampled neighbours and is tested on all.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from _common import RESULTS, write_json
from _intervals import half_width
from _jobs import read_jobs
from rich.console import Console
from rich.table import Table

# Table 3 of the paper, GraphSAGE-mean: mean and standard deviation, percent.
PUBLISHED = {
    "coauthor-physics": (93.0, 0.8),
    "coauthor-cs": (91.3, 2.8),
    "amazon-computers": (82.4, 1.8),
    "amazon-photo": (91.4, 1.3),
}


def summarise(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each dataset, in the order of `PUBLISHED`.

    Raises:
        ValueError: a job of another dataset, with another split, or a seed twice.
    """
    groups: dict[str, dict[int, float]] = defaultdict(dict)
    for job in jobs:
        config = job["config"]
        name, seed = config["dataset"]["name"], config["seed"]
        if name not in PUBLISHED:
            raise ValueError(f"{name} is not of the paper; its datasets are {', '.join(PUBLISHED)}")
        split = tuple(config["dataset"][key] for key in ("num_train", "num_val", "split_seed"))
        if split != (20, 30, seed):
            raise ValueError(
                f"{name}, seed {seed}: num_train, num_val, split_seed are {split}; the protocol is 20, 30, the seed"
            )
        if seed in groups[name]:
            raise ValueError(f"{name}: seed {seed} is there twice; give folders of different jobs")
        groups[name][seed] = 100 * job["metrics"]["test/test_acc"]
    rows = []
    for name, (mean, std) in PUBLISHED.items():
        if name not in groups:
            continue
        seeds = sorted(groups[name])
        values = [groups[name][seed] for seed in seeds]
        rows.append(
            {
                "dataset": name,
                "seeds": seeds,
                "test": [round(x, 3) for x in values],
                "mean": round(float(np.mean(values)), 3),
                "std": round(float(np.std(values, ddof=1)), 3) if len(values) > 1 else None,
                "half_width": round(half_width(values), 3) if len(values) > 1 else None,
                "published_mean": mean,
                "published_std": std,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of a multirun")
    parser.add_argument("--json", type=Path, default=RESULTS / "shchur.json")
    arguments = parser.parse_args()
    try:
        jobs = read_jobs(arguments.folders)
        rows = summarise(jobs)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    table = Table("dataset", "splits", "ours, %", "95 % interval of the mean", "published, %")
    for row in rows:
        table.add_row(
            row["dataset"],
            str(len(row["seeds"])),
            f"{row['mean']:.1f} ± {row['std'] or 0:.1f}",
            f"± {row['half_width'] or 0:.2f}",
            f"{row['published_mean']} ± {row['published_std']}",
        )
    Console(width=120).print(table)
    newest = max(jobs, key=lambda job: job["date"])
    write_json(
        arguments.json,
        {
            **{key: newest[key] for key in ("date", "hardware", "system", "versions")},
            "benchmark": "shchur",
            "settings": rows,
        },
    )


if __name__ == "__main__":
    main()

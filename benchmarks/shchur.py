"""GraphSAGE, GCN, GAT and GIN by the protocol of Shchur et al. 2018 (arXiv:1811.05868), beside its accuracies.

    for dataset in coauthor-physics coauthor-cs amazon-computers amazon-photo; do
      python train.py -m experiment=shchur dataset=$dataset 'seed=range(10,30)' callbacks=quiet data_dir=...
    done
    python benchmarks/shchur.py multirun/shchur

    for model in gcn gat gin; do
      python train.py -m experiment=shchur-$model dataset=cora,citeseer 'seed=range(10,30)' callbacks=quiet data_dir=...
    done
    python benchmarks/shchur.py multirun/shchur-gcn multirun/shchur-gat multirun/shchur-gin \\
        --json benchmarks/results/shchur_models.json

Mean and standard deviation over random splits and starts, in percent. The published models aggregate whole
neighborhoods, as our GCN, GAT and GIN do. Our GraphSAGE trains on sampled neighbors and is tested on all. The paper
has no GIN.
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

# Table 3 of the paper: mean and standard deviation by model and dataset, percent. "graphsage" is GraphSAGE-mean.
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    "graphsage": {
        "coauthor-physics": (93.0, 0.8),
        "coauthor-cs": (91.3, 2.8),
        "amazon-computers": (82.4, 1.8),
        "amazon-photo": (91.4, 1.3),
    },
    "gcn": {
        "cora": (81.5, 1.3),
        "citeseer": (71.9, 1.9),
        "coauthor-physics": (92.8, 1.0),
        "coauthor-cs": (91.1, 0.5),
        "amazon-computers": (82.6, 2.4),
        "amazon-photo": (91.2, 1.2),
    },
    "gat": {
        "cora": (81.8, 1.3),
        "citeseer": (71.4, 1.9),
        "coauthor-physics": (92.5, 0.9),
        "coauthor-cs": (90.5, 0.6),
        "amazon-computers": (78.0, 19.0),
        "amazon-photo": (85.7, 20.3),
    },
    "gin": {},
}
DATASETS = ("cora", "citeseer", "coauthor-physics", "coauthor-cs", "amazon-computers", "amazon-photo")


def summarise(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each model and dataset, in the order of `PUBLISHED` and `DATASETS`.

    Raises:
        ValueError: a job of another model or dataset, with another split or not on the largest component, or a seed
            twice.
    """
    groups: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for job in jobs:
        config = job["config"]
        model, name, seed = _model(config["model"]), config["dataset"]["name"], config["seed"]
        if model not in PUBLISHED or name not in DATASETS:
            raise ValueError(
                f"{model} on {name} is not of the paper; its datasets are {', '.join(DATASETS)}, and the models here "
                f"{', '.join(PUBLISHED)}"
            )
        split = tuple(config["dataset"][key] for key in ("num_train", "num_val", "split_seed"))
        if split != (20, 30, seed):
            raise ValueError(
                f"{name}, seed {seed}: num_train, num_val, split_seed are {split}; the protocol is 20, 30, the seed"
            )
        if not config["dataset"].get("largest_component", True):  # results from before this option have it always
            raise ValueError(f"{name}, seed {seed}: largest_component is false; the protocol is true")
        if seed in groups[model, name]:
            raise ValueError(f"{model} on {name}: seed {seed} is there twice; give folders of different jobs")
        groups[model, name][seed] = 100 * job["metrics"]["test/test_acc"]
    rows = []
    for model, name in ((model, name) for model in PUBLISHED for name in DATASETS):
        if (model, name) not in groups:
            continue
        seeds = sorted(groups[model, name])
        values = [groups[model, name][seed] for seed in seeds]
        mean, std = PUBLISHED[model].get(name, (None, None))
        rows.append(
            {
                "model": model,
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


def _model(options: dict[str, Any]) -> str:
    """`gcn`, `gat` and so on, or the class of another model."""
    made = str(options.get("_target_", "NodeClassifier")).rpartition(".")[2]
    return str(options.get("architecture", "graphsage" if made == "NodeClassifier" else made))


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
    table = Table("model", "dataset", "splits", "ours, %", "95 % interval of the mean", "published, %")
    for row in rows:
        table.add_row(
            row["model"],
            row["dataset"],
            str(len(row["seeds"])),
            f"{row['mean']:.1f} ± {row['std'] or 0:.1f}",
            f"± {row['half_width'] or 0:.2f}",
            "-" if row["published_mean"] is None else f"{row['published_mean']} ± {row['published_std']}",
        )
    Console(width=120).print(table)
    newest = max(jobs, key=lambda job: job["date"])
    write_json(
        arguments.json,
        {
            **{key: newest[key] for key in ("date", "hardware", "system", "versions")},
            "benchmark": arguments.json.stem,
            "settings": rows,
        },
    )


if __name__ == "__main__":
    main()

"""DeepWalk and node2vec beside the figures of Grover and Leskovec 2016 (arXiv:1607.00653), by that paper's protocol.

    python train.py -m experiment=embeddings dataset=ppi data_dir=...   # DeepWalk
    PYTHONPATH=. python benchmarks/embeddings.py multirun/embeddings --data-dir DATA

The other jobs are in conf/experiment/embeddings.yaml.

One embedding of each dataset and method, and on it ten random splits in halves. A one-vs-rest logistic regression is
fitted to one half, with the penalty that is best by cross-validation there. Each node of the other one gets as many
labels as it has, the likeliest ones. F1 scores in percent, mean and standard deviation over the splits. An embedding is
`last.ckpt` of a job.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import RESULTS, load_dataset, write_json
from rich.console import Console
from rich.table import Table
from torch import Tensor

from loader.datasets import NodeDataset
from loader.datasets.splits import random_split
from models.embedding_probe import LogisticRegression, f1_scores, top_labels

# Table 2 of the paper: macro-F1 in percent, with half of the nodes' labels; and p, q of its node2vec.
PUBLISHED: dict[str, dict[str, Any]] = {
    "blogcatalog": {"DeepWalk": 21.10, "node2vec": 25.81, "p, q": (0.25, 0.25)},
    "ppi": {"DeepWalk": 17.68, "node2vec": 17.91, "p, q": (4.0, 1.0)},
    "wikipedia": {"DeepWalk": 12.74, "node2vec": 15.52, "p, q": (4.0, 0.5)},
}


def read_jobs(folders: list[Path]) -> list[tuple[dict[str, Any], Path]]:
    """Each job below the folders, and its checkpoint.

    Raises:
        FileNotFoundError: there is no job, or one without its checkpoint.
    """
    jobs = []
    for folder in folders:
        for path in sorted(folder.rglob("result.json")):
            checkpoint = path.parent / "checkpoints" / "last.ckpt"
            if not checkpoint.is_file():
                raise FileNotFoundError(f"{path} has no {checkpoint}; run the job again with experiment=embeddings")
            jobs.append((json.loads(path.read_text(encoding="utf-8")), checkpoint))
    if not jobs:
        raise FileNotFoundError(f"there is no result.json below {', '.join(map(str, folders))}; run the jobs first")
    return jobs


def method_of(config: dict[str, Any]) -> str:
    """ "DeepWalk" or "node2vec".

    Raises:
        ValueError: the dataset, or p and q, are not those of the paper.
    """
    name, sampler = config["dataset"]["name"], config["sampler"]
    if name not in PUBLISHED:
        raise ValueError(f"{name} is not of the paper; its datasets are {', '.join(PUBLISHED)}")
    law = float(sampler["p"]), float(sampler["q"])
    if law == (1.0, 1.0):
        return "DeepWalk"
    if law != PUBLISHED[name]["p, q"]:
        raise ValueError(f"{name}: p, q are {law}; the paper has {PUBLISHED[name]['p, q']}, or 1, 1 for DeepWalk")
    return "node2vec"


def score(x: Tensor, data: NodeDataset, seeds: list[int], c: float | list[float]) -> dict[str, list[float]]:
    """Micro- and macro-F1 in percent, of a split in halves by each seed, and the penalty's inverse.

    Args:
        x: `[num_nodes, dim]`.
        data: with several labels per node.
        seeds: of the splits.
        c: one, or several to choose from; see `LogisticRegression`.
    """
    found: dict[str, list[float]] = {"micro": [], "macro": [], "c": []}
    for seed in seeds:
        split = random_split(data.num_nodes, (0.5, 0.0, 0.5), seed)
        train, test = split["train"], split["test"]
        probe = LogisticRegression(data.num_classes, multilabel=True, c=c).fit(x[train], data.labels[train])
        micro, macro = f1_scores(top_labels(probe.logits(x[test]), data.labels[test]), data.labels[test])
        found["micro"].append(round(100 * micro, 3))
        found["macro"].append(round(100 * macro, 3))
        found["c"].append(probe.c)
    return found


def summarise(
    jobs: list[tuple[dict[str, Any], Path]], data_dir: str, cache_dir: str | None, splits: int
) -> list[dict[str, Any]]:
    """One row for each dataset and method.

    Raises:
        ValueError: a job is not of the paper, or there twice.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for job, checkpoint in jobs:
        config = job["config"]
        method, name = method_of(config), config["dataset"]["name"]
        if (name, method) in rows:
            raise ValueError(f"{name}, {method}: this job is there twice; give folders of different jobs")
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)["state_dict"]
        data = load_dataset(name, data_dir, cache_dir)
        scores = score(state["net.embedding.weight"], data, list(range(splits)), config["model"]["probe_c"])
        sampler, model = config["sampler"], config["model"]
        law = ("p", "q", "weights", "walk_length", "num_negatives", "negative_exponent")
        rows[name, method] = {
            "dataset": name,
            "method": method,
            **{key: sampler[key] for key in law},
            **{key: model[key] for key in ("dim", "objective", "context_size", "lr", "lr_decay", "probe_c")},
            "walks_per_node": config["datamodule"]["walks_per_node"],
            "batch_size": config["datamodule"]["batch_size"],
            "epochs": config["trainer"]["max_epochs"],
            **scores,
            **{f"{kind}_mean": round(float(np.mean(scores[kind])), 2) for kind in ("micro", "macro")},
            **{
                f"{kind}_std": round(float(np.std(scores[kind], ddof=1)), 2)
                for kind in ("micro", "macro")
                if splits > 1
            },
            "published_macro": PUBLISHED[name][method],
        }
    return list(rows.values())


def merge(rows: list[dict[str, Any]], path: Path, splits: int) -> list[dict[str, Any]]:
    """`rows`, and those of the file that are of other datasets or methods, in the order of `PUBLISHED`.

    Raises:
        ValueError: the file is of another number of splits.
    """
    earlier = json.loads(path.read_text(encoding="utf-8"))
    if earlier["splits"] != splits:
        raise ValueError(f"{path} has {earlier['splits']} splits, this run {splits}; give --splits {earlier['splits']}")
    made = {(row["dataset"], row["method"]) for row in rows}
    return in_order(rows + [row for row in earlier["rows"] if (row["dataset"], row["method"]) not in made])


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    order = list(PUBLISHED)
    return sorted(rows, key=lambda row: (order.index(row["dataset"]), row["method"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of a multirun")
    parser.add_argument("--data-dir", default="data", help="folder of the datasets' raw files (default: data)")
    parser.add_argument("--cache-dir", default=None, help="folder of converted datasets (default: data-dir/cache)")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--add", action="store_true", help="keep the other rows that the JSON file has")
    parser.add_argument("--json", type=Path, default=RESULTS / "embeddings.json")
    arguments = parser.parse_args()
    try:
        jobs = read_jobs(arguments.folders)
        rows = in_order(summarise(jobs, arguments.data_dir, arguments.cache_dir, arguments.splits))
        if arguments.add:
            rows = merge(rows, arguments.json, arguments.splits)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    table = Table("dataset", "method", "p, q", "micro-F1, %", "macro-F1, %", "published macro-F1, %")
    for row in rows:
        scores = (f"{row[f'{kind}_mean']:.2f} ± {row.get(f'{kind}_std', 0):.2f}" for kind in ("micro", "macro"))
        table.add_row(
            row["dataset"], row["method"], f"{row['p']:g}, {row['q']:g}", *scores, f"{row['published_macro']:.2f}"
        )
    Console(width=120).print(table)
    newest = max((job for job, _ in jobs), key=lambda job: job["date"])
    write_json(
        arguments.json,
        {
            # Of the machine that trained.
            **{key: newest[key] for key in ("date", "hardware", "system", "versions")},
            "command": "python benchmarks/embeddings.py multirun/embeddings",
            "benchmark": "embeddings",
            "splits": arguments.splits,
            "rows": rows,
        },
    )


if __name__ == "__main__":
    main()

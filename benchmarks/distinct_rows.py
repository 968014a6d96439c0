"""How many bytes do stores gather for trees, with a row for each distinct node in place of one for each node?

    PYTHONPATH=. python benchmarks/distinct_rows.py

An epoch of 512 drivers each over rel-f1, the tables behind RelBench's tasks of the same name, each driver at its own
time. The tables lie where `tests/support/relational.py` says. Counted, not timed: what the loader's statistics say, and
what a row for each node of the mini-batches would take.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import RESULTS, ints, write_json

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import relational
import tree_cases

from loader import HeteroGraph, NodeLoader, TreeSampler

TASKS = ("driver-dnf", "driver-top3", "driver-position")


def features() -> dict[str, torch.Tensor]:
    """Table -> columns of numbers, and codes of those of categories."""
    with np.load(relational.FOLDER / "rel-f1" / "features.npz") as arrays:
        tables = {name.partition("/")[0] for name in arrays.files}
        both = {table: (arrays[f"{table}/num"], arrays[f"{table}/cat"]) for table in sorted(tables)}
    return {table: torch.from_numpy(np.concatenate(parts, 1).astype(np.float32)) for table, parts in both.items()}


def measure(
    graph: HeteroGraph, rows: dict[str, torch.Tensor], task: str, fanouts: tuple[int, ...], batch_size: int
) -> dict[str, Any]:
    """Bytes and nodes per mini-batch, of an epoch."""
    items = np.loadtxt(relational.FOLDER / "rel-f1" / "tasks" / f"{task}-train.csv", delimiter=",", skiprows=1)
    at, drivers, labels = items[:, 0].astype(np.int64), items[:, 1].astype(np.int64), items[:, 2]
    seeds, times = ("drivers", torch.from_numpy(drivers)), torch.from_numpy(at)
    sampler = TreeSampler(fanouts, times="node", seed=0)
    loader = NodeLoader(
        *(graph, rows, torch.from_numpy(labels), seeds, sampler, batch_size), times=times, shuffle=True, drop_last=True
    )
    nodes = distinct = every = 0
    for batch in loader:
        nodes += batch.nodes.numel()
        distinct += sum(ids.numel() for ids in batch.unique.values())
        every += sum(batch.num_nodes_of(name) * x.shape[1] * x.element_size() for name, x in rows.items())
    count, gathered = len(loader), loader.stats.moved["gather"]
    return {
        **{"task": task, "fanouts": fanouts, "mini_batches": count},
        **{"nodes": nodes / count, "distinct": distinct / count},
        **{"bytes_of_all": every / count, "bytes_gathered": gathered / count, "fewer": every / gathered},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanouts", type=ints, nargs="+", default=[(128, 64), (64, 32, 16)])
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--json", type=Path, default=RESULTS / "distinct_rows.json")
    arguments = parser.parse_args()
    graph, tables, found = tree_cases.graph_of(relational.graph_of("rel-f1")), features(), []
    for fanouts in arguments.fanouts:
        for task in TASKS:
            found.append(measure(graph, tables, task, fanouts, arguments.batch_size))
            print(found[-1], flush=True)
    content = {"benchmark": "distinct_rows", "batch_size": arguments.batch_size, "rows": found}
    write_json(arguments.json, content)


if __name__ == "__main__":
    main()

"""How many rows cross the bus with a cache that knows the next mini-batches, beside the best cache that never changes.

    PYTHONPATH=. python benchmarks/lookahead.py                                  # synthetic-products
    PYTHONPATH=. python benchmarks/lookahead.py --dataset ogbn-arxiv --data-dir DATA --fanouts 10,5 --batch-size 256

The rows are counted, not timed, and nothing is cached in fact: the input vertices of all mini-batches of an epoch are
known, and each row that a mini-batch reads and the cache lacks crosses the bus. The best cache that never changes holds
the rows that this very epoch reads most. A cache with look-ahead begins with the rows that another epoch reads most.
After each mini-batch it keeps, of its rows and those that came, the ones that the next mini-batches need, soonest
first, and then again those that the other epoch reads most. Both hold the same number of rows.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import RESULTS, ints, write_json
from hosts_cpu import epoch
from rich.console import Console
from rich.table import Table

from loader.datasets import open_dataset
from loader.stores import count_visits


def static_misses(inputs: list[np.ndarray], visits: np.ndarray, rows: int) -> int:
    """Rows that cross with those cached that are visited most."""
    cached = np.zeros(len(visits), bool)
    cached[np.argpartition(visits, -rows)[-rows:]] = True
    return sum(int((~cached[ids]).sum()) for ids in inputs)


def next_uses(inputs: list[np.ndarray], num_nodes: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The first mini-batch that reads each row, and per mini-batch the next one that reads each of its rows.

    Rows that no more mini-batch reads have the largest integer.
    """
    first = np.full(num_nodes, np.iinfo(np.int32).max, np.int32)
    following: list[np.ndarray] = []
    for number in range(len(inputs) - 1, -1, -1):
        following.append(first[inputs[number]])
        first[inputs[number]] = number
    return first, following[::-1]


def lookahead_misses(inputs: list[np.ndarray], hotness: np.ndarray, rows: int, window: int) -> int:
    """Rows that cross with a cache that knows the next `window` mini-batches."""
    num_nodes = len(hotness)
    upcoming, following = next_uses(inputs, num_nodes)
    # Behind the rows that are needed soon: the hottest first.
    rank = np.empty(num_nodes, np.int32)
    rank[np.argsort(-hotness, kind="stable")] = np.arange(num_nodes, dtype=np.int32)
    cached = rank < rows
    misses = 0
    for number, ids in enumerate(inputs):
        misses += int((~cached[ids]).sum())
        upcoming[ids] = following[number]
        cached[ids] = True
        held = np.flatnonzero(cached)
        ahead = upcoming[held] - number
        order = np.where(ahead <= window, ahead - window, rank[held] + 1)
        cached[held[np.argpartition(order, rows - 1)[rows:]]] = False
    return misses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="synthetic-products", help="a name of conf/dataset")
    parser.add_argument("--data-dir", default="data", help="folder of the datasets' raw files")
    parser.add_argument("--cache-dir", default=None, help="folder of converted datasets (default: data-dir/cache)")
    parser.add_argument("--fanouts", type=ints, default=(15, 10, 5), help="neighbours per hop (default: 15,10,5)")
    parser.add_argument("--batch-size", type=int, default=1024, help="seeds per mini-batch")
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.05, 0.1, 0.25], help="of the rows, cached")
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="mini-batches that are known")
    parser.add_argument("--json", type=Path, default=RESULTS / "lookahead.json")
    options = parser.parse_args()

    data = open_dataset(options.dataset, data_dir=options.data_dir, cache_dir=options.cache_dir)
    fanouts = list(options.fanouts)
    inputs = [batch.input_nodes.numpy() for batch in epoch(data, fanouts, options.batch_size)]
    own = count_visits(map(torch.from_numpy, inputs), data.num_nodes).numpy()
    other = count_visits(epoch(data, fanouts, options.batch_size, 1), data.num_nodes).numpy()
    names = ("cached", "known", "best that never changes", "visits of another epoch", "look-ahead", "fewer rows")
    table, rows = Table(*names, title=f"{options.dataset}, rows over the bus per mini-batch"), []
    for fraction in options.fractions:
        count = int(fraction * data.num_nodes)
        best, counted = (static_misses(inputs, visits, count) / len(inputs) for visits in (own, other))
        for window in options.windows:
            found = lookahead_misses(inputs, other, count, window) / len(inputs)
            row: dict[str, Any] = {"fraction": fraction, "window": window, "best_static": best, "static": counted}
            rows.append({**row, "lookahead": found, "fewer": 1 - found / best})
            cells = (f"{fraction:.0%}", str(window), *(f"{each:,.0f}" for each in (best, counted, found)))
            table.add_row(*cells, f"{1 - found / best:.1%}")
    Console(width=120).print(table)
    settings = {name: getattr(options, name) for name in ("dataset", "fanouts", "batch_size")}
    reads = sum(map(len, inputs)) / len(inputs)
    counts = {"num_nodes": data.num_nodes, "batches": len(inputs), "rows_a_batch": reads}
    write_json(options.json, {**settings, **counts, "rows": rows})


if __name__ == "__main__":
    main()

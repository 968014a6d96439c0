"""How many rows cross the bus with a cache that knows the next mini-batches, beside the best cache that never changes.

    PYTHONPATH=. python benchmarks/lookahead.py                                  # synthetic-products
    PYTHONPATH=. python benchmarks/lookahead.py --dataset ogbn-arxiv --data-dir DATA --fanouts 10,5 --batch-size 256

The rows are counted, not timed: the input nodes of all mini-batches of an epoch are known, and each row that a
mini-batch reads and the cache lacks crosses the bus. The cache with look-ahead is that of `features.lookahead`. It
begins with the rows that another epoch reads most, and `loader/stores/renewal.py` says how it changes. The best cache
that never changes holds the rows that this very epoch reads most. Both have equally many bytes: where one has the
arrays that look-ahead needs, the other has more rows.
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
from loader.stores.renewal import BYTES_PER_ROW, BYTES_PER_SLOT


def most_visited(visits: np.ndarray, rows: int) -> np.ndarray:
    """Whether each row is one of the `rows` that are visited most."""
    found = np.zeros(len(visits), bool)
    found[np.argpartition(visits, -rows)[-rows:]] = True
    return found


def static_misses(inputs: list[np.ndarray], visits: np.ndarray, rows: int) -> int:
    """Rows that cross with those cached that are visited most."""
    cached = most_visited(visits, rows)
    return sum(int((~cached[ids]).sum()) for ids in inputs)


def lookahead_misses(inputs: list[np.ndarray], visits: np.ndarray, rows: int, together: int) -> int:
    """Rows that cross with a cache that knows a group of this many mini-batches. The first group has only one."""
    hot = most_visited(visits, rows)
    cached, misses, first = hot.copy(), 0, 0
    while first < len(inputs):
        group = inputs[first : first + (together if first else 1)]
        first += len(group)
        # The mini-batch of the group that reads each row next; the hot ones come behind all, and then the others.
        uses = np.where(hot, together, together + 1)
        following = []
        for turn in range(len(group) - 1, -1, -1):
            following.append(uses[group[turn]])
            uses[group[turn]] = turn
        for ids in group:
            came = ids[~cached[ids]]
            misses += len(came)
            uses[ids] = following.pop()
            # Of equal ones those stay that are there. Then any do; here the first ones.
            candidates = np.concatenate([np.flatnonzero(cached), came])
            order = np.argsort(uses[candidates], kind="stable")
            cached[candidates[order[:rows]]], cached[candidates[order[rows:]]] = True, False
    return misses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="synthetic-products", help="a name of conf/dataset")
    parser.add_argument("--data-dir", default="data", help="folder of the datasets' raw files")
    parser.add_argument("--cache-dir", default=None, help="folder of converted datasets (default: data-dir/cache)")
    parser.add_argument("--fanouts", type=ints, default=(15, 10, 5), help="neighbors per hop (default: 15,10,5)")
    parser.add_argument("--batch-size", type=int, default=1024, help="seeds per mini-batch")
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.05, 0.1, 0.25], help="of the rows, cached")
    parser.add_argument("--together", type=int, nargs="+", default=[2, 4, 8, 16], help="mini-batches that are known")
    parser.add_argument("--json", type=Path, default=RESULTS / "lookahead.json")
    options = parser.parse_args()

    data = open_dataset(options.dataset, data_dir=options.data_dir, cache_dir=options.cache_dir)
    fanouts = list(options.fanouts)
    inputs = [batch.input_nodes.numpy() for batch in epoch(data, fanouts, options.batch_size)]
    own = count_visits(map(torch.from_numpy, inputs), data.num_nodes).numpy()
    other = count_visits(epoch(data, fanouts, options.batch_size, 1), data.num_nodes).numpy()
    names = ("cached", "together", "best that never changes", "visits of another epoch", "look-ahead", "fewer rows")
    table, rows = Table(*names, title=f"{options.dataset}, rows over the bus per mini-batch"), []
    row_bytes = data.features[0].nbytes
    for fraction in options.fractions:
        count = int(fraction * data.num_nodes)
        more = (count * BYTES_PER_SLOT + data.num_nodes * BYTES_PER_ROW) // row_bytes
        best, counted = (static_misses(inputs, visits, count + more) / len(inputs) for visits in (own, other))
        for together in options.together:
            found = lookahead_misses(inputs, other, count, together) / len(inputs)
            row: dict[str, Any] = {"fraction": fraction, "more_static": more, "together": together}
            counts = {"best_static": best, "static": counted, "lookahead": found, "fewer": 1 - found / best}
            rows.append({**row, **counts})
            cells = (f"{fraction:.0%}", str(together), *(f"{each:,.0f}" for each in (best, counted, found)))
            table.add_row(*cells, f"{1 - found / best:.1%}")
    Console(width=120).print(table)
    settings = {name: getattr(options, name) for name in ("dataset", "fanouts", "batch_size")}
    reads = sum(map(len, inputs)) / len(inputs)
    epochs = {"num_nodes": data.num_nodes, "row_bytes": row_bytes, "batches": len(inputs), "rows_a_batch": reads}
    write_json(options.json, {**settings, **epochs, "rows": rows})


if __name__ == "__main__":
    main()

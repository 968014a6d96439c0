"""How many rows and bytes cross between hosts with features=partitioned, for one group of mini-batches.

    PYTHONPATH=. python benchmarks/hosts_cpu.py --data-dir DATA                      # ogbn-arxiv
    PYTHONPATH=. python benchmarks/hosts_cpu.py --dataset synthetic-products --fanouts 15,10,5

The rows are counted, not timed, and no process is started: mini-batches are a pure function of the seed, and
`PartitionedFeatures` says which rows of them neither a host nor its cache has. A row counts once per group and host, as
it crosses. The counts are means over hosts and over the groups of an epoch; the first mini-batch of each process, which
is a group of its own, is left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, ints, write_json
from rich.console import Console
from rich.table import Table

from loader.datasets import NodeDataset, open_dataset
from loader.loaders.nodes import NodeLoader
from loader.machine.hosts import Hosts
from loader.samplers import FusedSampler
from loader.samples import MiniBatch
from loader.stores import PartitionedFeatures, count_visits, degree_hotness


def epoch(data: NodeDataset, fanouts: list[int], batch_size: int, number: int = 0) -> NodeLoader:
    """The mini-batches of an epoch without rows, of one process."""
    sampler = FusedSampler(fanouts, num_threads=2)
    loader = NodeLoader(data.graph, None, None, data.splits["train"], sampler, batch_size, shuffle=True)
    loader.set_epoch(number)
    return loader


def count(batches: list[MiniBatch], stores: list[PartitionedFeatures], local: int, together: int) -> dict[str, float]:
    """Rows per group and host: wanted by the mini-batches, of those distinct, and of those crossing."""
    ranks = len(stores) * local
    wanted = distinct = crossing = groups = 0
    for first in range(ranks, len(batches) - ranks * together + 1, ranks * together):
        for store in stores:
            mine = range(store.hosts.host * local, (store.hosts.host + 1) * local)
            ids = torch.cat([batches[first + s * ranks + rank].input_nodes for s in range(together) for rank in mine])
            wanted += ids.numel()
            distinct += torch.unique(ids).numel()
            crossing += store.crossing(ids).numel()
            groups += 1
    return {"wanted": wanted / groups, "distinct": distinct / groups, "crossing": crossing / groups, "groups": groups}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="ogbn-arxiv", help="a name of conf/dataset")
    parser.add_argument("--data-dir", default="data", help="folder of the datasets' raw files")
    parser.add_argument("--cache-dir", default=None, help="folder of converted datasets (default: data-dir/cache)")
    parser.add_argument("--fanouts", type=ints, default=(10, 5), help="neighbors per hop (default: 10,5)")
    parser.add_argument("--batch-size", type=int, default=256, help="seeds per mini-batch and process")
    parser.add_argument("--processes", type=int, default=2, help="processes per host")
    parser.add_argument("--json", type=Path, default=RESULTS / "hosts_cpu.json")
    options = parser.parse_args()

    data = open_dataset(options.dataset, data_dir=options.data_dir, cache_dir=options.cache_dir)
    fanouts, row_bytes = list(options.fanouts), data.num_features * 4
    batches = list(epoch(data, fanouts, options.batch_size))
    other = epoch(data, fanouts, options.batch_size, 1)  # than the one that is counted
    scores = [("degree", degree_hotness(data.graph)), ("visits", count_visits(other, data.num_nodes))]
    nothing = torch.zeros(data.num_nodes, 1, dtype=torch.float16)  # only the places of rows count
    caches: list[tuple[str, dict[str, Any]]] = [("none", {})]
    for fraction in (0.05, 0.1, 0.2):
        caches += [(f"{fraction:.0%} by {name}", {"fraction": fraction, "hotness": hot}) for name, hot in scores]

    table = Table(title=f"{options.dataset}, fanouts {fanouts}, {options.batch_size} seeds, {row_bytes} bytes per row")
    for name in ("hosts", "mini-batches per exchange", "cache", "rows wanted", "distinct", "crossing", "MB crossing"):
        table.add_column(name, justify="left" if name == "cache" else "right")
    cells: list[dict[str, Any]] = []
    for num_hosts in (2, 4):
        for together in (1, 4):
            for name, cache in caches:
                stores = [
                    PartitionedFeatures(nothing, num_threads=2, hosts=Hosts(host, num_hosts, 0, 1), **cache)
                    for host in range(num_hosts)
                ]
                found = count(batches, stores, options.processes, together)
                table.add_row(
                    str(num_hosts), str(together), name, *(f"{found[key]:,.0f}" for key in list(found)[:3]),
                    f"{found['crossing'] * row_bytes / 1e6:.2f}",
                )  # fmt: skip
                cells.append({"hosts": num_hosts, "together": together, "cache": name, **found})
    Console(width=120).print(table)
    settings = {key: value for key, value in vars(options).items() if key not in ("json", "data_dir", "cache_dir")}
    write_json(options.json, {"settings": settings, "row_bytes": row_bytes, "cells": cells})


if __name__ == "__main__":
    main()

"""torch_geometric's NeighborLoader beside ours with its signature, mini-batches that arrive on a GPU.

    PYTHONPATH=. python benchmarks/pyg_gpu.py                                  # a graph of the size of ogbn-products
    PYTHONPATH=. python benchmarks/pyg_gpu.py --csc indptr.npy indices.npy

torch_geometric's loader has `--workers` processes, each of which samples on the CPU by our core (`import loader.pyg`),
or by pyg-lib if it is installed; `backend` says which. Its mini-batches are pinned, and copied to the GPU as its
scripts do it. Ours keeps graph and features on the GPU. Both give `Data` with `x` and `y`. Mini-batches a second, with
nothing else to do: the first `--warm-up` of an epoch are not counted, because workers start there.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric.loader
from _common import RESULTS, write_json
from _gpu_batches import products_shaped
from torch_geometric.data import Data

import loader.pyg

SETTINGS = (([15, 10, 5], 1024), ([10, 10], 1024))
NUM_FEATURES = 100


def rate(batches: Iterable[Any], warm_up: int, seconds: float) -> tuple[float, int]:
    """Mini-batches a second, and how many were counted."""
    count, begin = 0, 0.0
    for i, batch in enumerate(batches):
        on_gpu = batch.to("cuda", non_blocking=True)
        if i == warm_up:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        elif i > warm_up:
            count += 1
            if time.perf_counter() - begin > seconds:
                break
        del on_gpu
    torch.cuda.synchronize()
    return count / (time.perf_counter() - begin), count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csc", nargs=2, metavar=("INDPTR.npy", "INDICES.npy"), help="another graph")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--warm-up", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=6, help="for each loader and setting")
    parser.add_argument("--out", type=Path, default=RESULTS / "pyg_gpu.json")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*worker processes.*")
    if options.csc:
        indptr, indices = (torch.from_numpy(np.load(path)).long() for path in options.csc)
    else:
        graph = products_shaped().to("cpu")
        indptr, indices = graph.indptr.long(), graph.indices.long()
    num_nodes = indptr.numel() - 1
    edge_index = torch.stack([indices, torch.arange(num_nodes).repeat_interleave(indptr.diff())])
    chance = torch.Generator().manual_seed(0)
    data = Data(
        x=torch.randn(num_nodes, NUM_FEATURES, generator=chance),
        y=torch.randint(47, (num_nodes,), generator=chance),
        edge_index=edge_index,
    )
    train = torch.randperm(num_nodes, generator=chance)[:196_615]
    rows = []
    for fanouts, batch_size in SETTINGS:
        row: dict[str, Any] = {"fanouts": fanouts, "batch_size": batch_size}
        given: dict[str, Any] = {"input_nodes": train, "batch_size": batch_size, "shuffle": True}
        theirs = torch_geometric.loader.NeighborLoader(
            data, fanouts, **given, num_workers=options.workers, persistent_workers=True, pin_memory=True
        )
        row["theirs_per_s"], row["theirs_counted"] = rate(theirs, options.warm_up, options.seconds)
        del theirs
        ours = loader.pyg.NeighborLoader(data, fanouts, **given, device="cuda")
        for _ in range(2):  # the first epoch also compiles and allocates
            row["ours_per_s"], row["ours_counted"] = rate(ours, options.warm_up, options.seconds)
        ours.close()
        row["ratio"] = row["ours_per_s"] / row["theirs_per_s"]
        rows.append(row)
        print(
            f"{fanouts} x {batch_size}: torch_geometric {row['theirs_per_s']:.1f} mini-batches a second "
            f"({options.workers} workers), ours {row['ours_per_s']:.1f}, {row['ratio']:.1f}x",
            flush=True,
        )
    size = {"gpu": torch.cuda.get_device_name(), "num_nodes": num_nodes, "num_edges": indices.numel()}
    write_json(
        options.out,
        {**size, "backend": loader.pyg.backend(), "workers": options.workers, "rows": rows},
    )


if __name__ == "__main__":
    main()

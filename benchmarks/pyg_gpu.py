"""torch_geometric's NeighborLoader beside ours with its signature, mini-batches that arrive on a GPU.

    PYTHONPATH=. python benchmarks/pyg_gpu.py                                  # a graph of the size of ogbn-products
    PYTHONPATH=. python benchmarks/pyg_gpu.py --csc indptr.npy indices.npy

torch_geometric's loader has `--workers` processes, each of which samples on the CPU by our core (`import loader.pyg`),
or by pyg-lib if it is installed; `backend` says which. Ours keeps graph and features on the GPU. Both give `Data` with
`x` and `y`. The figures are mini-batches per second: the first `--warm-up` of an epoch are not counted, because workers
start there.

"alone": nothing trains. The mini-batches of torch_geometric's loader have their features from host memory. They are
pinned and copied to the GPU. "training": the training loop of torch_geometric's examples/ogbn_train.py with
`--model sage` (its fanouts are 10, 10, 10) and the model of its examples/reddit.py (25, 10), and for both kinds of
loader features and labels are on the GPU from the start, as in these scripts. "the step only" is that loop over one
mini-batch that is there already: no loader can be faster.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric.loader
from _common import RESULTS, write_json
from _gpu_batches import products_shaped
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn.models import GraphSAGE

import loader.pyg

ALONE = (([15, 10, 5], 1024), ([10, 10], 1024))
TRAINING = (([10, 10, 10], 1024), ([25, 10], 1024))
NUM_FEATURES, NUM_CLASSES = 100, 47
GPU = torch.device("cuda")


class Training:
    """A step of training as in torch_geometric's examples/ogbn_train.py, with its default sizes."""

    def __init__(self, num_layers: int) -> None:
        torch.manual_seed(123)
        self._model = GraphSAGE(NUM_FEATURES, 256, num_layers, NUM_CLASSES, dropout=0.5).to(GPU).train()
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=0.003)

    def __call__(self, batch: Data) -> float:
        self._optimizer.zero_grad()
        out = self._model(batch.x, batch.edge_index.to(GPU))[: batch.batch_size]
        y = batch.y[: batch.batch_size].squeeze().to(torch.long)
        loss = F.cross_entropy(out, y)
        loss.backward()
        self._optimizer.step()
        int(out.argmax(dim=-1).eq(y).sum())  # the script counts what is right, and waits for the GPU by that
        return float(loss.detach())


def copied(batch: Data) -> Data:
    return batch.to(GPU, non_blocking=True)


def rate(batches: Iterable[Data], use: Callable[[Data], object], warm_up: int, seconds: float) -> tuple[float, int]:
    """Mini-batches per second, and how many were counted."""
    count, begin = 0, 0.0
    for i, batch in enumerate(batches):
        used = use(batch)
        if i == warm_up:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        elif i > warm_up:
            count += 1
            if time.perf_counter() - begin > seconds:
                break
        del used
    torch.cuda.synchronize()
    return count / (time.perf_counter() - begin), count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csc", nargs=2, metavar=("INDPTR.npy", "INDICES.npy"), help="another graph")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--warm-up", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=6, help="for each loader and setting")
    parser.add_argument("--only", choices=("alone", "training"), help="only these rows")
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
    y = torch.randint(NUM_CLASSES, (num_nodes,), generator=chance)
    data = Data(x=torch.randn(num_nodes, NUM_FEATURES, generator=chance), y=y, edge_index=edge_index)
    data_on_gpu = Data(x=data.x.to(GPU), y=y.to(GPU), edge_index=edge_index)
    train = torch.randperm(num_nodes, generator=chance)[:196_615]
    rows: list[dict[str, Any]] = []
    size = {"gpu": torch.cuda.get_device_name(), "num_nodes": num_nodes, "num_edges": indices.numel()}
    settings = [("alone", s) for s in ALONE] + [("training", s) for s in TRAINING]
    for what, (fanouts, batch_size) in settings:
        if options.only not in (None, what):
            continue
        row: dict[str, Any] = {"what": what, "fanouts": fanouts, "batch_size": batch_size}
        given: dict[str, Any] = {"input_nodes": train, "batch_size": batch_size, "shuffle": True}
        trains = what == "training"
        # The edges come by their destination: it need not sort them.
        workers = {
            "is_sorted": True,
            "num_workers": options.workers,
            "persistent_workers": True,
            "pin_memory": not trains,
        }
        their_data, their_use = (data_on_gpu, Training(len(fanouts))) if trains else (data, copied)
        theirs = torch_geometric.loader.NeighborLoader(their_data, fanouts, **given, **workers)
        row["theirs_per_s"], row["theirs_counted"] = rate(theirs, their_use, options.warm_up, options.seconds)
        del theirs
        ours = loader.pyg.NeighborLoader(data, fanouts, **given, device=GPU)
        use = Training(len(fanouts)) if trains else copied
        for _ in range(2):  # the first epoch also compiles and allocates
            row["ours_per_s"], row["ours_counted"] = rate(ours, use, options.warm_up, options.seconds)
        if trains:
            row["step_per_s"], _ = rate(repeat(next(iter(ours))), use, options.warm_up, options.seconds)
        ours.close()
        row["ratio"] = row["ours_per_s"] / row["theirs_per_s"]
        rows.append(row)
        found = {**size, "backend": loader.pyg.backend(), "workers": options.workers, "rows": rows}
        write_json(options.out, found)
        print(
            f"{what}, {fanouts} x {batch_size}: torch_geometric {row['theirs_per_s']:.1f} mini-batches per second "
            f"({options.workers} workers), ours {row['ours_per_s']:.1f}, {row['ratio']:.1f}x"
            + (f"; the step only {row['step_per_s']:.1f}" if trains else ""),
            flush=True,
        )


if __name__ == "__main__":
    main()

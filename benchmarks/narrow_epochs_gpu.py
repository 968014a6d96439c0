"""Epochs with rows of 16 and 8 bits and steps in BF16, beside float32 in the same run.

    PYTHONPATH=. python benchmarks/narrow_epochs_gpu.py
    PYTHONPATH=. python benchmarks/narrow_epochs_gpu.py --places lazy --rows float32 bfloat16

The graph, the model and its steps, by CUDA graphs, are those of `pipeline_gpu.py`, (15, 10, 5) x 1,024. The graph lies
in GPU memory. Features lie there ("lazy", the first layer reads them) or in pinned memory, none in GPU memory
("pinned"). Rows of 16 and 8 bits train with BF16 (autocast, as `trainer.precision=bf16-mixed`), rows of float32 with
TF32 and, a row of its own, with BF16. Seconds of an epoch, pipelined, and of its training alone on mini-batches that
lie ready; all settings of a place take turns, medians over the rounds.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, write_json
from pipeline_gpu import NUM_CLASSES, Training, products_like, ready_batches

from loader.loaders.nodes import NodeLoader
from loader.samplers import fused
from loader.samples import MiniBatch
from loader.stores import DeviceFeatures, PinnedFeatures, RowOptions

FANOUTS = [15, 10, 5]
ROWS = ("float32", "float32, bf16 steps", "bfloat16", "int8", "float8")
PLACES: dict[str, Callable[..., Any]] = {
    "lazy": lambda x, storage: DeviceFeatures(x, "cuda", lazy=True, **storage),
    "pinned": lambda x, storage: PinnedFeatures(x, "cuda", **storage),
}


class Bf16Training(Training):
    """Steps under autocast to BF16."""

    def loss_and_logits(self, batch: MiniBatch) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            return super().loss_and_logits(batch)


def storage_of(rows: str, place: str) -> RowOptions:
    """Options of the store. Rows that are gathered have the type of the step."""
    if rows.startswith("float32"):
        return {}
    return {"storage_dtype": rows, "dtype": "bfloat16" if place == "pinned" or rows == "bfloat16" else "float32"}


def measure(place: str, make: Callable[[RowOptions], NodeLoader], args: argparse.Namespace) -> list[dict[str, Any]]:
    loaders = {rows: make(storage_of(rows, place)) for rows in args.rows}
    steps: dict[str, Training] = {}
    ready: dict[str, list[Any]] = {}
    for rows, loader in loaders.items():
        kind = Training if rows == "float32" else Bf16Training
        steps[rows] = kind(args.features, len(FANOUTS), graphed=True)
        ready[rows] = ready_batches(loader, args.alone)
        for _ in range(2):
            steps[rows].epoch(loader)
    seconds: dict[str, dict[str, list[float]]] = {rows: {"epoch_s": [], "training_s": []} for rows in loaders}
    for _ in range(args.rounds):
        for rows, loader in loaders.items():
            seconds[rows]["epoch_s"].append(steps[rows].epoch(loader))
            alone = itertools.islice(itertools.cycle(ready[rows]), len(loader))
            seconds[rows]["training_s"].append(steps[rows].epoch(alone))
    found = []
    first = statistics.median(seconds[args.rows[0]]["epoch_s"])
    for rows, loader in loaders.items():
        row: dict[str, Any] = {"place": place, "rows": rows}
        row |= {name: statistics.median(of) for name, of in seconds[rows].items()}
        row |= {"of_first": row["epoch_s"] / first, "of_training": row["epoch_s"] / row["training_s"]}
        row |= {"replayed": steps[rows].replays.replayed, "batches": len(loader)}
        found.append(row)
        print(row, flush=True)
        loader.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", nargs="+", choices=list(PLACES), default=list(PLACES))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="the first one is compared with")
    parser.add_argument("--nodes", type=int, default=2_449_029)
    parser.add_argument("--edges", type=int, default=123_718_280)
    parser.add_argument("--seeds", type=int, default=196_615)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--alone", type=int, default=24, help="mini-batches that lie ready")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, default=RESULTS / "narrow_epochs_gpu.json")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    graph = products_like(args.nodes, args.edges, "cuda")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(args.nodes, args.features, generator=generator)
    y = torch.randint(NUM_CLASSES, (args.nodes,), generator=generator)
    seeds = torch.randperm(args.nodes, generator=generator)[: args.seeds]
    rows: list[dict[str, Any]] = []
    for place in args.places:

        def make(storage: RowOptions, place: str = place) -> NodeLoader:
            store, sampler = PLACES[place](x, storage), fused(FANOUTS, device="cuda")
            how: dict[str, Any] = {"shuffle": True, "drop_last": True, "prefetch": 2, "device": "cuda"}
            return NodeLoader(graph, store, y, seeds, sampler, args.batch_size, **how)

        rows += measure(place, make, args)
        write_json(args.json, {"gpu": torch.cuda.get_device_name(), "rows": rows})


if __name__ == "__main__":
    main()

"""How long do exact predictions of all nodes take beside an epoch of training alone?

    PYTHONPATH=. python benchmarks/predict_gpu.py
    PYTHONPATH=. python benchmarks/predict_gpu.py --device cpu --nodes 20000 --edges 400000 --seeds 4096 --fanouts 5,5

The graph has the shape of ogbn-products, the network is GraphSAGE with 256 hidden columns. `training_alone_s` is an
epoch's mini-batches, which lie ready in GPU memory, trained by CUDA graphs. `outputs_s` is layer-wise inference of all
nodes, to the logits in host memory; `written_s` also makes a Parquet file of predictions and probabilities. Graph and
features lie in GPU memory (`device`) or in host memory. Rounds take turns; a time is a median.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, ints, write_json
from pipeline_gpu import NUM_CLASSES, Alone, Training, products_like

from loader.loaders.nodes import NodeLoader
from loader.samplers import fused
from loader.stores import DeviceFeatures, FeatureStore, HostFeatures
from models.inference import layerwise_inference
from models.predictions import PredictionFile, class_columns

_PART = 1 << 18  # nodes that are written together


def write(logits: torch.Tensor, path: Path) -> None:
    """As `mode=predict` writes them."""
    classes = list(range(NUM_CLASSES))
    with PredictionFile(path) as file:
        for first in range(0, len(logits), _PART):
            part = logits[first : first + _PART]
            ids = torch.arange(first, first + len(part))
            file.write({"id": ids, **class_columns(part, classes, False)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanouts", type=ints, default=(15, 10, 5))
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--nodes", type=int, default=2_449_029)
    parser.add_argument("--edges", type=int, default=123_718_280)
    parser.add_argument("--seeds", type=int, default=196_615)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-file", action="store_true", help="leave out the time with the file")
    parser.add_argument("--json", type=Path, default=RESULTS / "predict_gpu.json")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    device, on_gpu = options.device, options.device == "cuda"
    graph = products_like(options.nodes, options.edges, device)
    x = torch.randn(options.nodes, options.features, device=device)
    y = torch.randint(NUM_CLASSES, (options.nodes,), generator=torch.Generator().manual_seed(0))
    seeds = torch.randperm(options.nodes, generator=torch.Generator().manual_seed(0))[: options.seeds]
    training = Training(options.features, len(options.fanouts), graphed=on_gpu, device=device)
    store: FeatureStore = DeviceFeatures(x, "cuda", lazy=True) if on_gpu else HostFeatures(x)
    node_loader = NodeLoader(
        graph, store, y, seeds, fused(options.fanouts, device=device), options.batch_size, shuffle=True,
        drop_last=True, prefetch=0, device=device,
    )  # fmt: skip
    alone = Alone(node_loader, training, 24) if on_gpu else None
    places = {"device": (graph, x), "host": (graph.to("cpu"), x.cpu())} if on_gpu else {"host": (graph, x)}
    seconds: dict[str, dict[str, list[float]]] = {place: {"outputs_s": [], "written_s": []} for place in places}
    trained: list[float] = []
    for number in range(options.rounds + 1):  # the first warms up
        if alone is not None:
            alone.run()
            once = alone.seconds["train"][-1] * len(node_loader)
        else:
            begin = time.perf_counter()
            for batch in node_loader:
                training.step(batch)
            once = time.perf_counter() - begin
        for place, (of, rows) in places.items():
            with tempfile.TemporaryDirectory() as folder:
                begin = time.perf_counter()
                logits = layerwise_inference(training.model, of, rows, progress=False)
                reached = time.perf_counter()
                if number and not options.no_file and number <= 2:
                    write(logits, Path(folder) / "predictions.parquet")
                    seconds[place]["written_s"].append(time.perf_counter() - begin)
            if number:
                seconds[place]["outputs_s"].append(reached - begin)
        if number:
            trained.append(once)
    training_alone = statistics.median(trained)
    rows_out: list[dict[str, Any]] = []
    for place, times in seconds.items():
        row: dict[str, Any] = {"graph_and_features": place, "training_alone_s": training_alone}
        row |= {name: statistics.median(values) if values else None for name, values in times.items()}
        row |= {"over_epoch": row["outputs_s"] / training_alone, "outputs_runs_s": times["outputs_s"]}
        rows_out.append(row)
        print({name: value for name, value in row.items() if name != "outputs_runs_s"}, flush=True)
    write_json(
        options.json,
        {
            "gpu": torch.cuda.get_device_name() if on_gpu else None,
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "fanouts": list(options.fanouts),
            "rounds": options.rounds,
            "rows": rows_out,
        },
    )


if __name__ == "__main__":
    main()

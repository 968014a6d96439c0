"""Does R-GCN learn on mini-batches what full-batch training learns, on planted classes of a graph of several types?

    PYTHONPATH=. python benchmarks/planted_types.py --scale 0.1

Accuracy on the test split of `dataset=synthetic-mag`, in percent, of the epoch with the best accuracy on the validation
split. "ours" is `train.py model=rgcn` with fanouts (25, 20). "full batch" is the same model of torch_geometric's layers
on the whole graph: `HeteroConv` of `SAGEConv`, and a linear layer per type for the nodes themselves; it is evaluated
every fifth step. What nobody exceeds, as a share of labels is drawn anew, is "most".
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, ROOT, write_json
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from rgcn_gpu import TheirNet
from torch import Tensor
from torch.nn import functional as F

from loader.datasets import HeteroDataset

LAYERS, FANOUTS, EVERY = 2, (25, 20), 5


class WholeGraph(TheirNet):
    """The model on all nodes of a graph, of which it keeps features and edges."""

    def __init__(self, data: HeteroDataset, device: str) -> None:
        x = {name: torch.as_tensor(data.features[name]).float() for name in data.graph.node_types}
        sizes = {
            "num_features": {name: rows.shape[1] for name, rows in x.items()}, "num_classes": data.num_classes,
            "edge_types": list(data.graph.edge_types), "target": data.target,
        }  # fmt: skip
        super().__init__(sizes, LAYERS)
        self.x, self.edges = {name: rows.to(device) for name, rows in x.items()}, dict[Any, Tensor]()
        for key in data.graph.edge_types:
            one = data.graph.relation(key)
            sinks = torch.arange(one.num_dst).repeat_interleave(one.in_degrees().long())
            self.edges[key] = torch.stack([one.indices.long(), sinks]).to(device)

    def logits(self) -> Tensor:
        """`[nodes, classes]` of the target type."""
        x = self.projected(self.x)
        for i in range(LAYERS):
            x = self.layer(i, x, self.edges)
        return x[self.target]


def full_batch(data: HeteroDataset, steps: int, lr: float, device: str, seed: int) -> dict[str, float]:
    """Accuracy, in percent, and seconds."""
    torch.manual_seed(seed)
    net = WholeGraph(data, device).to(device)
    adam = torch.optim.Adam(net.parameters(), lr)
    labels = data.labels.to(device)
    splits = {name: ids.to(device) for name, ids in data.splits.items()}
    best, begin = {"val": -1.0, "test": 0.0, "step": -1}, time.perf_counter()
    for step in range(steps):
        adam.zero_grad()
        F.cross_entropy(net.train().logits()[splits["train"]], labels[splits["train"]]).backward()
        adam.step()
        if step % EVERY and step < steps - 1:
            continue
        with torch.inference_mode():
            right = net.eval().logits().argmax(-1) == labels
        found = {name: 100 * float(right[ids].double().mean()) for name, ids in splits.items()}
        if found["val"] > best["val"]:
            best = {"val": found["val"], "test": found["test"], "step": step}
    return {**best, "seconds": time.perf_counter() - begin}


def dataset_options(arguments: argparse.Namespace) -> list[str]:
    """Those of train.py that say which dataset it is."""
    return ["dataset=synthetic-mag", f"dataset.scale={arguments.scale}", f"cache_dir={arguments.cache_dir}"]


def by_train_py(arguments: argparse.Namespace, seed: int, folder: Path) -> dict[str, float]:
    """The same of a job of train.py."""
    command = [
        *(sys.executable, str(ROOT / "train.py"), *dataset_options(arguments)),
        *("model=rgcn", f"sampler.fanouts={list(FANOUTS)}", f"trainer.max_epochs={arguments.epochs}", f"seed={seed}"),
        *(f"device={arguments.device}", f"hydra.run.dir={folder}"),
    ]
    begin = time.perf_counter()
    subprocess.run(command, check=True)
    took = time.perf_counter() - begin
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return {"test": 100 * result["metrics"]["test/acc"], "seconds": took}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cache-dir", type=Path, default=Path("data/cache"))
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0 (3)")
    parser.add_argument("--epochs", type=int, default=20, help="of ours (20)")
    parser.add_argument("--steps", type=int, default=500, help="of full-batch training (500)")
    parser.add_argument("--lr", type=float, default=0.01, help="of full-batch training (0.01)")
    parser.add_argument("--json", type=Path, default=RESULTS / "planted_types.json")
    arguments = parser.parse_args()
    with initialize_config_dir(str(ROOT / "conf"), version_base=None):
        dataset = compose("train", dataset_options(arguments)).dataset
    data, rows = instantiate(dataset).load(), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.seeds):
            whole = full_batch(data, arguments.steps, arguments.lr, arguments.device, seed)
            print(seed, "full batch", whole, flush=True)
            ours = by_train_py(arguments, seed, Path(folder) / str(seed))
            print(seed, "ours", ours, flush=True)
            rows.append({"seed": seed, "ours": ours, "full_batch": whole})
    means = {side: statistics.mean(row[side]["test"] for row in rows) for side in ("ours", "full_batch")}
    share = means["ours"] / means["full_batch"]
    print(f"{means['ours']:.1f} of {means['full_batch']:.1f} %: {share:.3f}", flush=True)
    write_json(
        arguments.json,
        {
            "gpu": torch.cuda.get_device_name() if arguments.device == "cuda" else None, "scale": arguments.scale,
            "seeds": arguments.seeds, "epochs": arguments.epochs, "steps": arguments.steps, "lr": arguments.lr,
            "most": 100 * (1 - dataset.label_noise), "means": means, "share": share, "rows": rows,
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()

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
from rgcn_gpu import TheirLayers
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import HeteroConv, SAGEConv

from loader.datasets import HeteroDataset
from models.synthetic import TypedSyntheticDataset

HIDDEN, LAYERS, FANOUTS, EVERY = 64, 2, (25, 20), 5
CLASSES, LABEL_NOISE, SPLIT = 349, 0.1, (0.85494351, 0.08810425, 0.05695224)  # as conf/dataset/synthetic-mag.yaml


class WholeGraph(TheirLayers):
    """The model on all nodes of a graph, of which it keeps features and edges."""

    def __init__(self, data: HeteroDataset, device: str) -> None:
        super().__init__()
        self.target, self.x, self.edges = data.target, dict[str, Tensor](), dict[Any, Tensor]()
        for name in data.graph.node_types:
            self.x[name] = torch.as_tensor(data.features[name]).float().to(device)
        for key in data.graph.edge_types:
            one = data.graph.relation(key)
            sinks = torch.arange(one.num_dst).repeat_interleave(one.in_degrees().long())
            self.edges[key] = torch.stack([one.indices.long(), sinks]).to(device)
        self.inputs = nn.ModuleDict({name: nn.Linear(x.shape[1], HIDDEN) for name, x in self.x.items()})
        self.convs, self.own = nn.ModuleList(), nn.ModuleList()
        for out in [HIDDEN] * (LAYERS - 1) + [data.num_classes]:
            into = {
                key: SAGEConv((HIDDEN, HIDDEN), out, aggr="mean", root_weight=False, bias=False) for key in self.edges
            }
            self.convs.append(HeteroConv(into, "sum"))
            self.own.append(nn.ModuleDict({name: nn.Linear(HIDDEN, out) for name in self.x}))

    def forward(self) -> Tensor:
        x = {name: layer(self.x[name]) for name, layer in self.inputs.items()}
        layers: Any = zip(self.convs, self.own, strict=True)
        for i, (conv, own) in enumerate(layers):
            sums = conv(x, self.edges)
            x = {name: own[name](rows) + sums[name] if name in sums else own[name](rows) for name, rows in x.items()}
            if i < LAYERS - 1:
                x = {name: F.dropout(rows.relu(), 0.5, self.training) for name, rows in x.items()}
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
        F.cross_entropy(net.train()()[splits["train"]], labels[splits["train"]]).backward()
        adam.step()
        if step % EVERY and step < steps - 1:
            continue
        with torch.inference_mode():
            right = net.eval()().argmax(-1) == labels
        found = {name: 100 * float(right[ids].double().mean()) for name, ids in splits.items()}
        if found["val"] > best["val"]:
            best = {"val": found["val"], "test": found["test"], "step": step}
    return {**best, "seconds": time.perf_counter() - begin}


def by_train_py(arguments: argparse.Namespace, seed: int, folder: Path) -> dict[str, float]:
    """The same of a job of train.py."""
    command = [
        *(sys.executable, str(ROOT / "train.py"), "dataset=synthetic-mag", f"dataset.scale={arguments.scale}"),
        *("model=rgcn", f"sampler.fanouts={list(FANOUTS)}", f"trainer.max_epochs={arguments.epochs}", f"seed={seed}"),
        *(f"device={arguments.device}", f"cache_dir={arguments.cache_dir}", f"hydra.run.dir={folder}"),
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
    dataset = TypedSyntheticDataset(
        "synthetic-mag", shape="mag", scale=arguments.scale, num_classes=CLASSES, label_noise=LABEL_NOISE, split=SPLIT,
        cache_dir=arguments.cache_dir, check_features=False,
    )  # fmt: skip
    data, rows = dataset.load(), list[dict[str, Any]]()
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
            "most": 100 * (1 - LABEL_NOISE), "means": means, "share": share, "rows": rows,
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()

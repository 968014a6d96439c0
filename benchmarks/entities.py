"""Does R-GCN learn on entities what torch_geometric's own model learns?

    PYTHONPATH=. python benchmarks/entities.py --data-dir DATA

Test accuracy on AIFB and MUTAG after the last epoch, in percent, by the settings of torch_geometric's example
(conf/experiment/entities.yaml): all neighbors, two layers, one-hot features. "theirs" is two layers of
`torch_geometric.nn.FastRGCNConv` on the subgraph of two hops around all labelled nodes. "ours" is `models.rgcn` on
mini-batches of `loader.NodeLoader`, with `trained_rows=one-hot`; for a seed both begin with the same weights. "table"
is our model with `trained_rows=16`: learned rows in place of features. The models take turns.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import RESULTS, ROOT, write_json
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch_geometric.nn import FastRGCNConv
from torch_geometric.utils import k_hop_subgraph

from loader.datasets import HeteroDataset
from loader.loaders import NodeLoader
from models.rgcn import RGCN
from models.trained_rows import rows_in

DATASETS = ("aifb", "mutag")
SIDES = ("ours", "theirs", "table")
# Mean and standard deviation over 10 runs in Schlichtkrull et al. 2018, table 2.
PUBLISHED = {"aifb": (95.83, 0.62), "mutag": (73.23, 0.48)}


class Theirs(nn.Module):
    """The network of torch_geometric's example, on the nodes that the labelled ones need.

    Attributes:
        nodes: `[n]` ids of these nodes.
        place: id -> place among them.
    """

    def __init__(self, data: HeteroDataset, config: Any) -> None:
        super().__init__()
        graph, model = data.graph, config.model
        ends, types = [], []
        for r, key in enumerate(graph.edge_types):
            one = graph.relation(key)
            sinks = torch.arange(one.num_dst).repeat_interleave(one.in_degrees().long())
            ends.append(torch.stack([one.indices.long(), sinks]))
            types.append(torch.full_like(sinks, r))
        seeds = torch.cat([data.splits["train"], data.splits["test"]])
        size = len(graph.node_types[data.target])
        self.nodes, self.ends, _, inside = k_hop_subgraph(
            seeds, 2, torch.cat(ends, 1), relabel_nodes=True, num_nodes=size
        )
        self.types = torch.cat(types)[inside]
        self.place = torch.full((size,), -1)
        self.place[self.nodes] = torch.arange(len(self.nodes))
        relations = len(graph.edge_types)
        self.first = FastRGCNConv(len(self.nodes), model.hidden_channels, relations, num_bases=model.bases)
        self.second = FastRGCNConv(model.hidden_channels, data.num_classes, relations, num_bases=model.bases)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits `[len(ids), num_classes]`."""
        x = self.first(None, self.ends, self.types).relu()
        logits: Tensor = self.second(x, self.ends, self.types)[self.place[ids]]
        return logits

    @torch.no_grad()
    def hand_weights_to(self, net: RGCN) -> None:
        """Gives our model the weights. Rows of nodes beyond the subgraph, which nobody reads, stay."""
        first, second = self.first, self.second
        assert net.one_hot is not None
        (rows,) = rows_in(net)
        of_nodes = torch.cat([first.weight, first.root.unsqueeze(0)]).transpose(0, 1)
        rows[self.nodes] = of_nodes.reshape(len(self.nodes), -1)
        net.bias[0][0].copy_(first.bias)
        net.own[1][0].copy_(second.root.t())
        for mine, given in zip(net.shares, (first.comp, second.comp), strict=True):
            mine.copy_(given)
        net.weights[1].copy_(second.weight)
        net.bias[1][0].copy_(second.bias)


def accuracy_of(logits: Tensor, labels: Tensor) -> float:
    return float(100 * (logits.argmax(-1) == labels).double().mean())


def train_theirs(net: Theirs, data: HeteroDataset, config: Any) -> float:
    """Test accuracy after the last epoch."""
    adam = torch.optim.Adam(net.parameters(), config.model.lr, weight_decay=config.model.weight_decay)
    train, test = data.splits["train"], data.splits["test"]
    for _ in range(config.trainer.max_epochs):
        adam.zero_grad()
        nn.functional.cross_entropy(net(train), data.labels[train]).backward()
        adam.step()
    net.eval()
    with torch.inference_mode():
        return accuracy_of(net(test), data.labels[test])


def train_ours(module: Any, data: HeteroDataset, config: Any, seed: int) -> float:
    """The same of our model, on mini-batches, by the optimizer of its class."""
    loaders = [
        NodeLoader(
            data.graph,
            {},
            data.labels,
            (data.target, data.splits[split]),
            instantiate(config.sampler, device="cpu", seed=seed, num_threads=1),
            config.datamodule.batch_size,
            seed=seed,
        )
        for split in ("train", "test")
    ]
    optimizer = module.configure_optimizers()
    for _ in range(config.trainer.max_epochs):
        for batch in loaders[0]:
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(batch), batch.y).backward()
            optimizer.step()
    module.eval()
    (batch,) = loaders[1]
    with torch.inference_mode():
        return accuracy_of(module(batch), batch.y)


def module_of(data: HeteroDataset, config: Any, trained_rows: Any) -> Any:
    """Our model."""
    sizes = {name: len(ids) for name, ids in data.graph.node_types.items()}
    return instantiate(
        config.model,
        num_features=dict.fromkeys(sizes, 0),
        num_classes=data.num_classes,
        edge_types=list(data.graph.edge_types),
        target=data.target,
        num_nodes=sizes,
        trained_rows=trained_rows,
    )


def compare_models(arguments: argparse.Namespace, dataset: str) -> dict[str, Any]:
    """One row of the result."""
    overrides = [f"dataset={dataset}", "experiment=entities", f"data_dir={arguments.data_dir}", "device=cpu"]
    overrides += [] if arguments.cache_dir is None else [f"cache_dir={arguments.cache_dir}"]
    with initialize_config_dir(str(ROOT / "conf"), version_base=None):
        config = compose("train", overrides)
    data = instantiate(config.dataset).load()
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    for seed in range(arguments.seeds):
        torch.manual_seed(seed)
        theirs, ours = Theirs(data, config), module_of(data, config, "one-hot")
        theirs.hand_weights_to(ours.net)
        table = module_of(data, config, config.model.hidden_channels)
        found["ours"].append(train_ours(ours, data, config, seed))
        found["theirs"].append(train_theirs(theirs, data, config))
        found["table"].append(train_ours(table, data, config, seed))
        print(dataset, "seed", seed, {side: round(of[-1], 2) for side, of in found.items()}, flush=True)
    mean, deviation = PUBLISHED[dataset]
    return {
        "dataset": dataset,
        "epochs": config.trainer.max_epochs,
        "hidden": config.model.hidden_channels,
        "bases": config.model.bases,
        "lr": config.model.lr,
        "weight_decay": config.model.weight_decay,
        "train": len(data.splits["train"]),
        "test": len(data.splits["test"]),
        **{side: {"accuracy": [round(one, 3) for one in of], "mean": round(float(np.mean(of)), 3),
                  "std": round(float(np.std(of, ddof=1)), 3)} for side, of in found.items()},
        "difference": round(float(np.mean(found["ours"]) - np.mean(found["theirs"])), 3),
        "published_mean": mean,
        "published_std": deviation,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="data", help="folder with aifb/ and mutag/ (default: data)")
    parser.add_argument("--cache-dir", default=None, help="folder of converted datasets (default: data-dir/cache)")
    parser.add_argument("--datasets", nargs="+", default=DATASETS, choices=DATASETS)
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds, from 0 (10)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (1)")
    parser.add_argument("--json", type=Path, default=RESULTS / "entities.json")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = [compare_models(arguments, dataset) for dataset in arguments.datasets]
    table = Table("dataset", "one-hot", "torch_geometric's", "difference", "table", "published")
    for row in rows:
        means = {side: f"{row[side]['mean']:.2f} ± {row[side]['std']:.2f}" for side in SIDES}
        published = f"{row['published_mean']} ± {row['published_std']}"
        table.add_row(
            row["dataset"], means["ours"], means["theirs"], f"{row['difference']:+.2f}", means["table"], published
        )
    Console(width=120).print(table)
    write_json(arguments.json, {"benchmark": "entities", "seeds": arguments.seeds, "rows": rows})


if __name__ == "__main__":
    main()

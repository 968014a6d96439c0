"""Does a model for types learn with our loader what it learns with torch_geometric's?

    PYTHONPATH=. python benchmarks/hetero_accuracy.py --data-dir DATA

Macro-F1 on the test split of DBLP and IMDB, in percent, on the whole graph; of the last epochs it is that with the best
accuracy on the validation split. Both loaders train the same classes of torch_geometric, with the options that
`train.py` has by default, but for the number of epochs. Both begin with the same weights for a seed. torch_geometric's
`NeighborLoader` samples by our core (`import loader.pyg`), ours is `loader.NodeLoader`. The runs take turns. Two
one-sided tests of the paired differences say whether the mean difference is below the margin.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import RESULTS, ROOT, write_json
from _intervals import compare_pairs
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from rich.console import Console
from rich.table import Table
from torch import nn
from torch_geometric.data import HeteroData

import loader.pyg  # noqa: F401, so that our core samples for torch_geometric
from loader.datasets import HeteroDataset
from loader.loaders import NodeLoader
from loader.pyg.backend import backend
from models.hetero import HeteroNet

DATASETS = ("dblp", "imdb")
MODELS = ("to_hetero", "hgt")
SIDES = ("ours", "theirs")
LAST = 5  # epochs after which a model is evaluated
# Macro-F1 of MAGNN in Fu et al. 2020, table 3: a linear SVM on 20 to 80 % of the test split's embeddings.
PUBLISHED = {"dblp": (93.13, 94.10), "imdb": (59.35, 61.44)}


def as_pyg(data: HeteroDataset) -> HeteroData:
    """The dataset as torch_geometric's loader takes it. A type without features has 1 as its only one."""
    made = HeteroData()
    for name, ids in data.graph.node_types.items():
        made[name].x = torch.as_tensor(data.features.get(name, torch.ones(len(ids), 1)))
    made[data.target].y = data.labels
    for key in data.graph.edge_types:
        one = data.graph.relation(key)
        sinks = torch.arange(one.num_dst).repeat_interleave(one.in_degrees().long())
        made[key].edge_index = torch.stack([one.indices.long(), sinks])
    return made


def macro_f1(found: torch.Tensor, truth: torch.Tensor, num_classes: int) -> float:
    """The mean over the classes of their F1 scores, in percent."""
    hits, predicted, true = (
        torch.bincount(c, minlength=num_classes).double() for c in (truth[found == truth], found, truth)
    )
    return float(100 * (2 * hits / (predicted + true).clamp(min=1)).mean())


def batches_of(
    side: str, data: HeteroDataset, whole: HeteroData, config: Any, seed: int
) -> Callable[[], Iterable[Any]]:
    """A function that gives the `HeteroData` of an epoch."""
    seeds, size = (data.target, data.splits["train"]), config.datamodule.batch_size
    if side == "ours":
        features = {name: torch.as_tensor(rows) for name, rows in data.features.items()}
        sampler = instantiate(config.sampler, device="cpu", seed=seed, num_threads=1)
        ours = NodeLoader(data.graph, features, data.labels, seeds, sampler, size, shuffle=True, seed=seed)
        return lambda: (batch.to_pyg() for batch in ours)
    from torch_geometric.loader import NeighborLoader

    if (sampled_by := backend()) != "loader":
        raise SystemExit(f"{sampled_by} samples for torch_geometric here; uninstall it, so that our core does")
    fanouts = [config.sampler.fanouts] * config.model.num_layers
    theirs = NeighborLoader(whole, fanouts, seeds, batch_size=size, shuffle=True)
    return lambda: theirs


def train(
    side: str, data: HeteroDataset, whole: HeteroData, config: Any, epochs: int, seed: int
) -> tuple[float, float, int]:
    """Macro-F1 on the test split, accuracy on the validation split, and the epoch that they are of."""
    torch.manual_seed(seed)
    module = instantiate(
        config.model,
        num_features={name: data.features[name].shape[1] if name in data.features else 0 for name in whole.node_types},
        num_classes=data.num_classes,
        edge_types=list(data.graph.edge_types),
        target=data.target,
    )
    net: HeteroNet = module.net
    adam = torch.optim.Adam(net.parameters(), config.model.lr, weight_decay=config.model.weight_decay)
    epoch_of = batches_of(side, data, whole, config, seed)
    torch.manual_seed(seed)
    best = (0.0, -1.0, -1)
    for epoch in range(epochs):
        net.train()
        for batch in epoch_of():
            size = batch[data.target].batch_size
            x = {
                name: batch[name].x if "x" in batch[name] else torch.ones(batch[name].num_nodes, 1)
                for name in net.in_dims
            }
            adam.zero_grad()
            logits = net.outputs(x, batch.edge_index_dict)[:size]
            nn.functional.cross_entropy(logits, batch[data.target].y[:size]).backward()
            adam.step()
        if epoch < epochs - LAST:
            continue
        net.eval()
        with torch.inference_mode():
            found = net.outputs(whole.x_dict, whole.edge_index_dict).argmax(-1)
        val, test = data.splits["val"], data.splits["test"]
        accuracy = float((found[val] == data.labels[val]).double().mean())
        if accuracy > best[1]:
            best = macro_f1(found[test], data.labels[test], data.num_classes), accuracy, epoch
    return best


def compare_loaders(arguments: argparse.Namespace, dataset: str, model: str) -> dict[str, Any]:
    """One row of the result."""
    overrides = [f"dataset={dataset}", f"model={model}", f"data_dir={arguments.data_dir}", "device=cpu"]
    overrides += [] if arguments.cache_dir is None else [f"cache_dir={arguments.cache_dir}"]
    with initialize_config_dir(str(ROOT / "conf"), version_base=None):
        config = compose("train", overrides)
    data = instantiate(config.dataset).load()
    whole = as_pyg(data)
    f1: dict[str, list[float]] = {side: [] for side in SIDES}
    for seed in range(arguments.seeds):
        for side in SIDES:
            score, accuracy, epoch = train(side, data, whole, config, arguments.epochs, seed)
            f1[side].append(round(score, 3))
            print(
                f"{dataset} {model} seed {seed} {side}: {score:.2f} (val {accuracy:.4f}, epoch {epoch + 1})", flush=True
            )
    low, high = PUBLISHED[dataset]
    return {
        "dataset": dataset,
        "model": model,
        "epochs": arguments.epochs,
        "batch_size": config.datamodule.batch_size,
        "fanout": config.sampler.fanouts,
        "hidden": config.model.hidden_channels,
        "layers": config.model.num_layers,
        "lr": config.model.lr,
        **{side: {"f1": of, "mean": round(float(np.mean(of)), 3), "std": round(float(np.std(of, ddof=1)), 3)}
           for side, of in f1.items()},
        "difference": vars(compare_pairs(f1["ours"], f1["theirs"], arguments.margin, arguments.level)),
        "published": [low, high],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="data", help="folder with dblp/ and imdb/ (default: data)")
    parser.add_argument("--cache-dir", default=None, help="folder of converted datasets (default: data-dir/cache)")
    parser.add_argument("--datasets", nargs="+", default=DATASETS, choices=DATASETS)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds, from 0 (10)")
    parser.add_argument("--epochs", type=int, default=15, help=f"at least {LAST} (15)")
    parser.add_argument("--margin", type=float, default=1.5, help="points of macro-F1 that do not matter (1.5)")
    parser.add_argument("--level", type=float, default=0.95)
    parser.add_argument("--threads", type=int, default=2, help="of torch (2)")
    parser.add_argument("--json", type=Path, default=RESULTS / "hetero_accuracy.json")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = [compare_loaders(arguments, dataset, model) for dataset in arguments.datasets for model in arguments.models]
    table = Table("dataset", "model", "ours", "torch_geometric's", "difference", "equivalent", "published")
    for row in rows:
        d = row["difference"]
        table.add_row(
            row["dataset"],
            row["model"],
            *(f"{row[side]['mean']:.2f} ± {row[side]['std']:.2f}" for side in SIDES),
            f"{d['value']:+.2f} [{d['low']:+.2f}, {d['high']:+.2f}]",
            f"{'yes' if d['equivalent'] else 'not shown'} (p {d['p_equivalent']:.2g})",
            "{} to {}".format(*row["published"]),
        )
    Console(width=140).print(table)
    write_json(
        arguments.json,
        {
            "benchmark": "hetero_accuracy",
            "seeds": arguments.seeds,
            "margin": arguments.margin,
            "level": arguments.level,
            "rows": rows,
        },
    )


if __name__ == "__main__":
    main()

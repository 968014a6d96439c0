"""Does a model learn from our induced subgraphs what it learns from those of DGL and torch_geometric?

    PYTHONPATH=. python benchmarks/subgraph_accuracy.py --data-dir DATA

Test accuracy on coauthor-physics, in percent, of GraphSAGE with two layers that is trained on subgraphs:

- `shadow-pyg`: ego graphs, one for each node, of `loader.pyg.ShaDowKHopSampler`, beside the law of torch_geometric's
  class in NumPy. Its own class needs torch-sparse.
- `shadow-dgl`: one subgraph for each mini-batch, of `loader.dgl.ShaDowKHopSampler`, beside DGL's own.
- `cluster`: `loader.pyg.ClusterData` and `ClusterLoader` (METIS by pymetis), beside DGL's own `ClusterGCNSampler`, with
  DGL's own METIS.

Each seed draws a split (100 nodes of each class to train, 100 to validate, the rest to test) and the first weights,
both the same for the two sides. Counted is the epoch with the best loss on the validation nodes. ShaDow is tested on
ego graphs of its own sampler, Cluster-GCN on the whole graph. Two one-sided tests of the paired differences say whether
the mean difference is below the margin. With `--device cuda --jobs 8` models and our mini-batches are on a GPU.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from _common import RESULTS, ROOT, write_json
from _intervals import compare_pairs
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from loader.datasets import NodeDataset, open_dataset
from loader.graph import Graph

METHODS = ("shadow-pyg", "shadow-dgl", "cluster")
SIDES = ("ours", "theirs")
HIDDEN, DROPOUT, RATE, DECAY = 64, 0.5, 0.01, 5e-4
NODES = 100  # of each class in the training and in the validation split
DEPTH, NEIGHBORS, ROOTS = 2, 10, 50  # of ShaDow: hops, picks, nodes of a training mini-batch
PARTS, TOGETHER = 50, 5  # of Cluster-GCN: parts, and parts of a mini-batch
TESTED = 1000  # ego graphs of a mini-batch without gradients


class Part(NamedTuple):
    """A subgraph: nodes `[n]`, edges `[2, E]` (source, target) as places among them, and `[r]` places of those asked
    for.
    """

    nodes: Tensor
    edge_index: Tensor
    roots: Tensor


class Rows:
    """Features that are mostly 0, by the places that are not."""

    def __init__(self, features: np.ndarray, device: torch.device) -> None:
        row, column = np.nonzero(features)
        self.columns = torch.from_numpy(column).to(device)
        self.values = torch.from_numpy(features[row, column]).to(device)
        counts = torch.from_numpy(np.bincount(row, minlength=len(features)))
        self.ends = counts.cumsum(0).to(device)
        self.counts = counts.to(device)

    def times(self, nodes: Tensor, weight: Tensor) -> Tensor:
        """The product of the nodes' rows and a matrix."""
        lengths = self.counts[nodes]
        ends = lengths.cumsum(0)
        places = torch.arange(int(lengths.sum()), device=nodes.device)
        places += (self.ends[nodes] - ends).repeat_interleave(lengths)
        return nn.functional.embedding_bag(
            self.columns[places], weight, ends - lengths, mode="sum", per_sample_weights=self.values[places]
        )


class Sage(nn.Module):
    """GraphSAGE with means, two layers. Rows are multiplied before they are averaged, which is the same."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.first = nn.Parameter(nn.init.xavier_uniform_(torch.empty(num_features, 2 * HIDDEN)))
        self.bias = nn.Parameter(torch.zeros(HIDDEN))
        self.second = nn.Linear(HIDDEN, 2 * num_classes)

    def forward(self, rows: Rows, nodes: Tensor, edge_index: Tensor) -> Tensor:
        hidden = _averaged(rows.times(nodes, self.first), edge_index) + self.bias
        hidden = nn.functional.dropout(hidden.relu(), DROPOUT, self.training)
        return _averaged(self.second(hidden), edge_index)


def _averaged(both: Tensor, edge_index: Tensor) -> Tensor:
    """The left half of each row, and the mean of the right halves of its neighbors."""
    own, of_others = both.chunk(2, 1)
    source, target = edge_index
    degrees = torch.bincount(target, minlength=len(own)).clamp(min=1)
    return own + torch.zeros_like(own).index_add(0, target, of_others[source]) / degrees[:, None]


class EgoGraphs:
    """torch_geometric's law of ego graphs: each copy of a node in the tree of a root is expanded by itself.

    A list that has at most `NEIGHBORS` entries is taken whole; of others that many are picked, all sets equally likely.
    """

    def __init__(self, graph: Graph, seed: int) -> None:
        self._indptr, self._indices = graph.indptr.numpy(), graph.indices.numpy().astype(np.int64)
        self._rng = np.random.default_rng(seed)
        self._num_nodes = graph.num_nodes

    def _lists(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each entry of the nodes' lists, which of them it is of, and the neighbor."""
        starts, counts = self._indptr[nodes], np.diff(self._indptr)[nodes]
        owner = np.repeat(np.arange(len(nodes)), counts)
        places = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(starts, counts)
        return owner, self._indices[places]

    def around(self, roots: np.ndarray) -> Part:
        tree, node = np.arange(len(roots)), roots
        found = [tree * self._num_nodes + node]
        for _ in range(DEPTH):
            owner, neighbor = self._lists(node)
            order = np.lexsort((self._rng.random(len(owner)), owner))
            owner, neighbor = owner[order], neighbor[order]
            place = np.arange(len(owner)) - np.searchsorted(owner, owner)
            picked = place < NEIGHBORS
            tree, node = tree[owner[picked]], neighbor[picked]
            found.append(tree * self._num_nodes + node)
        both = np.unique(np.concatenate(found))
        tree, node = np.divmod(both, self._num_nodes)
        owner, neighbor = self._lists(node)
        wanted = tree[owner] * self._num_nodes + neighbor
        place = np.searchsorted(both, wanted).clip(max=len(both) - 1)
        inside = both[place] == wanted
        at = np.searchsorted(both, np.arange(len(roots)) * self._num_nodes + roots)
        return Part(*map(torch.from_numpy, (node, np.stack([place[inside], owner[inside]]), at)))


class Subgraphs:
    """Mini-batches of one side: base of the four classes below."""

    def training(self) -> Iterator[Part]:
        """An epoch of training."""
        raise NotImplementedError

    def around(self, nodes: Tensor) -> Iterator[Part]:
        """Mini-batches whose roots are `nodes`, in order."""
        raise NotImplementedError


class PygShadow(Subgraphs):
    """`shadow-pyg`."""

    def __init__(self, side: str, data: NodeDataset, seed: int, device: torch.device) -> None:
        self._train, self._seed, self._device, self._epoch = data.splits["train"], seed, device, 0
        self._law = EgoGraphs(data.graph, seed) if side == "theirs" else None
        if side == "ours":
            self._data = pyg_data(data)
            self._ours = self._loader(self._train, ROOTS, shuffle=True)

    def _loader(self, nodes: Tensor, batch_size: int, shuffle: bool) -> Any:
        from loader.pyg import ShaDowKHopSampler

        return ShaDowKHopSampler(
            self._data, DEPTH, NEIGHBORS, nodes, batch_size=batch_size, shuffle=shuffle, device=self._device,
            seed=self._seed,
        )  # fmt: skip

    def training(self) -> Iterator[Part]:
        if self._law is None:
            return (Part(batch.number, batch.edge_index, batch.root_n_id) for batch in self._ours)
        nodes = self._train[torch.randperm(len(self._train))].numpy()
        return (self._law.around(nodes[i : i + ROOTS]) for i in range(0, len(nodes), ROOTS))

    def around(self, nodes: Tensor) -> Iterator[Part]:
        if self._law is not None:
            yield from map(self._law.around, np.split(nodes.numpy(), range(TESTED, len(nodes), TESTED)))
            return
        for batch in self._loader(nodes, TESTED, shuffle=False):
            yield Part(batch.number, batch.edge_index, batch.root_n_id)


class DglShadow(Subgraphs):
    """`shadow-dgl`."""

    def __init__(self, side: str, data: NodeDataset, seed: int, device: torch.device) -> None:
        import dgl.dataloading

        import loader.dgl

        dgl.seed(seed)
        self._graph, self._train = dgl_graph(data), data.splits["train"]
        self._of: Any = loader.dgl if side == "ours" else dgl.dataloading
        self._ours = self._loader(self._train, ROOTS, shuffle=True)

    def _loader(self, nodes: Tensor, batch_size: int, shuffle: bool) -> Any:
        sampler = self._of.ShaDowKHopSampler([NEIGHBORS] * DEPTH)
        return self._of.DataLoader(self._graph, nodes, sampler, batch_size=batch_size, shuffle=shuffle)

    def _parts(self, batches: Any) -> Iterator[Part]:
        for nodes, roots, part in batches:
            yield Part(nodes, torch.stack(part.edges()), torch.arange(len(roots)))

    def training(self) -> Iterator[Part]:
        return self._parts(self._ours)

    def around(self, nodes: Tensor) -> Iterator[Part]:
        return self._parts(self._loader(nodes, TESTED, shuffle=False))


class Cluster(Subgraphs):
    """`cluster`. The roots of a part are its training nodes; validation and test are on the whole graph."""

    def __init__(self, side: str, data: NodeDataset, seed: int, device: torch.device) -> None:
        self._whole, self._is_train = pyg_data(data), torch.zeros(data.graph.num_nodes, dtype=torch.bool)
        self._is_train[data.splits["train"]] = True
        self._of_pyg = side == "ours"
        if side == "ours":
            from loader.pyg import ClusterData, ClusterLoader

            order = torch.Generator().manual_seed(seed)
            parts = ClusterData(self._whole, PARTS, log=False)
            self._batches: Any = ClusterLoader(parts, batch_size=TOGETHER, shuffle=True, generator=order, device=device)
            return
        import dgl.dataloading

        with tempfile.TemporaryDirectory() as folder:
            sampler = dgl.dataloading.ClusterGCNSampler(dgl_graph(data), PARTS, cache_path=f"{folder}/parts.pkl")
        graph = dgl_graph(data)
        self._batches = dgl.dataloading.DataLoader(
            graph, torch.arange(PARTS), sampler, batch_size=TOGETHER, shuffle=True
        )

    def training(self) -> Iterator[Part]:
        import dgl

        for batch in self._batches:
            nodes = batch.number if self._of_pyg else batch.ndata[dgl.NID]
            edge_index = batch.edge_index if self._of_pyg else torch.stack(batch.edges())
            roots = self._is_train[nodes.cpu()].nonzero().view(-1)
            if len(roots):
                yield Part(nodes, edge_index, roots)

    def around(self, nodes: Tensor) -> Iterator[Part]:
        yield Part(self._whole.number, self._whole.edge_index, nodes)


KINDS: dict[str, type[Any]] = {"shadow-pyg": PygShadow, "shadow-dgl": DglShadow, "cluster": Cluster}


def pyg_data(data: NodeDataset) -> Any:
    """The graph, whose nodes know their numbers."""
    from torch_geometric.data import Data

    graph = data.graph
    target = torch.arange(graph.num_nodes).repeat_interleave(graph.in_degrees().long())
    pairs = torch.stack([graph.indices.long(), target])
    return Data(edge_index=pairs, number=torch.arange(graph.num_nodes), num_nodes=graph.num_nodes)


def dgl_graph(data: NodeDataset) -> Any:
    import dgl

    return dgl.graph(tuple(pyg_data(data).edge_index), num_nodes=data.graph.num_nodes)


def train(
    kind: str, side: str, data: NodeDataset, rows: Rows, epochs: int, seed: int, device: torch.device
) -> dict[str, Any]:
    """Accuracy on the test split, in percent, and the epoch that it is of."""
    torch.manual_seed(seed)
    net = Sage(data.num_features, data.num_classes).to(device)
    adam = torch.optim.Adam(net.parameters(), RATE, weight_decay=DECAY)
    torch.manual_seed(seed)
    made: Subgraphs = KINDS[kind](side, data, seed, device)
    labels = torch.as_tensor(data.labels).long().to(device)

    def outputs(part: Part) -> tuple[Tensor, Tensor]:
        nodes, edge_index, roots = (each.to(device) for each in part)
        return net(rows, nodes, edge_index)[roots], labels[nodes[roots]]

    def tested(split: str) -> tuple[float, float]:
        net.eval()
        with torch.inference_mode():
            found = [outputs(part) for part in made.around(data.splits[split])]
        logits, truth = (torch.cat(each) for each in zip(*found, strict=True))
        loss = float(nn.functional.cross_entropy(logits, truth))
        return loss, 100 * float((logits.argmax(1) == truth).double().mean())

    best: tuple[float, int, Any] = (float("inf"), -1, None)
    for epoch in range(epochs):
        net.train()
        for part in made.training():
            adam.zero_grad()
            nn.functional.cross_entropy(*outputs(part)).backward()
            adam.step()
        loss, _ = tested("val")
        if loss < best[0]:
            best = loss, epoch, copy.deepcopy(net.state_dict())
    net.load_state_dict(best[2])
    return {"accuracy": round(tested("test")[1], 3), "epoch": best[1] + 1}


@cache
def _rows(name: str, data_dir: str, cache_dir: str | None, device: str) -> Rows:
    data = open_dataset(name, data_dir=data_dir, cache_dir=cache_dir, conf=ROOT / "conf")
    return Rows(np.asarray(data.features, np.float32), torch.device(device))


def job(arguments: argparse.Namespace, kind: str, seed: int) -> dict[str, dict[str, Any]]:
    """Both sides of one seed, in a process of its own if there are several."""
    torch.set_num_threads(arguments.threads)
    places = {"data_dir": arguments.data_dir, "cache_dir": arguments.cache_dir}
    split = [f"split_seed={seed}", f"num_train={NODES}", f"num_val={NODES}"]
    data = open_dataset(arguments.dataset, split, **places, conf=ROOT / "conf")
    rows = _rows(arguments.dataset, **places, device=arguments.device)
    epochs = arguments.epochs[METHODS.index(kind)]
    return {side: train(kind, side, data, rows, epochs, seed, torch.device(arguments.device)) for side in SIDES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="data", help="folder with coauthor/ (default: data)")
    parser.add_argument("--cache-dir", default=None, help="folder of converted datasets (default: data-dir/cache)")
    parser.add_argument("--dataset", default="coauthor-physics")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds (10)")
    parser.add_argument("--first-seed", type=int, default=10, help="settings were chosen on lower ones (10)")
    parser.add_argument("--epochs", type=int, nargs=3, default=(40, 40, 30), help="of the three methods (40 40 30)")
    parser.add_argument("--margin", type=float, default=0.5, help="points of accuracy that do not matter (0.5)")
    parser.add_argument("--level", type=float, default=0.95)
    parser.add_argument("--device", default="cpu", help="where the model and our mini-batches are (cpu)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (1)")
    parser.add_argument("--threads", type=int, default=1, help="of torch, in each process (1)")
    parser.add_argument("--json", type=Path, default=RESULTS / "subgraph_accuracy.json")
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    spawn = multiprocessing.get_context("spawn")
    rows = []
    with ProcessPoolExecutor(arguments.jobs, mp_context=spawn) as pool:
        running = {kind: [pool.submit(job, arguments, kind, seed) for seed in seeds] for kind in arguments.methods}
        for kind, futures in running.items():
            found: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
            for seed, future in zip(seeds, futures, strict=True):
                for side, one in future.result().items():
                    found[side].append(one)
                    print(f"{kind} seed {seed} {side}: {one['accuracy']:.2f} (epoch {one['epoch']})", flush=True)
            rows.append(row_of(kind, found, arguments))
    table = Table("method", "ours", "theirs", "difference", "equivalent")
    for row in rows:
        d = row["difference"]
        table.add_row(
            row["method"],
            *(f"{row[side]['mean']:.2f} ± {row[side]['std']:.2f}" for side in SIDES),
            f"{d['value']:+.2f} [{d['low']:+.2f}, {d['high']:+.2f}]",
            f"{'yes' if d['equivalent'] else 'not shown'} (p {d['p_equivalent']:.2g})",
        )
    Console(width=120).print(table)
    settings = {name: getattr(arguments, name) for name in ("dataset", "seeds", "first_seed", "margin", "level")}
    write_json(arguments.json, {"benchmark": "subgraph_accuracy", **settings, "device": arguments.device, "rows": rows})


def row_of(kind: str, found: dict[str, list[dict[str, Any]]], arguments: argparse.Namespace) -> dict[str, Any]:
    """A row of the result."""
    of = {side: [one["accuracy"] for one in each] for side, each in found.items()}
    difference = vars(compare_pairs(of["ours"], of["theirs"], arguments.margin, arguments.level))
    return {
        "method": kind,
        "epochs": arguments.epochs[METHODS.index(kind)],
        **{
            side: {
                "accuracy": values,
                "epochs": [one["epoch"] for one in found[side]],
                "mean": round(float(np.mean(values)), 3),
                "std": round(float(np.std(values, ddof=1)), 3),
            }
            for side, values in of.items()
        },
        "difference": difference,
    }


if __name__ == "__main__":
    main()

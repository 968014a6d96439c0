"""The mini-batches of the record: on which graphs, with which options, and what their digests are made of.

All numbers come from integer arithmetic that is written here. Only the order of a loader that shuffles comes from
elsewhere: from `torch.randperm`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# All that the record takes from the package, so that code may move behind these names. The rest is in `cuda_classes`.
from loader import Block, FullSampler, FusedSampler, Graph, HopwiseSampler, MiniBatch, NodeLoader, Sampler

RECORD = Path(__file__).with_name("digests.json")
EPOCHS = 3  # of each loader


def cuda_classes() -> tuple[Any, Any, Any]:
    """The GPU sampler, and the stores that keep rows in GPU memory and in pinned memory; for tests on a GPU."""
    from loader.samplers import CudaSampler
    from loader.stores import DeviceFeatures, PinnedFeatures

    return CudaSampler, DeviceFeatures, PinnedFeatures


# The CPU's samplers by name and number of threads. Each makes the whole record.
CPU = {f"{kind.__name__}, {n}": partial(kind, num_threads=n) for kind in (FusedSampler, HopwiseSampler) for n in (1, 2)}
SPECIFICATION = CPU["HopwiseSampler, 1"]


def full_sampler(fanouts: tuple[int, ...], *, edge_ids: bool, num_threads: int, **_: Any) -> Sampler:
    """Stands for a sampler with fanouts of -1. It has no seed, because it draws nothing."""
    assert set(fanouts) == {-1}
    return FullSampler(len(fanouts), edge_ids=edge_ids, num_threads=num_threads)


# What a digest is made of.


def digest(batch: MiniBatch) -> str:
    """16 hexadecimal digits of SHA-256 over names, types, shapes and little-endian bytes of all that `batch` holds."""
    sha = hashlib.sha256()
    for name, value in _parts(batch):
        if isinstance(value, Tensor):
            array = value.detach().cpu().contiguous().numpy()
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            sha.update(f"{name} {value.dtype} {list(array.shape)}\n".encode())
            sha.update(array.tobytes())
        else:
            sha.update(f"{name} {value}\n".encode())
    return sha.hexdigest()[:16]


def _parts(batch: MiniBatch) -> Iterator[tuple[str, Any]]:
    """Names and values in a fixed order, blocks from the input side. An array that is not there is None."""
    yield "epoch", int(batch.epoch)
    yield "index", int(batch.index)
    yield "frontier_sizes", [int(n) for n in batch.frontier_sizes]
    yield "nodes", batch.nodes
    for i, block in enumerate(batch.blocks):
        yield from ((f"blocks[{i}].{name}", value) for name, value in _parts_of_block(block))
    yield "x", batch.x
    yield "y", batch.y


def _parts_of_block(block: Block) -> Iterator[tuple[str, Any]]:
    yield "num_src", int(block.num_src)
    yield "num_dst", int(block.num_dst)
    yield "indptr", block.indptr
    yield "indices", block.indices
    yield "edge_ids", block.edge_ids
    yield "edge_features", block.edge_features


def recorded() -> dict[str, str]:
    """The record: name -> digest. A name begins with its group and a colon."""
    digests: dict[str, str] = json.loads(RECORD.read_text())
    return digests


def group_of(name: str) -> str:
    return name.split(": ")[0]


# Graphs, and tables of rows.

WIDTHS = {
    "int32": (torch.int32, torch.int32),
    "wide edges": (torch.int64, torch.int32),
    "int64": (torch.int64, torch.int64),
}


def words(count: int, salt: int) -> NDArray[np.uint64]:
    """Words that look random: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) of a counter."""
    x = (np.arange(count, dtype=np.uint64) + np.uint64(salt << 32)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def below(bound: int, count: int, salt: int) -> NDArray[np.int64]:
    """Numbers in [0, `bound`) that look random."""
    return (words(count, salt) % np.uint64(bound)).astype(np.int64)


def _from_edges(src: NDArray[np.int64], dst: NDArray[np.int64], num_nodes: int, **options: Any) -> Graph:
    return Graph.from_edges(torch.from_numpy(src), torch.from_numpy(dst), num_nodes, **options)


def _hubs() -> Graph:
    """Three nodes have hundreds of in-neighbors, and each node has one of them."""
    v, hubs = np.arange(700), np.array([0, 350, 699])
    fans = [v[:: i + 1] for i in range(3)]
    src = np.concatenate([*fans, hubs[v % 3], below(700, 700, 1)])
    return _from_edges(src, np.concatenate([hubs.repeat([fan.size for fan in fans]), v, v]), 700)


def _chain() -> Graph:
    return _from_edges(np.arange(1, 60), np.arange(59), 60)


def _isolated() -> Graph:
    """Only every third node has edges."""
    return _from_edges(3 * below(170, 1500, 2), 3 * below(170, 1500, 3), 512)


def _parallel() -> Graph:
    """Each node has two in-neighbors and about twelve in-edges. An edge's id is its place in the list of edges."""
    dst = below(200, 2400, 4)
    return _from_edges((dst * 7 + below(2, 2400, 5)) % 200, dst, 200, keep_edge_ids=True)


def _loops() -> Graph:
    """Each node has itself as an in-neighbor, some twice, and up to four others."""
    v = np.arange(120)
    src = np.concatenate([v, v[::5], *[(v * 11 + i) % 120 for i in range(4)]])
    return _from_edges(src, np.concatenate([v, v[::5], v, v, v[::2].repeat(2), v[::3].repeat(3)]), 120)


def _random() -> Graph:
    return _from_edges(below(4000, 60_000, 6), below(4000, 60_000, 7), 4000)


def _own_ids() -> Graph:
    """Neighbor lists that are not sorted, and ids beyond 32 bits in falling order."""
    indptr = np.concatenate([[0], np.cumsum(below(25, 300, 8))])
    num_edges = int(indptr[-1])
    indices, ids = below(300, num_edges, 9), 2**33 - 3 * np.arange(num_edges)
    return Graph(torch.from_numpy(indptr), torch.from_numpy(indices), edge_ids=torch.from_numpy(ids))


def _no_edges() -> Graph:
    return _from_edges(np.arange(0), np.arange(0), 30)


_MAKERS: dict[str, Callable[[], Graph]] = {
    "hubs": _hubs,
    "chain": _chain,
    "isolated": _isolated,
    "parallel": _parallel,
    "loops": _loops,
    "random": _random,
    "own ids": _own_ids,
    "no edges": _no_edges,
}
_made = cache(lambda name: _MAKERS[name]())


def graph_of(name: str, width: str, device: str = "cpu") -> Graph:
    """A graph on `device` with the types of `width`. They are put in afterwards: `Graph` narrows what fits 32 bits."""
    made: Graph = _made(name)
    ids = None if made.edge_ids is None else made.edge_ids.to(device)
    graph = Graph(made.indptr.to(device), made.indices.to(device), edge_ids=ids, validate=False)
    edge_dtype, node_dtype = WIDTHS[width]
    graph.indptr, graph.indices = graph.indptr.to(edge_dtype), graph.indices.to(node_dtype)
    return graph


def seeds_of(num_nodes: int, count: int, first: int) -> Tensor:
    """`[count]` distinct nodes in steps around the graph. All of them if there are fewer."""
    stride = next(n for n in itertools.count(num_nodes * 5 // 8 + 1) if math.gcd(n, num_nodes) == 1)
    return torch.from_numpy((first + stride * np.arange(min(count, num_nodes))) % num_nodes)


def rows_of(kind: str, num_rows: int) -> Tensor:
    """A table of values that its type holds exactly."""
    if kind == "classes":
        return torch.from_numpy(below(7, num_rows, 20))
    if kind == "marks":
        return torch.from_numpy(below(2, num_rows * 5, 21).reshape(num_rows, 5).astype(np.float32))
    if kind == "float16":
        return torch.from_numpy(((below(401, num_rows * 9, 22) - 200) / 4).reshape(num_rows, 9).astype(np.float16))
    assert kind == "float32"
    return torch.from_numpy(((below(4001, num_rows * 6, 23) - 2000) / 16).reshape(num_rows, 6).astype(np.float32))


# Single mini-batches of a sampler.

FANOUTS = ((10, 10), (15, 10, 5), (3,), (-1,), (-1, -1), (2, -1), (40, 5))
# Seed, epoch, mini-batch and number of seeds. Five of them, so that each meets all of the options that come in twos.
POSITIONS = ((0, 0, 0, 64), (1, 2, 3, 64), (2**63 + 11, 1, 2**33 + 1, 1), (7, 2**40, 1, 200), (5, 4, 9, 1000))


@dataclass(frozen=True)
class Draw:
    """One mini-batch to sample. Its name ends with seed, epoch and mini-batch."""

    fanouts: tuple[int, ...]
    replace: bool = False
    edge_ids: bool = False
    seed: int = 0
    epoch: int = 0
    batch: int = 0
    num_seeds: int = 64

    @property
    def name(self) -> str:
        return (
            " ".join(map(str, self.fanouts))
            + (", replaced" if self.replace else "")
            + (", with ids" if self.edge_ids else "")
            + f", {self.num_seeds} seeds, {self.seed}/{self.epoch}/{self.batch}"
        )


def draws_of(graph_name: str) -> list[Draw]:
    options = enumerate(itertools.product(FANOUTS, (False, True), (False, True)))
    draws = [Draw(*drawn, *POSITIONS[i % len(POSITIONS)]) for i, drawn in options]
    draws.append(Draw((10, 10), edge_ids=True, num_seeds=0))
    if graph_name == "random":  # has enough edges for `FusedSampler` to share out the writing among its threads
        draws.append(Draw((40, 40), replace=True, edge_ids=True, seed=3, num_seeds=2000))
    return draws


SAMPLED = list(itertools.product(_MAKERS, WIDTHS))  # the groups of single mini-batches


def sampled(
    graph_name: str,
    width: str,
    make: Callable[..., Sampler],
    *,
    device: str = "cpu",
    only: Callable[[Draw], bool] = lambda draw: True,
) -> dict[str, str]:
    """Name -> digest of the mini-batches of a group.

    Args:
        make: `make(fanouts, replace=..., edge_ids=..., seed=...)`.
        device: where the graph lies.
        only: which of them.
    """
    graph = graph_of(graph_name, width, device)
    digests = {}
    for draw in filter(only, draws_of(graph_name)):
        sampler = make(draw.fanouts, replace=draw.replace, edge_ids=draw.edge_ids, seed=draw.seed)
        seeds = seeds_of(graph.num_nodes, draw.num_seeds, first=draw.batch % graph.num_nodes).to(device)
        batch = sampler.sample(graph, seeds, epoch=draw.epoch, batch=draw.batch)
        digests[f"{graph_name}, {width}: {draw.name}"] = digest(batch)
        sampler.close()
    return digests


# Epochs of a loader.


@dataclass(frozen=True)
class Run:
    """What a loader is made of; `x`, `y` and `edge_features` name tables of `rows_of`."""

    graph: str = "random"
    width: str = "int32"
    fanouts: tuple[int, ...] = (4, 3)
    replace: bool = False
    x: str | None = "float32"
    y: str | None = "classes"
    edge_features: str | None = None
    num_seeds: int = 331  # leaves the last step incomplete, and not divisible by 2 or 4 ranks
    shuffle: bool = True
    drop_last: bool = False
    rank: int = 0
    world_size: int = 1


LOADERS = {
    "in order": Run(shuffle=False),
    "shuffled": Run(),
    "shuffled, drop last": Run(drop_last=True),
    **{f"rank {r} of {n}": Run(rank=r, world_size=n) for n in (2, 4) for r in range(n)},
    "rank 1 of 2, in order, drop last": Run(shuffle=False, drop_last=True, rank=1, world_size=2),
    "edge features": Run(width="wide edges", edge_features="float16"),
    "edge features, own ids": Run("parallel", fanouts=(5, -1), edge_features="float32", num_seeds=190),
    "float16 and marks, int64": Run(width="int64", fanouts=(3, 3, 2), replace=True, x="float16", y="marks"),
    "no features": Run("hubs", fanouts=(-1, 2), x=None, y=None),
}
BATCH_SIZE = 48
_SAMPLER_SEED, _ORDER_SEED = 9, 4


@contextmanager
def loader_of(
    name: str,
    make: Callable[..., Sampler],
    *,
    prefetch: int,
    graph_device: str = "cpu",
    device: str = "cpu",
    store: Callable[[Tensor], Any] = lambda table: table,
) -> Iterator[NodeLoader]:
    """The loader `LOADERS[name]`.

    Args:
        make: see `sampled`.
        prefetch: of the loader.
        graph_device: where the sampler wants the graph.
        device: where the mini-batches arrive.
        store: what keeps a table of features.
    """
    run = LOADERS[name]
    graph = graph_of(run.graph, run.width, graph_device)
    tables = {
        "features": None if run.x is None else store(rows_of(run.x, graph.num_nodes)),
        "edge_features": None if run.edge_features is None else store(rows_of(run.edge_features, graph.num_edges)),
    }
    sampler = make(run.fanouts, replace=run.replace, edge_ids=run.edge_features is not None, seed=_SAMPLER_SEED)
    loader = NodeLoader(
        graph,
        labels=None if run.y is None else rows_of(run.y, graph.num_nodes),
        seeds=seeds_of(graph.num_nodes, run.num_seeds, first=1),
        sampler=sampler,
        batch_size=BATCH_SIZE,
        shuffle=run.shuffle,
        drop_last=run.drop_last,
        seed=_ORDER_SEED,
        prefetch=prefetch,
        rank=run.rank,
        world_size=run.world_size,
        device=device,
        **tables,
    )
    try:
        yield loader
    finally:
        loader.close()
        sampler.close()
        for table in tables.values():
            if table is not None and not isinstance(table, Tensor):
                table.close()


def loaded(loader: NodeLoader, name: str, epochs: int = EPOCHS) -> dict[str, str]:
    """Name -> digest of the mini-batches of the next `epochs` epochs of `LOADERS[name]`."""
    found = [named(batch, name) for _ in range(epochs) for batch in loader]
    assert len(dict(found)) == len(found), f"a mini-batch of '{name}' came twice"
    return dict(found)


def named(batch: MiniBatch, name: str) -> tuple[str, str]:
    """Name and digest of a mini-batch of `LOADERS[name]`."""
    return f"loader, {name}: epoch {batch.epoch}, mini-batch {batch.index:02}", digest(batch)


GROUPS = {f"{graph}, {width}" for graph, width in SAMPLED} | {f"loader, {name}" for name in LOADERS}


def specified() -> dict[str, str]:
    """The whole record, sampled anew by the specification, on one thread and with nothing ahead."""
    digests: dict[str, str] = {}
    for graph_name, width in SAMPLED:
        digests |= sampled(graph_name, width, SPECIFICATION)
    for name in LOADERS:
        with loader_of(name, SPECIFICATION, prefetch=0) as loader:
            digests |= loaded(loader, name)
    return digests

"""GraphSAGE layers forward and backward: ours beside DGL's and PyG's SAGEConv on the same blocks, in one run.

    python benchmarks/aggregate.py [--threads 1 2] [--repeats 10]

Blocks are sampled from a graph shaped like ogbn-arxiv (169,343 nodes, 2.3 M edges, heavy-tailed in-degree): 1024
seeds, fanouts 10,10,10. Each layer is timed alone (its input needs a gradient, as in a hidden layer), then the whole
model. The peers get every advantage: their graph formats are made before the clock starts and are kept from one
repetition to the next; ours transposes the block in every backward.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, write_json
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from loader.graph import Graph
from loader.samplers import FusedSampler
from loader.samples import Block, MiniBatch
from models.sage import SAGEConv

MIN_SECONDS = 1.0


def arxiv_like(seed: int = 0) -> Graph:
    """169,343 nodes, 2.3 M directed edges, in-degrees by a power law."""
    num_nodes, num_edges = 169_343, 2_315_598
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(num_nodes, generator=generator)
    weight = (torch.arange(1, num_nodes + 1, dtype=torch.float64) ** -0.5)[order]
    cumulative = weight.cumsum(0) / weight.sum()
    ends = [
        torch.searchsorted(cumulative, torch.rand(num_edges // 2, generator=generator, dtype=torch.float64))
        for _ in range(2)
    ]
    src, dst = (end.clamp_(max=num_nodes - 1) for end in ends)
    return Graph.from_edges(torch.cat((src, dst)), torch.cat((dst, src)), num_nodes)


def destinations(block: Block) -> Tensor:
    """`[num_edges]` local destination ids, int64."""
    return torch.repeat_interleave(torch.arange(block.num_dst), (block.indptr[1:] - block.indptr[:-1]).long())


class Ours:
    name = "ours"

    def convs(self, dims: list[int]) -> nn.ModuleList:
        return nn.ModuleList(SAGEConv(a, b) for a, b in pairwise(dims))

    def prepare(self, block: Block) -> Block:
        return block

    def layer(self, conv: nn.Module, block: Block, x: Tensor) -> Tensor:
        return conv(x, block)


class DGL:
    name = "DGL 1.1.3"

    def convs(self, dims: list[int]) -> nn.ModuleList:
        from dgl.nn.pytorch import SAGEConv as DGLSAGEConv

        return nn.ModuleList(DGLSAGEConv(a, b, "mean") for a, b in pairwise(dims))

    def prepare(self, block: Block) -> Any:
        import dgl

        made = dgl.create_block(
            (block.indices.long(), destinations(block)), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst
        )
        made.create_formats_()
        return made

    def layer(self, conv: nn.Module, block: Any, x: Tensor) -> Tensor:
        return conv(block, x)


class PyGEdgeIndex:
    name = "PyG, edge_index"

    def convs(self, dims: list[int]) -> nn.ModuleList:
        from torch_geometric.nn import SAGEConv as PyGSAGEConv

        return nn.ModuleList(PyGSAGEConv((a, a), b) for a, b in pairwise(dims))

    def prepare(self, block: Block) -> tuple[int, Any]:
        return block.num_dst, torch.stack((block.indices.long(), destinations(block)))

    def layer(self, conv: nn.Module, block: tuple[int, Any], x: Tensor) -> Tensor:
        num_dst, edges = block
        return conv((x, x[:num_dst]), edges)


class PyGSparse(PyGEdgeIndex):
    name = "PyG, torch.sparse"

    def prepare(self, block: Block) -> tuple[int, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "sparse CSR tensor support is in beta state"
            matrix = torch.sparse_csr_tensor(
                block.indptr.long(),
                block.indices.long(),
                torch.ones(block.num_edges),
                (block.num_dst, block.num_src),
            )
        return block.num_dst, matrix


def best_milliseconds(contenders: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """The best of at least `repeats` calls and `MIN_SECONDS` of each, after one to warm up.

    They take turns, so that all meet the same noise.
    """
    best = dict.fromkeys(contenders, float("inf"))
    for f in contenders.values():
        f()
    rounds, begin = 0, time.perf_counter()
    while rounds < repeats or time.perf_counter() - begin < MIN_SECONDS * len(contenders):
        rounds += 1
        for name, f in contenders.items():
            start = time.perf_counter()
            f()
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best


def step(house: Any, convs: nn.ModuleList, blocks: list[Any], x: Tensor) -> None:
    """Forward and backward of a stack of layers."""
    h = x
    for i, (conv, block) in enumerate(zip(convs, blocks, strict=True)):
        h = house.layer(conv, block, h)
        if i < len(convs) - 1:
            h = F.relu(h)
    h.sum().backward()
    convs.zero_grad(set_to_none=True)
    x.grad = None


def cases(batch: MiniBatch) -> list[tuple[str, list[Block], list[int], bool]]:
    """Name, blocks, widths, whether the input needs a gradient."""
    found: list[tuple[str, list[Block], list[int], bool]] = []
    for dim in (128, 256):
        for i, block in enumerate(batch.blocks):
            found.append((f"layer {i + 1}, {dim} -> {dim}", [block], [dim, dim], True))
    found.append(("layer 3, 256 -> 40", [batch.blocks[2]], [256, 40], True))
    found.append(("layer 1, 128 -> 256, no grad of x", [batch.blocks[0]], [128, 256], False))
    found.append(("model 128 -> 256 -> 256 -> 40", list(batch.blocks), [128, 256, 256, 40], False))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path, default=RESULTS / "aggregate.json")
    args = parser.parse_args()

    sampler = FusedSampler([10, 10, 10], seed=1)
    graph = arxiv_like()
    seeds = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(2))[:1024]
    batch = sampler.sample(graph, seeds)
    sampler.close()
    houses: list[Any] = [Ours(), DGL(), PyGEdgeIndex(), PyGSparse()]
    rows: list[dict[str, Any]] = []
    for threads in args.threads:
        torch.set_num_threads(threads)
        for name, blocks, dims, needs_grad in cases(batch):
            x = torch.randn(blocks[0].num_src, dims[0], requires_grad=needs_grad)
            contenders: dict[str, Callable[[], None]] = {}
            for house in houses:
                convs, prepared = house.convs(dims), [house.prepare(b) for b in blocks]
                contenders[house.name] = partial(step, house, convs, prepared, x)
            times = best_milliseconds(contenders, args.repeats)
            rows.append({"case": name, "threads": threads, "milliseconds": times})

    table = Table(title="Forward + backward, ms (best)")
    for column in ("case", "threads", *(h.name for h in houses), "best peer / ours"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for row in rows:
        ms: dict[str, float] = row["milliseconds"]
        ratio = min(v for k, v in ms.items() if k != "ours") / ms["ours"]
        table.add_row(str(row["case"]), str(row["threads"]), *(f"{v:.1f}" for v in ms.values()), f"{ratio:.2f}x")
    Console(width=120).print(table)
    shape = ", ".join(f"{b.num_src} -> {b.num_dst} ({b.num_edges} edges)" for b in batch.blocks)
    print(f"blocks: {shape}")
    write_json(args.json, {"benchmark": "aggregate", "repeats": args.repeats, "blocks": shape, "rows": rows})


if __name__ == "__main__":
    main()

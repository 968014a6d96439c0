"""The mean over neighbors on the GPU: ours beside what torch and PyG offer, on the same blocks, in one run.

    python benchmarks/aggregate_gpu.py [--rounds 15] [--calls 10]

Mini-batches of 1024 and 2048 seeds of a graph of the size of ogbn-products, blocks of every hop. Forward alone, as in
the first layer, whose input needs no gradient, or forward and backward. What the peers need besides indptr and indices
(destination of each edge, degrees, a sparse matrix) is made before the clock starts. Milliseconds by CUDA events around
`calls` calls, median of `rounds`; for small blocks that is the time the host takes to launch.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, write_json
from _gpu_batches import CASES, destinations, milliseconds, products_shaped, refusal, sample
from rich.console import Console
from rich.table import Table
from torch import Tensor

from loader.ops import aggregate_mean
from loader.samples import Block

Aggregate = Callable[[Tensor], Tensor]


def ours(block: Block, dtype: torch.dtype) -> Aggregate:
    return partial(aggregate_mean, block=block)


def sparse(block: Block, dtype: torch.dtype) -> Aggregate:
    degrees = (block.indptr[1:] - block.indptr[:-1]).clamp(min=1)
    values = (1 / degrees.to(dtype))[destinations(block.indptr, block.num_edges)]
    matrix = torch.sparse_csr_tensor(block.indptr, block.indices, values, (block.num_dst, block.num_src))
    return lambda x: torch.sparse.mm(matrix, x)


def segment_reduce(block: Block, dtype: torch.dtype) -> Aggregate:
    indices, lengths = block.indices, (block.indptr[1:] - block.indptr[:-1]).long()
    return lambda x: torch.segment_reduce(
        x.index_select(0, indices), "mean", lengths=lengths, axis=0, initial=0.0, unsafe=True
    )


def index_add(block: Block, dtype: torch.dtype) -> Aggregate:
    indices, dst = block.indices, destinations(block.indptr, block.num_edges)
    scale = 1 / (block.indptr[1:] - block.indptr[:-1]).clamp(min=1).to(dtype)[:, None]
    return lambda x: x.new_zeros(block.num_dst, x.shape[1]).index_add(0, dst, x.index_select(0, indices)) * scale


def pyg_index(block: Block, dtype: torch.dtype) -> Aggregate:
    """What SAGEConv does with an edge_index."""
    from torch_geometric.nn.aggr import MeanAggregation

    indices, dst, mean = block.indices.long(), destinations(block.indptr, block.num_edges), MeanAggregation()
    return lambda x: mean(x.index_select(0, indices), dst, dim_size=block.num_dst)


def pyg_spmm(block: Block, dtype: torch.dtype) -> Aggregate:
    """What SAGEConv does with a sparse CSR tensor."""
    from torch_geometric.utils import spmm

    ones = torch.ones(block.num_edges, dtype=dtype, device="cuda")
    matrix = torch.sparse_csr_tensor(block.indptr.long(), block.indices.long(), ones, (block.num_dst, block.num_src))
    return lambda x: spmm(matrix, x, "mean")


MAKERS: dict[str, Callable[[Block, torch.dtype], Aggregate]] = {
    "ours": ours,
    "torch.sparse.mm": sparse,
    "gather + segment_reduce": segment_reduce,
    "gather + index_add": index_add,
    "PyG, edge_index": pyg_index,
    "PyG, sparse CSR": pyg_spmm,
}


def forward(aggregate: Aggregate, x: Tensor, call: int) -> None:
    with torch.no_grad():
        aggregate(x)


def forward_backward(aggregate: Aggregate, x: Tensor, grad: Tensor, call: int) -> None:
    torch.autograd.grad(aggregate(x), x, grad)


def compare(block: Block, dim: int, dtype: torch.dtype, backward: bool, calls: int, rounds: int) -> dict[str, Any]:
    x = torch.randn(block.num_src, dim, device="cuda", dtype=dtype).requires_grad_(backward)
    grad = torch.randn(block.num_dst, dim, device="cuda", dtype=dtype)
    contenders: dict[str, Callable[[int], Any]] = {}
    refused: dict[str, str] = {}
    for name, make in MAKERS.items():
        aggregate = make(block, dtype)
        run = partial(forward_backward, aggregate, x, grad) if backward else partial(forward, aggregate, x)
        if why := refusal(partial(run, 0)):
            refused[name] = why
        else:
            contenders[name] = run
    return {"milliseconds": milliseconds(contenders, calls, rounds), "refused": refused}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--json", type=Path, default=RESULTS / "aggregate_gpu.json")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*[Ss]parse.*")  # sparse CSR is "in beta"

    graph = products_shaped()
    rows: list[dict[str, Any]] = []
    table = Table(title=f"Mean over neighbors, ms, {torch.cuda.get_device_name()}")
    for column in ("block", "F", "dtype", "pass", *MAKERS, "best peer / ours"):
        table.add_column(column, justify="right")
    for fanouts, size in CASES:
        (batch,) = sample(graph, fanouts, size, 1)
        for hop, dims in ((0, (100,)), (1, (256,)), (2, (256, 47))):
            block = batch.blocks[hop]
            for dim in dims:
                for dtype in (torch.float32, torch.bfloat16):
                    for backward in (False, True):
                        found = compare(block, dim, dtype, backward, args.calls, args.rounds)
                        ms = found["milliseconds"]
                        ratio = min(v for k, v in ms.items() if k != "ours") / ms["ours"]
                        rows.append(
                            {
                                "fanouts": fanouts,
                                "batch": size,
                                "block": hop,
                                "shape": [block.num_src, block.num_dst, block.num_edges],
                                "dim": dim,
                                "dtype": str(dtype),
                                "pass": "forward + backward" if backward else "forward",
                                **found,
                            }
                        )
                        table.add_row(
                            f"{fanouts} x {size}, {hop}",
                            str(dim),
                            str(dtype).removeprefix("torch."),
                            "f+b" if backward else "f",
                            *(f"{ms[name]:.3f}" if name in ms else "-" for name in MAKERS),
                            f"{ratio:.1f}x",
                        )
    Console(width=150).print(table)
    write_json(
        args.json,
        {
            "benchmark": "aggregate_gpu",
            "gpu": torch.cuda.get_device_name(),
            "graph": repr(graph),
            "rounds": args.rounds,
            "calls": args.calls,
            "rows": rows,
        },
    )


if __name__ == "__main__":
    main()

"""A training step on the GPU: what it costs, stage by stage, ours beside stock parts, in one run.

    python benchmarks/train_step_gpu.py [--steps 100] [--rounds 7]

GraphSAGE of 3 layers, 100 -> 256 -> 256 -> 47, dropout 0.5, cross entropy, Adam (fused), on mini-batches that lie on
the GPU with their features. A step's time is that of a run of `--steps` steps over different mini-batches,
synchronised at its ends alone. `forward`, `backward`, `optimizer` are synchronised one by one, so their sum is more.
`kernels` is the time that kernels ran, by torch's profiler; `host` is how long Python takes to issue a step while the
GPU's queue has room (a few steps from an idle GPU). The peers differ from ours in the layer alone: they get the
destination of each edge and its index type ready made, and the same optimiser and precision.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, write_json
from _gpu_batches import CASES, DIMS, destinations, products_shaped, refusal, sample
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from loader.samples import Block, MiniBatch
from models.sage import GraphSAGE
from models.training.cuda_graphs import GraphedLoss

HOST_STEPS = 5  # the GPU's queue has room for their kernels
Prepared = tuple[Block, Tensor, Tensor]  # the block, its destinations and its indices as int64


class StockLayer(nn.Module):
    """SAGEConv of stock parts."""

    def __init__(self, in_dim: int, out_dim: int, mean: Callable[[Tensor, Prepared], Tensor]) -> None:
        super().__init__()
        self.lin_self, self.lin_neigh = nn.Linear(in_dim, out_dim), nn.Linear(in_dim, out_dim, bias=False)
        self.mean = mean

    def forward(self, x: Tensor, prepared: Prepared) -> Tensor:
        return self.lin_self(x[: prepared[0].num_dst]) + self.lin_neigh(self.mean(x, prepared))


def sparse_mean(x: Tensor, prepared: Prepared) -> Tensor:
    block, dst, _ = prepared
    degrees = (block.indptr[1:] - block.indptr[:-1]).clamp(min=1)
    matrix = torch.sparse_csr_tensor(
        block.indptr, block.indices, (1 / degrees.to(x.dtype))[dst], (block.num_dst, block.num_src)
    )
    return torch.sparse.mm(matrix, x)


def segment_mean(x: Tensor, prepared: Prepared) -> Tensor:
    block, _, _ = prepared
    lengths = (block.indptr[1:] - block.indptr[:-1]).long()
    return torch.segment_reduce(
        x.index_select(0, block.indices), "mean", lengths=lengths, axis=0, initial=0.0, unsafe=True
    )


def index_add_mean(x: Tensor, prepared: Prepared) -> Tensor:
    block, dst, _ = prepared
    degrees = (block.indptr[1:] - block.indptr[:-1]).clamp(min=1).to(x.dtype)[:, None]
    return x.new_zeros(block.num_dst, x.shape[1]).index_add(0, dst, x.index_select(0, block.indices)) / degrees


class PyGLayer(nn.Module):
    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        self.conv = SAGEConv((in_dim, in_dim), out_dim)

    def forward(self, x: Tensor, prepared: Prepared) -> Tensor:
        block, dst, src = prepared
        return self.conv((x, x[: block.num_dst]), torch.stack((src, dst)))


class Stock(nn.Module):
    def __init__(self, layer: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer(a, b) for a, b in pairwise(DIMS))

    def forward(self, blocks: list[Prepared], x: Tensor) -> Tensor:
        for i, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            x = layer(x, block)
            if i < len(self.layers) - 1:
                x = F.dropout(F.relu(x), 0.5)
        return x


class Ours(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = GraphSAGE(DIMS[0], DIMS[1], DIMS[-1], len(DIMS) - 1)

    def forward(self, blocks: list[Prepared], x: Tensor) -> Tensor:
        return self.net([block for block, _, _ in blocks], x)


CONTENDERS: dict[str, Callable[[], nn.Module]] = {
    "ours": Ours,
    "ours, CUDA graph": Ours,
    "torch.sparse.mm": lambda: Stock(lambda a, b: StockLayer(a, b, sparse_mean)),
    "gather + segment_reduce": lambda: Stock(lambda a, b: StockLayer(a, b, segment_mean)),
    "gather + index_add": lambda: Stock(lambda a, b: StockLayer(a, b, index_add_mean)),
    "PyG SAGEConv": lambda: Stock(PyGLayer),
}


def backward(loss: Tensor) -> None:
    """In this thread: waking up one of autograd's own can take as long as the launches."""
    with torch.autograd.set_multithreading_enabled(False):
        loss.backward()


class Step:
    """One step of a contender; `autocast` is bfloat16 or none."""

    def __init__(self, model: nn.Module, autocast: bool) -> None:
        self.model = model.cuda()
        self.autocast = autocast
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def forward(self, batch: tuple[MiniBatch, list[Prepared]]) -> Tensor:
        assert batch[0].y is not None
        with torch.autocast("cuda", torch.bfloat16, enabled=self.autocast):
            return F.cross_entropy(self.model(batch[1], batch[0].x), batch[0].y)

    def __call__(self, batch: tuple[MiniBatch, list[Prepared]]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        backward(self.forward(batch))
        self.optimizer.step()


class GraphedStep(Step):
    """The same, replayed."""

    def __init__(self, model: Ours, autocast: bool) -> None:
        super().__init__(model, autocast)
        self.graphed = GraphedLoss(partial(self.loss, model.net), model.net)

    @staticmethod
    def loss(net: GraphSAGE, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        assert batch.x is not None
        assert batch.y is not None
        logits = net(batch.blocks, batch.x)
        return F.cross_entropy(logits, batch.y), logits

    def forward(self, batch: tuple[MiniBatch, list[Prepared]]) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=self.autocast):
            return self.graphed(batch[0])[0]


def stages(step: Step, batches: list[Any]) -> dict[str, float]:
    """Milliseconds of forward, backward and optimiser, each synchronised; medians."""
    times: dict[str, list[float]] = {"forward": [], "backward": [], "optimizer": []}
    for batch in batches:
        step.optimizer.zero_grad(set_to_none=True)
        loss: list[Tensor] = []
        for name, f in (
            ("forward", lambda batch=batch, loss=loss: loss.append(step.forward(batch))),
            ("backward", lambda loss=loss: backward(loss[0])),
            ("optimizer", step.optimizer.step),
        ):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            f()
            torch.cuda.synchronize()
            times[name].append(1e3 * (time.perf_counter() - begin))
    return {name: statistics.median(of) for name, of in times.items()}


def run_ms(step: Step, batches: list[Any], steps: int, to_the_end: bool = True) -> float:
    """Milliseconds a step of a run, until the GPU is done or, if not `to_the_end`, until all is issued."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for i in range(steps):
        step(batches[i % len(batches)])
    if to_the_end:
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin) / steps


def kernel_ms(step: Step, batches: list[Any]) -> tuple[float, list[dict[str, Any]]]:
    """Milliseconds a step that kernels and copies ran, and the kernels that took longest."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for batch in batches:
            step(batch)
        torch.cuda.synchronize()
    events = [e for e in profile.key_averages() if e.self_device_time_total > 0]
    events.sort(key=lambda e: -e.self_device_time_total)
    found = [
        {
            "kernel": e.key[:110],
            "launches": e.count / len(batches),
            "us": round(e.self_device_time_total / len(batches), 1),
        }
        for e in events
    ]
    return sum(e.self_device_time_total for e in events) / len(batches) / 1e3, found


def measure(batches: list[Any], precision: str, steps: int, rounds: int) -> dict[str, Any]:
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    made: dict[str, Step] = {}
    refused: dict[str, str] = {}
    for name, make in CONTENDERS.items():
        model = make()
        graphed = isinstance(model, Ours) and "graph" in name
        step = (GraphedStep if graphed else Step)(model, precision == "bf16")  # type: ignore[arg-type]
        if why := refusal(partial(run_ms, step, batches, 2 * len(batches))):
            refused[name] = why
        else:
            made[name] = step
    runs: dict[str, list[float]] = {name: [] for name in made}
    host: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(rounds):
        for name, step in made.items():
            runs[name].append(run_ms(step, batches, steps))
            host[name].append(run_ms(step, batches, HOST_STEPS, to_the_end=False))
    found: dict[str, Any] = {}
    for name, step in made.items():
        kernels, slowest = kernel_ms(step, batches)
        found[name] = {
            "step_ms": statistics.median(runs[name]),
            "host_ms": statistics.median(host[name]),
            "kernels_ms": kernels,
            "launches": sum(k["launches"] for k in slowest),
            **{f"{k}_ms": v for k, v in stages(step, batches).items()},
            "slowest_kernels": slowest[: 16 if name == "ours" else 4],
        }
    return {"contenders": found, "refused": refused}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--precision", nargs="+", default=["tf32", "bf16", "fp32"], choices=["tf32", "bf16", "fp32"])
    parser.add_argument("--kernels", action="store_true", help="print the kernels of our step")
    parser.add_argument("--json", type=Path, default=RESULTS / "train_step_gpu.json")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*[Ss]parse.*")

    graph = products_shaped()
    rows: list[dict[str, Any]] = []
    columns = ("step_ms", "host_ms", "kernels_ms", "launches", "forward_ms", "backward_ms", "optimizer_ms")
    table = Table(title=f"Training step, {torch.cuda.get_device_name()}")
    for column in ("mini-batch", "precision", "layer", *columns):
        table.add_column(column, justify="left" if column in ("mini-batch", "layer") else "right")
    for fanouts, size in CASES:
        plain = sample(graph, fanouts, size, 10)
        batches = [(b, [(k, destinations(k.indptr, k.num_edges), k.indices.long()) for k in b.blocks]) for b in plain]
        for precision in args.precision:
            found = measure(batches, precision, args.steps, args.rounds)
            rows.append(
                {
                    "fanouts": fanouts,
                    "batch": size,
                    "precision": precision,
                    "input_nodes": statistics.median(b.nodes.numel() for b in plain),
                    "edges": statistics.median(b.num_edges for b in plain),
                    **found,
                }
            )
            for name, numbers in found["contenders"].items():
                table.add_row(f"{fanouts} x {size}", precision, name, *(f"{numbers[c]:.3f}" for c in columns))
            if args.kernels:
                for kernel in found["contenders"]["ours"]["slowest_kernels"]:
                    print(f"{kernel['us']:8.1f} us {kernel['launches']:5.1f}x {kernel['kernel']}", flush=True)
    Console(width=150).print(table)
    write_json(
        args.json,
        {
            "benchmark": "train_step_gpu",
            "gpu": torch.cuda.get_device_name(),
            "model": "GraphSAGE " + " -> ".join(map(str, DIMS)),
            "graph": repr(graph),
            "steps": args.steps,
            "rounds": args.rounds,
            "rows": rows,
        },
    )


if __name__ == "__main__":
    main()

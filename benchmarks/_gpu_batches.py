"""Mini-batches on the GPU for the benchmarks of aggregation and training, and how they are timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from loader.graph import Graph
from loader.samplers.base import Request, Session
from loader.samplers.gpu.sampler import CudaSampler
from loader.samples import MiniBatch

NUM_NODES = 2_449_029
NUM_EDGES = 123_718_280
CASES: list[tuple[list[int], int]] = [([15, 10, 5], 1024), ([10, 10, 10], 1024), ([10, 10, 10], 2048)]
DIMS = [100, 256, 256, 47]


def products_shaped(
    num_nodes: int = NUM_NODES, num_edges: int = NUM_EDGES, seed: int = 2024, device: str = "cuda"
) -> Graph:
    """A Chung-Lu graph of about the size and the skew of ogbn-products, made on a GPU in some seconds.

    Expected degrees are Lomax(2.8), scaled to the mean and cut at 17,400; symmetric, no self loops, no parallel
    edges, neighbors ascending. It has no communities, so frontiers grow faster than on ogbn-products.
    """
    g = torch.Generator(device).manual_seed(seed)
    uniform = torch.rand(num_nodes, generator=g, device=device, dtype=torch.float64)
    weight = (num_edges / num_nodes * 1.8 * ((1 - uniform) ** (-1 / 2.8) - 1)).clamp_(0.25, 17400.0)
    cdf = weight.cumsum(0)
    cdf /= cdf[-1].clone()
    wanted = num_edges // 2 + num_edges // 300  # some are drawn twice
    ends = [
        torch.searchsorted(cdf, torch.rand(wanted, generator=g, device=device, dtype=torch.float64)) for _ in range(2)
    ]
    src, dst = (end.clamp_(max=num_nodes - 1) for end in ends)
    keep = src != dst
    src, dst = src[keep], dst[keep]
    key = torch.unique(torch.cat((dst * num_nodes + src, src * num_nodes + dst)))
    indptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=device)
    torch.cumsum(torch.bincount(key // num_nodes, minlength=num_nodes), 0, out=indptr[1:])
    return Graph(indptr.int(), (key % num_nodes).int(), validate=False)


def sample(
    graph: Graph, fanouts: list[int], batch_size: int, count: int, num_features: int = DIMS[0]
) -> list[MiniBatch]:
    """`count` mini-batches of different seeds with features and labels, all on the GPU."""
    g = torch.Generator("cuda").manual_seed(1)
    table = torch.randn(graph.num_nodes, num_features, generator=g, device="cuda")
    labels = torch.randint(DIMS[-1], (graph.num_nodes,), generator=g, device="cuda")
    order = torch.randperm(graph.num_nodes, generator=g, device="cuda").to(graph.indices.dtype)
    sampler = CudaSampler(fanouts, seed=3)
    batches = []
    for i in range(count):
        batch = sampler.sample(graph, order[i * batch_size : (i + 1) * batch_size], batch=i)
        batches.append(batch.replace(x=table[batch.nodes.long()], y=labels[batch.output_nodes.long()]))
    sampler.close()
    return batches


def milliseconds(contenders: dict[str, Callable[[int], Any]], calls: int, rounds: int) -> dict[str, float]:
    """Median over `rounds` of the time of a call, by CUDA events around `calls` of them, after two to warm up.

    They take turns. A contender is told the number of the call.
    """
    for f in contenders.values():
        for i in range(2):
            f(i)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, f in contenders.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            begin.record()
            for i in range(calls):
                f(i)
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end) / calls)
    return {name: statistics.median(of) for name, of in times.items()}


def sampling_on_the_gpu(session: Session, seeds: Tensor, batch: int) -> float:
    """Milliseconds that the GPU takes for a mini-batch: kernels and the gaps between them."""
    return ms_on_the_gpu(lambda: session.begin([Request(seeds, 0, batch)], ahead=True))


def ms_on_the_gpu(begin: Callable[[], Iterable[Callable[[], Any]]], delay: int = 400_000) -> float:
    """Milliseconds that the GPU takes for what `begin` puts on its way.

    By events around work that was queued behind a delay, which hides the host's part.

    Args:
        begin: returns what waits for the results.
        delay: clocks of the GPU, in which the host puts everything on its way; 400,000 are some 0.2 ms.
    """
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(delay)
    start.record()
    finishes = begin()
    end.record()
    for finish in finishes:
        finish()
    end.synchronize()
    return start.elapsed_time(end)


def destinations(indptr: Tensor, num_edges: int) -> Tensor:
    """`[num_edges]` local destination ids, int64, on the device of `indptr`."""
    rows = torch.arange(indptr.shape[0] - 1, device=indptr.device)
    return torch.repeat_interleave(rows, (indptr[1:] - indptr[:-1]).long(), output_size=num_edges)


def refusal(run: Callable[[], Any]) -> str:
    """Runs it once; why it cannot, empty if it can. Not every library takes every type."""
    try:
        run()
        torch.cuda.synchronize()
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        return str(error).splitlines()[0] or type(error).__name__
    return ""

"""Traversals on a GPU: graphs in GPU memory or in pinned memory -> distances, components, ranks.

    PYTHONPATH=. python benchmarks/traverse_gpu.py --out FILE                   # a graph of the size of ogbn-products
    PYTHONPATH=. python benchmarks/traverse_gpu.py --csc indptr.npy indices.npy --out FILE

Milliseconds a call, synchronised at both ends: the median over calls from several sources. On each of four graphs every
traversal runs as it is by default, and BFS also forward in all levels, so that it reads every edge once, as in EMOGI's
figures. Results are compared with the CPU's. The committed result also has BFS and SSSP by each schedule and kind of
access that was removed in 0.2; commit b6f0215b has them.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import write_json
from _gpu_batches import products_shaped

from loader.graph import Graph
from loader.traverse import bfs, connected_components, pagerank, sssp


class Managed:
    """Memory that host and GPU share by page faults (UVM), as torch takes it; its pages lie in host memory.

    A GPU that faults on a page gets a copy of it. `evict` sends them back, so that each call begins as the first one.
    """

    def __init__(self, array: torch.Tensor) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._address, self._bytes = ctypes.c_uint64(), array.numel() * array.element_size()
        if 4 * self._bytes > torch.cuda.mem_get_info()[0]:
            raise MemoryError(f"{self._bytes} bytes of managed memory; the GPU must have four times as much free")
        size = ctypes.c_size_t(self._bytes)
        self._check(self._driver.cuMemAllocManaged(ctypes.byref(self._address), size, ctypes.c_uint(1)))
        self.__cuda_array_interface__ = {
            "shape": (array.numel(),),
            "typestr": "<f4" if array.is_floating_point() else f"<i{array.element_size()}",
            "data": (self._address.value, False),
            "version": 3,
        }
        self.tensor = torch.as_tensor(self, device="cuda")
        self.tensor.copy_(array)
        torch.cuda.synchronize()

    def evict(self) -> None:
        to_host, stream = ctypes.c_int(-1), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        size = ctypes.c_size_t(self._bytes)
        self._check(self._driver.cuMemPrefetchAsync(self._address, size, to_host, stream))
        torch.cuda.synchronize()

    def free(self) -> None:
        self._check(self._driver.cuMemFree_v2(self._address))

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"managed memory: the driver returned {status}")


def regular_graph(num_nodes: int, degree: int) -> Graph:
    """`degree` neighbors each, at random; symmetric."""
    g = torch.Generator("cuda").manual_seed(1)
    columns = []
    for _ in range(degree // 2):
        there = torch.randperm(num_nodes, generator=g, device="cuda")
        columns += [there, torch.argsort(there)]
    indices = torch.stack(columns, 1).sort(1).values
    return Graph(torch.arange(num_nodes + 1, device="cuda") * degree, indices.view(-1).int(), validate=False)


def power_law_graph(scale: int, num_edges: int) -> Graph:
    """R-MAT (Chakrabarti et al., SDM 2004) with the numbers of Graph500; symmetric, without parallel edges."""
    g = torch.Generator("cuda").manual_seed(1)
    src, dst = (torch.zeros(num_edges, dtype=torch.int64, device="cuda") for _ in range(2))
    for _ in range(scale):
        chance = torch.rand(num_edges, generator=g, device="cuda")
        src = 2 * src + (chance >= 0.76)
        dst = 2 * dst + (((chance >= 0.57) & (chance < 0.76)) | (chance >= 0.95))
    mixed = torch.randperm(2**scale, generator=g, device="cuda")
    src, dst = mixed[src], mixed[dst]
    return symmetric(src, dst, 2**scale)


def grid_graph(side: int) -> Graph:
    """`side * side` nodes, each joined with those beside it: the longest paths."""
    ids = torch.arange(side * side, device="cuda").view(side, side)
    a, b = (torch.cat((x.reshape(-1), y.reshape(-1))) for x, y in ((ids[:, :-1], ids[:-1]), (ids[:, 1:], ids[1:])))
    return symmetric(a, b, side * side)


def symmetric(src: torch.Tensor, dst: torch.Tensor, num_nodes: int) -> Graph:
    keys = torch.unique(torch.cat((src * num_nodes + dst, dst * num_nodes + src)))
    dst, src = keys // num_nodes, keys % num_nodes
    indptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device="cuda")
    torch.cumsum(torch.bincount(dst, minlength=num_nodes), 0, out=indptr[1:])
    return Graph(indptr, src.int(), validate=False)


def symmetric_weights(graph: Graph) -> torch.Tensor:
    """8 to 72, as in EMOGI, alike in both directions of an edge."""
    dst = torch.repeat_interleave(torch.arange(graph.num_nodes, device="cuda"), graph.in_degrees().long())
    both = torch.minimum(graph.indices, dst) * 1_000_003 + torch.maximum(graph.indices, dst) * 7919
    return (8 + (both * 2654435761 >> 16) % 65).float()


def median_ms(
    call: Callable[[int], Any], sources: list[int], seconds: float, before: Callable[[], None] = lambda: None
) -> float:
    """It ends after nine calls, or some seconds. `before` each call, what is not counted."""
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < 9 and (not times or time.perf_counter() - begun < seconds):
        before()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call(sources[len(times) % len(sources)])
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times))


def measure(graph: Graph, weights: torch.Tensor, name: str, place: str, seconds: float) -> list[dict[str, Any]]:
    sources = _sources(graph)
    how: dict[str, Any] = {"device": "cuda", "symmetric": True}
    rows: list[dict[str, Any]] = []

    def add(what: str, call: Callable[[int], Any]) -> Any:
        result = call(sources[0])  # the kernel is compiled
        ms = median_ms(call, sources, seconds)
        rows.append({"graph": name, "place": place, "what": what, "ms": ms})
        print(f"{name:10} {place:6} {what:14} {ms:9.3f} ms", flush=True)
        return result

    levels = add("bfs", lambda s: bfs(graph, s, **how))
    assert torch.equal(levels, add("bfs forward", lambda s: bfs(graph, s, direction_optimizing=False, **how)))
    labels = add("components", lambda _: connected_components(graph, **how))
    lengths = add("sssp", lambda s: sssp(graph, s, weights, **how))
    if place == "pinned":  # where the CPU reads it, too
        on_cpu: Any = bfs(graph, sources[0], symmetric=True, device="cpu")
        assert torch.equal(levels.cpu(), on_cpu)
        assert torch.equal(labels.cpu(), connected_components(graph, symmetric=True, device="cpu"))
        if graph.num_edges < 100_000_000:  # or it takes seconds
            assert torch.equal(lengths.cpu(), sssp(graph, sources[0], weights, symmetric=True, device="cpu"))
    add("pagerank", lambda _: pagerank(graph, tol=0.01, device="cuda"))
    return rows


def measure_managed(graph: Graph, weights: torch.Tensor, name: str, seconds: float) -> list[dict[str, Any]]:
    """The default traversals with lists and weights in managed memory. Only for what fits the GPU's memory many times:
    who has more of it than the GPU has free can hang the machine."""
    edges, of_edges = Managed(graph.indices), Managed(weights)
    shared = Graph(graph.indptr, edges.tensor, validate=False)
    how: dict[str, Any] = {"symmetric": True, "direction_optimizing": False}

    def evict() -> None:
        edges.evict()
        of_edges.evict()

    rows = []
    for what, call in (
        ("bfs", lambda s: bfs(shared, s, **how)),
        ("components", lambda _: connected_components(shared, symmetric=True)),
        ("sssp", lambda s: sssp(shared, s, of_edges.tensor, symmetric=True)),
    ):
        call(_sources(graph)[0])
        ms = median_ms(call, _sources(graph), seconds, evict)
        rows.append({"graph": name, "place": "uvm", "what": what, "ms": ms})
        print(f"{name:10} uvm    {what:14} {ms:9.3f} ms", flush=True)
    edges.free()
    of_edges.free()
    return rows


def _sources(graph: Graph) -> list[int]:
    big = graph.in_degrees().argsort(descending=True)[: graph.num_nodes // 2].cpu()
    return big[torch.randperm(len(big), generator=torch.Generator().manual_seed(3))[:3]].tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csc", nargs=2, metavar=("INDPTR.npy", "INDICES.npy"), help="in place of the first graph")
    parser.add_argument("--graphs", nargs="+", default=["products", "regular", "power law", "grid"])
    parser.add_argument("--seconds", type=float, default=1.0, help="per row of the table")
    parser.add_argument("--managed", action="store_true", help="also in managed memory (UVM), the first graph")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    arrays = [torch.from_numpy(np.load(path)).cuda() for path in options.csc or ()]
    makers: dict[str, Callable[[], Graph]] = {
        "products": lambda: Graph(*arrays, validate=False) if arrays else products_shaped(),
        "regular": lambda: regular_graph(2_000_000, 32),
        "power law": lambda: power_law_graph(21, 32_000_000),
        "grid": lambda: grid_graph(1500),
    }
    rows: list[dict[str, Any]] = []
    shapes: dict[str, dict[str, int]] = {}

    def write() -> None:
        write_json(options.out, {"gpu": torch.cuda.get_device_name(), "graphs": shapes, "rows": rows})

    for name in options.graphs:
        graph = makers[name]()
        weights = symmetric_weights(graph)
        pinned = graph.to("cpu").pin_memory()
        found = measure(graph, weights, name, "gpu", options.seconds)
        found += measure(pinned, weights.cpu().pin_memory(), name, "pinned", options.seconds)
        shapes[name] = {"num_nodes": graph.num_nodes, "num_edges": graph.num_edges}
        rows += found
        write()  # after each graph: what there is, whatever follows
        if name == options.graphs[0]:
            first = graph, weights, name
        del graph, pinned, weights
    if options.managed:
        rows += measure_managed(*first, options.seconds)
        write()


if __name__ == "__main__":
    main()

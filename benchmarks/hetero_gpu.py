"""Sampling graphs with several types of nodes and edges on a GPU, beside mini-batches of one type.

    PYTHONPATH=. python benchmarks/hetero_gpu.py --lahman data/lahman/graph.npz

Milliseconds per mini-batch, median over mini-batches of different seeds, synchronised at both ends; "device" is the
GPU's part of it, by events. "mag" and "igb" have the sizes of ogbn-mag and of IGB's medium heterogeneous graph; seeds
are papers, a fanout holds for each of the eight relations, and a node is expanded once. The units are mini-batches of
one type, on a graph with the size and skew of ogbn-products: Y1, Y2 and Y3 are (10, 10) x 1,024, (15, 10, 5) x 1,024
and (10, 10, 10) x 2,048. "lahman" is a database of 27 tables and 76 relations; its seeds are rows of People, with all
neighbors. Its units, L1 and L2, are one and two hops of the graph of one type in which a node's lists follow on each
other. The cases take turns: each is measured `--passes` times, and the median is taken. Of each case of several types
it is looked whether the CPU's mini-batch has the same bytes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import RESULTS, write_json
from _gpu_batches import ms_on_the_gpu, products_shaped
from _hetero_graphs import igb_shaped, mag_shaped
from torch import Tensor

from loader.graph import Graph, HeteroGraph
from loader.samplers import CudaSampler, FusedSampler, Request, Session

ONE_TYPE = [("Y1", [10, 10], 1024), ("Y2", [15, 10, 5], 1024), ("Y3", [10, 10, 10], 2048)]
TYPED: dict[str, list[tuple[list[int], int, int, str]]] = {
    "mag": [
        ([10, 10], 1024, 1, "Y1"),
        ([10, 10], 1024, 8, "Y1"),
        ([15, 10, 5], 1024, 1, "Y3"),
        ([15, 10, 5], 1024, 8, "Y3"),
        ([10, 10], 4096, 1, "Y2"),
    ],
    "igb": [([15, 10, 5], 1024, 1, "Y3")],
    "lahman": [([-1], 512, 8, "L1"), ([-1, -1], 512, 8, "L2")],
}
SEEDS = {"mag": "paper", "igb": "paper", "lahman": "People"}


class MiniBatches:
    """Groups of mini-batches of `size` seeds, `together` in each."""

    def __init__(self, session: Session, order: Tensor, size: int, together: int) -> None:
        self._session, self._order, self._size, self.together = session, order, size, together

    def begin(self, i: int) -> list[Callable[[], Any]]:
        """Begins the i-th group; what it returns waits for its mini-batches."""
        count, size, first = self._order.numel() // self._size, self._size, i * self.together
        numbers = range(first, first + self.together)
        places = [n % count * size for n in numbers]
        given = [Request(self._order[at : at + size], 0, n) for at, n in zip(places, numbers, strict=True)]
        return list(self._session.begin(given))

    def __call__(self, i: int) -> list[Any]:
        return [finish() for finish in self.begin(i)]


def median_ms(sample: Callable[[int], Any], rounds: int = 40, warm: int = 10) -> float:
    times = []
    for i in range(rounds + warm):
        torch.cuda.synchronize()
        start = time.perf_counter()
        sampled = sample(i)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
        del sampled
    return statistics.median(times[warm:])


def device_ms(groups: MiniBatches, rounds: int = 20) -> float:
    """Milliseconds that the GPU takes for a group: kernels and the gaps between them, without the host's part."""
    return statistics.median(ms_on_the_gpu(partial(groups.begin, i), delay=4_000_000) for i in range(rounds))


def of_one_type(graph: HeteroGraph) -> Graph:
    """The graph in which the lists of a node's relations are one list."""
    ends = [0]
    for name, ids in graph.node_types.items():
        begin, slots = ends[-1], len(graph.relations_into[name])
        ends.extend(begin + slots * (i + 1) for i in range(len(ids)))
    return Graph(graph.lists.indptr[torch.tensor(ends, device=graph.device)], graph.lists.indices)


def of_keys(path: Path) -> HeteroGraph:
    """The tables of a database, of which each key is a relation and its reverse.

    Args:
        path: has per table T `T/num`, its number of rows, and `T/column->TARGET` for each key: rows of the target, or
            -1.
    """
    sizes, edges = dict[str, int](), dict[tuple[str, str, str], Tensor]()
    with np.load(path) as arrays:
        for name in arrays.files:
            table, what = name.split("/")
            if what == "num":
                sizes[table] = int(arrays[name])
            elif what != "time":
                column, target = what.split("->")
                to = torch.from_numpy(arrays[name]).long()
                pairs = torch.stack([(to >= 0).nonzero().view(-1), to[to >= 0]])
                edges[table, f"f2p_{column}", target] = pairs
                edges[target, f"rev_f2p_{column}", table] = pairs.flip(0)
    return HeteroGraph.from_edges(edges, sizes)


Cases = list[tuple[dict[str, Any], MiniBatches]]


def add_hetero(cases: Cases, name: str, graph: HeteroGraph) -> None:
    """Adds the cases of a graph with several types, and of its twin with one where that is the unit."""
    on_cpu, ids = graph.to("cpu"), graph.node_types[SEEDS[name]]
    seeds = torch.randperm(len(ids), device="cuda") + ids.start
    seeds = seeds.to(graph.lists.indices.dtype)
    for fanouts, size, together, unit in TYPED[name]:
        if unit.startswith("L"):
            session = CudaSampler(fanouts, batches_per_launch=together).open(of_one_type(graph))
            row = {"unit": unit, "graph": f"{name}, one type", "fanouts": fanouts, "batch": size, "together": together}
            cases.append((row, MiniBatches(session, seeds, size, together)))
        row = {"graph": name, "fanouts": fanouts, "batch": size, "together": together, "of": unit}
        sampler = CudaSampler(fanouts, expand="new", batches_per_launch=together)
        sample = MiniBatches(sampler.open(graph), seeds, size, together)
        (found, *_), wanted = sample(0), FusedSampler(fanouts, expand="new").sample(on_cpu, seeds[:size].cpu())
        row |= {"nodes": found.nodes.numel(), "edges": sum(block.num_edges for block in found.blocks)}
        row["equal_to_the_cpu"] = found.digest() == wanted.digest()
        cases.append((row, sample))


def take_times(cases: Cases, passes: int) -> None:
    """Times all cases in turns, and adds medians to their rows: as a whole, and of the GPU's part; in milliseconds, and
    as multiples of the unit that a row names by "of".
    """
    for row, _ in cases:
        row["all_ms"], row["all_device_ms"] = [], []
    for _ in range(passes):
        for row, sample in cases:
            row["all_ms"].append(median_ms(sample) / sample.together)
            row["all_device_ms"].append(device_ms(sample) / sample.together)
    units = dict[str, tuple[float, float]]()
    for row, _ in cases:
        row["ms"], row["device_ms"] = ms = tuple(statistics.median(row[of]) for of in ("all_ms", "all_device_ms"))
        if "of" in row:
            row["of_unit"], row["device_of_unit"] = (a / b for a, b in zip(ms, units[row["of"]], strict=True))
        else:
            units[row["unit"]] = ms[0], ms[1]
        print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--lahman", type=Path, help="graph.npz of the database; without it its rows are left out")
    parser.add_argument("--json", type=Path, default=RESULTS / "hetero_gpu.json")
    arguments = parser.parse_args()
    plain, cases = products_shaped(), Cases()
    order = torch.randperm(plain.num_nodes, device="cuda").to(plain.indices.dtype)
    for unit, fanouts, size in ONE_TYPE:
        row: dict[str, Any] = {"unit": unit, "graph": "one type", "fanouts": fanouts, "batch": size, "together": 1}
        cases.append((row, MiniBatches(CudaSampler(fanouts).open(plain), order, size, 1)))
    graphs = {"mag": mag_shaped(), "igb": igb_shaped()}
    if arguments.lahman is not None:
        graphs["lahman"] = of_keys(arguments.lahman).to("cuda")
    for name, graph in graphs.items():
        print(torch.cuda.get_device_name(), name, graph, flush=True)
        add_hetero(cases, name, graph)
    take_times(cases, arguments.passes)
    sizes = {name: {"nodes": graph.num_nodes, "edges": graph.num_edges} for name, graph in graphs.items()}
    found = {"gpu": torch.cuda.get_device_name(), "passes": arguments.passes, "graphs": sizes}
    write_json(arguments.json, found | {"rows": [row for row, _ in cases]})


if __name__ == "__main__":
    main()

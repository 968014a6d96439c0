"""Sampling trees by time on a GPU, beside mini-batches of one type.

    PYTHONPATH=. python benchmarks/trees_gpu.py --data-dir data

Milliseconds per mini-batch, median over mini-batches of different seeds, as in hetero_gpu.py: synchronised at both
ends, and of the GPU's part alone.
Seeds are papers of a graph of the size of ogbn-mag, each at its own time; no edge is later than its seed, and each seed
has a tree of its own. A fanout holds for each of the eight relations. "igb" has the sizes of IGB's medium heterogeneous
graph instead. "rel-f1" is the database of RelBench; its seeds are the items of driver-dnf. Interactions: 10 million
events of 10,000 users and 10,000 items; 600 events ask for a user, an item and another item each. The units are
mini-batches of one type: Y1 and Y3 with bitmaps on a graph of the size of ogbn-products, (10, 10) x 1,024 and
(10, 10, 10) x 2,048, H1 and H3 the same with hash sets on a graph of 2.5 million nodes of degree 12. Of each case but
"igb", whose lists a CPU takes minutes to sort, it is looked whether the CPU's mini-batch has the same bytes.
Rows with "large" blocks are those of trees that have small ones by default: of the kernel's blocks, which sample a tree
at a time, fewer are there at once. Rows with "per_launch" have that many mini-batches per launch, and ask for all of a
group at once: the GPU samples while the host prepares the next launch.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, write_json
from _gpu_batches import products_shaped
from _hetero_graphs import igb_shaped, mag_shaped, paper_times, timed
from hetero_gpu import Cases, MiniBatches, take_times
from sampler_gpu_paper import regular_graph
from torch import Tensor

from loader.datamodules.tasks import TaskDataModule
from loader.datasets import RelationalDataset
from loader.graph import HeteroGraph
from loader.samplers import CudaSampler, Request, TreeSampler
from loader.samplers.gpu import tree_thread_blocks

PAPERS: list[tuple[list[int], int, int, str, dict[str, Any]]] = [
    ([10, 10], 1024, 1, "H1", {}),
    ([10, 10], 1024, 1, "H1", {"last": True}),
    ([10, 10], 1024, 8, "H1", {}),
    ([10, 10], 4096, 1, "H1", {}),
    ([15, 10, 5], 1024, 1, "H3", {}),
    ([10, 10], 1024, 1, "Y1", {"trees": "paths"}),
    ([15, 10, 5], 1024, 1, "Y3", {"trees": "paths"}),
    ([10, 10], 1024, 1, "H1", {"times": "none"}),
    ([10, 10], 1024, 1, "H1", {"blocks": "large"}),
]
IGB = [([15, 10, 5], 1024, 1, "H3", dict[str, Any]())]
DRIVERS: list[tuple[list[int], int, int, str, dict[str, Any]]] = [
    ([128, 64], 512, 1, "H1", {"times": "both"}),
    ([128, 64], 512, 8, "H1", {"times": "both"}),
]
QUERIES: list[tuple[list[int], int, int, str, dict[str, Any]]] = [
    ([10], 1800, 1, "Y1", {"trees": "paths", "last": True}),
    ([10, 10], 1800, 1, "Y1", {"trees": "paths"}),
    ([10], 1800, 1, "Y1", {"last": True}),
    ([10, 10], 1800, 1, "Y1", {}),
    ([10], 1800, 16, "Y1", {"trees": "paths", "last": True}),
    ([10], 1800, 16, "Y1", {"trees": "paths", "last": True, "per_launch": 8}),
    ([10, 10], 1800, 1, "Y1", {"trees": "paths", "blocks": "large"}),
]


def interactions(events: int = 10_000_000, side: int = 10_000, seed: int = 7) -> tuple[HeteroGraph, Tensor]:
    """Events between users and items as edges both ways, and `[n, 2]` queries: nodes and times."""
    g = torch.Generator("cuda").manual_seed(seed)

    def drawn(count: int) -> Tensor:  # skewed
        return (side * torch.rand(count, generator=g, device="cuda", dtype=torch.float64) ** 2).long()

    user, item = drawn(events), side + drawn(events)
    times = torch.randint(1, 40, (events,), generator=g, device="cuda").cumsum(0)
    pairs = torch.stack([torch.cat([user, item]), torch.cat([item, user])])
    key = ("node", "meets", "node")
    graph = HeteroGraph.from_edges({key: pairs}, {"node": 2 * side}, edge_times={key: times.repeat(2)})
    asked = torch.arange(events // 2, events // 2 + 600 * 200, device="cuda")
    nodes = torch.stack([user[asked], item[asked], side + drawn(asked.numel())], 1).view(-1)
    return graph, torch.stack([nodes, times[asked].repeat_interleave(3)], 1)


def papers_in_time(graph: HeteroGraph) -> tuple[HeteroGraph, Tensor]:
    """The graph with times, and its papers at their own times, `[n, 2]`, in no order."""
    times = paper_times(graph)
    ids = torch.randperm(times.numel(), device="cuda")
    return timed(graph, times), torch.stack([ids + graph.node_types["paper"].start, times[ids]], 1)


def drivers(folder: Path) -> tuple[HeteroGraph, Tensor]:
    """rel-f1, and the items of driver-dnf in no order."""
    dataset = RelationalDataset("rel-f1", "driver-dnf", schema="rel-f1", data_dir=folder)
    module = TaskDataModule(dataset, TreeSampler([1], times="both"), batch_size=1)
    module.setup()
    loader = module.train_dataloader()
    (items,) = loader.items.take(torch.randperm(len(loader.items)), [len(loader.items)])
    graph: Any = loader.graph
    return graph.to("cuda"), items.ids.cuda()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--data-dir", type=Path, help="has rel-f1; without it its rows are left out")
    parser.add_argument("--json", type=Path, default=RESULTS / "trees_gpu.json")
    arguments = parser.parse_args()
    cases = Cases()
    for name, plain, kind in (("Y", products_shaped(), "bitmap"), ("H", regular_graph(2_500_000, 12), "hash")):
        order = torch.randperm(plain.num_nodes, device="cuda").to(plain.indices.dtype)
        for unit, fanouts, size in ((f"{name}1", [10, 10], 1024), (f"{name}3", [10, 10, 10], 2048)):
            sample = MiniBatches(CudaSampler(fanouts, node_set=kind).open(plain), order, size, 1)
            cases.append(({"unit": unit, "fanouts": fanouts, "batch": size, "together": 1}, sample))
    given = {
        "papers": papers_in_time(mag_shaped()),
        "igb": papers_in_time(igb_shaped()),
        "interactions": interactions(),
    }
    rows_of = {"papers": PAPERS, "igb": IGB, "interactions": QUERIES, "rel-f1": DRIVERS}
    if arguments.data_dir is not None:
        given["rel-f1"] = drivers(arguments.data_dir)
    for name, (graph, items) in given.items():
        print(torch.cuda.get_device_name(), name, graph, flush=True)
        on_cpu = None if name == "igb" else graph.to("cpu")
        for fanouts, size, together, unit, other in rows_of[name]:
            options = {"times": "edge", "rule": "<" if name == "interactions" else "<="} | other
            if options["times"] == "none":
                del options["rule"]
            blocks = tree_thread_blocks.BLOCKS
            if options.pop("blocks", None):
                tree_thread_blocks.BLOCKS = blocks[-1:]
            of = items[:, 0].contiguous() if options["times"] == "none" else items
            each = options.pop("per_launch", together)
            session = TreeSampler(fanouts, device="cuda", batches_per_launch=each, **options).open(graph)
            sample = MiniBatches(session, of, size, together)
            (found, *_) = sample(0)
            for i in range(1, 31):  # by then the plan is made
                sample(i)
            tree_thread_blocks.BLOCKS = blocks
            row = {"graph": name, "fanouts": fanouts, "batch": size, "together": together, "of": unit}
            row |= options | other
            row |= {"nodes": found.nodes.numel(), "edges": found.num_edges}
            if on_cpu is not None:
                wanted = TreeSampler(fanouts, **options).open(on_cpu).begin([Request(of[:size].cpu(), 0, 0)])[0]()
                row["equal_to_the_cpu"] = found.digest() == wanted.digest()
            cases.append((row, sample))
    take_times(cases, arguments.passes)
    write_json(
        arguments.json,
        {
            "gpu": torch.cuda.get_device_name(),
            "passes": arguments.passes,
            "edges": {name: graph.num_edges for name, (graph, _) in given.items()},
            "rows": [row for row, _ in cases],
        },
    )


if __name__ == "__main__":
    main()

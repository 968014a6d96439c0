"""Are LABOR's mini-batches as large as those of DGL's `LaborSampler`? Numbers of nodes and edges, on real graphs.

    PYTHONPATH=. python benchmarks/labor_sizes.py --data-dir DATA
    PYTHONPATH=. python benchmarks/labor_sizes.py --data-dir DATA --graphs coauthor-physics --batches 50

Both sample around the same seeds. The differences are averaged over groups of consecutive mini-batches, which with
`batch_dependency` are not independent of each other; of these means the mean is taken, and its interval by Student's t.
Uniform picks (ours) are beside them: what LABOR saves. DGL has 64-bit ids, because DGL 1.1.3 picks wrongly with 32-bit
ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import RESULTS, add_graph_options, ints, load_graph, write_json
from _intervals import half_width
from rich.console import Console
from rich.table import Table

from loader.graph import Graph
from loader.machine.optional import import_dgl
from loader.samplers import FusedSampler

# Name -> options of both samplers.
FORMS: dict[str, dict[str, Any]] = {
    "LABOR-0": {},
    "all hops": {"layer_dependency": True},
    "4 mini-batches": {"batch_dependency": 4},
}
GROUP = 20  # mini-batches: several times the dependency
GRAPHS = ("ogbn-arxiv", "coauthor-physics", "amazon-computers")


def sizes_of_ours(graph: Graph, fanouts: tuple[int, ...], seeds: list[torch.Tensor], **options: Any) -> np.ndarray:
    """`[mini-batches, 2]`: input nodes and edges."""
    sampler = FusedSampler(fanouts, num_threads=1, **options)
    made = (sampler.sample(graph, own, batch=i) for i, own in enumerate(seeds))
    return np.array([(one.frontier_sizes[-1], one.num_edges) for one in made], dtype=float)


def sizes_of_dgl(
    dgl: Any, graph: Any, fanouts: tuple[int, ...], seeds: list[torch.Tensor], **options: Any
) -> np.ndarray:
    """As `sizes_of_ours`."""
    sampler = dgl.dataloading.LaborSampler(list(fanouts[::-1]), **options)
    sizes = []
    for own in seeds:
        inputs, _, blocks = sampler.sample_blocks(graph, own)
        sizes.append((inputs.numel(), sum(block.num_edges() for block in blocks)))
    return np.array(sizes, dtype=float)


def compare(ours: np.ndarray, theirs: np.ndarray, level: float = 0.95) -> dict[str, Any]:
    """Of one number of each mini-batch: both means, and by how many percent ours is larger, with its interval.

    Args:
        ours, theirs: `[mini-batches]`, of the same seeds.
        level: of the interval.
    """
    differences = 100 * (ours - theirs) / theirs.mean()
    groups = [float(part.mean()) for part in np.array_split(differences, max(2, len(differences) // GROUP))]
    value, width = float(differences.mean()), half_width(groups, level)
    means = {"ours": round(float(ours.mean()), 1), "dgl": round(float(theirs.mean()), 1)}
    return {**means, "percent": round(value, 3), "half_width": round(width, 3)}


def measure(
    name: str, graph: Graph, dgl: Any, fanouts: tuple[int, ...], batch_size: int, batches: int
) -> list[dict[str, Any]]:
    """A row for each of `FORMS`."""
    csc = (graph.indptr.long(), graph.indices.long(), torch.empty(0, dtype=torch.int64))
    dgl_graph = dgl.graph(("csc", csc), num_nodes=graph.num_nodes)
    generator = torch.Generator().manual_seed(0)
    seeds = [torch.randperm(graph.num_nodes, generator=generator)[:batch_size] for _ in range(batches)]
    uniform = sizes_of_ours(graph, fanouts, seeds)
    rows = []
    for form, options in FORMS.items():
        ours = sizes_of_ours(graph, fanouts, seeds, labor=True, **options)
        theirs = sizes_of_dgl(dgl, dgl_graph, fanouts, seeds, **options)
        rows.append(
            {
                "graph": name,
                "fanouts": fanouts,
                "form": form,
                "nodes": compare(ours[:, 0], theirs[:, 0]),
                "edges": compare(ours[:, 1], theirs[:, 1]),
                "uniform_nodes": round(float(uniform[:, 0].mean()), 1),
                "uniform_edges": round(float(uniform[:, 1].mean()), 1),
            }
        )
    return rows


def show(rows: list[dict[str, Any]]) -> Table:
    table = Table("graph", "fanouts", "LABOR", "nodes, ours", "DGL", "%", "edges, ours", "DGL", "%", "uniform")
    for row in rows:
        cells = []
        for found in (row["nodes"], row["edges"]):
            cells += [f"{found['ours']:,.0f}", f"{found['dgl']:,.0f}"]
            cells.append(f"{found['percent']:+.2f} ± {found['half_width']:.2f}")
        fanouts = ",".join(map(str, row["fanouts"]))
        table.add_row(row["graph"], fanouts, row["form"], *cells, f"{row['uniform_nodes']:,.0f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_graph_options(parser)
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), help="names of datasets, or csc")
    parser.add_argument("--fanouts", type=ints, nargs="+", default=[(10, 10), (15, 10, 5)])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=400, help="mini-batches of each setting")
    parser.add_argument("--json", type=Path, default=RESULTS / "labor_sizes.json")
    arguments = parser.parse_args()
    dgl = import_dgl("the comparison")
    dgl.seed(0)
    torch.set_num_threads(1)
    rows = []
    for name in arguments.graphs:
        graph = load_graph(name, arguments)
        for fanouts in arguments.fanouts:
            rows += measure(name, graph, dgl, fanouts, arguments.batch_size, arguments.batches)
            print(f"{name} {fanouts} is done", flush=True)
    Console(width=140).print(show(rows))
    content = {"benchmark": "labor_sizes", "dgl": dgl.__version__, "batch_size": arguments.batch_size}
    write_json(arguments.json, {**content, "batches": arguments.batches, "rows": rows})


if __name__ == "__main__":
    main()

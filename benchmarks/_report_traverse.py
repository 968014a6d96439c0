"""Tables and picture of the traversals on a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _report_cells import Result, markdown
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Milliseconds on the graph of ogbn-products' shape, and what EMOGI's own code took there on an H200.
LIMITS = {
    ("bfs", "gpu"): (1.5, 3.0),
    ("bfs", "pinned"): (9.0, 12.6),
    ("components", "gpu"): (2.5, 3.8),
    ("components", "pinned"): (12.0, 22.7),
    ("sssp", "gpu"): (5.0, 7.5),
    ("sssp", "pinned"): (50.0, 82.0),
}
PLACES = {"gpu": "in GPU memory", "pinned": "in pinned memory"}


def default_ms(result: Result) -> dict[tuple[str, str, str], float]:
    """(graph, traversal, place) -> milliseconds of the default schedule."""
    return {(r["graph"], r["what"], r["place"]): r["ms"] for r in result["rows"] if "schedule" not in r}


def judge(result: Result) -> tuple[str, bool]:
    found = default_ms(result)
    ms = {(what, place): found["products", what, place] for what, place in LIMITS}
    text = ", ".join(f"{key[0]} {PLACES[key[1]]} {ms[key]:.2f} of {limit:g} ms" for key, (limit, _) in LIMITS.items())
    return text, all(ms[key] <= limit for key, (limit, _) in LIMITS.items())


def ways(result: Result) -> list[tuple[str, str]]:
    """(schedule, access), in the order in which they were measured."""
    return list(dict.fromkeys((r["schedule"], r["access"]) for r in result["rows"] if "schedule" in r))


def ms_by_way(result: Result, what: str) -> dict[tuple[tuple[str, str], tuple[str, str]], float]:
    """(graph, place), (schedule, access) -> milliseconds."""
    return {
        ((r["graph"], r["place"]), (r["schedule"], r["access"])): r["ms"]
        for r in result["rows"]
        if "schedule" in r and r["what"] == what
    }


def tables(result: Result) -> list[str]:
    found, graphs = default_ms(result), result["graphs"]
    kinds = list(dict.fromkeys(what for _, what, place in found if place in PLACES))
    shapes = ", ".join(
        f"{name} ({shape['num_nodes']:,} vertices, {shape['num_edges']:,} edges)" for name, shape in graphs.items()
    )
    lines = [
        f"Milliseconds per call from vertices at random, synchronised at both ends, medians. The graphs: {shapes}. All "
        "of them are symmetric. Weights are 8 to 72.",
        "",
        *markdown(
            ("graph", "place", *kinds),
            [
                (name, PLACES[place], *(f"{found[name, what, place]:.2f}" for what in kinds))
                for name in graphs
                for place in PLACES
            ],
        ),
        *_managed(found),
        "EMOGI's own code on the first graph, in GPU memory and by zero-copy: "
        + ", ".join(f"{what} {LIMITS[what, 'gpu'][1]} and {LIMITS[what, 'pinned'][1]}" for what in kinds[:3])
        + " ms.",
    ]
    columns = [(name, place) for name in graphs for place in PLACES]
    for what, title in (("bfs", "BFS that goes forward in all levels"), ("sssp", "Shortest paths")):
        by_way = ms_by_way(result, what)
        lines += [
            *([""] if what == "bfs" else []),
            f"{title}, by schedule and access:",
            "",
            *markdown(
                ("schedule", "access", *(f"{name}, {place}" for name, place in columns)),
                [(*way, *(f"{by_way[column, way]:.2f}" for column in columns)) for way in ways(result)],
            ),
        ]
    return [*lines, "![BFS by schedule and access on four graphs](images/traverse_gpu.svg)"]


def _managed(found: dict[tuple[str, str, str], float]) -> list[str]:
    """A sentence of what was measured in managed memory."""
    shown = [f"{what} {ms:.1f}" for (_, what, place), ms in found.items() if place == "uvm"]
    if not shown:
        return []
    return [
        f"In managed memory (UVM), whose pages lie in host memory before each call, on the first graph, BFS forward in "
        f"all levels: {', '.join(shown)} ms.",
        "",
    ]


def draw(result: Result, path: Path) -> None:
    """BFS by each schedule and access, on each graph, in both kinds of memory."""
    by_way, every, graphs = ms_by_way(result, "bfs"), ways(result), list(result["graphs"])
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    width = 0.8 / len(every)
    for axes, place in zip(figure.subplots(2, 1, sharex=True), PLACES, strict=True):
        for i, way in enumerate(every):
            x = np.arange(len(graphs)) + (i - (len(every) - 1) / 2) * width
            axes.bar(x, [by_way[(name, place), way] for name in graphs], width, label=", ".join(way), color=f"C{i}")
        axes.set_yscale("log")
        axes.set_ylabel(f"ms, {PLACES[place]}")
        axes.grid(axis="y", alpha=0.3)
        axes.set_xticks(np.arange(len(graphs)), graphs)
    figure.legend(*axes.get_legend_handles_labels(), fontsize=8, ncols=4, loc="outside lower center")
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": path.stem}):  # equal results, equal bytes
        figure.savefig(path, metadata={"Date": None})

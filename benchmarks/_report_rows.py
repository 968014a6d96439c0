"""Rows, and what else the pages of measurements compute from the results: `benchmarks/pages/` asks for it by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from _common import microseconds
from _report_schema import Result, Table, cell, markdown, span

from loader.samplers.gpu.sizes import choose_schedule

# Milliseconds of the fastest of DGL 2.5, GraphBolt, torch-quiver and cuGraph 26.10 for whole sampling (seeds on the GPU
# to relabelled blocks on the GPU), one run on an NVIDIA H200, torch 2.11, on a graph of the same shape, 2026-11-20.
PEERS_MS = {
    ((10, 10), 1024): 0.737,
    ((10, 10), 10240): 1.054,
    ((15, 10, 5), 1024): 1.424,
    ((10, 10, 10), 1024): 1.492,
    ((10, 10, 10), 2048): 1.719,
    ((10, 10, 10), 10240): 2.664,
    ((15, 15, 15), 4096): 2.601,
    ((20, 20, 20), 2048): 2.661,
    ((20, 20, 20), 10240): 5.935,
}
# What EMOGI's own code took on an H200 for the graph of ogbn-products' shape: milliseconds by traversal and place.
EMOGI_MS = {
    ("bfs", "gpu"): 3.0,
    ("bfs", "pinned"): 12.6,
    ("components", "gpu"): 3.8,
    ("components", "pinned"): 22.7,
    ("sssp", "gpu"): 7.5,
    ("sssp", "pinned"): 82.0,
}
PLACES = {"gpu": "in GPU memory", "pinned": "in pinned memory"}
# Of sampler_gpu_paper.json. Those with a queue are no longer in the code.
SCHEDULES = ("cooperative", "fused-static", "hopwise", "persistent")
FUSED = ("cooperative", "fused-static", "persistent")


def clock(result: Result) -> list[str]:
    busy = result.get("cpu_time")
    return [f"Times are {'of the processor, since other work used the machine' if busy else 'by the clock'}.", ""]


def by_threads(result: Result) -> Iterator[Result]:
    for at, (fanouts, batch_size) in enumerate(result["settings"]):
        for threads, settings in result["by_threads"].items():
            first = result["by_threads"]["1"][at]
            yield {"fanouts": fanouts, "batch_size": batch_size, "threads": threads, "first": first, **settings[at]}


def whole_ms(row: Result, schedule: str) -> float:
    """Of a row of sampler_gpu.json: whole sampling, the arrays of the blocks included."""
    return max(row[schedule]["ms"], row[schedule]["host_ms"])


def peers(result: Result) -> Iterator[Result]:
    """Rows of sampler_gpu.json, with milliseconds by schedule, of `schedule="auto"` and of the fastest other system."""
    for row in result["rows"]:
        work = (microseconds(row["cooperative"][key]) for key in ("host_work_ms", "all_host_work_ms"))
        times = {name: whole_ms(row, name) for name in ("cooperative", "hopwise")}
        auto = times[choose_schedule(row["edges"], "bitmap", ahead=False)]
        found = {**row, **times, "auto": auto, "host": " / ".join(work)}
        setting = tuple(row["fanouts"]), row["batch"]
        yield {**found, "peer": PEERS_MS[setting]} if setting in PEERS_MS else found


def paper(result: Result) -> Iterator[Result]:
    """Ranges by graph and number of hops."""
    groups: dict[tuple[str, int], list[Result]] = {}
    for row in result["rows"]:
        groups.setdefault((row["graph"], len(row["fanouts"])), []).append(row)
    for (graph, hops), rows in groups.items():
        edges = [row["edges"] for row in rows]
        found = {"graph": graph, "hops": hops, "edges": f"{min(edges):,} to {max(edges):,}"}
        for kind in ("whole_ms", "device_ms"):
            for name in FUSED:
                found[f"{name} {kind}"] = span([row["hopwise"][kind] / row[name][kind] for row in rows])
        found["calls"] = span([row["a call a hop"]["whole_ms"] / row["hopwise"]["whole_ms"] for row in rows])
        yield found


def paper_notes(result: Result) -> list[str]:
    costs = [row["ratio"] for row in result["edge_cost_10240_over_2048"]]
    hubs = ", ".join(f"{k.removeprefix('ratio ')} {v:.2f}" for k, v in result["hubs"].items() if "ratio" in k)
    waits = [row["a call a hop"]["whole_ms"] / row["hopwise"]["whole_ms"] for row in result["rows"]]
    rates = []
    for graph, plain in result["random_reads_per_ns"].items():
        best = max(row["edges"] / row["hopwise"]["device_ms"] for row in result["rows"] if row["graph"] == graph) / 1e6
        rates.append(f"{graph} {best:.0f} and {plain:.0f}")
    return [
        "Fusing saves little here, because our baseline does not wait for the host between hops: it saves the gaps "
        "between some ten launches, about a microsecond each. With one call per hop the host waits, and the baseline "
        f"is {span(waits)} times as fast as that. A queue also has to put the blocks in order afterwards.",
        "",
        "Picks per nanosecond at the setting with the most picks, and plain random reads of the same array by torch: "
        f"{', '.join(rates)}. A pick is such a read, two accesses to the sets of nodes and two to the local ids.",
        "",
        f"An edge at 10,240 seeds costs {span(costs)} of one at 2,048 (cooperative). A graph with hubs takes, beside a "
        f"regular one: {hubs}.",
        "",
    ]


def scans(result: Result) -> Iterator[Result]:
    """Rows of scan_gpu.json by setting, with milliseconds by schedule and of uniform picks."""
    found: dict[tuple[Any, ...], Result] = {}
    for row in result["rows"]:
        setting = row["graph"], tuple(row["fanouts"]), row["batch_size"]
        found.setdefault((setting, row["picks"]), {**row, "ms": {}})["ms"][row["schedule"]] = row["ms"]
    for (setting, picks), row in found.items():
        if picks != "uniform":
            yield {**row, "uniform": min(found[setting, "uniform"]["ms"].values())}


def scan_note(result: Result) -> list[str]:
    times = [row["ms"] for row in scans(result)]
    right = sum(ms["tickets"] <= 1.05 * min(ms.values()) for ms in times)
    return [f"`tickets` is within 5 % of the fastest in {right} of {len(times)} settings.", ""]


def own_laws(result: Result) -> Iterator[Result]:
    """Of walks_gpu.json: laws that a user wrote as `next`, with the time of the built-in walk."""
    known = {(row["walk"], row["walkers"], row["length"]): row["ms"] for row in result["rows"]}
    for (walk, walkers, length), ms in known.items():
        name = walk.removeprefix("next: ")
        if name != walk:
            yield {"law": name, "named": name, "next": ms, "built_in": known[name, walkers, length]}


def traversal_ms(result: Result) -> dict[tuple[str, str, str], float]:
    """(graph, traversal, place) -> milliseconds of the default schedule."""
    return {(r["graph"], r["what"], r["place"]): r["ms"] for r in result["rows"] if "schedule" not in r}


def ms_by_way(result: Result, what: str) -> dict[tuple[str, str], dict[tuple[str, str], float]]:
    """(schedule, access) -> (graph, place) -> milliseconds, in the order in which they were measured."""
    found: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for row in result["rows"]:
        if "schedule" in row and row["what"] == what:
            found.setdefault((row["schedule"], row["access"]), {})[row["graph"], row["place"]] = row["ms"]
    return found


def traversals(result: Result) -> list[str]:
    found, graphs = traversal_ms(result), result["graphs"]
    kinds = list(dict.fromkeys(what for _, what, place in found if place in PLACES))
    columns = [(name, place) for name in graphs for place in PLACES]
    emogi = ", ".join(f"{what} {PLACES[place]} {ms}" for (what, place), ms in EMOGI_MS.items())
    managed = ", ".join(f"{what} {ms:.1f}" for (_, what, place), ms in found.items() if place == "uvm")
    shapes = "; ".join(f"{name}: {s['num_nodes']:,} nodes, {s['num_edges']:,} edges" for name, s in graphs.items())
    shown = [(g, PLACES[p], *(f"{found[g, what, p]:.2f}" for what in kinds)) for g, p in columns]
    page = [
        "Milliseconds per call from random nodes, synchronised at both ends, medians. All graphs are symmetric "
        f"({shapes}). Weights are 8 to 72. PageRank ends at `tol=0.01`.",
        "",
        *markdown(("graph", "place", *kinds), shown),
        f"EMOGI's own code on the first graph: {emogi} ms.",
        "",
    ]
    if managed:
        page += [
            "In managed memory (UVM), whose pages lie in host memory before each call, on the first graph, BFS forward "
            f"in all levels: {managed} ms.",
            "",
        ]
    for what, title in (("bfs", "BFS that goes forward in all levels"), ("sssp", "Shortest paths")):
        page += [f"{title}, milliseconds by schedule and access:", ""]
        ways = [(*way, *(f"{ms[c]:.2f}" for c in columns)) for way, ms in ms_by_way(result, what).items()]
        page += markdown(("schedule", "access", *(f"{name}, {place}" for name, place in columns)), ways)
    return [*page, "![BFS by schedule and access on four graphs, ms](../images/traverse_gpu.svg)", ""]


def disk(result: Result) -> Iterator[Result]:
    ways = {
        "system": "the system's own read-ahead",
        "random": "single pages, each waited for",
        "ahead": "single pages, asked for ahead",
    }
    for name, found in result["medians"].items():
        yield {"way": ways[name], **found}


def budget_rows(result: Result, shape: str) -> dict[str, Result]:
    """Rows of budget_gpu.json that ran on graphs of full size, by their budget."""
    rows = result["shapes"].get(shape, {"rows": []})["rows"] if result["part"] == 1 else []
    return {row["budget"] or "none": row for row in rows if "refused" not in row}


def _budget_row(row: Result) -> Result:
    name = row["budget"] or "none"
    if "refused" in row:
        return {"memory": name, "kept": "refused: " + row["refused"]}
    name += f" ({row['budget_bytes'] / 2**30:.2f} GiB)" if name.endswith("%") else ""
    plan = row["plan"] or {"share_of_edges": 1.0, "share_of_rows": 1.0}
    name += f", lookahead {plan['lookahead']}" if plan.get("lookahead") else ""
    part = row["measured_batches"] / row["batches"]
    return {
        **row,
        "memory": name,
        "kept": f"{plan['share_of_edges']:.1%}, {plan['share_of_rows']:.1%}",
        "epoch": f"{row['epoch_s']:.3f}" + (f" (of {part:.0%})" if part < 1 else ""),
        "peak_gib": row["peak_bytes"] / 2**30,
    }


_BUDGETS = Table(
    """
    memory; in GPU memory: edges, rows | kept; epoch, s | epoch ?; training alone, s | training_alone_s ? | {:.3f};
    loading alone, s | loading_alone_s ? | {:.3f}; over the bus, GB | 1e-9 * bus_bytes ? | {:.2f};
    bus, s | bus_s ? | {:.3f}; epoch over the longer one | over_bound ? | {:.2f}x; peak, GiB | peak_gib ? | {:.2f};
    ready after, s | setup_s ? | {:.1f}
    """,
    lambda shape: map(_budget_row, shape["rows"]),
)
_BUDGET_LINES = Table(
    """
    memory | budget; lines of rows, M | 1e-6 * row_lines | {:.1f}; lines of lists, M | 1e-6 * list_lines | {:.1f};
    plain copy, s | lines_s | {:.3f}; epoch over it or training | over_lines | {:.2f}x;
    rows alone, s | gathering_alone_s | {:.3f}; lists alone, s | sampling_alone_s | {:.3f};
    loading alone, s | loading_alone_s | {:.3f}; epoch, s | epoch_s | {:.3f}
    """,
    lambda shape: [row for row in shape["rows"] if "over_lines" in row],
)


def budgets(result: Result) -> list[str]:
    """Two tables for each shape."""
    page = [f"The graphs are 1/{result['part']} of their size.", ""] if result["part"] > 1 else []
    for name, shape in result["shapes"].items():
        page += [
            f"### Shape of {name}",
            "",
            f"{shape['num_nodes']:,} nodes, {shape['num_edges']:,} edges, {shape['num_features']} features."
            + (f" Training needs {shape['needs_bytes'] / 2**30:.2f} GiB in any case." if shape["needs_bytes"] else ""),
            "",
            *_BUDGETS.show(shape),
        ]
        if any("over_lines" in row for row in shape["rows"]):
            page += ["The same epochs, by lines of 128 bytes:", "", *_BUDGET_LINES.show(shape)]
    return page


def aggregations(result: Result) -> Iterator[Result]:
    """Rows of aggregate*.json: ours beside the fastest other."""
    for row in result["rows"]:
        others = {name: ms for name, ms in row["milliseconds"].items() if name != "ours" and ms}
        yield {**row, "faster": min(others.values()) / row["milliseconds"]["ours"]}


def aggregation_table(result: Result) -> list[str]:
    rows = list(aggregations(result))
    names = list(rows[0]["milliseconds"])
    about = [key for key in rows[0] if key not in ("milliseconds", "refused", "faster")]
    shown = [
        [
            *(cell(row[key]) for key in about),
            *(cell(row["milliseconds"].get(n)) for n in names),
            f"{row['faster']:.2f}x",
        ]
        for row in rows
    ]
    return markdown((*about, *names, "faster by"), shown)


def contenders(result: Result) -> Iterator[Result]:
    for row in result["rows"]:
        for name, numbers in row["contenders"].items():
            yield {**row, "layer": name, **numbers}


def pipeline(result: Result) -> Iterator[Result]:
    for row in result["rows"]:
        yield {
            **row,
            "graphed": bool(row["graphed"]),
            "on": "half" if row.get("blocks_per_sm") is None else f"{row['blocks_per_sm']:.0%}",
            "date": row.get("date", "")[:16].replace("T", " "),
        }


def pipeline_notes(result: Result) -> list[str]:
    commands = dict.fromkeys(row["command"] for row in result["rows"] if "command" in row)
    page = ["The rows come from:", "", *(f"- `{command}`" for command in commands), ""]
    for row in result["rows"]:
        if "soak" in row:
            last = row["soak"][-1]
            page += [
                f"{len(row['soak'])} epochs ({row['store']}) end with {last['resident_mib']:,.0f} MiB resident, "
                f"{last['reserved_mib']:,.0f} MiB of GPU memory reserved, {last['threads']:.0f} threads; Ctrl-C ends "
                f"an epoch in {row['interrupt_s']:.2f} s.",
                "",
            ]
    return page


def prefetches(result: Result) -> Iterator[Result]:
    for name, row in result["medians"].items():
        yield {"name": name, **row}


def beside(result: Result) -> Iterator[Result]:
    alone, beside = result["profile"]["alone"], result["profile"]["beside"]
    what = {
        "epoch": "an epoch, under the profiler",
        "training": "kernels of training",
        "gaps": "gaps between these",
        "sampling": "kernels on other streams, most of them the sampler's",
    }
    pairs = [(words, alone[name], beside[name]) for name, words in what.items()]
    own, other = alone["kernels"]["training"], beside["kernels"]["training"]
    slower = sorted(own, key=lambda name: own[name] - other.get(name, 0.0))
    pairs += [(f"`{name[:60]}`", own[name], other.get(name, 0.0)) for name in slower[:6]]
    for name, a, b in pairs:
        yield {"what": name, "alone": a, "beside": b, "more": b - a}


def sides(result: Result) -> Iterator[Result]:
    for row in result["settings"]:
        for name, side in row["sides"].items():
            found = {**row, **side, "sampler": name, "seeds": len(side["seeds"]), "seconds": side["seconds_mean"][-1]}
            found["test"] = f"{side['test_mean']:.2f} ± {side['test_std'] or 0:.2f}"
            if d := row["differences"].get(name):
                found |= _shown(d)
                found["gap"] = d["first_loss_gap"]
            yield found


def hetero_sides(result: Result) -> Iterator[Result]:
    for row in result["rows"]:
        means = {side: f"{row[side]['mean']:.2f} ± {row[side]['std']:.2f}" for side in ("ours", "theirs")}
        yield {**row, **means, **_shown(row["difference"]), "published": "{:.2f} to {:.2f}".format(*row["published"])}


def entity_sides(result: Result) -> Iterator[Result]:
    for row in result["rows"]:
        means = {side: f"{row[side]['mean']:.2f} ± {row[side]['std']:.2f}" for side in ("ours", "theirs", "table")}
        yield {**row, **means, "published": f"{row['published_mean']:.2f} ± {row['published_std']:.2f}"}


def task_sides(result: Result) -> Iterator[Result]:
    for row in result["rows"]:
        means = {side: f"{row[side]['mean']:.2f} ± {row[side]['std']:.2f}" for side in ("ours", "theirs")}
        seconds = {f"{side}_s": row[side]["seconds"] for side in ("ours", "theirs")}
        yield {
            **row,
            **means,
            **seconds,
            **_shown(row["difference"]),
            "seeds": ", ".join(str(len(row[side]["scores"])) for side in ("ours", "theirs")),
        }


def subgraph_sides(result: Result) -> Iterator[Result]:
    names = {
        "shadow-pyg": ("`loader.pyg.ShaDowKHopSampler`", "torch_geometric's law in NumPy"),
        "shadow-dgl": ("`loader.dgl.ShaDowKHopSampler`", "DGL's own"),
        "cluster": ("`loader.pyg.ClusterData` and `ClusterLoader`", "DGL's own `ClusterGCNSampler`, METIS of its own"),
    }
    for row in result["rows"]:
        means = {side: f"{row[side]['mean']:.2f} ± {row[side]['std']:.2f}" for side in ("ours", "theirs")}
        our_class, beside = names[row["method"]]
        yield {**row, **means, **_shown(row["difference"]), "class": our_class, "beside": beside}


def _shown(difference: Result) -> Result:
    """A `Difference` as tables have it."""
    d = difference
    return {
        "less": f"{d['value']:+.2f} [{d['low']:+.2f}, {d['high']:+.2f}]",
        "equal": f"{'yes' if d['equivalent'] else 'not shown'}, p = {d['p_equivalent']:.2g}",
    }


def embeddings(result: Result) -> Iterator[Result]:
    for row in result["rows"]:
        chosen = ", ".join(f"{c:g}" for c in sorted(set(row["c"])))
        law = f"{row['p']:g}, {row['q']:g}" + (", weighted" if row["weights"] else "")
        yield {**row, "law": law, "chosen": chosen, "away": row["macro_mean"] - row["published_macro"]}


def hosts(result: Result) -> Iterator[Result]:
    for row in result["cells"]:
        yield {**row, "megabytes": row["crossing"] * result["row_bytes"] / 1e6}


def jobs(result: Result) -> list[str]:
    """The commands of the jobs, and the pictures of their curves."""
    images = [f"![Validation accuracy over epochs and seconds, 95 % band](../images/{x})" for x in result["images"]]
    page = ["Jobs: " + ", ".join(f"`{command}`" for command in result["jobs"]) + "."]
    return [*page, *(line for image in images for line in ("", image)), ""]

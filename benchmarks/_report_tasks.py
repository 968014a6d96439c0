"""Tables of the results page about walks, links, disks and the loaders of other packages."""

from __future__ import annotations

from _report_cells import Result, cell, markdown


def walks_gpu(result: Result) -> list[str]:
    once = result["once"]
    known = {(row["walk"], row["walkers"], row["length"]): row["ms"] for row in result["rows"]}
    rows, own = [], []
    for row in result["rows"]:
        size = cell(row["walkers"]), cell(row["length"])
        rows.append((row["walk"], *size, f"{row['ms']:.3f}", f"{row['g_steps_per_s']:.1f}"))
        name = row["walk"].removeprefix("next: ")
        if name != row["walk"]:
            built_in = known[name, row["walkers"], row["length"]]
            own.append((name, f"{row['ms']:.3f}", f"{built_in:.3f}", f"{built_in / row['ms']:.0%}"))
    made = [
        f"{cell(once[what]['bytes'] / 2**20)} MiB in {1e3 * once[what]['seconds']:,.0f} ms for {what} walks"
        for what in ("node2vec", "weighted")
    ]
    return [
        f"A graph of {result['num_nodes']:,} vertices and {result['num_edges']:,} edges. Whole calls of "
        "`loader.random_walk`, starts and walks on the GPU, synchronised at both ends, medians. What is made once for "
        f"the graph: {', '.join(made)}.",
        "",
        *markdown(("walk", "walkers", "steps", "ms", "10^9 steps per second"), rows),
        *(["Laws that a user wrote as `next`, beside the built-in ones:", ""] if own else []),
        *(markdown(("law", "next, ms", "built-in, ms", "speed of the built-in"), own) if own else []),
    ]


def _clock(result: Result) -> str:
    if result.get("cpu_time"):
        return "Time of the processor, because the machine was busy with other work."
    return "By the clock."


def walks_cpu(result: Result) -> list[str]:
    rows = []
    for row in result["rows"]:
        times = row["ns_a_step"]
        found = [f"{times[who]:.1f}" if who in times else "" for who in ("ours", "dgl", "torch")]
        ratios = [f"{times[who] / times['ours']:.1f}x" if who in times else "" for who in ("dgl", "torch")]
        rows.append((row["walk"], cell(row["walkers"]), cell(row["length"]), cell(row["threads"]), *found, *ratios))
    heads = "ours, ns per step", "DGL", "torch", "DGL over ours", "torch over ours"
    return [
        f"A graph of {result['num_nodes']:,} vertices and {result['num_edges']:,} edges. Medians of whole calls, which "
        f"take turns. {_clock(result)} torch: the same walk by tensor operations.",
        "",
        *markdown(("walk", "walkers", "steps", "threads", *heads), rows),
    ]


def picks_cpu(result: Result) -> list[str]:
    rows = []
    for row in result["rows"]:
        ours, dgl = row["ours"], row.get("dgl")
        theirs = ("", "") if dgl is None else (f"{dgl['ms']:.2f}", f"{dgl['ms'] / ours['ms']:.1f}x")
        sizes = f"{ours['input_vertices']:,.0f}", f"{ours['edges']:,.0f}"
        rows.append((cell(row["fanouts"]), row["picks"], f"{ours['ms']:.2f}", *theirs, *sizes))
    return [
        f"{result.get('graph', 'A graph')}: {result['num_nodes']:,} vertices and {result['num_edges']:,} edges. "
        f"Mini-batches of {result['batch_size']:,} vertices, threads: {result['threads']}, medians, in turns. "
        f"{_clock(result)} The tables that picks by weight read take {result['tables_bytes'] / 2**20:.0f} MiB and "
        f"{result['tables_seconds']:.1f} s, once; scanned: without them.",
        "",
        *markdown(("fanouts", "picks", "ours, ms", "DGL, ms", "DGL over ours", "vertices", "edges"), rows),
    ]


def links_gpu(result: Result) -> list[str]:
    rows = [
        (row["links"], f"{row['ms']:.3f}", f"{row['vertices_only_ms']:.3f}", "yes" if row["equal_to_the_cpu"] else "no")
        for row in result["rows"]
    ]
    return [
        f"A graph of {result['num_nodes']:,} vertices and {result['num_edges']:,} edges. A mini-batch has "
        f"{result['positives']:,} positive links and as many negatives, fanouts {cell(result['fanouts'])}. Whole "
        "mini-batches, links and blocks on the GPU, synchronised at both ends, medians. Vertices only: the same "
        "sampler around the same ends.",
        "",
        *markdown(("negatives", "ms", "vertices only, ms", "bytes equal to the CPU's"), rows),
    ]


def pyg_gpu(result: Result) -> list[str]:
    rows = [
        (
            row.get("what", "alone"),
            cell(row["fanouts"]),
            cell(row["batch_size"]),
            f"{row['theirs_per_s']:,.0f}",
            f"{row['ours_per_s']:,.0f}",
            f"{row['ratio']:.1f}x",
            f"{row['step_per_s']:,.0f}" if "step_per_s" in row else "",
        )
        for row in result["rows"]
    ]
    backend = {"loader": "our core on the CPU", "pyg-lib": "pyg-lib"}[result["backend"]]
    heads = "", "fanouts", "batch", "torch_geometric, 1/s", "ours, 1/s", "ratio", "the step only, 1/s"
    return [
        f"A graph of {result['num_nodes']:,} vertices and {result['num_edges']:,} edges, 100 features. `Data` on the "
        f"GPU per second: of torch_geometric's NeighborLoader with {result['workers']} workers, which sample by "
        f"{backend}, and of `loader.pyg.NeighborLoader` on the GPU. Alone: nothing trains. Training: the loop and the "
        "models of torch_geometric's `ogbn_train.py --model sage` (10, 10, 10) and `reddit.py` (25, 10), features on "
        "the GPU for both loaders. The step only: the same loop over one mini-batch that is there already.",
        "",
        *markdown(heads, rows),
    ]


def labor_sizes(result: Result) -> list[str]:
    rows = []
    for row in result["rows"]:
        cells: list[str] = []
        for found in (row["vertices"], row["edges"]):
            cells += [f"{found['ours']:,.0f}", f"{found['dgl']:,.0f}"]
            cells.append(f"{found['percent']:+.2f} ± {found['half_width']:.2f}")
        uniform = f"{row['uniform_vertices']:,.0f}", f"{row['uniform_edges']:,.0f}"
        rows.append((row["graph"], cell(row["fanouts"]), row["form"], *cells, *uniform))
    heads = "vertices, ours", "DGL", "difference, %", "edges, ours", "DGL", "difference, %"
    return [
        f"Mean numbers of input vertices and edges of {result['batches']} mini-batches of {result['batch_size']:,} "
        f"vertices, the same for ours and for `LaborSampler` of DGL {result['dgl']}; differences with their 95 % "
        "intervals, and our uniform picks. All hops: `layer_dependency`. 4 mini-batches: `batch_dependency=4`.",
        "",
        *markdown(("graph", "fanouts", "LABOR", *heads, "uniform, vertices", "edges"), rows),
    ]


def embeddings(result: Result) -> list[str]:
    rows = []
    for row in result["rows"]:
        scores = (f"{row[f'{kind}_mean']:.2f} ± {row[f'{kind}_std']:.2f}" for kind in ("micro", "macro"))
        law = f"{row['p']:g}, {row['q']:g}" + (", weighted" if row["weights"] else "")
        away = f"{row['macro_mean'] - row['published_macro']:+.2f}"
        rows.append(
            (
                row["dataset"],
                row["method"],
                law,
                cell(row["epochs"]),
                ", ".join(f"{c:g}" for c in sorted(set(row["c"]))),
                *scores,
                f"{row['published_macro']:.2f}",
                away,
            )
        )
    first = result["rows"][0]
    choices = ", ".join(f"{c:g}" for c in first["probe_c"])
    return [
        f"F1 in percent with the labels of half of the vertices, mean ± standard deviation over {result['splits']} "
        "random splits of one embedding. A one-vs-rest logistic regression gives each vertex as many labels as it "
        f"has. Its C is the one of {choices} with the best macro-F1 by cross-validation on the labelled half. "
        "Published: table 2 of Grover and Leskovec 2016, which has macro-F1 only, and does not say C.",
        "",
        *markdown(
            ("dataset", "method", "p, q", "epochs", "C", "micro-F1", "macro-F1", "published macro-F1", "difference"),
            rows,
        ),
        f"Settings: {first['dim']} dimensions, {first['walks_per_node']} walks of {first['walk_length']} steps from "
        f"each vertex per epoch, the objective of {first['objective']}, pairs at most {first['context_size'] - 1} "
        f"steps apart, {first['num_negatives']} negative sample per step by frequency to the power "
        f"{first['negative_exponent']:g}, mini-batches of {first['batch_size']} walks, SparseAdam with a learning rate "
        f"of {first['lr']:g} that falls to 0.",
        "",
        *([result["note"], ""] if result.get("note") else []),
    ]


def disk(result: Result) -> list[str]:
    ways = {
        "system": "the system's own read-ahead",
        "random": "single pages, each waited for",
        "ahead": "single pages, asked for ahead",
    }
    times = ("sample_cold_ms", "gather_cold_ms", "cold_mb", "sample_warm_ms", "gather_warm_ms")
    rows = [
        (ways[name], *(f"{found[key]:,.0f}" if key == "cold_mb" else f"{found[key]:,.1f}" for key in times))
        for name, found in result["medians"].items()
    ]
    return [
        f"A random graph of {result['num_nodes']:,} vertices and {result['num_edges']:,} edges with "
        f"{result['num_features']} features, mapped from files. Mini-batches of {result['batch_size']:,} seeds, "
        f"fanouts {cell(result['fanouts'])}, medians of {result['batches']}. Cold: nothing of the files is in memory "
        "before the mini-batch; MB: what is read from the disk. Warm: all that it needs is there. Cold and as a whole, "
        f"asking ahead is {result['ahead_beside_system']:.1f} times as fast as the system's own way and "
        f"{result['ahead_beside_random']:.1f} times as fast as waiting for each page (medians of the ratios). "
        f"Free cores, before and after: {', '.join(f'{x:.2f}' for x in result['free_cores'])}.",
        "",
        *markdown(("reads", "cold: sample, ms", "gather, ms", "MB", "warm: sample, ms", "gather, ms"), rows),
    ]


def hosts_cpu(result: Result) -> list[str]:
    settings = result["settings"]
    rows = [
        (
            cell(row["hosts"]),
            cell(row["together"]),
            row["cache"],
            *(f"{row[name]:,.0f}" for name in ("wanted", "distinct", "crossing")),
            f"{row['crossing'] * result['row_bytes'] / 1e6:.2f}",
        )
        for row in result["cells"]
    ]
    return [
        f"{settings['dataset']}, fanouts {cell(settings['fanouts'])}, mini-batches of {settings['batch_size']} seeds, "
        f"{settings['processes']} processes per host. Rows of {result['row_bytes']} bytes, counted: means per group "
        "and host over the groups of an epoch. A group has the mini-batches of one exchange. Wanted: the rows of all "
        "of them. Distinct: each of these once. Crossing: from other hosts.",
        "",
        *markdown(
            ("hosts", "mini-batches per exchange and process", "cache", "wanted", "distinct", "crossing", "MB"), rows
        ),
    ]


def lookahead(result: Result) -> list[str]:
    rows = [
        (
            f"{row['fraction']:.0%}",
            cell(row["together"]),
            *(f"{row[name]:,.0f}" for name in ("best_static", "static", "lookahead")),
            f"{100 * row['fewer']:.1f} %",
        )
        for row in result["rows"]
    ]
    return [
        f"{result['dataset']}, {result['num_nodes']:,} vertices, fanouts {cell(result['fanouts'])}, an epoch of "
        f"{result['batches']} mini-batches of {result['batch_size']:,} seeds. A mini-batch reads "
        f"{result['rows_a_batch']:,.0f} rows of {result['row_bytes']} bytes. Counted, not timed: rows per mini-batch "
        "that cross the bus with a cache that never changes, and with `features.lookahead`. Both caches have equally "
        "many bytes: where one has the arrays that look-ahead needs, the other has more rows.",
        "",
        *markdown(
            (
                "rows in GPU memory",
                "mini-batches announced together",
                "the best for this epoch, never changed",
                "those of another epoch, never changed",
                "with look-ahead",
                "fewer than with the best",
            ),
            rows,
        ),
    ]

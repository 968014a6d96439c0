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
            cell(row["fanouts"]),
            cell(row["batch_size"]),
            f"{row['theirs_per_s']:,.0f}",
            f"{row['ours_per_s']:,.0f}",
            f"{row['ratio']:.1f}x",
        )
        for row in result["rows"]
    ]
    backend = {"loader": "our core on the CPU", "pyg-lib": "pyg-lib"}[result["backend"]]
    return [
        f"A graph of {result['num_nodes']:,} vertices and {result['num_edges']:,} edges, 100 features. `Data` on the "
        f"GPU per second: of torch_geometric's NeighborLoader with {result['workers']} workers, which sample by "
        f"{backend}, and of `loader.pyg.NeighborLoader` on the GPU. Nothing trains meanwhile.",
        "",
        *markdown(("fanouts", "batch", "torch_geometric, 1/s", "ours, 1/s", "ratio"), rows),
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
        f"{result['ahead_beside_random']:.1f} times as fast as waiting for each page (medians of the ratios).",
        "",
        *markdown(("reads", "cold: sample, ms", "gather, ms", "MB", "warm: sample, ms", "gather, ms"), rows),
    ]

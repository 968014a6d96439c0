"""Tables of docs/results.md: one function for each known file of results, and one for all others."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from _common import microseconds
from _report_cells import Result, cell, markdown
from _report_tasks import (
    disk,
    embeddings,
    hosts_cpu,
    labor_sizes,
    links_gpu,
    lookahead,
    picks_cpu,
    pyg_gpu,
    walks_cpu,
    walks_gpu,
)

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


def flatten(row: Result, path: str = "") -> Result:
    """`{"a": {"b": 1}}` as `{"a b": 1}`; lists of more than four numbers become their median, other long ones go."""
    flat: Result = {}
    for key, value in row.items():
        name = f"{path} {key}".strip()
        if isinstance(value, dict):
            flat.update(flatten(value, name))
        elif isinstance(value, (list, tuple)) and (len(value) > 4 or any(isinstance(v, (dict, list)) for v in value)):
            if value and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in value):
                flat[f"{name} (median of {len(value)})"] = statistics.median(value)
        else:
            flat[name] = value
    return flat


def table_of(rows: Sequence[Result], leave_out: Sequence[str] = ()) -> list[str]:
    """Rows of any form, one column for each key that any of them has; columns that never differ become a line."""
    flat = [flatten(row) for row in rows]
    keys = [key for key in dict.fromkeys(k for row in flat for k in row) if not key.startswith(tuple(leave_out))]
    shown = {key: [cell(row.get(key)) for row in flat] for key in keys}
    constant = [key for key in keys if len(flat) > 1 and len(set(shown[key])) == 1]
    varying = [key for key in keys if key not in constant]
    lines = []
    if said := [f"{key} {shown[key][0]}" for key in constant if shown[key][0]]:
        lines += ["In every row: " + ", ".join(said) + ".", ""]
    return lines + markdown(varying, zip(*(shown[key] for key in varying), strict=True))


def generic(result: Result) -> list[str]:
    """Any file: single values in one line, each list of rows as a table."""
    known = ("date", "command", "hardware", "system", "versions", "benchmark")
    rest = {key: value for key, value in result.items() if key not in known}
    tables = {k: v for k, v in rest.items() if isinstance(v, list) and v and all(isinstance(x, dict) for x in v)}
    single = flatten({key: value for key, value in rest.items() if key not in tables})
    lines = []
    if single:
        lines += [", ".join(f"{key}: {cell(value)}" for key, value in single.items()) + ".", ""]
    for name, rows in tables.items():
        if len(tables) > 1:
            lines += [f"### {name.replace('_', ' ')}", ""]
        lines += table_of(rows)
    return lines


def sampler_cpu(result: Result) -> list[str]:
    rows = []
    for row in result["comparison"]:
        ours, dgl = row["fused"], row.get("dgl")
        rows.append(
            (
                row["graph"],
                cell(row["fanouts"]),
                cell(row["batch_size"]),
                f"{1e3 * ours['seconds']:.2f}",
                "" if dgl is None else f"{1e3 * dgl['seconds']:.2f}",
                "" if dgl is None else f"{dgl['fused_is_faster_by']:.1f}x",
                "" if dgl is None else f"{ours['peak_mib'] / dgl['peak_mib']:.2f}",
                ", ".join(f"{x:.2f}" for x in row["free_cores"]),
            )
        )
    head = ("graph", "fanouts", "batch", "fused, ms", "DGL, ms", "faster by", "memory of DGL's", "free cores")
    return [
        f"{result['threads']} threads, medians over mini-batches, the samplers in turns. Free cores: the work that two "
        "threads did in the time in which one does a unit, before and after. Well below 2, the machine was busy.",
        "",
        *markdown(head, rows),
    ]


def whole_ms(row: Result, schedule: str) -> float:
    """Whole sampling, the arrays of the blocks included. A sampler that left them for later has `cut_ms`."""
    of: dict[str, float] = row[schedule]
    return max(of["ms"], of["host_ms"] + (of.get("cut_ms") or 0))


def auto_ms(row: Result) -> float:
    """Of a row of sampler_gpu.json: milliseconds of the schedule that `schedule="auto"` takes."""
    return whole_ms(row, choose_schedule(row["edges"], "bitmap", ahead=False))


def sampler_gpu(result: Result) -> list[str]:
    rows = []
    names = [key for key, value in result["rows"][0].items() if isinstance(value, dict) and "ms" in value]
    keys = [key for key in ("host_work_ms", "all_host_work_ms", "cut_ms") if key in result["rows"][0]["cooperative"]]
    cut_later = "cut_ms" in keys  # when this was measured
    for row in result["rows"]:
        peer = PEERS_MS.get((tuple(row["fanouts"]), row["batch"]))
        rows.append(
            (
                cell(row["fanouts"]),
                cell(row["batch"]),
                cell(row["edges"]),
                *(f"{whole_ms(row, name):.3f}" for name in names),
                " / ".join(microseconds(row["cooperative"][key]) for key in keys),
                "" if peer is None else f"{peer:.3f}",
                "" if peer is None else f"{peer / auto_ms(row):.1f}x",
            )
        )
    lines = [
        f"{result['graph']}. Whole sampling, synchronised at both ends, the blocks' arrays included, medians. The best "
        "peer is the fastest of DGL 2.5, GraphBolt, torch-quiver and cuGraph on a graph of this shape (an H200, "
        "2026-11-20). Host: the host's own work to launch with schedule=cooperative and to take the result back. "
        "Faster "
        "by: of schedule=auto, which is cooperative up to 1.5 million edges and hopwise beyond.",
        "",
        f"Medians of {result['passes']} passes, on a core of the host that is at full speed. On a host that is shared, "
        "anything takes up to 1.9 times as long on some cores, probably while the core's other hardware thread is in "
        f"use. A fixed piece of Python of {result['fixed_work_us']:.1f} us shows when. The host's work counts only the "
        "mini-batches during which the core was quiet; the second figure counts all."
        + (" The third figure is the time to cut the arrays of the blocks, which was done later." if cut_later else ""),
        "",
        *markdown(
            ("fanouts", "batch", "edges", *(f"{n}, ms" for n in names), "host, us", "best peer, ms", "faster by"), rows
        ),
        "![Ours beside the fastest other](images/sampler_gpu_peers.svg)",
        "",
    ]
    several, work = table_of(result["batches_per_launch"]), table_of(result["host_work"])
    lines += [
        "Milliseconds per mini-batch, if several are sampled together"
        + (", before the arrays of their blocks are cut:" if cut_later else ":"),
        "",
        *several,
    ]
    return [*lines, "Milliseconds of the host's own work per mini-batch, to launch it and to take it back:", "", *work]


def sampler_gpu_paper(result: Result) -> list[str]:
    rows = result["rows"]
    schedules = [key for key, value in rows[0].items() if isinstance(value, dict) and "device_ms" in value]
    others = [name for name in schedules if name != "hopwise"]
    table = []
    for graph in dict.fromkeys(row["graph"] for row in rows):
        for hops in sorted({len(row["fanouts"]) for row in rows if row["graph"] == graph}):
            of = [row for row in rows if row["graph"] == graph and len(row["fanouts"]) == hops]
            cells = [f"{min(r['edges'] for r in of):,} to {max(r['edges'] for r in of):,}"]
            for kind in ("whole_ms", "device_ms"):
                cells += [_range([row["hopwise"][kind] / row[name][kind] for row in of]) for name in others]
            cells.append(_range([row["a call a hop"]["whole_ms"] / row["hopwise"]["whole_ms"] for row in of]))
            table.append((graph, str(hops), *cells))
    fanouts = sorted({row["fanouts"][0] for row in rows})
    head = (
        *("graph", "hops", "edges", *(f"{n}, whole" for n in others), *(f"{n}, on the GPU" for n in others)),
        "hopwise over a call a hop",
    )
    lines = [
        f"Times as fast as hop by hop in our own code, smallest to largest over fanouts {cell(fanouts)} and batches "
        f"{cell(sorted({row['batch'] for row in rows}))}: whole sampling, and the GPU's part of it; below 1 is slower.",
        "",
        *markdown(head, table),
        "![Whole sampling](images/sampler_gpu_whole.png)",
        "",
        "![Time on the GPU](images/sampler_gpu_device.png)",
        "",
        "![Host time until the kernels are launched](images/sampler_gpu_launch.png)",
        "",
        "As the graph grows, in milliseconds on the GPU:",
        "",
        *markdown(
            ("vertices", "fanouts", "batch", "edges", *schedules),
            [
                (
                    *(cell(r[key]) for key in ("vertices", "fanouts", "batch", "edges")),
                    *(f"{r[name]['device_ms']:.3f}" for name in schedules),
                )
                for r in result["growth"]
            ],
        ),
    ]
    costs = [row["ratio"] for row in result["edge_cost_10240_over_2048"]]
    ratios = ", ".join(f"{k.removeprefix('ratio ')} {v:.2f}" for k, v in result["hubs"].items() if "ratio" in k)
    waits = [row["a call a hop"]["whole_ms"] / row["hopwise"]["whole_ms"] for row in rows]
    rates = []
    for graph, plain in result["random_reads_per_ns"].items():
        best = max(row["edges"] / row["hopwise"]["device_ms"] for row in rows if row["graph"] == graph) / 1e6
        rates.append(f"{graph} {best:.0f} beside {plain:.0f}")
    return [
        *lines,
        "Why does fusing bring so little here? In the baseline the host does not wait between hops. So fusing can only "
        "save the gaps between some ten launches, about a microsecond each. With one call per hop the host does wait, "
        f"and our hop-by-hop baseline is {_range(waits)} times as fast as that. Also, a queue has to put the blocks in "
        "order afterwards.",
        "",
        "Picks per nanosecond, at the setting with the most picks, beside plain random reads of the same array by "
        "torch "
        "(a pick is such a read, two accesses to the sets of vertices and two to the local ids): "
        f"{', '.join(rates)}.",
        "",
        f"An edge at 10,240 seeds costs {min(costs):.2f} to {max(costs):.2f} of one at 2,048 (cooperative). A graph "
        f"with hubs takes, beside a regular one: {ratios}.",
        "",
    ]


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def pipeline_cpu(result: Result) -> list[str]:
    rows = [(name, *(f"{value:.3f}" for value in row.values())) for name, row in result["medians"].items()]
    head = ("", *(f"{key.replace('_', ' ')}, s" for key in next(iter(result["medians"].values()))))
    return [
        f"{result['num_edges']:,} edges, {result['num_features']} features, batch {result['batch_size']:,}, fanouts "
        f"{cell(result['fanouts'])}. Medians over epochs.",
        "",
        *markdown(head, rows),
        f"With prefetch an epoch takes {result['epoch_ratio']:.3f} of the time without. Loading took "
        f"{result['load_to_train_ratio']:.2f} times as long as training. Free cores, before and after: "
        f"{', '.join(f'{x:.2f}' for x in result['free_cores'])}.",
        "",
    ]


def pipeline_gpu(result: Result) -> list[str]:
    rows = []
    for row in result["rows"]:
        alone = row["alone_ms"]
        rows.append(
            (
                row["store"],
                cell(row["fanouts"]),
                cell(bool(row["graphed"])),
                row["ahead"],
                str(row.get("batches_per_launch", 1)),
                "half" if row.get("blocks_per_sm") is None else f"{row['blocks_per_sm']:.0%}",
                *(f"{alone[name]:.3f}" if name in alone else "" for name in ("sample", "gather", "move", "train")),
                f"{row['epoch_s']:.3f}",
                f"{row['inline_epoch_s']:.3f}",
                f"{row['over_bound']:.3f}x",
                f"{row['exposed']:.1%}",
                f"{row['lightning_over_hand_written']:.3f}x" if "lightning_over_hand_written" in row else "",
                f"{row['max_mib']:,.0f}",
                row.get("date", "")[:16].replace("T", " "),
            )
        )
    head = (
        *(
            "features",
            "fanouts",
            "CUDA graphs",
            "ahead",
            "together",
            "on",
            "sample, ms",
            "gather, ms",
            "move, ms",
            "train, ms",
        ),
        *("epoch, s", "prefetch=0, s", "over slowest stage", "over training alone", "Lightning", "bound, MiB"),
        "measured",
    )
    lines = [
        f"{result['num_nodes']:,} vertices, {result['num_edges']:,} edges, GraphSAGE with 3 layers of "
        f"{result['hidden']}, batch {result['batch_size']:,}, {result['rows'][0]['batches']} mini-batches per "
        "epoch, sampled on the GPU. Milliseconds: per mini-batch, of each stage by itself. lazy: the first layer reads "
        "the rows in GPU memory; "
        "device: they are gathered there; cached: a quarter of the rows lies there; pinned: they are read over the "
        "bus; "
        "staged: the host gathers them into pinned buffers, which are copied; host: the host gathers them and copies "
        "them at once. Together: mini-batches per launch of the sampler. On: share of the multiprocessors that "
        "sampling takes beside training, half by default. prefetch=0: one stage after the other. Lightning: time of "
        "its loop over that of a hand-written one. Bound: largest memory of the mini-batches. Measured: time in UTC.",
        "",
        *markdown(head, rows),
    ]
    if commands := list(dict.fromkeys(row["command"] for row in result["rows"] if "command" in row)):
        lines += ["The rows come from:", "", *(f"- `{command}`" for command in commands), ""]
    for row in result["rows"]:
        if "soak" in row:
            last = row["soak"][-1]
            lines += [
                f"{len(row['soak'])} epochs ({row['store']}) end with {last['resident_mib']:,.0f} MiB resident, "
                f"{last['reserved_mib']:,.0f} MiB of GPU memory reserved, {last['threads']:.0f} threads; Ctrl-C ends "
                f"an epoch in {row['interrupt_s']:.2f} s.",
                "",
            ]
    return lines


def contenders(result: Result) -> list[str]:
    """Files of rows with `milliseconds` by contender, ours among them."""
    rows = []
    for row in result["rows"]:
        peers = [ms for name, ms in row["milliseconds"].items() if name != "ours" and ms]
        best = f"{min(peers) / row['milliseconds']['ours']:.2f}x" if peers else ""
        rows.append({**{k: v for k, v in row.items() if k != "milliseconds"}, **row["milliseconds"], "faster by": best})
    rest = {k: v for k, v in result.items() if k != "rows"}
    return [
        *generic(rest),
        "Milliseconds, medians. Faster by: the time of the best other over ours.",
        "",
        *table_of(rows),
    ]


def train_step(result: Result) -> list[str]:
    rows = []
    for row in result["rows"]:
        case = {k: v for k, v in row.items() if not isinstance(v, dict)}
        for name, numbers in row["contenders"].items():
            rows.append(
                {**case, "layer": name, **{k: v for k, v in numbers.items() if not isinstance(v, (list, dict))}}
            )
    return [*generic({k: v for k, v in result.items() if k != "rows"}), *table_of(rows)]


def convergence(result: Result) -> list[str]:
    rows = []
    sized = all("vertices" in side for row in result["settings"] for side in row["sides"].values())
    for row in result["settings"]:
        for name, side in row["sides"].items():
            d = row["differences"].get(name)
            rows.append(
                (
                    row["dataset"],
                    str(row["layers"]),
                    name,
                    str(len(side["seeds"])),
                    f"{side['test_mean']:.2f} ± {side['test_std'] or 0:.2f}",
                    f"{side['seconds_mean'][-1]:.1f}",
                    "" if d is None else f"{d['value']:+.2f} [{d['low']:+.2f}, {d['high']:+.2f}]",
                    "" if d is None else f"{'yes' if d['equivalent'] else 'not shown'}, p = {d['p_equivalent']:.2g}",
                    "" if d is None or d["first_loss_gap"] is None else f"{d['first_loss_gap']:.1g}",
                    *([f"{side['vertices']:,.0f}", f"{side['edges']:,.0f}"] if sized else []),
                )
            )
    against, margin = result["against"], result["margin"]
    head = (
        *("dataset", "layers", "sampler", "seeds", "test accuracy, %", "training, s"),
        f"less {against}, points",
        f"within {margin} points",
        "gap of the first loss",
        *(("vertices per mini-batch", "edges") if sized else ()),
    )
    settings = "; ".join(
        f"{row['dataset']}, {row['layers']} layers: batch {row['batch_size']:,}, fanout {cell(row['fanouts'])}, "
        f"hidden {row['hidden']}, {row['epochs']} epochs"
        for row in result["settings"]
    )
    lines = [
        "Test accuracy of the best checkpoint with all neighbours, mean ± standard deviation over seeds; difference "
        f"with its {result['level']:.0%} interval (Welch); two one-sided tests at {result['level']:.0%}. Seconds "
        "without validation. Gap of the first loss: the largest difference of the first epoch's training loss between "
        "runs of one seed, which begin with equal weights, order and dropout. With equal mini-batches it is only "
        "rounding.",
        "",
        *markdown(head, rows),
        "Jobs: " + ", ".join(f"`{command}`" for command in result["jobs"]) + ".",
        "",
        *([f"How they ran: {result['note']}", ""] if result.get("note") else []),
        f"Settings: {settings}.",
        "",
    ]
    for image in result["images"]:
        lines += [f"![Validation accuracy over epochs and seconds, mean and 95 % band](images/{image})", ""]
    return lines


def sampler_cpu_threads(result: Result) -> list[str]:
    rows = []
    for at, (fanouts, batch_size) in enumerate(result["settings"]):
        alone = result["by_threads"]["1"][at]["one"]
        for threads, settings in result["by_threads"].items():
            found = settings[at]
            one, group, dgl = found["one"], found["group"], found["dgl"]
            times = f"{one:.2f}", f"{alone / one:.1f}x", f"{group:.2f}", f"{alone / group:.1f}x", f"{dgl:.2f}"
            rows.append((cell(fanouts), cell(batch_size), threads, *times, f"{dgl / one:.1f}x", f"{dgl / group:.1f}x"))
    heads = ("fanouts", "batch", "threads", "one, ms", "over 1 thread", "of 16, ms", "over 1 thread", "DGL, ms")
    return [
        f"A graph of {result['num_nodes']:,} vertices and {result['num_edges']:,} edges. Milliseconds per mini-batch, "
        "medians: of one by itself, of one in a group of 16, and of DGL's NeighborSampler with the same number of "
        "threads.",
        "",
        *markdown((*heads, "one over DGL", "of 16 over DGL"), rows),
    ]


def picks_gpu(result: Result) -> list[str]:
    rows = [
        (
            cell(row["fanouts"]),
            cell(row["batch_size"]),
            row["picks"],
            f"{row['ms']:.3f}",
            f"{row['of_uniform']:.2f}x",
            f"{row['input_vertices']:,.0f}",
            f"{row['edges']:,.0f}",
        )
        for row in result["rows"]
    ]
    return [
        f"A graph of {result['num_nodes']:,} vertices and {result['num_edges']:,} edges with random weights. Whole "
        "mini-batches, one per call, seeds and blocks on the GPU, medians. The tables of the weights were made once, "
        "in "
        f"{result['tables_seconds']:.1f} s, and take {result['tables_bytes'] / 2**20:,.0f} MiB.",
        "",
        *markdown(("fanouts", "batch", "picks", "ms", "of uniform", "input vertices", "edges"), rows),
    ]


def scan_gpu(result: Result) -> list[str]:
    schedules = list(dict.fromkeys(row["schedule"] for row in result["rows"] if row["picks"] != "uniform"))
    found: dict[tuple[str, ...], dict[str, float]] = {}
    uniform: dict[tuple[str, ...], float] = {}
    for row in result["rows"]:
        setting = row["graph"], cell(row["fanouts"]), cell(row["batch_size"])
        if row["picks"] == "uniform":
            uniform[setting] = row["ms"]
        else:
            found.setdefault((*setting, row["picks"]), {})[row["schedule"]] = row["ms"]
    rows = [
        (*key, *(f"{times[schedule]:.3f}" for schedule in schedules), f"{uniform[key[:3]]:.3f}")
        for key, times in found.items()
    ]
    right = sum(times["tickets"] <= 1.05 * min(times.values()) for times in found.values())
    return [
        "Picks that look at all entries of the lists: a race by weight without tables, and LABOR-0. Milliseconds of "
        "whole mini-batches, one per call, seeds and blocks on the GPU, medians, by each way to share the lists among "
        "warps (`scan_schedule`); uniform picks, which read no lists, beside them. "
        f"`auto`, which is `tickets`, is within 5 % of the fastest in {right} of {len(found)} settings.",
        "",
        *([result["note"], ""] if result.get("note") else []),
        "![Each way to share the lists among warps, beside the fastest](images/scan_gpu.svg)",
        "",
        *markdown(("graph", "fanouts", "batch", "picks", *schedules, "uniform"), rows),
    ]


def shortcuts_gpu(result: Result) -> list[str]:
    rows = []
    for row in result["rows"]:
        shares = (f"{100 * row[key]:+.1f} %" for key in ("brings", "from", "to"))
        rows.append((row["what"], f"{row['with_s']:.3f}", f"{row['without_s']:.3f}", *shares))
    return [
        f"Epochs with and without each shortcut, in turns, fanouts {cell(result['fanouts'])}, batch "
        f"{result['batch']:,}. Brings: the median over rounds of the time without the shortcut over the time with it, "
        "less one.",
        "",
        *markdown(("shortcut", "with, s", "without, s", "brings", "from", "to"), rows),
    ]


def shortcuts_removed(result: Result) -> list[str]:
    return [
        "Each brought less than 2 %, which is not worth its code. So all of them were removed.",
        "",
        *shortcuts_gpu(result),
    ]


def shchur(result: Result) -> list[str]:
    rows = [
        (
            row["dataset"],
            f"{len(row['seeds'])} ({row['seeds'][0]} to {row['seeds'][-1]})",
            f"{row['mean']:.1f} ± {row['std'] or 0:.1f}",
            f"± {row['half_width'] or 0:.2f}",
            f"{row['published_mean']} ± {row['published_std']}",
        )
        for row in result["settings"]
    ]
    return [
        "Test accuracy, percent, mean ± standard deviation over random splits and starts: 20 vertices of every class "
        "to train, 30 to stop early, the rest to test. Published: GraphSAGE-mean in Shchur et al. 2018, table 3.",
        "",
        *markdown(("dataset", "splits (seeds)", "ours", "95 % interval of the mean", "published"), rows),
        "Jobs: `python train.py -m experiment=shchur dataset=NAME 'seed=range(10,30)' callbacks=quiet` for each "
        "dataset; the settings were chosen on seeds 0 to 3.",
        "",
    ]


def scaling_gpu(result: Result) -> list[str]:
    """Epochs and starts by the number of GPUs."""
    rows = []
    for row in result["rows"]:
        against = [f"{row[name]:.2f}x" if row.get(name) else "" for name in ("faster_by", "slower_start")]
        rows.append(
            (
                *(
                    str(row["gpus"]),
                    row["gradients"],
                    row.get("features", "device"),
                    f"{row['epoch_s']:.4f}",
                    against[0],
                ),
                *(f"{row['first_step_s']:.1f}", against[1], f"{row['train_loss']:.4f}", str(row["warnings"])),
            )
        )
    return [
        "`train.py` on the products-shaped graph: GraphSAGE of three layers, (15, 10, 5) x 1,024 per GPU. An epoch is "
        "the median of a run without its first two epochs, and without validation. The first step is timed from the "
        f"command on, with data and kernels in their caches. Median of {result['rounds']} runs of {result['epochs']} "
        "epochs each.",
        "",
        *([result["note"], ""] if result.get("note") else []),
        *markdown(
            (
                "GPUs",
                "gradients",
                "features",
                "epoch, s",
                "faster by",
                "first step, s",
                "against 1",
                "loss",
                "warnings",
            ),
            rows,
        ),
    ]


def beside_gpu(content: Result) -> list[str]:
    epochs, found = content["epoch_s"], content["profile"]
    alone, beside = found["alone"], found["beside"]
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
    rows = [(name, f"{a:.1f}", f"{b:.1f}", f"{b - a:.1f}") for name, a, b in pairs]
    fanouts = ", ".join(map(str, content["fanouts"]))
    return [
        f"({fanouts}) x 1,024, features in GPU memory (lazy), CUDA graphs, schedule {content['schedule']}. "
        f"Microseconds per mini-batch, by torch's profiler. Without it an epoch took {epochs['alone']:.4f} s alone and "
        f"{epochs['beside']:.4f} s beside the sampler, {epochs['beside'] / epochs['alone']:.3f}x. The last rows are "
        "the kernels of training that the sampler slows most.",
        "",
        *markdown(("what", "alone", "beside", "more"), rows),
    ]


# file name without .json -> (title, function)
KNOWN: dict[str, tuple[str, Callable[[Result], list[str]]]] = {
    "convergence": ("Training with our sampler and with DGL's", convergence),
    "convergence_gpu": ("Training with mini-batches sampled on the GPU and on the CPU", convergence),
    "convergence_labor": ("Training with LABOR and with uniform neighbours", convergence),
    "shchur": ("Published accuracies", shchur),
    "embeddings": ("DeepWalk and node2vec beside their published figures", embeddings),
    "sampler_cpu": ("Sampling on the CPU", sampler_cpu),
    "sampler_cpu_threads": ("Sampling on the CPU by number of threads", sampler_cpu_threads),
    "sampler_cpu_scaling": ("Sampling on the CPU as the graph grows", generic),
    "picks_cpu": ("Picks by weight, and LABOR, on the CPU", picks_cpu),
    "walks_cpu": ("Random walks on the CPU", walks_cpu),
    "labor_sizes": ("Sizes of LABOR's mini-batches beside DGL's", labor_sizes),
    "sampler_gpu": ("Sampling on a GPU", sampler_gpu),
    "sampler_gpu_paper": (
        "Sampling on a GPU: shapes of the datasets that PGSampler was measured on",
        sampler_gpu_paper,
    ),
    "sampler_gpu_sets": ("Sampling on a GPU: bitmaps and hash sets as the graph grows", generic),
    "picks_gpu": ("Picks by weight, and LABOR, on a GPU", picks_gpu),
    "picks_gpu_hub": ("Picks by weight on a GPU, with a hub of a million neighbours in each mini-batch", picks_gpu),
    "scan_gpu": ("Picks that scan lists on a GPU", scan_gpu),
    "walks_gpu": ("Random walks on a GPU", walks_gpu),
    "pinned_gpu": ("Sampling on a GPU from a graph in pinned memory", generic),
    "links_gpu": ("Mini-batches of links on a GPU", links_gpu),
    "pyg_gpu": ("torch_geometric's NeighborLoader and ours on a GPU", pyg_gpu),
    "pyg_training_gpu": ("The same two loaders in torch_geometric's training loop", pyg_gpu),
    "gather_gpu": ("Gathering features for a GPU", generic),
    "aggregate": ("Aggregation on the CPU", contenders),
    "aggregate_gpu": ("Aggregation on a GPU", contenders),
    "train_step_gpu": ("A training step on a GPU", train_step),
    "shortcuts_gpu": ("What each shortcut on a GPU brings", shortcuts_gpu),
    "whole_step_gpu": ("What a training step past autograd and Lightning's hooks brings", shortcuts_gpu),
    "shortcuts_gpu_removed": ("Shortcuts on a GPU that were measured and removed", shortcuts_removed),
    "pipeline_cpu": ("Loading beside training on the CPU", pipeline_cpu),
    "disk": ("Mini-batches of a graph on disk", disk),
    "hosts_cpu": ("Feature rows that cross between hosts", hosts_cpu),
    "bus_gpu": ("What it brings if few multiprocessors read lists and rows over the bus", shortcuts_gpu),
    "lookahead_gpu": ("What it brings if a cache knows the next mini-batches", shortcuts_gpu),
    "lookahead": ("Rows over the bus with a cache that knows the next mini-batches", lookahead),
    "pipeline_gpu": ("Loading beside training on a GPU", pipeline_gpu),
    "beside_gpu": ("What sampling costs the training beside it", beside_gpu),
    "scaling_gpu": ("Training on several GPUs", scaling_gpu),
}

"""What was aimed at, and whether it was met: `benchmarks/pages/aims.txt` names the values, some of them of here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import _report_rows as rows_of
from _report_rows import PLACES, budget_rows, peers, traversal_ms
from _report_schema import Column, Result, pick

Judge = Callable[[Result], tuple[str, bool]]


class Target(NamedTuple):
    """What was aimed at.

    Attributes:
        what: in words.
        file: name of the results, without .json.
        judge: of the file's content: what was found, and whether that is enough.
    """

    what: str
    file: str
    judge: Judge


def read_targets(path: Path) -> tuple[Target, ...]:
    """Reads aims.txt."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return tuple(map(_target, lines[::2], lines[1::2]))


def _target(line: str, what: str) -> Target:
    file, values, *limit = (part.strip() for part in line.split("|"))
    return Target(what.strip(), file, judge_of(values, *limit) if limit else globals()[values])


def judge_of(values: str, limit: str, form: str) -> Judge:
    """Whether each of the values keeps a limit such as ">= 2"."""
    sign, bound = limit.split()

    def judge(result: Result) -> tuple[str, bool]:
        found = list(values_of(values, result))
        shown = [form.format(value) for _, value in found]
        if all(name for name, _ in found):
            text = ", ".join(f"{name} {one}" for (name, _), one in zip(found, shown, strict=True))
        elif len(found) > 3:
            least, most = (form.format(pick_one(value for _, value in found)) for pick_one in (min, max))
            text = f"{least} to {most} ({len(found)} settings)"
        else:
            text = ", ".join(shown)
        met = [value >= float(bound) if sign == ">=" else value <= float(bound) for _, value in found]
        return text or "not measured", bool(met) and all(met)

    return judge


def values_of(values: str, result: Result) -> Iterator[tuple[str, float]]:
    """Names ("" for rows without) and values of "ROWS[FILTER]: COLUMN", or of a function of here."""
    source, _, column = values.partition(": ")
    found = re.fullmatch(r"(\w+)(?:\[(.*)\])?", source)
    assert found is not None, source
    name, filters = found.groups()
    if not column:
        yield from (value if isinstance(value, tuple) else ("", value) for value in globals()[name](result))
        return
    function = globals().get(name) or getattr(rows_of, name, None)
    wanted = [one.split("=", 1) for one in (filters or "").split(" & ") if one]
    for row in function(result) if function else pick(result, name):
        if all(str(row[key]) in text.split(" or ") for key, text in wanted):
            value = Column("", column).value(row)
            if value is not None:
                yield row.get("named", ""), value


Limits = Callable[[Result], Iterable[tuple[str, float, float]]]


def limits(unit: str) -> Callable[[Limits], Judge]:
    """Each name has a value in this unit, at most its limit. If some are above it, only these are named."""

    def judged(function: Limits) -> Judge:
        def judge(result: Result) -> tuple[str, bool]:
            found = list(function(result))
            above = [(name, value, limit) for name, value, limit in found if value > limit]
            digits = 5 if above else 3  # of a value that is hardly above
            text = "; ".join(f"{name} {value:.{digits}g} of {limit:g}" for name, value, limit in above or found)
            within = f"{len(found) - len(above)} of {len(found)} kept; " if above else ""
            return f"{within}{text} {unit}", bool(found) and not above

        return judge

    return judged


def _setting(row: Result, batch: str = "batch_size") -> tuple[tuple[int, ...], int]:
    return tuple(row["fanouts"]), row[batch]


def _named(fanouts: tuple[int, ...], seeds: int, more: str = "") -> str:
    return f"({', '.join(map(str, fanouts))}) x {seeds:,}{more}:"


# Milliseconds that were set as limits, on an H200.
_SAMPLING_MS = {
    ((10, 10), 1024): 0.10,
    ((15, 10, 5), 1024): 0.18,
    ((10, 10, 10), 2048): 0.24,
    ((15, 15, 15), 4096): 0.50,
    ((20, 20, 20), 10240): 1.05,
}
_SCAN_MS = {((10, 10), 1024): 0.20, ((15, 10, 5), 1024): 0.45, ((10, 10, 10), 2048): 0.70}
_PINNED_MS = {  # alone, eight together, and alone with the longest lists in GPU memory, a quarter of the edges
    ((10, 10), 1024): (0.20, 0.10, 0.16),
    ((15, 10, 5), 1024): (0.95, 0.70, 0.62),
    ((10, 10, 10), 2048): (1.75, 1.00, 1.05),
}
_WALKS_MS = {
    ("uniform", 2_449_029): 7.5,
    ("uniform", 196_615): 0.62,
    ("uniform", 10_240): 0.12,
    ("stop 0.2", 2_449_029): 1.5,
    ("node2vec p 2, q 0.5", 2_449_029): 20.0,
}
_TRAVERSALS_MS = {
    ("bfs", "gpu"): 1.5,
    ("bfs", "pinned"): 9.0,
    ("components", "gpu"): 2.5,
    ("components", "pinned"): 12.0,
    ("sssp", "gpu"): 5.0,
    ("sssp", "pinned"): 50.0,
}
# Multiples of the unit, by graph, fanouts, seeds and mini-batches per launch.
_HETERO_MULTIPLES = {
    ("mag", (10, 10), 1024, 1): 1.6,
    ("mag", (10, 10), 1024, 8): 0.8,
    ("mag", (15, 10, 5), 1024, 1): 3.0,
    ("mag", (15, 10, 5), 1024, 8): 2.3,
    ("mag", (10, 10), 4096, 1): 1.9,
    ("igb", (15, 10, 5), 1024, 1): 5.5,
}
# The same by graph, kind of trees, whether picks are the latest, fanouts, and mini-batches per launch.
_TREE_MULTIPLES = {
    ("papers", "unique", False, (10, 10), 1): 1.6,
    ("papers", "unique", True, (10, 10), 1): 1.5,
    ("papers", "unique", False, (15, 10, 5), 1): 2.5,
    ("igb", "unique", False, (15, 10, 5), 1): 3.0,
    ("papers", "paths", False, (10, 10), 1): 1.3,
    ("papers", "paths", False, (15, 10, 5), 1): 3.0,
    ("interactions", "paths", True, (10,), 1): 1.0,
    ("interactions", "paths", False, (10, 10), 1): 1.3,
    ("interactions", "unique", True, (10,), 1): 1.2,
    ("interactions", "unique", False, (10, 10), 1): 1.6,
    ("rel-f1", "unique", False, (128, 64), 1): 1.2,
    ("rel-f1", "unique", False, (128, 64), 8): 0.6,
}


@limits("ms")
def sampling_limits(result: Result) -> Iterator[tuple[str, float, float]]:
    ms = {_setting(row, "batch"): row["cooperative"] for row in peers(result)}
    for key, limit in _SAMPLING_MS.items():
        yield _named(*key), ms[key], limit


@limits("times the unit")
def hetero_limits(result: Result) -> Iterator[tuple[str, float, float]]:
    of = {
        (row["graph"], *_setting(row, "batch"), row["together"]): row["of_unit"]
        for row in result["rows"]
        if "of" in row
    }
    for (graph, fanouts, seeds, together), limit in _HETERO_MULTIPLES.items():
        yield f"{graph} {_named(fanouts, seeds, _launched(together))}", of[graph, fanouts, seeds, together], limit


@limits("times the unit")
def tree_limits(result: Result) -> Iterator[tuple[str, float, float]]:
    found = {}
    for row in result["rows"]:
        if "graph" in row and row["times"] != "none" and row["batch"] < 4096 and "blocks" not in row:
            kind = row["graph"], row.get("trees", "unique"), row.get("last", False), tuple(row["fanouts"])
            key = (*kind, row["together"])
            found[key] = row["of_unit"], row["batch"]
    for (graph, trees, last, fanouts, together), limit in _TREE_MULTIPLES.items():
        of, seeds = found[graph, trees, last, fanouts, together]
        name = f"{graph}, {trees}{', the latest' if last else ''}, {_named(fanouts, seeds, _launched(together))}"
        yield name, of, limit


def _launched(together: int) -> str:
    return f", {together} per launch" if together > 1 else ""


def latest_per_second(result: Result) -> list[float]:
    """Mini-batches of the latest 10 of 1,800 queries, in groups of which a launch has half."""
    return [1e3 / row["ms"] for row in result["rows"] if "per_launch" in row]


def databases(result: Result) -> list[float]:
    return [row["device_of_unit"] for row in result["rows"] if row["graph"] == "lahman"]


def hetero_over_dgl(result: Result) -> tuple[str, bool]:
    """At least 3 and 5 times as fast on one thread, 8 on 16."""
    text, met = [], True
    for row in result["rows"]:
        least = 8 if row["threads"] > 1 else 3 if len(row["fanouts"]) == 2 else 5
        fanouts, threads = ", ".join(map(str, row["fanouts"])), "1 thread" if row["threads"] == 1 else "16 threads"
        text.append(f"({fanouts}), {threads}: {row['faster_by']:.2f}x (aim: {least}x)")
        met &= row["faster_by"] >= least
    return "; ".join(text), met


def hetero_memory(result: Result) -> list[float]:
    return [result["peak_mib"]["ours"] / result["peak_mib"]["dgl"]]


def hetero_edge_cost(result: Result) -> list[float]:
    alone = result["one_type_ns_an_edge"]
    return [row["ns_an_edge"] / alone for row in result["rows"] if row["threads"] == 1 and len(row["fanouts"]) == 3]


def _races(result: Result, graph: str) -> dict[tuple[tuple[int, ...], int], float]:
    way = (graph, "race", "tickets")
    return {_setting(r): r["ms"] for r in result["rows"] if (r["graph"], r["picks"], r["schedule"]) == way}


@limits("ms")
def scan_limits(result: Result) -> Iterator[tuple[str, float, float]]:
    for key, ms in _races(result, "products").items():
        yield _named(*key), ms, _SCAN_MS[key]


def hub_races(result: Result) -> list[float]:
    plain = _races(result, "products")
    return [ms / plain[key] for key, ms in _races(result, "products with a hub").items()]


@limits("ms")
def pinned_limits(result: Result) -> Iterator[tuple[str, float, float]]:
    ms = {(_setting(r), r["graph"], r["together"]): r["ms"] for r in result["rows"]}
    ways = (("sectors", 1), ("sectors", 8), ("cached by degree", 1))
    for key, of in _PINNED_MS.items():
        for (graph, count), limit in zip(ways, of, strict=True):
            yield _named(*key, f", {graph}, {count} per launch"), ms[key, graph, count], limit


@limits("ms")
def walk_limits(result: Result) -> Iterator[tuple[str, float, float]]:
    ms = {(row["walk"], row["walkers"]): row["ms"] for row in result["rows"] if row["length"] == 80}
    for (walk, walkers), limit in _WALKS_MS.items():
        yield f"{walk} {walkers:,}:", ms[walk, walkers], limit


@limits("ms")
def traversal_limits(result: Result) -> Iterator[tuple[str, float, float]]:
    ms = traversal_ms(result)
    for (what, place), limit in _TRAVERSALS_MS.items():
        yield f"{what} {PLACES[place]}:", ms["products", what, place], limit


def weighted(result: Result) -> list[Result]:
    return [row for row in result["rows"] if row["picks"].startswith("weighted")]


def labor_differences(result: Result) -> list[float]:
    return [abs(row[what]["percent"]) for row in result["rows"] for what in ("nodes", "edges")]


def hubs(result: Result) -> Iterator[float]:
    hubs, regular = result["hubs"]["hubs"], result["hubs"]["regular"]
    for name in rows_of.SCHEDULES:
        yield hubs[name]["whole_ms"] / hubs["edges"] * regular["edges"] / regular[name]["whole_ms"]


def best_queue(result: Result) -> list[Result]:
    def best(baseline: str, kind: str) -> float:
        return max(row[baseline][kind] / row["persistent"][kind] for row in result["rows"])

    whole, device = best("hopwise", "whole_ms"), best("hopwise", "device_ms")
    return [{"whole": whole, "device": device, "over_calls": best("a call a hop", "whole_ms")}]


def best_fused(result: Result) -> Iterator[float]:
    for row in result["rows"]:
        yield row["hopwise"]["whole_ms"] / min(row[name]["whole_ms"] for name in rows_of.FUSED)


def steps(result: Result) -> Iterator[float]:
    """How many times as fast our step is as the best of stock parts."""
    for row in result["rows"]:
        times = {name: numbers["step_ms"] for name, numbers in row["contenders"].items()}
        ours = min(ms for name, ms in times.items() if name.startswith("ours"))
        yield min(ms for name, ms in times.items() if not name.startswith("ours")) / ours


def step_ms(result: Result) -> Iterator[tuple[str, float]]:
    (row,) = (r for r in result["rows"] if (r["fanouts"], r["precision"]) == ([15, 10, 5], "tf32"))
    for name, words in (("ours, CUDA graph", "by CUDA graphs"), ("ours", "without")):
        yield words, row["contenders"][name]["step_ms"]


def epochs(result: Result) -> Iterator[Result]:
    """Of pipeline_gpu.json, by CUDA graphs and eight mini-batches per launch, as `train.py`, in a loop by hand."""
    for row in result["rows"]:
        plain = row.get("schedule", "auto") == "auto" and row.get("blocks_per_sm") is None
        if plain and row["graphed"] and row.get("batches_per_launch", 1) == 8:
            setting = ", ".join(map(str, row["fanouts"]))
            store = "gathered" if row["store"] == "device" else row["store"]
            yield {**row, "setting": setting, "named": f"{store} ({setting})"}


def soak(result: Result) -> tuple[str, bool]:
    (rows,) = (row["soak"] for row in result["rows"] if "soak" in row)
    keys = ("resident_mib", "pinned_mib", "reserved_mib", "threads")
    third, last = rows[2], rows[-1]
    grown = {key: last[key] - third[key] for key in keys}
    text = ", ".join(f"{key.replace('_mib', ' MiB')} {third[key]:,.0f} to {last[key]:,.0f}" for key in keys)
    # The resident memory of a Python process moves by some pages.
    return f"{len(rows)} epochs: {text}", grown.pop("resident_mib") < 16 and not any(grown.values())


def convergence(result: Result) -> tuple[str, bool]:
    found = [d for row in result["settings"] for d in row["differences"].values()]
    shown = sum(d["equivalent"] for d in found)
    furthest = max(abs(d["value"]) for d in found)
    text = f"equivalence shown in {shown} of {len(found)} comparisons"
    text += f", largest difference of means {furthest:.2f} points"
    return text, shown == len(found)


def hetero_accuracy(result: Result) -> tuple[str, bool]:
    found = [row["difference"] for row in result["rows"]]
    shown = sum(d["equivalent"] for d in found)
    furthest = max(abs(d["value"]) for d in found)
    text = f"equivalence shown in {shown} of {len(found)} comparisons, {result['seeds']} runs each"
    text += f", largest difference of means {furthest:.2f} points"
    return text, shown == len(found) and result["seeds"] >= 10


def task_scores(result: Result) -> tuple[str, bool]:
    shown = [row["task"] for row in result["rows"] if row["difference"]["equivalent"]]
    text = f"equivalence shown in {len(shown)} of {len(result['rows'])} tasks"
    text += "".join(
        f"; {row['task']} {row['difference']['value']:+.2f}, p = {row['difference']['p_equivalent']:.2g}"
        for row in result["rows"]
        if row["task"] not in shown
    )
    return text, len(shown) == len(result["rows"]) and min(len(row["ours"]["scores"]) for row in result["rows"]) >= 20


def convergence_labor(result: Result) -> tuple[str, bool]:
    text, shown = convergence(result)
    graphs = {}
    for row in result["settings"]:
        fused, labor = (
            next(s for name, s in row["sides"].items() if name.startswith(kind)) for kind in ("fused", "labor")
        )
        graphs[row["dataset"]] = labor["nodes"] / fused["nodes"]
    seeds = min(len(side["seeds"]) for row in result["settings"] for side in row["sides"].values())
    whole = seeds >= 10 and graphs.keys() >= {"coauthor-physics", "ogbn-arxiv"}
    shares = ", ".join(f"{name} {x:.0%}" for name, x in graphs.items())
    return f"{text}, {seeds} seeds; of the nodes: {shares}", shown and max(graphs.values()) < 1 and whole


def shchur(result: Result) -> tuple[str, bool]:
    near = [abs(row["mean"] - row["published_mean"]) <= row["published_std"] for row in result["settings"]]
    return f"{sum(near)} of {len(near)} datasets", all(near) and len(near) == 4


def shchur_models(result: Result) -> tuple[str, bool]:
    rows = [row for row in result["settings"] if row["published_mean"] is not None]
    near = [abs(row["mean"] - row["published_mean"]) <= row["published_std"] for row in rows]
    pairs = {(row["model"], row["dataset"]) for row in rows if len(row["seeds"]) >= 20}
    whole = pairs >= {(model, name) for model in ("gcn", "gat") for name in ("cora", "citeseer", "coauthor-physics")}
    return f"{sum(near)} of {len(near)} pairs of model and dataset", all(near) and whole


def entities(result: Result) -> tuple[str, bool]:
    rows = result["rows"]
    text = ", ".join(f"{row['dataset']} {row['difference']:+.2f} of {row['published_std']}" for row in rows)
    near = all(abs(row["difference"]) <= row["published_std"] for row in rows)
    return f"{text} points", near and {row["dataset"] for row in rows} == {"aifb", "mutag"} and result["seeds"] >= 10


def tables(result: Result) -> tuple[str, bool]:
    rows = [(r["times_as_long"], r["TableDataset"]["peak_gib"], r) for r in result["rows"] if r["edges"] >= 50_000_000]
    text = ", ".join(f"{row['ids']} {times:.2f}x, {gib:.2f} GiB" for times, gib, row in rows)
    met = [times <= 2 and gib <= 4 and row["equal_to_the_graph_by_hand"] for times, gib, row in rows]
    return text or "not measured", all(met) and {row["ids"] for *_, row in rows} == {"text", "numbers"}


def shadow_over_dgl(result: Result) -> list[float]:
    return [ratio for name, ratio in result["ratios"].items() if name == "dgl / shadow"]


def planted_share(result: Result) -> list[float]:
    return [result["share"]]


def two_hops(result: Result) -> list[float]:
    return _steps(result, [128, 64])


def three_hops(result: Result) -> list[float]:
    return _steps(result, [64, 32, 16])


def _steps(result: Result, fanouts: list[int]) -> list[float]:
    """Milliseconds of steps by CUDA graphs, distinct rows once, without the wait for an epoch's first mini-batch."""
    ours = [row for row in result["rows"] if row["by"] == "ours" and row["cuda_graph"] and row["unique_rows"]]
    return [row["filled_ms"] for row in ours if row["fanouts"] == fanouts]


def rgcn_epoch(result: Result) -> list[float]:
    return [result["rows"][0]["epoch_s"]]


def rgcn_hidden(result: Result) -> list[float]:
    return [result["rows"][0]["over_training"]]


def rgcn_faster(result: Result) -> list[float]:
    return [row["slower_by"] for row in result["rows"] if row["by"] == "torch_geometric"]


def rgat_seeds(result: Result) -> list[float]:
    return [result["rows"][0]["seeds_per_s"]]


def rgat_faster(result: Result) -> list[float]:
    ms = {row["by"]: row["training_ms"] for row in result["rows"] if "training_ms" in row}
    return [ms["torch_geometric"] / ms["ours, CUDA graph"]]


def embeddings(result: Result) -> list[tuple[str, float]]:
    return [(f"{r['dataset']} {r['method']}", r["macro_mean"] - r["published_macro"]) for r in result["rows"]]


def links(result: Result) -> list[float]:
    same = all(row["equal_to_the_cpu"] for row in result["rows"])
    return [row["ms"] for row in result["rows"] if same and row["links"] == "binary, strict"]


def within_bound(budget: str, limit: float, seconds: float) -> Judge:
    """Of an epoch of the products shape: at most this much of a plain copy of its lines or training, and this long."""

    def judge(result: Result) -> tuple[str, bool]:
        row = budget_rows(result, "products").get(budget, {})
        if "over_lines" not in row:
            return "not measured", False
        met = row["over_lines"] <= limit and row["epoch_s"] <= seconds
        return f"{row['over_lines']:.2f}x ({row['over_bound']:.2f}x by bytes), {row['epoch_s']:.3f} s", met

    return judge


quarter = within_bound("25 %", 1.05, 0.53)
tenth = within_bound("10 %", 1.6, float("inf"))


def papers(result: Result) -> list[float]:
    """Seconds of an epoch of the papers100M shape with everything in GPU memory."""
    return [row["epoch_s"] for budget, row in budget_rows(result, "papers").items() if budget == "none"]


def papers_ratio(result: Result) -> list[float]:
    rows = budget_rows(result, "papers")
    return [rows["16 GiB"]["epoch_s"] / rows["none"]["epoch_s"]] if {"16 GiB", "none"} <= rows.keys() else []


def memory_held(result: Result) -> list[float]:
    """Peak over budget."""
    rows = [row for shape in result["shapes"] for row in budget_rows(result, shape).values() if row["budget"]]
    return [row["peak_bytes"] / row["budget_bytes"] for row in rows]


TARGETS = read_targets(Path(__file__).parent / "pages" / "aims.txt")

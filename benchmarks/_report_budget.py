"""The results page on training within budgets of GPU memory."""

from __future__ import annotations

from collections.abc import Callable

from _report_cells import Result, markdown

_HEAD = (
    *("memory", "in GPU memory: edges, rows", "epoch s", "training alone s", "loading alone s", "over the bus GB"),
    *("bus s", "epoch over the longer one", "peak GiB", "ready after s"),
)
_LINES = (
    *("memory", "lines of rows, M", "lines of lists, M", "plain copy s", "epoch over it or training"),
    *("rows alone s", "lists alone s", "loading alone s", "epoch s"),
)


def tables(result: Result) -> list[str]:
    """A table for each shape."""
    fanouts = ", ".join(map(str, result["fanouts"]))
    lines = [
        f"GraphSAGE of {len(result['fanouts'])} layers of {result['hidden']} by CUDA graphs, ({fanouts}) x "
        f"{result['batch_size']:,}, in a loop written by hand; rows are kept as {result['storage_dtype']}. An epoch is "
        'the median of some; of long ones a part was timed and scaled. "Over the bus" is what was counted in an epoch: '
        "parts of lists that were read, and rows that were not in GPU memory, in whole lines of 128 bytes. The bus "
        'would take "bus s" for it by a plain copy from pinned memory, measured in the same row. "Peak" is the most '
        'that torch\'s allocator counted for the data module, without the model. In an epoch of "loading alone" the '
        "mini-batches are not used.",
        "",
    ]
    if result.get("note"):
        lines += [result["note"], ""]
    if result["part"] > 1:
        lines += [f"The graphs are 1/{result['part']} of their size.", ""]
    for name, shape in result["shapes"].items():
        lines += [
            f"Shape of {name}: {shape['num_nodes']:,} vertices, {shape['num_edges']:,} edges, "
            f"{shape['num_features']} features. Training needs {shape['needs_bytes'] / 2**30:.2f} GiB in any case; a "
            "share is of graph and features beside that."
            if shape["needs_bytes"]
            else f"Shape of {name}: {shape['num_nodes']:,} vertices, {shape['num_edges']:,} edges, "
            f"{shape['num_features']} features.",
            "",
            *markdown(_HEAD, [_row(row) for row in shape["rows"]]),
        ]
        by_line = [row for row in shape["rows"] if "over_lines" in row]
        if by_line:
            lines += [
                "The same epochs by the line. A request over the bus costs about as much for a part of a line of 128 "
                "bytes as for a whole one, so the bus has as much to do as the lines say. A line of rows counts once "
                "per mini-batch. A line of lists counts once per launch; the edge ids of the picks tell which. "
                '"Rows alone" and "lists alone" are times of a GPU that does nothing else: as many rows are gathered '
                "from pinned memory, or all mini-batches are sampled from the pinned graph.",
                "",
                *markdown(_LINES, [_by_line(row) for row in by_line]),
            ]
    return lines


def _row(row: Result) -> tuple[str, ...]:
    budget = row["budget"] or "none"
    if "refused" in row:
        return budget, "refused: " + row["refused"].replace("|", "\\|"), *[""] * (len(_HEAD) - 2)
    budget += f" ({row['budget_bytes'] / 2**30:.2f} GiB)" if budget.endswith("%") else ""
    plan = row["plan"]
    if plan is not None and plan.get("lookahead"):
        budget += f", lookahead {plan['lookahead']}"
    kept = "all" if plan is None else f"{plan['share_of_edges']:.1%}, {plan['share_of_rows']:.1%}"
    part = row["measured_batches"] / row["batches"]
    return (
        budget,
        kept,
        f"{row['epoch_s']:.3f}" + (f" (of {part:.0%})" if part < 1 else ""),
        f"{row['training_alone_s']:.3f}",
        f"{row['loading_alone_s']:.3f}",
        f"{row['bus_bytes'] / 1e9:.2f}",
        f"{row['bus_s']:.3f}",
        f"{row['over_bound']:.2f}x",
        f"{row['peak_bytes'] / 2**30:.2f}",
        f"{row['setup_s']:.1f}",
    )


def _by_line(row: Result) -> tuple[str, ...]:
    seconds = ("gathering_alone_s", "sampling_alone_s", "loading_alone_s", "epoch_s")
    return (
        row["budget"],
        f"{row['row_lines'] / 1e6:.1f}",
        f"{row['list_lines'] / 1e6:.1f}",
        f"{row['lines_s']:.3f}",
        f"{row['over_lines']:.2f}x",
        *(f"{row[name]:.3f}" for name in seconds),
    )


def _rows(result: Result, shape: str) -> dict[str, Result]:
    rows = result["shapes"].get(shape, {"rows": []})["rows"] if result["part"] == 1 else []
    return {row["budget"] or "none": row for row in rows if "refused" not in row}


def within_bound(budget: str, limit: float, seconds: float) -> Callable[[Result], tuple[str, bool]]:
    """Of an epoch of the products shape: at most this much of a plain copy of its lines or training, and this long."""

    def judge(result: Result) -> tuple[str, bool]:
        row = _rows(result, "products").get(budget)
        if row is None or "over_lines" not in row:
            return "not measured", False
        met = row["over_lines"] <= limit and row["epoch_s"] <= seconds
        return f"{row['over_lines']:.2f}x ({row['over_bound']:.2f}x by bytes), {row['epoch_s']:.3f} s", met

    return judge


def papers_epoch(result: Result) -> tuple[str, bool]:
    """Of the papers100M shape with everything in GPU memory."""
    row = _rows(result, "papers").get("none")
    return ("not measured", False) if row is None else (f"{row['epoch_s']:.2f} s", row["epoch_s"] <= 1.6)


def papers_budget(result: Result) -> tuple[str, bool]:
    """Of the papers100M shape in 16 GiB, against everything in GPU memory."""
    rows = _rows(result, "papers")
    if not {"none", "16 GiB"} <= rows.keys():
        return "not measured", False
    ratio = rows["16 GiB"]["epoch_s"] / rows["none"]["epoch_s"]
    return f"{ratio:.2f}x", ratio <= 4


def memory_held(result: Result) -> tuple[str, bool]:
    """Whether no row took more than its budget."""
    rows = [row for shape in result["shapes"] for row in _rows(result, shape).values() if row["budget"] is not None]
    if not rows:
        return "not measured", False
    most = max(row["peak_bytes"] / row["budget_bytes"] for row in rows)
    return f"at most {most:.1%} of it ({len(rows)} budgets)", most <= 1

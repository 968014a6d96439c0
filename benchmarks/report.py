"""Writes docs/results.md and docs/measurements/ from the JSON files that the benchmarks wrote.

    python benchmarks/report.py            # benchmarks/results/*.json -> pages and pictures
    python benchmarks/report.py --check    # says whether the pages are up to date, status 1 if not

A file that no page knows is shown as it is. What was aimed at and missed, or never measured, stands on the first page.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import _report_aims as aims
import _report_rows as rows
from _report_aims import TARGETS, Target
from _report_pictures import DRAWN
from _report_schema import Page, Result, Section, everything, markdown, read_page

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TEMPLATES = Path(__file__).parent / "pages"
# The order in the index.
NAMES = (
    *("sampling_gpu", "sampling_cpu", "walks", "traversals", "links", "epoch", "training_step", "stores", "memory"),
    *("disk", "accuracy", "several_gpus", "other_loaders"),
)
PAGES = tuple(read_page(TEMPLATES / f"{name}.md") for name in NAMES)
PAGE_OF = {section.file: page for page in PAGES for section in page.sections}
SECTIONS = {section.file: section for page in PAGES for section in page.sections}
WRITTEN = "<!-- `python benchmarks/report.py` writes this page from `benchmarks/`: do not edit it. -->\n"


def _range(result: Result, values: str) -> str:
    found = [value for _, value in aims.values_of(values, result)]
    return f"{min(found):.1f} to {max(found):.1f}x as fast"


def _threads(r: Result) -> tuple[str, str, str]:
    found = r["by_threads"]["16"][1]
    return f"{found['one']:.2f} ms", f"DGL: {found['dgl']:.2f} ms", f"{found['dgl'] / found['one']:.1f}x as fast"


def _sampler_gpu(r: Result) -> tuple[str, str, str]:
    (row,) = (row for row in rows.peers(r) if (row["fanouts"], row["batch"]) == ([15, 10, 5], 1024))
    peer = f"the fastest of DGL, GraphBolt, torch-quiver and cuGraph: {row['peer']:.2f} ms"
    return f"{row['auto']:.3f} ms", peer, _range(r, "peers: peer / auto ?")


def _walks_gpu(r: Result) -> tuple[str, str, str]:
    row = r["rows"][0]
    return f"{row['ms']:.1f} ms, {row['g_steps_per_s']:.0f} * 10^9 steps per second", "", ""


def _traverse(r: Result) -> tuple[str, str, str]:
    ms, emogi = rows.traversal_ms(r)["products", "bfs", "gpu"], rows.EMOGI_MS["bfs", "gpu"]
    return f"{ms:.2f} ms", f"EMOGI: {emogi} ms", f"{emogi / ms:.1f}x as fast"


def _epoch(store: str) -> Callable[[Result], tuple[str, str, str]]:
    def figures(r: Result) -> tuple[str, str, str]:
        (row,) = (row for row in aims.epochs(r) if (row["store"], row["fanouts"]) == (store, [15, 10, 5]))
        return f"{row['epoch_s']:.3f} s", "training without loading", f"{100 * row['exposed']:.1f} % longer"

    return figures


def _budget(r: Result) -> tuple[str, str, str]:
    row = rows.budget_rows(r, "products")["25 %"]
    return (
        f"{row['epoch_s']:.3f} s",
        "only copying over PCIe what each mini-batch lacks; what several need counts several times",
        f"{row['over_lines']:.2f}x the time",
    )


def _scaling(r: Result) -> tuple[str, str, str]:
    (row,) = (row for row in r["rows"] if (row["gpus"], row["features"]) == (2, "device"))
    return f"{row['epoch_s']:.3f} s", f"one GPU: {r['rows'][0]['epoch_s']:.3f} s", f"{row['faster_by']:.2f}x as fast"


def _shadow(r: Result) -> tuple[str, str, str]:
    found = r["ms"]["shadow"], r["dgl"]["ms"]
    theirs = f"DGL, {r['dgl']['workers']} workers: {found[1]:.0f} ms"
    return f"{found[0]:.2f} ms", theirs, f"{found[1] / found[0]:.0f}x as fast"


def _hetero(r: Result) -> tuple[str, str, str]:
    return "", f"DGL {r['versions_of_peers']['dgl']}", _range(r, "rows: faster_by")


def _theirs(r: Result) -> Result:
    return next(row for row in r["rows"] if row["by"] == "torch_geometric")


def _training(r: Result) -> tuple[str, str, str]:
    ms, theirs = r["rows"][0]["training_ms"], _theirs(r)["training_ms"]
    return f"{ms:.3g} ms", f"torch_geometric: {theirs:.3g} ms", f"{theirs / ms:.1f}x as fast"


# What is measured, the file, and: the figure, beside what, how the two compare.
HEADLINES: tuple[tuple[str, str, Callable[[Result], tuple[str, str, str]]], ...] = (
    ("Sampling, 2 threads", "sampler_cpu", lambda r: ("", "DGL", _range(r, "comparison: dgl.fused_is_faster_by ?"))),
    ("Sampling one mini-batch, 16 threads, (15, 10, 5) x 1,024", "sampler_cpu_threads", _threads),
    ("Sampling several types: one mini-batch on 1 thread, and groups of 16 on 16 threads", "hetero_cpu", _hetero),
    ("Sampling on the GPU, (15, 10, 5) x 1,024", "sampler_gpu", _sampler_gpu),
    ("Random walks", "walks_cpu", lambda r: ("", "DGL", _range(r, "rows: ns_a_step.dgl / ns_a_step.ours ?"))),
    ("Walks of 80 steps from every node, on the GPU", "walks_gpu", _walks_gpu),
    ("Breadth-first search on the GPU", "traverse_gpu", _traverse),
    ("ShaDow subgraphs on the GPU, (10, 10) x 1,024", "induced_gpu", _shadow),
    (
        "Mini-batches for PyG, (15, 10, 5) x 1,024, on the GPU",
        "pyg_gpu",
        lambda r: (
            f"{r['rows'][0]['ours_per_s']:,.0f} per second",
            f"torch_geometric's own loader, whose {r['workers']} workers call our sampler on the CPU: "
            f"{r['rows'][0]['theirs_per_s']:.0f} per second",
            f"{r['rows'][0]['ratio']:.0f}x as fast",
        ),
    ),
    (
        "A training step, (15, 10, 5) x 1,024, by CUDA graphs",
        "train_step_gpu",
        lambda r: (
            f"{r['rows'][0]['contenders']['ours, CUDA graph']['step_ms']:.2f} ms",
            "the fastest other layer, PyG's included",
            _range(r, "steps"),
        ),
    ),
    (
        "A training step of a task on tables, (128, 64) x 512",
        "tasks_gpu",
        lambda r: (
            f"{r['rows'][0]['step_ms']:.1f} ms",
            f"torch_geometric: {_theirs(r)['step_ms']:.0f} ms",
            f"{_theirs(r)['step_ms'] / r['rows'][0]['step_ms']:.1f}x as fast",
        ),
    ),
    ("A training step of R-GCN, as large as ogbn-mag, (25, 20) x 1,024", "rgcn_gpu", _training),
    ("A training step of R-GAT, as large as IGB, (15, 10, 5) x 1,024", "rgat_gpu", _training),
    ("An epoch, features in GPU memory", "pipeline_gpu", _epoch("lazy")),
    ("An epoch, a quarter of the features in GPU memory, always the same rows", "pipeline_gpu", _epoch("cached")),
    (
        "An epoch, a quarter of graph and features in GPU memory (`memory=`); cached rows change with the mini-batches",
        "budget_gpu",
        _budget,
    ),
    (
        "Mini-batches of files on disk, none in memory",
        "disk",
        lambda r: ("", "the system's own read-ahead", f"{r['ahead_beside_system']:.1f}x as fast"),
    ),
    ("An epoch on two GPUs", "scaling_gpu", _scaling),
    ("Test accuracy", "convergence", lambda r: ("", "training with DGL's sampler", aims.convergence(r)[0])),
    ("Test accuracy", "shchur", lambda r: ("", "Shchur et al. 2018, table 3", f"as published on {aims.shchur(r)[0]}")),
)


def render(folder: Path, targets: tuple[Target, ...] = TARGETS) -> dict[str, str]:
    """The pages, by their path in docs/.

    Args:
        folder: of the JSON files.
        targets: what the table of aims judges.

    Raises:
        ValueError: a file is no JSON object, or a known one has not the form that its table needs.
    """
    results = {path.stem: _read(path) for path in sorted(folder.glob("*.json"))}
    pages = [page for page in PAGES if any(section.file in results for section in page.sections)]
    if unknown := [name for name in results if name not in PAGE_OF]:
        others = [Section(name, name.replace("_", " ").capitalize(), "```lines everything\n```\n") for name in unknown]
        pages.append(Page("others", "Other measurements", "No page knows these files.", others))
    judged = [_row(target, results.get(target.file)) for target in targets]
    fast = [
        (
            f"[{what}](measurements/{PAGE_OF[name].name}.md)",
            *_guarded(name, results[name], figures),
            _machine(results[name]),
        )
        for what, name, figures in HEADLINES
        if name in results
    ]
    missed = [row[:2] for row in judged if row[2] != "yes"]
    summary = (TEMPLATES / "results.md").read_text(encoding="utf-8")
    tables = {
        "fast": "\n".join(markdown(("what", "this package", "beside", "compared", "machine"), fast)).strip(),
        "missed": "\n".join(markdown(("aim", "found"), missed)).strip(),
    }
    written = {
        "results.md": summary.format(**tables, aims=len(judged), count=len(missed)).splitlines(),
        "measurements/aims.md": ["# Aims", "", *markdown(("aim", "found", "met"), judged)],
        "measurements/index.md": _index(pages),
    }
    for page in pages:
        written[f"measurements/{page.name}.md"] = lines = [f"# {page.title}", "", page.intro, ""]
        for section in page.sections:
            if section.file in results:
                lines += _guarded(section.file, results[section.file], partial(show, section))
    return {name: WRITTEN + "\n".join(lines).rstrip() + "\n" for name, lines in written.items()}


def show(section: Section, result: Result) -> list[str]:
    """What a page says of a file of results."""
    return section.show(result, {**vars(rows), "everything": everything}, SECTIONS)


def _guarded(name: str, result: Result, show: Callable[[Result], T]) -> T:
    try:
        return show(result)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{name}.json has not the form of {name}: {type(error).__name__}: {error}; run its benchmark again, or "
            "change its table in benchmarks/_report_rows.py or _report_training.py"
        ) from error


def _read(path: Path) -> Result:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); run its benchmark again") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}; it must be a JSON object")
    return content


def _row(target: Target, result: Result | None) -> tuple[str, str, str]:
    if result is None:
        return target.what, f"`{target.file}.json` is not there", "not measured"
    found, met = _guarded(target.file, result, target.judge)
    return target.what, found, "yes" if met else "**missed**"


def _machine(result: Result) -> str:
    hardware = result["hardware"]
    return str(hardware.get("gpu") or result.get("gpu") or f"{hardware['cpu']}, {hardware['cores']} cores")


def _index(pages: Sequence[Page]) -> list[str]:
    subjects = [f"| [{page.title}]({page.name}.md) | {len(page.sections)} |" for page in pages]
    return [
        "# Measurements by subject",
        "",
        "[Results](../results.md) is the summary. `benchmarks/README.md` says which question each benchmark answers.",
        "",
        "| subject | measurements |",
        "|---|---|",
        *subjects,
        "",
        "```{toctree}",
        ":hidden:",
        "",
        "aims",
        *(page.name for page in pages),
        "by_hand",
        "```",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the pages (default: docs)")
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    try:
        pages = render(arguments.results)
    except ValueError as error:
        sys.exit(f"error: {error}")
    for name, text in pages.items():
        path = arguments.out / name
        if arguments.check:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                sys.exit(f"{path} is not what the results say; run python benchmarks/report.py")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    for name, draw in DRAWN.items():
        if not arguments.check and (arguments.results / f"{name}.json").is_file():
            draw(_read(arguments.results / f"{name}.json"), arguments.out / "images")


if __name__ == "__main__":
    main()

"""docs/results.md and docs/measurements/: what the results say, and up to date."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from _report_pictures import DRAWN
from _report_schema import Column, Table
from report import DOCS, HEADLINES, PAGE_OF, ROOT, TARGETS, Target, render

RESULTS = ROOT / "benchmarks" / "results"
WORDS = re.compile(r"<text[^>]*>([^<]+)</text>")  # of a picture


def write(folder: Path, name: str, content: object) -> None:
    (folder / f"{name}.json").write_text(json.dumps(content))


def test_the_pages_are_up_to_date() -> None:
    pages = render(RESULTS)
    for name, text in pages.items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, "run python benchmarks/report.py"
    written = {f"measurements/{path.name}" for path in (DOCS / "measurements").glob("*.md")}
    assert written == pages.keys() - {"results.md"} | {"measurements/by_hand.md"}


def test_the_summary_is_read_in_five_minutes() -> None:
    prose = [line for line in (DOCS / "results.md").read_text(encoding="utf-8").splitlines() if line[:1] != "|"]
    assert len(" ".join(prose).split()) <= 1000


def test_every_result_is_named_on_its_page() -> None:
    for path in RESULTS.glob("*.json"):
        page = DOCS / "measurements" / f"{PAGE_OF[path.stem].name}.md"
        assert f"`benchmarks/results/{path.name}`" in page.read_text(encoding="utf-8")


def test_pictures_have_title_units_and_colours() -> None:
    pages = [DOCS / "results.md", *(DOCS / "measurements").glob("*.md")]
    shown = {m for page in pages for m in re.findall(r"\]\(\.\./images/([^)]+)\)", page.read_text(encoding="utf-8"))}
    drawn = {path.name for path in (DOCS / "images").iterdir()} - {"architecture.svg", "pipeline.svg", "times.svg"}
    assert shown == drawn
    for name in shown:
        picture = (DOCS / "images" / name).read_text(encoding="utf-8")
        text = WORDS.findall(picture)
        assert any(len(words.split()) > 3 for words in text), f"{name} has no title"
        assert any(re.search(r"second|times|%", words) for words in text), f"{name} has no units"
        assert "#1f77b4" not in picture, f"{name} has colours of matplotlib's"
        assert len(picture) < 200_000


def test_pictures_are_those_of_the_results(tmp_path: Path) -> None:
    for name in ("sampler_gpu", "convergence_labor"):  # the report draws all at once, and the others take seconds
        DRAWN[name](json.loads((RESULTS / f"{name}.json").read_text()), tmp_path)
    for path in tmp_path.iterdir():  # other releases of matplotlib place things elsewhere, but say the same
        known = (DOCS / "images" / path.name).read_text(encoding="utf-8")
        assert WORDS.findall(path.read_text(encoding="utf-8")) == WORDS.findall(known), (
            "run python benchmarks/report.py"
        )


def test_a_file_that_nobody_knows_gets_tables(tmp_path: Path) -> None:
    write(
        tmp_path,
        "made_up",
        {
            "date": "2026-01-02T03:04:05+00:00",
            "command": "python benchmarks/made_up.py",
            "hardware": {"cpu": "Abacus", "cores": 3, "memory_gib": 0.5},
            "gpu": "none | at all",
            "versions": {"torch": "9.9", "dgl": "absent"},
            "ratio": 0.123456,
            "rows": [
                {"case": "a", "ms": {"ours": 1.23456, "theirs": 12345.6}, "all": [1.0] * 9, "unit": "ms", "n": 1000},
                {"case": "b", "ms": {"ours": 2.0}, "all": [3.0] * 9, "unit": "ms", "n": 2000},
            ],
            "more": [{"x": [10, 10], "ok": True, "inner": [{"y": 1}]}],
        },
    )
    page = render(tmp_path)["measurements/others.md"]
    for line in (
        "## Made up",
        "`benchmarks/results/made_up.json`, 2026-01-02. Abacus, 3 cores, 0.5 GiB, none | at all; torch 9.9.",
        "    python benchmarks/made_up.py",
        "gpu: none \\| at all, ratio: 0.1235.",
        "| case | ms ours | ms theirs | unit | n |",
        "| a | 1.235 | 12,346 | ms | 1,000 |",
        "| b | 2 |  | ms | 2,000 |",
        "| 10, 10 | yes |",
    ):
        assert line in page


def test_the_page_names_missed_and_unmeasured_targets(tmp_path: Path) -> None:
    write(tmp_path, "some", {"x": 1})
    targets = (
        Target("reached", "some", lambda r: (str(r["x"]), True)),
        Target("out of reach", "some", lambda r: (str(r["x"]), False)),
        Target("unknown", "other", lambda r: ("", True)),
    )
    pages = render(tmp_path, targets)
    page = pages["measurements/aims.md"]
    assert "| reached | 1 | yes |" in page
    assert "| out of reach | 1 | **missed** |" in page
    assert "| unknown | `other.json` is not there | not measured |" in page
    assert "| out of reach | 1 |\n| unknown |" in pages["results.md"]
    assert "| reached |" not in pages["results.md"]


def test_targets_judge_by_the_worst_setting(tmp_path: Path) -> None:
    def row(factor: float) -> dict[str, object]:
        return {
            "graph": "g", "fanouts": [1], "batch_size": 1, "free_cores": [2.0, 2.0],
            "fused": {"seconds": 1, "peak_mib": 1}, "dgl": {"seconds": 2, "peak_mib": 2, "fused_is_faster_by": factor},
        }  # fmt: skip

    for worst, met in ((2.0, "yes"), (1.99, "**missed**")):
        rows = [row(factor) for factor in (3.0, worst, 2.5, 2.6)]
        rows.append({k: v for k, v in row(1.0).items() if k != "dgl"})
        content = {"threads": 1, "hardware": {"cpu": "Abacus", "cores": 3}, "comparison": rows}
        write(tmp_path, "sampler_cpu", content)
        page = render(tmp_path)["measurements/aims.md"]
        found = f"at least 2x as fast as DGL's in every setting | {worst:.2f}x to 3.00x (4 settings) | {met} |"
        assert found in page


@pytest.mark.parametrize("content", ["[1]", "{", '"text"'])
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(ValueError, match=r"bad\.json"):
        render(tmp_path)


def test_a_known_file_of_another_form_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "shchur", {"settings": [{"dataset": "x"}]})
    with pytest.raises(ValueError, match=r"shchur\.json has not the form of shchur"):
        render(tmp_path, targets=())


def test_targets_and_headlines_name_known_files() -> None:
    assert {target.file for target in TARGETS} | {name for _, name, _ in HEADLINES} <= PAGE_OF.keys()


def test_a_filter_leaves_matching_rows(tmp_path: Path) -> None:
    from _report_aims import values_of

    rows = [{"way": "pinned", "x": 1}, {"way": "pinned, copy=True", "x": 2}, {"way": "device", "x": 3}]
    for wanted, found in (("pinned", [1]), ("pinned, copy=True", [2]), ("pinned or device", [1, 3])):
        assert [value for _, value in values_of(f"rows[way={wanted}]: x", {"rows": rows})] == found


def test_a_table_needs_values_unless_optional() -> None:
    row = {"ours": {"ms": 2.0}}
    assert Column("ratio", "dgl.ms / ours.ms ?", "{:.1f}x").show(row) == ""
    assert Column("us", "1e3 * ours.ms", "{:,.0f}").show(row) == "2,000"
    with pytest.raises(KeyError, match="dgl"):
        Column("ratio", "dgl.ms / ours.ms").show(row)
    table = Table("name; ms | ours.ms | {:.2f};\n DGL | dgl ?").show({"rows": [{"name": "a|b", **row}]})
    assert table == ["| name | ms | DGL |", "|---|---|---|", "| a\\|b | 2.00 |  |", ""]

"""docs/results.md: what the results say, and up to date."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from report import DOC, PAGES, ROOT, TARGETS, Target, render

RESULTS = ROOT / "benchmarks" / "results"


def write(folder: Path, name: str, content: object) -> None:
    (folder / f"{name}.json").write_text(json.dumps(content))


def test_the_page_is_up_to_date() -> None:
    assert DOC.read_text(encoding="utf-8") == render(RESULTS), "run python benchmarks/report.py"


def test_the_page_shows_every_result_and_every_picture() -> None:
    page = DOC.read_text(encoding="utf-8")
    for path in RESULTS.glob("*.json"):
        assert f"benchmarks/results/{path.name}" in page
    pictures = re.findall(r"\]\((images/[^)]+)\)", page)
    for picture in pictures:
        assert (DOC.parent / picture).stat().st_size < 200_000


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
    page = render(tmp_path)
    for line in (
        "## Made up",
        "`benchmarks/results/made_up.json`, 2026-01-02. Abacus, 3 cores, 0.5 GiB, none | at all; torch 9.9. "
        "Command: `python benchmarks/made_up.py`",
        "gpu: none \\| at all, ratio: 0.1235.",
        "In every row: unit ms.",
        "| case | ms ours | ms theirs | all (median of 9) | n |",
        "| a | 1.235 | 12,346 | 1 | 1,000 |",
        "| b | 2 |  | 3 | 2,000 |",
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
    page = render(tmp_path, targets)
    assert "| reached | 1 | yes |" in page
    assert "| out of reach | 1 | **missed** |" in page
    assert "| unknown | `other.json` is not there | not measured |" in page


def test_targets_judge_by_the_worst_setting(tmp_path: Path) -> None:
    def row(factor: float) -> dict[str, object]:
        return {
            "graph": "g", "fanouts": [1], "batch_size": 1, "free_cores": [2.0],
            "fused": {"seconds": 1, "peak_mib": 1}, "dgl": {"seconds": 2, "peak_mib": 2, "fused_is_faster_by": factor},
        }  # fmt: skip

    for worst, met in ((2.0, "yes"), (1.99, "**missed**")):
        write(tmp_path, "sampler_cpu", {"threads": 1, "comparison": [row(3.0), row(worst)]})
        page = render(tmp_path)
        found = f"at least 2x as fast as DGL's in every setting | {worst:.2f}x to 3.00x (2 settings) | {met} |"
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


def test_targets_name_files_that_have_a_table() -> None:
    assert {target.file for target in TARGETS} <= set(PAGES)

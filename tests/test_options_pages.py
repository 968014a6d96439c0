"""docs/options/: every option of conf/ is there, and the pages are what conf/ says."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import ROOT

spec = importlib.util.spec_from_file_location("options_pages", ROOT / "docs" / "options.py")
assert spec is not None
assert spec.loader is not None
options = importlib.util.module_from_spec(spec)
spec.loader.exec_module(options)

FILES = sorted((ROOT / "conf").glob("**/*.yaml"))


def leaves(config: Any, path: str = "") -> Iterator[str]:
    for key, value in config.items():
        name = f"{path}.{key}" if path else str(key)
        if key in ("defaults", "hydra"):
            continue
        if isinstance(value, dict):
            yield from leaves(value, name)
        elif not str(key).startswith("_"):
            yield name


def test_the_pages_are_up_to_date() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in options.FOLDER.glob("*.md")}
    assert written == options.render(), "run PYTHONPATH=. python docs/options.py"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_option_of_a_file_is_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    config = yaml.safe_load(text) or {}
    whole = path.parent == ROOT / "conf" or text.startswith("# @package _global_")
    found = [option.name for option in options.read(path).options]
    assert found == list(leaves(config, "" if whole else path.parent.name))


def test_every_file_has_a_section() -> None:
    pages = "".join(options.render().values())
    for path in FILES:
        if path.parent != ROOT / "conf":
            assert f"## `{path.parent.name}={path.stem}`\n" in pages


def test_pages_choose_what_there_is() -> None:
    groups = {path.parent.name for path in FILES if path.parent != ROOT / "conf"}
    chosen = re.compile(rf"(?<![\w.])({'|'.join(groups)})=([\w-]+)(?=[`\s])")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        found = [one for span in re.findall(r"`[^`\n]+`", text) for one in chosen.findall(span)]
        found += [
            one for line in re.findall(r"^ *python train\.py .*$", text, re.MULTILINE) for one in chosen.findall(line)
        ]
        for group, name in found:
            there = (ROOT / "conf" / group / f"{name}.yaml").is_file() or f"{group}/{name}.yaml" in text
            assert there or name in ("null", "NAME"), f"{page} names {group}={name}"


def test_comments_become_the_meaning(tmp_path: Path) -> None:
    folder = tmp_path / "sampler"
    folder.mkdir()
    (folder / "some.yaml").write_text(
        "# What it is.\n_target_: a.B\n# before\nx: 1 # behind\n# goes on\n\n# next one\ny:\n  z: [1, 2]\n"
    )
    found = options.read(folder / "some.yaml")
    assert (found.help, found.target) == ("What it is.", "a.B")
    assert [tuple(option) for option in found.options] == [
        ("sampler.x", "1", "before behind goes on"),
        ("sampler.y.z", "[1, 2]", ""),
    ]


def test_options_have_the_values_of_their_class() -> None:
    walks = {"sampler": "loader.samplers.WalkSampler"}
    assert options.values("sampler.p", walks) == "number"
    assert options.values("sampler.metapath", walks) == "list of integers, or null"
    assert options.values("sampler.schedule", {"sampler": "loader.samplers.fused"}) == "text"  # of CudaSampler
    assert options.values("trainer.max_steps", {}) == "integer of at least -1, but not 0, or null"
    assert options.values("model.lr", {}) == "number"  # in a file of another group
    assert options.values("datamodule.dataset", {}) == ""

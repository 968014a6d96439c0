"""What the documents say is true: the README's code runs, its figures are measured, every public name has a page."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import ROOT, blocks, run
from marks import HAS_DGL

import loader

ROOMS = (
    "graph", "samplers", "samples", "stores", "items", "stages", "pipeline", "timing", "ops", "datasets", "kernels",
    "traverse",
)  # fmt: skip

# What the README's code takes as given.
GIVEN = """
import torch
from torch.nn.functional import cross_entropy
from models.sage import GraphSAGE
num_nodes = 3000
src, dst = torch.randint(num_nodes, (2, 20000))
features, labels = torch.randn(num_nodes, 8), torch.randint(3, (num_nodes,))
edges = torch.stack((src, dst)).numpy()
train_ids, val_ids, test_ids = torch.randperm(num_nodes).split(1000)
model = GraphSAGE(8, 16, 3, 3, 0.5)
with open("edges.csv", "w") as file:
    file.write("source,target\\n" + "".join(f"user {a},user {b}\\n" for a, b in torch.randint(200, (800, 2)).tolist()))
with open("nodes.csv", "w") as file:
    file.write("id,age,segment\\n" + "".join(f"user {i},{i % 7},{'' if i % 3 else 'ab'[i % 2]}\\n" for i in range(200)))
"""


# The README


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_the_readmes_code_runs(tmp_path: Path) -> None:
    code = [block for block in blocks(ROOT / "README.md") if block.note not in ("run", "test")]  # which CI runs
    assert [block.note for block in code] == [
        "code: six",
        "commands",
        "commands",
        "code: own graph",
        "commands",
        "code: peers",
    ]
    assert len([line for line in code[0].code.splitlines() if line]) == 6
    if not HAS_DGL:
        code[-1] = code[-1]._replace(code=code[-1].code.splitlines()[0])
    shown = run(code, tmp_path, GIVEN)
    assert shown.count("accuracy: train ") == 5  # digits, two of the sweep, tables, the own graph
    assert "predictions.parquet (200 rows, each node with all its neighbors)" in shown
    assert "Blocks, from the seeds outward" in shown


@pytest.mark.parametrize(
    ("claim", "figure"),
    [
        ("at least 2.0 times as fast as DGL", r"at least 2x as fast as DGL's in every setting \| 2\.0\dx to"),
        (
            "an epoch takes about 4 % longer than training alone",
            r"longer than training alone \| lazy \(15, 10, 5\) 3\.9%",
        ),
        ("differ by at most 0.09 points", r"largest difference of means 0\.09 points \| yes"),
    ],
)
def test_the_readmes_claims_were_measured(claim: str, figure: str) -> None:
    assert claim in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert re.search(figure, (ROOT / "docs" / "measurements" / "aims.md").read_text(encoding="utf-8"))


def test_the_readme_counts_the_digests() -> None:
    import json

    digests = json.loads((ROOT / "tests" / "record" / "digests.json").read_text())
    assert f"Tests compare {len(digests):,} checksums" in (ROOT / "README.md").read_text(encoding="utf-8")


DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")]
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)


@pytest.mark.parametrize("path", [*DOCUMENTS, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
    assert not [target for target in targets if "://" not in target and not (path.parent / target).exists()]


def test_maps_are_short() -> None:
    for name in ("scale", "architecture"):
        assert len((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").split()) <= 900
    for path in (ROOT / "docs" / "extend").glob("*.md"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 40, path.name


# The documentation


def test_every_public_name_is_in_a_documented_room() -> None:
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md")}
    public = {name for room in ROOMS for name in importlib.import_module(f"loader.{room}").__all__}
    for room in ROOMS:
        assert f".. automodule:: loader.{room}\n" in pages[room]
    on_top = {name for name in loader.__all__ if f"autoclass:: loader.{name}\n" in pages["loader"]}
    assert set(loader.__all__) <= public | on_top
    rooms = {path.parent.name for path in (ROOT / "loader").glob("*/__init__.py")}
    # The first has nothing for users; the next two have a page together, and the others are on that of `loader`.
    assert rooms - set(ROOMS) == {"machine", "pyg", "dgl", "loaders", "memory", "datamodules", "inspect"}


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_has_a_docstring(room: str) -> None:
    module = importlib.import_module(f"loader.{room}")
    bare = [name for name in module.__all__ if callable(getattr(module, name)) and not getattr(module, name).__doc__]
    assert not bare


def documented(room: str) -> Iterator[tuple[str, str]]:
    """Names of a room, their methods and properties, with the first sentence of each."""
    module = importlib.import_module(f"loader.{room}")
    objects = {name: getattr(module, name) for name in module.__all__ if callable(getattr(module, name))}
    for name, one in list(objects.items()):
        if inspect.isclass(one):
            objects.update((f"{name}.{key}", member) for key, member in vars(one).items() if key[0] != "_")
    for name, one in objects.items():
        function = one.fget if isinstance(one, property) else getattr(one, "__func__", one)
        if (inspect.isclass(function) or inspect.isfunction(function)) and function.__doc__:
            yield name, " ".join(re.split(r"\.\s|\n\n", inspect.cleandoc(function.__doc__))[0].split())


@pytest.mark.parametrize("room", ROOMS)
def test_first_sentences_stand_alone(room: str) -> None:
    leaning = re.compile(r"(See|The same(,| for| by| with)|Does the same|Of|This object|It|They|Whether (it|they))\b")
    weak = [name for name, said in documented(room) if leaning.match(said) or len(said.split()) < 2]
    assert not weak


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The documentation, built without a warning: by .ci/run, which says where it is, or here."""
    pytest.importorskip("sphinx", reason="the documentation needs pip install 'gnn-loader[docs]'")
    pytest.importorskip("myst_parser")
    pytest.importorskip("furo")
    if built := os.environ.get("BUILT_DOCUMENTATION"):
        return Path(built)
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(ROOT / "docs"), str(site)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return site


def test_the_built_index_has_all_public_names(site: Path) -> None:
    index = (site / "genindex.html").read_text(encoding="utf-8")
    for room in (*ROOMS, "pyg", "dgl"):
        for name in importlib.import_module(f"loader.{room}").__all__:
            assert name in index, f"loader.{room}.{name}"

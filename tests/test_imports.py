"""What is imported when: the library alone needs torch and numpy, and nothing is printed, written or asked for."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import train as train_module
from loader.machine.optional import import_optional

ROOT = Path(train_module.__file__).parent
OTHERS = (
    "dgl", "hydra", "lightning", "matplotlib", "networkx.drawing", "ogb", "omegaconf", "pandas", "pyarrow", "rich",
    "scipy", "sklearn", "torch_geometric", "torchmetrics",
)  # fmt: skip
MODULES = (
    "import loader.datasets, loader.graph, loader.inspect, loader.ops, loader.samplers, loader.samples, loader.stores"
)
WITHOUT = f"""
import sys
for name in {OTHERS}:
    sys.modules[name] = None  # its import fails
"""


def run(code: str, folder: Path) -> str:
    """What the code prints, on stdout and stderr, with `folder` as the user's home."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_library_imports_torch_and_numpy_only(tmp_path: Path) -> None:
    names = "Block, DGLSampler, FullSampler, FusedSampler, Graph, HopwiseSampler, MiniBatch, NodeLoader, Sampler"
    code = f"{MODULES}; from loader import {names}; import sys; print([n for n in {OTHERS} if n in sys.modules])"
    assert run(code, tmp_path) == "[]\n"


def test_the_library_works_without_any_other_package(tmp_path: Path) -> None:
    code = f"""{WITHOUT}
import numpy, torch
from loader import FusedSampler, Graph, NodeLoader
from loader.datasets import NpzDataset
from loader.ops import aggregate_mean
ids = numpy.arange(40)
numpy.savez({str(tmp_path / "mine.npz")!r}, edge_index=numpy.stack((ids, ids[::-1])), features=numpy.eye(40),
            labels=ids % 2, train=ids[:20], val=ids[20:30], test=ids[30:])
data = NpzDataset({str(tmp_path / "mine.npz")!r}, cache_dir={str(tmp_path / "cache")!r}).load()
sampler = FusedSampler([2, 2], num_threads=1)
for batch in NodeLoader(data.graph, data.features, data.labels, data.splits["train"], sampler, 8):
    print(aggregate_mean(batch.x, batch.blocks[0]).shape[1])
"""
    assert run(code, tmp_path).split() == ["40"] * 3


# Code, and what is said of it.
MISSING = [
    (
        "from loader import GraphDataModule",
        "GraphDataModule needs the package lightning; pip install 'gnn-loader[train]'",
    ),
    (
        "from loader.datasets import open_dataset; open_dataset('digits')",
        "a dataset by its name needs the package omegaconf; pip install 'gnn-loader[datasets]'",
    ),
    (
        "from loader.datasets import TableDataset; TableDataset('{folder}/e.csv', data_dir='{folder}').load()",
        "a dataset of tables needs the package pyarrow; pip install 'gnn-loader[tables]'",
    ),
    (
        "from loader.datasets import Digits; Digits(data_dir='{folder}').load()",
        "dataset digits needs the package sklearn; pip install 'gnn-loader[datasets]'",
    ),
]


def test_missing_packages_are_named_with_their_extras(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("source,target\na,b\n")
    codes = [code.format(folder=tmp_path) for code, _ in MISSING]
    caught = f"""{WITHOUT}
for code in {codes!r}:
    try:
        exec(code)
    except ImportError as error:
        print(error)
"""
    assert run(caught, tmp_path).splitlines() == [message for _, message in MISSING]


def test_a_broken_package_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_there.py").write_text("import not_there_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        import_optional("half_there", "this test", "train")


@pytest.mark.parametrize(
    "code",
    [
        "from loader.machine.optional import import_dgl; import_dgl('this test')",
        "from loader.datasets.ogb import ogb_reader; ogb_reader()",
    ],
)
def test_other_packages_say_write_and_ask_nothing(tmp_path: Path, code: str) -> None:
    guarded = f"""
import socket
def refuse(*_, **__): raise AssertionError("the network was asked")
socket.socket.connect = socket.getaddrinfo = refuse
try:
    {code}
except ImportError:
    pass
"""
    assert run(guarded, tmp_path) == ""
    assert not (tmp_path / ".dgl").exists()


def run_train(checkout: Path, *more: Path) -> subprocess.CompletedProcess[str]:
    """`train.py` of a checkout that was not built, with a command line that is refused at once."""
    for name in ("conf", "models", "train.py", "loader"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, checkout / name, **({"ignore": shutil.ignore_patterns("*.so")} if name == "loader" else {}))
    path = os.pathsep.join([*map(str, more), *(path for path in sys.path if path.endswith("-packages"))])
    return subprocess.run(
        [sys.executable, str(checkout / "train.py"), "trainer.max_epochs=0"],
        cwd=checkout,
        capture_output=True,
        text=True,
        env={
            "HOME": str(checkout),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": path,
        },
        check=False,
    )


def test_train_takes_an_installed_loader_beside_sources(tmp_path: Path) -> None:
    site, checkout = tmp_path / "site", tmp_path / "checkout"
    site.mkdir()
    checkout.mkdir()
    (site / "loader").symlink_to(ROOT / "loader")
    done = run_train(checkout, site)
    assert done.stderr.startswith("error: trainer.max_epochs is 0"), done.stderr


def test_train_without_a_core_says_one_line(tmp_path: Path) -> None:
    if [found for found in importlib.metadata.distributions() if found.name == "gnn-loader"]:
        pytest.skip("this environment has the loader installed")
    done = run_train(tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "`pip install -e .`" in done.stderr


def test_a_checkout_that_was_not_installed_says_so(tmp_path: Path) -> None:
    (tmp_path / "loader").mkdir()
    (tmp_path / "loader" / "__init__.py").write_text((ROOT / "loader" / "__init__.py").read_text())
    code = "try:\n    import loader\nexcept ImportError as error:\n    print(error)"
    # Without the finder of an editable installation, which is an object; Python's own are classes.
    bare = "sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]"
    shown = run(f"import sys; sys.path[0] = {str(tmp_path)!r}; {bare}\n{code}", tmp_path)
    assert f"the loader's compiled core is not in {tmp_path / 'loader'}" in shown
    assert "`pip install -e .`" in shown

"""A package that is missing or broken: the message says who wants it and what to install."""

from __future__ import annotations

import importlib.abc
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from marks import needs_dgl

from loader.machine.optional import import_dgl, import_optional
from loader.samplers import DGLSampler


class Breaks(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `dgl` before Python does, and raises `error` in its import."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == "dgl" else None

    def exec_module(self, module: ModuleType) -> None:
        raise self.error


@pytest.fixture
def without_dgl(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [n for n in sys.modules if n == "dgl" or n.startswith("dgl.")]:
        monkeypatch.delitem(sys.modules, name)
    return monkeypatch


@needs_dgl
def test_dgl_is_imported_without_its_warnings() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert import_dgl("this test").__name__ == "dgl"
    assert not caught


@pytest.mark.parametrize(
    "error",
    [
        ImportError("No module named 'dgl'"),
        OSError("libgomp.so.1: cannot open shared object file"),
        RuntimeError("Cannot find DGL C++ library"),
        AttributeError("module 'torch' has no attribute"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_missing_or_broken_dgl_names_its_remedy(without_dgl, error) -> None:
    without_dgl.setattr(sys, "meta_path", [Breaks(error), *sys.meta_path])
    with pytest.raises(ImportError, match=r"^sampler=dgl needs DGL.*pip install dgl==\d\.1\.\d$") as caught:
        DGLSampler([5])
    assert str(error) in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("version", "way_out"), [((3, 11, 9), "; pip install dgl==1.1.3"), ((3, 12, 0), "; pip install dgl==2.1.0")]
)
def test_the_way_out_depends_on_python(without_dgl, version, way_out) -> None:
    without_dgl.setattr(sys, "meta_path", [Breaks(ImportError("none")), *sys.meta_path])
    without_dgl.setattr(sys, "version_info", version)
    with pytest.raises(ImportError) as caught:
        import_dgl("to_dgl()")
    assert way_out in str(caught.value)


def package(folder: Path, graphbolt: str) -> None:
    """A `dgl` of two modules, the second with the code `graphbolt`."""
    (folder / "dgl" / "graphbolt").mkdir(parents=True)
    (folder / "dgl" / "__init__.py").write_text("from . import graphbolt as gb, sampling\n")
    (folder / "dgl" / "sampling.py").write_text("picks = 5\n")
    (folder / "dgl" / "graphbolt" / "__init__.py").write_text(graphbolt)
    (folder / "dgl" / "graphbolt" / "base.py").write_text("held = 1\n")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import torchdata_of_old.datapipes", "No module named 'torchdata_of_old'"),
        ("raise FileNotFoundError('Cannot find libgraphbolt_pytorch_9.so')", "Cannot find libgraphbolt_pytorch_9.so"),
    ],
)
def test_dgl_serves_without_its_graphbolt(without_dgl, tmp_path, code, error) -> None:
    package(tmp_path, f"from .base import *\n{code}\n")
    without_dgl.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    dgl = import_dgl("this test")
    assert dgl.sampling.picks == 5
    assert sys.meta_path == finders
    assert "dgl.graphbolt.base" not in sys.modules
    with pytest.raises(ImportError, match=r"^dgl\.graphbolt\.ItemSet is not available: GraphBolt does not") as caught:
        _ = dgl.gb.ItemSet
    assert error in str(caught.value)
    with pytest.raises(ImportError, match="not available"):
        from dgl.graphbolt import ItemSet  # noqa: F401
    assert import_dgl("again") is dgl
    for name in [n for n in sys.modules if n == "dgl" or n.startswith("dgl.")]:
        del sys.modules[name]


def test_a_working_graphbolt_is_left_as_it_is(without_dgl, tmp_path) -> None:
    package(tmp_path, "from .base import *\n")
    without_dgl.syspath_prepend(tmp_path)
    assert import_dgl("this test").graphbolt.held == 1
    for name in [n for n in sys.modules if n == "dgl" or n.startswith("dgl.")]:
        del sys.modules[name]


def test_a_second_import_fails_like_the_first(without_dgl, tmp_path) -> None:
    package(tmp_path, "")
    (tmp_path / "dgl" / "__init__.py").write_text("from . import sampling\nimport no_such_package\n")
    without_dgl.syspath_prepend(tmp_path)
    for _ in range(2):
        with pytest.raises(ImportError, match="No module named 'no_such_package'"):
            import_dgl("this test")


def test_other_samplers_work_without_dgl(without_dgl) -> None:
    import torch

    from loader import FusedSampler, Graph

    without_dgl.setattr(sys, "meta_path", [Breaks(ImportError("none")), *sys.meta_path])
    batch = FusedSampler([2]).sample(Graph(torch.tensor([0, 1]), torch.tensor([0])), torch.tensor([0]))
    assert batch.num_edges == 1


@pytest.mark.parametrize(("package", "way"), [("pyarrow", r"; pip install 'pyarrow<26'$"), ("brokenpackage", "$")])
def test_what_does_not_import_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, way: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / f"{package}.py").write_text("raise ImportError('it requires NumPy 2.0')\n")
    monkeypatch.syspath_prepend(tmp_path)
    said = f"^predictions needs the package {package}, which does not import here: it requires NumPy 2.0{way}"
    with pytest.raises(ImportError, match=said):
        import_optional(package, "predictions", "tables")

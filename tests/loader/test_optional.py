"""A package that is missing or broken: the message says who wants it and what to install."""

from __future__ import annotations

import importlib.abc
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from marks import needs_dgl

from loader.optional import import_dgl
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
def test_a_missing_or_broken_dgl_says_what_to_install(without_dgl, error) -> None:
    without_dgl.setattr(sys, "meta_path", [Breaks(error), *sys.meta_path])
    with pytest.raises(ImportError, match=r"^sampler=dgl needs DGL.*pip install dgl==1\.1\.3") as caught:
        DGLSampler([5])
    assert str(error) in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("version", "way_out"), [((3, 11, 9), "; pip install dgl==1.1.3"), ((3, 12, 0), "; use Python 3.11 or older")]
)
def test_the_way_out_depends_on_python(without_dgl, version, way_out) -> None:
    without_dgl.setattr(sys, "meta_path", [Breaks(ImportError("none")), *sys.meta_path])
    without_dgl.setattr(sys, "version_info", version)
    with pytest.raises(ImportError) as caught:
        import_dgl("to_dgl()")
    assert way_out in str(caught.value)


def test_other_samplers_work_without_dgl(without_dgl) -> None:
    import torch

    from loader import FusedSampler, Graph

    without_dgl.setattr(sys, "meta_path", [Breaks(ImportError("none")), *sys.meta_path])
    batch = FusedSampler([2]).sample(Graph(torch.tensor([0, 1]), torch.tensor([0])), torch.tensor([0]))
    assert batch.num_edges == 1

"""Optional packages: they are imported at their use. If one is missing, one line says what to install."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_GRAPHBOLT = "dgl.graphbolt"
_BESIDE_NUMPY_1 = {"pyarrow": "<26"}


def import_optional(module: str, wanted_by: str, extra: str) -> Any:
    """The module of a package that the library itself does not need.

    Args:
        module: e.g. "sklearn.datasets".
        wanted_by: what the user asked for; it begins the message.
        extra: of this package, which installs it.

    Raises:
        ImportError: the package is missing, or does not import; the message says what to install.
    """
    try:
        with warnings.catch_warnings():  # what torch_geometric does at its import, torch 2.15 deprecates
            warnings.filterwarnings("ignore", message="`torch.jit.script` is", category=FutureWarning)
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # it is there, and something that it needs is not
        raise ImportError(_lack(package, wanted_by, extra)) from error
    except ImportError as error:  # as of pyarrow 26 beside numpy 1, which torch 2.1 and 2.2 need
        package = module.partition(".")[0]
        older = f"; pip install '{package}{_BESIDE_NUMPY_1[package]}'" if package in _BESIDE_NUMPY_1 else ""
        raise ImportError(
            f"{wanted_by} needs the package {package}, which does not import here: {error}{older}"
        ) from error


def require(packages: Sequence[str], wanted_by: str, extra: str) -> None:
    """Raises ImportError, as `import_optional` does, for the first of the packages that is missing; imports none."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise ImportError(_lack(package, wanted_by, extra))


def _lack(package: str, wanted_by: str, extra: str) -> str:
    return f"{wanted_by} needs the package {package}; pip install 'gnn-loader[{extra}]'"


def import_dgl(wanted_by: str) -> Any:
    """The module `dgl`.

    DGL 2 imports GraphBolt, which needs `torchdata.datapipes` (gone from torchdata) and a library built for the
    very release of torch. Where that import fails, and only there, `dgl.graphbolt` becomes a stand-in that raises
    as soon as something of it is used; the rest of DGL, its `NeighborSampler` included, needs none of it. This is
    how DGL serves on Python 3.12, for which there is no DGL 1.

    Args:
        wanted_by: what the user asked for, e.g. `"sampler=dgl"`; it begins the message.

    Raises:
        ImportError: DGL is missing or does not import here; the message says what to install.
    """
    before = set(sys.modules)
    try:
        with warnings.catch_warnings(), _graphbolt_may_fail():
            warnings.simplefilter("ignore")  # DGL's own, about its dependencies
            os.environ.setdefault("DGLBACKEND", "pytorch")  # or it says so, and writes ~/.dgl/config.json
            import dgl
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        for name in [n for n in sys.modules if n.startswith("dgl.") and n not in before]:
            del sys.modules[name]  # or the next import would find these, and succeed by half
        version = "1.1.3" if sys.version_info < (3, 12) else "2.1.0"
        raise ImportError(
            f"{wanted_by} needs DGL, which does not import here ({error}); pip install dgl=={version}"
        ) from error
    return dgl


class _StandIn(ModuleType):
    """In the place of `dgl.graphbolt` where that cannot be imported."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(_GRAPHBOLT, f"Not GraphBolt, which does not import here: {cause}")
        self.__cause = cause

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what the import system and pickle ask a module for
            raise AttributeError(name)
        raise ImportError(
            f"dgl.graphbolt.{name} is not available: GraphBolt does not import beside this torch ({self.__cause}); "
            "samplers of dgl.dataloading work without it"
        ) from self.__cause


class _Tolerant(importlib.abc.Loader):
    """Loads GraphBolt with the loader it would have had, and a stand-in where that fails."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        try:
            self.loader.exec_module(module)
        except (ImportError, OSError, AttributeError, RuntimeError) as error:
            for name in [n for n in sys.modules if n.startswith(f"{_GRAPHBOLT}.")]:
                del sys.modules[name]
            sys.modules[_GRAPHBOLT] = _StandIn(error)  # the import system takes what stands there in the end


class _GraphBoltFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _GRAPHBOLT:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Tolerant(spec.loader)
        return spec


@contextmanager
def _graphbolt_may_fail() -> Iterator[None]:
    finder = _GraphBoltFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)

"""The user's own files that a job runs: whether they are those of an earlier job."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from models.training.own_code import is_own
from models.training.target_classes import object_of

# As they were when a job first looked: a sweep goes on with what it has imported, whatever becomes of the file.
_read: WeakKeyDictionary[ModuleType, tuple[str, list[str]]] = WeakKeyDictionary()


def digest_of_own_files(config: Any) -> str | None:
    """A digest of the user's own files that have the classes and functions of a configuration (`_target_`), and of
    those that these files import, wherever in them; None if there are none.

    Args:
        config: resolved, of plain containers. What it names that cannot be imported is left out: to make it will fail.
    """
    found: dict[str, str] = {}
    left: list[str] = []
    for target in _targets(config):
        with suppress(ValueError):
            left.append(str(getattr(object_of("", {"_target_": target}), "__module__", None)))
    while left:
        for name, file in _own_files(left.pop()):
            if name not in found:
                found[name], imported = _what_is_in(name, file)
                left += imported
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:16] if found else None


def _targets(config: Any) -> Iterator[str]:
    if isinstance(config, dict) and isinstance(config.get("_target_"), str):
        yield config["_target_"]
    inner = config.values() if isinstance(config, dict) else config if isinstance(config, list) else ()
    for one in inner:
        yield from _targets(one)


def _own_files(name: str) -> Iterator[tuple[str, Path]]:
    """The own modules on the way to what is imported by a name, and that itself, if it is one: name and file."""
    places, parts = None, name.split(".")
    for n in range(1, len(parts) + 1):
        module = ".".join(parts[:n])
        file, places = _found(module, places)
        if file is not None:
            if not is_own(str(file)):
                return
            yield module, file
        if places is None:
            return


def _found(name: str, places: Any) -> tuple[Path | None, Any]:
    """The file of a module, which need not have been imported, and where those in it lie; None: there are none.

    Args:
        name: of the module.
        places: where those of its package lie; None if it is in none.
    """
    if (module := sys.modules.get(name)) is not None:
        origin, places = getattr(module, "__file__", None), getattr(module, "__path__", None)
    else:
        finders = (finder.find_spec for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next(filter(None, (find(name, places) for find in finders)), None)  # importlib.util imports packages
        origin = spec.origin if spec is not None and spec.has_location else None
        places = None if spec is None else spec.submodule_search_locations
    file = Path(origin or "")
    return (file if file.is_absolute() and file.is_file() else None), places  # torch.ops names a file that is none


def _what_is_in(name: str, file: Path) -> tuple[str, list[str]]:
    """A digest of a module's file, and the names of what it imports."""
    module = sys.modules.get(name)
    if module is not None and module in _read:
        return _read[module]
    content = file.read_bytes()
    package = name if file.stem == "__init__" else name.rpartition(".")[0]
    found = hashlib.sha256(content).hexdigest(), list(_imports(content, package))
    if module is not None:
        _read[module] = found
    return found


def _imports(content: bytes, package: str) -> Iterator[str]:
    """The names of all that the text of a module imports, modules or not."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # an extension, or to import it will fail
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # beyond the top
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package or None)
                yield from (f"{base}.{one.name}" for one in node.names)

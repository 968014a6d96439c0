"""Where an error arose: in the user's own files, or in those of this program."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

import loader

_PROGRAM = (Path(loader.__file__).parent, Path(__file__).parents[1], Path(__file__).parents[2] / "train.py")
_PACKAGES = {"site-packages", "dist-packages"}  # those of the user, and of the system below a virtual environment, too
_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def own_traceback(error: BaseException, *, caught: bool, has_message: bool) -> str | None:
    """The traceback of an error from the first frame of the user's own code on.

    None if there is no such frame, or if this program raised the error when that code called it.

    Args:
        error: of the program.
        caught: whether a context manager caught it, and not another one whose cause it is. The frames of the manager
            and of its block do not count.
        told: whether errors of this type have messages for users: None, too, if a `raise` of the user's code made it.
    """
    frames: list[tuple[TracebackType, str]] = []
    trace = error.__traceback__
    for _ in range(2 * caught):
        trace = None if trace is None else trace.tb_next
    while trace is not None:
        frames.append((trace, _owner(trace.tb_frame.f_code.co_filename)))
        trace = trace.tb_next
    owners = [owner for _, owner in frames]
    if next((owner for owner in reversed(owners) if owner != "installed"), "program") == "program":
        return None
    called = owners.index("program") if "program" in owners else 0
    first = owners.index("own", called)
    last = frames[-1][0]
    if has_message and owners[-1] == "own":
        line = linecache.getline(last.tb_frame.f_code.co_filename, last.tb_lineno)
        if line.strip().startswith("raise "):
            return None
    return "".join(traceback.format_exception(type(error), error, frames[first][0], chain=False))


def is_own(file: str) -> bool:
    """Whether a file of code is the user's own."""
    return _owner(file) == "own"


def _owner(file: str) -> str:
    path = Path(file).resolve()
    if any(path.is_relative_to(place) for place in _PROGRAM):
        return "program"
    if file.startswith("<") or not _PACKAGES.isdisjoint(path.parts):
        return "installed"
    return "installed" if any(path.is_relative_to(place) for place in _INSTALLED) else "own"

"""Where data lie and where conversions go."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from loader.datasets.errors import CacheError, DatasetError
from loader.machine.arguments import shown
from loader.machine.trusted_files import UntrustedError, check_trusted

log = logging.getLogger(__name__)

_LONGEST_NAME = 200  # bytes; file systems take 255, and a checksum follows


def check_name(name: str) -> None:
    """Raises ValueError unless a folder below another one can have that name."""
    if not isinstance(name, str) or not name.strip() or name.startswith(".") or "/" in name or not name.isprintable():
        raise ValueError(
            f"name is {shown(name)}; it becomes that of a folder, so it must be printable characters without '/' and "
            "must not begin with a dot"
        )
    if len(name.encode()) > _LONGEST_NAME:
        raise ValueError(
            f"name has {len(name.encode())} bytes; it becomes that of a folder, with {_LONGEST_NAME} at most"
        )


def check_folder(what: str, folder: str | Path) -> None:
    """Raises TypeError or ValueError unless it can be the path of a folder; `what` is its name."""
    if not isinstance(folder, (str, Path)):
        raise TypeError(f"{what} is {shown(folder)}; it must be the path of a folder")
    if not str(folder).strip() or "\0" in str(folder):
        raise ValueError(f"{what} is {shown(folder)}; it must be the path of a folder, e.g. '.' for this one")


def is_writable(folder: Path) -> bool:
    """Whether files can be made in `folder`, or the folder itself if it does not exist yet.

    A folder without any write permission counts as read-only, also for root, who could write there: the permission was
    taken away on purpose.
    """
    while not folder.exists():
        if folder == folder.parent:
            return False
        folder = folder.parent
    if not folder.is_dir():
        return False
    any_write = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
    return bool(folder.stat().st_mode & any_write) and os.access(folder, os.W_OK | os.X_OK)


def check_output(what: str, path: Path, source: str) -> None:
    """Raises ValueError unless a file can be written there without a loss of the data.

    Args:
        what: the option that names the path.
        path: of the file.
        source: the file or the name of the dataset.
    """
    if path.is_dir():
        raise ValueError(f"{what} is {path}, which is a folder; give the path of a file")
    if not is_writable(path.absolute().parent):
        raise ValueError(f"{what} is {path}; its folder cannot be written to, give another one")
    if path.resolve() == Path(source).resolve():
        raise ValueError(f"{what} is {path}, the file of the dataset, which would be lost; give another one")


def resolve_cache_dir(cache_dir: str | Path | None, data_dir: Path) -> Path:
    """The folder of all conversions: `cache_dir`, else `data_dir/cache` if that can be written, else
    `$XDG_CACHE_HOME/gnn-loader` (`~/.cache/gnn-loader`).
    """
    if cache_dir is not None:
        return Path(cache_dir).expanduser().absolute()
    beside = data_dir / "cache"
    return beside if is_writable(beside) else _own_cache()


def trusted_conversion(folder: Path) -> Path:
    """The folder of a conversion; if others can have written there, that of its name in the user's own cache, and a
    line says so.

    Raises:
        CacheError: others can have written there, too.
    """
    own = _own_cache() / folder.name
    try:
        _check(folder)
    except UntrustedError as error:
        if own == folder:
            raise CacheError(f"{error}, or set cache_dir to another folder") from error
        trusted_conversion(own)
        log.warning("%s. The conversion in %s is used in its place", error, own)
        return own
    return folder


def _check(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        check_trusted(folder, folder.stat())


def _own_cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(home).expanduser() / "gnn-loader").absolute()


def given_file(given: str | Path, data_dir: Path) -> Path:
    """The path of a file that the user named. A relative one is in `data_dir`, if it is not in the working folder."""
    given = Path(given).expanduser()
    return given if given.is_absolute() or given.exists() else data_dir / given


def require_file(given: str | Path, path: Path, who: str, option: str, kind: str) -> None:
    """Raises DatasetError unless there is a regular file.

    Args:
        given: by the user.
        path: what `given_file` makes of it.
        who: begins the message.
        option: that the user gave.
        kind: of the file, in words.
    """
    if path.is_dir():
        raise DatasetError(f"{who}{path.absolute()} is a folder; set {option} to the {kind} in it")
    if path.exists() and not path.is_file():
        raise DatasetError(f"{who}{path.absolute()} is no regular file; set {option} to your {kind}")
    if re.match(r"[a-z0-9]{2,}:/", str(given)):
        raise DatasetError(
            f"{who}{shown(str(given))} is an address, no file; download it, and set {option} to its path"
        )
    if not path.is_file():
        places = dict.fromkeys(str(one.absolute()) for one in (Path(given).expanduser(), path))
        raise DatasetError(f"{who}there is no file {' or '.join(places)}; give the path of your {kind} ({option})")


def fingerprint(folder: Path, files: Iterable[str]) -> list[list[Any]]:
    """`[name, bytes, modification time in ns]` of each file: enough to see that a source was exchanged."""
    result = []
    for name in files:
        status = (folder / name).stat()
        result.append([name, status.st_size, status.st_mtime_ns])
    return result


def stage(folder: Path, files: Iterable[str], target: Path) -> None:
    """Links `files` of `folder` into `target`, where a reader may write beside them."""
    for name in files:
        link = target / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to((folder / name).resolve())

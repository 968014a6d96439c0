"""Compiled kernels on disk: a file per kernel, named by a digest of all that decides its content.

Kernels that were compiled together are one file with several names (hard links). If a file is not whole, or does not
fit its name, the kernel is compiled again. Nothing is locked: a file gets its name only when it is complete. So several
processes do not disturb each other; at worst they do the same work.

Kernels are code. Files and folders that somebody else can have written are not used, see
`loader.machine.trusted_files`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loader.machine.trusted_files import UntrustedError, check_code_folder, make_private_folder, open_trusted

_MAGIC = b"gnn-loader kernel 2\n"
_SUFFIX = ".kernel"
_NOWHERE = Path(os.devnull, "kernels")  # below which no file can be: kernels are not kept
_log = logging.getLogger(__name__)
_warned: set[str] = set()


@dataclass(frozen=True)
class Entry:
    """A compiled kernel.

    Attributes:
        name: of the kernel, as C++ spells it.
        architecture: 10 * major + minor of the chips that it is for.
        compiler: that made it, e.g. "NVRTC 13.0".
        symbol: the kernel's name in the code.
        code: the cubin.
    """

    name: str
    architecture: int
    compiler: str
    symbol: str
    code: bytes


def folder() -> Path:
    """Where the files lie: `LOADER_KERNEL_CACHE`, else gnn-loader/kernels in the user's folder for caches.

    If others can write there, a line says so, once, and a private folder is used in its place.
    """
    usual = _usual_places()
    refused: list[tuple[Path, UntrustedError]] = []
    for place in [*usual, *_temporary_place()] if usual else []:
        try:
            check_code_folder(place)
        except UntrustedError as error:
            refused.append((place, error))
            continue
        except OSError:
            pass  # it cannot be looked at, so it will not be read either
        for other, reason in refused:
            _warn(other, f"{reason}. Kernels are code, so they lie in {place} meanwhile")
        return place
    for other, reason in refused:
        _warn(other, f"{reason}. Kernels are code, so they are not kept meanwhile")
    return _NOWHERE


def _usual_places() -> list[Path]:
    named = os.environ.get("LOADER_KERNEL_CACHE")
    places = [Path(named)] if named else []
    with contextlib.suppress(RuntimeError):  # no HOME, and the system does not know the user, as in some containers
        places.append(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gnn-loader" / "kernels")
    return places


def _temporary_place() -> list[Path]:
    try:
        return [Path(tempfile.gettempdir()) / f"gnn-loader-{os.geteuid()}" / "kernels"]
    except OSError:  # no folder for temporary files can be written to
        return []


def key_of(*parts: str) -> str:
    """The digest of all that decides a kernel: 40 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part.encode()).to_bytes(8, "little"))
        digest.update(part.encode())
    return digest.hexdigest()[:40]


def read(key: str) -> Entry | None:
    """The kernel of this key, or None if there is no file, or none that is whole."""
    return _read(_path(key), key)


def write(program: Mapping[str, Entry]) -> None:
    """Keeps kernels, by key, that have one code: those of a program.

    A folder that cannot be written costs a line in the log, once: the kernels are made again.
    """
    place = folder()
    try:
        make_private_folder(place)
        with tempfile.TemporaryDirectory(dir=place, prefix=".draft-") as drafts:
            whole = Path(drafts, "program")
            whole.write_bytes(_packed(program))
            whole.chmod(0o644)  # whatever the umask is, see `open_trusted`
            for key in program:
                named = Path(drafts, key)
                _link(named, whole)
                named.replace(_path(key))
    except OSError as error:
        _warn(
            place,
            f"kernels that were compiled cannot be kept, so each start compiles them: {error}; LOADER_KERNEL_CACHE can "
            "name another folder",
        )


def remove(key: str) -> None:
    """Forgets a kernel that the driver would not load."""
    try:
        _path(key).unlink(missing_ok=True)
    except OSError as error:
        _warn(_path(key).parent, f"a kernel that the driver does not load cannot be removed: {error}")


def entries() -> Iterator[tuple[Path, Entry | None]]:
    """Every file and its kernel, or None if the file is damaged."""
    for path in sorted(folder().glob(f"*{_SUFFIX}")):
        yield path, _read(path, path.name.removesuffix(_SUFFIX))


def _path(key: str) -> Path:
    return folder() / f"{key}{_SUFFIX}"


def _link(name: Path, whole: Path) -> None:
    try:
        name.hardlink_to(whole)
    except OSError:  # of a file system without links
        shutil.copy(whole, name)


def _packed(program: Mapping[str, Entry]) -> bytes:
    (code,) = {entry.code for entry in program.values()}
    kernels = {key: (one.name, one.architecture, one.compiler, one.symbol) for key, one in program.items()}
    head = json.dumps({"kernels": kernels, "bytes": len(code)}).encode()
    body = len(head).to_bytes(8, "little") + head + code
    return _MAGIC + hashlib.sha256(body).digest() + body


def _read(path: Path, key: str) -> Entry | None:
    try:
        with open_trusted(path) as file:
            data = file.read()
    except UntrustedError as error:
        _warn(path, f"{error}. Kernels are code, so it is compiled again")
        return None
    except OSError:
        return None
    start = len(_MAGIC)
    digest, body = data[start : start + 32], data[start + 32 :]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
        return None
    size = int.from_bytes(body[:8], "little")
    about = json.loads(body[8 : 8 + size])
    code = body[8 + size :]
    if key not in about["kernels"] or about["bytes"] != len(code):
        return None  # a file of another name
    name, architecture, made_by, symbol = about["kernels"][key]
    return Entry(name, architecture, made_by, symbol, code)


def _warn(where: Path, message: str) -> None:
    if str(where) not in _warned:
        _warned.add(str(where))
        print(f"gnn-loader: {message}", file=sys.stderr, flush=True)

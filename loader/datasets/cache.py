"""The converted form of a dataset: .npy files and a `meta.json`, in a folder that is never changed once it is whole.

    cache_dir/name-0123456789ab/                of one source with certain options
        current                                 the name of the version that readers open
        version-0123456789abcdef/meta.json      what the arrays are, and their checksums
        version-0123456789abcdef/features.npy
        lock                                    held by whoever converts

`current` is replaced at once, so a reader finds a whole version at any time. An old version is removed as soon as there
is a newer one: files that are open stay readable, and a reader that had not opened all of them begins again.

What others can have written is not read, see `loader.machine.trusted_files`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import torch
from torch import Tensor

from loader.datasets.errors import CacheError
from loader.machine.mapped import map_array
from loader.machine.trusted_files import UntrustedError, check_trusted, open_trusted

Read = TypeVar("Read")

FORMAT = "gnn-loader dataset"
VERSION = 2
META, CURRENT = "meta.json", "current"
VERSION_NAME = re.compile(r"version-[0-9a-f]{16}")
_PART = 1 << 24  # bytes that a checksum is of


def cache_folder(root: Path, name: str, key: Mapping[str, Any]) -> Path:
    """The folder, below `root`, of the conversion of `name` with this source and these options."""
    return root / f"{name}-{digest({'version': VERSION, **key})[:12]}"


@dataclass(frozen=True)
class CachedArrays:
    """A conversion that was opened and checked: arrays in memory, memory-mapped arrays, and properties."""

    arrays: dict[str, Tensor]
    properties: dict[str, Any]


def has_conversion(folder: Path) -> bool:
    """Whether there is a conversion, good or damaged."""
    return os.path.lexists(folder / CURRENT)


def open_cache(
    folder: Path,
    key: Mapping[str, Any],
    mapped: frozenset[str] | None = frozenset(),
    *,
    trusted: frozenset[str] | None = None,
    verify: bool = False,
) -> CachedArrays:
    """Opens a conversion. What is read is compared with its checksums.

    Args:
        folder: where it lies.
        key: source and options that it must have been made from.
        mapped: arrays to memory-map in place of reading them, None for all. Writing to such a tensor changes only the
            memory of this process, never the file.
        trusted: mapped arrays that are not compared with their checksums, None for all that are mapped.
        verify: compare all, which reads mapped arrays once.

    Raises:
        CacheError: it was made by something else, by another version, from another source, or files are
            missing, truncated or changed; the message names the file and the way out.
    """
    return _of_current(folder, lambda version: _open_version(version, key, mapped, frozenset() if verify else trusted))


def _of_current(folder: Path, read: Callable[[Path], Read]) -> Read:
    """What `read` reads of the version that readers open, also while another takes its place."""
    version = current_version(folder)
    while True:
        try:
            return read(version)
        except CacheError:  # noqa: PERF203 - once, but for a rebuild in between
            newer = current_version(folder)
            if newer == version:
                raise
            version = newer  # which took the other's place, and it was removed


def current_version(folder: Path) -> Path:
    """The folder of the version that readers open.

    Raises:
        CacheError: there is none.
    """
    name = _read_text(folder, CURRENT).strip()
    if not VERSION_NAME.fullmatch(name):
        raise _damaged(folder, CURRENT, f"it holds {name[:40]!r}, which is no version")
    return folder / name


def read_current_meta(folder: Path) -> dict[str, Any]:
    """`read_meta` of the version that readers open."""
    return _of_current(folder, read_meta)


def read_meta(version: Path) -> dict[str, Any]:
    """The content of a version's `meta.json`.

    Raises:
        CacheError: it is none of this release, or was changed.
    """
    try:
        meta = json.loads(_read_text(version, META))
    except (ValueError, RecursionError) as error:
        raise _damaged(version, META, f"it cannot be read ({error})") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise _damaged(version, META, f"it is not a '{FORMAT}'")
    if meta.get("version") != VERSION:
        raise _damaged(version, META, f"its format version is {meta.get('version')}, this release reads {VERSION}")
    if meta.pop("digest", None) != digest(meta):
        raise _damaged(version, META, "its checksum is wrong: it was changed after it was written")
    if not all(isinstance(meta.get(part), dict) for part in ("key", "arrays", "properties", "made_by")):
        raise _damaged(version, META, "it lacks a part that every conversion has")
    return meta


def digest(value: Mapping[str, Any]) -> str:
    """A checksum of anything that is JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class Checksums:
    """CRC-32 of every 16 MiB of a stream of bytes."""

    def __init__(self) -> None:
        self.parts: list[int] = []
        self._left = 0  # of the last part

    def update(self, data: memoryview) -> None:
        """Takes the next bytes; `data` is a view of format B."""
        while len(data):
            if self._left == 0:
                self.parts.append(0)
                self._left = _PART
            taken = data[: self._left]
            self.parts[-1] = zlib.crc32(taken, self.parts[-1])
            self._left -= len(taken)
            data = data[len(taken) :]


def _open_version(
    version: Path, key: Mapping[str, Any], mapped: frozenset[str] | None, trusted: frozenset[str] | None
) -> CachedArrays:
    meta = read_meta(version)
    if meta.get("key") != json.loads(json.dumps(key)):
        raise _damaged(version, META, "it was made from another source or other options")
    arrays: dict[str, Tensor] = {}
    for name, expected in meta["arrays"].items():
        with _open(version, f"{name}.npy") as file:
            maps, verify = mapped is None or name in mapped, trusted is not None and name not in trusted
            arrays[name] = _read_array(version, file, name, expected, mapped=maps, verify=verify)
    return CachedArrays(arrays, meta["properties"])


def _read_array(
    version: Path, file: BinaryIO, name: str, expected: Mapping[str, Any], *, mapped: bool, verify: bool
) -> Tensor:
    size = os.fstat(file.fileno()).st_size
    if size != expected["bytes"]:
        reason = f"it has {size} bytes, {expected['bytes']} were written: truncated?"
        raise _damaged(version, f"{name}.npy", reason)
    try:
        np.lib.format.read_magic(file)
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    except ValueError as error:
        raise _damaged(version, f"{name}.npy", f"it is no .npy file ({error})") from error
    if [list(shape), dtype.str, fortran_order] != [expected["shape"], expected["dtype"], False]:
        raise _damaged(version, f"{name}.npy", f"it holds {dtype} {list(shape)}, not what was written")
    begin = file.tell()
    found = Checksums()
    if not mapped:
        array = np.fromfile(file, dtype, int(np.prod(shape, dtype=np.int64))).reshape(shape)
        found.update(array.reshape(-1).view(np.uint8).data)
        tensor = torch.from_numpy(array)
    else:
        tensor = map_array(file, shape, dtype)
        if not verify:
            return tensor
        while part := file.read(_PART):
            found.update(memoryview(part))
    for number, (is_now, was) in enumerate(zip(found.parts, expected["crc32"], strict=True)):
        if is_now != was:
            first = begin + number * _PART
            last = min(first + _PART, size) - 1
            raise _damaged(version, f"{name}.npy", f"bytes {first} to {last} are not those that were written")
    return tensor


def _read_text(folder: Path, name: str) -> str:
    with _open(folder, name) as file:
        try:
            return file.read().decode()
        except ValueError as error:
            raise _damaged(folder, name, f"it cannot be read ({error})") from error


@contextlib.contextmanager
def _open(folder: Path, name: str) -> Iterator[BinaryIO]:
    """A file of a conversion; CacheError where it cannot be opened or read."""
    try:
        check_trusted(folder, folder.stat())
        with open_trusted(folder / name) as file:
            yield file
    except FileNotFoundError as error:
        raise _damaged(folder, name, "the file is missing") from error
    except UntrustedError as error:
        raise CacheError(
            f"the cached dataset {folder / name} cannot be used: {error}, or set dataset.rebuild=true"
        ) from error
    except OSError as error:
        raise _damaged(folder, name, f"it cannot be read ({error})") from error


def _damaged(folder: Path, file: str, reason: str) -> CacheError:
    place = folder.parent if VERSION_NAME.fullmatch(folder.name) else folder
    return CacheError(
        f"the cached dataset {folder / file} cannot be used: {reason}; delete {place}, or set dataset.rebuild=true"
    )

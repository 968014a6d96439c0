"""The converted form of a dataset: a folder of .npy files and a `meta.json`, written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import mmap
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from loader.datasets.errors import CacheError

FORMAT = "gnn-loader dataset"
VERSION = 1
_META = "meta.json"
_LOCK = "lock"
_NO_SPACE = 1 << 20  # bytes; a disk with less is full
# Linux' value where Python < 3.13 does not name it. Without it the kernel may refuse a private mapping
# that is larger than the memory, though nobody will ever write to it.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if os.uname().sysname == "Linux" else 0)


def cache_folder(root: Path, name: str, key: Mapping[str, Any]) -> Path:
    """Where the conversion of `name` with that source and those options lies below `root`."""
    return root / f"{name}-{_digest(key)[:12]}"


class CacheWriter:
    """Writes a conversion into a temporary folder beside its place and moves it there when it is complete.

        with CacheWriter(folder, key) as writer:
            writer.write("labels", labels)
            with writer.stream("features", (n, f), np.float32) as out:
                out.append(chunk)
            writer.properties["num_classes"] = 47

    Whatever ends the block early, an exception or Ctrl-C, leaves nothing behind; what a killed process left
    is removed by the next conversion. Two processes may write the same conversion: the first to finish wins.

    Args:
        folder: the place, see `cache_folder`.
        key: source and options, checked again by `open_cache`.
        replace: put the new conversion in the place of an old one.

    Raises:
        CacheError: the folder cannot be written to, or the disk is full.
    """

    def __init__(self, folder: Path, key: Mapping[str, Any], *, replace: bool = False) -> None:
        self.properties: dict[str, Any] = {}
        self._folder = folder
        self._key = key
        self._replace = replace
        self._arrays: dict[str, dict[str, Any]] = {}

    @property
    def scratch(self) -> Path:
        """A folder for a reader's temporary files, removed before the conversion is moved to its place."""
        path = self._temporary / "scratch"
        path.mkdir(exist_ok=True)
        return path

    def __enter__(self) -> CacheWriter:
        root = self._folder.parent
        try:
            root.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(root)
            self._temporary = _temporary_folder(self._folder)
            self._lock = _lock(self._temporary)
        except OSError as error:
            raise CacheError(
                f"cannot write the cache folder {root}: {error.strerror}; set cache_dir to one that can be written"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                self._commit()
            except BaseException as late:
                error = late
        failed = error is not None and self._is_for_want_of_space(error)
        self._discard()
        if failed:
            raise self._disk_full() from error
        if kind is None and error is not None:
            raise error

    def write(self, name: str, array: NDArray[np.generic]) -> None:
        """Writes one array as `name`.npy."""
        with self.stream(name, array.shape, array.dtype) as out:
            out.append(array)

    @contextlib.contextmanager
    def stream(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Iterator[ArrayWriter]:
        """Yields a writer that takes an array of that shape in parts, along its first axis."""
        array = ArrayWriter(self._temporary / f"{name}.npy", shape, np.dtype(dtype))
        with array:
            yield array
        self._arrays[name] = {"dtype": array.dtype.str, "shape": list(shape), "bytes": array.file_size}

    def _commit(self) -> None:
        shutil.rmtree(self._temporary / "scratch", ignore_errors=True)
        meta = {
            "format": FORMAT,
            "version": VERSION,
            "key": self._key,
            "arrays": self._arrays,
            "properties": self.properties,
        }
        meta["digest"] = _digest(meta)
        with open(self._temporary / _META, "w", encoding="utf-8") as file:
            json.dump(meta, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self._temporary)
        if self._replace and self._folder.exists():
            old = _temporary_folder(self._folder)
            with _lock(old):
                os.replace(self._folder, old / "old")
                shutil.rmtree(old)
        try:
            os.rename(self._temporary, self._folder)
        except OSError as error:
            # Another process was faster; both conversions are the same.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        (self._folder / _LOCK).unlink(missing_ok=True)
        _sync_folder(self._folder.parent)

    def _discard(self) -> None:
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._lock.close()

    def _is_for_want_of_space(self, error: BaseException) -> bool:
        # What libraries raise on a full disk says anything (torch.save: "unexpected pos"), so the disk is asked too.
        if is_disk_full(error):
            return True
        return isinstance(error, Exception) and shutil.disk_usage(self._folder.parent).free < _NO_SPACE

    def _disk_full(self) -> CacheError:
        root = self._folder.parent
        free = shutil.disk_usage(root).free / 1e6
        return CacheError(
            f"the disk is full: {root} has {free:.0f} MB left, not enough to convert {self._folder.name}; "
            f"nothing was kept. Free some space, or set cache_dir to another disk"
        )


class ArrayWriter:
    """Writes a .npy file in parts, through plain writes: a full disk is an error there, in a memory map a
    crash.

    Args:
        path: of the file.
        shape: of the whole array.
        dtype: of the file; parts are converted to it.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.path = path
        self.shape = shape
        self.dtype = dtype
        self.file_size = 0
        self._rows = 0

    def __enter__(self) -> ArrayWriter:
        size = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        if size > shutil.disk_usage(self.path.parent).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self._file: BinaryIO = open(self.path, "wb")
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(self._file, header)
        return self

    def append(self, part: NDArray[np.generic]) -> None:
        """Writes the next rows: `[rows, *shape[1:]]`."""
        if part.shape[1:] != self.shape[1:]:
            raise ValueError(f"{self.path.name}: rows of shape {part.shape[1:]}; they must be {self.shape[1:]}")
        self._rows += part.shape[0]
        self._file.write(np.ascontiguousarray(part, dtype=self.dtype).data)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if kind is not None:
                return
            if self._rows != self.shape[0]:
                raise ValueError(f"{self.path.name}: {self._rows} rows were written of {self.shape[0]}")
            self._file.flush()
            os.fsync(self._file.fileno())
            self.file_size = self._file.tell()


@dataclass(frozen=True)
class CachedArrays:
    """A conversion that was opened and checked: arrays in memory, memory-mapped ones, and its properties."""

    arrays: dict[str, Tensor]
    properties: dict[str, Any]


def open_cache(folder: Path, key: Mapping[str, Any], mapped: frozenset[str] = frozenset()) -> CachedArrays:
    """Opens a conversion.

    Args:
        folder: where it lies.
        key: source and options that it must have been made from.
        mapped: the arrays to be memory-mapped instead of read. Writing to such a tensor changes this process'
            memory only, never the file.

    Raises:
        CacheError: it was made by something else, by another version, from another source, or files are
            missing or truncated; the message names the file and the way out.
    """
    meta = _read_meta(folder)
    if meta.get("key") != json.loads(json.dumps(key)):
        raise _damaged(folder, _META, "it was made from another source or other options")
    arrays: dict[str, Tensor] = {}
    for name, expected in meta["arrays"].items():
        path = folder / f"{name}.npy"
        if not path.is_file():
            raise _damaged(folder, path.name, "the file is missing")
        if path.stat().st_size != expected["bytes"]:
            raise _damaged(
                folder,
                path.name,
                f"it has {path.stat().st_size} bytes, {expected['bytes']} were written: truncated?",
            )
        with open(path, "rb") as file:
            try:
                np.lib.format.read_magic(file)
                shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
            except ValueError as error:
                raise _damaged(folder, path.name, f"it is no .npy file ({error})") from error
            if [list(shape), dtype.str, fortran_order] != [expected["shape"], expected["dtype"], False]:
                raise _damaged(folder, path.name, f"it holds {dtype} {list(shape)}, not what was written")
            arrays[name] = _read(file, shape, dtype, mapped=name in mapped)
    return CachedArrays(arrays, meta["properties"])


def _read_meta(folder: Path) -> dict[str, Any]:
    try:
        meta = json.loads((folder / _META).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _damaged(folder, _META, "the file is missing") from error
    except (ValueError, OSError) as error:
        raise _damaged(folder, _META, f"it cannot be read ({error})") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise _damaged(folder, _META, f"it is not a '{FORMAT}'")
    if meta.get("version") != VERSION:
        raise _damaged(folder, _META, f"its format version is {meta.get('version')}, this release reads {VERSION}")
    digest = meta.pop("digest", None)
    if digest != _digest(meta):
        raise _damaged(folder, _META, "its checksum is wrong: it was changed after it was written")
    return meta


def _read(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any], *, mapped: bool) -> Tensor:
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0 or not mapped:
        return torch.from_numpy(np.fromfile(file, dtype, count).reshape(shape))
    # Private and writable, as torch wants its memory: a page that somebody writes to is copied first.
    memory = mmap.mmap(
        file.fileno(),
        0,
        flags=mmap.MAP_PRIVATE | _MAP_NORESERVE,
        prot=mmap.PROT_READ | mmap.PROT_WRITE,
    )
    return torch.from_numpy(np.frombuffer(memory, dtype, count, offset=file.tell()).reshape(shape))


def _damaged(folder: Path, file: str, reason: str) -> CacheError:
    return CacheError(
        f"the cached dataset {folder / file} cannot be used: {reason}; delete {folder}, or set dataset.rebuild=true"
    )


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says that the disk, or the user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _temporary_folder(beside: Path) -> Path:
    """A new hidden folder; unlike tempfile's it may be read by whom the umask allows, as the cache may."""
    path = beside.parent / f".{beside.name}.tmp-{os.getpid()}-{secrets.token_hex(4)}"
    path.mkdir()
    return path


def _lock(folder: Path) -> BinaryIO:
    """Locks a temporary folder for as long as this process lives.

    The file gets its name after it is locked: whoever finds it unlocked knows that its owner is gone.
    """
    unnamed = folder / f"{_LOCK}.new"
    file = open(unnamed, "wb")  # noqa: SIM115 - open until the conversion ends
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.rename(unnamed, folder / _LOCK)
    except OSError:
        # A file system without locks: leftovers stay until somebody removes them.
        unnamed.unlink()
    return file


def _remove_leftovers(root: Path) -> None:
    for path in root.glob(f".*.tmp-*/{_LOCK}"):
        # An error here means that its owner lives, or has just finished.
        with contextlib.suppress(OSError), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent, ignore_errors=True)

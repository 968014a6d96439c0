"""Writing a conversion: a version of its own, which readers are sent to when it is complete."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import resource
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loader.datasets.cache import CURRENT, FORMAT, META, VERSION, Checksums, digest
from loader.datasets.errors import CacheError
from loader.datasets.local_ranks import this_process
from loader.machine.trusted_files import create_trusted

_NO_SPACE = 1 << 20  # bytes; a disk with less is full


class CacheWriter:
    """Writes a new version of a conversion, and sends readers to it when it is complete.

        with conversion_lock(folder), CacheWriter(folder, key) as writer:
            writer.write("labels", labels)
            with writer.stream("features", (n, f), np.float32) as out:
                out.append(chunk)
            writer.properties["num_classes"] = 47

    If an exception or Ctrl-C ends the block early, nothing is left behind. The next conversion removes the files that a
    killed process left.

    Args:
        folder: the place, see `cache_folder`.
        key: source and options, checked again by `open_cache`.

    Raises:
        CacheError: the folder cannot be written to, or the disk is full.
    """

    def __init__(self, folder: Path, key: Mapping[str, Any]) -> None:
        self.properties: dict[str, Any] = {}
        self._folder = folder
        self._key = key
        self._arrays: dict[str, dict[str, Any]] = {}

    @property
    def scratch(self) -> Path:
        """A folder for a reader's temporary files, removed before readers are sent to the conversion."""
        path = self._version / "scratch"
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def __enter__(self) -> CacheWriter:
        self._version = self._folder / f"version-{secrets.token_hex(8)}"
        try:
            self._version.mkdir(mode=0o700)
        except OSError as error:
            if is_disk_full(error):
                raise self._disk_full() from error
            raise CacheError(
                f"cannot write the cache folder {self._folder}: {error.strerror}; set cache_dir to one that can be "
                "written"
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
        if error is None:
            return
        failed = self._is_for_want_of_space(error)
        shutil.rmtree(self._version, ignore_errors=True)
        if is_file_limit(error):
            raise self._too_large() from error
        if failed:
            raise self._disk_full() from error
        if kind is None:
            raise error

    def write(self, name: str, array: NDArray[np.generic]) -> None:
        """Writes one array as `name`.npy."""
        with self.stream(name, array.shape, array.dtype) as out:
            out.append(array)

    @contextlib.contextmanager
    def stream(
        self, name: str, shape: tuple[int, ...], dtype: DTypeLike, *, fewer: bool = False
    ) -> Iterator[ArrayWriter]:
        """Yields a writer that takes an array of that shape in parts, along its first axis.

        Args:
            name: of the array.
            shape: of all parts together.
            dtype: of the file.
            fewer: there may be fewer rows than `shape` says.
        """
        array = ArrayWriter(self._version / f"{name}.npy", shape, np.dtype(dtype), fewer)
        with array:
            yield array
        self._arrays[name] = {
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "bytes": array.file_size,
            "crc32": array.checksums.parts,
        }

    def _commit(self) -> None:
        shutil.rmtree(self._version / "scratch", ignore_errors=True)
        meta = {
            "format": FORMAT,
            "version": VERSION,
            "key": self._key,
            "arrays": self._arrays,
            "properties": self.properties,
            "made_at": time.time_ns(),
            "made_by": this_process(),
        }
        meta["digest"] = digest(meta)
        with io.TextIOWrapper(create_trusted(self._version / META), encoding="utf-8") as file:
            json.dump(meta, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self._version)
        pointer = self._folder / f".{self._version.name}"
        try:
            with io.TextIOWrapper(create_trusted(pointer), encoding="utf-8") as file:
                file.write(f"{self._version.name}\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(pointer, self._folder / CURRENT)
        finally:
            pointer.unlink(missing_ok=True)
        _sync_folder(self._folder)

    def _is_for_want_of_space(self, error: BaseException) -> bool:
        # What libraries raise on a full disk says anything (torch.save: "unexpected pos"), so the disk is asked too.
        if is_disk_full(error):
            return True
        return isinstance(error, Exception) and shutil.disk_usage(self._folder).free < _NO_SPACE

    def _too_large(self) -> CacheError:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        allowed = "this file system's limit" if limit == resource.RLIM_INFINITY else f"{limit} bytes (ulimit -f)"
        return CacheError(
            f"a file of the conversion {self._folder.name} would be larger than {allowed}; nothing was kept. Raise the "
            "limit with `ulimit -f unlimited`, or set cache_dir to another disk"
        )

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
        fewer: there may be fewer rows than `shape` says.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], fewer: bool = False) -> None:
        self.path = path
        self._fewer = fewer
        self.shape = shape
        self.dtype = dtype
        self.file_size = 0
        self.checksums = Checksums()
        self._rows = 0

    def __enter__(self) -> ArrayWriter:
        size = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        if size > shutil.disk_usage(self.path.parent).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self._file: BinaryIO = create_trusted(self.path)
        self._write_header()
        self._begin = self._file.tell()
        return self

    def append(self, part: NDArray[np.generic]) -> None:
        """Writes the next rows: `[rows, *shape[1:]]`."""
        if part.shape[1:] != self.shape[1:]:
            raise ValueError(f"{self.path.name}: rows of shape {part.shape[1:]}; they must be {self.shape[1:]}")
        self._rows += part.shape[0]
        data = np.ascontiguousarray(part, dtype=self.dtype).reshape(-1).view(np.uint8).data
        self.checksums.update(data)
        self._file.write(data)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if kind is not None:
                return
            if self._rows > self.shape[0] or (self._rows < self.shape[0] and not self._fewer):
                raise ValueError(f"{self.path.name}: {self._rows} rows were written of {self.shape[0]}")
            self.file_size = self._file.tell()
            if self._rows < self.shape[0]:
                self.shape = (self._rows, *self.shape[1:])
                self._file.seek(0)
                self._write_header()
                if self._file.tell() != self._begin:  # numpy leaves room for the digits of a length
                    raise ValueError(f"{self.path.name}: the header of {self._rows} rows has another length")
            self._file.flush()
            os.fsync(self._file.fileno())

    def _write_header(self) -> None:
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(self._file, header)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says that the disk, or the user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_file_limit(error: BaseException) -> bool:
    """Whether an error says that a file would be larger than this process, or its file system, allows."""
    return isinstance(error, OSError) and error.errno == errno.EFBIG


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

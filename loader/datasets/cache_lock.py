"""Who converts: one process at a time, which also removes what nobody needs any more."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from loader.datasets.cache import VERSION_NAME, current_version, has_conversion
from loader.datasets.errors import CacheError
from loader.machine.trusted_files import UntrustedError, check_trusted, make_private_folder, open_lock

log = logging.getLogger(__name__)

_LOCK = "lock"
_FOLDER_NAME = re.compile(r".+-[0-9a-f]{12}")  # of `cache_folder`


@contextlib.contextmanager
def conversion_lock(folder: Path) -> Iterator[None]:
    """Waits until no other process converts into `folder`, and keeps them waiting; makes the folder.

    Versions that readers are not sent to, left by a process that was killed or replaced by a newer one, are removed
    before and after; a folder that has no version then goes as well. The operating system releases the lock of a
    process that dies. Where the file system knows no locks, nobody waits and nothing is removed.

    Raises:
        CacheError: the folder cannot be written to, others can have written there, or the lock is no file.
    """
    root = folder.parent
    try:
        make_private_folder(root)
        held, is_locked = _acquire(folder, wait=True)
    except UntrustedError as error:
        raise CacheError(f"nothing is converted into {folder}: {error}, or set cache_dir to another folder") from error
    except OSError as error:
        raise CacheError(
            f"cannot write the cache folder {root}: {error.strerror}; set cache_dir to one that can be written"
        ) from error
    with held:
        if is_locked:
            _remove_leftovers(folder)
            _remove_those_of_others(folder)
        try:
            yield
        finally:
            if is_locked:
                _remove_leftovers(folder)
            _remove_if_empty(folder)


def _acquire(folder: Path, *, wait: bool) -> tuple[BinaryIO, bool]:
    """The lock's open file and whether it is locked; BlockingIOError where it is held and nobody is to wait."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / _LOCK
        try:
            check_trusted(folder, folder.stat())
            handle = open_lock(path)
        except FileNotFoundError:
            continue  # who had it has just removed the folder
        except OSError as error:
            if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
                raise _no_file(path) from error
            raise
        file = open(handle, "r+b", buffering=0)  # noqa: SIM115 - it is the lock
        try:
            if not _lock(handle, folder, wait=wait):
                return file, False
            if path.exists() and os.path.samestat(os.fstat(handle), os.stat(path)):
                return file, True
        except BaseException:
            file.close()
            raise
        file.close()  # its owner removed the file and let others in: they lock a newer one


def _lock(handle: int, folder: Path, *, wait: bool) -> bool:
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise
            log.info("another process converts into %s; waiting for it", folder)
            fcntl.flock(handle, fcntl.LOCK_EX)
    except BlockingIOError:
        raise
    except OSError:
        return False  # a file system without locks
    return True


def _no_file(path: Path) -> CacheError:
    return CacheError(f"the lock {path} is not a regular file, so nobody can hold it; remove it")


def _remove_leftovers(folder: Path) -> None:
    keep = None
    if has_conversion(folder):
        try:
            keep = current_version(folder)
        except CacheError:
            return  # which one is the good one cannot be told
    for path in folder.iterdir():
        if VERSION_NAME.fullmatch(path.name.removeprefix(".")) and path != keep:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _remove_if_empty(folder: Path) -> None:
    if not has_conversion(folder):
        (folder / _LOCK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody else put something there
            folder.rmdir()


def _remove_those_of_others(own: Path) -> None:
    for path in own.parent.glob(f"*/{_LOCK}"):
        folder = path.parent
        if folder == own or folder.is_symlink() or not _FOLDER_NAME.fullmatch(folder.name):
            continue
        # An error here means that it is being converted, or not ours to remove.
        with contextlib.suppress(OSError, CacheError):
            held, is_locked = _acquire(folder, wait=False)
            with held:
                if is_locked:
                    _remove_leftovers(folder)
                    _remove_if_empty(folder)

"""Files that are whole or not there, whenever a process or the machine dies, and archives that are looked at first."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import secrets
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_DRAFT = ".draft"


def check_folder(option: str, path: Path) -> None:
    """Raises ValueError unless there is a folder in which `replaced` can write `path`: before the work, not after."""
    if not path.parent.is_dir():
        raise ValueError(
            f"{option} needs the folder {path.parent}, which is not there; make it, or give another {option}"
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ValueError(f"{option} needs the folder {path.parent}, which cannot be written to; give another {option}")


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """Yields a file that takes the place of `path` when the block ends. If the block raises, `path` stays as it was.

    The file is a draft beside `path`, so that no data have to move to another file system, and is on the disk before
    it takes the place. Drafts of `path` whose process died are removed.

    Raises:
        OSError: the folder cannot be written to, or the disk is full.
    """
    _remove_drafts_of_the_dead(path)
    file, draft = _draft_of(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(draft, path)
    except (OSError, RuntimeError) as error:
        if (system_error := _of_the_system(error, path)) is None:
            raise
        raise system_error from error
    finally:
        draft.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _of_the_system(error: BaseException, path: Path) -> OSError | None:
    """What the system said of `path`. torch tells of a full disk in words of its own ("unexpected pos")."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__context__
    return None if cause is None else OSError(cause.errno, cause.strerror, str(path))


def _draft_of(path: Path) -> tuple[BinaryIO, Path]:
    """A new draft, locked for as long as this process has it open: so others see that it is alive."""
    while True:
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_DRAFT}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if draft.exists():  # nobody took it for dead before it was locked
            return os.fdopen(handle, "wb"), draft
        os.close(handle)


def _remove_drafts_of_the_dead(path: Path) -> None:
    for name in glob.glob(f".{glob.escape(path.name)}.*{_DRAFT}", root_dir=path.parent):
        draft = path.with_name(name)
        with contextlib.suppress(OSError):  # of another user, or gone by now
            handle = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if stat.S_ISREG(os.fstat(handle).st_mode):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    draft.unlink()
            finally:
                os.close(handle)


def check_archive(path: Path) -> None:
    """Reads a file of `torch.save` and compares the checksums of its parts.

    Raises:
        ValueError: it is no such archive, or it is damaged or cut short; the message says what, without the path.
    """
    path.stat()  # raises, if there is none
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no archive of torch.save, or was cut short")
        with zipfile.ZipFile(path) as archive:
            wrong = archive.testzip()
    except (OSError, ValueError):
        raise
    except Exception as error:  # a damaged header raises anything
        raise ValueError(f"it is damaged: {error}") from error
    if wrong is not None:
        raise ValueError(f"it is damaged: the checksum of {wrong} is wrong")

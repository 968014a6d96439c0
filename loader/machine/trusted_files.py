"""Files that are read back and trusted, or run: only this user and root can have written them.

A file is opened without following a link and without waiting for a FIFO, and looked at once it is open, so nobody can
exchange it in between.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_ROOT = 0
_UNKNOWN = 65534  # who owns the system's folders where root is not mapped, as in a container without privileges


class UntrustedError(PermissionError):
    """A file or folder that somebody else can have written."""


def why_untrusted(status: os.stat_result) -> str | None:
    """Why others can have written a file or a folder of this status; None if only this user and root can have."""
    if status.st_uid not in (_ROOT, os.geteuid()):
        return f"user {status.st_uid} owns it"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others can write to it (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def check_trusted(path: Path, status: os.stat_result, *, within: bool = True) -> None:
    """Raises UntrustedError, with the way out, if others can have written the file or folder.

    Args:
        within: whether what a folder holds is to be trusted, too.
    """
    if reason := why_untrusted(status):
        command = f"chown {os.geteuid()}" if reason.startswith("user") else "chmod go-w"
        if within and stat.S_ISDIR(status.st_mode):
            command = command.replace(" ", " -R ", 1)
        raise UntrustedError(f"{path} is not trusted: {reason}; if you know who wrote there, `{command} {path}`")


def open_trusted(path: Path) -> BinaryIO:
    """Opens a file for reading.

    Raises:
        UntrustedError: others can have written it, or it is a link.
        OSError: it cannot be opened, or is no regular file.
    """
    return open(_open(path, os.O_RDONLY), "rb")


def open_lock(path: Path) -> int:
    """The handle of a file to read, write and lock, which is made if it is not there. Errors: see `open_trusted`."""
    return _open(path, os.O_RDWR | os.O_CREAT)


def _open(path: Path, flags: int) -> int:
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UntrustedError(f"{path} is not trusted: it is a link; put the file itself there") from error
        raise
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        check_trusted(path, status)
    except BaseException:
        os.close(handle)
        raise
    return handle


@contextlib.contextmanager
def held_folder(path: Path) -> Iterator[Path]:
    """Yields another path of a folder, which names the same one whatever others rename or put in its place.

    Raises:
        UntrustedError: others can write there.
        OSError: it cannot be opened, or is no folder.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        check_trusted(path, os.fstat(handle))
        yield Path(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def create_trusted(path: Path) -> BinaryIO:
    """Opens a new or emptied file for writing, which others cannot write to, whatever the umask is."""
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o644))


def make_private_folder(path: Path) -> None:
    """Makes a folder, and those above it that are missing, which only this user can enter."""
    for place in reversed([path, *path.parents]):
        if not os.path.lexists(place):
            place.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)  # raises if it is no folder


def check_code_folder(path: Path) -> None:
    """Raises UntrustedError if others can put code into a folder, or another folder in its place.

    Others may write to a folder above it only if that is sticky, as /tmp is: there nobody can rename what is another's.
    What is not there yet is no error. Who made a link on the way can let it point to elsewhere at any time.
    """
    for part in (path.absolute(), *path.absolute().parents):
        status = os.lstat(part) if part.is_symlink() else None
        if status is not None and status.st_uid not in (_ROOT, _UNKNOWN, os.geteuid()):
            raise UntrustedError(
                f"{part} is not trusted: it is a link of user {status.st_uid}; name the folder that it points to"
            )
    place = path.resolve()
    if place.exists():
        check_trusted(place, place.stat())
    for above in place.parents:
        if not above.exists():
            continue
        status = above.stat()
        if status.st_uid in (_ROOT, _UNKNOWN, os.geteuid()) and (status.st_mode & stat.S_ISVTX or not _shared(status)):
            continue
        check_trusted(above, status, within=False)


def _shared(status: os.stat_result) -> bool:
    """Whether others can write to a folder. The group that many systems make for each user is that user alone."""
    if status.st_mode & stat.S_IWOTH or not status.st_mode & stat.S_IWGRP:
        return bool(status.st_mode & stat.S_IWOTH)
    try:
        group, owner = grp.getgrgid(status.st_gid), pwd.getpwuid(status.st_uid).pw_name
    except KeyError:  # without a name nobody knows who is in it
        return True
    return group.gr_name != owner or not {owner}.issuperset(group.gr_mem)

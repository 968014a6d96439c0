"""Datasets whose files another library downloads and reads."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import socket
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loader.datasets.cache_writer import CacheWriter, is_disk_full
from loader.datasets.edge_list_base import EdgeList, EdgeListDataset
from loader.datasets.errors import DatasetError
from loader.datasets.locations import fingerprint, is_writable, stage
from loader.machine.trusted_files import UntrustedError, held_folder, open_trusted

log = logging.getLogger(__name__)

_NETWORK_TIMEOUT = 30.0  # seconds of silence


class ReaderFiles(ABC):
    """The files of a dataset in the on-disk layout of its reader, below `data_dir`.

    Readers write beside the files that they read. So they are given links to those files in a folder of the
    cache, and `data_dir` may be read-only. What is absent is downloaded into a temporary folder first and
    moved to its place when it is complete.

    Attributes of a subclass' objects: folder: of the dataset, below `data_dir`. files: files that must be there, below
    `folder`. origin: where you can get the files. pickled: whether the reader unpickles them, which runs what they say:
    then files that others can have written are refused.
    """

    name: str
    data_dir: Path
    folder: str
    files: tuple[str, ...]
    origin: str
    pickled = False

    @abstractmethod
    def open_reader(self, root: Path) -> Any:
        """The reader's object for the dataset at `root / self.folder`; it downloads what is not there."""

    @abstractmethod
    def extract(self, reader: Any) -> Any:
        """What the reader read."""

    def source(self) -> list[list[Any]]:
        home = self.data_dir / self.folder
        missing = [name for name in self.files if not (home / name).is_file()]
        if len(missing) == len(self.files):
            self._download(home)
        elif missing:
            raise DatasetError(
                f"{self.name} is not complete in {home}: {', '.join(missing)} missing ({len(missing)} of "
                f"{len(self.files)} files); copy them there, or remove the folder to have it downloaded from "
                f"{self.origin}"
            )
        return fingerprint(home, self.files)

    def read(self, writer: CacheWriter) -> Any:
        try:
            with (
                held_folder(writer.scratch) as root,  # readers unpickle what they find there
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                if self.pickled:
                    self._copy_trusted(root / self.folder)
                else:
                    stage(self.data_dir / self.folder, self.files, root / self.folder)
                return self.extract(self.open_reader(root))
        except (DatasetError, ImportError, MemoryError):
            raise
        except Exception as error:  # readers raise anything over a damaged file
            if is_disk_full(error):
                raise
            raise DatasetError(
                f"{self.name}: the files in {self.data_dir / self.folder} cannot be read ({_one_line(error)}); "
                f"copy them again from {self.origin}"
            ) from error

    def _copy_trusted(self, target: Path) -> None:
        """Copies the files once they are open: others could exchange what a link points to after a look at it."""
        for name in self.files:
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open_trusted((self.data_dir / self.folder / name).resolve()) as file, copy.open("wb") as out:
                    shutil.copyfileobj(file, out)
            except UntrustedError as error:
                raise DatasetError(
                    f"{self.name}: {error}, or get it from {self.origin}: to read a pickled file runs code"
                ) from error

    def _download(self, home: Path) -> None:
        absent = f"{self.name} is not in {home}"
        way_out = f"get it from {self.origin}, or set data_dir to the folder that has {self.folder}"
        if not is_writable(self.data_dir):
            raise DatasetError(f"{absent}, and {self.data_dir} is read-only, so nothing is downloaded; {way_out}")
        log.info("%s: downloading into %s", self.name, home)
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            with (
                tempfile.TemporaryDirectory(prefix=f".{self.name}.download-", dir=self.data_dir) as scratch,
                held_folder(Path(scratch)) as root,
                _network_timeout(),
            ):
                self.open_reader(root)
                for path in root.rglob("*"):
                    path.chmod(path.stat().st_mode & ~0o022)  # whatever the umask is: it is to be read back
                _move(root / self.folder, home)
        except (Exception, SystemExit) as error:  # ogb leaves by exit(-1) when its question is answered by no
            raise DatasetError(f"{absent}, and its download failed ({_one_line(error)}); {way_out}") from error


class ReaderDataset(ReaderFiles, EdgeListDataset):
    """A dataset of one type of nodes that another library reads, see `ReaderFiles`."""

    @abstractmethod
    def extract(self, reader: Any) -> EdgeList:
        """What the reader read."""


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _move(source: Path, target: Path) -> None:
    if target.is_dir():
        # It has none of the files; what a reader left, like an empty raw/, may go.
        for path in sorted(target.rglob("*"), reverse=True):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        with contextlib.suppress(OSError):
            target.rmdir()
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        os.rename(source, target)


@contextlib.contextmanager
def _network_timeout() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_NETWORK_TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)

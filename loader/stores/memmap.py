"""Features in a file, which may be larger than memory."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from loader import _core
from loader.machine.arguments import as_size, kind_of, shown
from loader.machine.cpus import available_cpus
from loader.machine.devices import as_device
from loader.machine.pages import advise_random
from loader.stores.host import HostFeatures
from loader.stores.narrow_file import RowsInFile
from loader.stores.rows import RowFormat, RowOptions, StoreOfRows, as_dtype
from loader.stores.staged import StagedFeatures

if TYPE_CHECKING:
    from typing_extensions import Unpack

# A thread that reads a row from disk only waits: more of them than processors keep the disk's queue filled.
_THREADS_A_CPU = 4
_ARCHIVES = (".npz", ".pt", ".pth")  # of numpy.savez and torch.save


class HostRowsInFile(RowsInFile, HostFeatures):
    """`HostFeatures` whose rows stay in files."""


class StagedRowsInFile(RowsInFile, StagedFeatures):
    """`StagedFeatures` whose rows stay in files."""


class MemmapFeatures(StoreOfRows):
    """Rows of a file that is mapped to memory. The system keeps the part in RAM that fits.

    The system is told that rows are read in random order, so it reads only their pages. Threads of the C++ core gather
    rows, to the CPU as `HostFeatures` does, or to a GPU as `StagedFeatures` does.

    Args:
        source: a `.npy` file; or a file of raw bytes, with `shape` and `storage_dtype`; or a tensor that is
            memory-mapped already, such as one of a dataset's cache. A file is opened for reading only.
        device: `"cpu"`, or the GPU that the rows are copied to.
        shape: for a raw file: `[num_rows, ...]`.
        offset: for a raw file: bytes before the first row.
        num_threads: threads of one gather, by default four per processor.
        buffer_mib: with a GPU: see `StagedFeatures`.
        options: see `RowOptions`. `storage_dtype` is the type of a raw file's elements. If it is another type than that
            of a `.npy` file or a tensor, the rows are converted once, to a file beside theirs, see `stored_in_file`.

    Raises:
        FileNotFoundError: there is no such file.
        TypeError, ValueError: a `.npy` file has elements of a type that torch lacks; a raw file is shorter than its
            shape says, or holds no whole number of such rows; an option is missing, superfluous or out of range; and as
            `RowFormat`.
        RuntimeError: `device` is a GPU, and the build or the machine has no CUDA.
        OSError: converted rows cannot be written.
    """

    def __init__(
        self,
        source: Tensor | str | os.PathLike[str],
        device: str | int | torch.device = "cpu",
        *,
        shape: Sequence[int] | None = None,
        offset: int = 0,
        num_threads: int | None = None,
        buffer_mib: int = 8,
        **options: Unpack[RowOptions],
    ) -> None:
        self._source = source
        self._options: dict[str, Any] = {"device": device, "shape": shape, "offset": offset, "num_threads": num_threads}
        self._options |= {"buffer_mib": buffer_mib, **options}
        storage_dtype = options.get("storage_dtype")
        if not isinstance(source, (Tensor, str, os.PathLike)):
            raise TypeError(f"source is {kind_of(source)}; it must be the path of a file, or a tensor mapped from one")
        offset, buffer_mib = as_size("offset", offset, least=0), as_size("buffer_mib", buffer_mib)
        if shape is not None:
            if isinstance(shape, str) or not isinstance(shape, Iterable) or not getattr(shape, "ndim", True):
                raise TypeError(f"shape is {shown(shape)}; it must be a list of sizes, [num_rows, ...]")
            shape = [as_size("shape", size, least=0) for size in shape]
        raw = not isinstance(source, Tensor) and Path(source).suffix != ".npy"
        if not raw and (shape is not None or offset):
            given = f"shape is {shown(shape)}" if shape is not None else f"offset is {offset}"
            raise ValueError(
                f"{given}, which describes a raw file; a tensor and a .npy file know their own: leave it out"
            )
        if isinstance(source, Tensor):
            self.path, tensor = None, source
        else:
            self.path = Path(source)
            if not self.path.is_file():
                what = "a folder" if self.path.is_dir() else "no file"
                raise FileNotFoundError(f"source is {self.path}, which is {what}; give the path of a file of rows")
            tensor = _open_raw(self.path, shape, storage_dtype, offset) if raw else _open_npy(self.path)
        self._format = RowFormat(tensor, **options)
        if num_threads is None:
            num_threads = min(_THREADS_A_CPU * available_cpus(), _core.max_threads)
        self._store: HostFeatures | StagedFeatures | None
        if as_device(device).type == "cpu":
            self._store = HostRowsInFile(tensor, num_threads, **options)
        else:
            self._store = StagedRowsInFile(tensor, device, num_threads=num_threads, buffer_mib=buffer_mib, **options)
        self._device = self._store.device
        self.num_threads = self._store.num_threads
        self._format = self._store._format
        advise_random(self._store.tensor)

    @property
    def asynchronous(self) -> bool:
        return False

    def gather(self, ids: Tensor) -> Tensor:
        """Returns the rows of `ids`, see `FeatureStore.gather`; an id out of range is raised at once."""
        return self._open().gather(ids)

    def check(self) -> None:
        """Does nothing: `gather` raises its errors itself."""

    def close(self) -> None:
        """Frees threads and buffers, and closes the mapping of the file."""
        if self._store is not None:
            self._store.close()
        self._store = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy maps the file again: what is pickled is its path."""
        if self._store is None:
            raise RuntimeError("this MemmapFeatures was closed; make a new one")
        return partial(type(self), **self._options), (self._source,)

    def _open(self) -> HostFeatures | StagedFeatures:
        if self._store is None:
            raise RuntimeError("this MemmapFeatures was closed; make a new one")
        return self._store

    def __repr__(self) -> str:
        source = "" if self.path is None else f"'{self.path}', "
        where = f"device='{self._device}', num_threads={self.num_threads}"
        return f"MemmapFeatures({source}{self._format.describe()}, {where})"


def _open_npy(path: Path) -> Tensor:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{path} cannot be mapped ({error}): it is truncated, or no array of numbers; write it again by numpy.save"
        ) from error
    if not array.flags.c_contiguous:
        raise ValueError(f"{path} is in Fortran order; its rows are not contiguous: save np.ascontiguousarray(array)")
    try:
        return _read_only(array)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{path} has elements of type {array.dtype.str!r}, which torch does not have; save them as another one: "
            "array.astype('float32')"
        ) from error


def _open_raw(path: Path, shape: Sequence[int] | None, storage_dtype: torch.dtype | str | None, offset: int) -> Tensor:
    if path.suffix in _ARCHIVES:  # its first bytes are no rows
        raise ValueError(f"{path} is an archive of arrays, which cannot be mapped; write the rows by numpy.save (.npy)")
    if shape is None or storage_dtype is None:
        raise ValueError(f"{path} is not a .npy file; say its shape and storage_dtype")
    dtype = as_dtype("storage_dtype", storage_dtype)
    nbytes = math.prod([*shape, dtype.itemsize])
    size = path.stat().st_size
    if size < offset + nbytes:
        raise ValueError(
            f"{path} has {size} bytes; {list(shape)} elements of {dtype} from byte {offset} need {offset + nbytes}"
        )
    if nbytes == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    row = math.prod([*shape[1:], dtype.itemsize])
    if (size - offset) % row:  # rows of another width would be read as these
        raise ValueError(
            f"{path} has {size} bytes; from byte {offset} these are no whole number of rows of {row} bytes "
            f"({list(shape[1:])} elements of {dtype}): correct shape, storage_dtype or offset"
        )
    flat = _read_only(np.memmap(path, dtype=np.uint8, mode="r", offset=offset, shape=(nbytes,)))
    return flat.view(dtype).view(tuple(shape))


def _read_only(array: np.ndarray) -> Tensor:
    with warnings.catch_warnings():  # nobody writes to it
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)

"""Arrays in files, mapped into memory: read when they are touched, and never as a whole."""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from loader import _core
from loader.machine.pages import advise_random, file_behind, place_in_file

# Linux' value where Python < 3.13 does not name it. Without it the kernel may refuse a private mapping
# that is larger than the memory, though nobody will ever write to it.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if os.uname().sysname == "Linux" else 0)

# By id, mapped or not. A part of a tensor may be watched, too, and may live longer or shorter.
_looked_at: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()


def map_array(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
    """The array that begins at the file's position, mapped: writing to it changes this process' memory only.

    The file may be closed and removed afterwards. If it is cut short while the array lives, a read of what is missing
    ends the process in one line, see `watch`.
    """
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:  # nothing can be mapped
        return torch.from_numpy(np.empty(shape, dtype))
    # Private and writable, as torch wants its memory: a page that somebody writes to is copied first.
    memory = mmap.mmap(
        file.fileno(),
        0,
        flags=mmap.MAP_PRIVATE | _MAP_NORESERVE,
        prot=mmap.PROT_READ | mmap.PROT_WRITE,
    )
    whole = np.frombuffer(memory, np.uint8)
    _watch(memory, whole.ctypes.data, whole.size, file.fileno(), 0)
    return torch.from_numpy(np.frombuffer(memory, dtype, count, offset=file.tell()).reshape(shape))


def is_mapped(tensor: Tensor) -> bool:
    """Whether `tensor` is mapped from a file, so that parts of it may be on disk only."""
    return file_behind(tensor) is not None


def prepare_random_reads(tensor: Tensor) -> bool:
    """Prepares for reads of single rows, in any order, of what may be on disk only: the system should read no more than
    their pages, and see `watch`.

    Returns:
        Whether `tensor` is mapped from a file. If not, nothing is done.
    """
    if not is_mapped(tensor):
        return False
    advise_random(tensor)
    watch(tensor)
    return True


def watch(tensor: Tensor) -> None:
    """From now on, while `tensor` lives, the process ends with status 1 and one line that names the file, if a part of
    `tensor` cannot be read because its file was cut short, or because of an error of the disk.

    By default the system ends it by SIGBUS, without a word. A handler of SIGBUS that was set before gets the signals
    that concern other memory. Nothing happens if `tensor` is not mapped from a file, or its file was removed or
    replaced.
    """
    if _looked_at.get(id(tensor)) is tensor:
        return
    if (path := file_behind(tensor)) is not None:
        place = place_in_file(tensor)
        assert place is not None
        _, inode, offset = place
        with contextlib.suppress(FileNotFoundError, PermissionError), open(path, "rb") as file:
            if os.fstat(file.fileno()).st_ino == int(inode):
                _watch(tensor, tensor.data_ptr(), _bytes(tensor), file.fileno(), offset)
    _looked_at[id(tensor)] = tensor


def require_whole(arrays: Iterable[Tensor]) -> None:
    """Ends the process in one line, see `watch`, if the file of one of the arrays was cut short. Of the page in which a
    file ends now the system gives zeros behind the end: so whoever has read asks here before the result is used.
    """
    for array in arrays:
        _core.require_whole(array.data_ptr(), _bytes(array))


def _bytes(tensor: Tensor) -> int:
    """From the first element to the end of the last one; an expanded tensor has fewer than its elements take."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


@contextlib.contextmanager
def whole(*arrays: Tensor | None) -> Iterator[None]:
    """What is read of the arrays within is theirs: see `watch` and `require_whole`. None stands for no array."""
    given = [array for array in arrays if array is not None]
    on_host = [array for array in given if array.device.type == "cpu" and array.layout == torch.strided]
    for array in on_host:
        watch(array)
    require_whole(on_host)
    try:
        yield
    finally:
        require_whole(on_host)


def _watch(owner: Any, begin: int, length: int, handle: int, offset: int) -> None:
    """Watches a mapped file, which `handle` has open, for as long as `owner` lives, which keeps it mapped."""
    name = Path(f"/proc/self/fd/{handle}")
    path = os.readlink(name) if name.is_symlink() else "a mapped file"
    number = _core.watch_file(begin, length, handle, offset, path)
    weakref.finalize(owner, _core.forget_file, number).atexit = False


def save_and_map(array: Tensor, path: Path) -> Tensor:
    """Writes `array` as a .npy file, whole or not at all, and maps that.

    Raises:
        OSError: the file cannot be written.
    """
    unfinished = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        with open(unfinished, "x+b") as file:
            np.save(file, array.cpu().numpy())
            file.seek(0)
            os.replace(unfinished, path)
            # Of this very file, whatever has its name meanwhile.
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            return map_array(file, shape, dtype)
    finally:
        unfinished.unlink(missing_ok=True)

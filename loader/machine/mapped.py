"""Arrays in files, mapped into memory: read when they are touched, and never as a whole."""

from __future__ import annotations

import mmap
import os
import secrets
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

# Linux' value where Python < 3.13 does not name it. Without it the kernel may refuse a private mapping
# that is larger than the memory, though nobody will ever write to it.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if os.uname().sysname == "Linux" else 0)


def map_array(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
    """The array that begins at the file's position, mapped: writing to it changes this process' memory only.

    The file may be closed and removed afterwards.
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
    return torch.from_numpy(np.frombuffer(memory, dtype, count, offset=file.tell()).reshape(shape))


def save_and_map(array: Tensor, path: Path) -> Tensor:
    """Writes `array` as a .npy file, whole or not at all, and maps that.

    Raises:
        OSError: the file cannot be written.
    """
    unfinished = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        with open(unfinished, "wb") as file:
            np.save(file, array.cpu().numpy())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    with open(path, "rb") as written:
        np.lib.format.read_magic(written)
        shape, _, dtype = np.lib.format.read_array_header_1_0(written)
        return map_array(written, shape, dtype)

"""Memory that the processes of a run on one machine have once, together."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loader.machine.pages import place_in_file, use_huge_pages
from loader.machine.trusted_files import open_lock

RUN = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")  # what all processes of a run are told


def local_ranks() -> tuple[int, int]:
    """The number of this process among those of its run on this machine, and how many they are.

    torchrun and `train.py` say so in the environment; else this process counts as the only one.
    """
    count = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return int(os.environ.get("LOCAL_RANK", 0)) if count > 1 else 0, count


def shared_copy(tensor: Tensor) -> Tensor | None:
    """A copy of `tensor` in ordinary memory that all processes of the run on this machine share.

    The first process that comes copies, and the others wait for it. They know each other by the file behind the tensor,
    so each has to map the same part of the same file. The memory is freed when the last process lets go of it, however
    that ends.

    Args:
        tensor: contiguous, on the CPU, with at least one element.

    Returns:
        The copy, which nobody must write to; None if this process is the only one, or no file lies behind the tensor.

    Raises:
        OSError: there is not enough memory.
    """
    place = place_in_file(tensor) if local_ranks()[1] > 1 else None
    if place is None:
        return None

    def fill(whole: Tensor) -> None:
        whole.copy_(tensor.reshape(-1).view(torch.uint8))

    block = shared_block(place, tensor.numel() * tensor.element_size(), fill)
    return None if block is None else block.view(tensor.dtype).view(tensor.shape)


def shared_block(key: Any, nbytes: int, fill: Callable[[Tensor], None]) -> Tensor | None:
    """Ordinary memory that all processes of the run on this machine share.

    The first process that comes fills it, and the others wait for it. The memory is freed when the last process lets go
    of it, however that ends.

    Args:
        key: what is in the memory; its `repr` is the same in all processes that share it, and in no others.
        nbytes: size of the memory, at least 1.
        fill: is given the memory, `[nbytes]` uint8 zeros, and writes it.

    Returns:
        `[nbytes]` uint8, which nobody must write to; None if this process is the only one of the run here, or the
        system has no `memfd_create`.

    Raises:
        OSError: there is not enough memory, or others can have written the file where the processes meet.
    """
    rank, count = local_ranks()
    if count == 1 or not hasattr(os, "memfd_create"):
        return None
    key = repr((os.getuid(), [os.environ.get(name) for name in RUN], key, nbytes))
    name = f"gnn-loader-{hashlib.sha256(key.encode()).hexdigest()[:24]}"
    # A small file where the processes meet: it says who holds the memory. The lock ends with its owner.
    meeting = Path(tempfile.gettempdir()) / name
    with open(open_lock(meeting), "r+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        memory, seen = _held(file.read(), name, nbytes), None
        if memory is None:
            handle = os.memfd_create(name, os.MFD_CLOEXEC)
            os.ftruncate(handle, nbytes)
            memory, seen = mmap.mmap(handle, nbytes), [rank]
            whole = torch.frombuffer(memory, dtype=torch.uint8)
            use_huge_pages(whole, shared=True)
            release = weakref.finalize(memory, _let_go, handle, meeting)
            try:
                fill(whole)
            except BaseException:
                release()  # what refers to the memory may live on with the error
                raise
            owner = f"{os.getpid()} {handle}"
        else:
            file.seek(0)
            pid, held, *before = file.read().split()
            seen, owner = sorted({rank, *map(int, before)}), f"{pid} {held}"
        file.seek(0)
        file.truncate()
        file.write(" ".join([owner, *map(str, seen)]))
        file.flush()
        if len(seen) == count:  # nobody else will come
            meeting.unlink(missing_ok=True)
    return torch.frombuffer(memory, dtype=torch.uint8)


def _held(text: str, name: str, nbytes: int) -> mmap.mmap | None:
    """The memory that another process holds, as it wrote; None if there is none, or the process is gone."""
    try:
        pid, handle, *_ = text.split()
        link = f"/proc/{int(pid)}/fd/{int(handle)}"
        if os.readlink(link) != f"/memfd:{name} (deleted)":
            return None
        with open(link, "r+b") as file:
            if os.fstat(file.fileno()).st_uid not in (0, os.geteuid()):
                return None  # its owner could change it at any time
            return mmap.mmap(file.fileno(), nbytes)
    except (OSError, ValueError):
        return None


def _let_go(handle: int, meeting: Path) -> None:
    os.close(handle)
    meeting.unlink(missing_ok=True)

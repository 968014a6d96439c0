"""The pages that tensors lie on: what the operating system is told of them, and the file behind them.

Advice is advice: where it is not taken, nothing breaks.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

from torch import Tensor

_HUGE_PAGE = 2 << 20
_AT_ONCE = 128 << 10  # bytes; of more, Linux may take a part only
_COLLAPSE = 25  # MADV_COLLAPSE, since Linux 6.1; Python does not name it
_MAPS = Path("/proc/self/maps")


def advise_random(tensor: Tensor) -> None:
    """Rows are read in no order: the system should not read ahead in the file behind them."""
    if hasattr(mmap, "MADV_RANDOM") and tensor.numel():
        begin, end = _bounds(tensor)
        _advise(begin // mmap.PAGESIZE * mmap.PAGESIZE, end, mmap.MADV_RANDOM)


def read_ahead(tensor: Tensor) -> None:
    """All of `tensor` will be read, in order: the system should begin to read what of it is on disk only.

    That pays where it was told that reads are random, see `advise_random`.
    """
    if hasattr(mmap, "MADV_WILLNEED") and tensor.numel():
        begin, end = _bounds(tensor)
        for at in range(begin // mmap.PAGESIZE * mmap.PAGESIZE, end, _AT_ONCE):
            _advise(at, min(at + _AT_ONCE, end), mmap.MADV_WILLNEED)


def use_huge_pages(tensor: Tensor, *, shared: bool = False) -> None:
    """Puts the memory of `tensor` on huge pages, in place, about one second per GiB.

    Rows read at random need an address translated each; with pages of 4 KiB a processor, and a GPU that reads pinned
    memory, wait longer for that than for the row. Memory mapped from a file is left as it is.

    Args:
        tensor: on the CPU.
        shared: it lies in memory that processes share.
    """
    if not sys.platform.startswith("linux") or not tensor.numel():
        return
    begin, end = _bounds(tensor)
    begin, end = -(-begin // _HUGE_PAGE) * _HUGE_PAGE, end // _HUGE_PAGE * _HUGE_PAGE
    if begin < end and (shared or _is_anonymous(begin)):
        _advise(begin, end, mmap.MADV_HUGEPAGE)
        _advise(begin, end, _COLLAPSE)


def file_behind(tensor: Tensor) -> Path | None:
    """The file that the memory of `tensor` is mapped from; None for ordinary and for shared memory.

    Only Linux tells; elsewhere it is None.
    """
    if tensor.device.type != "cpu" or not tensor.numel() or not _MAPS.exists():
        return None
    _, _, inode, path = _mapping(tensor.data_ptr())
    # Below /dev lies memory that processes or drivers share; such a mapping has an inode, too.
    if inode == "0" or not path.startswith("/") or path.startswith(("/dev/", "/memfd:")):
        return None
    return Path(path.removesuffix(" (deleted)"))


def place_in_file(tensor: Tensor) -> tuple[str, str, int] | None:
    """Device and inode of the file that `tensor` is mapped from, and the byte at which it begins there; or None."""
    if file_behind(tensor) is None:
        return None
    offset, device, inode, _ = _mapping(tensor.data_ptr())
    return device, inode, offset


def is_replaced(tensor: Tensor) -> bool:
    """Whether another file lies where the one lay that `tensor` is mapped from, or none."""
    file = file_behind(tensor)
    if file is None:
        return False
    _, _, inode, _ = _mapping(tensor.data_ptr())
    try:
        return inode != str(file.stat().st_ino)
    except OSError:
        return True


def is_written(tensor: Tensor) -> bool:
    """Whether memory of `tensor`, which is mapped from a file, was written to and has other numbers than the file.

    That is so of private mappings alone; what is written to a shared one is in the file.
    """
    begin, end = _bounds(tensor)
    try:
        lines = _MAPS.with_name("smaps").read_text().splitlines()
    except OSError:
        return False
    within = False
    for line in lines:
        name, *words = line.split(maxsplit=2)
        if not name.endswith(":"):  # the bounds of the next mapping
            first, after = (int(x, 16) for x in name.split("-"))
            within = first < end and begin < after
        elif within and name == "Anonymous:" and words[0] != "0":
            return True
    return False


def _bounds(tensor: Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()


def _advise(begin: int, end: int, advice: int) -> None:
    ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), ctypes.c_int(advice))


def _is_anonymous(address: int) -> bool:
    """Whether no file lies behind the page at `address`."""
    return _mapping(address)[2] == "0"


def _mapping(address: int) -> tuple[int, str, str, str]:
    """Of the mapping that holds `address`: its byte of the file; device, inode and path, empty where there is none."""
    for line in _MAPS.read_text().splitlines():
        bounds, _, offset, device, inode, *path = line.split(maxsplit=5)
        begin, end = (int(x, 16) for x in bounds.split("-"))
        if begin <= address < end:
            return int(offset, 16) + address - begin, device, inode, path[0] if path else ""
    return 0, "", "", ""

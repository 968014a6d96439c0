"""Rows in a file that are kept in a narrower type: a second file beside it, which is written once."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import secrets
import shutil
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from loader.machine.mapped import map_array
from loader.machine.pages import file_behind, is_replaced, is_written, place_in_file
from loader.machine.trusted_files import open_lock, open_trusted
from loader.stores import scaled_codes
from loader.stores.rows import RowFormat

_log = logging.getLogger(__name__)

_FORMAT = "gnn-loader rows 2"
_HEAD = 4096  # bytes before the rows: a line of JSON
_PART = 64 << 20  # bytes of given rows that are converted at a time


def is_converted(tensor: Tensor, rows: RowFormat) -> bool:
    """Whether the rows of a mapped tensor are kept in another type than that of its file, beside that."""
    return rows.storage_dtype != tensor.dtype and file_behind(tensor) is not None and not is_written(tensor)


def stored_in_file(tensor: Tensor, rows: RowFormat) -> Tensor:
    """What `RowFormat.stored` returns, mapped from a file that lies beside that of `tensor`.

    The file is written in parts if there is none, or if that of `tensor` has changed since; of several processes, one
    writes it and the others wait. A tensor that no file is behind is converted in memory, and so is one whose memory
    was written to since it was mapped: its rows are not those of the file.

    Raises:
        ValueError: as `RowFormat.stored`; or the file of `tensor` was replaced.
        OSError: the file cannot be written, or there is too little room for it.
        UntrustedError: others may have written it.
    """
    if not is_converted(tensor, rows):
        return rows.stored(tensor)
    source = file_behind(tensor)
    assert source is not None
    if is_replaced(tensor):
        raise ValueError(f"{source} was replaced since its rows were mapped; load the dataset again")
    _write_back(source)
    key = _key(tensor, rows, source)
    name = str(rows.storage_dtype).removeprefix("torch.")
    path = source.parent / f"{source.name}.{name}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:8]}"
    found = _opened(path, key, rows)
    if found is not None:
        return found
    try:
        handle = open_lock(path.with_name(path.name + ".lock"))
    except OSError as error:
        raise OSError(
            f"storage_dtype is {name}, and the rows of {source} are converted to a file beside it, which cannot be "
            f"written ({error}); make the folder writable, or leave storage_dtype null"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        found = _opened(path, key, rows)  # another process may have written it meanwhile
        if found is None:
            _write(tensor, rows, path, key, source)
            found = _opened(path, key, rows)
    finally:
        os.close(handle)
    assert found is not None
    return found


class RowsInFile:
    """A store whose rows lie in files, those of another type, too. It comes before the class that gathers."""

    def _stored(self, tensor: Tensor, rows: RowFormat) -> Tensor:
        return stored_in_file(tensor, rows)


def _write_back(path: Path) -> None:
    """Writes to disk what somebody has written to a mapping of the file.

    The next write to such a page changes the file's time. Without this it does not, as long as the page waits for the
    disk, so converted rows of before would be taken for those of the file.
    """
    with open(path, "rb") as file:
        try:
            os.fsync(file.fileno())
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EINVAL):  # file systems that know no such thing
                raise


def _key(tensor: Tensor, rows: RowFormat, source: Path) -> dict[str, Any]:
    """What a converted file has to have been made from."""
    status, place = source.stat(), place_in_file(tensor)
    assert place is not None
    return {
        "format": _FORMAT,
        "bytes": status.st_size,
        "changed_ns": status.st_mtime_ns,
        "begin": place[2],
        "shape": list(tensor.shape),
        "from": str(tensor.dtype),
        "to": str(rows.storage_dtype),
        "row_bytes": rows.nbytes,
    }


def _opened(path: Path, key: dict[str, Any], rows: RowFormat) -> Tensor | None:
    """The converted rows, mapped, and the scales of codes in `rows`; None if there are none of this key."""
    try:
        handle = open_trusted(path)
    except FileNotFoundError:
        return None
    with handle as file:
        try:
            head = json.loads(file.read(_HEAD))
        except ValueError:
            return None
        by_row = head.pop("by_row", False)
        if head != key:
            return None
        file.seek(_HEAD)
        table = map_array(file, (rows.num_rows, rows.nbytes), np.dtype(np.uint8))
        if not rows.coded:
            return table.view(-1).view(rows.storage_dtype).view(rows.num_rows, *rows.shape)
        shape = (rows.num_rows, 1) if by_row else (1, rows.dim)
        file.seek(_begin_of_scales(rows))
        scales = torch.from_numpy(np.fromfile(file, np.float32, shape[0] * shape[1]).reshape(shape))
    rows.by_row, rows.scales = by_row, scaled_codes.Scales(scales, by_row)
    return table


def _write(tensor: Tensor, rows: RowFormat, path: Path, key: dict[str, Any], source: Path) -> None:
    nbytes = _begin_of_scales(rows) + 4 * max(rows.num_rows, rows.dim)
    free = shutil.disk_usage(path.parent).free
    if nbytes > free:
        raise OSError(
            f"storage_dtype is {rows.storage_dtype}, and the converted rows of {source} take {nbytes / 2**30:.3g} GiB "
            f"beside it, where {free / 2**30:.3g} GiB are free; make room, or leave storage_dtype null"
        )
    unfinished = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        with open(unfinished, "x+b") as file:
            _write_rows(tensor, rows, file, key)
            file.flush()
            os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    _log.info("%s has the rows of %s as %s", path, source.name, rows.storage_dtype)


def _write_rows(tensor: Tensor, rows: RowFormat, file: BinaryIO, key: dict[str, Any]) -> None:
    file.truncate(_HEAD)
    file.seek(_HEAD)
    if rows.coded:
        file.truncate(_begin_of_scales(rows))
        table = torch.from_numpy(np.memmap(file, np.uint8, mode="r+", offset=_HEAD, shape=(rows.num_rows, rows.nbytes)))
        scales = rows.write_codes(tensor, table)
        del table  # what was written to the mapping is what the file has
        file.seek(_begin_of_scales(rows))
        file.write(scales.of.numpy().tobytes())
        key = {**key, "by_row": scales.by_row}
    else:
        rows.check(tensor)
        step = max(1, _PART // max(1, rows.dim * tensor.itemsize))
        for begin in range(0, rows.num_rows, step):
            part = rows.narrowed(tensor[begin : begin + step]).contiguous()
            file.write(part.view(-1).view(torch.uint8).numpy().data)
    file.seek(0)
    file.write(json.dumps(key).encode().ljust(_HEAD))


def _begin_of_scales(rows: RowFormat) -> int:
    return _HEAD + -(-rows.num_rows * rows.nbytes // 4) * 4

"""Arrays in files: mapped without being read, written whole or not at all, and watched while they are open."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from loader import _core
from loader.machine.mapped import is_mapped, map_array, prepare_random_reads, save_and_map, watch


@pytest.mark.parametrize("array", [torch.arange(1000), torch.rand(7, 3).double(), torch.empty(0, 3)])
def test_a_saved_array_is_mapped(array: torch.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "array.npy"
    mapped = save_and_map(array, path)
    assert torch.equal(mapped, array)
    assert mapped.dtype == array.dtype
    assert [file.name for file in tmp_path.iterdir()] == ["array.npy"]
    before = path.read_bytes()
    mapped.zero_()
    assert path.read_bytes() == before
    path.unlink()
    assert not mapped.any()


def test_mapping_begins_at_the_files_position(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    path.write_bytes(b"12345678" + np.arange(5).tobytes())
    with open(path, "rb") as file:
        file.seek(8)
        assert map_array(file, (5,), np.dtype(np.int64)).tolist() == [0, 1, 2, 3, 4]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    save_and_map(torch.arange(3), tmp_path / "array.npy")

    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="the disk is full"):
        save_and_map(torch.arange(4), tmp_path / "array.npy")
    assert [file.name for file in tmp_path.iterdir()] == ["array.npy"]
    assert np.load(tmp_path / "array.npy").tolist() == [0, 1, 2]


def test_what_lies_in_a_file_is_told(tmp_path: Path) -> None:
    mapped = save_and_map(torch.arange(5000), tmp_path / "array.npy")
    assert is_mapped(mapped)
    assert is_mapped(mapped[2000:])
    assert _core.is_watched(mapped.data_ptr())
    assert prepare_random_reads(mapped)
    plain = torch.arange(5000)
    assert not is_mapped(plain)
    assert not prepare_random_reads(plain)
    assert not _core.is_watched(plain.data_ptr())


def test_a_file_is_watched_while_its_array_lives(tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.arange(5000))
    mapped = torch.from_numpy(np.load(tmp_path / "array.npy", mmap_mode="r+"))
    at, handles = mapped.data_ptr(), len(os.listdir("/proc/self/fd"))
    assert not _core.is_watched(at)
    for _ in range(3):
        watch(mapped)
    assert _core.is_watched(at)
    assert _core.is_watched(at + mapped.nbytes - 1)
    assert len(os.listdir("/proc/self/fd")) == handles + 1
    del mapped
    assert not _core.is_watched(at)
    assert len(os.listdir("/proc/self/fd")) < handles + 1


def test_a_replaced_file_is_not_watched(tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.arange(5000))
    mapped = torch.from_numpy(np.load(tmp_path / "array.npy", mmap_mode="r+"))
    np.save(tmp_path / "other.npy", np.arange(7))
    os.replace(tmp_path / "other.npy", tmp_path / "array.npy")
    watch(mapped)
    assert not _core.is_watched(mapped.data_ptr())


# A process of its own that maps a file and watches it, without torch: that takes a second to import.
_PROGRAM = """
import ctypes, faulthandler, importlib.util, mmap, os, signal, sys
spec = importlib.util.spec_from_file_location("loader._core", sys.argv[1])
core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)

def map_file(path):
    file = open(path, "rb")
    memory = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory)), file

memory, at, file = map_file(sys.argv[2])
def watch():
    return core.watch_file(at, len(memory), file.fileno(), 0, sys.argv[2])
"""


def program(tmp_path: Path, body: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "rows").write_bytes(bytes(5 * mmap.PAGESIZE))
    (tmp_path / "other").write_bytes(bytes(5 * mmap.PAGESIZE))
    command = [sys.executable, "-c", _PROGRAM + body, str(_core.__file__), str(tmp_path / "rows")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)


CUT = f"os.truncate('rows', {mmap.PAGESIZE}); print(memory[4 * {mmap.PAGESIZE}])"


@pytest.mark.parametrize(
    "body",
    [
        f"watch(); {CUT}",
        f"faulthandler.enable(); watch(); {CUT}",
        f"for _ in range(3): core.forget_file(watch())\nwatch(); {CUT}",
        f"watch()\nif os.fork() == 0: {CUT}\nsys.exit(os.waitstatus_to_exitcode(os.wait()[1]))",
    ],
    ids=["plain", "faulthandler", "forgotten", "child"],
)
def test_a_cut_file_ends_in_one_line(body: str, tmp_path: Path) -> None:
    done = program(tmp_path, body)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {tmp_path / 'rows'} was cut short while it was open: it has {mmap.PAGESIZE} bytes")
    assert f"{5 * mmap.PAGESIZE} are needed; restore the file" in line


def test_a_later_faulthandler_prints_its_stack_first(tmp_path: Path) -> None:
    done = program(tmp_path, f"watch(); faulthandler.enable(); {CUT}")
    assert done.returncode == 1
    assert "Fatal Python error: Bus error" in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"error: {tmp_path / 'rows'} was cut short")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("watch(); os.kill(os.getpid(), signal.SIGBUS)", -signal.SIGBUS),
        (f"core.forget_file(watch()); {CUT}", -signal.SIGBUS),
        (
            f"watch(); other = map_file('other')[0]; os.truncate('other', 1); print(other[{mmap.PAGESIZE}])",
            -signal.SIGBUS,
        ),
        ("signal.signal(signal.SIGBUS, signal.SIG_IGN); watch(); os.kill(os.getpid(), signal.SIGBUS)", 0),
        ("signal.signal(signal.SIGBUS, lambda *_: sys.exit(7)); watch(); os.kill(os.getpid(), signal.SIGBUS)", 7),
    ],
    ids=["sent", "forgotten", "other file", "ignored", "Python's handler"],
)
def test_other_signals_go_where_they_went(body: str, status: int, tmp_path: Path) -> None:
    done = program(tmp_path, body)
    assert done.returncode == status
    assert done.stderr == ""


def test_expanded_arrays_need_no_more_than_their_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(2000.0))
    program = """
import sys, numpy as np, torch
from loader.machine.mapped import whole
array = torch.from_numpy(np.load(sys.argv[1], mmap_mode="c"))
with whole(expanded := array[-1:].expand(3000)):
    print(float(expanded.sum()))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a.npy")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{3000 * 1999.0}\n", "")

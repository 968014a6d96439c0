"""Rows of a file that are kept in a narrower type: converted once, beside it."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loader.machine.hosts import Hosts
from loader.machine.pages import file_behind
from loader.stores import HostFeatures, MemmapFeatures, PartitionedFeatures, narrow_file
from loader.stores.rows import RowFormat

KINDS = ("float16", "bfloat16", "int8", "float8")
IDS = torch.arange(599, -1, -1)
READ = """
import sys, torch
from loader.stores import MemmapFeatures
store = MemmapFeatures(sys.argv[1], num_threads=1, storage_dtype="int8", dtype="float32")
torch.save(store.gather(torch.arange(599, -1, -1)), sys.argv[2])
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    x = torch.randn(600, 25, generator=torch.Generator().manual_seed(3))
    np.save(tmp_path / "x.npy", x.numpy())
    return tmp_path / "x.npy"


def rows_of(path: Path, kind: str) -> torch.Tensor:
    return MemmapFeatures(path, num_threads=1, storage_dtype=kind, dtype="float32").gather(IDS)


@pytest.mark.parametrize("kind", KINDS)
def test_converted_rows_equal_those_in_memory(path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow_file, "_PART", 25 * 4 * 7)
    x = torch.from_numpy(np.load(path))
    wanted = HostFeatures(x, 1, storage_dtype=kind, dtype="float32").gather(IDS)
    store = MemmapFeatures(path, num_threads=1, storage_dtype=kind, dtype="float32")
    assert torch.equal(store.gather(IDS), wanted)
    behind = file_behind(store._open().tensor)
    assert behind is not None
    assert behind != path
    assert behind.parent == path.parent
    assert torch.equal(pickle.loads(pickle.dumps(store)).gather(IDS), wanted)


@pytest.mark.parametrize("kind", ["bfloat16", "int8"])
def test_rows_are_converted_once(path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, written = rows_of(path, kind), []
    write = narrow_file._write

    def counted(*arguments: Any) -> None:
        written.append(1)
        write(*arguments)

    monkeypatch.setattr(narrow_file, "_write", counted)
    assert torch.equal(rows_of(path, kind), wanted)
    assert not written
    np.save(path, np.load(path) + np.float32(1))  # another content of the same length
    os.utime(path, ns=(10**18, 10**18))
    assert not torch.equal(rows_of(path, kind), wanted)
    assert len(written) == 1
    for file in path.parent.glob("x.npy.*"):
        if file.suffix != ".lock":
            file.write_bytes(file.read_bytes()[:30])  # cut short
    rows_of(path, kind)
    assert len(written) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_rows_written_in_memory_are_converted_there(path: Path, kind: str) -> None:
    """A mapping of a dataset's features is private: what is written to it is in no file."""
    for store in (MemmapFeatures, PartitionedFeatures):
        x = torch.from_numpy(np.load(path, mmap_mode="c"))
        rows = store(x, num_threads=1, storage_dtype=kind, dtype="float32").gather(IDS)  # of the file
        assert torch.equal(rows, rows_of(path, kind))
        x = torch.from_numpy(np.load(path, mmap_mode="c"))
        x[:, ::2] *= 10
        wanted = HostFeatures(x.clone(), 1, storage_dtype=kind, dtype="float32").gather(IDS)
        assert torch.equal(store(x, num_threads=1, storage_dtype=kind, dtype="float32").gather(IDS), wanted)
        assert torch.equal(rows_of(path, kind), rows)


def test_rows_written_to_a_mapping_are_converted_again(tmp_path: Path) -> None:
    x = torch.randn(600, 25, generator=torch.Generator().manual_seed(3)).numpy()
    mapping = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, x.shape)
    if "tmpfs" in subprocess.check_output(["stat", "-f", "-c", "%T", tmp_path], text=True):
        pytest.skip("a file in memory has no time that writes to its mapping change")
    mapping[:] = x
    assert torch.equal(rows_of(tmp_path / "x.npy", "bfloat16"), torch.from_numpy(x).bfloat16().float()[IDS])
    mapping[:] = -x
    assert torch.equal(rows_of(tmp_path / "x.npy", "bfloat16"), -torch.from_numpy(x).bfloat16().float()[IDS])


def test_scales_of_rows_are_kept_with_them(tmp_path: Path) -> None:
    x = torch.randn(600, 25, generator=torch.Generator().manual_seed(3)) * torch.logspace(-3, 3, 600)[:, None]
    np.save(tmp_path / "x.npy", x.numpy())
    wanted = HostFeatures(x, 1, storage_dtype="int8").gather(IDS)
    for _ in range(2):
        assert torch.equal(rows_of(tmp_path / "x.npy", "int8"), wanted)


def test_processes_convert_once_together(path: Path, tmp_path: Path) -> None:
    wanted = rows_of(path, "int8")
    for file in path.parent.glob("x.npy.*"):
        file.unlink()
    # Processes of their own: torch's threads may hang in a child that was forked beside them.
    processes = [subprocess.Popen([sys.executable, "-c", READ, path, tmp_path / f"{i}.pt"]) for i in range(4)]
    assert [process.wait(300) for process in processes] == [0] * 4
    for i in range(4):
        file = tmp_path / f"{i}.pt"
        assert torch.equal(torch.load(file), wanted)
        file.unlink()
    assert len([file for file in path.parent.iterdir() if file.suffix != ".lock"]) == 2


def test_each_host_converts_the_same_rows(path: Path, tmp_path: Path) -> None:
    wanted = rows_of(path, "int8")
    mapped = torch.from_numpy(np.load(path, mmap_mode="c"))
    for host in range(2):
        hosts = Hosts(host, 2, 0, 1)
        scores = torch.arange(600)
        store = PartitionedFeatures(
            mapped, num_threads=1, hosts=hosts, fraction=0.2, hotness=scores, storage_dtype="int8"
        )
        own = store.owners(IDS) == host
        assert torch.equal(store._read_own(IDS[own]).view(torch.float32), wanted[own])
        assert store._slots is not None
        assert store._cache is not None
        cached = store._slots[IDS] >= 0
        assert int(cached.sum()) == 120
        assert torch.equal(store._cache.gather(store._slots[IDS[cached]]), wanted[cached])
        store.close()


def test_what_cannot_be_written_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = shutil.disk_usage(path.parent)._replace(free=100)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: small)
        with pytest.raises(OSError, match=r"int8, and the converted rows of .*x\.npy take .* GiB beside it, where"):
            rows_of(path, "int8")
    with monkeypatch.context() as patch:

        def refuse(path: Path) -> int:
            raise PermissionError(13, "Permission denied", str(path))

        patch.setattr(narrow_file, "open_lock", refuse)
        with pytest.raises(OSError, match=r"storage_dtype is bfloat16, .* cannot be written .*; make the folder writ"):
            rows_of(path, "bfloat16")
    x = np.load(path)
    x[40, 3] = np.inf
    np.save(path, x)
    with pytest.raises(ValueError, match=r"features\[40, 3\] is inf"):
        rows_of(path, "int8")
    x[40, 3] = 1e30
    np.save(path, x)
    with pytest.raises(ValueError, match=r"storage_dtype is torch\.float16, whose numbers end at 65504"):
        rows_of(path, "float16")
    assert [file.name for file in path.parent.iterdir() if file.suffix != ".lock"] == ["x.npy"]


def test_a_replaced_file_is_not_converted(path: Path) -> None:
    mapped = torch.from_numpy(np.load(path, mmap_mode="c"))
    path.rename(path.with_name("old.npy"))
    np.save(path, np.zeros((600, 25), np.float32))
    os.unlink(path.with_name("old.npy"))
    rows = RowFormat(mapped, storage_dtype="int8")
    with pytest.raises(ValueError, match="was replaced since its rows were mapped"):
        narrow_file.stored_in_file(mapped, rows)

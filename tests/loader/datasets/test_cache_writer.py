"""Writing a conversion: whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
from collections import namedtuple

import numpy as np
import pytest
from conversions import ARRAYS, KEY, write

from loader.datasets import CacheError
from loader.datasets.cache import open_cache
from loader.datasets.cache_lock import conversion_lock
from loader.datasets.cache_writer import ArrayWriter, CacheWriter


@pytest.fixture
def toy(tmp_path):
    return tmp_path / "cache" / "toy-0123456789ab"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("bad")])
def test_an_interrupted_conversion_leaves_nothing(toy, error):
    def interrupted() -> None:
        with conversion_lock(toy), CacheWriter(toy, KEY) as writer:
            writer.write("labels", ARRAYS["labels"])
            (writer.scratch / "file").touch()
            raise error

    with pytest.raises(type(error)):
        interrupted()
    assert os.listdir(toy.parent) == []


def test_a_disk_that_fills_up_leaves_nothing(toy, monkeypatch):
    def full(self: ArrayWriter, part: np.ndarray) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ArrayWriter, "append", full)
    with pytest.raises(CacheError, match=r"the disk is full: .* MB left.*set cache_dir to another disk") as caught:
        write(toy)
    assert "\n" not in str(caught.value)
    assert os.listdir(toy.parent) == []


def test_an_array_larger_than_the_disk_is_refused(toy, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1000, 990, 10))
    with pytest.raises(CacheError, match="the disk is full"):
        write(toy)
    assert os.listdir(toy.parent) == []


def test_a_disk_full_at_the_end_leaves_nothing(toy, monkeypatch):
    def full(value: object, file: object, **_: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(CacheError, match="the disk is full"):
        write(toy)
    assert os.listdir(toy.parent) == []


def test_a_limit_of_file_sizes_gives_one_line(toy, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(ArrayWriter, "append", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4096, 4096))
    with pytest.raises(CacheError, match=r"larger than 4096 bytes \(ulimit -f\).*ulimit -f unlimited"):
        write(toy)
    assert not toy.exists()


def test_foreign_errors_of_a_full_disk_are_understood(toy, monkeypatch):
    usage = namedtuple("usage", "total used free")

    def fail() -> None:
        with conversion_lock(toy), CacheWriter(toy, KEY):
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")

    with pytest.raises(RuntimeError, match="unexpected pos"):
        fail()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 30, 1 << 30, 4096))
    with pytest.raises(CacheError, match="the disk is full"):
        fail()
    assert os.listdir(toy.parent) == []


def test_a_stream_needs_every_row_in_its_shape(toy):
    with (
        pytest.raises(ValueError, match="2 rows were written of 5"),
        conversion_lock(toy),
        CacheWriter(toy, KEY) as writer,
        writer.stream("features", (5, 4), np.float32) as out,
    ):
        out.append(np.zeros((2, 4)))
    with (
        pytest.raises(ValueError, match=r"rows of shape \(3,\); they must be \(4,\)"),
        conversion_lock(toy),
        CacheWriter(toy, KEY) as writer,
        writer.stream("features", (5, 4), np.float32) as out,
    ):
        out.append(np.zeros((2, 3)))


def test_a_new_version_replaces_the_old_one(toy):
    write(toy)
    write(toy, mark=2)
    assert open_cache(toy, KEY).properties == {"mark": 2}
    assert os.listdir(toy.parent) == [toy.name]
    assert len(os.listdir(toy)) == 3


def test_a_failed_conversion_leaves_the_old_one(toy):
    write(toy)
    with pytest.raises(ValueError, match="cannot reshape"), conversion_lock(toy), CacheWriter(toy, KEY) as writer:
        writer.write("labels", ARRAYS["labels"].reshape(7))
    assert open_cache(toy, KEY).properties == {"mark": 1}
    assert len(os.listdir(toy)) == 3


@pytest.mark.parametrize("rows", [0, 3, 8])
def test_fewer_rows_make_the_same_file(toy, rows):
    array = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
    with conversion_lock(toy), CacheWriter(toy, KEY) as writer:
        with writer.stream("some", (800_000_000 if rows < 8 else 8, 2), np.float32, fewer=True) as out:
            out.append(array)
        writer.write("all", array)
        names = {path.stem: path.read_bytes() for path in toy.glob("version-*/*.npy")}
    assert names["some"] == names["all"]
    assert open_cache(toy, KEY).arrays["some"].shape == (rows, 2)


def test_more_rows_than_said_are_refused(toy):
    with (
        pytest.raises(ValueError, match=r"some\.npy: 3 rows were written of 2"),
        conversion_lock(toy),
        CacheWriter(toy, KEY) as writer,
        writer.stream("some", (2,), np.int64, fewer=True) as out,
    ):
        out.append(np.arange(3))

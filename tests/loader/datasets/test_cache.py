from __future__ import annotations

import errno
import json
import os
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loader.datasets import CacheError
from loader.datasets import cache as cache_module
from loader.datasets.cache import ArrayWriter, CacheWriter, cache_folder, open_cache

KEY = {"dataset": "toy", "source": [["a", 1, 2]], "options": {"undirected": True}}
ARRAYS = {
    "features": np.arange(20, dtype=np.float32).reshape(5, 4),
    "labels": np.array([0, 1, 2, 1, 0]),
    "empty": np.empty((0, 4), dtype=np.float32),
}


def write(folder: Path, *, replace: bool = False, mark: int = 1) -> None:
    with CacheWriter(folder, KEY, replace=replace) as writer:
        for name, array in ARRAYS.items():
            writer.write(name, array)
        writer.properties["mark"] = mark


@pytest.fixture
def folder(tmp_path):
    folder = cache_folder(tmp_path / "cache", "toy", KEY)
    write(folder)
    return folder


def edit_meta(folder: Path, *, seal: bool, **changes: Any) -> None:
    """Changes `meta.json`; `seal` makes its checksum right again."""
    path = folder / "meta.json"
    meta = {**json.loads(path.read_text()), **changes}
    if seal:
        del meta["digest"]
        meta["digest"] = cache_module._digest(meta)
    path.write_text(json.dumps(meta))


def test_what_was_written_is_read(folder):
    cached = open_cache(folder, KEY, mapped=frozenset({"features", "empty"}))
    assert cached.properties == {"mark": 1}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(cached.arrays[name].numpy(), array)
        assert cached.arrays[name].numpy().dtype == array.dtype
    assert os.listdir(folder.parent) == [folder.name]
    assert sorted(os.listdir(folder)) == ["empty.npy", "features.npy", "labels.npy", "meta.json"]
    np.testing.assert_array_equal(np.load(folder / "features.npy"), ARRAYS["features"])


def test_writing_to_a_mapped_tensor_leaves_the_file(folder):
    before = (folder / "features.npy").read_bytes()
    open_cache(folder, KEY, mapped=frozenset({"features"})).arrays["features"].zero_()
    assert (folder / "features.npy").read_bytes() == before


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to see the memory in use")
def test_mapped_features_are_not_read_into_memory(tmp_path):
    folder = tmp_path / "cache" / "large"
    rows, columns = 1 << 16, 256  # 64 MiB
    with CacheWriter(folder, KEY) as writer, writer.stream("features", (rows, columns), np.float32) as out:
        for at in range(0, rows, rows // 4):
            out.append(np.full((rows // 4, columns), at, dtype=np.float32))

    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident_bytes()
    features = open_cache(folder, KEY, mapped=frozenset({"features"})).arrays["features"]
    assert features[-1, 0] == rows - rows // 4
    assert resident_bytes() - before < 16 << 20
    assert float(features.sum()) > 0
    assert resident_bytes() - before > 48 << 20  # so the measure above would have seen it


def test_a_truncated_file_is_named(folder):
    with open(folder / "features.npy", "r+b") as file:
        file.truncate(150)
    with pytest.raises(
        CacheError, match=r"features\.npy cannot be used: it has 150 bytes, .* truncated\?; delete .*toy"
    ):
        open_cache(folder, KEY)


@pytest.mark.parametrize("name", ["labels.npy", "meta.json"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(CacheError, match=f"{name} cannot be used: the file is missing.*rebuild=true"):
        open_cache(folder, KEY)


def test_an_exchanged_file_is_named(folder):
    array = np.array([0.0, 1.0, 2.0, 1.0, 0.0])
    np.save(folder / "labels.npy", array)
    with pytest.raises(CacheError, match=r"labels\.npy cannot be used: it holds float64 \[5\]"):
        open_cache(folder, KEY)
    (folder / "labels.npy").write_bytes(b"x" * (128 + 40))
    with pytest.raises(CacheError, match=r"labels\.npy cannot be used: it is no \.npy file"):
        open_cache(folder, KEY)


@pytest.mark.parametrize(
    ("seal", "changes", "message"),
    [
        (True, {"format": "something else"}, "it is not a 'gnn-loader dataset'"),
        (True, {"version": 99}, "its format version is 99, this release reads"),
        (False, {"properties": {"mark": 2}}, "its checksum is wrong"),
        (True, {"key": {"dataset": "other"}}, "made from another source or other options"),
    ],
)
def test_a_foreign_meta_is_refused(folder, seal, changes, message):
    edit_meta(folder, seal=seal, **changes)
    with pytest.raises(CacheError, match=message):
        open_cache(folder, KEY)


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_meta_that_is_no_meta_is_refused(folder, text):
    (folder / "meta.json").write_text(text)
    with pytest.raises(CacheError, match=r"meta\.json cannot be used"):
        open_cache(folder, KEY)


def test_another_source_or_option_has_another_place(tmp_path):
    other = {**KEY, "options": {"undirected": False}}
    assert cache_folder(tmp_path, "toy", KEY) != cache_folder(tmp_path, "toy", other)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("bad")])
def test_an_interrupted_conversion_leaves_nothing(tmp_path, error):
    def interrupted() -> None:
        with CacheWriter(tmp_path / "cache" / "toy", KEY) as writer:
            writer.write("labels", ARRAYS["labels"])
            (writer.scratch / "file").touch()
            raise error

    with pytest.raises(type(error)):
        interrupted()
    assert os.listdir(tmp_path / "cache") == []


def test_a_disk_that_fills_up_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    def full(self: ArrayWriter, part: np.ndarray) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ArrayWriter, "append", full)
    with pytest.raises(CacheError, match=r"the disk is full: .* MB left.*set cache_dir to another disk") as caught:
        write(tmp_path / "cache" / "toy")
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path / "cache") == []


def test_an_array_larger_than_the_disk_is_refused_before_it_is_written(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1000, 990, 10))
    with pytest.raises(CacheError, match="the disk is full"):
        write(tmp_path / "cache" / "toy")
    assert os.listdir(tmp_path / "cache") == []


def test_a_disk_that_is_full_at_the_end_leaves_nothing(tmp_path, monkeypatch):
    def full(value: object, file: object, **_: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(CacheError, match="the disk is full"):
        write(tmp_path / "cache" / "toy")
    assert os.listdir(tmp_path / "cache") == []


def test_a_library_that_says_something_else_on_a_full_disk_is_understood(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")

    def fail() -> None:
        with CacheWriter(tmp_path / "cache" / "toy", KEY):
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")

    with pytest.raises(RuntimeError, match="unexpected pos"):
        fail()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 30, 1 << 30, 4096))
    with pytest.raises(CacheError, match="the disk is full"):
        fail()
    assert os.listdir(tmp_path / "cache") == []


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(CacheError, match=r"cannot write the cache folder .*; set cache_dir"):
        write(tmp_path / "cache" / "toy")


def test_leftovers_of_killed_processes_are_removed_but_not_those_of_live_ones(tmp_path):
    root = tmp_path / "cache"
    dead = root / ".toy.tmp-1-dead"
    dead.mkdir(parents=True)
    (dead / "lock").touch()
    (dead / "features.npy").touch()
    with CacheWriter(root / "other", KEY) as live:
        write(root / "toy")
        assert not dead.exists()
        live.write("labels", ARRAYS["labels"])
    assert sorted(os.listdir(root)) == ["other", "toy"]


def test_of_two_conversions_at_once_the_first_to_finish_wins(tmp_path):
    folder = tmp_path / "cache" / "toy"
    with CacheWriter(folder, KEY) as slow:
        write(folder, mark=1)
        slow.write("labels", ARRAYS["labels"])
        slow.properties["mark"] = 2
    assert open_cache(folder, KEY).properties == {"mark": 1}
    assert os.listdir(folder.parent) == ["toy"]


def test_a_rebuilt_conversion_replaces_the_old_one(folder):
    write(folder, replace=True, mark=2)
    assert open_cache(folder, KEY).properties == {"mark": 2}
    assert os.listdir(folder.parent) == [folder.name]


def test_a_stream_wants_all_rows_and_of_its_shape(tmp_path):
    with (
        pytest.raises(ValueError, match="2 rows were written of 5"),
        CacheWriter(tmp_path / "cache" / "toy", KEY) as writer,
        writer.stream("features", (5, 4), np.float32) as out,
    ):
        out.append(np.zeros((2, 4)))
    with (
        pytest.raises(ValueError, match=r"rows of shape \(3,\); they must be \(4,\)"),
        CacheWriter(tmp_path / "cache" / "toy", KEY) as writer,
        writer.stream("features", (5, 4), np.float32) as out,
    ):
        out.append(np.zeros((2, 3)))


def test_open_arrays_need_no_file_any_more(folder):
    arrays = open_cache(folder, KEY, mapped=frozenset({"features"})).arrays
    shutil.rmtree(folder)
    assert torch.equal(arrays["features"], torch.from_numpy(ARRAYS["features"]))

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conversions import ARRAYS, KEY, write

from loader.datasets import CacheError
from loader.datasets import cache as cache_module
from loader.datasets.cache import cache_folder, current_version, open_cache, read_current_meta, read_meta
from loader.datasets.cache_lock import conversion_lock
from loader.datasets.cache_writer import CacheWriter


@pytest.fixture
def folder(tmp_path):
    folder = cache_folder(tmp_path / "cache", "toy", KEY)
    write(folder)
    return folder


def edit_meta(folder: Path, *, seal: bool, **changes: Any) -> None:
    """Changes `meta.json`; `seal` makes its checksum right again."""
    path = current_version(folder) / "meta.json"
    meta = {**json.loads(path.read_text()), **changes}
    if seal:
        del meta["digest"]
        meta["digest"] = cache_module.digest(meta)
    path.write_text(json.dumps(meta))


def test_written_arrays_are_read_back(folder):
    cached = open_cache(folder, KEY, mapped=frozenset({"features", "empty"}))
    assert cached.properties == {"mark": 1}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(cached.arrays[name].numpy(), array)
        assert cached.arrays[name].numpy().dtype == array.dtype
    assert os.listdir(folder.parent) == [folder.name]
    version = current_version(folder)
    assert sorted(os.listdir(folder)) == ["current", "lock", version.name]
    assert sorted(os.listdir(version)) == ["empty.npy", "features.npy", "labels.npy", "marks.npy", "meta.json"]
    np.testing.assert_array_equal(np.load(version / "features.npy"), ARRAYS["features"])


def test_writing_to_a_mapped_tensor_leaves_the_file(folder):
    before = (current_version(folder) / "features.npy").read_bytes()
    open_cache(folder, KEY, mapped=frozenset({"features"})).arrays["features"].zero_()
    assert (current_version(folder) / "features.npy").read_bytes() == before


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to see the memory in use")
def test_mapped_features_are_not_read_into_memory(tmp_path):
    folder = tmp_path / "cache" / "large"
    rows, columns = 1 << 16, 256  # 64 MiB
    with (
        conversion_lock(folder),
        CacheWriter(folder, KEY) as writer,
        writer.stream("features", (rows, columns), np.float32) as out,
    ):
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
    with open(current_version(folder) / "features.npy", "r+b") as file:
        file.truncate(150)
    with pytest.raises(
        CacheError,
        match=r"features\.npy cannot be used: it has 150 bytes, .* truncated\?; delete .*-[0-9a-f]{12}, or",
    ):
        open_cache(folder, KEY)


@pytest.mark.parametrize("name", ["labels.npy", "meta.json"])
def test_a_missing_file_is_named(folder, name):
    (current_version(folder) / name).unlink()
    with pytest.raises(CacheError, match=f"{name} cannot be used: the file is missing.*rebuild=true"):
        open_cache(folder, KEY)


def test_an_exchanged_file_is_named(folder):
    array = np.array([0.0, 1.0, 2.0, 1.0, 0.0])
    np.save(current_version(folder) / "labels.npy", array)
    with pytest.raises(CacheError, match=r"labels\.npy cannot be used: it holds float64 \[5\]"):
        open_cache(folder, KEY)
    (current_version(folder) / "labels.npy").write_bytes(b"x" * (128 + 40))
    with pytest.raises(CacheError, match=r"labels\.npy cannot be used: it is no \.npy file"):
        open_cache(folder, KEY)


@pytest.mark.parametrize(
    ("seal", "changes", "message"),
    [
        (True, {"format": "something else"}, "it is not a 'gnn-loader dataset'"),
        (True, {"arrays": [1, 2]}, "it lacks a part that every conversion has"),
        (True, {"version": 99}, "its format version is 99, this release reads"),
        (False, {"properties": {"mark": 2}}, "its checksum is wrong"),
        (True, {"key": {"dataset": "other"}}, "made from another source or other options"),
    ],
)
def test_a_foreign_meta_is_refused(folder, seal, changes, message):
    edit_meta(folder, seal=seal, **changes)
    with pytest.raises(CacheError, match=message):
        open_cache(folder, KEY)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "\udc80"])
def test_a_meta_that_is_no_meta_is_refused(folder, text):
    (current_version(folder) / "meta.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(CacheError, match=r"meta\.json cannot be used"):
        open_cache(folder, KEY)


@pytest.mark.parametrize("name", ["features", "marks"])
def test_a_flipped_bit_is_named_on_reading(folder, name):
    path = current_version(folder) / f"{name}.npy"
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)
    message = rf"{name}\.npy cannot be used: bytes 128 to {len(data) - 1} are not those that were written; .*rebuild"
    with pytest.raises(CacheError, match=message):
        open_cache(folder, KEY)
    open_cache(folder, KEY, mapped=frozenset({name}))  # which nobody has read yet
    with pytest.raises(CacheError, match=message):
        open_cache(folder, KEY, mapped=frozenset({name}), verify=True)


def test_each_part_has_its_own_checksum(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "_PART", 1000)
    folder = cache_folder(tmp_path, "toy", KEY)
    write(folder, mark=7)  # 8000 bytes
    open_cache(folder, KEY, verify=True)
    path = current_version(folder) / "marks.npy"
    data = bytearray(path.read_bytes())
    data[128 + 7500] ^= 1
    path.write_bytes(data)
    with pytest.raises(CacheError, match="bytes 7128 to 8127 are not"):
        open_cache(folder, KEY)


@pytest.mark.parametrize("name", ["current", "meta.json", "labels.npy"])
def test_a_fifo_as_a_file_is_refused(folder, name):
    path = folder / name if name == "current" else current_version(folder) / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CacheError, match=f"{name} cannot be used: it cannot be read .*not a regular file"):
        open_cache(folder, KEY)


@pytest.mark.parametrize("text", ["", "../elsewhere", "version-0123"])
def test_the_pointer_may_name_only_a_version(folder, text):
    (folder / "current").write_text(text)
    with pytest.raises(CacheError, match=r"current cannot be used: it holds .* which is no version"):
        open_cache(folder, KEY)


def test_a_reader_whose_version_was_replaced_begins_again(folder, monkeypatch):
    read = cache_module._read_array

    def slow(version: Path, file: Any, name: str, *args: Any, **options: Any) -> Any:
        if name == "features" and len(writes) < 3:
            writes.append(1)
            write(folder, mark=1 + len(writes))
        return read(version, file, name, *args, **options)

    writes: list[int] = []
    monkeypatch.setattr(cache_module, "_read_array", slow)
    cached = open_cache(folder, KEY)
    assert cached.properties == {"mark": 4}
    assert set(cached.arrays["marks"].tolist()) == {4}


def test_a_meta_that_was_replaced_is_read_anew(folder, monkeypatch):
    def slow(version: Path) -> Any:
        if len(writes) < 3:
            writes.append(1)
            write(folder, mark=1 + len(writes))
        return read_meta(version)

    writes: list[int] = []
    monkeypatch.setattr(cache_module, "read_meta", slow)
    assert read_current_meta(folder)["properties"] == {"mark": 4}


def test_another_source_or_option_has_another_place(tmp_path):
    other = {**KEY, "options": {"undirected": False}}
    assert cache_folder(tmp_path, "toy", KEY) != cache_folder(tmp_path, "toy", other)


def test_open_arrays_need_no_file_any_more(folder):
    arrays = open_cache(folder, KEY, mapped=frozenset({"features"})).arrays
    shutil.rmtree(folder)
    assert torch.equal(arrays["features"], torch.from_numpy(ARRAYS["features"]))


class TestTrust:
    """What others can have written is not read."""

    @pytest.fixture
    def toy(self, tmp_path):
        return cache_folder(tmp_path / "cache", "toy", KEY)

    @pytest.mark.parametrize("which", ["current", "meta.json", "features.npy", "the version"])
    def test_parts_that_others_write_are_refused(self, toy, which):
        write(toy)
        version = current_version(toy)
        path = version if which == "the version" else toy / which if which == "current" else version / which
        path.chmod(path.stat().st_mode | 0o022)
        with pytest.raises(
            CacheError, match=rf"{path} is not trusted: others can write .* or set dataset.rebuild=true"
        ):
            open_cache(toy, KEY)

    def test_what_is_made_is_private_by_any_umask(self, toy):
        before = os.umask(0)
        try:
            write(toy)
        finally:
            os.umask(before)
        assert open_cache(toy, KEY).properties == {"mark": 1}
        for path in (toy.parent, toy, current_version(toy)):
            assert path.stat().st_mode & 0o777 == 0o700
        assert not [path for path in toy.rglob("*") if path.stat().st_mode & 0o022]

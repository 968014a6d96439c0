from __future__ import annotations

import os
from pathlib import Path

import pytest
from marks import needs_root

from loader.datasets import CacheError
from loader.datasets.locations import fingerprint, is_writable, resolve_cache_dir, stage, trusted_conversion


@pytest.fixture
def read_only(tmp_path):
    folder = tmp_path / "given"
    folder.mkdir()
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)


def test_root_respects_folders_without_write_permission(read_only):
    assert not is_writable(read_only)
    assert not is_writable(read_only / "not" / "there")
    assert is_writable(read_only.parent / "not" / "there")


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    assert not is_writable(tmp_path / "file" / "below")


def test_the_cache_goes_beside_writable_data(tmp_path, read_only, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert resolve_cache_dir(None, tmp_path) == tmp_path / "cache"
    assert resolve_cache_dir(None, read_only) == tmp_path / "home" / "gnn-loader"
    assert resolve_cache_dir(tmp_path / "mine", read_only) == tmp_path / "mine"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert resolve_cache_dir(None, read_only) == Path.home() / ".cache" / "gnn-loader"


def test_stage_links_files_that_a_fingerprint_tells_apart(tmp_path):
    source = tmp_path / "source" / "raw"
    source.mkdir(parents=True)
    (source / "a").write_text("one")
    stage(source.parent, ["raw/a"], tmp_path / "target")
    assert (tmp_path / "target" / "raw" / "a").read_text() == "one"
    before = fingerprint(source.parent, ["raw/a"])
    (source / "a").write_text("other")
    assert fingerprint(source.parent, ["raw/a"]) != before


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "gnn-loader"


def test_a_conversion_of_others_is_replaced(own, tmp_path, caplog):
    folder = tmp_path / "cache" / "toy-0123456789ab"
    assert trusted_conversion(folder) == folder  # which is not there
    folder.mkdir(parents=True)
    assert trusted_conversion(folder) == folder
    assert not caplog.records
    folder.chmod(0o770)
    assert trusted_conversion(folder) == own / folder.name
    (line,) = [record.message for record in caplog.records]
    assert line.startswith(f"{folder} is not trusted: others can write to it (mode 0770); ")
    assert line.endswith(f"`chmod -R go-w {folder}`. The conversion in {own / folder.name} is used in its place")


def test_without_a_trusted_place_an_error_helps(own, tmp_path):
    folder = tmp_path / "cache" / "toy-0123456789ab"
    for path in (folder, own / folder.name):
        path.mkdir(parents=True)
        path.chmod(0o777)
    with pytest.raises(CacheError, match=rf"^{own / folder.name} is not trusted: .* or set cache_dir to another"):
        trusted_conversion(folder)


@needs_root
def test_another_users_conversion_is_not_used(own, tmp_path):
    folder = tmp_path / "cache" / "toy-0123456789ab"
    folder.mkdir(parents=True)
    os.chown(folder, 1000, 1000)
    assert trusted_conversion(folder) == own / folder.name

from __future__ import annotations

from pathlib import Path

import pytest

from loader.datasets.locations import fingerprint, is_writable, resolve_cache_dir, stage


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

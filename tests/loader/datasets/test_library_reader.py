from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch

from loader.datasets import CacheError, DatasetError, EdgeList
from loader.datasets.library_reader import ReaderDataset


class Toy(ReaderDataset):
    """A reader that downloads two files and, like real ones, prints and writes beside them."""

    def __init__(self, **options: Any) -> None:
        super().__init__("toy", **options)
        self.folder = "group/toy"
        self.files = ("raw/edges.npy", "raw/features.npy")
        self.origin = "https://example.org/toy.zip"
        self.failure: BaseException | None = None

    def open_reader(self, root: Path) -> Path:
        home = root / self.folder
        if not (home / "raw").exists():
            (home / "raw").mkdir(parents=True)
            np.save(home / "raw" / "edges.npy", np.array([[0, 1], [1, 2]]))
            if self.failure is not None:
                raise self.failure
            np.save(home / "raw" / "features.npy", np.zeros((3, 2)))
        (home / "processed").mkdir()
        print("Processing...")
        return home

    def extract(self, reader: Path) -> EdgeList:
        src, dst = np.load(reader / "raw" / "edges.npy")
        features = np.load(reader / "raw" / "features.npy")
        splits = {split: torch.tensor([v]) for v, split in enumerate(("train", "val", "test"))}
        return EdgeList(src=src, dst=dst, features=features, labels=np.array([0, 1, 0]), splits=splits)


@pytest.fixture
def toy(tmp_path):
    return lambda **options: Toy(data_dir=tmp_path / "data", cache_dir=tmp_path / "cache", **options)


def test_absent_files_are_downloaded_once_and_complete(toy, tmp_path, capsys):
    assert toy().load().num_nodes == 3
    assert sorted(os.listdir(tmp_path / "data")) == ["group"]
    offline = toy()
    offline.failure = URLError("no network")
    assert offline.load().graph.num_edges == 4
    assert "Processing" not in capsys.readouterr().err


def test_read_only_data_are_left_unchanged(toy, tmp_path):
    toy().load()
    home = tmp_path / "data" / "group" / "toy"
    (home / "processed").rmdir()
    folders = [home, home / "raw", home.parent, tmp_path / "data"]
    for folder in folders:
        folder.chmod(0o555)
    try:
        before = sorted(tmp_path.glob("data/**/*"))
        assert toy(undirected=False).load().graph.num_edges == 2
        assert sorted(tmp_path.glob("data/**/*")) == before
    finally:
        for folder in folders:
            folder.chmod(0o755)
    (cached,) = [f for f in (tmp_path / "cache").iterdir() if not (f / "scratch").exists()][:1]
    assert cached.is_dir()
    assert not list((tmp_path / "cache").glob(".*"))


@pytest.mark.parametrize("failure", [URLError("no network"), SystemExit(-1), EOFError("EOF when reading a line")])
def test_a_failed_download_leaves_nothing(toy, tmp_path, failure):
    dataset = toy()
    dataset.failure = failure
    with pytest.raises(DatasetError) as caught:
        dataset.load()
    message = str(caught.value)
    assert message.startswith(
        f"toy is not in {tmp_path}/data/group/toy, and its download failed ({type(failure).__name__}"
    )
    assert message.endswith("get it from https://example.org/toy.zip, or set data_dir to the folder that has group/toy")
    assert "\n" not in message
    assert os.listdir(tmp_path / "data") == []


def test_nothing_is_downloaded_into_a_read_only_folder(toy, tmp_path):
    (tmp_path / "data").mkdir(mode=0o555)
    with pytest.raises(DatasetError, match="read-only, so nothing is downloaded; get it from https"):
        toy().load()


def test_an_empty_folder_is_no_obstacle(toy, tmp_path):
    (tmp_path / "data" / "group" / "toy" / "raw").mkdir(parents=True)
    assert toy().load().num_nodes == 3


def test_other_files_in_the_folder_survive_a_download(toy, tmp_path):
    home = tmp_path / "data" / "group" / "toy"
    home.mkdir(parents=True)
    (home / "notes.txt").write_text("mine")
    assert toy().load().num_nodes == 3
    assert (home / "notes.txt").read_text() == "mine"
    assert (home / "raw" / "edges.npy").is_file()


def test_missing_files_are_listed(toy, tmp_path):
    toy().load()
    (tmp_path / "data" / "group" / "toy" / "raw" / "features.npy").unlink()
    with pytest.raises(DatasetError, match=r"not complete in .*: raw/features\.npy missing \(1 of 2 files\)"):
        toy().load()


def test_damaged_files_and_full_disks_have_different_errors(toy, tmp_path, monkeypatch):
    toy().load()
    (tmp_path / "data" / "group" / "toy" / "raw" / "features.npy").write_bytes(b"no array")
    with pytest.raises(DatasetError, match=r"the files in .* cannot be read .*copy them again"):
        toy().load()

    def full(self: Toy, root: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Toy, "open_reader", full)
    with pytest.raises(CacheError, match="the disk is full"):
        toy().load()


@pytest.mark.parametrize("pickled", [True, False])
def test_pickles_that_others_write_are_refused(toy, tmp_path, pickled):
    toy().load()
    path = tmp_path / "data" / "group" / "toy" / "raw" / "features.npy"
    path.chmod(0o666)
    again = toy(undirected=False)
    again.pickled = pickled
    if not pickled:
        assert again.load().graph.num_edges == 2
        return
    with pytest.raises(
        DatasetError, match=rf"toy: {path} is not trusted: others .*chmod go-w.* pickled file runs code"
    ):
        again.load()


def test_a_download_is_trusted_by_any_umask(toy, tmp_path):
    before = os.umask(0o002)
    try:
        made = toy()
        made.pickled = True
        assert made.load().graph.num_nodes == 3
    finally:
        os.umask(before)


def test_what_is_exchanged_amid_reading_is_not_read(toy, tmp_path, monkeypatch):
    """Whoever can write to the folder of the cache can put another folder in its place."""
    toy().load()
    again = toy(undirected=False)
    again.pickled = True

    def exchanging(self: Toy, root: Path) -> Path:
        (scratch,) = (tmp_path / "cache").glob("*/version-*/scratch")
        conversion = scratch.parent.parent
        conversion.rename(tmp_path / "cache" / "moved")
        (scratch / self.folder / "raw").mkdir(parents=True)
        (scratch / self.folder / "raw" / "edges.npy").write_bytes(b"planted")
        (tmp_path / "data").rename(tmp_path / "moved data")
        try:
            return open_reader(self, root)
        finally:
            (tmp_path / "moved data").rename(tmp_path / "data")
            shutil.rmtree(conversion)
            (tmp_path / "cache" / "moved").rename(conversion)

    open_reader = Toy.open_reader
    monkeypatch.setattr(Toy, "open_reader", exchanging)
    assert again.load().graph.num_edges == 2

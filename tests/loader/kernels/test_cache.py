"""The cache of compiled kernels: whatever happens to its files, a kernel is right or made again."""

from __future__ import annotations

import errno
import multiprocessing
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from marks import needs_root

from loader.kernels import cache
from loader.kernels.__main__ import main

ENTRY = cache.Entry("loader::a_kernel<10>", 90, "NVRTC 13.0", "_Z8a_kernel", bytes(range(256)) * 40)
KEY = cache.key_of("a", "b")
KEYS = (KEY, cache.key_of("c"), cache.key_of("d"))
PROGRAM = {key: replace(ENTRY, name=f"kernel_{i}", symbol=f"_Z{i}") for i, key in enumerate(KEYS)}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOADER_KERNEL_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setattr(cache, "_warned", set())
    return tmp_path / "kernels"


def file_in(folder: Path) -> Path:
    (path,) = folder.glob("*.kernel")
    return path


def test_a_written_kernel_is_read_back(folder: Path) -> None:
    assert cache.read(KEY) is None
    cache.write({KEY: ENTRY})
    assert cache.read(KEY) == ENTRY
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.kernel"]  # no draft is left


class TestProgramOfSeveral:
    """Kernels that have one code are one file with a name per kernel."""

    def test_each_is_read_by_its_key(self, folder: Path) -> None:
        cache.write(PROGRAM)
        assert {key: cache.read(key) for key in KEYS} == PROGRAM
        assert len({path.stat().st_ino for path in folder.iterdir()}) == 1
        assert len(list(folder.iterdir())) == 3
        cache.remove(KEY)
        assert [cache.read(key) is None for key in KEYS] == [True, False, False]

    def test_one_can_be_made_again(self, folder: Path) -> None:
        cache.write(PROGRAM)
        file = next(folder.glob("*.kernel"))
        file.write_bytes(b"")
        assert [cache.read(key) for key in KEYS] == [None] * 3
        cache.write({KEY: ENTRY})
        assert [cache.read(key) for key in KEYS] == [ENTRY, None, None]
        cache.write(PROGRAM)
        assert {key: cache.read(key) for key in KEYS} == PROGRAM

    def test_without_links_each_has_a_file(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_links(name: Path, _whole: Path) -> None:
            raise OSError(errno.EPERM, "Operation not permitted", str(name))

        monkeypatch.setattr(Path, "hardlink_to", no_links)
        cache.write(PROGRAM)
        assert {key: cache.read(key) for key in KEYS} == PROGRAM
        assert len({path.stat().st_ino for path in folder.iterdir()}) == 3

    def test_the_list_counts_a_file_once(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        cache.write({key: replace(entry, code=bytes(2**20)) for key, entry in PROGRAM.items()})
        assert main([]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"{folder}: 3 for sm_90 by NVRTC 13.0 (1.0 MiB)"


@pytest.mark.parametrize("size", [0, 5, 30, 60, 200, 9000, 10_000])
def test_a_truncated_file_is_as_good_as_none(size: int, folder: Path) -> None:
    cache.write({KEY: ENTRY})
    path = file_in(folder)
    path.write_bytes(path.read_bytes()[:size])
    assert cache.read(KEY) is None
    assert [entry for _, entry in cache.entries()] == [None]
    cache.write({KEY: ENTRY})
    assert cache.read(KEY) == ENTRY


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_is_found(tmp_path_factory: pytest.TempPathFactory, at: int, bit: int) -> None:
    folder = tmp_path_factory.mktemp("flipped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOADER_KERNEL_CACHE", str(folder))
        cache.write({KEY: ENTRY})
        path = file_in(folder)
        data = bytearray(path.read_bytes())
        data[at % len(data)] ^= 1 << bit
        path.write_bytes(data)
        assert cache.read(KEY) is None


def test_a_file_under_another_name_is_not_taken(folder: Path) -> None:
    cache.write({KEY: ENTRY})
    other = cache.key_of("c")
    file_in(folder).rename(folder / f"{other}.kernel")
    assert cache.read(other) is None


def test_parts_of_a_key_do_not_run_together() -> None:
    assert cache.key_of("ab", "c") != cache.key_of("a", "bc")
    assert cache.key_of("ab") != cache.key_of("a", "b")


def test_without_a_home_kernels_are_not_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("LOADER_KERNEL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cache.read(KEY) is None
    cache.write({KEY: ENTRY})
    cache.remove(KEY)
    assert list(cache.entries()) == []
    (line,) = capsys.readouterr().err.splitlines()
    assert "each start compiles them" in line
    assert line.endswith("LOADER_KERNEL_CACHE can name another folder")


@pytest.mark.parametrize("blocked", ["a file in its place", "a folder that cannot be made"])
def test_a_read_only_folder_costs_one_line(
    blocked: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if blocked == "a file in its place":
        folder.write_text("")
    else:
        monkeypatch.setenv("LOADER_KERNEL_CACHE", "/proc/no-such-folder/kernels")
    for _ in range(3):
        cache.write({KEY: ENTRY})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "each start compiles them" in lines[0]
    assert cache.read(KEY) is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_no_part(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def on_full_disk(_path: Path, data: bytes) -> int:
        with open("/dev/full", "wb") as file:
            return file.write(data)

    monkeypatch.setattr(Path, "write_bytes", on_full_disk)
    cache.write({KEY: ENTRY})
    assert "No space left" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def _write_and_read(folder: str, start: object) -> None:
    os.environ["LOADER_KERNEL_CACHE"] = folder
    start.wait()  # type: ignore[attr-defined]
    for _ in range(50):
        cache.write({KEY: ENTRY})
        assert cache.read(KEY) == ENTRY


def test_eight_processes_may_write_at_once(folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Barrier(8)
    workers = [context.Process(target=_write_and_read, args=(str(folder), start)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.kernel"]


class TestTrust:
    """A kernel is code: what somebody else can have written is not read."""

    @pytest.fixture(autouse=True)
    def home(self, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
        return tmp_path / "home" / "gnn-loader" / "kernels"

    def test_new_folders_are_private(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LOADER_KERNEL_CACHE", str(folder / "a" / "b"))
        before = os.umask(0)
        try:
            cache.write({KEY: ENTRY})
        finally:
            os.umask(before)
        assert [path.stat().st_mode & 0o777 for path in (folder, folder / "a", folder / "a" / "b")] == [0o700] * 3
        assert cache.read(KEY) == ENTRY

    @pytest.mark.parametrize("mode", [0o666, 0o664, 0o642])
    def test_a_file_that_others_write_is_made_again(
        self, folder: Path, mode: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cache.write({KEY: ENTRY})
        file_in(folder).chmod(mode)
        assert cache.read(KEY) is None
        assert cache.read(KEY) is None
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(
            f"gnn-loader: {file_in(folder)} is not trusted: others can write to it (mode {mode:04o})"
        )
        assert [entry for _, entry in cache.entries()] == [None]
        cache.write({KEY: ENTRY})
        assert cache.read(KEY) == ENTRY

    @needs_root
    def test_another_users_file_is_made_again(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        cache.write({KEY: ENTRY})
        os.chown(file_in(folder), 1000, 1000)
        assert cache.read(KEY) is None
        assert "user 1000 owns it" in capsys.readouterr().err

    @pytest.mark.parametrize("kind", ["FIFO", "link", "folder"])
    def test_what_is_no_file_is_not_waited_for(self, folder: Path, kind: str, tmp_path: Path) -> None:
        cache.write({KEY: ENTRY})
        path = file_in(folder)
        path.replace(tmp_path / "kernel")
        make = {"FIFO": lambda: os.mkfifo(path), "link": lambda: path.symlink_to(tmp_path / "kernel")}
        make.get(kind, path.mkdir)()
        assert cache.read(KEY) is None
        assert [entry for _, entry in cache.entries()] == [None]
        cache.write({KEY: ENTRY})
        assert cache.read(KEY) == (None if kind == "folder" else ENTRY)

    @pytest.mark.parametrize("who", ["others write there", "another user's", "others write above"])
    def test_a_private_folder_is_taken_in_place(
        self, folder: Path, home: Path, who: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cache.write({KEY: ENTRY})
        shared = folder
        if who == "another user's":
            if os.geteuid() != 0:
                pytest.skip("needs root, to make a folder of another user")
            os.chown(folder, 1000, 1000)
        else:
            shared = folder if who == "others write there" else folder.parent
            shared.chmod(0o777)
        assert cache.read(KEY) is None
        cache.write({KEY: ENTRY})
        assert cache.read(KEY) == ENTRY
        expected = home
        if who == "others write above":  # of both
            expected = Path(tempfile.gettempdir()) / f"gnn-loader-{os.geteuid()}" / "kernels"
        assert cache.folder() == expected
        assert expected.stat().st_mode & 0o777 == 0o700
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith(f"gnn-loader: {shared} is not trusted: ")
        assert lines[0].endswith(f"Kernels are code, so they lie in {expected} meanwhile")
        assert len(lines) == (2 if who == "others write above" else 1)

    def test_nothing_is_kept_where_no_folder_is_private(
        self, folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for path in (folder, home):
            path.mkdir(parents=True)
            path.chmod(0o777)
        monkeypatch.setattr(tempfile, "tempdir", str(home))
        cache.write({KEY: ENTRY})
        assert cache.read(KEY) is None
        assert list(folder.iterdir()) == list(home.iterdir()) == []
        assert "so they are not kept meanwhile" in capsys.readouterr().err

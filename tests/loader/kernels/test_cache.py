"""The cache of compiled kernels: whatever happens to its files, a kernel is right or made again."""

from __future__ import annotations

import errno
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

"""Who converts: one process at a time, beside readers and rebuilders, and what is removed."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from conversions import ARRAYS, KEY, write
from marks import needs_root

from loader.datasets import CacheError
from loader.datasets import cache_lock as lock_module
from loader.datasets.cache import current_version, open_cache
from loader.datasets.cache_lock import conversion_lock
from loader.datasets.cache_writer import CacheWriter

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def toy(tmp_path):
    return tmp_path / "cache" / "toy-0123456789ab"


def killed(folder: Path) -> Path:
    """What a killed conversion leaves."""
    left = folder / "version-00000000deadbeef"
    left.mkdir(parents=True)
    (left / "features.npy").touch()
    (folder / ".version-00000000deadbeef").touch()
    (folder / "lock").touch()
    return left


def test_only_leftovers_of_killed_processes_are_removed(toy):
    dead, own = killed(toy.parent / "dead-0123456789ab"), killed(toy)
    other = toy.parent / "other-0123456789ab"
    with conversion_lock(other), CacheWriter(other, KEY) as captured:
        write(toy)
        assert not own.exists()
        assert not dead.parent.exists()
        captured.write("labels", ARRAYS["labels"])
    assert sorted(os.listdir(toy.parent)) == [other.name, toy.name]


def test_foreign_files_are_not_removed(toy):
    strangers = [
        toy.parent / "stranger" / "version-00000000deadbeef" / "file",  # no folder of a conversion
        toy.parent / "stranger" / "lock",
        toy / "notes.txt",
        toy / "version-mine",
    ]
    for path in strangers:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    write(toy)
    assert all(path.exists() for path in strangers)


def test_what_a_link_points_to_is_not_removed(toy, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    toy.parent.mkdir()
    (toy.parent / "other-0123456789ab").symlink_to(elsewhere)
    write(toy)
    assert (elsewhere / "lock").exists()


def test_a_second_conversion_waits_for_the_first(toy, caplog):
    caplog.set_level("INFO")
    with conversion_lock(toy), CacheWriter(toy, KEY) as writer:
        other = threading.Thread(target=write, args=(toy,), kwargs={"mark": 2})
        other.start()
        while "waiting for it" not in caplog.text:
            assert other.is_alive()
            time.sleep(0.001)
        writer.write("labels", ARRAYS["labels"])
        writer.properties["mark"] = 1
    other.join()
    assert open_cache(toy, KEY).properties == {"mark": 2}


def test_a_waiting_process_makes_a_removed_folder_again(toy, caplog):
    caplog.set_level("INFO")
    with conversion_lock(toy):  # which converts nothing, so the folder and its lock are removed
        other = threading.Thread(target=write, args=(toy,))
        other.start()
        while "waiting for it" not in caplog.text:
            assert other.is_alive()
            time.sleep(0.001)
    other.join()
    assert open_cache(toy, KEY).properties == {"mark": 1}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_a_lock_that_is_no_file_is_refused(toy, make):
    toy.mkdir(parents=True)
    make(toy / "lock")
    with pytest.raises(CacheError, match=r"the lock .*toy-.*/lock is not a regular file, .*remove it"):
        write(toy)
    with conversion_lock(toy.parent / "other-0123456789ab"):
        pass  # which looks for leftovers in all folders


def test_an_impossible_cache_folder_is_named(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(CacheError, match=r"cannot write the cache folder .*; set cache_dir"):
        write(tmp_path / "cache" / "toy")


def test_without_locks_files_in_use_are_kept(toy, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    dead = killed(toy)
    write(toy)
    assert dead.exists()
    assert open_cache(toy, KEY).properties == {"mark": 1}


def test_a_damaged_pointer_removes_no_version(toy):
    write(toy)
    version = current_version(toy)
    (toy / "current").write_text("nonsense")
    with conversion_lock(toy):
        assert version.exists()


def test_readers_and_rebuilders_do_not_meet(toy):
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from conversions import KEY, write
        from loader.datasets.cache import open_cache

        role, folder, mark = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
        for turn in range(40 if role == "write" else 200):
            if role == "write":
                write(folder, mark=mark + turn)
            else:
                cached = open_cache(folder, KEY, mapped=frozenset({"features"}), verify=True)
                assert set(cached.arrays["marks"].tolist()) == {cached.properties["mark"]}, cached.properties
                assert float(cached.arrays["features"].sum()) == 190
    """)
    write(toy)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests" / "support")))}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, role, str(toy), str(mark)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for role, mark in (("write", 1000), ("write", 2000), ("read", 0), ("read", 0))
    ]
    for process in running:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    assert open_cache(toy, KEY).properties["mark"] in (1039, 2039)
    assert len(os.listdir(toy)) == 3


def test_locks_cover_whole_files(toy):
    # A lock that its owner removed keeps nobody out: who got it asks for the newer one.
    toy.mkdir(parents=True)
    held, is_locked = lock_module._acquire(toy, wait=True)
    (toy / "lock").unlink()
    with held, conversion_lock(toy):
        assert is_locked
        assert (toy / "lock").exists()


class TestTrust:
    """Nobody converts into, or clears, a folder that others can have written."""

    def test_a_folder_that_others_write_is_refused(self, toy):
        toy.mkdir(parents=True)
        toy.chmod(0o777)
        with pytest.raises(CacheError, match=rf"nothing is converted into {toy}: {toy} is not trusted: others"):
            write(toy)
        assert not list(toy.iterdir())

    @needs_root
    def test_another_users_lock_is_refused(self, toy):
        toy.mkdir(parents=True)
        (toy / "lock").touch()
        os.chown(toy / "lock", 1000, 1000)
        with pytest.raises(CacheError, match=r"lock is not trusted: user 1000 owns it; .*`chown 0"):
            write(toy)

    def test_leftovers_of_others_are_left_alone(self, toy):
        dead = killed(toy.parent / "dead-0123456789ab")
        dead.parent.chmod(0o777)
        write(toy)
        assert dead.exists()

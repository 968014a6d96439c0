"""Files that are replaced at once, and archives whose checksums are compared."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from loader.machine.whole_files import check_archive, replaced


def test_a_file_is_replaced_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    path.write_bytes(b"old")
    with replaced(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
        (draft,) = {*tmp_path.iterdir()} - {path}
        assert draft.name.startswith(".a.ckpt.")
    assert path.read_bytes() == b"new"
    assert [*tmp_path.iterdir()] == [path]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="no"), replaced(path):
        raise RuntimeError("no")
    assert {one: one.read_bytes() for one in tmp_path.iterdir()} == {path: b"old"}


_WRITER = """
import sys, time
from pathlib import Path
from loader.machine.whole_files import replaced
with replaced(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("written", flush=True)
    time.sleep(600)
"""


def test_only_drafts_of_the_dead_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    path.write_bytes(b"old")
    beside = tmp_path / ".other.12345678.draft"
    beside.write_bytes(b"of another file")
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, path], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"written\n"
        writers[0].send_signal(signal.SIGKILL)
        writers[0].wait()
        assert path.read_bytes() == b"old"
        assert len([*tmp_path.glob(".a.ckpt.*")]) == 2
        with replaced(path) as file:
            file.write(b"new")
        assert path.read_bytes() == b"new"
        assert len([*tmp_path.glob(".a.ckpt.*")]) == 1  # of the one that lives
        assert beside.exists()
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    program = (
        "import resource, signal, sys, torch\nfrom pathlib import Path\n"
        "from loader.machine.whole_files import replaced\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "with replaced(Path(sys.argv[1])) as file:\n    torch.save(torch.zeros(10000), file)\n"
    )
    path = tmp_path / "a.ckpt"
    path.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "File too large" in done.stderr.splitlines()[-1], done.stderr
    assert {one: one.read_bytes() for one in tmp_path.iterdir()} == {path: b"old"}


def test_a_link_is_replaced_not_written_through(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "a.ckpt"
    target.write_bytes(b"target")
    path.symlink_to(target)
    with replaced(path) as file:
        file.write(b"new")
    assert (path.is_symlink(), path.read_bytes(), target.read_bytes()) == (False, b"new", b"target")


def test_flipped_bits_and_cut_files_are_found(tmp_path: Path) -> None:
    whole = {"a": torch.arange(4000.0), "b": {"c": [1, 2, "x"]}}
    path, damaged = tmp_path / "a.ckpt", tmp_path / "damaged.ckpt"
    torch.save(whole, path)
    check_archive(path)
    data = path.read_bytes()
    r = random.Random(0)
    found = 0
    for place in (r.randrange(8 * len(data)) for _ in range(200)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        damaged.write_bytes(flipped)
        try:
            check_archive(damaged)
        except ValueError:
            found += 1
            continue
        # A bit that nothing reads, of what fills up the file, or one that torch itself finds.
        try:
            other = torch.load(damaged, weights_only=True)
        except RuntimeError:
            continue
        assert torch.equal(other["a"], whole["a"])
        assert other["b"] == whole["b"]
    assert found > 150
    for size in (0, 1, len(data) // 2, len(data) - 1):
        damaged.write_bytes(data[:size])
        with pytest.raises(ValueError, match=r"it is no archive of torch\.save, or was cut short"):
            check_archive(damaged)


def test_a_missing_file_is_no_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_archive(tmp_path / "none.ckpt")
    with pytest.raises(FileNotFoundError), replaced(tmp_path / "none" / "a.ckpt"):
        pass
    assert os.listdir(tmp_path) == []

"""One copy of a file's array in the memory of a machine, for all processes of a run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from marks import needs_root

import loader
from loader.machine import shared
from loader.machine.mapped import save_and_map
from loader.machine.shared import local_ranks, shared_block, shared_copy

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no memfd_create")

# Answers to "copy", "read" and "write" on stdin.
PROGRAM = """
import sys
import torch
from pathlib import Path
from loader.machine.mapped import map_array
from loader.machine.shared import shared_copy
import numpy as np
with open(sys.argv[1], "rb") as file:
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    tensor = map_array(file, shape, dtype)
for line in sys.stdin:
    if line == "copy\\n":
        shared = shared_copy(tensor)
        print(torch.equal(shared, tensor), list(shared.shape), shared.dtype, flush=True)
    elif line == "write\\n":
        shared[2, 1] = 7777
        print("written", flush=True)
    else:
        print(int(shared[2, 1]), flush=True)
"""


class Rank:
    def __init__(self, file: Path, number: int, count: int) -> None:
        environment = {
            **os.environ, "PYTHONPATH": str(Path(loader.__file__).parent.parent), "TMPDIR": str(file.parent),
            "LOCAL_RANK": str(number), "LOCAL_WORLD_SIZE": str(count), "MASTER_PORT": "1234",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, what: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_processes_share_one_copy(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(3000, dtype=np.int64).reshape(1000, 3))
    ranks = [Rank(path, number, 2) for number in (0, 1, 0)]
    try:
        copied = "True [1000, 3] torch.int64"
        assert ranks[0].ask("copy") == copied
        assert len(list(tmp_path.glob("gnn-loader-*"))) == 1
        assert ranks[1].ask("copy") == copied
        assert [file.name for file in tmp_path.iterdir()] == ["rows.npy"]
        assert ranks[1].ask("write") == "written"
        assert ranks[0].ask("read") == "7777"
        ranks[0].end()  # which made the copy
        assert ranks[1].ask("read") == "7777"
        assert ranks[2].ask("copy") == copied
        assert ranks[2].ask("read") == "7"
    finally:
        for rank in ranks:
            rank.end()


def test_memory_that_cannot_be_filled_is_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: torch.Tensor) -> None:
        raise OSError("cannot be read")

    def handles() -> list[str]:
        found = Path("/proc/self/fd").iterdir()
        return [link for path in found if "gnn-loader" in (link := os.readlink(path) if path.is_symlink() else "")]

    for name, value in (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = handles()
    with pytest.raises(OSError, match="cannot be read"):
        shared_block("a table", 1 << 20, fail)
    assert handles() == before
    assert list(tmp_path.iterdir()) == []
    filled = shared_block("a table", 1 << 20, lambda memory: memory.fill_(7))
    assert filled is not None
    assert bool(filled.eq(7).all())


def test_a_process_of_its_own_shares_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    mapped = save_and_map(torch.arange(10), tmp_path / "ids.npy")
    assert local_ranks() == (0, 1)
    assert shared_copy(mapped) is None
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert local_ranks() == (1, 2)
    assert shared_copy(torch.arange(10)) is None  # no file lies behind it


class TestTrust:
    """What somebody else has put where the processes meet is not mapped."""

    @pytest.fixture
    def meeting(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        for name, value in {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "77"}.items():
            monkeypatch.setenv(name, value)
        block = shared_block("key", 8, lambda whole: None)
        (path,) = tmp_path.iterdir()
        del block
        assert not path.exists()
        return path

    @pytest.mark.parametrize("planted", ["mode 0666", "a FIFO", "a link", "another user's"])
    def test_a_planted_meeting_is_refused(self, meeting: Path, planted: str) -> None:
        if planted == "mode 0666":
            meeting.touch()
            meeting.chmod(0o666)
        elif planted == "a FIFO":
            os.mkfifo(meeting)
        elif planted == "a link":
            meeting.symlink_to(meeting.parent / "other")
        elif os.geteuid() != 0:
            pytest.skip("needs root, to make a file of another user")
        else:
            meeting.touch()
            os.chown(meeting, 1000, 1000)
        with pytest.raises(OSError, match=r"not trusted|not a regular file"):
            shared_block("key", 8, lambda whole: None)

    @needs_root
    def test_another_users_memory_is_not_mapped(self, meeting: Path) -> None:
        handle = os.memfd_create(meeting.name)
        try:
            os.ftruncate(handle, 8)
            assert shared._held(f"{os.getpid()} {handle}", meeting.name, 8) is not None
            os.fchown(handle, 1000, 1000)
            assert shared._held(f"{os.getpid()} {handle}", meeting.name, 8) is None
        finally:
            os.close(handle)

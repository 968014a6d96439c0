"""A graph and features on disk, three times as large as the memory that the process may take for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import disk_training
import pytest
import torch

MIB = 2**20
ALLOWED = 32 * MIB


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("disk")
    assert disk_training.write_arrays(made, 200_000, 10, 128) >= 3 * ALLOWED
    return made


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A process that trains on the arrays of `folder`."""
    program = [sys.executable, disk_training.__file__, str(folder), *arguments]
    command = ["sh", "-c", 'ulimit -s 1024; exec "$@"', "sh", *program]  # the stacks of threads count
    paths = [str(Path(__file__).parents[2]), str(Path(disk_training.__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MALLOC_ARENA_MAX": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def limited(folder: Path) -> Iterator[str]:
    """The lines of a process that trains with little memory. Whoever stops to take them kills it."""
    with started(folder, "--allowed", str(ALLOWED)) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            for line in child.stdout:
                yield line.strip()
            assert child.wait(60) == 0, child.stderr.read()
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux' /proc")
def test_a_limited_process_trains_and_resumes_equally(folder: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        expected = list(disk_training.train(disk_training.open_loader(folder, in_memory=True)))
    finally:
        torch.set_num_threads(threads)
    assert len(expected) == 25
    killed = limited(folder)
    assert [next(killed) for _ in range(7)] == expected[:7]
    killed.close()
    done = int(torch.load(folder / "checkpoint")["step"])
    assert 7 <= done < 25
    assert list(limited(folder)) == [*expected[done:], "no copy True"]


@pytest.mark.parametrize("name", ["indices.npy", "features.npy"])
def test_training_on_a_cut_file_ends_clearly(name: str, tmp_path: Path) -> None:
    disk_training.write_arrays(tmp_path, 20_000, 10, 32)
    with started(tmp_path) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("1 ")
        os.truncate(tmp_path / name, 4096)
        _, said = child.communicate(timeout=60)
    assert child.returncode == 1
    (line,) = said.splitlines()
    assert line.startswith(f"error: {tmp_path / name} was cut short while it was open: it has 4096 bytes")

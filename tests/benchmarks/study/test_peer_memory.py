"""Which GPU has which part of a table, and how processes hand each other what they need to reach it."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from study import peer_memory
from study.peer_memory import parts_of

MIB = 1 << 20


@given(st.integers(1, 2**37), st.integers(1, 16), st.sampled_from([1, 4096, 2 * MIB]))
def test_parts_cover_a_table_evenly(nbytes: int, processes: int, granularity: int) -> None:
    parts = parts_of(nbytes, processes, granularity)
    assert parts[0].begin == 0
    assert all(a.end == b.begin for a, b in itertools.pairwise(parts))
    assert parts[-1].begin < nbytes <= parts[-1].end
    sizes = {part.end - part.begin for part in parts}
    assert len(sizes) == 1
    size = sizes.pop()
    assert size % granularity == 0
    owned = [sum(part.owner == rank for part in parts) for rank in range(processes)]
    assert max(owned) - min(owned) <= 1
    assert max(owned) <= 32
    # A GPU holds its share, and at most one part more.
    assert max(owned) * size <= nbytes / processes + 2 * size


def test_files_are_handed_to_all_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MASTER_PORT", str(tmp_path))  # else another run's
    got: dict[tuple[int, int], list[bytes]] = {}

    def take_part(rank: int) -> None:
        meeting = peer_memory._Meeting(rank, 3, number=1)
        files = []
        for i in range(rank):  # the first has none to hand out
            path = tmp_path / f"{rank}-{i}"
            path.write_bytes(f"{rank} {i}".encode())
            files.append(os.open(path, os.O_RDONLY))
        meeting.hand_out(files)
        for other in range(3):
            if other != rank:
                received = meeting.receive(other, other)
                got[rank, other] = [os.pread(file, 100, 0) for file in received]
                for file in received:
                    os.close(file)
        meeting.wait()
        meeting.close()
        for file in files:
            os.close(file)

    threads = [threading.Thread(target=take_part, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got == {
        (0, 1): [b"1 0"],
        (0, 2): [b"2 0", b"2 1"],
        (1, 0): [],
        (2, 0): [],
        (1, 2): [b"2 0", b"2 1"],
        (2, 1): [b"1 0"],
    }


def test_who_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MASTER_PORT", str(tmp_path))
    monkeypatch.setattr(peer_memory, "_PATIENCE", 0.05)
    meeting = peer_memory._Meeting(0, 2, number=2)
    with pytest.raises(RuntimeError, match="process 1 of this machine did not come to share its GPU's memory within"):
        meeting.receive(1, 1)
    meeting.close()


def test_an_address_becomes_a_tensor() -> None:
    memory = torch.arange(100, dtype=torch.uint8)
    tensor = peer_memory._tensor_at(memory.data_ptr() + 10, 50, torch.device("cpu"))
    assert torch.equal(tensor, memory[10:60])
    tensor.view(torch.int16).view(5, 5)[1, 0] = 0
    assert memory[20:22].tolist() == [0, 0]
    del tensor

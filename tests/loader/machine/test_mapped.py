"""Arrays in files: mapped without being read, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from loader.machine.mapped import map_array, save_and_map


@pytest.mark.parametrize("array", [torch.arange(1000), torch.rand(7, 3).double(), torch.empty(0, 3)])
def test_a_saved_array_is_mapped(array: torch.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "array.npy"
    mapped = save_and_map(array, path)
    assert torch.equal(mapped, array)
    assert mapped.dtype == array.dtype
    assert [file.name for file in tmp_path.iterdir()] == ["array.npy"]
    before = path.read_bytes()
    mapped.zero_()
    assert path.read_bytes() == before
    path.unlink()
    assert not mapped.any()


def test_mapping_begins_at_the_files_position(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    path.write_bytes(b"12345678" + np.arange(5).tobytes())
    with open(path, "rb") as file:
        file.seek(8)
        assert map_array(file, (5,), np.dtype(np.int64)).tolist() == [0, 1, 2, 3, 4]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    save_and_map(torch.arange(3), tmp_path / "array.npy")

    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="the disk is full"):
        save_and_map(torch.arange(4), tmp_path / "array.npy")
    assert [file.name for file in tmp_path.iterdir()] == ["array.npy"]
    assert np.load(tmp_path / "array.npy").tolist() == [0, 1, 2]

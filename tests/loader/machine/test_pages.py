"""Pages of rows: what the system was told is seen in /proc."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from loader.machine.pages import _is_anonymous, advise_random, file_behind, use_huge_pages
from loader.stores import MemmapFeatures

SMAPS = Path("/proc/self/smaps")
pytestmark = pytest.mark.skipif(not SMAPS.exists(), reason="needs Linux' /proc/self/smaps")


def mapping(tensor: Tensor) -> dict[str, str]:
    """The fields of the mapping that the tensor's middle lies in."""
    address = tensor.data_ptr() + tensor.numel() * tensor.element_size() // 2
    found: dict[str, str] = {}
    inside = False
    for line in SMAPS.read_text().splitlines():
        head, _, rest = line.partition(" ")
        if "-" in head:
            begin, end = (int(x, 16) for x in head.split("-"))
            inside = begin <= address < end
        elif inside:
            found[head.rstrip(":")] = rest.strip()
    return found


def test_rows_keep_their_values_on_huge_pages() -> None:
    table = torch.arange(4 << 20).view(-1, 4)  # 32 MiB
    expected = table.clone()
    place = table.data_ptr()
    assert _is_anonymous(place)
    use_huge_pages(table)
    assert table.data_ptr() == place
    assert torch.equal(table, expected)
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if enabled.exists() and "[never]" not in enabled.read_text():
        assert "hg" in mapping(table)["VmFlags"].split()


def test_mapped_files_are_not_advised(tmp_path: Path) -> None:
    values = np.arange(3 << 20).reshape(-1, 4)
    np.save(tmp_path / "x.npy", values)
    table = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="r+"))
    assert not _is_anonymous(table.data_ptr())
    use_huge_pages(table)
    assert "hg" not in mapping(table)["VmFlags"].split()


def test_small_and_empty_tensors_are_accepted() -> None:
    for tensor in (torch.zeros(3), torch.zeros(0, 4)):
        use_huge_pages(tensor)
        advise_random(tensor)


def test_a_memory_mapped_store_is_not_read_ahead(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1000, 300), dtype=np.float32))
    store = MemmapFeatures(tmp_path / "x.npy")
    assert "rr" in mapping(store._open().tensor)["VmFlags"].split()
    store.close()


def test_the_file_behind_a_tensor_is_known(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(100))
    mapped = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="c"))
    assert file_behind(mapped) == tmp_path / "x.npy"
    assert file_behind(mapped.clone()) is None
    assert file_behind(torch.arange(1000).share_memory_()) is None
    assert file_behind(torch.empty(0)) is None
    (tmp_path / "x.npy").unlink()
    assert file_behind(mapped) == tmp_path / "x.npy"

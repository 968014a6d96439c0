"""Rows in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from loader.stores import MemmapFeatures


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(0).random((500, 33), dtype=np.float32)


NODES = torch.tensor([499, 0, 250, 0], dtype=torch.int32)


def test_a_npy_file_gives_its_rows(tmp_path: Path, values: np.ndarray) -> None:
    path = tmp_path / "x.npy"
    np.save(path, values)
    store = MemmapFeatures(path)
    assert (store.num_rows, store.row_shape, store.dim, store.dtype) == (500, (33,), 33, torch.float32)
    assert store.num_threads >= 4
    assert np.array_equal(store.gather(NODES).numpy(), values[NODES.numpy()])
    assert str(path) in repr(store)
    half = MemmapFeatures(str(path), dtype="float16", num_threads=2)
    assert (half.dtype, half.storage_dtype) == (torch.float16, torch.float32)
    assert torch.equal(half.gather(NODES), torch.from_numpy(values)[NODES].half())


def test_many_processors_have_the_most_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loader.stores.memmap.available_cpus", lambda: 384)
    assert MemmapFeatures(torch.zeros(3, 2)).num_threads == 1024


@pytest.mark.parametrize("offset", [0, 4, 4100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_a_raw_file_gives_its_rows(tmp_path: Path, offset: int, dtype: torch.dtype) -> None:
    table = torch.randint(0, 99, (40, 3, 5)).to(dtype)
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(offset) + table.view(torch.uint8).numpy().tobytes())
    store = MemmapFeatures(path, shape=(40, 3, 5), storage_dtype=dtype, offset=offset)
    nodes = torch.tensor([39, 0, 7, 39])
    assert torch.equal(store.gather(nodes), table[nodes])
    empty = MemmapFeatures(path, shape=(0, 5), storage_dtype=dtype)
    assert empty.gather(nodes[:0]).shape == (0, 5)


def test_a_mapped_tensor_is_used_as_it_is(tmp_path: Path, values: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", values)
    table = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="r+"))
    store = MemmapFeatures(table)
    assert store._open().tensor.data_ptr() == table.data_ptr()
    assert torch.equal(store.gather(NODES), table[NODES])


def test_the_file_is_let_go(tmp_path: Path, values: np.ndarray) -> None:
    path = tmp_path / "rows-of-a-store.npy"
    np.save(path, values)
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("needs /proc/self/maps")
    store = MemmapFeatures(path)
    rows = store.gather(NODES)
    assert path.name in maps.read_text()
    store.close()
    store.close()
    assert path.name not in maps.read_text()
    assert np.array_equal(rows.numpy(), values[NODES.numpy()])
    with pytest.raises(RuntimeError, match="MemmapFeatures was closed"):
        store.gather(NODES)


def test_an_id_out_of_range_is_named(tmp_path: Path, values: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(ValueError, match=r"ids\[1\] is 500; the table has 500 rows"):
        MemmapFeatures(tmp_path / "x.npy").gather(torch.tensor([1, 500]))


def test_bad_files_and_options_are_refused(tmp_path: Path, values: np.ndarray) -> None:
    npy, raw = tmp_path / "x.npy", tmp_path / "x.bin"
    np.save(npy, values)
    values.tofile(raw)
    np.save(tmp_path / "f.npy", np.asfortranarray(values))
    for missing in ({"source": tmp_path / "none.npy"}, {"source": tmp_path / "none.bin", "shape": (1,)}):
        with pytest.raises(
            FileNotFoundError, match=r"source is .*none\.\w+, which is no file; give the path of a file"
        ):
            MemmapFeatures(**missing)
    with pytest.raises(FileNotFoundError, match="which is a folder; give the path of a file"):
        MemmapFeatures(tmp_path, shape=(1,), storage_dtype="uint8")
    (tmp_path / "cut.npy").write_bytes(npy.read_bytes()[:300])
    np.save(tmp_path / "objects.npy", np.array([{}, 1], dtype=object))
    for name in ("cut", "objects"):
        with pytest.raises(ValueError, match=rf"{name}\.npy cannot be mapped \(.*\): it is truncated, or no array of"):
            MemmapFeatures(tmp_path / f"{name}.npy")
    for other in (">f4", "U3", "M8[s]"):
        np.save(tmp_path / "other.npy", np.array([[1, 2]]).astype(other))
        with pytest.raises(TypeError, match=r"other\.npy has elements of type '.*', which torch does not have; save"):
            MemmapFeatures(tmp_path / "other.npy")
    with pytest.raises(ValueError, match="Fortran order"):
        MemmapFeatures(tmp_path / "f.npy")
    with pytest.raises(ValueError, match="say its shape and storage_dtype"):
        MemmapFeatures(raw, shape=(500, 33))
    np.savez(tmp_path / "x.npz", x=values)
    with pytest.raises(ValueError, match=r"x\.npz is an archive of arrays, which cannot be mapped; write the rows by"):
        MemmapFeatures(tmp_path / "x.npz", shape=(500, 33), storage_dtype="float32")
    with pytest.raises(ValueError, match=r"has 66000 bytes; \[501, 33\] elements of torch\.float32 from byte 0 need"):
        MemmapFeatures(raw, shape=(501, 33), storage_dtype="float32")
    with pytest.raises(ValueError, match=r"from byte 0 these are no whole number of rows of 128 bytes"):
        MemmapFeatures(raw, shape=(500, 32), storage_dtype="float32")
    with pytest.raises(TypeError, match="source is an int; it must be the path of a file, or a tensor"):
        MemmapFeatures(3)
    with pytest.raises(TypeError, match="shape is 500; it must be a list of sizes"):
        MemmapFeatures(raw, shape=500, storage_dtype="float32")
    with pytest.raises(ValueError, match=r"has 66000 bytes; \[4294967296, 4294967296\] elements"):
        MemmapFeatures(raw, shape=(2**32, 2**32), storage_dtype="float32")
    with pytest.raises(TypeError, match="buffer_mib is 'x'; it must be an integer of at least 1"):
        MemmapFeatures(npy, buffer_mib="x")
    with pytest.raises(ValueError, match="offset is -1; it must be at least 0"):
        MemmapFeatures(raw, shape=(5, 33), storage_dtype="float32", offset=-1)
    with pytest.raises(ValueError, match=r"shape is \[500, 33\], which describes a raw file; .*: leave it out"):
        MemmapFeatures(npy, shape=(500, 33))
    with pytest.raises(TypeError, match=r"storage_dtype is torch\.int32 for rows of torch\.float32"):
        MemmapFeatures(npy, storage_dtype="int32")
    with pytest.raises(TypeError, match="storage_dtype is 'float17'"):
        MemmapFeatures(raw, shape=(5, 33), storage_dtype="float17")
    with pytest.raises(ValueError, match="num_threads is 0"):
        MemmapFeatures(npy, num_threads=0)

"""ogbn-papers100M is read in parts as ogb's reader reads it as a whole."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from loader.datasets import DatasetError, OGBDataset, papers
from loader.datasets.cache_writer import CacheWriter
from loader.datasets.library_reader import ReaderDataset
from loader.datasets.progress import ConversionProgress

NODES, EDGES = 500, 3000


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {
        "edge_index": rng.integers(0, NODES, (2, EDGES)),
        "num_nodes_list": np.array([NODES]),
        "num_edges_list": np.array([EDGES]),
        "node_feat": rng.standard_normal((NODES, 6), dtype=np.float32),
        "node_year": rng.integers(1990, 2020, (NODES, 1)),
    }


def write(home: Path, save=np.savez, **changed: np.ndarray) -> OGBDataset:
    (home / "ogbn_papers100M" / "raw").mkdir(parents=True)
    (home / "ogbn_papers100M" / "split" / "time").mkdir(parents=True)
    save(home / "ogbn_papers100M" / "raw" / "data.npz", **{**arrays(), **changed})
    labels = np.full((NODES, 1), np.nan, dtype=np.float32)
    labels[:90, 0] = np.arange(90)
    np.savez(home / "ogbn_papers100M" / "raw" / "node-label.npz", node_label=labels)
    for at, part in enumerate(("train", "valid", "test")):
        text = "".join(f"{node}\n" for node in range(30 * at, 30 * at + 30))
        path = home / "ogbn_papers100M" / "split" / "time" / f"{part}.csv.gz"
        path.write_bytes(gzip.compress(text.encode()))
    (home / "ogbn_papers100M" / "RELEASE_v1.txt").touch()
    return OGBDataset("ogbn-papers100M", data_dir=home)


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(papers, "PART_EDGES", 700)
    monkeypatch.setattr(papers, "_SKIP", 1000)
    monkeypatch.setattr("loader.datasets.feature_rows._CHUNK_BYTES", 999)


class Reader:
    """What ogb's reader gives of these arrays."""

    num_classes = 172

    def __getitem__(self, index: int) -> tuple[dict[str, object], np.ndarray]:
        labels = np.where(np.arange(NODES) < 90, np.arange(NODES), np.nan).astype(np.float32)
        return {**arrays(), "num_nodes": NODES}, labels[:, None]

    def get_idx_split(self) -> dict[str, np.ndarray]:
        return {part: np.arange(30 * at, 30 * at + 30) for at, part in enumerate(("train", "valid", "test"))}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_parts_make_what_ogbs_reader_makes(tmp_path, save, small_parts, monkeypatch):
    dataset = write(tmp_path, save)
    monkeypatch.setattr(dataset, "open_reader", lambda root: Reader())
    files: list[dict[str, bytes]] = []
    for number, convert in enumerate((OGBDataset.convert, ReaderDataset.convert)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with CacheWriter(folder, {}) as writer, ConversionProgress("") as progress:
            convert(dataset, writer, progress)
        files.append({path.name: path.read_bytes() for path in folder.glob("version-*/*.npy")})
        assert writer.properties == {"num_classes": 172, "multilabel": False}
    assert files[0] == files[1]
    assert {"indptr.npy", "indices.npy", "features.npy", "node_times.npy", "train.npy"} <= files[0].keys()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"edge_index": np.full((2, EDGES), NODES)}, "holds node 500; valid ids are 0 to 499"),
        ({"edge_index": np.zeros((EDGES, 2), dtype=int)}, r"edge_index is int64 \[3000, 2\]; it must be"),
        ({"node_feat": np.zeros((4, 6), dtype=np.float32)}, r"node_feat is float32 \[4, 6\]"),
        ({"num_nodes_list": np.array([1, 2])}, "num_nodes_list has 2 entries"),
        ({"node_feat": np.full((NODES, 6), np.inf, dtype=np.float32)}, "feature 0 of node 0 is inf"),
        ({"node_year": np.full(NODES, 0.5)}, "a year of a paper is no whole number"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path, changed, message):
    with pytest.raises(DatasetError, match=message):
        write(tmp_path, **changed).load()


def test_a_damaged_archive_is_reported(tmp_path):
    dataset = write(tmp_path)
    path = tmp_path / "ogbn_papers100M" / "raw" / "data.npz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255  # within the features: their checksum fails
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"the files in .*ogbn_papers100M cannot be read .*CRC"):
        dataset.load()
    path.write_bytes(data[:1000])
    with pytest.raises(DatasetError, match="cannot be read"):
        dataset.load()

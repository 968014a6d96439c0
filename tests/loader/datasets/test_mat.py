from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import torch

from loader.datasets import DatasetError, MatDataset, open_dataset

NAMES = ("blogcatalog", "ppi", "wikipedia")
FILES = dict(zip(NAMES, ("blogcatalog/blogcatalog.mat", "ppi/Homo_sapiens.mat", "wikipedia_pos/POS.mat"), strict=True))
# nodes, directed edges, self loops, labels, pairs of a node and a label
PUBLISHED = {
    "blogcatalog": (10_312, 667_966, 0, 39, 14_476),
    "ppi": (3_890, 76_584, 894, 50, 6_640),
    "wikipedia": (4_777, 184_812, 222, 40, 6_770),
}
EDGES = [(0, 1, 2.0), (1, 0, 3.0), (3, 2, 0.5), (1, 1, 1.0)]  # row, column, entry


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write("ppi", group=None)`: a file of 4 nodes and 3 labels with these arrays changed or left out."""

    def to_file(name: str, **changes: Any) -> Path:
        rows, columns, entries = zip(*EDGES, strict=True)
        network = sp.csc_matrix((entries, (rows, columns)), shape=(4, 4))
        group = sp.csc_matrix(np.array([[1.0, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 0]]))
        arrays = {"network": network, "group": group, **changes}
        path = tmp_path / FILES[name]
        path.parent.mkdir(exist_ok=True)
        scipy.io.savemat(path, {key: array for key, array in arrays.items() if array is not None})
        return path

    return to_file


@pytest.mark.parametrize("name", NAMES)
def test_the_graphs_are_as_published(name: str, shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    root = shared_data(FILES[name])
    data = open_dataset(name, data_dir=root, cache_dir=tmp_path)
    sources = data.graph.indices.long()
    targets = torch.repeat_interleave(torch.arange(data.num_nodes), data.graph.in_degrees().long())
    found = data.num_nodes, data.graph.num_edges, int((sources == targets).sum()), data.num_classes
    assert (*found, int(data.labels.sum())) == PUBLISHED[name]
    assert (data.graph.edge_weights is not None) == (name == "wikipedia")
    assert sum(ids.numel() for ids in data.splits.values()) == data.num_nodes


@pytest.mark.parametrize("dense", [False, True])
def test_rows_are_the_sources_of_edges(write: Callable[..., Path], tmp_path: Path, dense: bool) -> None:
    labels = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 0]], dtype=np.uint8)
    write("wikipedia", **({"group": labels} if dense else {}))
    data = MatDataset("wikipedia", data_dir=tmp_path, split=(0.5, 0.25, 0.25)).load()
    graph = data.graph
    targets = torch.repeat_interleave(torch.arange(4), graph.in_degrees().long()).tolist()
    assert graph.edge_weights is not None
    found = zip(graph.indices.tolist(), targets, graph.edge_weights.tolist(), strict=True)
    assert sorted(found) == sorted(EDGES)
    assert (data.multilabel, data.features.shape) == (True, (4, 0))
    assert data.labels.tolist() == labels.tolist()
    assert [ids.numel() for ids in data.splits.values()] == [2, 1, 1]


def test_entries_of_one_are_no_weights(write: Callable[..., Path], tmp_path: Path) -> None:
    write("ppi", network=sp.csc_matrix(np.ones((4, 4))))
    assert MatDataset("ppi", data_dir=tmp_path).load().graph.edge_weights is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": None}, "has no matrix of numbers 'network'"),
        ({"group": None}, "has no matrix of numbers 'group'"),
        ({"group": np.array(["a", "b"])}, "has no matrix of numbers 'group'"),
        ({"network": sp.csc_matrix((4, 3))}, r"has shape \[4, 3\]; it must be square"),
        ({"group": np.ones((3, 2))}, "labels have shape"),
        ({"group": np.full((4, 2), 2.0)}, "label 0 of node 0 is 2.0; it must be 0 or 1"),
        ({"network": sp.csc_matrix(-np.eye(4))}, "weight"),
    ],
)
def test_wrong_content_is_refused(
    write: Callable[..., Path], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    write("blogcatalog", **changes)
    with pytest.raises(DatasetError, match=message):
        MatDataset("blogcatalog", data_dir=tmp_path).load()


def test_absent_and_damaged_files_are_refused(write: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"there is no file .*POS\.mat; get it from https"):
        MatDataset("wikipedia", data_dir=tmp_path).load()
    path = write("wikipedia")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DatasetError, match="cannot be read as a MATLAB file"):
        MatDataset("wikipedia", data_dir=tmp_path).load()
    with pytest.raises(ValueError, match="name is 'flickr'; it must be one of blogcatalog, ppi, wikipedia"):
        MatDataset("flickr")
    with pytest.raises(ValueError, match="split"):
        MatDataset("ppi", split=(0.9, 0.9, 0.1))

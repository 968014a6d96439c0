"""ogbn-mag's layout, a small one."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch
from hetero_graphs import lists_of, rows_of

from loader.datasets import DatasetError, HeteroOGBDataset

SIZES = {"author": 3, "field_of_study": 2, "institution": 1, "paper": 4}
EDGES = {
    ("author", "affiliated_with", "institution"): [[0, 2], [0, 0]],
    ("author", "writes", "paper"): [[0, 1, 2], [3, 3, 0]],
    ("paper", "cites", "paper"): [[0, 3], [1, 0]],
    ("paper", "has_topic", "field_of_study"): [[0, 1, 2], [1, 1, 0]],
}


@pytest.fixture
def mag(tmp_path: Path) -> Path:
    home = tmp_path / "ogbn_mag"
    tables = {
        "raw/triplet-type-list": "\n".join(",".join(key) for key in reversed(EDGES)),
        "raw/num-node-dict": f"{','.join(SIZES)}\n{','.join(map(str, SIZES.values()))}\n",
        "raw/nodetype-has-label": "author,field_of_study,institution,paper\nFalse,False,False,True\n",
        "raw/node-feat/paper/node-feat": "0.5,1.5\n" * 3 + "7,8\n",
        "raw/node-feat/paper/node_year": "2010\n2011\n2012\n2013\n",
        "raw/node-label/paper/node-label": "0\n348\n5\n5\n",
        "split/time/nodetype-has-split": "author,field_of_study,institution,paper\nFalse,False,False,True\n",
        "split/time/paper/train": "1\n0\n",
        "split/time/paper/valid": "2\n",
        "split/time/paper/test": "3\n",
    }
    for key, (src, dst) in EDGES.items():
        folder = f"raw/relations/{'___'.join(key)}"
        tables[f"{folder}/edge"] = "".join(f"{u},{v}\n" for u, v in zip(src, dst, strict=True))
        tables[f"{folder}/num-edge-list"] = f"{len(src)}\n"
    for name, text in tables.items():
        path = home / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
    (home / "RELEASE_v2.txt").touch()
    (home / "processed").mkdir()
    (home / "processed" / "data_processed").write_bytes(b"what torch.load refuses")
    return tmp_path


def test_papers_have_labels_features_and_splits(mag: Path) -> None:
    data = HeteroOGBDataset(data_dir=mag, undirected=False).load()
    edges = {key: torch.tensor(pairs) for key, pairs in EDGES.items()}
    assert data.graph.metadata() == (list(SIZES), list(EDGES))
    assert rows_of(data.graph.lists) == lists_of(edges, SIZES)
    assert (data.target, data.num_classes, data.labels.tolist()) == ("paper", 349, [0, 348, 5, 5])
    assert data.num_features == {"paper": 2}
    assert data.features["paper"][3].tolist() == [7, 8]
    assert {split: ids.tolist() for split, ids in data.splits.items()} == {"train": [0, 1], "val": [2], "test": [3]}


def test_reverses_are_added_by_default(mag: Path) -> None:
    graph = HeteroOGBDataset(data_dir=mag).load().graph
    added = [("institution", "rev_affiliated_with", "author"), ("paper", "rev_writes", "author")]
    assert list(graph.edge_types) == [*EDGES, *added, ("field_of_study", "rev_has_topic", "paper")]
    assert graph.relation(("paper", "rev_writes", "author")).indices.tolist() == [3, 3, 0]
    assert graph.relation(("paper", "cites", "paper")).indices.tolist() == [1, 3, 0, 0]


def test_missing_files_are_named(mag: Path) -> None:
    (mag / "ogbn_mag" / "raw" / "num-node-dict.csv.gz").unlink()
    with pytest.raises(DatasetError, match=r"ogbn-mag is not complete in .*: raw/num-node-dict\.csv\.gz missing"):
        HeteroOGBDataset(data_dir=mag).load()


def test_a_damaged_file_is_reported_with_its_folder(mag: Path) -> None:
    path = mag / "ogbn_mag" / "raw" / "node-feat" / "paper" / "node-feat.csv.gz"
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(DatasetError, match=r"ogbn-mag: the files in .*ogbn_mag cannot be read"):
        HeteroOGBDataset(data_dir=mag).load()


def test_other_datasets_of_ogb_are_refused() -> None:
    with pytest.raises(ValueError, match="name is 'ogbn-arxiv'; it must be 'ogbn-mag': OGBDataset reads the others"):
        HeteroOGBDataset("ogbn-arxiv")

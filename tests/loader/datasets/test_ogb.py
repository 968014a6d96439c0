from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from loader.datasets import DatasetError, OGBDataset

REPOSITORY = Path(__file__).resolve().parents[3]


def test_arxiv_is_read_as_published(shared_data, tmp_path):
    data = OGBDataset("ogbn-arxiv", data_dir=shared_data("ogbn_arxiv/raw"), cache_dir=tmp_path).load()
    assert (data.num_nodes, data.num_features, data.num_classes) == (169_343, 128, 40)
    assert [ids.numel() for ids in data.splits.values()] == [90_941, 29_799, 48_603]
    assert data.graph.num_edges == 2_315_598  # 1,166,243 citations, of which some go both ways
    assert int(data.graph.in_degrees().max()) == 13_161
    years = data.graph.node_times
    assert (int(years.min()), int(years.max())) == (1971, 2020)
    raw = shared_data("ogbn_arxiv/raw") / "ogbn_arxiv" / "raw"
    labels = pd.read_csv(raw / "node-label.csv.gz", header=None)[0].to_numpy()
    np.testing.assert_array_equal(data.labels.numpy(), labels)
    edges = pd.read_csv(raw / "edge.csv.gz", header=None, nrows=200).to_numpy()
    for src, dst in edges:
        row = data.graph.indices[data.graph.indptr[dst] : data.graph.indptr[dst + 1]]
        assert src in row


def test_an_incomplete_copy_is_named_file_by_file(shared_data, tmp_path):
    with pytest.raises(DatasetError, match=r"ogbn-products is not complete in .*raw/edge\.csv\.gz, raw/node-feat\.csv"):
        OGBDataset("ogbn-products", data_dir=shared_data("ogbn_products"), cache_dir=tmp_path).load()


@pytest.fixture
def tiny_products(tmp_path):
    """ogbn-products' layout with 4 nodes, and pickles beside it that nobody should open."""
    home = tmp_path / "ogbn_products"
    tables = {
        "raw/edge": "0,1\n1,2\n2,3\n",
        "raw/node-feat": "0.5,1.5\n" * 4,
        "raw/node-label": "0\n1\n46\n1\n",
        "raw/num-node-list": "4\n",
        "raw/num-edge-list": "3\n",
        "split/sales_ranking/train": "0\n",
        "split/sales_ranking/valid": "1\n",
        "split/sales_ranking/test": "3\n2\n",
    }
    for name, text in tables.items():
        path = home / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
    (home / "RELEASE_v1.txt").touch()
    (home / "processed").mkdir()
    for pickle in ("processed/data_processed", "split/sales_ranking/split_dict.pt"):
        (home / pickle).write_bytes(b"what torch.load refuses")
    return tmp_path


def test_pickles_beside_the_raw_files_are_never_loaded(tiny_products):
    data = OGBDataset("ogbn-products", data_dir=tiny_products).load()
    assert data.graph.in_degrees().tolist() == [1, 2, 2, 1]
    assert data.labels.tolist() == [0, 1, 46, 1]
    assert (data.num_classes, data.splits["test"].tolist()) == (47, [2, 3])


def test_a_damaged_file_is_reported_with_its_folder(tiny_products):
    path = tiny_products / "ogbn_products" / "raw" / "node-feat.csv.gz"
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(DatasetError, match=r"ogbn-products: the files in .*ogbn_products cannot be read"):
        OGBDataset("ogbn-products", data_dir=tiny_products).load()


def test_unlabelled_papers_are_minus_one(tmp_path):
    home = tmp_path / "ogbn_papers100M"
    (home / "raw").mkdir(parents=True)
    (home / "split" / "time").mkdir(parents=True)
    np.savez(
        home / "raw" / "data.npz",
        edge_index=np.array([[0, 1], [1, 2]]),
        num_nodes_list=np.array([4]),
        num_edges_list=np.array([2]),
        node_feat=np.zeros((4, 2), dtype=np.float32),
        node_year=np.array([[1999.0], [2000.0], [2001.0], [2002.0]]),
    )
    np.savez(home / "raw" / "node-label.npz", node_label=np.array([[0.0], [171.0], [3.0], [np.nan]], dtype=np.float32))
    for part, node in (("train", 0), ("valid", 1), ("test", 2)):
        (home / "split" / "time" / f"{part}.csv.gz").write_bytes(gzip.compress(f"{node}\n".encode()))
    (home / "RELEASE_v1.txt").touch()
    data = OGBDataset("ogbn-papers100M", data_dir=tmp_path).load()
    assert data.labels.tolist() == [0, 171, 3, -1]
    assert data.graph.node_times.tolist() == [1999, 2000, 2001, 2002]
    assert data.num_classes == 172


def test_another_copy_of_the_files_is_another_conversion(tiny_products, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tiny_products / "ogbn_products", other / "ogbn_products")
    (other / "ogbn_products" / "raw" / "node-feat.csv.gz").write_bytes(gzip.compress(b"7.5,8.5\n" * 4))
    cache = tmp_path / "cache"
    first = OGBDataset("ogbn-products", data_dir=tiny_products, cache_dir=cache).load()
    second = OGBDataset("ogbn-products", data_dir=other, cache_dir=cache).load()
    assert (first.features[0, 0], second.features[0, 0]) == (0.5, 7.5)


def test_importing_ogb_asks_nothing_of_the_network():
    # In a process of its own, since ogb may have been imported here before.
    program = (
        "import sys, loader.datasets.ogb as ours; assert 'ogb' not in sys.modules; ours.ogb_reader();"
        "import ogb.version; assert ogb.version.check_outdated is None; assert 'outdated' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, check=True, capture_output=True, timeout=600)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="name is 'ogbn-mag'; it must be one of ogbn-arxiv, "):
        OGBDataset("ogbn-mag")

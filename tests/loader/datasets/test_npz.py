from __future__ import annotations

import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from loader.datasets import DatasetError, NodeDataset, NpzDataset


@pytest.fixture
def load(tmp_path):
    def run(path, **options) -> NodeDataset:
        return NpzDataset(path, data_dir=tmp_path, cache_dir=tmp_path / "cache", **options).load()

    return run


def in_neighbors(data: NodeDataset) -> list[list[int]]:
    pairs = zip(data.graph.indptr[:-1].tolist(), data.graph.indptr[1:].tolist(), strict=True)
    return [data.graph.indices[a:b].tolist() for a, b in pairs]


def test_arrays_become_a_dataset_as_they_are(npz_file, load):
    data = load(npz_file())
    assert data.name == "mine"
    assert in_neighbors(data) == [[0, 5], [0], [1], [2], [3], [4]]
    assert torch.equal(data.features, torch.arange(12, dtype=torch.float32).reshape(6, 2))
    assert data.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert [ids.tolist() for ids in data.splits.values()] == [[0, 1, 2], [3], [4, 5]]
    assert data.num_classes == 3


def test_the_three_forms_of_edges_mean_the_same(npz_file, load):
    src, dst = np.array([5, 0, 0, 1, 2, 3, 4]), np.array([0, 0, 1, 2, 3, 4, 5])
    expected = in_neighbors(load(npz_file()))
    assert in_neighbors(load(npz_file(edge_index=None, src=src, dst=dst))) == expected
    indptr = np.array([0, 2, 3, 4, 5, 6, 7])
    assert in_neighbors(load(npz_file(edge_index=None, indptr=indptr, indices=src))) == expected


def test_edges_alone_are_a_dataset(npz_file, load):
    alone = {"train": None, "val": None, "test": None, "features": None, "labels": None}
    data = load(npz_file(**alone))
    assert (data.num_nodes, data.num_features, data.num_classes) == (6, 0, 0)
    assert data.labels.tolist() == [-1] * 6
    assert not any(ids.numel() for ids in data.splits.values())
    assert load(npz_file(**alone, num_nodes=np.array(9))).num_nodes == 9


def test_large_ids_are_no_numbers_of_nodes(npz_file, load):
    alone = {"train": None, "val": None, "test": None, "features": None, "labels": None}
    with pytest.raises(DatasetError, match=r"largest node of 1 edges is 1099511627776, .*; number the nodes"):
        load(npz_file(**alone, edge_index=np.array([[0], [2**40]])))


def test_labels_need_no_split(npz_file, load):
    data = load(npz_file(train=None, val=None, test=None))
    assert data.num_classes == 3
    assert data.splits["train"].numel() == 0


def test_edge_options_apply(npz_file, load):
    data = load(npz_file(), undirected=True, self_loops="remove", parallel_edges="remove")
    assert in_neighbors(data)[0] == [1, 5]


def test_masks_and_several_labels_per_node_are_read(npz_file, load):
    labels = np.array([[0, 1], [1, 1], [0, 0], [1, 0], [1, 0], [0, 1]])
    mask = np.arange(6) < 3
    data = load(npz_file(labels=labels, train=mask))
    assert data.multilabel
    assert torch.equal(data.labels, torch.from_numpy(labels).float())
    assert data.splits["train"].tolist() == [0, 1, 2]


def test_drawing_a_split_needs_no_conversion(npz_file, load, tmp_path):
    path = npz_file(train=None, val=None, test=None, labels=np.array([0, 1, 0, 1, 0, -1]))
    drawn = [load(path, split=[0.6, 0.2, 0.2], split_seed=seed).splits for seed in range(8)]
    assert all(sorted(torch.cat(list(s.values())).tolist()) == [0, 1, 2, 3, 4] for s in drawn)
    assert len({tuple(s["train"].tolist()) for s in drawn}) > 1
    assert len(os.listdir(tmp_path / "cache")) == 1


def test_a_column_of_labels_is_one_per_node(npz_file, load):
    data = load(npz_file(labels=np.array([[0], [1], [2], [0], [1], [2]])))
    assert not data.multilabel
    assert data.labels.tolist() == [0, 1, 2, 0, 1, 2]


def test_far_apart_labels_need_a_number_of_classes(npz_file, load):
    labels = np.array([0, 1, 2000, 0, 1, 2])
    assert load(npz_file(labels=labels, num_classes=np.array(2001))).num_classes == 2001


def test_a_folder_is_no_file(load, tmp_path):
    with pytest.raises(DatasetError, match=r"is a folder; set dataset\.path to the \.npz file in it"):
        load(tmp_path)


def test_a_pipe_is_no_file(load, tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(DatasetError, match=r"pipe\.npz is no regular file; set dataset\.path to your \.npz file"):
        load(tmp_path / "pipe.npz")


def test_a_relative_path_is_searched_in_data_dir(npz_file, load):
    assert load(npz_file().name).num_nodes == 6


def test_a_changed_file_is_converted_again(npz_file, load):
    load(npz_file())
    assert load(npz_file(features=np.ones((6, 3)))).num_features == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": None, "x": np.ones((6, 2))}, "has an array 'x', which is not read; did you mean 'features'"),
        ({"labels": None, "y": np.ones(6)}, "has an array 'y', which is not read; did you mean 'labels'"),
        ({"labels": None}, "has no array labels, but train val test; it holds edge_index, features"),
        ({"features": None, "num_nodes": np.array([6, 7])}, r"num_nodes is \[6, 7\]; it must be one number"),
        ({"num_nodes": np.array(7)}, r"features of shape \[6, 2\], .* of 7 nodes"),
        (
            {"edge_index": np.array([[1, 2], [6, 3]])},
            "edges have the nodes 1 to 6; valid ids are 0 to 5: subtract 1",
        ),
        ({"edge_index": None}, "has none of the three forms of edges"),
        ({"src": np.array([0]), "dst": np.array([1])}, "has 2 of the three forms of edges"),
        ({"val": None}, r"has no array val for the split; add it, or draw one: split=\[0.6,0.2,0.2\]"),
        ({"edge_index": np.zeros((3, 2), dtype=int)}, r"edge_index of shape \[3, 2\], not \[2, num_edges\]"),
        ({"edge_index": np.zeros((3, 2), dtype=int)}, r"\(edge_index\.T has it\)"),
        ({"edge_index": np.array([["a"], ["b"]])}, r"edge_index holds text, such as \['a'\]; .*searchsorted\(names"),
        ({"edge_index": np.zeros((2, 0), "U1")}, r"edge_index holds text, such as \[\]; "),
        ({"labels": np.array(list("abcabc"))}, r"names by numpy\.unique\(names, return_inverse=True\)\[1\]"),
        ({"train": np.array(["a"])}, "a boolean mask: numbers of nodes, as in the edges, in place of their names"),
        ({"edge_index": np.zeros((2, 3))}, "edge_index of dtype float64 instead of integers"),
        ({"edge_index": np.array([[0], [9]])}, "dst holds node 9; valid ids are 0 to 5"),
        ({"edge_index": None, "src": np.array([0, 1]), "dst": np.array([1])}, r"src has shape \(2,\), dst \(1,\)"),
        ({"features": np.zeros(6)}, r"features of shape \[6\], not \[num_nodes, num_features\]"),
        ({"edge_index": np.zeros(3, dtype=int)}, r"edge_index of shape \[3\], not \[2, num_edges\]"),
        (
            {"edge_index": None, "src": np.zeros((2, 1), int), "dst": np.zeros(2, int)},
            r"src of shape \[2, 1\], not \[num_edges\]",
        ),
        ({"edge_weight": np.ones(7, np.float32)}, r"'edge_weight', which is not read; did you mean 'edge_weights'\?"),
        ({"train_mask": np.ones(6, bool), "train": None}, r"'train_mask', which is not read; did you mean 'train'\?"),
        ({"weights": np.ones(7, np.float32)}, r"'weights', which is not read; did you mean 'edge_weights'\?"),
        ({"node_time": np.ones(6, int)}, r"'node_time', which is not read; did you mean 'node_times'\?"),
        (
            {"features": np.full((6, 2), None)},
            r"features has Python objects, such as lists of several lengths; save numbers: astype",
        ),
        (
            {"features": np.full((6, 2), np.nan)},
            r"features must be finite, and are not in columns 0, 1 of 2: 12 NaN \(feature 0 of node 0 is nan\)",
        ),
        ({"labels": np.array([0, 1])}, r"labels have shape \[2\]; they must be \[6\]"),
        ({"labels": np.array([0, 1, 2, 0, 1, 9]), "num_classes": np.array(3)}, "node 5 has label 9; .* 0 to 2"),
        ({"labels": np.full((6, 2), 3)}, "label 0 of node 0 is 3; it must be 0 or 1"),
        ({"labels": np.array([0, 1, -1, 0, 1, 2])}, "node 2 of split train has label -1"),
        ({"labels": np.array([0, 1, 0.5, 0, 1, 2])}, "are not whole numbers"),
        (
            {"labels": np.zeros(6, dtype=int)},
            "only class 0 occurs among the labels; at least 2 classes are needed: number the classes from 0 on",
        ),
        ({"labels": np.zeros((6, 0), dtype=int)}, r"labels have shape \[6, 0\]; they must have at least 1 column"),
        ({"train": np.array([0, 6])}, "split train holds node 6; valid ids are 0 to 5"),
        ({"train": np.array([0, 3])}, "node 3 is in the splits train and val"),
        ({"train": np.array([0, 0])}, "train holds node 0 twice"),
        ({"train": np.array([0, 2**64 - 1], np.uint64)}, f"train holds {2**64 - 1}; the largest number that is read"),
        (
            {"edge_index": np.array([[0], [2**64 - 1]], np.uint64)},
            f"dst holds node {2**64 - 1}; valid ids are 0 to 5",
        ),
        (
            {"num_classes": np.array([3, 3])},
            r"num_classes has shape \[2\]; it must be one integer, or be",
        ),
        ({"num_classes": np.array("three")}, "num_classes is 'three'; it must be an integer of at least 2"),
        ({"num_classes": np.array(-2)}, "num_classes is -2; it must be an integer of at least 2"),
        ({"num_classes": np.array(4.7)}, r"num_classes is 4\.7; it must be an integer of at least 2"),
        ({"labels": np.array([0, 1, 2, 0, 1, 2]) + 10**6}, r"labels are 1000000 to 1000002.* only 3.* numpy\.unique"),
        ({"train": np.array([1, 1, 1, 0, 0, 0])}, r"train has 6 entries, all of them 0 or 1.* astype\(bool\)"),
        ({"features": np.full((6, 2), "x")}, "features have dtype <U1; they must be real numbers"),
        ({"features": np.full((6, 2), 1j)}, "features have dtype complex128; they must be real numbers"),
        ({"edge_weights": np.full(7, -1.0)}, r"the weight of edge 0, 0 -> 1, is -1\.0; it must be finite"),
        ({"edge_times": np.zeros(3, int)}, r"edge_times has shape \[3\]; it must be \[7\]"),
        ({"node_types": np.array(["a"])}, "has types of nodes, but no array 'node_type_sizes'"),
        ({"node_types": np.array(["a", "a"]), "node_type_sizes": np.array([3, 3])}, "must be different strings"),
        ({"node_types": np.array(["a", "b"]), "node_type_sizes": np.array([7, -1])}, r"node_type_sizes is \[7, -1\]"),
        ({"node_types": np.array(["a"]), "node_type_sizes": np.array([5])}, "have 5 nodes together; .* 6 rows"),
    ],
)
def test_bad_arrays_give_one_line_and_leave_nothing(npz_file, load, tmp_path, changes, message):
    with pytest.raises(DatasetError, match=message) as caught:
        load(npz_file(**changes))
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path / "cache") == []


def test_arrays_of_other_names_are_left_alone(npz_file, load):
    assert (
        load(npz_file(comment=np.array("mine"), train_mask=np.zeros(6, bool), label_names=np.array(["a"]))).num_nodes
        == 6
    )


@pytest.mark.parametrize("content", [b"text\n" * 40, pickle.dumps({"features": 1})])
def test_a_file_of_something_else_is_named(tmp_path, content):
    (tmp_path / "mine.npz").write_bytes(content)
    with pytest.raises(DatasetError, match=r"mine\.npz is no \.npz file; write one by numpy\.savez$"):
        NpzDataset(tmp_path / "mine.npz", cache_dir=tmp_path / "cache").load()


def test_a_header_that_promises_too_much_is_damage(tmp_path):
    head = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 10), }"
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as file:
        file.writestr("features.npy", head.ljust(127) + b"\n")
    with pytest.raises(DatasetError, match=r"cannot be read as a \.npz file .*is it truncated\?$"):
        NpzDataset(tmp_path / "mine.npz", cache_dir=tmp_path / "cache").load()


@pytest.mark.parametrize(
    ("indptr", "message"),
    [
        ([0, 1, 2], "indptr has 3 entries, features 6 rows"),
        ([0, 2, 1, 3, 3, 3, 3], r"indptr is not monotone: indptr\[1\] = 2 > indptr\[2\] = 1"),
        # Differences of these wrap, and are no negative numbers then.
        ([0, 2**62, -(2**63), 3, 3, 3, 3], rf"not monotone: indptr\[1\] = {2**62} > indptr\[2\] = -{2**63}"),
        ([0, 1, 1, 1, 1, 1, 2], r"indptr goes from 0 to 2; it must go from 0 to len\(indices\) = 3"),
    ],
)
def test_a_bad_indptr_is_named(npz_file, load, indptr, message):
    with pytest.raises(DatasetError, match=message):
        load(npz_file(edge_index=None, indptr=np.array(indptr), indices=np.array([0, 1, 2])))


def test_an_unsigned_indptr_beyond_int64_is_named(npz_file, load):
    indptr = np.array([0, 2**64 - 1, 3, 3, 3, 3, 3], np.uint64)
    with pytest.raises(DatasetError, match=f"indptr holds {2**64 - 1}; the largest number that is read is {2**63 - 1}"):
        load(npz_file(edge_index=None, indptr=indptr, indices=np.array([0, 1, 2])))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint64", "int64"])
def test_edges_of_every_integer_type_are_read(npz_file, load, dtype):
    src, dst = np.array([5, 0, 0, 1, 2, 3, 4], dtype), np.array([0, 0, 1, 2, 3, 4, 5], dtype)
    expected = in_neighbors(load(npz_file()))
    assert in_neighbors(load(npz_file(edge_index=None, src=src, dst=dst))) == expected
    indptr = np.array([0, 2, 3, 4, 5, 6, 7], dtype)
    assert in_neighbors(load(npz_file(edge_index=None, indptr=indptr, indices=src))) == expected


def test_weights_times_and_types_are_kept(npz_file, load):
    path = npz_file(
        edge_weights=np.arange(7) / 2,
        edge_times=np.arange(7) * 10,
        edge_types=np.arange(7, dtype=np.uint8) % 3,
        node_times=np.arange(6),
        node_types=np.array(["user", "item"]),
        node_type_sizes=np.array([2, 4]),
    )
    graph = load(path).graph
    order = [6, 5, 0, 1, 2, 3, 4]  # of the edges, by destination and source
    assert graph.edge_weights.tolist() == [at / 2 for at in order]
    assert graph.edge_times.tolist() == [10 * at for at in order]
    assert graph.edge_types.tolist() == [at % 3 for at in order]
    assert graph.node_times.tolist() == list(range(6))
    assert graph.node_types == {"user": range(2), "item": range(2, 6)}


def test_unchecked_features_may_be_nan(npz_file, load):
    assert load(npz_file(features=np.full((6, 2), np.nan)), check_features=False).features.isnan().all()


def test_stored_and_drawn_splits_exclude_each_other(npz_file, load):
    with pytest.raises(DatasetError, match="drop one of the two"):
        load(npz_file(), split=[0.6, 0.2, 0.2])


def test_a_missing_or_damaged_file_is_named(npz_file, load, tmp_path):
    with pytest.raises(DatasetError, match=r"there is no file .*nothing\.npz or .*nothing\.npz; give the path of your"):
        load("nothing.npz")
    with pytest.raises(DatasetError, match=r"there is no file [^ ]*nothing\.npz; give the path of your"):
        NpzDataset("nothing.npz", data_dir=".").load()
    path = npz_file()
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DatasetError, match=r"cannot be read as a \.npz file .*truncated"):
        load(path)
    torch.save({"features": torch.zeros(3)}, path)
    with pytest.raises(DatasetError, match=r"was written by torch\.save; write the arrays by numpy\.savez"):
        load(path)
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(DatasetError, match="is a single array"):
        load(tmp_path / "single.npy")

"""Graphs with types in .npz files: written, read, converted, and refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hetero_graphs import hetero_edges, lists_of, rows_of
from hypothesis import HealthCheck, given, settings

from loader.datasets import (
    CacheError,
    DatasetError,
    HeteroDataset,
    HeteroNpzDataset,
    NpzDataset,
    open_dataset,
    write_hetero_npz,
)
from loader.graph import HeteroGraph

Load = Callable[..., HeteroDataset]
SIZES = {"paper": 4, "author": 3, "venue": 1}
WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """`load({"paper/labels": ...}, undirected=True)`: a valid file with these arrays changed, or left out if None."""

    def run(changes: dict[str, Any] | None = None, **options: Any) -> HeteroDataset:
        arrays: dict[str, Any] = {
            "paper/features": np.arange(8, dtype=np.float64).reshape(4, 2),
            "paper/labels": np.array([0, 1, -1, 1]),
            "paper/train": np.array([1, 0]),
            "paper/val": np.array([], dtype=np.int64),
            "paper/test": np.array([False, False, False, True]),
            "author/num_nodes": np.array(3),
            "venue/features": np.ones((1, 5)),
            "author/writes/paper/edge_index": np.array([[2, 0, 1], [1, 1, 3]]),
            "paper/cites/paper/edge_index": np.array([[3, 0, 2], [1, 1, 2]], dtype=np.int32),
        }
        arrays.update(changes or {})
        path = tmp_path / "mine.npz"
        np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
        return HeteroNpzDataset(path, cache_dir=tmp_path / "cache", **options).load()

    return run


def test_arrays_become_a_dataset_as_they_are(load: Load) -> None:
    data = load()
    assert (data.name, data.target, data.num_classes) == ("mine", "paper", 2)
    assert data.graph.metadata() == (list(SIZES), [WRITES, CITES])
    edges = {WRITES: torch.tensor([[2, 0, 1], [1, 1, 3]]), CITES: torch.tensor([[3, 0, 2], [1, 1, 2]])}
    assert rows_of(data.graph.lists) == lists_of(edges, SIZES)
    assert data.features["paper"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert list(data.features) == ["paper", "venue"]
    assert data.labels.tolist() == [0, 1, -1, 1]
    assert {split: ids.tolist() for split, ids in data.splits.items()} == {"train": [0, 1], "val": [], "test": [3]}


def test_a_later_load_opens_the_conversion(load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, source = load(), HeteroNpzDataset(tmp_path / "mine.npz", cache_dir=tmp_path / "cache", verify=True)
    with caplog.at_level(logging.INFO):
        again = source.load()
    assert [record.getMessage().startswith("mine: opened from") for record in caplog.records] == [True]
    assert again.identity() == first.identity()
    assert rows_of(again.graph.lists) == rows_of(first.graph.lists)
    (features,) = (tmp_path / "cache").glob("mine-*/version-*/2.features.npy")  # of venue
    features.write_bytes(features.read_bytes()[:-4] + b"abcd")
    with pytest.raises(CacheError, match=r"2\.features\.npy cannot be used: bytes .* are not those that were written"):
        source.load()


def test_topology_may_stay_on_disk(load: Load) -> None:
    data = load(in_memory=False)
    kinds = {name: place.kind for name, place in data.graph.placement.items()}
    assert kinds == {"indptr": "disk", "indices": "disk", "edge_ids": "disk"}
    assert rows_of(data.graph.lists) == rows_of(load().graph.lists)


def test_a_transform_makes_another_dataset(load: Load) -> None:
    data = load(
        transform=[lambda data: replace(data, graph=data.graph.reverse()), lambda data: replace(data, name="b")]
    )
    assert data.name == "b"
    assert data.graph.edge_types[0] == ("paper", "rev_writes", "author")
    with pytest.raises(TypeError, match="transform of mine returned a HeteroGraph; it must return a HeteroDataset"):
        load(transform=lambda data: data.graph)
    with pytest.raises(TypeError, match="transform is 'reverse'; it must be a function of a HeteroDataset"):
        load(transform="reverse")


def test_sparse_features_come_back_whole(load: Load) -> None:
    table = np.zeros((4, 300), dtype=np.float32)
    table[2, 7], table[3, 299] = 1.5, -0.0
    found = load({"paper/features": table}).features["paper"]
    assert np.array_equal(found.numpy(), table)
    assert np.signbit(found.numpy()[3, 299])


def test_weights_are_read(load: Load) -> None:
    data = load({"author/writes/paper/edge_weights": np.array([0.5, 2, 3])})
    weights = data.graph.relation(WRITES).edge_weights
    assert weights is not None
    assert weights.tolist() == [2, 0.5, 3]
    assert data.graph.relation(CITES).edge_weights.tolist() == [1, 1, 1]  # type: ignore[union-attr]


def test_times_are_read_and_written(load: Load, tmp_path: Path) -> None:
    times = {
        "paper/node_times": np.array([5.0, np.nan, -2.0, 7.0]),
        "author/writes/paper/edge_times": np.array([9, 3, 1]),
    }
    data = load(times)
    graph = data.graph
    assert (graph.timed_types, graph.timed_relations) == (("paper",), (WRITES,))
    assert graph.relation(WRITES).edge_times.tolist() == [3, 9, 1]  # type: ignore[union-attr]
    assert graph.relation(CITES).node_times.tolist() == [5, -(2**63), -2, 7]  # type: ignore[union-attr]
    write_hetero_npz(data, tmp_path / "written.npz")
    with np.load(tmp_path / "written.npz") as written:
        assert written["author/writes/paper/edge_times"].tolist() == [9, 3, 1]
        assert "author/node_times" not in written
    back = HeteroNpzDataset(tmp_path / "written.npz", name="mine", cache_dir=tmp_path / "cache").load()
    assert back.identity() == data.identity() != load().identity()
    assert back.identity() != load({**times, "author/node_times": np.full(3, -(2**63))}).identity()


def test_undirected_edges_have_the_times_of_both(load: Load) -> None:
    graph = load({"author/writes/paper/edge_times": np.array([9, 3, 1])}, undirected=True).graph
    assert graph.timed_relations == (WRITES, ("paper", "rev_writes", "author"))
    assert graph.relation(graph.timed_relations[1]).edge_times.tolist() == [3, 1, 9]  # type: ignore[union-attr]
    with pytest.raises(DatasetError, match="paper/cites/paper have times, and the two directions may differ"):
        load({"paper/cites/paper/edge_times": np.ones(3)}, undirected=True)


def test_undirected_adds_what_pyg_adds(load: Load) -> None:
    from torch_geometric.data import HeteroData
    from torch_geometric.transforms import ToUndirected

    found, data = load(undirected=True).graph, HeteroData()
    for name, size in SIZES.items():
        data[name].num_nodes = size
    data[WRITES].edge_index = torch.tensor([[2, 0, 1], [1, 1, 3]])
    data[CITES].edge_index = torch.tensor([[3, 0, 2], [1, 1, 2]])
    expected = HeteroGraph.from_pyg(ToUndirected()(data))
    assert sorted(found.edge_types) == sorted(expected.edge_types)
    for key in expected.edge_types:
        assert torch.equal(found.relation(key).indptr, expected.relation(key).indptr)
        assert torch.equal(found.relation(key).indices, expected.relation(key).indices)
    with pytest.raises(
        DatasetError, match=r"author/writes/paper, paper/rev_writes/author, is there already; set undir"
    ):
        load({"paper/rev_writes/author/edge_index": np.array([[0], [0]])}, undirected=True)
    with pytest.raises(DatasetError, match="paper/cites/paper have weights, and the two directions may differ"):
        load({"paper/cites/paper/edge_weights": np.ones(3)}, undirected=True)
    weighted = load({"author/writes/paper/edge_weights": np.array([0.5, 2, 3])}, undirected=True).graph
    back = weighted.relation(("paper", "rev_writes", "author"))
    assert back.edge_weights is not None
    assert back.edge_weights.tolist() == [2, 3, 0.5]


def test_a_split_is_drawn_by_its_seed(load: Load) -> None:
    bare: dict[str, Any] = dict.fromkeys(("paper/train", "paper/val", "paper/test"))
    bare |= {"paper/features": np.eye(40), "paper/labels": np.arange(40) % 4 - (np.arange(40) < 4)}
    drawn = [load(bare, split=[0.5, 0.25, 0.25], split_seed=seed).splits for seed in (0, 0, 1)]
    assert sorted(torch.cat([*drawn[0].values()]).tolist()) == list(range(1, 40))  # 0 has no label
    assert all(torch.equal(drawn[0][split], drawn[1][split]) for split in drawn[0])
    assert not torch.equal(drawn[0]["train"], drawn[2]["train"])
    with pytest.raises(
        DatasetError, match=r"has the split train, val, test, and split=\[0\.5, 0\.25, 0\.25\] asks to draw"
    ):
        load(split=[0.5, 0.25, 0.25])
    with pytest.raises(DatasetError, match="has no labels, and split="):
        load({**bare, "paper/labels": None}, split=[0.5, 0.25, 0.25])


NO_SPLIT: dict[str, Any] = {"paper/train": None, "paper/val": None, "paper/test": None}


def test_splits_go_by_time(load: Load) -> None:
    labels, times = np.array([0, 1, -1, 1, 0, 1, 1]), np.array([-5.0, 20, 3, 10, np.nan, 9, 10])
    more = {"paper/labels": labels, "paper/features": None, "paper/node_times": times}
    data = load(NO_SPLIT | more, split_times=[10, 20])
    assert {split: ids.tolist() for split, ids in data.splits.items()} == {"train": [0, 5], "val": [3, 6], "test": [1]}
    same = load(NO_SPLIT | more, split_times=[10, 10])
    assert {split: len(ids) for split, ids in same.splits.items()} == {"train": 2, "val": 0, "test": 3}


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"split_times": [1, 2]}, r"has the split train, val, test, and split_times=\[1, 2\] asks to draw one"),
        (NO_SPLIT, {"split_times": [1, 2]}, "split_times is .*, but nodes of paper have no times"),
        (NO_SPLIT, {"split_times": [2, 1]}, r"split_times is \[2, 1\]; give two integers in order"),
        (NO_SPLIT, {"split_times": [1]}, r"split_times is \[1\]; give two integers in order"),
        (NO_SPLIT, {"split_times": "12"}, "split_times is '12'; give two integers in order"),
        (NO_SPLIT, {"split_times": [1, 2], "split": [0.5, 0.2, 0.3]}, "both say the split; give one"),
        (
            {**NO_SPLIT, "paper/node_times": np.arange(4)},
            {"split_times": [0, 2]},
            "no node with a label is earlier than the first",
        ),
    ],
)
def test_bad_splits_by_time_are_refused(
    load: Load, changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises((DatasetError, ValueError), match=message):
        load(changes, **options)


def test_times_of_features_are_read_and_written(load: Load, tmp_path: Path) -> None:
    data = load({"paper/feature_times": np.array([1.0, np.nan, 3, 4])})
    assert data.feature_times["paper"].tolist() == [1, -(2**63), 3, 4]
    write_hetero_npz(data, tmp_path / "again.npz")
    again = HeteroNpzDataset(tmp_path / "again.npz", cache_dir=tmp_path / "cache").load()
    assert torch.equal(again.feature_times["paper"], data.feature_times["paper"])
    for changes, message in (
        ({"paper/feature_times": np.arange(3)}, r"feature_times\['paper'\] has 3 entries, the type has 4 nodes"),
        ({"author/feature_times": np.arange(3)}, r"feature_times\['author'\], but no features of author"),
        ({"paper/feature_times": np.arange(4) + 0.5}, "times are whole numbers"),
    ):
        with pytest.raises(DatasetError, match=message):
            load(changes)
    with pytest.raises(DatasetError, match="times of features of 'author' are"):
        replace(data, feature_times={"author": torch.arange(3)})


def test_a_dataset_may_lack_labels(load: Load) -> None:
    data = load(dict.fromkeys(("paper/labels", "paper/train", "paper/val", "paper/test")))
    assert (data.num_classes, data.labels.tolist()) == (0, [-1] * 4)
    assert all(ids.numel() == 0 for ids in data.splits.values())
    assert data.target == "paper"  # the first type
    bare = dict.fromkeys(("paper/labels", "paper/train", "paper/val", "paper/test"))
    assert load({**bare, "target": np.array("author")}).target == "author"
    with pytest.raises(DatasetError, match="target is 'book'; it must be one of paper, author, venue"):
        load({**bare, "target": np.array("book")})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            dict.fromkeys(f"{key}/edge_index" for key in ("author/writes/paper", "paper/cites/paper")),
            "no array 'source/",
        ),
        ({"author/num_nodes": None}, "does not say how many nodes 'author' of author/writes/paper has; add"),
        ({"author/num_nodes": np.array([1, 2])}, r"author/num_nodes is \[1, 2\]; it must be one number of at least 0"),
        (
            {"author/num_nodes": None, "author/train": np.array([0])},
            "how many nodes 'author' has; add .* 'author/num_nodes'",
        ),
        ({"author/num_nodes": np.array(2)}, r"\(sources\) holds node 2; valid ids are 0 to 1 of type 'author'"),
        ({"author/labels": np.array([0, 1, 0])}, "has labels of paper, author and splits of paper; one type has both"),
        ({"author/train": np.array([0])}, "has labels of paper and splits of author, paper; one type has both"),
        ({"paper/test": None}, "has no array 'paper/test'; add it, or leave out all three"),
        ({"paper/labels": np.array([0, 1])}, r"labels have shape \[2\]; they must be \[4\]"),
        ({"paper/labels": np.eye(4, dtype=int)}, r"labels have shape \[4, 4\]; they must be \[4\], one class"),
        ({"paper/features": np.full((4, 2), np.nan)}, "mine, paper: .*features"),
        (
            {"paper/features": np.ones(4)},
            r"features of paper have shape \[4\]; they must be \[num_nodes, num_features\]",
        ),
        (
            {"venue/num_nodes": np.array(5)},
            "features of venue have 1 rows; there are 5 nodes of that type, make them equal",
        ),
        ({"paper/x": np.ones((4, 1))}, "did you mean 'paper/features'"),
        ({"paper/train_mask": np.ones(4, bool)}, "did you mean 'paper/train'"),
        ({"paper/cites/paper/edge_weight": np.ones(3)}, "did you mean 'paper/cites/paper/edge_weights'"),
        ({"paper/cites/paper/edge_weights": np.ones(2)}, "has 2 entries, the relation has 3 edges"),
        ({"paper/cites/paper/edge_times": np.ones(2)}, r"edge_times\[.*\] has 2 entries, the relation has 3 edges"),
        ({"paper/cites/paper/edge_time": np.ones(3)}, "did you mean 'paper/cites/paper/edge_times'"),
        ({"paper/node_times": np.array([1, 2.5, 3, 4])}, r"node_times\['paper'\]\[1\] is 2.5; times are whole"),
        (
            {"paper/cites/paper/edge_index": np.ones((3, 2), int)},
            r"has the shape \[3, 2\]; it must be \[2, num_edges\]",
        ),
        ({"paper/cites/paper/edge_index": np.ones((2, 2))}, "paper/cites/paper"),
        ({"paper/cites/paper/edge_index": np.array([["a"], ["b"]])}, "paper/cites/paper"),
        ({"target": np.array("author")}, "target is 'author'; it must be the type with labels, one of paper"),
        ({"target": np.array(["paper", "author"])}, r"target is \['paper', 'author'\]; it must be"),
        ({"num_classes": np.array([1, 2])}, r"num_classes is \[1, 2\]; it must be an integer of at least 2"),
    ],
)
def test_bad_files_are_refused(load: Load, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        load(changes)
    assert "\n" not in str(caught.value)


def test_arrays_that_nothing_reads_are_told(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    load({"paper/colour": np.ones(4), "note": np.ones(1)})
    assert "has note, paper/colour, which nothing reads" in caplog.text


def test_a_file_of_one_type_names_its_reader(load: Load, tmp_path: Path) -> None:
    load()
    with pytest.raises(DatasetError, match=r"edges of several types, .*; loader\.datasets\.HeteroNpzDataset reads it"):
        NpzDataset(tmp_path / "mine.npz", cache_dir=tmp_path / "cache").load()


def test_the_command_line_tells_the_two_kinds_apart(load: Load, tmp_path: Path, npz_file: Callable[..., Path]) -> None:
    load()
    data = open_dataset(str(tmp_path / "mine.npz"), ["undirected=true"], cache_dir=tmp_path / "cache")
    assert isinstance(data, HeteroDataset)
    assert ("paper", "rev_writes", "author") in data.graph.edge_types
    relative = open_dataset("mine.npz", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert isinstance(relative, HeteroDataset)
    with pytest.raises(ValueError, match=r"self_loops is no option of .*mine\.npz; it has .*undirected"):
        open_dataset(str(tmp_path / "mine.npz"), ["self_loops=keep"], cache_dir=tmp_path / "cache")
    assert not isinstance(open_dataset(str(npz_file()), cache_dir=tmp_path / "cache"), HeteroDataset)


@given(hetero_edges())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read(tmp_path: Path, drawn: Any) -> None:
    edges, sizes, weights = drawn
    if not edges:
        return
    graph = HeteroGraph.from_edges(edges, sizes, edge_weights=weights)
    none = torch.empty(0, dtype=torch.int64)
    target = max(sizes, key=lambda name: sizes[name])
    some = sizes[target] > 1  # else it would be one class, which is refused
    labels = torch.arange(sizes[target]) % 3 if some else torch.full((sizes[target],), -1)
    data = HeteroDataset(
        "mine",
        graph,
        {target: torch.rand(sizes[target], 2)},
        target,
        labels,
        {"train": none, "val": none, "test": none},
        num_classes=3 if some else 0,
    )
    write_hetero_npz(data, tmp_path / "written.npz")
    back = HeteroNpzDataset(tmp_path / "written.npz", name="mine", cache_dir=tmp_path / "cache").load()
    assert back.identity() == data.identity()
    assert rows_of(back.graph.lists) == rows_of(graph.lists)
    assert torch.equal(back.features[target], data.features[target])


def test_names_with_a_slash_are_not_written(tmp_path: Path) -> None:
    none = torch.empty(0, dtype=torch.int64)
    graph = HeteroGraph.from_edges({("a/b", "to", "a/b"): torch.tensor([[0], [0]])}, {"a/b": 1})
    data = HeteroDataset("m", graph, {}, "a/b", torch.tensor([-1]), {"train": none, "val": none, "test": none}, 0)
    with pytest.raises(ValueError, match="the name 'a/b' cannot be part of an array's name; rename it without '/'"):
        write_hetero_npz(data, tmp_path / "written.npz")
    with pytest.raises(TypeError, match=r"data is a HeteroGraph; it must be a loader\.datasets\.HeteroDataset"):
        write_hetero_npz(graph, tmp_path / "written.npz")  # type: ignore[arg-type]
    lonely = replace(data, graph=HeteroGraph.from_edges({}, {"a/b": 1}))
    with pytest.raises(ValueError, match="m has 0 relations; a file has at least 1"):
        write_hetero_npz(lonely, tmp_path / "written.npz")
    assert not (tmp_path / "written.npz").exists()

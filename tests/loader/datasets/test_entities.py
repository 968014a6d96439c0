"""Entities of RDF graphs: the graph of torch_geometric's reader, and numbers that no process changes."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from loader.datasets import DatasetError, EntitiesDataset, HeteroDataset

pytest.importorskip("rdflib", reason="RDF needs pip install 'gnn-loader[hetero]'")
pytest.importorskip("pandas", reason="torch_geometric's reader of RDF needs pandas")

PERSON, GROUP = "http://some.org/person/", "http://some.org/group#"
TYPE, OTHER_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type", "http://some.org/type"


def write_aifb(folder: Path) -> None:
    """Ten persons of two groups, who know each other, with names, and two predicates that end alike."""
    lines = []
    for i in range(10):
        lines += [
            f"<{PERSON}{i}> <http://some.org/ontology#knows> <{PERSON}{(i + 2) % 10}> .",
            f"<{PERSON}{i}> <http://some.org/ontology#knows> <{PERSON}{(3 * i) % 10}> .",
            f'<{PERSON}{i}> <http://some.org/ontology/name> "Name {i % 4}"@{"en" if i < 5 else "de"} .',
            f"<{PERSON}{i}> <{TYPE}> <http://some.org/Person> .",
        ]
    lines += [f"_:b{i} <{OTHER_TYPE}> <{PERSON}{i}> ." for i in range(3)]
    raw = folder / "aifb" / "raw"
    raw.mkdir(parents=True)
    with gzip.open(raw / "aifb_stripped.nt.gz", "wt") as file:
        file.write("\n".join([*lines, lines[0]]) + "\n")
    for name, persons in (("completeDataset", range(10)), ("trainingSet", range(6)), ("testSet", range(6, 9))):
        rows = [f"{PERSON}{i}\t{i}.0\t{GROUP}{i % 2}" for i in persons]
        (raw / f"{name}.tsv").write_text("\n".join(["person\tid\tlabel_affiliation", *rows]) + "\n")


def degrees(sinks: Tensor) -> tuple[int, ...]:
    """How many nodes have each number of edges."""
    return tuple(torch.bincount(torch.bincount(sinks)).tolist()[1:])


def check_as_torch_geometric(data: HeteroDataset, root: Path, name: str) -> None:
    """Nodes have other numbers there, in another process others again."""
    theirs = pytest.importorskip("torch_geometric.datasets").Entities(str(root), name)
    whole = theirs[0]
    assert len(data.graph.node_types["v"]) == whole.num_nodes
    assert (len(data.graph.edge_types), data.num_classes) == (theirs.num_relations, theirs.num_classes)
    sinks = []
    for key in data.graph.edge_types:
        relation = data.graph.relation(key)
        sinks.append(torch.arange(relation.num_dst).repeat_interleave(relation.in_degrees().long()))
    counts = torch.bincount(whole.edge_type).tolist()
    assert [len(one) for one in sinks] == counts
    of_theirs = Counter(degrees(whole.edge_index[1][whole.edge_type == r]) for r in range(len(counts)))
    assert Counter(map(degrees, sinks)) == of_theirs
    # Of nodes with labels, all relations at once.
    for split, nodes, labels in (("train", whole.train_idx, whole.train_y), ("test", whole.test_idx, whole.test_y)):
        mine = torch.bincount(torch.cat(sinks), minlength=whole.num_nodes)[data.splits[split]]
        other = torch.bincount(whole.edge_index[1], minlength=whole.num_nodes)[nodes]
        assert sorted(mine.tolist()) == sorted(other.tolist())
        classes = [sorted(torch.bincount(of).tolist()) for of in (data.labels[data.splits[split]], labels)]
        assert classes[0] == classes[1]


def test_a_small_graph_is_that_of_torch_geometric(tmp_path: Path) -> None:
    write_aifb(tmp_path)
    options = {"data_dir": tmp_path, "cache_dir": tmp_path / "cache"}
    data = EntitiesDataset("aifb", val_fraction=0, **options).load()
    assert [key[1] for key in data.graph.edge_types] == [
        "knows", "rev_knows", "name", "rev_name", TYPE, f"rev_{TYPE}", OTHER_TYPE, f"rev_{OTHER_TYPE}",
    ]  # fmt: skip
    # In the order of the file: persons 0 and 2 are of the first group, then there are a name, a type, and person 1.
    assert data.labels[:5].tolist() == [0, 0, -1, -1, 1]
    assert {split: ids.numel() for split, ids in data.splits.items()} == {"train": 6, "val": 0, "test": 3}
    assert (data.labels >= 0).sum() == 9
    assert data.num_features == {}
    check_as_torch_geometric(data, tmp_path, "aifb")


def test_a_part_of_the_train_split_validates(tmp_path: Path) -> None:
    write_aifb(tmp_path)
    options = {"data_dir": tmp_path, "cache_dir": tmp_path / "cache"}
    whole = EntitiesDataset("aifb", val_fraction=0, **options).load().splits
    drawn = [EntitiesDataset("aifb", val_fraction=0.34, split_seed=seed, **options).load() for seed in (0, 0, 1)]
    for data in drawn:
        assert sorted(torch.cat([data.splits["train"], data.splits["val"]]).tolist()) == whole["train"].tolist()
        assert sorted(data.labels[data.splits["val"]].tolist()) == [0, 1]
        assert torch.equal(data.splits["test"], whole["test"])
    assert torch.equal(drawn[0].splits["val"], drawn[1].splits["val"])


def test_every_process_gives_equal_numbers(tmp_path: Path) -> None:
    write_aifb(tmp_path)
    program = (
        "import sys; from loader.datasets import EntitiesDataset as E\n"
        "data = E('aifb', data_dir=sys.argv[1], cache_dir=sys.argv[2]).load()\n"
        "print(data.graph.edge_types, data.graph.lists.indices.tolist(), data.labels.tolist())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1


@pytest.mark.parametrize(
    ("name", "sizes"), [("aifb", (8285, 58_086, 90, 4, 140, 36)), ("mutag", (23_644, 148_454, 46, 2, 272, 68))]
)
def test_real_graphs_are_those_of_torch_geometric(
    shared_data: Callable[[str], Path], tmp_path: Path, name: str, sizes: tuple[int, ...]
) -> None:
    raw = shared_data(f"entities/{name}") / "entities" / name / "raw"
    (tmp_path / name).mkdir()
    (tmp_path / name / "raw").symlink_to(raw)
    data = EntitiesDataset(name, val_fraction=0, data_dir=tmp_path, cache_dir=tmp_path / "cache").load()
    graph, splits = data.graph, data.splits
    found = len(graph.node_types["v"]), graph.num_edges, len(graph.edge_types), data.num_classes
    assert (*found, len(splits["train"]), len(splits["test"])) == sizes
    check_as_torch_geometric(data, tmp_path, name)


def test_labels_of_other_nodes_are_refused(tmp_path: Path) -> None:
    write_aifb(tmp_path)
    table = tmp_path / "aifb" / "raw" / "testSet.tsv"
    table.write_text(table.read_text().replace("person/7", "person/70"))
    with pytest.raises(DatasetError, match=r"testSet.tsv: .*person/70 is no node of the graph \(1 of 3 are none\); co"):
        EntitiesDataset("aifb", data_dir=tmp_path, cache_dir=tmp_path / "cache").load()


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_aifb(tmp_path)
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(ImportError, match=r"dataset aifb needs the package rdflib; pip install 'gnn-loader\[hetero\]'"):
        EntitiesDataset("aifb", data_dir=tmp_path, cache_dir=tmp_path / "cache").load()


def test_other_options_are_refused() -> None:
    with pytest.raises(ValueError, match="name is 'am'; it must be one of aifb, mutag"):
        EntitiesDataset("am")
    with pytest.raises(ValueError, match=r"val_fraction is 1; it must be in \[0, 1\)"):
        EntitiesDataset("aifb", val_fraction=1)
    with pytest.raises(ValueError, match="split_seed is 3, but no split is drawn; give val_fraction, or leave it out"):
        EntitiesDataset("aifb", val_fraction=0, split_seed=3)

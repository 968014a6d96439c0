from __future__ import annotations

import logging
import re

import numpy as np
import pytest
import torch

from loader import Graph
from loader.datasets import DatasetError, NodeDataset, TableDataset, open_dataset

pa = pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")
parquet = pytest.importorskip("pyarrow.parquet")

EDGES = "from,to,since,w\na,b,2024-01-01,1\nb,c,2024-01-02,2\nc,a,2024-01-03,.5\nd,d,2024-01-04,1\nb,a,2024-01-01,1\n"
NODES = """id,age,city,part,segment
c,3,X,val,gold
a,1,X,train,gold
b,,Y,train,silver
d,5,,,
e,1,X,test,silver
"""


@pytest.fixture
def load(tmp_path):
    def run(edges: str = EDGES, nodes: str | None = None, **options) -> NodeDataset:
        (tmp_path / "edges.csv").write_text(edges)
        if nodes is not None and nodes.endswith(".parquet"):
            options["nodes"] = tmp_path / nodes
        elif nodes is not None:
            (tmp_path / "nodes.csv").write_text(nodes)
            options["nodes"] = tmp_path / "nodes.csv"
        options = {"data_dir": tmp_path, "cache_dir": tmp_path / "cache", "split": [1, 0, 0], **options}
        return TableDataset(tmp_path / "edges.csv", **options).load()

    return run


def in_neighbors(data: NodeDataset) -> dict[str, list[str]]:
    """By the ids of the table."""
    ids = data.tables.ids.of(torch.arange(data.num_nodes)).tolist()
    bounds = data.graph.indptr.tolist()
    return {ids[v]: sorted(ids[u] for u in data.graph.indices[bounds[v] : bounds[v + 1]]) for v in range(len(ids))}


def test_edges_alone_are_a_graph(load):
    data = load()
    assert data.name == "edges"
    assert in_neighbors(data) == {"a": ["b", "c"], "b": ["a", "c"], "c": ["a", "b"], "d": []}
    assert (data.num_features, data.num_classes, data.splits["train"].numel()) == (0, 0, 0)


def test_directions_loops_and_repeats_may_be_kept(load):
    kept = load(undirected=False, self_loops="keep", parallel_edges="keep")
    assert in_neighbors(kept) == {"a": ["b", "c"], "b": ["a"], "c": ["b"], "d": ["d"]}


def test_columns_may_be_named(load):
    assert in_neighbors(load(source="to", target="from", undirected=False)) == {
        "b": ["a", "c"], "c": ["a"], "a": ["b"], "d": [],
    }  # fmt: skip


def test_weights_and_times_follow_their_edges(load):
    data = load(weight="w", time="since", undirected=False)
    seconds = [int(np.datetime64(f"2024-01-0{day}", "s").astype(int)) for day in (1, 3, 1, 2)]
    assert data.graph.edge_weights.tolist() == [1, 0.5, 1, 2]
    assert data.graph.edge_times.tolist() == seconds


def test_nodes_keep_the_order_of_their_table(load):
    data = load(nodes=NODES, label="segment", features=["age"])
    assert data.tables.ids.of(torch.arange(5)).tolist() == ["c", "a", "b", "d", "e"]
    assert data.labels.tolist() == [0, 0, 1, -1, 1]
    assert data.tables.classes == ("gold", "silver")
    filled = np.array([3, 1, 2.5, 5, 1])
    expected = np.stack([(filled - 2.5) / np.std([3, 1, 5, 1]), filled == 2.5], axis=1)
    assert np.allclose(data.features, expected)
    assert data.splits["train"].tolist() == [0, 1, 2, 4]


def test_other_columns_are_features(load):
    data = load(nodes=NODES, label="segment", split="part")
    assert [column.name for column in data.tables.columns] == ["age", "city"]
    assert [ids.tolist() for ids in data.splits.values()] == [[1, 2], [0], [4]]


def test_a_table_without_features_has_none(load):
    assert load(nodes=NODES, label="segment", features=[]).num_features == 0


@pytest.mark.parametrize(
    ("labels", "classes"), [("1 3 2", "1 2 3"), ("10 9 9", "9 10"), ("true false true", "False True"), ("b a b", "a b")]
)
def test_classes_are_in_their_order(load, labels, classes):
    rows = "".join(f"{id},{label}\n" for id, label in zip("abc", labels.split(), strict=True))
    data = load("s,t\na,b\n", f"id,y\n{rows}z,\n", label="y")
    assert data.tables.classes == tuple(classes.split())
    names = [data.tables.classes[label].lower() for label in data.labels.tolist()[:3]]
    assert names == labels.split()
    assert int(data.labels[3]) == -1


def test_parquet_is_read_like_csv(load, tmp_path):
    text = load(nodes=NODES, label="segment")
    parquet.write_table(pa.csv.read_csv(tmp_path / "edges.csv"), tmp_path / "e.parquet")
    parquet.write_table(pa.csv.read_csv(tmp_path / "nodes.csv"), tmp_path / "n.parquet")
    binary = TableDataset(tmp_path / "e.parquet", nodes=tmp_path / "n.parquet", label="segment", data_dir=tmp_path)
    data = binary.load()
    assert torch.equal(data.graph.indices, text.graph.indices)
    assert in_neighbors(data) == in_neighbors(text)


def test_parquet_misses_the_cells_that_csv_misses(load, tmp_path):
    """pandas writes an empty text where a frame has one; as a class, it would be learned."""
    columns = {
        "id": ["a", "b", "c", "d", "e"], "city": ["X", "<NA>", "Y", "NA", "X"], "y": ["u", "", "v", "None", "u"],
        "part": ["train", "", "val", None, "test"],
    }  # fmt: skip
    parquet.write_table(pa.table(columns), tmp_path / "n.parquet")
    rows = ["id,city,y,part", *(",".join(one or "" for one in row) for row in zip(*columns.values(), strict=True))]
    csv = "".join(f"{line}\n" for line in rows)
    tables = [load(nodes=nodes, label="y", split="part") for nodes in (csv, "n.parquet")]
    for data in tables:
        assert data.labels.tolist() == [0, -1, 1, -1, 0]
        assert torch.equal(data.features, tables[0].features)
        assert data.splits["train"].tolist() == [0]
    parquet.write_table(pa.table({"s": ["a", ""], "t": ["b", "c"]}), tmp_path / "e.parquet")
    with pytest.raises(DatasetError, match="has no id in column s of row 2"):
        TableDataset(tmp_path / "e.parquet", data_dir=tmp_path).load()


def test_labels_keep_their_zeros(load):
    data = load(nodes="id,y\na,007\nb,7\nc,010\nd,\ne,007\n", label="y")
    assert data.tables.classes == ("007", "010", "7")
    assert data.labels.tolist() == [0, 2, 1, -1, 0]
    assert load(nodes="id,y\na,0\nb,10\nc,0.0\nd,\ne,9\n", label="y").tables.classes == ("0", "9", "10")


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        ("1 TRUE 0 TRUE", ("0", "1", "TRUE")),
        ("0x10 16 9 16", ("0x10", "16", "9")),
        (f"{2**63} {2**63 + 1} {2**63} {2**63 + 1}", (str(2**63), str(2**63 + 1))),
    ],
)
def test_labels_that_differ_stay_apart(load, cells, classes):
    rows = "".join(f"{id},{cell}\n" for id, cell in zip("abce", cells.split(), strict=True))
    data = load(nodes=f"id,y\n{rows}d,\n", label="y")
    assert data.tables.classes == classes
    assert [data.tables.classes[label] for label in data.labels[[0, 1, 2, 3]].tolist()] == cells.split()


@pytest.mark.parametrize(("dtype", "bits"), [("float16", 11), ("float32", 24)])
def test_times_beyond_their_type_are_refused(load, tmp_path, dtype, bits):
    for last in (2**bits - 1, 2**bits):
        times = np.array([last, 5], dtype)
        parquet.write_table(pa.table({"s": [0, 1], "t": [1, 2], "at": times}), tmp_path / "e.parquet")
        data = TableDataset(tmp_path / "e.parquet", time="at", data_dir=tmp_path)
        if last < 2**bits:
            assert sorted(set(data.load().graph.edge_times.tolist())) == [5, 2**bits - 1]
    with pytest.raises(DatasetError, match=rf"is {2**bits}\.0 in row 1; type .* from 2\*\*{bits} on: save them as int"):
        data.load()


def test_periods_of_pandas_are_no_numbers(tmp_path):
    """pyarrow has their numbers alone, unless pandas told it of them, as after another test."""
    of_pandas = {"ARROW:extension:name": "pandas.period", "ARROW:extension:metadata": '{"freq": "M"}'}
    told = pa.field("at", pa.int64(), metadata=of_pandas)
    table = pa.table([[0, 1], [1, 2], [648, 649]], pa.schema([("s", pa.int64()), ("t", pa.int64()), told]))
    parquet.write_table(table, tmp_path / "e.parquet")
    told = r"holds periods of pandas, .*to_timestamp|\(dataset.time\) has type extension<pandas.period"
    with pytest.raises(DatasetError, match=rf"e\.parquet: column at ({told})"):
        TableDataset(tmp_path / "e.parquet", time="at", data_dir=tmp_path).load()


def test_a_split_of_lists_is_refused(load, tmp_path):
    parquet.write_table(
        pa.table({"id": list("abcd"), "y": list("uvuv"), "part": [["train"]] * 4}), tmp_path / "n.parquet"
    )
    with pytest.raises(DatasetError, match=r"split part has type list<.*>; it must be train, val or test, or empty"):
        load(nodes="n.parquet", label="y", split="part")


def test_categoricals_of_parquet_are_read(load, tmp_path):
    load(nodes=NODES)
    ids, kinds = pa.array(["a", "b", "c", "d"]), pa.array(["x", "y", "x", None])
    table = pa.table({"id": ids.dictionary_encode(), "kind": kinds.dictionary_encode(), "y": kinds.dictionary_encode()})
    parquet.write_table(table, tmp_path / "n.parquet")
    data = TableDataset(tmp_path / "edges.csv", nodes=tmp_path / "n.parquet", label="y", data_dir=tmp_path).load()
    assert data.features.tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert data.labels.tolist() == [0, 1, 0, -1]


def test_the_report_counts_what_was_done(load, caplog):
    with caplog.at_level(logging.INFO):
        data = load(nodes=NODES, label="segment")
    assert data.tables.report == (
        "5 nodes, 2 of them without an edge",
        "6 edges of 5 rows, 4 reverse edges added (dataset.undirected), 1 self loops removed (dataset.self_loops), "
        "2 repeated ones removed (dataset.parallel_edges)",
        "edges.csv: from is the source, to the target (dataset.source, dataset.target)",
        "edges.csv: not read since, w (dataset.weight, dataset.time)",
        "age: number, standardised: mean 2.5, standard deviation 1.65831; 1 missing, filled with the mean, flagged by "
        "a feature",
        "city: category, a feature for each of its 2 values; 1 missing, flagged by a feature",
        "part: category, a feature for each of its 3 values; 1 missing, flagged by a feature",
        "segment: 2 classes, gold, silver; 1 nodes have none: those to predict",
    )
    assert all(f"edges: {line}" in caplog.text for line in data.tables.report)


def test_numbers_with_a_word_are_warned_of(load, caplog, tmp_path):
    nodes = "id,age,segment\n" + "".join(
        f"{name},{age},{'xy'[age % 2]}\n" for age, name in enumerate("abcdefghijklmnop")
    )
    load(nodes=nodes, label="segment")
    assert not [one for one in caplog.records if one.levelname == "WARNING"]
    for _ in range(2):  # of the conversion that is opened, too
        caplog.clear()
        data = load(nodes=nodes.replace(",7,", ",?,"), label="segment")
        (line,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
        assert re.search(
            r"nodes.csv: column age is read as texts, since 1 of its \d+ cells is no number, '\?' in", line
        )
        assert line.endswith("; correct such cells or leave them empty, or write codes as texts, such as z8001")
        assert line == f"edges: {data.tables.report[0]}"
    caplog.clear()
    ids, ages = list("abcdefghijklmnop"), [*map(str, range(15)), "?"]
    parquet.write_table(pa.table({"id": ids, "age": ages, "segment": ["x", "y"] * 8}), tmp_path / "n.parquet")
    load(nodes="n.parquet", label="segment")
    assert "'?' in row 16; convert the column by pandas.to_numeric" in caplog.text  # an empty cell would be a text


def test_the_record_comes_from_the_cache(load, monkeypatch, tmp_path):
    before = load(nodes=NODES, label="segment").tables
    monkeypatch.setattr(TableDataset, "read", None)
    again = TableDataset(
        tmp_path / "edges.csv", nodes=tmp_path / "nodes.csv", label="segment", split=[0.5, 0.5, 0], data_dir=tmp_path
    )
    after = again.load().tables
    assert (after.classes, after.columns, after.report) == (before.classes, before.columns, before.report)
    assert after.ids.digest == before.ids.digest


@pytest.mark.parametrize("ids", ["text", "numbers"])
def test_many_edges_equal_the_graph_by_hand(load, ids):
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 300, (2, 5000))
    name = (lambda i: f"user-{i}") if ids == "text" else (lambda i: str(i * 2**40 + 1))
    rows = "".join(f"{name(a)},{name(b)}\n" for a, b in zip(src, dst, strict=True))
    data = load(f"s,t\n{rows}", undirected=False, self_loops="keep", parallel_edges="keep")
    both = np.concatenate([src, dst])
    order = both[np.sort(np.unique(both, return_index=True)[1])]
    number = np.empty(300, dtype=np.int64)
    number[order] = np.arange(order.size)
    graph = Graph.from_edges(torch.from_numpy(number[src]), torch.from_numpy(number[dst]), order.size)
    assert torch.equal(data.graph.indptr, graph.indptr)
    assert torch.equal(data.graph.indices, graph.indices)
    assert [str(one) for one in data.tables.ids.of(torch.arange(order.size))] == [name(i) for i in order]


def test_a_table_is_opened_by_its_path(load, tmp_path):
    load(nodes=NODES)
    data = open_dataset(str(tmp_path / "edges.csv"), [f"nodes={tmp_path / 'nodes.csv'}", "label=segment"])
    assert data.num_classes == 2


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ("s,t\n", "has no rows below the names of its columns"),
        ("s\na\n", "has the columns s; target is by default the column 2: name another one"),
        ("s,t\na,b\n,c\n", "has no id in column s of row 2; fill it in, or leave the row out"),
        ("s,t\na,b\nc,\n", "has no id in column t of row 2"),
        ("17,42\n1,2\n", "begins with the line 17,42, which looks like an edge; the first line must name the columns"),
        ("# Nodes: 3\ns\tt\na\tb\n", "begins with the comment '# Nodes: 3'; the first line must name the columns"),
        (",s,t\n0,a,b\n", "column 1 has the name '', as an index has that pandas wrote; save .* index=False"),
        (
            "s, t\na, b\nb, c\n",
            "column ' t' is ' b' in row 1, with a space around it, which makes it another id than without",
        ),
        ("s,t\na,b\nb\u00a0,c\n", r"column 's' is 'b.*' in row 2, with a space around it"),
        ("s,t\n1.0,2\n2.0,1\n", r"column s has numbers such as 1\.0; ids are text or whole numbers: convert it"),
        ("s,t\na,b\nx,c\n", "s 'x' in row 2 is no id of nodes.csv, like 0 more; add a row for each there"),
    ],
)
def test_bad_edges_are_named(load, edges, message):
    with pytest.raises(DatasetError, match=message):
        load(edges, NODES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "frm"}, r"has no column 'frm' \(dataset.source\); it has from, to, since, w; did you mean from\?"),
        ({"source": "to"}, "source, target, weight and time are the columns to, to; each needs one of its own"),
        ({"weight": "since"}, "cannot be read as a .csv file .*conversion error to double.*2024-01-01"),
        ({"time": "w"}, r"column w \(dataset.time\) is 0.5 in row 3; times are whole numbers"),
        ({"weight": "w", "self_loops": "add"}, "self_loops is 'add', but such edges have no edge_weights"),
    ],
)
def test_bad_columns_of_edges_are_named(load, options, message):
    with pytest.raises(DatasetError, match=message):
        load(**options)


@pytest.mark.parametrize(
    ("old", "new", "options", "message"),
    [
        ("b,,", "a,,", {}, "id 'a' in row 3 is there twice; each node has one row"),
        ("b,,", ",,", {}, "has no id in column id of row 3"),
        ("", "", {"label": "segmnt"}, "has no column 'segmnt' .* did you mean segment"),
        ("", "", {"label": "id"}, "column id is two of id, label and split"),
        (
            "",
            "",
            {"features": ["age", "size"]},
            "features names the column 'size'; it must name different ones of age,",
        ),
        ("", "", {"features": ["age", "age"]}, "features names the column 'age'"),
        ("age", "Unnamed: 0", {}, "column 2 has the name 'Unnamed: 0', as an index has that pandas wrote"),
        ("silver", "gold", {}, "label segment has 1 different values in 4 nodes; classes are 2 or more"),
        ("", "", {"split": "city"}, "split city is 'X' in row 1; it must be train, val or test, or empty"),
        ("d,5,,,", "d,5,,val,", {"split": "part"}, "node 'd' in row 4 is in the split val, but has no label"),
        (
            "gold",
            "gold ",
            {},
            "label segment is 'gold ' in row 1, with a space around it, which makes it another class",
        ),
        ("a,1", "a,inf", {}, "column age is inf in row 2; features are finite"),
    ],
)
def test_bad_nodes_are_named(load, old, new, options, message):
    with pytest.raises(DatasetError, match=message):
        load(nodes=NODES.replace(old, new) if old else NODES, **{"label": "segment", **options})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.csv", EDGES.encode("utf-16"), "is no text in UTF-8; save it in that encoding, or as a .parquet file"),
        ("e.csv", "s,t\nä,b\n".encode("latin-1"), "cannot be read as a .csv file .it is not in UTF-8"),
        ("e.tsv", EDGES.encode(), r"has one column, 'from,to,since,w', which holds ','; columns of a .csv file are"),
        ("e.csv.zip", b"PK", "e.csv.zip does not end in .csv, .tsv, .parquet; save the table as one of these"),
    ],
)
def test_files_of_another_form_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        TableDataset(tmp_path / name, cache_dir=tmp_path).load()


def test_suffixes_may_have_capitals(tmp_path):
    (tmp_path / "E.CSV").write_text(EDGES)
    assert TableDataset(tmp_path / "E.CSV", cache_dir=tmp_path).load().num_nodes == 4


def test_a_first_line_of_ids_is_an_edge(load):
    with pytest.raises(DatasetError, match="begins with the line ada,bob, whose words are ids of nodes further down"):
        load("ada,bob\nbob,cy\ncy,ada\n")
    assert load("ada,bob\nbob,cy\ncy,di\n").num_nodes == 3


def test_an_address_is_no_file(tmp_path):
    with pytest.raises(
        DatasetError, match=r"'https://example\.org/e\.csv' is an address, no file; download it, and set"
    ):
        TableDataset("https://example.org/e.csv", cache_dir=tmp_path).load()


def test_labels_with_fractions_are_refused(load):
    with pytest.raises(DatasetError, match=r"label y is 0\.5 in row 1; a class is a text, a whole number or a truth"):
        load("s,t\na,b\n", "id,y\na,.5\nb,1\n", label="y")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "y"}, "label is 'y', a column of nodes, but there is no table of nodes; give its path"),
        ({"features": ["y"]}, r"features is \['y'\], a column of nodes, but there is no table"),
        ({"nodes": "n.csv", "split": "part"}, "split is 'part', but there is no label; give its column"),
        ({"nodes": "n.csv", "split_seed": 3}, "split_seed is 3, but no split is drawn; give the column of labels"),
        (
            {"nodes": "n.csv", "label": "y", "split": "part", "split_seed": 3},
            "split_seed is 3, but no split is drawn; give fractions as split, or leave it out",
        ),
        ({"split": [0.6, 0.6, 0]}, "split fractions"),
        ({"largest_component": True}, "largest_component is true, which tables have not"),
    ],
)
def test_options_that_contradict_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TableDataset("edges.csv", **options)


@pytest.mark.parametrize(
    "options", [{"source": 3}, {"features": "age"}, {"features": [1]}, {"features": 1}, {"nodes": 5}]
)
def test_options_of_other_types_are_refused(options):
    with pytest.raises(TypeError, match=f"{next(iter(options))} is .*; it must be"):
        TableDataset("edges.csv", **options)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DatasetError, match=r"there is no file .*e\.csv; give the path of .* \(dataset\.edges\)"):
        TableDataset(tmp_path / "e.csv", data_dir=tmp_path).load()

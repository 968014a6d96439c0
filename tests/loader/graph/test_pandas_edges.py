from __future__ import annotations

import numpy as np
import pytest
import torch

from loader import Graph

pandas = pytest.importorskip("pandas")

EDGES = pandas.DataFrame(
    {"s": ["b", "a", "b"], "t": ["a", "c", "a"], "w": [1, 2.5, 0], "at": pandas.to_datetime(["1970-01-02"] * 3)}
)
NODES = pandas.DataFrame({"id": ["c", "a", "b", "z"]})


def test_nodes_are_numbered_as_they_occur():
    graph = Graph.from_pandas(EDGES)
    ids = pandas.unique(pandas.concat([EDGES.s, EDGES.t]))
    assert ids.tolist() == ["b", "a", "c"]
    assert (graph.indptr.tolist(), graph.indices.tolist(), graph.edge_ids.tolist()) == (
        [0, 0, 2, 3],
        [0, 0, 1],
        [0, 2, 1],
    )


def test_rows_of_nodes_are_their_numbers():
    graph = Graph.from_pandas(EDGES, NODES, weight="w", time="at")
    assert (graph.num_nodes, graph.indptr.tolist(), graph.indices.tolist()) == (4, [0, 1, 3, 3, 3], [1, 2, 2])
    assert graph.edge_weights.tolist() == [2.5, 1, 0]
    assert graph.edge_times.tolist() == [86400] * 3


def test_columns_may_be_named():
    turned = Graph.from_pandas(EDGES, NODES, source="t", target="s", id="id")
    assert torch.equal(turned.indptr, Graph.from_pandas(EDGES, NODES).reverse().indptr)


def test_times_of_zones_and_integers_are_read():
    at = pandas.to_datetime(["1970-01-01T01:00:00+01:00", "1970-01-01T00:00:05+00:00"], utc=True)
    frame = pandas.DataFrame({"s": [0, 1], "t": [1, 0], "at": at, "n": [3, 4]})
    assert sorted(Graph.from_pandas(frame, time="at").edge_times.tolist()) == [0, 5]
    assert sorted(Graph.from_pandas(frame, time="n").edge_times.tolist()) == [3, 4]


def test_dates_beyond_nanoseconds_are_read():
    at = pandas.Series(np.array(["3000-01-01", "1000-01-01"], dtype="datetime64[s]"))
    frame = pandas.DataFrame({"s": [0, 1], "t": [1, 0], "at": at})
    assert sorted(Graph.from_pandas(frame, time="at").edge_times.tolist()) == [-30610224000, 32503680000]


def test_numbers_of_arrow_are_ids():
    pytest.importorskip("pyarrow")
    large, ids = 2**53, pandas.array([7, 2**63 + 1], dtype="uint64[pyarrow]")
    frame = pandas.DataFrame({"s": pandas.array([large + 1, large], dtype="int64[pyarrow]")})
    frame["t"] = pandas.array([1.0, 2.0], dtype="double[pyarrow]")
    assert Graph.from_pandas(frame).indices.tolist() == [0, 1]
    frame = pandas.DataFrame({"s": np.array([2**63 + 1], dtype="uint64"), "t": [7]})
    assert Graph.from_pandas(frame, pandas.DataFrame({"id": ids})).indices.tolist() == [1]
    frame = pandas.DataFrame({"s": pandas.array(np.array([1, np.nan]), dtype="double[pyarrow]"), "t": [0, 1]})
    with pytest.raises(ValueError, match=r"no value in column 's' \(source\) of row 1, like 0 more"):
        Graph.from_pandas(frame)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_arrow_dates_of_zones_are_read(zone):
    pytest.importorskip("pyarrow")
    at = pandas.Series(pandas.to_datetime(["1970-01-01", "1970-01-02"]).tz_localize("UTC").tz_convert(zone))
    frame = pandas.DataFrame({"s": [0, 1], "t": [1, 0], "at": at.convert_dtypes(dtype_backend="pyarrow")})
    assert sorted(Graph.from_pandas(frame, time="at").edge_times.tolist()) == [0, 86400]


@pytest.mark.parametrize(
    ("edges", "nodes", "options", "message"),
    [
        (EDGES[["s"]], None, {}, "edges has 1 columns; target is by default column 2"),
        (EDGES, None, {"source": "x"}, "source is 'x'; edges has the columns s, t, w, at"),
        (EDGES, None, {"id": "x"}, "id is 'x', a column of nodes, but there are no nodes"),
        (EDGES.assign(s=["a", None, "b"]), None, {}, r"no value in column 's' \(source\) of row 1, like 0 more"),
        (EDGES, NODES[:1], {}, "edges names 'b' in column 's' of row 0, which is no id of nodes"),
        (EDGES, pandas.concat([NODES, NODES[1:2]]), {}, "nodes has the id 'a' twice, again in row 4"),
        (EDGES, None, {"weight": "at"}, r"column 'at' has dtype datetime.*; it must be numbers"),
        (EDGES, None, {"time": "w"}, "column 'w' has dtype float64; it must be integers or dates"),
        (EDGES.assign(w=[1, -1, 1]), None, {"weight": "w"}, "weight"),
        (
            EDGES.assign(w=[1, 2**60, 2**60 + 1]),
            None,
            {"weight": "w"},
            r"1152921504606846977 in row 2.* beyond 2\*\*53",
        ),
    ],
)
def test_bad_tables_are_named(edges, nodes, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Graph.from_pandas(edges, nodes, **options)


@pytest.mark.parametrize("nodes", [False, True])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        (np.array([2**53 + 1, 2**53, 7]), np.array([1.0, 2.0, 7.0])),
        (np.array([2**63 + 1, 2**63, 7], dtype=np.uint64), np.array([1, -2, 7])),
        (np.array([2**63 + 1, 2**63, 7], dtype=np.uint64), np.array([1.0, -2.0, 7.5])),
        (np.array([5, 6, 7], dtype=np.uint64), np.array([5, 2**62 + 1, 2**62])),
        (pandas.array([2**60 + 1, 2**60, 7], dtype="Int64"), np.array([1.0, 2.5, 7.0])),
    ],
)
def test_ids_of_two_types_stay_apart(source, target, nodes):
    given = [*map(int, source), *(int(x) if x == int(x) else float(x) for x in target)]
    number = {value: i for i, value in enumerate(dict.fromkeys(given))}
    table = pandas.DataFrame({"id": pandas.Series([*number], dtype=object)}) if nodes else None
    graph = Graph.from_pandas(pandas.DataFrame({"s": source, "t": target}), table)
    ends = torch.arange(graph.num_nodes).repeat_interleave(graph.in_degrees().long())
    edges = [*zip(graph.indices.tolist(), ends.tolist(), strict=True)]
    wanted = [*zip([number[x] for x in given[:3]], [number[x] for x in given[3:]], strict=True)]
    assert sorted(edges) == sorted(wanted)
    assert graph.num_nodes == len(number)


@pytest.mark.parametrize(("dtype", "bits"), [("float64", 53), ("float32", 24), ("Float64", 53)])
def test_floats_that_are_no_ids_are_refused(dtype, bits):
    table = pandas.DataFrame({"s": pandas.array([1, 2**bits - 1], dtype=dtype), "t": [1, 2]})
    assert Graph.from_pandas(table).num_edges == 2
    table.loc[1, "s"] += 1
    with pytest.raises(ValueError, match=rf"\(source\) of row 1; numbers of type {dtype} from 2\*\*{bits}"):
        Graph.from_pandas(table)
    with pytest.raises(ValueError, match=r"nodes has .* in column 's' \(id\) of row 1"):
        Graph.from_pandas(pandas.DataFrame({"s": [1], "t": [1]}), table)


@pytest.mark.parametrize(
    ("ids", "ends"),
    [
        (pandas.period_range("2020", "2021", freq="Y"), ["2020-01-01", "2020-05-05"]),
        (pandas.to_datetime(["2020-01-01", "2020-01-02"]), ["2020-01-01", "01/01/2020"]),
        (pandas.interval_range(0, 2), [1, 2]),
    ],
)
def test_ids_that_can_be_read_so_differ(ids, ends):
    edges = pandas.DataFrame({"s": ends, "t": ends})
    with pytest.raises(ValueError, match="in column 's' of row 0, which is no id of nodes"):
        Graph.from_pandas(edges, pandas.DataFrame({"id": ids}))
    own = pandas.DataFrame({"s": ids, "t": ids[::-1]})
    assert Graph.from_pandas(own, pandas.DataFrame({"id": ids})).indices.tolist() == [1, 0]


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8"])
def test_ids_of_half_precision_are_found(dtype):
    edges = pandas.DataFrame({"s": np.array([1, 2], dtype="float16"), "t": np.array([2, 1], dtype=dtype)})
    nodes = pandas.DataFrame({"id": np.array([2, 1, 3], dtype="float16")})
    assert Graph.from_pandas(edges, nodes).indices.tolist() == [1, 0]
    assert Graph.from_pandas(edges).indices.tolist() == [1, 0]


def test_rows_of_weights_are_counted():
    edges = pandas.DataFrame({"s": [0, 1], "t": [1, 0], "w": [1, 2**53 + 1]}, index=[7, 7])
    with pytest.raises(ValueError, match=f"{2**53 + 1} in row 1,"):
        Graph.from_pandas(edges, weight="w")


@pytest.mark.parametrize("nodes", [None, pandas.DataFrame({"id": [0, 1, 2]})])
@pytest.mark.parametrize("dtype", [bool, "boolean", object])
def test_truth_values_are_no_numbers(nodes, dtype):
    edges = pandas.DataFrame({"s": pandas.Series([True, False], dtype=dtype), "t": [1, 2]})
    with pytest.raises(ValueError, match=r"column 's' has truth values as ids, and column '(t|id)' other ids, amon"):
        Graph.from_pandas(edges, nodes)
    both = edges.assign(t=edges["s"].to_numpy()[::-1])
    assert Graph.from_pandas(both).num_nodes == 2
    assert Graph.from_pandas(both, pandas.DataFrame({"id": [False, True]})).num_nodes == 2
    mixed = pandas.DataFrame({"s": pandas.Series([True, 1], dtype=object), "t": ["a", "b"]})
    with pytest.raises(ValueError, match="column 's' has truth values as ids, and also other ids"):
        Graph.from_pandas(mixed)


@pytest.mark.parametrize("option", ["source", "target", "weight", "time"])
def test_true_is_no_column_of_number_one(option):
    with pytest.raises(ValueError, match=f"{option} is True; edges has the columns 0, 1, 2"):
        Graph.from_pandas(pandas.DataFrame([[0, 1, 2], [1, 2, 3]]), **{option: True})


def test_one_column_is_not_both_ends():
    with pytest.raises(ValueError, match="source and target are the column 't', so every edge would be a loop; name"):
        Graph.from_pandas(EDGES, source="t")


def test_times_beyond_int64_are_refused():
    late = pandas.DataFrame({"s": [1], "t": [2], "at": np.array([2**63], dtype=np.uint64)})
    with pytest.raises(ValueError, match="time: column 'at' holds 9223372036854775808; times end at"):
        Graph.from_pandas(late, time="at")


def test_other_objects_are_no_tables():
    with pytest.raises(TypeError, match=r"edges is an ndarray; it must be a pandas\.DataFrame"):
        Graph.from_pandas(np.zeros((3, 2)))

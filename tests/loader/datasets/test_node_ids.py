from __future__ import annotations

import numpy as np
import pytest
import torch
from conversions import KEY

from loader.datasets import DatasetError, node_ids
from loader.datasets.cache import open_cache
from loader.datasets.cache_lock import conversion_lock
from loader.datasets.cache_writer import CacheWriter
from loader.datasets.node_ids import IdNumbers, NodeIds, read_ids, write_ids

pa = pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")
pandas = pytest.importorskip("pandas")


def numbered(path, *columns, piece=3, known=None):
    numbers = IdNumbers([str(i) for i in range(len(columns))], path)
    for at in range(0, len(columns[0]), piece):
        numbers.take(*(pa.array(column[at : at + piece]) for column in columns))
    found, ids = numbers.numbers(None if known is None else pa.array(known, pa.large_string()))
    return [column.tolist() for column in found], ids.to_pylist()


@pytest.mark.parametrize("name", ["n{}", "{}", "{:02d}"])
@pytest.mark.parametrize("piece", [1, 3, 100])
@pytest.mark.parametrize("group", [1, 64, 1 << 28])
def test_numbers_depend_on_no_piece(tmp_path, monkeypatch, name, piece, group):
    monkeypatch.setattr(node_ids, "_GROUP", group)
    rng = np.random.default_rng(0)
    src, dst = ([name.format(i) for i in rng.integers(0, 30, 50)] for _ in range(2))
    codes, names = pandas.factorize(np.array(src + dst, dtype=object))
    (found_src, found_dst), ids = numbered(tmp_path, src, dst, piece=piece)
    assert found_src + found_dst == codes.tolist()
    assert list(map(str, ids)) == names.tolist()
    assert isinstance(ids[0], int) == (name == "{}")


def test_known_ids_come_first(tmp_path):
    assert numbered(tmp_path, ["c", "a", "x"], known=["a", "b", "c"]) == ([[2, 0, 3]], ["a", "b", "c", "x"])


def test_ids_are_compared_as_texts(tmp_path):
    numbers = IdNumbers(["s", "t"], tmp_path)
    numbers.take(pa.array([7, -1]), pa.array(["7", "07"]))
    (src, dst), ids = numbers.numbers()
    assert (src.tolist(), dst.tolist(), ids.to_pylist()) == ([0, 1], [0, 2], ["7", "-1", "07"])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["a", "b", "c", None]), r"has no id in column 0 of row 4; fill it in"),
        (pa.array([1.5]), r"column 0 has type double; ids are text or whole numbers: .*astype\('Int64'\)"),
        (pa.array([], pa.string()), "has no rows below the names of its columns"),
    ],
)
def test_bad_ids_are_named(tmp_path, column, message):
    with pytest.raises(DatasetError, match=message):
        numbered(tmp_path, column)


def kept(tmp_path, ids) -> NodeIds:
    folder = tmp_path / "kept"
    with conversion_lock(folder), CacheWriter(folder, KEY) as writer:
        numbers = IdNumbers(["id"], tmp_path)
        numbers.take(pa.array(ids))
        digest = write_ids(writer, numbers.numbers()[1])
    return read_ids(open_cache(folder, KEY).arrays, digest)


@pytest.mark.parametrize(
    "ids",
    [["a", "", "ünï", "a,b"], ["7", "07"], ["1", str(2**63)], ["-3", "12"], ["1.0", "2"], ["-0", "5"], ["+1", "5"]],
)
def test_ids_come_back_as_they_were(tmp_path, ids):
    found = kept(tmp_path, ids)
    assert len(found) == len(ids)
    assert [str(one) for one in found.of(torch.arange(len(ids)))] == ids
    assert [str(one) for one in found.of(torch.tensor([1, 0]))] == [ids[1], ids[0]]
    assert set(found.arrays) == ({"ids"} if ids == ["-3", "12"] else {"id_texts", "id_ends"})


def test_digests_tell_ids_apart(tmp_path):
    different = [["a", "bc"], ["ab", "c"], ["bc", "a"], ["1", "2"], ["1", "02"]]
    assert len({kept(tmp_path, ids).digest for ids in different}) == 5
    assert kept(tmp_path, ["1", "2"]).digest == kept(tmp_path, ["1", "2"]).digest

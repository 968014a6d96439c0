"""Edges that are sorted through files make the graph that `edges_to_csc` makes of all of them at once."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.datasets.cache_writer import CacheWriter
from loader.datasets.edge_sorter import EdgeSorter, cut, in_order
from loader.datasets.transforms import PARALLEL_EDGES, SELF_LOOPS, edges_to_csc


def through_files(src, dst, num_nodes, *, part=170, threads=2, file_keys=50, **options):
    with tempfile.TemporaryDirectory() as folder:
        with CacheWriter(Path(folder), {}) as writer:
            sorter = EdgeSorter(
                num_nodes, len(src), writer.scratch, threads=threads, file_keys=file_keys, **options
            )  # fmt: skip
            pieces = cut(len(src), part)[::-1]  # in whatever order
            sorter.take([lambda a=a, b=b: (src[a:b], dst[a:b]) for a, b in pieces])
            edges = sorter.write(writer)
            assert not list(writer.scratch.iterdir())
        version = next(Path(folder).glob("version-*"))
        indptr, indices = np.load(version / "indptr.npy"), np.load(version / "indices.npy")
        assert edges == indices.size
        return indptr, indices


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32), num_nodes=st.integers(1, 300), num_edges=st.integers(0, 900),
    skew=st.sampled_from([1, 6]), part=st.integers(100, 1000), file_keys=st.sampled_from([20, 300, 10_000]),
    threads=st.sampled_from([1, 3]), undirected=st.booleans(), self_loops=st.sampled_from(SELF_LOOPS),
    parallel_edges=st.sampled_from(PARALLEL_EDGES),
)  # fmt: skip
def test_the_graph_is_that_of_all_edges(
    seed, num_nodes, num_edges, skew, part, file_keys, threads, undirected, self_loops, parallel_edges
):
    rng = np.random.default_rng(seed)
    src, dst = (rng.random((2, num_edges)) ** skew * num_nodes).astype(np.int32)  # most of them at a few nodes
    options = {"undirected": undirected, "self_loops": self_loops, "parallel_edges": parallel_edges}
    wanted = edges_to_csc(src, dst, num_nodes, **options)
    found = through_files(src, dst, num_nodes, part=part, threads=threads, file_keys=file_keys, **options)
    for one, other in zip(wanted, found, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


OPTIONS = {"undirected": False, "self_loops": "keep", "parallel_edges": "keep"}


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64, np.int64])
def test_ids_may_be_unsigned(dtype):
    src, dst = (np.random.default_rng(1).integers(0, 200, (2, 500))).astype(dtype)
    for one, other in zip(edges_to_csc(src, dst, 200, **OPTIONS), through_files(src, dst, 200, **OPTIONS), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_hub_larger_than_a_file_is_kept(tmp_path):
    src, dst = np.arange(3000), np.full(3000, 7)
    indptr, indices = through_files(src, dst, 3000, **OPTIONS)
    assert indptr[7:9].tolist() == [0, 3000]
    np.testing.assert_array_equal(indices, src)


@pytest.mark.parametrize(
    ("src", "dst", "message"),
    [
        ([0, 9], [1, 2], "src holds node 9; valid ids are 0 to 4"),
        ([0, 1], [1, -3], "dst holds node -3"),
        ([0, 1], [1], "both must be"),
    ],
)
def test_impossible_edges_are_refused(src, dst, message):
    with pytest.raises(ValueError, match=message):
        through_files(np.array(src), np.array(dst), 5, **OPTIONS)


def test_too_many_nodes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="2147483648 nodes; at most 2147483647"):
        EdgeSorter(2**31, 1, tmp_path, threads=1, **OPTIONS)


def test_results_come_in_order_and_few_wait():
    started: list[int] = []
    lock = threading.Lock()

    def work(item: int) -> int:
        with lock:
            started.append(item)
        return item * item

    results = in_order(work, range(50), 3)
    assert [next(results) for _ in range(10)] == [i * i for i in range(10)]
    assert max(started) <= 13
    assert list(results) == [i * i for i in range(10, 50)]


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_in_a_part_is_raised(threads):
    def work(item: int) -> int:
        if item == 4:
            raise OSError("gone")
        return item

    found = []
    with pytest.raises(OSError, match="gone"):
        found.extend(in_order(work, range(10), threads))

"""Lists by time: in the order of a slow reference, and cut where plain comparisons cut them."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tree_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from tree_cases import graph_of

from loader.graph import Graph, HeteroGraph, TimedLists
from loader.graph.checks import time_vector

LOW, HIGH = -(2**63), 2**63 - 1
WRITES, CITES, HAS = ("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "rev_writes", "author")
SIZES = {"author": 3, "paper": 4, "venue": 0}
EDGES = {WRITES: [[2, 0, 1, 0], [1, 1, 3, 1]], CITES: [[3, 3, 0], [3, 1, 1]], HAS: [[1, 0], [2, 2]]}


def t(*values: Any) -> Tensor:
    return torch.tensor(values)


def small(**options: Any) -> HeteroGraph:
    return HeteroGraph.from_edges({key: torch.tensor(pair) for key, pair in EDGES.items()}, SIZES, **options)


def entries(timed: TimedLists, graph: HeteroGraph, key: Any, v: int) -> list[tuple[int, int, int]]:
    """Rank, source within its type and edge id of each entry of a list."""
    row = range(timed.lists.num_dst)[graph.rows(key)][v]
    begin, end = timed.lists.indptr[row : row + 2].tolist()
    start = graph.node_types[key[0]].start
    assert timed.lists.edge_ids is not None
    columns = timed.ranks[begin:end], timed.lists.indices[begin:end] - start, timed.lists.edge_ids[begin:end]
    return list(zip(*(column.tolist() for column in columns), strict=True))


class TestOrder:
    def test_lists_are_by_time_then_source_then_id(self) -> None:
        graph = small(edge_times={WRITES: t(9, 5, 0, 5)}, node_times={"paper": t(-3, 7, 7, 1)})
        timed = graph.by_time("both")
        assert timed.values.tolist() == [-3, 0, 1, 5, 7, 9]
        assert entries(timed, graph, WRITES, 1) == [(3, 0, 1), (3, 0, 3), (5, 2, 0)]
        assert entries(timed, graph, CITES, 1) == [(0, 0, 2), (2, 3, 1)]
        assert timed.always.tolist() == [False, False, False]  # slots: into author, then into paper
        assert (timed.times, timed.missing_times) == ("both", "error")

    def test_an_entry_has_the_later_time(self) -> None:
        graph = small(edge_times={WRITES: t(1, 2, 3, 4)}, node_times={"author": t(3, 0, 9)})
        times = {which: graph.by_time(which) for which in ("node", "edge", "both")}
        read = {
            which: [int(timed.values[rank]) for rank, _, _ in entries(timed, graph, WRITES, 1)]
            for which, timed in times.items()
        }
        assert read == {"edge": [1, 2, 4], "node": [3, 3, 9], "both": [3, 4, 9]}
        assert times["both"].always.tolist() == [True, False, True]

    def test_relations_without_times_keep_their_order(self) -> None:
        graph = small(edge_times={WRITES: t(4, 3, 2, 1)})
        timed = graph.by_time("edge")
        for key in (CITES, HAS):
            places, _ = graph.entries(key)
            assert torch.equal(timed.lists.indices[places], graph.lists.indices[places])
            assert torch.equal(timed.lists.edge_ids[places], graph.lists.edge_ids[places])

    def test_types_without_sources_leave_nothing_to_cut(self) -> None:
        timed = small(node_times={"venue": t()}).by_time("node")
        assert timed.ranks.tolist() == [0] * timed.lists.num_edges
        assert timed.values.numel() == 0
        assert timed.always.all()

    def test_weights_and_times_go_with_their_edges(self) -> None:
        graph = small(edge_times={WRITES: t(9, 5, 0, 5)}, edge_weights={WRITES: t(0.5, 1.5, 2.5, 3.5)})
        timed = graph.by_time("edge")
        places, _ = graph.entries(WRITES)
        ids = timed.lists.edge_ids[places]
        assert timed.lists.edge_weights[places].tolist() == (ids + 0.5).tolist()
        assert torch.equal(timed.lists.edge_times[places], t(9, 5, 0, 5)[ids])

    def test_lists_that_came_unsorted_are_sorted(self) -> None:
        lists = Graph(t(0, 4), t(2, 0, 2, 0), num_src=3, edge_ids=t(8, 9, 7, 3), edge_times=t(1, 1, 1, 0))
        lists = Graph(torch.tensor([0, 4, 4, 4]), lists.indices, edge_ids=lists.edge_ids, edge_times=lists.edge_times)
        timed = HeteroGraph.of(lists).by_time("edge")
        assert timed.lists.edge_ids.tolist() == [3, 9, 7, 8]
        assert timed.ranks.tolist() == [0, 1, 1, 1]

    def test_ids_are_places_without_given_ids(self) -> None:
        graph = small(edge_times={WRITES: t(9, 5, 0, 5)}, keep_edge_ids=False)
        timed = graph.by_time("edge")
        assert torch.equal(timed.lists.indices, graph.lists.indices[timed.lists.edge_ids.long()])
        assert timed.lists.edge_ids.dtype == graph.lists.indptr.dtype

    def test_lists_by_time_lie_elsewhere(self, tmp_path: Path) -> None:
        graph = small(edge_times={WRITES: t(9, 5, 0, 5)})
        timed, file = graph.by_time("edge"), tmp_path / "indices.npy"
        moved = graph.place_by_time("edge", "error", indices=f"disk:{file}")
        assert moved.lists is graph.lists
        assert moved.by_time("edge").lists.placement["indices"].file == file
        assert torch.equal(moved.by_time("edge").lists.indices, timed.lists.indices)
        assert graph.by_time("edge") is timed
        with pytest.raises(ValueError, match="the graph has no times of nodes"):
            graph.place_by_time("node", "error", indices="cpu")

    @pytest.mark.parametrize("first", range(0, 150, 50))
    def test_random_graphs_are_the_oracles(self, first: int) -> None:
        for number in range(first, first + 50):
            case = tree_oracle.random_case(np.random.default_rng([1, number]))
            sight = case.sight
            if sight.times == "none":
                continue
            graph, lists = graph_of(case.graph), tree_oracle.SeenLists(case.graph, sight)
            timed = graph.by_time(sight.times, sight.missing_times)
            assert timed.lists.num_edges == len(lists.sources)
            slots = [r for into in graph.relations_into.values() for r in into]
            assert timed.always.tolist() == [not lists.timed[r] for r in slots]
            timed_lists = np.repeat(lists.timed, sizes_of(graph))
            wanted = lists.times[np.repeat(timed_lists, np.diff(lists.starts)) & ~lists.never]
            assert timed.values.tolist() == np.unique(wanted[wanted > LOW]).tolist()
            for r, key in enumerate(graph.edge_types):
                places, _ = graph.entries(key)
                mine = slice(lists.starts[lists.first_row[r]], lists.starts[lists.first_row[r] + sizes_of(graph)[r]])
                assert timed.lists.indices[places].tolist() == lists.sources[mine].tolist()
                assert timed.lists.edge_ids[places].tolist() == lists.ids[mine].tolist()
                if lists.timed[r]:
                    ranks = timed.ranks[places].numpy()
                    assert (ranks == 2**31 - 1).tolist() == lists.never[mine].tolist()
                    known = (ranks >= 0) & ~lists.never[mine]
                    assert timed.values.numpy()[ranks[known]].tolist() == lists.times[mine][known].tolist()


def sizes_of(graph: HeteroGraph) -> list[int]:
    return [len(graph.node_types[key[2]]) for key in graph.edge_types]


class TestBounds:
    def seen(self, times: list[int], at: int, **options: Any) -> list[int]:
        edges = {("a", "to", "a"): torch.zeros(2, len(times), dtype=torch.int64)}
        graph = HeteroGraph.from_edges(edges, {"a": 1}, edge_times={("a", "to", "a"): torch.tensor(times)})
        timed = graph.by_time("edge", options.pop("missing_times", "error"))
        first, end = timed.bounds(torch.tensor([at]), **options)
        assert first.dtype == end.dtype == torch.int32
        shown = (timed.ranks >= first) & (timed.ranks < end)
        return sorted(times[i] for i in timed.lists.edge_ids[shown].tolist())

    def test_the_rule_decides_ties(self) -> None:
        assert self.seen([3, 1, 2, 2], 2) == [1, 2, 2]
        assert self.seen([3, 1, 2, 2], 2, rule="<") == [1]

    def test_a_window_is_open_at_its_far_end(self) -> None:
        assert self.seen([0, 1, 2, 3, 4, 5], 4, window=2) == [3, 4]
        assert self.seen([0, 1, 2, 3, 4, 5], 4, window=2, rule="<") == [3]
        assert self.seen([LOW + 1, LOW + 2, 5], LOW + 3, window=HIGH) == [LOW + 1, LOW + 2]

    def test_times_beyond_2_53_are_exact(self) -> None:
        assert self.seen([2**53, 2**53 + 1, HIGH], 2**53) == [2**53]
        assert self.seen([HIGH - 1, HIGH], HIGH) == [HIGH - 1, HIGH]
        assert self.seen([HIGH - 1, HIGH], HIGH, rule="<") == [HIGH - 1]

    def test_a_seed_earlier_than_all_sees_nothing(self) -> None:
        assert self.seen([5, 6], -1) == []

    def test_missing_times_are_seen_always_or_never(self) -> None:
        assert self.seen([LOW, 1, LOW], 0, missing_times="always") == [LOW, LOW]
        assert self.seen([LOW, 1, LOW], LOW + 1, rule="<", missing_times="always") == [LOW, LOW]
        assert self.seen([LOW, 1, LOW], 1, missing_times="never") == [1]
        assert self.seen([LOW, HIGH], HIGH, missing_times="never") == [HIGH]
        assert self.seen([LOW, HIGH], HIGH, missing_times="never", window=1) == [HIGH]

    def test_one_missing_time_of_two_hides_the_entry(self) -> None:
        edges = {("a", "to", "a"): torch.tensor([[0, 1, 2], [0, 0, 0]])}
        options: Any = {"node_times": {"a": t(5, LOW, LOW)}, "edge_times": {("a", "to", "a"): t(LOW, 7, LOW)}}
        graph = HeteroGraph.from_edges(edges, {"a": 3}, **options)
        assert graph.by_time("both", "never").ranks.tolist() == [2**31 - 1] * 3
        always = graph.by_time("both", "always")
        assert (always.values.tolist(), always.ranks.tolist()) == ([5, 7], [-1, 0, 1])
        assert always.lists.edge_ids.tolist() == [2, 0, 1]

    def test_whole_floats_are_times(self) -> None:
        key = ("a", "to", "a")
        edges = {key: torch.tensor([[0, 1], [0, 0]])}
        times = {key: torch.tensor([4.0, float("nan")], dtype=torch.float32)}
        timed = HeteroGraph.from_edges(edges, {"a": 2}, edge_times=times).by_time("edge", "never")
        assert timed.values.tolist() == [4]
        assert timed.bounds(t(3.0, 4.0))[1].tolist() == [0, 1]

    @pytest.mark.parametrize(
        ("dtype", "limit"), [("float64", 2**53), ("float32", 2**24), ("float16", 2**11), ("bfloat16", 2**8)]
    )
    def test_floats_that_lose_times_are_refused(self, dtype: str, limit: int) -> None:
        """Seconds since 1970 of float32 are whole numbers, but those of two minutes are one."""
        kind = getattr(torch, dtype)
        given = torch.tensor([float("nan"), limit - 1], dtype=kind)
        assert time_vector("at", given, given.device).tolist() == [LOW, limit - 1]
        for sign in (1, -1):
            with pytest.raises(ValueError, match=rf"at\[1\] is {sign * limit}.0 of type torch.{dtype}, in"):
                time_vector("at", torch.tensor([0, sign * limit], dtype=kind), given.device)

    @given(
        st.lists(st.integers(LOW, HIGH), max_size=12),
        st.integers(LOW + 1, HIGH),
        st.sampled_from(["<=", "<"]),
        st.none() | st.integers(1, HIGH),
        st.sampled_from(["always", "never"]),
    )
    @settings(max_examples=60)
    def test_bounds_are_plain_comparisons(
        self, times: list[int], at: int, rule: str, window: int | None, missing: str
    ) -> None:
        if missing == "always" and window:
            window = None
        found = self.seen(times, at, rule=rule, window=window, missing_times=missing)
        far = at - window if window else LOW
        known = [x for x in times if x > LOW and far < x and (x <= at if rule == "<=" else x < at)]
        assert found == sorted(known + [x for x in times if x == LOW and missing == "always"])


class TestErrors:
    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"node_times": [1]}, TypeError, r"node_times is \[1\]; it must be a dict"),
            ({"node_times": {"x": t(1)}}, ValueError, "node_times names 'x', which is no node type"),
            ({"node_times": {"author": t(1)}}, ValueError, r"node_times\['author'\] has 1 entries, the type has 3"),
            ({"node_times": {"author": t(1.0, 2.5, 3.0)}}, ValueError, r"\['author'\]\[1\] is 2.5; times are whole"),
            ({"node_times": {"author": t(1.0, float("inf"), 3.0)}}, ValueError, r"\[1\] is inf; times are whole"),
            ({"node_times": {"author": t(True, True, False)}}, TypeError, "has dtype torch.bool; times are integers"),
            ({"node_times": {"author": [1, 2, 3]}}, TypeError, "must be a torch tensor"),
            ({"edge_times": {("a", "b", "c"): t(1)}}, ValueError, "which is no relation"),
            ({"edge_times": {WRITES: t(1)}}, ValueError, "has 1 entries, the relation has 4 edges"),
            ({"edge_times": 3}, TypeError, "edge_times is 3; it must be a dict"),
        ],
    )
    def test_wrong_times_are_refused(self, options: dict[str, Any], error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message) as raised:
            small(**options)
        assert "\n" not in str(raised.value)

    def test_missing_times_are_counted(self) -> None:
        graph = small(
            node_times={"paper": t(1.0, float("nan"), 2.0, float("nan"))}, edge_times={WRITES: t(1, LOW, 2, 3)}
        )
        with pytest.raises(ValueError, match=r"node_times\['paper'\] has 2 missing times of 4; missing_times='always'"):
            graph.by_time("both")
        with pytest.raises(ValueError, match=r"edge_times\[.*\] has 1 missing times of 4"):
            graph.by_time("edge")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("nodes",), "times is 'nodes'; it must be one of 'node', 'edge', 'both'"),
            (("edge",), "times is 'edge'; the graph has no times of edges: times='node'"),
            (("node", "ever"), "missing_times is 'ever'"),
        ],
    )
    def test_wrong_options_are_refused(self, options: tuple[str, ...], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            small(node_times={"paper": t(1, 2, 3, 4)}).by_time(*options)

    def test_graphs_without_times_have_no_order(self) -> None:
        with pytest.raises(ValueError, match=r"times is 'both'; the graph has no times of any kind: .*from_edges"):
            small().by_time()

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"rule": "=<"}, ValueError, "rule is '=<'; it must be one of '<=', '<'"),
            ({"window": 0}, ValueError, "window is 0; it must be at least 1"),
            ({"window": 1.5}, TypeError, "window is 1.5; it must be an integer"),
            ({"times": t(1, LOW)}, ValueError, "times has 1 missing times of 2, the first at 1; a seed needs a time"),
            ({"times": t(0.5)}, ValueError, r"times\[0\] is 0.5"),
        ],
    )
    def test_wrong_bounds_are_refused(self, options: dict[str, Any], error: type[Exception], message: str) -> None:
        timed = small(node_times={"paper": t(1, 2, 3, 4)}).by_time("node")
        with pytest.raises(error, match=message):
            timed.bounds(**{"times": t(1), **options})

    def test_a_window_refuses_times_that_are_always_there(self) -> None:
        timed = small(node_times={"paper": t(1, LOW, 3, 4)}).by_time("node", "always")
        with pytest.raises(ValueError, match="window is 5 and missing_times is 'always'"):
            timed.bounds(t(1), window=5)


class TestMemo:
    def test_lists_by_time_are_made_once(self) -> None:
        graph = small(node_times={"paper": t(1, 2, 3, 4)})
        assert graph.by_time("node") is graph.by_time("node")
        assert graph.by_time("both") is not graph.by_time("node")

    def test_times_that_change_are_sorted_again(self) -> None:
        graph = small(node_times={"paper": t(1, 2, 3, 4)})
        before = graph.by_time("node").values.tolist()
        graph.lists.node_times[3:] *= 10
        assert graph.by_time("node").values.tolist() == [10 * x for x in before]

    @pytest.mark.parametrize("made", [copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
    def test_copies_have_the_times(self, made: Any) -> None:
        graph = small(node_times={"paper": t(1, 2, 3, 4)}, edge_times={CITES: t(3, 2, 1)})
        graph.by_time()
        other = made(graph)
        assert (other.timed_types, other.timed_relations) == (("paper",), (CITES,))
        assert torch.equal(other.by_time().ranks, graph.by_time().ranks)

    def test_relations_have_their_times_only(self) -> None:
        graph = small(node_times={"paper": t(1, 2, 3, 4)}, edge_times={CITES: t(3, 2, 1)})
        assert graph.relation(WRITES).edge_times is None
        assert graph.relation(WRITES).node_times is None
        assert graph.relation(CITES).edge_times.tolist() == [1, 2, 3]
        assert graph.relation(CITES).node_times.tolist() == [1, 2, 3, 4]

    def test_the_reverse_keeps_times(self) -> None:
        graph = small(node_times={"paper": t(1, 2, 3, 4)}, edge_times={WRITES: t(3, 2, 1, 9)})
        turned = graph.reverse()
        assert turned.timed_types == ("paper",)
        assert turned.timed_relations == (("paper", "rev_writes", "author"),)
        one = turned.relation(("paper", "rev_writes", "author"))
        assert torch.equal(one.edge_times, t(3, 2, 1, 9)[one.edge_ids])
        assert one.node_times.tolist() == [1, 2, 3, 4]

    def test_a_graph_of_one_type_keeps_its_times(self) -> None:
        plain = Graph.from_edges(t(0, 1, 1), t(0, 0, 1), 2, edge_times=t(5, 3, 4), node_times=t(1, 9))
        graph = HeteroGraph.of(plain)
        assert (graph.timed_types, graph.timed_relations) == (("node",), (("node", "to", "node"),))
        assert graph.by_time("edge").values.tolist() == [3, 4, 5]
        assert graph.by_time("both").lists.edge_ids.tolist() == [0, 1, 2]
        assert graph.by_time("both").values.tolist() == [5, 9]

    def test_types_and_relations_with_times_may_be_named(self) -> None:
        lists = small(node_times={"paper": t(1, 2, 3, 4)}, edge_times={CITES: t(3, 2, 1)}).lists
        graph = HeteroGraph(lists, SIZES, list(EDGES), timed_types=["paper"], timed_relations=[CITES])
        assert (graph.timed_types, graph.timed_relations) == (("paper",), (CITES,))
        assert HeteroGraph(lists, SIZES, list(EDGES)).timed_types == tuple(SIZES)
        with pytest.raises(ValueError, match="timed_types names 'x'; there are"):
            HeteroGraph(lists, SIZES, list(EDGES), timed_types=["x"])
        with pytest.raises(ValueError, match=r"timed_types is .*, but lists has no node_times"):
            HeteroGraph(small().lists, SIZES, list(EDGES), timed_types=["paper"])

"""Graphs with several types: lists by node and relation, as plain NumPy makes them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from graphs import messy_graph
from hetero_graphs import EdgeType, hetero_edges, lists_of, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import loader
from loader import FusedSampler, TreeSampler, WalkSampler, random_walk
from loader.datamodules.link_split import split_links
from loader.datasets import NodeDataset
from loader.graph import Graph, HeteroGraph, require_graph
from loader.stores import degree_hotness
from loader.traverse import bfs

WRITES, CITES, HAS = ("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "rev_writes", "author")
SIZES = {"author": 3, "paper": 4, "venue": 0}


def t(*rows: Any) -> Tensor:
    return torch.tensor(rows)


def small(**options: Any) -> HeteroGraph:
    edges = {
        WRITES: t([2, 0, 1, 0], [1, 1, 3, 1]),
        ("venue", "of", "paper"): torch.empty(2, 0, dtype=torch.int64),
        CITES: t([3, 3, 0], [3, 1, 1]),
        HAS: t([1, 0], [2, 2]),
    }
    return HeteroGraph.from_edges(edges, SIZES, **options)


def same(a: HeteroGraph, b: HeteroGraph) -> bool:
    arrays = ("indptr", "indices", "edge_ids", "edge_weights", "edge_times", "node_times")
    pairs = [(getattr(a.lists, name), getattr(b.lists, name)) for name in arrays]
    equal = all(x is y is None or (x is not None and y is not None and torch.equal(x, y)) for x, y in pairs)
    return equal and a.metadata() == b.metadata() and a.node_types == b.node_types


class TestFromEdges:
    def test_rows_go_by_node_then_by_relation(self) -> None:
        graph = small()
        assert graph.node_types == {"author": range(3), "paper": range(3, 7), "venue": range(7, 7)}
        assert graph.relations_into == {"author": (3,), "paper": (0, 1, 2), "venue": ()}
        assert graph.first_row == {"author": 0, "paper": 3, "venue": 15}
        assert (graph.num_nodes, graph.num_edges, graph.device.type) == (7, 9, "cpu")
        assert (graph.lists.num_src, graph.lists.num_dst) == (7, 15)
        assert graph.lists.in_degrees().tolist() == [0, 0, 2, 0, 0, 0, 3, 0, 2, 0, 0, 0, 1, 0, 1]
        assert graph.lists.indices.tolist() == [3, 4, 0, 0, 2, 3, 6, 1, 6]
        assert graph.lists.edge_ids is not None
        assert graph.lists.edge_ids.tolist() == [1, 0, 1, 3, 0, 2, 1, 2, 0]
        assert graph.rows(CITES) == slice(5, 15, 3)
        assert graph.in_degrees(CITES).tolist() == [0, 2, 0, 1]
        assert graph.metadata() == (["author", "paper", "venue"], list(graph.edge_types))
        assert "'paper': 4" in repr(graph)

    @given(hetero_edges())
    @settings(max_examples=60, deadline=None)
    def test_lists_are_those_of_plain_numpy(self, drawn: Any) -> None:
        edges, sizes, weights = drawn
        graph = HeteroGraph.from_edges(edges, sizes, edge_weights=weights)
        assert rows_of(graph.lists) == lists_of(edges, sizes, weights)
        assert (graph.lists.edge_weights is None) == (weights is None)
        HeteroGraph(graph.lists, sizes, list(edges))  # it finds nothing to refuse
        bare = HeteroGraph.from_edges(edges, sizes, keep_edge_ids=False)
        assert bare.lists.edge_ids is None
        assert torch.equal(bare.lists.indices, graph.lists.indices)

    @given(st.integers(0, 12), st.integers(0, 40), st.booleans(), st.integers(0, 99))
    @settings(max_examples=50, deadline=None)
    def test_one_relation_gives_the_arrays_of_a_graph(self, n: int, count: int, weighted: bool, seed: int) -> None:
        edges = torch.randint(max(n, 1), (2, count if n else 0), generator=torch.Generator().manual_seed(seed))
        weights = torch.rand(edges.shape[1]) if weighted else None
        one = HeteroGraph.from_edges(
            {("a", "to", "a"): edges}, {"a": n}, edge_weights=None if weights is None else {("a", "to", "a"): weights}
        )
        plain = Graph.from_edges(*edges, n, keep_edge_ids=True, edge_weights=weights)
        for name in ("indptr", "indices", "edge_ids", "edge_weights"):
            ours, theirs = getattr(one.lists, name), getattr(plain, name)
            assert (ours is None) == (theirs is None)
            if ours is not None:
                assert ours.dtype == theirs.dtype
                assert torch.equal(ours, theirs)
        assert one.lists.num_nodes == n

    def test_weights_of_two_types_become_the_wider(self) -> None:
        graph = small(edge_weights={CITES: torch.rand(3, dtype=torch.float64), WRITES: torch.full((4,), 0.1)})
        assert graph.lists.edge_weights is not None
        assert graph.lists.edge_weights.dtype == torch.float64
        weights = graph.relation(WRITES).edge_weights
        assert weights is not None
        assert weights.tolist() == torch.full((4,), 0.1).double().tolist()
        assert graph.relation(HAS).edge_weights.tolist() == [1, 1]  # type: ignore[union-attr]

    def test_trained_weights_get_no_gradient(self) -> None:
        graph = small(edge_weights={HAS: torch.rand(2, requires_grad=True)})
        assert graph.lists.edge_weights is not None
        assert not graph.lists.edge_weights.requires_grad

    def test_a_graph_may_lack_relations_or_nodes(self) -> None:
        lonely = HeteroGraph.from_edges({}, {"a": 3})
        assert (lonely.num_nodes, lonely.num_edges, lonely.lists.num_dst, lonely.edge_types) == (3, 0, 0, ())
        nobody = HeteroGraph.from_edges({("a", "to", "a"): torch.empty(2, 0, dtype=torch.int32)}, {"a": 0})
        assert (nobody.num_nodes, nobody.lists.indptr.tolist()) == (0, [0])
        assert nobody.relation(("a", "to", "a")).num_nodes == 0

    def test_sixty_four_types_are_possible(self) -> None:
        sizes = {f"t{i}": 1 for i in range(64)}
        graph = HeteroGraph.from_edges({("t63", "to", "t0"): t([0], [0])}, sizes)
        assert graph.lists.indices.tolist() == [63]


class TestRelation:
    def test_nodes_are_numbered_within_their_types(self) -> None:
        one = small().relation(WRITES)
        assert (one.num_src, one.num_dst, one.num_edges) == (3, 4, 4)
        assert one.indptr.tolist() == [0, 0, 3, 3, 4]
        assert one.indices.tolist() == [0, 0, 2, 1]
        assert one.edge_ids is not None
        assert one.edge_ids.tolist() == [1, 3, 0, 2]
        assert small().relation(CITES).num_nodes == 4

    def test_two_types_of_equal_size_are_bipartite(self) -> None:
        pairs, times = t([0, 2, 1], [1, 1, 0]), {"author": t(5, 6, 7)}
        graph = HeteroGraph.from_edges({WRITES: pairs, CITES: pairs}, {"author": 3, "paper": 3}, node_times=times)
        one = graph.relation(WRITES)
        for other in (one, one.reverse(), copy.deepcopy(one), one.place("cpu")):
            assert repr(other).startswith("Graph(num_dst=3, num_src=3, ")
            with pytest.raises(ValueError, match="3 destinations and 3 sources, so it has no num_nodes"):
                _ = other.num_nodes
            with pytest.raises(ValueError, match="wants a graph of one set of nodes, this one has 3 destinations"):
                FusedSampler([2, 2]).sample(other, t(0))
        assert one.reverse().node_times is None  # they were of the sources
        assert graph.relation(CITES).reverse().num_nodes == 3

    @given(hetero_edges())
    @settings(max_examples=60, deadline=None)
    def test_it_is_the_graph_of_its_edges(self, drawn: Any) -> None:
        edges, sizes, weights = drawn
        graph = HeteroGraph.from_edges(edges, sizes, edge_weights=weights)
        for key, pairs in edges.items():
            expected = Graph.from_edges(
                *pairs,
                sizes[key[2]],
                num_src=sizes[key[0]],
                keep_edge_ids=True,
                edge_weights=None if weights is None else weights.get(key, torch.ones(pairs.shape[1])),
            )
            one = graph.relation(key)
            assert rows_of(one) == rows_of(expected)
            assert one.num_src == expected.num_src
            assert torch.equal(graph.in_degrees(key), expected.in_degrees())

    def test_without_ids_edges_are_told_by_their_places(self) -> None:
        graph = small(keep_edge_ids=False)
        for key in graph.edge_types:
            one = graph.relation(key)
            assert one.edge_ids is not None
            start = graph.node_types[key[0]].start
            assert torch.equal(graph.lists.indices[one.edge_ids] - start, one.indices)
        places = torch.cat([graph.relation(key).edge_ids for key in graph.edge_types])  # type: ignore[misc]
        assert places.sort()[0].tolist() == list(range(9))

    def test_an_unknown_relation_is_refused(self) -> None:
        for key in (("paper", "writes", "author"), "writes", None):
            with pytest.raises(ValueError, match=r"is no relation of the graph; its relations are \[\('author'"):
                small().relation(key)  # type: ignore[arg-type]


class TestReverse:
    @given(hetero_edges())
    @settings(max_examples=60, deadline=None)
    def test_every_edge_is_turned_round(self, drawn: Any) -> None:
        edges, sizes, weights = drawn
        turned = HeteroGraph.from_edges(edges, sizes, edge_weights=weights).reverse()
        named = {key: (key[2], f"rev_{key[1]}", key[0]) for key in edges}
        expected = HeteroGraph.from_edges(
            {named[key]: pairs.flip(0) for key, pairs in edges.items()},
            sizes,
            edge_weights=None if weights is None else {named[key]: weight for key, weight in weights.items()},
        )
        assert same(turned, expected)
        if turned.lists.edge_weights is not None:
            assert expected.lists.edge_weights is not None
            assert turned.lists.edge_weights.dtype == expected.lists.edge_weights.dtype

    def test_twice_is_the_graph_itself(self) -> None:
        graph = small()
        assert ("author", "writes", "paper") in graph.reverse().edge_types  # of rev_writes
        assert same(graph.reverse().reverse(), graph)

    def test_two_reverses_of_one_name_are_refused(self) -> None:
        edges = {("a", name, "a"): t([0], [0]) for name in ("x", "rev_rev_x")}
        with pytest.raises(ValueError, match=r"the reverses of .*'x'.* and .*'rev_rev_x'.* would both be .*'rev_x'"):
            HeteroGraph.from_edges(edges, {"a": 1}).reverse()

    def test_ids_stay_places_in_the_graphs_lists(self) -> None:
        graph = small(keep_edge_ids=False)
        turned = graph.reverse()
        assert turned.lists.edge_ids is not None
        assert turned.lists.edge_ids.dtype == graph.lists.indptr.dtype
        one = turned.relation(("paper", "rev_writes", "author"))
        dst = torch.arange(3).repeat_interleave(one.in_degrees())
        assert graph.lists.indices[one.edge_ids].tolist() == dst.tolist()


class TestOf:
    def typed(self, **options: Any) -> Graph:
        graph = messy_graph(40, 300, 3)
        types = torch.randint(3, (graph.num_edges,), generator=torch.Generator().manual_seed(0)) * 5
        sizes = {"a": 11, "none": 0, "b": 29}
        arrays = {"edge_types": types, "node_types": sizes, **options}
        return Graph(graph.indptr, graph.indices.flip(0), **arrays)  # lists are in no order

    @pytest.mark.parametrize("keeps", [False, True])
    def test_each_triple_that_occurs_is_a_relation(self, keeps: bool) -> None:
        ids = torch.randperm(messy_graph(40, 300, 3).num_edges).int() if keeps else None
        weights = None if ids is None else torch.rand(ids.numel())
        graph = self.typed(edge_ids=ids, edge_weights=weights)
        typed = HeteroGraph.of(graph)
        kinds = np.array(["a"] * 11 + ["b"] * 29)
        src, dst = graph.indices.numpy(), np.repeat(np.arange(40), graph.in_degrees().numpy())
        assert graph.edge_types is not None
        triples = list(zip(kinds[src], graph.edge_types.tolist(), kinds[dst], strict=True))
        expected = sorted(set(triples), key=lambda triple: (triple[1], triple[0], triple[2]))
        assert typed.edge_types == tuple((s, str(n), d) for s, n, d in expected)
        assert typed.num_edges == graph.num_edges
        for source, number, target in typed.edge_types:
            of = [e for e, triple in enumerate(triples) if triple == (source, int(number), target)]
            one = typed.relation((source, number, target))
            assert one.indices.tolist() == (src[of] - typed.node_types[source].start).tolist()  # in list order
            assert one.edge_ids is not None
            assert one.edge_ids.tolist() == (of if ids is None else ids[of].tolist())
            assert one.edge_ids.dtype == (graph.indptr.dtype if ids is None else torch.int32)
            rows = np.repeat(np.arange(len(typed.node_types[target])), one.in_degrees().numpy())
            assert rows.tolist() == (dst[of] - typed.node_types[target].start).tolist()
            if weights is not None:
                assert one.edge_weights is not None
                assert torch.equal(one.edge_weights, weights[of])

    def test_times_are_kept(self) -> None:
        edge_times, node_times = torch.arange(messy_graph(40, 300, 3).num_edges), torch.arange(40) * 7
        typed = HeteroGraph.of(self.typed(edge_times=edge_times, node_times=node_times))
        for key in typed.edge_types:
            one = typed.relation(key)
            assert one.edge_times is not None
            assert one.node_times is not None
            assert torch.equal(one.edge_times, one.edge_ids.long())  # type: ignore[union-attr]
            ids = typed.node_types[key[0]]
            assert torch.equal(one.node_times, node_times[ids.start : ids.stop])
        back = typed.reverse().reverse()
        assert back.lists.node_times is not None
        assert back.lists.node_times.tolist() == node_times.tolist()
        assert back.relation(key).edge_times.sort()[0].tolist() == one.edge_times.tolist()  # type: ignore[union-attr]

    def test_no_types_are_one_type(self) -> None:
        plain = messy_graph(30, 200, 1)
        typed = HeteroGraph.of(plain)
        assert typed.metadata() == (["node"], [("node", "to", "node")])
        assert torch.equal(typed.lists.indptr, plain.indptr)
        assert torch.equal(typed.lists.indices, plain.indices)
        assert (
            HeteroGraph.of(Graph(torch.zeros(4, dtype=torch.int64), torch.empty(0, dtype=torch.int64))).num_nodes == 3
        )

    def test_what_is_no_hetero_graph_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"graph is a list; it must be a loader\.Graph: HeteroGraph\.from_edges"):
            HeteroGraph.of([])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"HeteroGraph\.of wants a graph of one set of nodes"):
            HeteroGraph.of(small().relation(WRITES))
        wide = Graph.from_edges(t(0), t(0), 65, node_types={f"t{i}": 1 for i in range(65)})
        with pytest.raises(ValueError, match="has 65 types; 1 to 64 are possible"):
            HeteroGraph.of(wide)


class TestPlaces:
    def test_a_copy_has_arrays_of_its_own(self) -> None:
        graph = small()
        for other in (copy.copy(graph), copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
            assert other is not graph
            assert other != graph  # as graphs do
            assert same(other, graph)
            other.require_sound()
            other.lists.indices = other.lists.indices[:-1]
            assert graph.lists.num_edges == 9
            with pytest.raises(ValueError, match="indptr ends at 9"):
                other.require_sound()
        assert copy.copy(graph).lists.indices.data_ptr() == graph.lists.indices.data_ptr()

    def test_a_pickle_remembers_what_was_written_to(self) -> None:
        graph = small()
        graph.lists.indices[0] = 0
        with pytest.raises(ValueError, match="of its source type are 3 to 6"):
            pickle.loads(pickle.dumps(graph)).require_sound()

    def test_arrays_are_placed_one_by_one(self, tmp_path: Any) -> None:
        graph = small()
        placed = graph.place(indices=f"disk:{tmp_path / 'indices.npy'}")
        assert placed.placement["indices"].kind == "disk"
        assert placed.placement["indptr"].kind == "cpu"
        assert same(placed, graph)
        assert same(placed.reverse(), graph.reverse())
        assert graph.to("cpu") is graph
        with pytest.raises(ValueError, match="no array 'rows' to place"):
            graph.place(rows="cpu")

    def test_writing_to_lists_changes_the_state(self) -> None:
        graph = small()
        before = graph.state()
        graph.lists.indptr[0] = 0
        assert graph.state() != before
        graph.require_sound()

    def test_another_array_at_the_same_address_counts(self) -> None:
        graph = HeteroGraph.of(Graph.from_edges(t(0, 1), t(2, 2), 3, edge_times=t(1, 5)))
        lists, sampler = graph.lists, TreeSampler([-1], times="edge")
        first = lists.edge_times
        assert sampler.sample(graph, t(2), t(3)).num_edges == 1
        lists.edge_times = None
        first.data = t(5, 5)  # has the `id` and the version that the first had, as a new array may
        lists.edge_times = first
        assert sampler.sample(graph, t(2), t(3)).num_edges == 0

    def test_other_weights_need_no_other_check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looks: list[int] = []
        monkeypatch.setattr("loader.graph.hetero.check_sources", lambda *_: looks.append(1))
        graph = small(edge_weights={HAS: torch.ones(2)})
        before = graph.state()
        graph.lists.edge_weights.mul_(2)  # type: ignore[union-attr]
        graph.require_sound()
        assert graph.state() != before
        assert not looks
        graph.lists.indices.add_(0)
        graph.require_sound()
        copy.copy(graph).require_sound()
        assert looks == [1]


class TestLists:
    """A graph of lists that the caller made."""

    def test_sizes_have_to_fit(self) -> None:
        lists = small().lists
        with pytest.raises(ValueError, match=r"lists has 15 rows of 7 sources; .* have 3 rows of 7 nodes"):
            HeteroGraph(lists, SIZES, [HAS])
        with pytest.raises(TypeError, match=r"lists is a list; it must be a Graph"):
            HeteroGraph([], SIZES, [])  # type: ignore[arg-type]

    def test_sources_have_to_be_of_the_relations_type(self) -> None:
        graph = small()
        for at, wrong, limits in ((3, 6, "0 to 2"), (5, 2, "3 to 6"), (0, 1, "3 to 6")):
            other = copy.deepcopy(graph)
            other.lists.indices[at] = wrong
            message = rf"lists\.indices\[{at}\] is {wrong}, in a list of the relation .*; ids .* are {limits}: of edges"
            with pytest.raises(ValueError, match=message):
                other.require_sound()
            with pytest.raises(ValueError, match=message):
                HeteroGraph(other.lists, SIZES, graph.edge_types)

    @pytest.mark.parametrize("part", [1, 2, 5])
    def test_they_are_looked_at_in_parts(self, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("loader.graph.relations._PART", part)
        graph = small()
        HeteroGraph(graph.lists, SIZES, graph.edge_types)
        graph.lists.indices[8] = 1
        with pytest.raises(
            ValueError, match=r"indices\[8\] is 1, in a list of the relation \('paper', 'cites', 'paper'\)"
        ):
            graph.require_sound()


NONE = torch.empty(2, 0, dtype=torch.int64)


@pytest.mark.parametrize(
    ("edges", "sizes", "error", "message"),
    [
        ({("a", "to", "b"): NONE}, {"a": 1}, ValueError, r"names the node type 'b'; the node types are \['a'\]"),
        (
            {("a", "to", "a"): t([0, 5], [0, 0])},
            {"a": 5},
            ValueError,
            r"\(sources\) holds node 5; valid ids are 0 to 4",
        ),
        ({("a", "to", "a"): t([0], [-1])}, {"a": 5}, ValueError, r"\(destinations\) holds node -1; .* of type 'a'"),
        (
            {("a", "to", "a"): t([0], [0])},
            {"a": 0},
            ValueError,
            r"there are no nodes of type 'a': correct the edges",
        ),
        ({"writes": NONE}, {"a": 1}, TypeError, r"edge type 'writes' is no triple of names; it must be a tuple"),
        ({("a", "b"): NONE}, {"a": 1}, TypeError, "is no triple of names"),
        ({("a", 0, "a"): NONE}, {"a": 1}, TypeError, "is no triple of names"),
        (
            {("a", "to", "a"): NONE.t()},
            {"a": 1},
            ValueError,
            r"has the shape \[0, 2\]; it must be \[2, num_edges\]: .*\.t\(\)",
        ),
        ({("a", "to", "a"): NONE[0]}, {"a": 1}, ValueError, r"edges\[\('a', 'to', 'a'\)\] has the shape \[0\]"),
        ({("a", "to", "a"): NONE.float()}, {"a": 1}, TypeError, r"has dtype torch\.float32; .*\]\.long\(\)"),
        ({("a", "to", "a"): NONE.bool()}, {"a": 1}, TypeError, r"has dtype torch\.bool"),
        (
            {("a", "to", "a"): NONE.to_sparse()},
            {"a": 1},
            ValueError,
            r"has the layout torch\.sparse_coo; it must be dense",
        ),
        ({("a", "to", "a"): [[0], [0]]}, {"a": 1}, TypeError, r"is a list; it must be a torch tensor \[2, num_edges\]"),
        ([NONE], {"a": 1}, TypeError, r"edges is .*; it must be a dict"),
        ({}, {}, ValueError, "num_nodes has 0 types; 1 to 64 are possible"),
        ({}, {f"t{i}": 1 for i in range(65)}, ValueError, "num_nodes has 65 types; 1 to 64 are possible"),
        ({}, {3: 1}, TypeError, "num_nodes has the key 3; the name of a type must be a string"),
        ({}, {"a": -1}, ValueError, r"num_nodes\['a'\] is -1; it must be at least 0"),
        ({}, {"a": 2.5}, TypeError, r"num_nodes\['a'\] is 2\.5; it must be an integer"),
        ({}, {"a": 2**62, "b": 1}, ValueError, f"num_nodes has {2**62 + 1} nodes; at most {2**62} are possible"),
        ({}, 7, TypeError, "num_nodes is 7; it must be a dict"),
        (
            {("a", "to", "a"): NONE, ("a", "x", "a"): NONE.to("meta")},
            {"a": 1},
            ValueError,
            r"'x', 'a'\)\] lies on meta, edges\[\('a', 'to', 'a'\)\] on cpu; .* one device: \.to\('cpu'\)",
        ),
        ({("a", "to", "a"): NONE.to("meta")}, {"a": 1}, ValueError, "lies on meta, where tensors have no numbers"),
        ({("a", str(i), "a"): NONE for i in range(1025)}, {"a": 1}, ValueError, "are 1025 edge types; at most 1024"),
    ],
)
def test_bad_edges_are_refused(edges: Any, sizes: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        HeteroGraph.from_edges(edges, sizes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ({CITES: torch.ones(4)}, ValueError, r"edge_weights\[.*'cites'.*\] has 4 entries, the relation has 3 edges"),
        ({CITES: t(1.0, float("nan"), 1.0)}, ValueError, r"'cites', 'paper'\)\]\[1\], of the edge 3 -> 1, is nan"),
        ({CITES: t(1.0, 1.0, -2.0)}, ValueError, r"\[2\], of the edge 0 -> 1, is -2\.0; a weight must be finite"),
        ({CITES: t(1.0, float("inf"), 1.0)}, ValueError, "is inf"),
        (
            {CITES: torch.ones(3).long()},
            TypeError,
            r"edge_weights\[.*'cites'.*\] has dtype torch\.int64; .*\.float\(\)",
        ),
        ({CITES: torch.ones(3, 1)}, ValueError, r"edge_weights\[.*'cites'.*\] has 2 dimensions; it must have 1"),
        ({CITES: torch.ones(3, device="meta")}, ValueError, r"lies on meta, the rest of the graph on cpu"),
        ({CITES: [1.0] * 3}, TypeError, r"edge_weights\[.*'cites'.*\] is a list; it must be a torch tensor"),
        ({("a", "b", "c"): torch.ones(3)}, ValueError, r"edge_weights names \('a', 'b', 'c'\), which is no relation"),
        (torch.ones(3), TypeError, r"edge_weights is .*; it must be a dict: edge type -> \[num_edges\]"),
    ],
)
def test_bad_weights_are_refused(weights: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        small(edge_weights=weights)
    assert "\n" not in str(caught.value)


def test_a_relation_may_be_given_once() -> None:
    lists = small().lists
    with pytest.raises(ValueError, match=r"edge type \('a', 'to', 'a'\) comes twice; give each relation once"):
        HeteroGraph(lists, {"a": 1}, [("a", "to", "a"), ("a", "to", "a")])


def test_relations_that_are_written_alike_are_refused() -> None:
    keys, sizes = [("a", "to__b", "c"), ("a__to", "b", "c")], {"a": 1, "a__to": 1, "c": 1}
    for key in keys:
        HeteroGraph.from_edges({key: t([0], [0])}, sizes)
    with pytest.raises(ValueError, match="are both written a__to__b__c; rename one, or leave __ out"):
        HeteroGraph.from_edges({key: t([0], [0]) for key in keys}, sizes)


def test_errors_come_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: Any) -> Tensor:
        raise AssertionError("edges were sorted")

    monkeypatch.setattr("loader.graph.hetero.list_order", work)
    bad: dict[EdgeType, Tensor] = {("a", "to", "a"): t([0], [0]), ("a", "x", "a"): t([0], [1])}
    with pytest.raises(ValueError, match="holds node 1"):
        HeteroGraph.from_edges(bad, {"a": 1})
    with pytest.raises(TypeError, match="keep_edge_ids is 'no'"):
        small(keep_edge_ids="no")
    with pytest.raises(AssertionError, match="sorted"):
        small()


def test_the_graph_is_found_in_the_package() -> None:
    assert loader.HeteroGraph is HeteroGraph
    assert "HeteroGraph" in loader.__all__


def test_where_a_graph_is_wanted_relations_are_named() -> None:
    typed, ids = small(), torch.arange(3)
    require_graph(typed)
    wants: list[Callable[[], Any]] = [
        lambda: require_graph(typed, hetero=False),
        lambda: bfs(typed, ids),  # type: ignore[arg-type]
        lambda: random_walk(typed, ids, 2),  # type: ignore[arg-type]
        lambda: WalkSampler(walk_length=2).open(typed),  # type: ignore[arg-type]
        lambda: degree_hotness(typed),  # type: ignore[arg-type]
        lambda: split_links(typed),  # type: ignore[arg-type]
        lambda: NodeDataset("m", typed, torch.rand(7, 1), ids, {}, 0),  # type: ignore[arg-type]
    ]
    message = r"a loader\.HeteroGraph; it must be a loader\.Graph: graph\.relation\(edge_type\)$"
    for want in wants:
        with pytest.raises(TypeError, match=message):
            want()


def test_memory_is_of_result_and_one_relation() -> None:
    """Tensors that exist at a time, by a count of what torch allocates."""
    count, relations = 20_000, 8
    generator = torch.Generator().manual_seed(0)
    edges = {
        ("a", str(i), "a"): torch.randint(500, (2, count), generator=generator, dtype=torch.int32)
        for i in range(relations)
    }
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        graph = HeteroGraph.from_edges(edges, {"a": 500})
    held = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    result = sum(getattr(graph.lists, name).nbytes for name in ("indptr", "indices", "edge_ids"))
    assert result < most < 1.7 * result

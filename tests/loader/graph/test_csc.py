"""The CSC graph: what it accepts, narrows and refuses."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from loader import random_walk
from loader.graph import Graph, HeteroGraph, csc
from loader.samplers import FusedSampler, HopwiseSampler, WalkSampler
from loader.samplers.base import Request
from loader.traverse import bfs


def t(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def test_rows_hold_in_neighbors() -> None:
    graph = Graph(t(0, 2, 2, 3), t(1, 2, 0))
    assert (graph.num_nodes, graph.num_edges) == (3, 3)
    assert graph.in_degrees().tolist() == [2, 0, 1]
    assert graph.device == torch.device("cpu")
    assert graph.edge_ids is None
    assert repr(graph) == "Graph(num_nodes=3, num_edges=3, device='cpu')"


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_types_become_as_narrow_as_the_sizes_allow(dtype) -> None:
    graph = Graph(t(0, 1, 2).to(dtype), t(1, 0).to(dtype))
    assert graph.indptr.dtype == graph.indices.dtype == graph.in_degrees().dtype == torch.int32


def test_arrays_of_the_right_type_are_shared() -> None:
    indptr, indices = t(0, 1, 2).int(), t(1, 0).int()
    graph = Graph(indptr, indices)
    assert graph.indptr.data_ptr() == indptr.data_ptr()
    assert graph.indices.data_ptr() == indices.data_ptr()
    assert graph.to("cpu") is graph


def test_strided_arrays_are_made_contiguous() -> None:
    graph = Graph(t(0, 9, 1, 9, 2, 9).int()[::2], t(1, 9, 0, 9).int()[::2])
    assert graph.indptr.is_contiguous()
    assert graph.indices.is_contiguous()
    assert graph.indices.tolist() == [1, 0]


def test_graphs_may_lack_nodes_or_edges() -> None:
    assert Graph(t(0), t()).num_nodes == 0
    lonely = Graph(t(0, 0, 0), t())
    assert (lonely.num_nodes, lonely.num_edges, lonely.in_degrees().tolist()) == (2, 0, [0, 0])
    assert Graph.from_edges(t(), t(), 0).num_nodes == 0
    assert Graph.from_edges(t(), t(), 3).indptr.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        (t(), t(), r"indptr is empty; it needs num_nodes \+ 1 entries"),
        (t(1, 2), t(0, 0), r"indptr starts at 1; it must start at 0; of a list of edges, Graph\.from_edges makes"),
        (t(0, 3, 1, 4), t(0, 1, 2, 0), r"not monotone: indptr\[1\] = 3 > 1"),
        (t(0, 1, 2), t(0, 1, 1), r"indptr ends at 2; it must end at len\(indices\) = 3"),
        (t(0, 1, 4), t(0, 1), r"indptr ends at 4; it must end at len\(indices\) = 2"),
        (t(0, 1, 2), t(0, 2), r"indices holds node 2; valid ids are 0 to 1"),
        (t(0, 1, 2), t(-1, 1), r"indices holds node -1; valid ids are 0 to 1"),
        (t(0, 1).view(1, 2), t(0), r"indptr has 2 dimensions; it must have 1"),
        (t(0, 1), torch.tensor(0), r"indices has 0 dimensions"),
    ],
)
def test_contradictions_are_refused(indptr, indices, message) -> None:
    with pytest.raises(ValueError, match=message):
        Graph(indptr, indices)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bool])
@pytest.mark.parametrize("which", ["indptr", "indices", "edge_ids"])
def test_other_than_integers_are_refused(which, dtype) -> None:
    arrays = {"indptr": t(0, 1), "indices": t(0), "edge_ids": t(0)}
    arrays[which] = arrays[which].to(dtype)
    with pytest.raises(TypeError, match=rf"{which} has dtype {dtype}; it must be an integer type"):
        Graph(**arrays)


@pytest.mark.parametrize("which", ["indptr", "indices"])
def test_other_than_tensors_are_refused(which) -> None:
    arrays = {"indptr": t(0, 1), "indices": t(0)}
    arrays[which] = arrays[which].numpy()
    with pytest.raises((TypeError, AttributeError)):
        Graph(**arrays)


def test_arrays_of_two_devices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"indices lies on meta, the rest of the graph on cpu"):
        Graph(t(0, 1), t(0).to("meta"))


def test_unchecked_arrays_are_taken_as_they_are() -> None:
    assert Graph(t(0, 1, 2), t(0, 7), validate=False).indices.tolist() == [0, 7]


def test_edge_ids_follow_the_edges() -> None:
    graph = Graph(t(0, 1, 3), t(1, 0, 1), edge_ids=t(30, 10, 20))
    assert graph.edge_ids is not None
    assert graph.edge_ids.tolist() == [30, 10, 20]
    with pytest.raises(ValueError, match="edge_ids has 2 entries, indices has 3"):
        Graph(t(0, 1, 3), t(1, 0, 1), edge_ids=t(0, 1))


def test_from_edges_sorts_lists_and_keeps_parallel_edges() -> None:
    src, dst = t(2, 0, 1, 0, 2, 2), t(0, 0, 2, 2, 2, 0)
    graph = Graph.from_edges(src, dst, 4, keep_edge_ids=True)
    assert graph.indptr.tolist() == [0, 3, 3, 6, 6]
    assert graph.indices.tolist() == [0, 2, 2, 0, 1, 2]
    assert graph.edge_ids is not None
    assert graph.edge_ids.tolist() == [1, 0, 5, 3, 2, 4]
    assert torch.equal(src[graph.edge_ids], graph.indices.long())
    assert Graph.from_edges(src, dst, 4).edge_ids is None


@pytest.mark.parametrize(
    ("src", "dst", "num_nodes", "message"),
    [
        (t(0, 1), t(0), 2, r"src has 2 entries, dst has 1"),
        (t(0, 3), t(0, 1), 3, r"src holds node 3; valid ids are 0 to 2"),
        (t(0, 1), t(0, -5), 3, r"dst holds node -5"),
        (t(), t(), -1, r"num_nodes is -1; it must be at least 0"),
    ],
)
def test_from_edges_refuses_contradictions(src, dst, num_nodes, message) -> None:
    with pytest.raises(ValueError, match=message):
        Graph.from_edges(src, dst, num_nodes)


def test_from_edges_refuses_floats() -> None:
    with pytest.raises(TypeError, match=r"dst has dtype torch\.float32"):
        Graph.from_edges(t(0), torch.zeros(1), 1)


def test_a_bipartite_graph_has_two_numbers_of_nodes() -> None:
    graph = Graph(t(0, 2, 3), t(4, 0, 4), num_src=5)
    assert (graph.num_dst, graph.num_src, graph.num_edges) == (2, 5, 3)
    assert graph.in_degrees().tolist() == [2, 1]
    assert repr(graph) == "Graph(num_dst=2, num_src=5, num_edges=3, device='cpu')"
    with pytest.raises(ValueError, match=r"2 destinations and 5 sources.*ask num_dst or num_src"):
        _ = graph.num_nodes
    with pytest.raises(ValueError, match="indices holds node 4; valid ids are 0 to 3"):
        Graph(t(0, 2, 3), t(4, 0, 4), num_src=4)
    assert Graph(t(0, 1, 2), t(1, 0), num_src=2).num_nodes == 2
    from_edges = Graph.from_edges(t(4, 4, 0), t(0, 1, 0), 2, num_src=5)
    assert (from_edges.indptr.tolist(), from_edges.indices.tolist()) == ([0, 2, 3], [0, 4, 4])


@pytest.mark.parametrize(("value", "error"), [(-1, ValueError), (True, TypeError), (2.0, TypeError), ("2", TypeError)])
def test_numbers_of_nodes_are_checked(value, error) -> None:
    with pytest.raises(error, match="num_src is "):
        Graph(t(0), t(), num_src=value)


def test_a_sampler_refuses_a_bipartite_graph() -> None:
    for sampler in (FusedSampler([2]), FusedSampler([2, 2]), HopwiseSampler([2])):
        with pytest.raises(ValueError, match=r"2 destinations and 5 sources.*make a square graph"):
            sampler.sample(Graph(t(0, 2, 3), t(4, 0, 4), num_src=5), t(0, 1))


def full_graph() -> Graph:
    return Graph.from_edges(
        t(2, 0, 1, 0),
        t(0, 0, 2, 0),
        3,
        keep_edge_ids=True,
        edge_weights=torch.tensor([0.5, 1.0, 2.0, 0.0]),
        edge_times=t(30, 10, -20, 11),
        edge_types=t(1, 0, 2, 1),
        node_times=t(5, 6, 7).to(torch.int16),
        node_types={"user": 1, "item": 2},
    )


def test_everything_of_an_edge_stays_with_it() -> None:
    graph = full_graph()
    assert graph.indices.tolist() == [0, 0, 2, 1]
    assert graph.edge_ids.tolist() == [1, 3, 0, 2]
    assert graph.edge_weights.tolist() == [1.0, 0.0, 0.5, 2.0]
    assert graph.edge_times.tolist() == [10, 11, 30, -20]
    assert graph.edge_types.tolist() == [0, 1, 1, 2]
    assert graph.node_times.tolist() == [5, 6, 7]
    assert graph.node_types == {"user": range(1), "item": range(1, 3)}
    assert [graph.edge_weights.dtype, graph.edge_times.dtype, graph.edge_types.dtype, graph.node_times.dtype] == [
        torch.float32, torch.int64, torch.int32, torch.int64
    ]  # fmt: skip
    assert "with=['edge_ids', 'edge_weights'," in repr(graph)
    assert Graph(t(0, 1), t(0), edge_weights=torch.ones(1).double()).edge_weights.dtype == torch.float64


def test_uniform_picks_do_not_ask_for_weights() -> None:
    graph, plain = full_graph(), Graph.from_edges(t(2, 0, 1, 0), t(0, 0, 2, 0), 3)
    assert FusedSampler([1, 1]).sample(graph, t(0, 2)).digest() == FusedSampler([1, 1]).sample(plain, t(0, 2)).digest()


def test_pairs_beyond_64_bits_sort_by_two_keys() -> None:
    # 3 * 2**62 pairs of nodes: one key of 64 bits has no room for them.
    graph = Graph.from_edges(t(2**61, 7, 2**61, 0), t(2, 2, 0, 2), 3, num_src=2**62, keep_edge_ids=True)
    assert graph.edge_ids.tolist() == [2, 3, 1, 0]
    assert graph.indices.dtype == graph.indptr.dtype == torch.int64


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_graphs_are_copied_and_pickled(twin) -> None:
    graph = full_graph()
    other = twin(graph)
    assert repr(other) == repr(graph)
    for name, array in graph._arrays().items():
        assert torch.equal(getattr(other, name), array)
    assert other.node_types == graph.node_types
    assert other.place("cpu").num_src == 3


def test_a_reversed_graph_has_every_edge_turned_round() -> None:
    src, dst = torch.tensor([0, 2, 2, 1, 2, 2]), torch.tensor([1, 1, 0, 2, 1, 2])
    extra = {"edge_types": torch.arange(6) % 3, "edge_weights": torch.arange(6).float(), "edge_times": torch.arange(6)}
    node = {"node_times": torch.arange(3), "node_types": {"a": 1, "b": 2}}
    for keep in (False, True):
        graph = Graph.from_edges(src, dst, 3, keep_edge_ids=keep, **extra, **node)
        turned = graph.reverse()
        other = Graph.from_edges(dst, src, 3, **extra)
        for name in ("indptr", "indices", "edge_types", "edge_weights", "edge_times"):
            assert getattr(turned, name).sort().values.equal(getattr(other, name).sort().values)
        assert turned.indptr.equal(other.indptr)
        assert turned.indices.equal(other.indices)
        assert turned.node_types == graph.node_types
        assert torch.equal(turned.node_times, graph.node_times)
        back = turned.reverse()
        ids = graph.edge_ids if keep else torch.arange(6, dtype=torch.int32)
        assert torch.equal(back.indices, graph.indices)
        assert torch.equal(back.edge_ids.sort().values, ids.sort().values)
        assert torch.equal(back.edge_types[back.edge_ids.argsort()], graph.edge_types[ids.argsort()])


def test_a_reversed_bipartite_graph_swaps_the_two_sides() -> None:
    graph = Graph(torch.tensor([0, 2, 3]), torch.tensor([4, 1, 4]), num_src=6, node_times=torch.arange(6))
    turned = graph.reverse()
    assert (turned.num_src, turned.num_dst) == (2, 6)
    assert turned.indptr.tolist() == [0, 0, 1, 1, 1, 3, 3]
    assert turned.indices.tolist() == [0, 0, 1]
    assert turned.edge_ids.tolist() == [1, 0, 2]
    assert turned.node_times is None


class TestChangesInPlace:
    """Lists that were written to are checked again before anything reads them."""

    BAD = rf"indices holds node {2**31 - 1}; valid ids are 0 to 199"

    def test_sessions_refuse_what_is_no_node(self, random_graph: Callable[..., Graph]) -> None:
        graph = random_graph()
        before, seeds = graph.indices.clone(), torch.arange(20)
        sampler, other = FusedSampler([5, 5]), HopwiseSampler([5, 5])
        session, walks = other.open(graph), WalkSampler(10).open(graph)
        expected = sampler.sample(graph, seeds).nodes
        graph.indices[:] = 2**31 - 1
        calls: list[Callable[[], object]] = [
            lambda: sampler.sample(graph, seeds),
            lambda: FusedSampler([5]).open(graph),
            lambda: session.begin([Request(seeds, 0, 0)]),
            lambda: walks.begin([Request(seeds, 0, 0)]),
            lambda: random_walk(graph, seeds, 5),
            lambda: bfs(graph, 0),
            lambda: pickle.loads(pickle.dumps(graph)).require_sound(),
            lambda: copy.copy(graph).require_sound(),
        ]
        for call in calls:
            with pytest.raises(ValueError, match=self.BAD):
                call()
        graph.indices.copy_(before)
        assert torch.equal(sampler.sample(graph, seeds).nodes, expected)

    def test_lists_of_the_caller_are_the_graphs(self) -> None:
        indptr, indices = t(0, 1, 2).int(), t(1, 0).int()
        graph = Graph(indptr, indices)
        indptr[1] = 7
        with pytest.raises(ValueError, match=r"indptr is not monotone: indptr\[1\] = 7 > 2"):
            FusedSampler([1]).sample(graph, t(0))

    def test_another_array_in_their_place_is_checked(self) -> None:
        graph = Graph(t(0, 1, 2), t(1, 0))
        graph.indices = t(1, 5).int()
        with pytest.raises(ValueError, match="indices holds node 5"):
            FusedSampler([1]).sample(graph, t(0))

    @pytest.mark.parametrize("name", ["edge_ids", "edge_weights", "edge_times", "edge_types", "node_times"])
    def test_another_array_has_to_fit(self, name: str) -> None:
        of_nodes, floats = name == "node_times", name == "edge_weights"
        graph = Graph(t(0, 1, 3), t(1, 0, 1))
        setattr(graph, name, torch.ones(2 if of_nodes else 3, dtype=torch.float32 if floats else torch.int64))
        FusedSampler([1]).sample(graph, t(0))
        setattr(graph, name, torch.ones(5, dtype=torch.float32 if floats else torch.int64))
        with pytest.raises(ValueError, match=f"{name} has 5 entries"):
            FusedSampler([1]).sample(graph, t(0))
        setattr(graph, name, torch.ones(2 if of_nodes else 3, dtype=torch.int64 if floats else torch.float32))
        with pytest.raises(TypeError, match=f"{name} has dtype"):
            FusedSampler([1]).sample(graph, t(0))

    def test_sound_graphs_are_checked_once(
        self, random_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        graph = random_graph()
        checked: list[object] = []
        monkeypatch.setattr(csc, "check_csc", lambda *arrays: checked.append(arrays))
        for same in (graph, pickle.loads(pickle.dumps(graph)), copy.copy(graph), copy.deepcopy(graph)):
            same.require_sound()
            FusedSampler([2]).sample(same, t(0))
        Graph(graph.indptr, graph.indices, validate=False).require_sound()
        assert not checked
        graph.indices.add_(0)
        graph.require_sound()
        graph.require_sound()
        assert len(checked) == 1

    def test_of_inference_mode_nothing_is_counted(self) -> None:
        with torch.inference_mode():
            graph = Graph(t(0, 1, 2), t(1, 0))
            graph.require_sound()


def test_trained_weights_get_no_gradient() -> None:
    weights = torch.rand(2, requires_grad=True)
    for graph in (
        Graph(t(0, 1, 2), t(1, 0), edge_weights=weights),
        Graph.from_edges(t(1, 0), t(0, 1), 2, edge_weights=weights),
    ):
        assert graph.edge_weights is not None
        assert not graph.edge_weights.requires_grad
        assert graph.edge_weights.tolist() == weights.tolist()


def test_nodes_whose_lists_fit_nowhere_are_refused() -> None:
    ends = torch.tensor([0, 2**40])
    with pytest.raises(
        ValueError, match=r"num_nodes is 1099511627777, whose lists need 8,192 GiB .* number the nodes anew"
    ):
        Graph.from_edges(ends, ends, 2**40 + 1)
    with pytest.raises(ValueError, match=r"num_nodes is \{'a': 1099511627777\}, whose lists need 8,192 GiB"):
        HeteroGraph.from_edges({("a", "to", "a"): torch.stack([ends, ends])}, {"a": 2**40 + 1})

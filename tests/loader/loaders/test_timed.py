"""A loader of seeds that have times: labels by seed, resume, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from loader import NodeLoader
from loader.graph import Graph, HeteroGraph
from loader.samplers import FusedSampler, TreeSampler
from loader.samples import TreeMiniBatch

BUYS, REVERSE = ("user", "buys", "item"), ("item", "rev_buys", "user")


def graph_of() -> HeteroGraph:
    g = torch.Generator().manual_seed(0)
    pairs = torch.stack([torch.randint(20, (200,), generator=g), torch.randint(30, (200,), generator=g)])
    times = torch.randint(100, (200,), generator=g)
    sizes, of_edges = {"item": 30, "user": 20}, {BUYS: times, REVERSE: times}
    return HeteroGraph.from_edges({BUYS: pairs, REVERSE: pairs.flip(0)}, sizes, edge_times=of_edges)


USERS = torch.randint(20, (50,), generator=torch.Generator().manual_seed(1))
AT = torch.randint(100, (50,), generator=torch.Generator().manual_seed(2))
LABELS = torch.arange(50) + 1000
X = {"user": torch.arange(20.0).view(-1, 1), "item": torch.arange(30.0).view(-1, 1)}


def loader_of(**options: Any) -> NodeLoader:
    given = {"times": AT, "shuffle": True, "seed": 3} | options
    sampler = TreeSampler([3, 2], times="edge", edge_ids=True, seed=4)
    return NodeLoader(graph_of(), X, LABELS, ("user", USERS), sampler, 8, **given)


def test_labels_are_those_of_the_seeds() -> None:
    met: list[Tensor] = []
    for batch in loader_of():
        assert isinstance(batch, TreeMiniBatch)
        assert batch.items is not None
        met.append(batch.items)
        assert torch.equal(batch.y, LABELS[batch.items])
        assert torch.equal(batch.seed_times, AT[batch.items])
        assert torch.equal(batch.n_id["user"][: batch.batch_size], USERS[batch.items])
        assert torch.equal(batch.x["item"].view(-1).long(), batch.n_id["item"])
        assert torch.equal(batch.tree[: batch.batch_size], torch.arange(batch.batch_size, dtype=torch.int32))
    assert torch.equal(torch.cat(met).sort().values, torch.arange(50))


def test_no_edge_is_later_than_its_seed() -> None:
    graph = graph_of()
    times = {"__".join(key): graph.relation(key) for key in graph.edge_types}
    for batch in loader_of():
        for name, lists in times.items():
            of_edge = torch.empty(200, dtype=torch.int64).scatter_(0, lists.edge_ids.long(), lists.edge_times)
            ends = torch.cat([block.edge_index_dict[tuple(name.split("__"))][1] for block in batch.blocks[::-1]])
            tree = batch.tree_of(name.split("__")[2])[ends]
            assert bool((of_edge[batch.ids(f"edge/{name}")] <= batch.seed_times[tree.long()]).all())


def test_it_goes_on_amid_an_epoch() -> None:
    whole = [batch.digest() for batch in loader_of(prefetch=2)]
    first = loader_of(prefetch=2)
    begun = iter(first)
    head = [next(begun).digest() for _ in range(3)]
    state = first.state_dict()
    second = loader_of()
    second.load_state_dict(state)
    assert head + [batch.digest() for batch in second] == whole


def test_it_does_not_go_on_with_other_times() -> None:
    state = loader_of().state_dict()
    graph = graph_of()
    assert graph.lists.edge_times is not None
    graph.lists.edge_times += 50
    sampler = TreeSampler([3, 2], times="edge", edge_ids=True, seed=4)
    other = NodeLoader(graph, X, LABELS, ("user", USERS), sampler, 8, times=AT, shuffle=True, seed=3)
    with pytest.raises(ValueError, match="cannot resume: times was"):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"times": None}, "times is None, and TreeSampler.* give the time of each seed"),
        ({"times": AT[:3]}, "times has 3 entries, seeds has 50; the numbers must be equal"),
        ({"times": AT + 0.5}, r"times\[0\] is .*; times are whole numbers"),
    ],
)
def test_bad_times_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loader_of(**options)


def test_what_does_not_fit_is_refused() -> None:
    graph, seeds = graph_of(), ("user", USERS)
    timed = TreeSampler([2], times="edge")
    with pytest.raises(ValueError, match=r"labels has shape \[20\], seeds 50 ids; give a label each"):
        NodeLoader(graph, X, torch.zeros(20), seeds, timed, 8, times=AT)
    with pytest.raises(ValueError, match=r"times is given, and FusedSampler.* does not sample by the seeds' times"):
        NodeLoader(graph, X, None, ("user", USERS.unique()), FusedSampler([2]), 8, times=AT)
    with pytest.raises(ValueError, match=r"HeteroGraph\.of\(graph\) makes one of the graph"):
        NodeLoader(
            Graph.from_edges(torch.tensor([0, 1]), torch.tensor([1, 2]), 3), None, None, torch.arange(3), timed, 2
        )


def test_nodes_later_than_their_seed_are_refused() -> None:
    edges = {BUYS: torch.tensor([[0], [0]])}
    graph = HeteroGraph.from_edges(edges, {"item": 1, "user": 2}, node_times={"user": torch.tensor([5, 50])})
    seeds, times = ("user", torch.tensor([0, 1, 1])), torch.tensor([5, 50, 3])
    with pytest.raises(ValueError, match=r"1 of 3 seeds are nodes that are later than their time, the first at 2 \(50"):
        NodeLoader(graph, None, None, seeds, TreeSampler([1], times="node"), 2, times=times)
    kept = times.clone()
    loader = NodeLoader(graph, None, None, seeds, TreeSampler([1], times="node"), 2, times=times.clamp_(min=50))
    times[0] = 1
    assert [batch.seed_times.tolist() for batch in loader] == [[50, 50], [50]]
    assert kept[2] == 3


def test_seeds_of_trees_may_repeat() -> None:
    seeds = ("user", torch.tensor([3, 3, 4]))
    batches = list(NodeLoader(graph_of(), None, torch.arange(20), seeds, TreeSampler([2]), 3))
    assert batches[0].n_id["user"][:3].tolist() == [3, 3, 4]
    assert batches[0].y.tolist() == [3, 3, 4]
    with pytest.raises(ValueError, match=r"seeds\['user'\]"):
        NodeLoader(graph_of(), None, None, seeds, FusedSampler([2]), 3)

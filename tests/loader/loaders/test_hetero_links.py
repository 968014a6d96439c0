"""`LinkLoader` on a graph with several types: rows by type, labels, order, states and ranks."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import pytest
import torch
from small_loader import digests

from loader import FusedSampler, HeteroGraph, LinkLoader, LinkSampler
from loader.samplers import Negatives
from loader.samples.hetero import HeteroMiniBatch

SIZES = {"shop": 7, "item": 60, "user": 90}
BUYS, REV, SELLS = ("user", "buys", "item"), ("item", "rev_buys", "user"), ("shop", "sells", "item")
FEATURES = {name: torch.arange(size).float().view(-1, 1) + 1000 * len(name) for name, size in SIZES.items()}


@pytest.fixture(scope="module")
def pairs() -> torch.Tensor:
    g = torch.Generator().manual_seed(1)
    return torch.stack([torch.randint(SIZES[name], (100,), generator=g) for name in ("user", "item")], 1)


@pytest.fixture(scope="module")
def graph(pairs) -> HeteroGraph:
    sells = torch.stack([torch.arange(60) % 7, torch.arange(60)])
    return HeteroGraph.from_edges({BUYS: pairs.t(), REV: pairs.flip(1).t(), SELLS: sells}, SIZES)


def made(graph: HeteroGraph, pairs: torch.Tensor, **changes: Any) -> LinkLoader:
    """100 links, 16 a mini-batch: 7 of them."""
    around = FusedSampler([3, 2], edge_ids=True, num_threads=1)
    arguments: dict[str, Any] = {
        "features": {"user": FEATURES["user"], "item": FEATURES["item"]},
        "sampler": LinkSampler(
            around, Negatives("binary", 2, strict=True), exclude="reverse", edge_type=BUYS, reverse=REV
        ),
        "labels": torch.arange(100),
        "batch_size": 16,
        "shuffle": True,
        **changes,
    }
    return LinkLoader(graph, arguments.pop("features"), pairs, **arguments)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_links_have_rows_and_labels(graph, pairs, prefetch) -> None:
    loader, met = made(graph, pairs, prefetch=prefetch), []
    for batch in loader:
        assert isinstance(batch.around, HeteroMiniBatch)
        assert batch.edge_type == BUYS
        n_id = batch.around.n_id
        assert batch.around.x.keys() == {"user", "item"}
        for name, x in batch.around.x.items():
            assert torch.equal(x, FEATURES[name][n_id[name].long()])
        assert torch.equal(batch.labels, batch.places)
        ends = torch.stack([n_id["user"][batch.sources], n_id["item"][batch.targets]])
        assert torch.equal(ends.t().long(), pairs[batch.places])
        met += batch.places.tolist()
    assert sorted(met) == list(range(100))
    assert len(loader) == 7


@pytest.mark.parametrize("taken", [0, 3, 7])
def test_a_state_goes_on_after_any_mini_batch(graph, pairs, taken) -> None:
    whole = made(graph, pairs, prefetch=0)
    expected = digests(whole) + digests(whole)
    first = made(graph, pairs)
    given = digests(itertools.islice(first, taken))
    second = made(graph, pairs)
    second.load_state_dict(first.state_dict())
    assert given + digests(second) + digests(second) == expected
    assert digests(pickle.loads(pickle.dumps(made(graph, pairs)))) == expected[:7]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_share_the_mini_batches(graph, pairs, ranks) -> None:
    alone = digests(made(graph, pairs))
    shares = [digests(made(graph, pairs, rank=rank, world_size=ranks)) for rank in range(ranks)]
    assert list(itertools.chain.from_iterable(zip(*shares, strict=True)))[: len(alone)] == alone


def test_a_state_of_another_relation_is_refused(graph, pairs) -> None:
    around = FusedSampler([3, 2], edge_ids=True, num_threads=1)
    state = made(graph, pairs, sampler=LinkSampler(around, edge_type=BUYS)).state_dict()
    other = made(graph, pairs % 60, sampler=LinkSampler(around, edge_type=REV))
    with pytest.raises(ValueError, match=r"cannot resume: .*(edge_type was 'user__buys__item'|ordered items)"):
        other.load_state_dict(state)
    same = made(graph, pairs, sampler=LinkSampler(around, exclude="self", edge_type=BUYS))
    with pytest.raises(ValueError, match=r"cannot resume: sampler\.exclude was 'none'"):
        same.load_state_dict(state)


WRONG = [
    ({"sampler": LinkSampler(FusedSampler([2]))}, ValueError, "links are of one of them: name it, e.g"),
    ({"sampler": LinkSampler(FusedSampler([2]), edge_type=("user", "sees", "item"))}, ValueError, "which is no relat"),
    ({"features": FEATURES["user"]}, TypeError, "features is .*; the graph has types, so it must be a dict"),
    ({"features": {"user": FEATURES["item"]}}, ValueError, r"features\['user'\] has 60 rows, the graph 90 nodes of"),
    ({"labels": torch.zeros(3)}, ValueError, r"labels has shape \[3\], there are 100 pairs"),
]


@pytest.mark.parametrize(("changes", "error", "message"), WRONG)
def test_wrong_arguments_are_named(graph, pairs, changes, error, message) -> None:
    with pytest.raises(error, match=message):
        made(graph, pairs, **changes)


def test_ends_beyond_their_type_are_named(graph, pairs) -> None:
    with pytest.raises(ValueError, match=r"pairs\[:, 1\], of type 'item', holds node 60; valid ids are 0 to 59"):
        made(graph, torch.tensor([[3, 4], [80, 60]]))
    with pytest.raises(ValueError, match=r"pairs has shape \[2, 100\]; it must be \[n, 2\]"):
        made(graph, pairs.t())

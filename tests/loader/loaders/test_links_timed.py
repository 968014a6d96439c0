"""`LinkLoader` over trees: labels and times by item, links that are edges, resume, ranks, prefetch, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from loader import LinkLoader, LinkSampler, TreeSampler
from loader.graph import Graph, HeteroGraph
from loader.items import EdgeItems
from loader.samplers import FusedSampler, Negatives

BUYS, REV = ("user", "buys", "item"), ("item", "rev_buys", "user")
USERS, ITEMS, EDGES = 15, 25, 120
FEATURES = {"user": torch.arange(USERS).float().view(-1, 1), "item": torch.arange(ITEMS).float().view(-1, 1)}


@pytest.fixture
def purchases() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    pairs = torch.stack([torch.randint(n, (EDGES,), generator=g) for n in (USERS, ITEMS)], 1)
    return pairs, torch.randint(30, 90, (EDGES,), generator=g)


@pytest.fixture
def graph(purchases: tuple[Tensor, Tensor]) -> HeteroGraph:
    pairs, times = purchases
    return HeteroGraph.from_edges(
        {BUYS: pairs.t(), REV: pairs.flip(1).t()},
        {"user": USERS, "item": ITEMS},
        node_times={"item": torch.arange(ITEMS)},
        edge_times={BUYS: times, REV: times},
    )


def sampler_of(exclude: str = "reverse", negatives: Any = Negatives("binary", 2), **options: Any) -> LinkSampler:  # noqa: B008 - immutable
    around = TreeSampler([3, 2], **{"times": "both", "edge_ids": True, "seed": 4, **options})
    return LinkSampler(
        around, negatives, exclude=exclude, edge_type=BUYS, reverse=REV if exclude == "reverse" else None
    )


def loader_of(graph: HeteroGraph, purchases: tuple[Tensor, Tensor], **options: Any) -> LinkLoader:
    pairs, times = purchases
    given = {"times": times, "edge_ids": torch.arange(EDGES), "labels": torch.arange(EDGES), "shuffle": True}
    sampler = options.pop("sampler", sampler_of())
    return LinkLoader(graph, FEATURES, pairs, sampler, 16, **given | options)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_labels_and_times_go_by_item(graph: HeteroGraph, purchases: tuple[Tensor, Tensor], prefetch: int) -> None:
    pairs, times = purchases
    met = []
    for links in loader_of(graph, purchases, prefetch=prefetch):
        assert torch.equal(links.labels, links.places)
        assert torch.equal(links.times, times[links.places])
        batch = links.around
        for column, (name, ends) in enumerate((("user", links.sources), ("item", links.targets))):
            assert torch.equal(batch.n_id[name][ends].long(), pairs[links.places][:, column])
            assert torch.equal(batch.x[name].view(-1).long(), batch.n_id[name].long())
        assert torch.equal(batch.seed_times, links.times[links.link_of_tree])
        met += links.places.tolist()
    assert sorted(met) == list(range(EDGES))


def test_a_resume_and_ranks_have_the_same_epoch(graph: HeteroGraph, purchases: tuple[Tensor, Tensor]) -> None:
    whole = [batch.digest() for batch in loader_of(graph, purchases, prefetch=0)]
    assert [batch.digest() for batch in loader_of(graph, purchases)] == whole
    first, second = loader_of(graph, purchases), loader_of(graph, purchases)
    running = iter(first)
    for _ in range(3):
        next(running)
    second.load_state_dict(first.state_dict())
    assert [batch.digest() for batch in second] == whole[3:]
    parts = [[b.digest() for b in loader_of(graph, purchases, rank=r, world_size=2)] for r in range(2)]
    assert [parts[i % 2][i // 2] for i in range(len(whole))] == whole


@pytest.mark.parametrize("changed", ["times", "edge_ids"])
def test_a_state_is_of_these_items(graph: HeteroGraph, purchases: tuple[Tensor, Tensor], changed: str) -> None:
    state = loader_of(graph, purchases).state_dict()
    other = {"times": purchases[1] + 1, "edge_ids": None}[changed]
    with pytest.raises(ValueError, match="cannot resume: ordered items was"):
        loader_of(graph, purchases, **{changed: other}).load_state_dict(state)


def test_a_state_knows_the_times_of_its_graph(graph: HeteroGraph, purchases: tuple[Tensor, Tensor]) -> None:
    pairs, times = purchases
    state = loader_of(graph, purchases).state_dict()
    later = HeteroGraph.from_edges(
        {BUYS: pairs.t(), REV: pairs.flip(1).t()},
        {"user": USERS, "item": ITEMS},
        node_times={"item": torch.arange(ITEMS)},
        edge_times={BUYS: times + 1, REV: times},
    )
    with pytest.raises(ValueError, match="cannot resume: times was"):
        loader_of(later, purchases).load_state_dict(state)


def test_links_that_their_trees_would_see_are_refused(graph: HeteroGraph, purchases: tuple[Tensor, Tensor]) -> None:
    way = "give the LinkSampler exclude='self' or 'reverse'"
    for options, message in (
        ({}, rf"^120 of 120 links are edges .* their trees would see, the first at 0; {way}, or the rule '<'$"),
        ({"times": "node"}, rf"^120 of 120 links are edges of the graph .*; {way}$"),  # which "<" does not hide
        ({"times": "node", "rule": "<"}, "^120 of 120 links are edges of the graph"),
    ):
        with pytest.raises(ValueError, match=message):
            loader_of(graph, purchases, sampler=sampler_of("none", **options), edge_ids=None)
    later = purchases[1] + 1000  # no edge has the time of its link
    loader_of(graph, purchases, sampler=sampler_of("none"), edge_ids=None, times=later)
    loader_of(graph, purchases, sampler=sampler_of("none", rule="<"), edge_ids=None)
    loader_of(graph, purchases, sampler=sampler_of("self", rule="<"), edge_ids=None)
    way = r"give the LinkSampler exclude='reverse' and reverse=\('item', 'rev_buys', 'user'\)"
    with pytest.raises(
        ValueError, match=f"^the trees of 120 of 120 links would see their reverse, .*; {way}, or the rule"
    ):
        loader_of(graph, purchases, sampler=sampler_of("self"), edge_ids=None)


def test_edges_without_times_are_seen(purchases: tuple[Tensor, Tensor]) -> None:
    pairs, times = purchases
    missing = torch.full((EDGES,), torch.nan)
    sizes, edges = {"user": USERS, "item": ITEMS}, {BUYS: pairs.t(), REV: pairs.flip(1).t()}
    always = {"missing_times": "always", "rule": "<"}
    for of_edges, what in (
        ({BUYS: missing, REV: times}, "are edges of"),
        ({BUYS: times, REV: missing}, "their reverse"),
    ):
        graph = HeteroGraph.from_edges(edges, sizes, node_times={"item": torch.zeros(ITEMS)}, edge_times=of_edges)
        with pytest.raises(ValueError, match=f"^(the trees of )?120 of 120 links .*{what}"):
            loader_of(graph, purchases, sampler=sampler_of("none", **always), edge_ids=None)


def test_numbers_of_neighbors_that_tell_are_told(
    graph: HeteroGraph, purchases: tuple[Tensor, Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    pairs, times = purchases
    sampler_of("none", rule="<").sample(graph, pairs[:5], times[:5])
    around = TreeSampler([-1, -1], times="both", edge_ids=True)
    LinkSampler(around, exclude="self", edge_type=BUYS).sample(graph, pairs[:5], times[:5])
    assert not caplog.records
    sampler_of("reverse").sample(graph, pairs[:5], times[:5])
    assert "their number tells a model which links are true; rule='<' shows" in caplog.text


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"times": None}, ValueError, "times is None, and .* samples by the seeds' times; give the time of each"),
        ({"times": torch.arange(3)}, ValueError, "times has 3 entries, there are 120 pairs; the numbers must be equal"),
        ({"times": torch.full((EDGES,), torch.nan)}, ValueError, "times has 120 missing times of 120, the first at 0"),
        ({"times": torch.full((EDGES,), "t" == "u")}, TypeError, "times has dtype torch.bool"),
        ({"times": [1] * EDGES}, TypeError, "times is a list"),
        (
            {"times": torch.zeros(EDGES)},
            ValueError,
            r"1[01]\d of 120 links have a destination of type 'item' that is la",
        ),
        ({"edge_ids": torch.arange(3)}, ValueError, "edge_ids has 3 entries, there are 120 pairs; the numbers must"),
        (
            {"edge_ids": torch.rand(EDGES)},
            TypeError,
            "edge_ids has dtype torch.float32; it must be an integer type: ed",
        ),
        ({"edge_ids": torch.zeros(EDGES, 2).long()}, ValueError, r"edge_ids has shape \[120, 2\]; it must have 1 dim"),
        ({"edge_ids": torch.arange(EDGES) - 9}, ValueError, "edge_ids holds -9; an id is at least 0, or -1 for a pair"),
        (
            {"edge_ids": torch.arange(EDGES) + 9},
            ValueError,
            r"edge_ids holds 12\d, which no edge of \('user', .* ids are 0 to 119",
        ),
        (
            {"edge_ids": torch.arange(EDGES).flip(0)},
            ValueError,
            r"edge_ids\[0\] is 119, which is the edge \(\d+, \d+\), a",
        ),
        ({"sampler": sampler_of("none")}, ValueError, "exclude is 'none', so they would see themselves"),
        (
            {"sampler": sampler_of(times="none")},
            ValueError,
            "times is given, and .* does not sample by the seeds' time",
        ),
        (
            {"sampler": LinkSampler(FusedSampler([2], edge_ids=True), exclude="self", edge_type=BUYS), "times": None},
            ValueError,
            "edge_ids is given, and the links of a mini-batch share one sample of FusedSampler, which leaves out all",
        ),
    ],
)
def test_wrong_times_and_ids_are_refused(
    graph: HeteroGraph,
    purchases: tuple[Tensor, Tensor],
    options: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message) as raised:
        loader_of(graph, purchases, **options)
    assert "\n" not in str(raised.value)


def test_links_without_edges_may_have_no_ids(graph: HeteroGraph, purchases: tuple[Tensor, Tensor]) -> None:
    pairs, times = purchases
    ids = torch.where(torch.arange(EDGES) % 2 == 0, torch.arange(EDGES), -1)
    with pytest.raises(
        ValueError, match=r"^60 of 120 links are edges of .* the first at 1; give the id of this edge, or"
    ):
        loader_of(graph, purchases, edge_ids=ids)
    later = torch.where(ids < 0, times + 1000, times)  # of links that are no edges then
    assert len(list(loader_of(graph, purchases, edge_ids=ids, times=later))) == 8
    items = EdgeItems(pairs.to(torch.int32), times=times.double(), edge_ids=ids)
    (seeds,) = items.take(slice(0, 3), [3])
    assert torch.equal(seeds.ids, torch.cat([pairs[:3], times[:3, None], ids[:3, None]], 1))
    assert items.to(torch.device("cpu"), torch.int64).fingerprint() == items.fingerprint()
    assert items.fingerprint() != EdgeItems(pairs, times=times).fingerprint() != EdgeItems(pairs).fingerprint()
    same = EdgeItems(pairs, times=ids + 5), EdgeItems(pairs, edge_ids=ids + 5)
    assert same[0].fingerprint() != same[1].fingerprint()


def test_distinct_nodes_are_found_by_the_sampler(graph: HeteroGraph, purchases: tuple[Tensor, Tensor]) -> None:
    pairs, times = purchases
    links = sampler_of().sample(graph, pairs[:20], times[:20])
    assert links.around.once is None
    links.prepare({"pair"})
    assert links.around.once is None
    links.prepare({"node/user", "node/item"})
    assert links.around.once is not None
    for name in ("user", "item"):
        assert torch.equal(links.ids(f"node/{name}"), links.around.n_id[name].unique())


def test_both_directions_may_share_an_id() -> None:
    lists = Graph(
        torch.tensor([0, 1, 2, 3]),
        torch.tensor([1, 0, 0]),
        edge_ids=torch.tensor([7, 7, 9]),
        edge_times=torch.arange(3),
    )
    graph = HeteroGraph.of(lists)
    sampler = LinkSampler(TreeSampler([-1], times="edge", edge_ids=True), exclude="self", edge_type=graph.edge_types[0])
    pairs, times = torch.tensor([[1, 0], [0, 1], [0, 2]]), torch.arange(3)
    (links,) = LinkLoader(graph, None, pairs, sampler, 3, times=times, edge_ids=torch.tensor([7, 7, 9]))
    assert links.around.blocks[0].edge_ids.tolist() == [7, 7]  # sources of the later links see the first edge
    with pytest.raises(ValueError, match=r"edge_ids\[1\] is 7, which is the edge \(1, 0\), and pairs\[1\] is \(0, 2\)"):
        LinkLoader(graph, None, pairs[[0, 2]], sampler, 3, times=times[:2], edge_ids=torch.tensor([7, 7]))

"""Links whose ends have trees, with times and without, beside an oracle; negatives exist, and no link sees itself."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import link_cases
import numpy as np
import pytest
import torch
import tree_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import needs_gpu
from statistics_of_counts import LEVEL, p_equal, p_expected
from torch import Tensor

from loader.graph import Graph, HeteroGraph
from loader.samplers import FusedSampler, LinkSampler, Negatives, TreeSampler
from loader.samplers.base import Sampler
from loader.samplers.tree_subgraph import TreeSubgraphSampler

USERS, ITEMS = 12, 20
BUYS, REV = ("user", "buys", "item"), ("item", "rev_buys", "user")


def made(seed: int = 0, num_edges: int = 150, **options: Any) -> tuple[HeteroGraph, Tensor, Tensor]:
    """A graph of purchases and their reverses, with times; the purchases `[E, 2]`, and their times."""
    g = torch.Generator().manual_seed(seed)
    pairs = torch.stack([torch.randint(n, (num_edges,), generator=g) for n in (USERS, ITEMS)], 1)
    times = torch.randint(20, 60, (num_edges,), generator=g)
    order = torch.randperm(num_edges, generator=g)  # of the reverses, which are in another order
    graph = HeteroGraph.from_edges(
        {BUYS: pairs.t(), REV: pairs[order].flip(1).t()},
        {"user": USERS, "item": ITEMS},
        node_times={"item": torch.arange(ITEMS)},
        edge_times={BUYS: times, REV: times[order]},
        **options,
    )
    return graph, pairs, times


def sampler_of(negatives: Negatives | None = None, exclude: str = "reverse", **options: Any) -> LinkSampler:
    given_options: dict[str, Any] = {"times": "both", "edge_ids": True, "seed": 3, **options}
    around = TreeSampler(given_options.pop("fanouts", [4, 3]), **given_options)
    return LinkSampler(
        around, negatives, exclude=exclude, edge_type=BUYS, reverse=REV if exclude == "reverse" else None
    )


@settings(max_examples=60)
@given(number=st.integers(0, 10**9))
def test_random_links_are_the_oracles(number: int) -> None:
    assert link_cases.check(number, tree_cases.makers_of("cpu")) is None


@pytest.mark.parametrize("first", [pytest.param(first, marks=needs_gpu) for first in range(0, 200, 50)])
def test_a_gpu_gives_the_oracles_links(first: int) -> None:
    makers = tree_cases.makers_of("cuda")
    found = [link_cases.check(number, makers) for number in range(first, first + 50)]
    assert [what for what in found if what] == []


def seen_by(links: Any) -> list[tuple[int, Any, int, int, int]]:
    """All edges of the trees: (link of the tree, relation, source, destination, id), by ids within the types."""
    batch, found = links.around, []
    for block in batch.blocks:
        for key, ends in block.edge_index_dict.items():
            tree = batch.tree_of(key[2])[ends[1]].long()
            of = batch.n_id[key[0]][ends[0]].tolist(), batch.n_id[key[2]][ends[1]].tolist()
            ids = block.relation(key).edge_ids.tolist()
            found += [
                (link, key, *edge) for link, *edge in zip(links.link_of_tree[tree].tolist(), *of, ids, strict=True)
            ]
    return found


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1000),
    trees=st.sampled_from(["unique", "paths"]),
    rule=st.sampled_from(["<=", "<"]),
    mode=st.sampled_from(["binary", "triplet"]),
)
def test_no_link_sees_itself_or_the_future(seed: int, trees: str, rule: str, mode: str) -> None:
    graph, pairs, times = made(seed)
    ids = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed))[:20]
    sampler = sampler_of(Negatives(mode, 2), trees=trees, rule=rule, fanouts=[-1, -1])
    links = sampler.sample(graph, pairs[ids], times[ids], ids)
    reverse_times = dict(zip(*(t.tolist() for t in by_id(graph)), strict=True))
    edges = seen_by(links)
    assert edges
    for link, key, u, v, edge in edges:
        at = int(times[ids[link]])
        own = int(times[edge]) if key == BUYS else reverse_times[edge]
        assert own <= at if rule == "<=" else own < at
        assert key != BUYS or edge != int(ids[link])
        assert key != REV or (v, u) != tuple(pairs[ids[link]].tolist()) or own != at
    assert torch.equal(links.times, times[ids])


def by_id(graph: HeteroGraph) -> tuple[Tensor, Tensor]:
    reverse = graph.relation(REV)
    return reverse.edge_ids, reverse.edge_times


def test_earlier_purchases_of_the_same_item_stay() -> None:
    pairs = torch.tensor([[0, 1], [0, 1], [0, 1]])
    times = torch.tensor([1, 5, 9])
    graph = HeteroGraph.from_edges(
        {BUYS: pairs.t(), REV: pairs.flip(1).t()}, {"user": 2, "item": 3}, edge_times={BUYS: times, REV: times}
    )
    sampler = sampler_of(fanouts=[-1], times="edge")
    seen = [edge for _, key, _, _, edge in seen_by(sampler.sample(graph, pairs[1:2], times[1:2], torch.tensor([1])))]
    assert seen == [0, 0]  # by both ends
    late = sampler.sample(graph, pairs[1:2], torch.tensor([100]), torch.tensor([1]))
    assert sorted(edge for _, _, _, _, edge in seen_by(late)) == [0, 0, 2, 2]
    assert seen_by(sampler.sample(graph, pairs[1:2], times[1:2])) == []  # by pairs all are left out
    other = sampler.sample(graph, pairs[1:2], times[1:2], torch.tensor([-1]))  # it is no edge
    assert sorted(edge for _, _, _, _, edge in seen_by(other)) == [0, 0, 1, 1]


@pytest.mark.parametrize("ids", [[3, 5, 3, 5], [2**50, 4, 7, 9]], ids=["of both directions", "wide gaps"])
def test_reverses_are_found_at_any_ids(ids: list[int]) -> None:
    lists = Graph(
        torch.tensor([0, 2, 4]),
        torch.tensor([1, 1, 0, 0]),
        edge_ids=torch.tensor(ids),
        edge_times=torch.tensor([1, 2, 1, 2]),
    )
    graph = HeteroGraph.of(lists)
    (key,) = graph.edge_types
    sampler = LinkSampler(TreeSampler([-1], times="edge", edge_ids=True), exclude="reverse", edge_type=key, reverse=key)
    found = sampler.sample(graph, torch.tensor([[1, 0]]), torch.tensor([9]), torch.tensor(ids[:1]))
    (block,) = found.around.blocks
    assert block.edge_ids.tolist() == [ids[3], ids[1]]  # the edge of the link and its reverse are at time 1


@pytest.mark.parametrize("exclude", ["self", "reverse"])
@pytest.mark.parametrize(
    ("edge", "message"), [(-2, "edge_ids holds -2; an id is at l"), (99, "has; its ids are 0 to 59")]
)
def test_ids_of_no_edge_are_refused(exclude: str, edge: int, message: str) -> None:
    graph, pairs, times = made(num_edges=60)
    with pytest.raises(ValueError, match=message):
        sampler_of(exclude=exclude).sample(graph, pairs[:2], times[:2], torch.tensor([edge, 0]))


def test_all_reverses_of_that_time_are_left_out() -> None:
    """Also if the reverse relation has fewer of them, or more."""
    pairs, times = torch.tensor([[0, 1], [0, 1], [0, 1]]), torch.tensor([5, 5, 9])
    for back in ([5], [5, 5, 5, 9]):
        graph = HeteroGraph.from_edges(
            {BUYS: pairs.t(), REV: torch.tensor([[1, 0]] * len(back)).t()},
            {"user": 2, "item": 3},
            edge_times={BUYS: times, REV: torch.tensor(back)},
        )
        links = sampler_of(fanouts=[-1], times="edge").sample(graph, pairs[1:2], times[1:2], torch.tensor([1]))
        assert {(key, edge) for _, key, _, _, edge in seen_by(links)} == {(BUYS, 0)}


def test_a_relation_may_be_its_own_reverse() -> None:
    key = ("a", "knows", "a")
    edges = torch.tensor([[0, 1, 0, 1, 2], [1, 0, 1, 0, 2]])
    graph = HeteroGraph.from_edges({key: edges}, {"a": 3}, edge_times={key: torch.tensor([1, 1, 2, 2, 2])})
    around = TreeSampler([-1, -1], times="edge", edge_ids=True)
    sampler = LinkSampler(around, exclude="reverse", edge_type=key, reverse=key)
    links = sampler.sample(graph, edges.t()[[2, 4]], torch.tensor([2, 2]), torch.tensor([2, 4]))
    assert {(link, edge) for link, _, _, _, edge in seen_by(links)} == {(0, 0), (0, 1)}


def test_graphs_of_one_type_have_links_in_trees() -> None:
    edges = torch.tensor([[0, 1, 2, 1], [1, 2, 3, 0]])
    graph = Graph.from_edges(edges[0], edges[1], 5, keep_edge_ids=True, node_times=torch.arange(5))
    around = TreeSubgraphSampler({("node", "to", "node"): [-1, -1]}, times="node", edge_ids=True)
    sampler = LinkSampler(around, Negatives("triplet", 2), exclude="reverse")
    links = sampler.sample(graph, torch.tensor([[0, 1], [1, 2]]), torch.tensor([2, 3]), torch.tensor([0, 1]))
    sample = links.around
    assert links.sources.tolist() == [0, 1]
    assert links.targets.tolist() == [2, 3]
    assert links.negative_targets.tolist() == [[4, 6], [5, 7]]
    assert links.link_of_tree.tolist() == [0, 1] * 4
    assert sample.nodes[:4].tolist() == [0, 1, 1, 2]
    times = links.times[links.link_of_tree]
    assert bool((sample.nodes <= times[sample.tree]).all())
    link = links.link_of_tree[sample.tree[sample.edge_index[1]]]
    seen = {*zip(link.tolist(), sample.edge_ids.tolist(), strict=True)}
    assert not seen & {(0, 0), (0, 3), (1, 1)}
    with pytest.raises(TypeError, match="graph has one type of nodes; TreeSampler samples a HeteroGraph"):
        LinkSampler(TreeSampler([2])).sample(graph, torch.tensor([[0, 1]]))


@pytest.mark.parametrize("rule", ["<=", "<"])
@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("strict", [False, True])
def test_negatives_are_uniform_over_those_that_exist(rule: str, mode: str, strict: bool) -> None:
    """Items appear one after the other; strict negatives of user 0 are those of them that are not bought, ever."""
    graph, _, _ = made(num_edges=40)
    bought = {int(v) for u, v in made(num_edges=40)[1].tolist() if u == 0}
    sampler = sampler_of(Negatives(mode, 40, strict), fanouts=[1], rule=rule)
    times = torch.tensor([6, 13])
    counts: list[dict[int, int]] = [dict.fromkeys(range(ITEMS), 0) for _ in times]
    for batch in range(30):
        links = sampler.sample(graph, torch.tensor([[0, 5], [0, 11]]), times, batch=batch)
        heads, targets = links.negative_sources, links.negative_targets
        if heads is None:
            of_link = torch.arange(2).repeat_interleave(40)
            users = torch.zeros(80, dtype=torch.int64)
        else:
            of_link, users = torch.arange(80) % 2, links.around.n_id["user"][heads]
        for link, user, item in zip(
            of_link.tolist(), users.tolist(), links.around.n_id["item"][targets.reshape(-1)].tolist(), strict=True
        ):
            if user == 0:
                counts[link][item] += 1
    for at, count in zip(times.tolist(), counts, strict=True):
        exist = range(at + 1 if rule == "<=" else at)
        free = [v for v in exist if not (strict and v in bought)]
        assert sum(count.values()) == sum(count[v] for v in free)
        assert p_equal(np.array([count[v] for v in free])) > LEVEL


def test_negatives_by_weight_exist_at_their_time() -> None:
    graph, _, _ = made(num_edges=40)
    weights = torch.arange(ITEMS, 0, -1).double()
    sampler = sampler_of(Negatives("triplet", 60, target_weights=weights), fanouts=[1])
    count = np.zeros(ITEMS, np.int64)
    for batch in range(20):
        links = sampler.sample(graph, torch.tensor([[0, 5]]), torch.tensor([9]), batch=batch)
        items = links.around.n_id["item"][links.negative_targets.reshape(-1)]
        count += np.bincount(items.numpy(), minlength=ITEMS)
    assert count[10:].sum() == 0
    assert p_expected(count[:10], weights[:10].numpy()) > LEVEL
    weights[:10] = 0
    with pytest.raises(ValueError, match=r"60 of 60 negatives have no end: all nodes of type 'item' with a positive w"):
        sampler_of(Negatives("triplet", 60, target_weights=weights)).sample(
            graph, torch.tensor([[0, 5]]), torch.tensor([9])
        )


def test_missing_times_decide_which_negatives_exist() -> None:
    unknown = -(2**63)
    graph = HeteroGraph.from_edges(
        {BUYS: torch.tensor([[0], [1]])}, {"user": 2, "item": 4}, node_times={"item": torch.tensor([unknown, 1, 2, 3])}
    )
    for missing, exist in (("always", {0, 1, 2}), ("never", {1, 2})):
        sampler = sampler_of(Negatives("triplet", 60), "self", times="node", missing_times=missing)
        links = sampler.sample(graph, torch.tensor([[0, 1]]), torch.tensor([2]))
        assert {*links.around.n_id["item"][links.negative_targets.reshape(-1)].tolist()} == exist
    with pytest.raises(ValueError, match=r"node_times\['item'\] has 1 missing times of 4"):
        sampler_of(Negatives(), "self", times="node").sample(graph, torch.tensor([[0, 1]]), torch.tensor([2]))


def test_the_destinations_type_may_come_first() -> None:
    graph, pairs, times = made()
    around = TreeSampler([2], times="both")
    sampler = LinkSampler(around, Negatives("binary", 0.5), edge_type=REV)
    links = sampler.sample(graph, pairs[:3].flip(1), times[:3])
    assert links.around.num_seeds == {"user": 5, "item": 5}
    assert links.around.n_id["item"][links.sources].tolist() == pairs[:3, 1].tolist()
    assert links.around.n_id["user"][links.targets].tolist() == pairs[:3, 0].tolist()
    assert links.link_of_tree.tolist() == [0, 1, 2, 0, 1] * 2
    assert torch.equal(links.around.seed_times, times[:3][links.link_of_tree])
    data = links.around.to_pyg()
    for name, places in (("user", links.targets), ("item", links.sources)):
        assert torch.equal(data[name].seed_time[places], times[:3])
        assert data[name].batch[:5].tolist() == [*range(5 * (name == "item"), 5 * (name == "item") + 5)]
    both, truth = links.pairs()
    assert both.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert truth.tolist() == [1, 1, 1, 0, 0]


def test_copies_sample_the_same_and_move_whole() -> None:
    graph, pairs, times = made()
    sampler = sampler_of(Negatives("triplet", 2))
    first = sampler.sample(graph, pairs[:8], times[:8], torch.arange(8))
    for other in (copy.copy(sampler), pickle.loads(pickle.dumps(sampler)), sampler.on(torch.device("cpu"))):
        assert other.spec() == sampler.spec()
        assert other.sample(graph, pairs[:8], times[:8], torch.arange(8)).digest() == first.digest()
    clone = first.map(lambda t: t.clone())
    assert clone.digest() == first.digest()
    assert torch.equal(clone.link_of_tree, first.link_of_tree)
    assert sampler.sample(graph, pairs[:8], times[:8], torch.arange(8), batch=1).digest() != first.digest()
    assert sampler.sample(graph, pairs[:0], times[:0]).batch_size == 0


def test_trees_without_times_have_links() -> None:
    graph, pairs, _ = made()
    sampler = sampler_of(Negatives("binary", 2, strict=True), times="none")
    links = sampler.sample(graph, pairs[:4])
    assert links.times is None
    assert links.around.batch_size == 24
    hidden = {(link, key) for link, key, u, v, _ in seen_by(links) if (u, v) == tuple(pairs[link].tolist())}
    assert not any(key == BUYS for _, key in hidden)


class Forest(Sampler):
    """A sampler of a user's that says it samples trees."""

    in_trees = True

    def spec(self) -> dict[str, Any]:
        return {}


GRAPH, PAIRS, TIMES = made()
IDS = torch.arange(2)


@pytest.mark.parametrize(
    ("sampler", "given_links", "error", "message"),
    [
        (
            sampler_of(),
            (PAIRS[:2],),
            ValueError,
            r"seeds has shape \[2, 2\]; links are .* each needs a time: give \[n, 3",
        ),
        (sampler_of(times="none"), (PAIRS[:2], TIMES[:2]), ValueError, "times is given, and the sampler's times is 'n"),
        (sampler_of(), (PAIRS[:2], TIMES[:3]), ValueError, "times has 3 entries, there are 2 links; the numbers must"),
        (sampler_of(), (PAIRS[:2], TIMES[:2] + 0.5), ValueError, r"times\[0\] is .*\.5"),
        (sampler_of(), (PAIRS[:2], TIMES[:2].bool()), TypeError, "times has dtype torch.bool"),
        (sampler_of(), (PAIRS[:2], TIMES[:2], IDS[:1]), ValueError, "edge_ids has 1 entries, there are 2 links"),
        (sampler_of(), (PAIRS[:2], TIMES[:2], IDS + 1e3), TypeError, "edge_ids has dtype torch.float32; it must be an"),
        (
            sampler_of(),
            (PAIRS[:2], TIMES[:2], IDS + 150),
            ValueError,
            r"edge_ids holds 15\d, which no edge .* ids are 0 to 149",
        ),
        (
            sampler_of(None, "none"),
            (PAIRS[:2], TIMES[:2], IDS),
            ValueError,
            "exclude is 'none', so they would see them",
        ),
        (
            sampler_of(edge_ids=False),
            (PAIRS[:2], TIMES[:2], IDS),
            ValueError,
            "the sampler returns no edge ids; give it",
        ),
        (sampler_of(), (PAIRS[:2].flip(1) + 15, TIMES[:2]), ValueError, r"seeds\[:, 0\], of type 'user',"),
        (
            LinkSampler(FusedSampler([2]), edge_type=BUYS),
            (PAIRS[:2], TIMES[:2]),
            ValueError,
            "times is given, and FusedSampler.* does not sample in trees; take a TreeSampler",
        ),
        (
            sampler_of(Negatives("binary", 2)),
            (PAIRS[:2], torch.tensor([-5, 7])),
            ValueError,
            "2 of 4 negatives have no end: all nodes of type 'item' are later than the time of their link, the first -",
        ),
        (
            sampler_of(Negatives("triplet"), rule="<"),
            (PAIRS[:2], torch.tensor([0, 7])),
            ValueError,
            "1 of 2 negatives have no end: all nodes of type 'item' are not earlier than the time of their link, the f",
        ),
    ],
)
def test_wrong_links_are_refused(
    sampler: LinkSampler, given_links: tuple[Tensor, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        sampler.sample(GRAPH, *given_links)
    assert "\n" not in str(raised.value)


def test_edge_ids_need_a_graph_that_keeps_them() -> None:
    graph, pairs, times = made(keep_edge_ids=False)
    with pytest.raises(
        ValueError, match="edge_ids is given, and the graph keeps no edge ids; make it with keep_edge_i"
    ):
        sampler_of().sample(graph, pairs[:2], times[:2], IDS)


def test_other_samplers_in_trees_are_refused() -> None:
    with pytest.raises(TypeError, match="of those that sample in trees it must be a TreeSampler"):
        LinkSampler(Forest())
    assert sampler_of().in_trees
    assert sampler_of().timed
    assert not LinkSampler(FusedSampler([2])).in_trees


def test_a_source_without_existing_strict_negatives_is_named() -> None:
    every = torch.cartesian_prod(torch.arange(2), torch.arange(3))
    graph = HeteroGraph.from_edges({BUYS: every.t()}, {"user": 2, "item": 4}, node_times={"item": torch.arange(4)})
    for mode, message in (
        (
            "triplet",
            "node 1 has an edge to every node of their type that exists at the link's time, so it has no neg",
        ),
        ("binary", "no negative link was found in 4096 tries"),
    ):
        sampler = sampler_of(Negatives(mode, 1, strict=True), "self", times="node")
        with pytest.raises(ValueError, match=message):
            sampler.sample(graph, torch.tensor([[1, 2]]), torch.tensor([2]))
        links = sampler.sample(graph, torch.tensor([[1, 2]]), torch.tensor([3]))
        assert links.around.n_id["item"][links.negative_targets.reshape(-1)].tolist() == [3]


@pytest.mark.parametrize("place", [{"num_threads": 3}, pytest.param({"device": "cuda"}, marks=needs_gpu)])
@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
@pytest.mark.parametrize("times", ["none", "both"])
@pytest.mark.parametrize("trees", ["unique", "paths"])
def test_threads_and_gpus_give_the_same_links(place: Any, mode: str | None, times: str, trees: str) -> None:
    graph, pairs, at = made()  # in which each user has items that it did not buy, as strict negatives need
    drawn = None if mode is None else Negatives(mode, 2, strict=True)
    there = sampler_of(drawn, times=times, trees=trees, **place)
    graphs = [graph] if there.device.type == "cpu" else [graph.to("cuda"), graph.pin_memory()]
    for ids in (None, torch.arange(64)):
        given_links = (pairs[:64], None if times == "none" else at[:64], ids)
        want = sampler_of(drawn, times=times, trees=trees, num_threads=1).sample(graph, *given_links, batch=2)
        for placed in graphs:
            assert there.sample(placed, *given_links, batch=2).digest() == want.digest()

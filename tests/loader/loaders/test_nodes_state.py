"""Where a loader stands, alone and as one of several ranks, and how it goes on."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from small_loader import NUM_NODES, SEEDS, digests, no_threads, small_loader

from loader.graph import Graph
from loader.items import EdgeItems, Walkers
from loader.loaders.base import Loader
from loader.loaders.nodes import NodeLoader
from loader.samplers import FusedSampler, HopwiseSampler, LinkSampler, Negatives, WalkSampler
from loader.samplers.base import Request, Session
from loader.samples import MiniBatch


@pytest.fixture
def graph(random_graph: Callable[..., Graph]) -> Graph:
    return random_graph(NUM_NODES, 1500)


@pytest.fixture
def make(graph: Graph) -> Callable[..., NodeLoader]:
    return lambda **changes: small_loader(**{"graph": graph, **changes})


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("taken", [0, 1, 6])
def test_resume_gives_exactly_the_rest(make: Callable[..., NodeLoader], taken: int, prefetch: int) -> None:
    reference = make()
    epochs = [digests(reference) for _ in range(3)]

    loader = make(prefetch=prefetch)
    list(loader)
    iterator = iter(loader)
    for _ in range(taken):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))  # plain values only
    assert (state["epoch"], state["next"]) == (1, taken)

    resumed = make(prefetch=2 - prefetch // 3)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    resumed.set_epoch(1)  # what Lightning says at this point
    assert len(resumed) == 7
    assert digests(resumed) == epochs[1][taken:]
    assert digests(resumed) == epochs[2]


def test_a_state_between_epochs_begins_the_next(make: Callable[..., NodeLoader]) -> None:
    loader = make()
    iterator = iter(loader)
    for _ in range(7):
        next(iterator)
    state = loader.state_dict()
    assert (state["epoch"], state["next"]) == (0, 7)
    assert next(iterator, None) is None
    over = loader.state_dict()
    assert (over["epoch"], over["next"]) == (1, 0)

    loader.load_state_dict(state)
    assert list(loader) == []  # the rest of epoch 0
    assert next(iter(loader)).epoch == 1
    loader.load_state_dict(state)
    loader.set_epoch(1)
    assert next(iter(loader)).epoch == 1


def test_loading_a_state_closes_the_running_iterator(make: Callable[..., NodeLoader]) -> None:
    loader = make()
    iterator = iter(loader)
    first = next(iterator)
    state = loader.state_dict()
    second = next(iterator)
    loader.load_state_dict(state)
    assert no_threads()
    with pytest.raises(RuntimeError, match="closed"):
        next(iterator)
    assert loader.state_dict() == state
    assert next(iter(loader)).digest() == second.digest() != first.digest()


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("batch_size", {"batch_size": 17}),
        ("seed", {"seed": 1}),
        ("shuffle", {"shuffle": False}),
        ("drop_last", {"drop_last": True}),
        ("num_items", {"seeds": SEEDS[1:]}),
        ("ordered items", {"seeds": SEEDS + 1}),
        ("ordered items", {"seeds": SEEDS.flip(0)}),
        ("sampler.fanouts", {"sampler": HopwiseSampler([3, 3], num_threads=1)}),
        ("sampler.seed", {"sampler": HopwiseSampler([3, 2], seed=1, num_threads=1)}),
        ("sampler.replace", {"sampler": HopwiseSampler([3, 2], replace=True, num_threads=1)}),
        ("sampler.edge_ids", {"sampler": HopwiseSampler([3, 2], edge_ids=True, num_threads=1)}),
    ],
)
def test_a_state_of_another_configuration_is_refused(
    make: Callable[..., NodeLoader], key: str, change: dict[str, Any]
) -> None:
    state = make().state_dict()
    with pytest.raises(ValueError, match=rf"cannot resume: {key} was .* now; restore it"):
        make(**change).load_state_dict(state)


def test_another_sampler_that_picks_alike_goes_on(make: Callable[..., NodeLoader]) -> None:
    begun = make()
    batches = iter(begun)
    first = digests(next(batches) for _ in range(3))
    state = json.loads(json.dumps(begun.state_dict()))
    begun.close()
    resumed = make(sampler=FusedSampler([3, 2], num_threads=2), prefetch=0)
    resumed.load_state_dict(state)
    assert first + digests(resumed) == digests(make())


class Together(HopwiseSampler):
    """Takes three mini-batches at a time, and notes how many that were."""

    def __init__(self) -> None:
        super().__init__([3, 2], num_threads=1)
        self.groups: list[int] = []

    def open(self, graph: Graph) -> Session:
        return TogetherSession(self, graph)


class TogetherSession(Session):
    together = 3

    def __init__(self, sampler: Together, graph: Graph) -> None:
        self.sampler, self.graph = sampler, graph

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> list[Callable[[], MiniBatch]]:
        self.sampler.groups.append(len(group))
        sample = HopwiseSampler([3, 2], num_threads=1).sample
        return [partial(sample, self.graph, r.seeds, epoch=r.epoch, batch=r.batch) for r in group]


@pytest.mark.parametrize("prefetch", [1, 2])
def test_groups_have_the_size_the_sampler_takes(make: Callable[..., NodeLoader], prefetch: int) -> None:
    sampler = Together()
    loader = make(sampler=sampler, prefetch=prefetch)
    assert digests(loader) == digests(make())  # 7 mini-batches
    assert sampler.groups == [1, 3, 3]  # the first alone
    assert loader.max_items == make(prefetch=prefetch).max_items + 2
    batches = iter(loader)
    begun = digests(next(batches) for _ in range(2))  # in the middle of a group
    state = loader.state_dict()
    loader.close()
    loader.load_state_dict(state)
    assert begun + digests(loader) == digests(e for i, e in enumerate(_epochs(make(), 2)) if i >= 7)


@pytest.mark.parametrize("world_size", [2, 3, 5])
def test_a_group_of_a_rank_has_its_turns(make: Callable[..., NodeLoader], world_size: int) -> None:
    """The positions of a group are runs that lie apart, and the last ones may repeat the first."""
    options: dict[str, Any] = {"batch_size": 8, "world_size": world_size}
    ranks = [make(sampler=Together(), rank=rank, **options) for rank in range(world_size)]
    assert digests(own(ranks)) == digests(make(batch_size=8))
    for rank in range(world_size):
        assert digests(make(sampler=Together(), rank=rank, **options)) == digests(make(rank=rank, **options))


def _epochs(loader: NodeLoader, count: int) -> Any:
    return itertools.chain.from_iterable(loader for _ in range(count))


def test_nothing_is_begun_together_without_running_ahead(make: Callable[..., NodeLoader]) -> None:
    sampler = Together()
    assert digests(make(sampler=sampler, prefetch=0)) == digests(make())
    assert sampler.groups == [1] * 7


def test_integers_of_numpy_are_integers(make: Callable[..., NodeLoader]) -> None:
    loader = make(batch_size=np.int64(16), prefetch=np.int32(1), seed=np.uint64(2**63), rank=np.int64(0))
    assert digests(loader) == digests(make(seed=2**63))
    assert json.loads(json.dumps(loader.state_dict())) == loader.state_dict()


def test_a_state_of_another_graph_is_refused(
    make: Callable[..., NodeLoader], random_graph: Callable[..., Graph]
) -> None:
    state = make().state_dict()
    with pytest.raises(ValueError, match="num_edges was 1500"):
        make(graph=random_graph(NUM_NODES, 1501)).load_state_dict(state)


def test_other_edges_of_equal_sizes_are_refused(make: Callable[..., NodeLoader], graph: Graph) -> None:
    state = make().state_dict()
    copy = Graph(graph.indptr.long(), graph.indices.clone())
    make(graph=copy).load_state_dict(state)  # the same edges in other memory
    with pytest.raises(ValueError, match=r"cannot resume: the graph's edges was .* now; restore it"):
        make(graph=graph.reverse()).load_state_dict(state)
    del state["config"]["the graph's edges"]  # as releases before wrote it
    make(graph=graph.reverse()).load_state_dict(state)


@pytest.mark.parametrize("of", ["edge_weights", "edge_types", "known"])
def test_other_arrays_that_decide_are_refused(graph: Graph, of: str) -> None:
    pairs = torch.stack([torch.arange(NUM_NODES), torch.arange(NUM_NODES).flip(0)], 1)

    def made(values: torch.Tensor) -> Loader:
        sampler: Any
        if of == "known":
            known = Graph(graph.indptr, values)
            sampler = LinkSampler(FusedSampler([2]), Negatives(strict=True), known=known)
            return Loader(graph, EdgeItems(pairs), sampler, 8)
        other = Graph(graph.indptr, graph.indices, **{of: values})
        if of == "edge_types":
            return Loader(other, Walkers(torch.arange(NUM_NODES)), WalkSampler(3, metapath=[0, 1]), 8)
        assert "edge_weights" not in str(NodeLoader(other, None, None, SEEDS, FusedSampler([2]), 8).state_dict())
        return NodeLoader(other, None, None, SEEDS, FusedSampler([2], weights="edge_weights"), 8)

    values = graph.indices.flip(0) % 2 if of == "edge_types" else graph.indices.flip(0)
    values = values.float() if of == "edge_weights" else values
    state = made(values).state_dict()
    made(values.clone()).load_state_dict(state)
    changed = values.flip(0)
    with pytest.raises(ValueError, match=rf"cannot resume: the .*{of} was .* now; restore it"):
        made(changed).load_state_dict(state)
    for name in [name for name in state["config"] if name.startswith("the ")]:
        del state["config"][name]  # as releases before wrote it
    made(changed).load_state_dict(state)


def test_values_that_are_no_state_are_refused(make: Callable[..., NodeLoader]) -> None:
    loader = make()
    state = loader.state_dict()
    for wrong in ({}, {"epoch": 0}, None, {**state, "config": [1]}):
        with pytest.raises(
            ValueError, match=r"the state is .*, which is none of a NodeLoader; give what its state_dict"
        ):
            loader.load_state_dict(wrong)
    with pytest.raises(ValueError, match="version 99"):
        loader.load_state_dict({**state, "version": 99})
    for wrong in ({"next": -1}, {"epoch": -1}, {"epoch": "x"}, {"next": 1.5}):
        with pytest.raises(ValueError, match=r"the state stands at mini-batch .* both count from 0"):
            loader.load_state_dict({**state, **wrong})


def test_a_state_after_the_last_mini_batch_ends(make: Callable[..., NodeLoader]) -> None:
    """Where ranks repeat mini-batches to fill up their last step, the next number is beyond the sequence."""
    ranks = [make(rank=rank, world_size=4) for rank in range(4)]
    for loader in ranks:
        batches = iter(loader)
        assert len([next(batches) for _ in range(2)]) == len(loader) == 2
    (state,) = {json.dumps(loader.state_dict()) for loader in ranks}  # one state for all ranks
    single = make()
    single.load_state_dict(json.loads(state))
    assert list(single) == []
    assert next(iter(single)).epoch == 1


def own(loaders: list[NodeLoader]) -> list[MiniBatch]:
    """What all ranks made, in turn, without what only fills up their last step."""
    ranks = [list(loader) for loader in loaders]
    assert {len(rank) for rank in ranks} == {len(ranks[0])}
    return [batch for step in zip(*ranks, strict=True) for batch in step if not batch.repeats]


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
@pytest.mark.parametrize("batch_size", [7, 16, 50])
def test_any_number_of_ranks_makes_one_global_sequence(
    make: Callable[..., NodeLoader], batch_size: int, world_size: int, prefetch: int
) -> None:
    single = make(batch_size=batch_size)
    ranks = [make(batch_size=batch_size, rank=r, world_size=world_size, prefetch=prefetch) for r in range(world_size)]
    for epoch in range(2):
        batches = own(ranks)
        assert digests(batches) == digests(single)
        assert [(batch.epoch, batch.index) for batch in batches] == [(epoch, i) for i in range(len(single))]


def test_ranks_have_equal_steps_and_mark_repeats(make: Callable[..., NodeLoader]) -> None:
    ranks = [list(make(rank=r, world_size=3)) for r in range(3)]
    assert [[b.index for b in rank] for rank in ranks] == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]
    assert [[b.repeats for b in rank] for rank in ranks] == [[False] * 3, [False, False, True], [False, False, True]]
    assert [[b.batch_size for b in rank] for rank in ranks] == [[16, 16, 4], [16] * 3, [16] * 3]
    assert ranks[1][2].digest() == ranks[0][0].digest()
    assert sum(b.repeats for b in make()) == 0


@pytest.mark.parametrize("taken", [0, 1, 2])
@pytest.mark.parametrize("world_size", [1, 2, 8])
def test_another_number_of_ranks_continues_the_sequence(
    make: Callable[..., NodeLoader], world_size: int, taken: int
) -> None:
    reference = make(batch_size=8)  # 13 mini-batches: 4 ranks have 4 steps
    expected = [digests(reference) for _ in range(2)]
    begun = []
    for rank in range(4):
        loader = make(batch_size=8, rank=rank, world_size=4)
        begun.append(digests(itertools.islice(loader, taken)) if taken else [])
        state = json.loads(json.dumps(loader.state_dict()))
    resumed = [make(batch_size=8, rank=rank, world_size=world_size) for rank in range(world_size)]
    for loader in resumed:
        loader.load_state_dict(state)
    first = [d for step in zip(*begun, strict=True) for d in step]
    assert first + digests(own(resumed)) == expected[0]
    assert digests(own(resumed)) == expected[1]


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_state_counts_only_finished_mini_batches(make: Callable[..., NodeLoader], world_size: int) -> None:
    loader, done = make(batch_size=8, world_size=world_size), 5  # in the epoch before
    loader.finished = lambda: done
    assert loader.state_dict()["next"] == 0
    batches = iter(loader)
    given = digests(next(batches) for _ in range(3))
    assert loader.state_dict()["next"] == 0
    done += 2
    state = loader.state_dict()
    assert state["next"] == 2 * world_size
    done += 1
    assert loader.state_dict()["next"] == 3 * world_size
    loader.load_state_dict(state)
    assert next(iter(loader)).digest() == given[2]


@pytest.mark.parametrize("taken", [0, 1, 4])
def test_dropping_prefetched_mini_batches_keeps_the_place(make: Callable[..., NodeLoader], taken: int) -> None:
    whole, loader, done = digests(make(batch_size=8)), make(batch_size=8), 1
    loader.finished = lambda: done
    batches = iter(loader)
    given = digests(next(batches) for _ in range(taken))
    loader.drop_prefetched()
    assert loader.next_epoch == 0
    batches = iter(loader)
    given += digests(next(batches) for _ in range(3))
    assert given == whole[: taken + 3]
    done += 2
    assert loader.state_dict()["next"] == 2  # the consumer holds the others still
    assert given + digests(batches) == whole
    assert loader.next_epoch == 1


@pytest.mark.parametrize("taken", [0, 2, 7])
def test_another_epoch_takes_back_a_loaded_position(make: Callable[..., NodeLoader], taken: int) -> None:
    loader = make()
    batches = iter(loader)
    for _ in range(taken):
        next(batches)
    state = loader.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    for epoch in (0, 1, 1):
        resumed.set_epoch(epoch)
        assert resumed.is_resumed == (epoch == 0)
    assert digests(resumed) == digests(e for i, e in enumerate(_epochs(make(), 2)) if i >= 7)


@pytest.mark.parametrize("release", ["this one", "one before"])
def test_the_told_epoch_keeps_a_later_position(make: Callable[..., NodeLoader], release: str) -> None:
    """The shorter one of two loaders has several epochs within one that `set_epoch` tells."""
    loader = make()
    loader.set_epoch(5)
    list(loader)
    batches = iter(loader)
    given = digests(next(batches) for _ in range(3))
    state = json.loads(json.dumps(loader.state_dict()))
    assert (state["told"], state["epoch"], state["next"]) == (5, 6, 3)
    resumed, whole = make(), make()
    whole.set_epoch(6)
    expected = digests(whole)
    assert given == expected[:3]
    if release == "one before":
        del state["told"]  # it went on if the number of the epoch was told
    resumed.load_state_dict(state)
    resumed.set_epoch(5 if release == "this one" else 6)
    assert digests(resumed) == expected[3:]
    resumed.load_state_dict(state)
    resumed.set_epoch(7)
    assert next(iter(resumed)).epoch == 7

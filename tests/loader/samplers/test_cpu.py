"""Fused and hopwise give the same bytes, and both give what the laws say (in plain Python)."""

from __future__ import annotations

import threading

import pytest
import reference_sampler
import torch
from graphs import WIDTHS, messy_graph, widen
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loader.graph import Graph
from loader.samplers import FullSampler, FusedSampler, HopwiseSampler, cpu

CORE = [HopwiseSampler, FusedSampler]
FANOUTS = st.lists(st.sampled_from([-1, 1, 2, 3, 10, 16, 17, 33, 200, 1024]), min_size=1, max_size=5)


def pick_seeds(num_nodes: int, count: int, seed: int) -> torch.Tensor:
    return torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))[:count]


@settings(max_examples=60, deadline=None)
@given(
    num_nodes=st.integers(1, 120),
    num_edges=st.integers(0, 2000),
    rng=st.integers(0, 2**31),
    width=st.sampled_from(WIDTHS),
    num_seeds=st.integers(0, 120),
    fanouts=FANOUTS,
    replace=st.booleans(),
    edge_ids=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**40),
    batch=st.integers(0, 2**40),
    threads=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
@example(1, 0, 0, "int32", 1, [1], False, True, 0, 0, 0, (1, 1))
@example(1, 5, 0, "int64", 1, [2, 2], True, True, 0, 0, 0, (5, 1))
@example(120, 2000, 1, "wide edges", 1, [1, 1, 1, 1, 1], False, False, 2**64 - 1, 2**40, 2**40, (2, 5))
def test_fused_equals_hopwise_byte_for_byte(
    num_nodes, num_edges, rng, width, num_seeds, fanouts, replace, edge_ids, seed, epoch, batch, threads
) -> None:
    graph = widen(messy_graph(num_nodes, num_edges, rng), width)
    seeds = pick_seeds(num_nodes, num_seeds, rng)
    options = {"replace": replace, "edge_ids": edge_ids, "seed": seed}
    hopwise = HopwiseSampler(fanouts, **options, num_threads=threads[0])
    fused = FusedSampler(fanouts, **options, num_threads=threads[1])
    expected = hopwise.sample(graph, seeds, epoch=epoch, batch=batch)
    for _ in range(2):  # the second call finds the workspace of the first
        got = fused.sample(graph, seeds, epoch=epoch, batch=batch)
        assert got.frontier_sizes == expected.frontier_sizes
        assert got.digest() == expected.digest()


@settings(max_examples=60, deadline=None)
@given(
    num_nodes=st.integers(1, 30),
    num_edges=st.integers(0, 150),
    rng=st.integers(0, 2**31),
    width=st.sampled_from(WIDTHS),
    num_seeds=st.integers(0, 10),
    fanouts=st.lists(st.sampled_from([-1, 1, 2, 3, 5, 20]), min_size=1, max_size=3),
    replace=st.booleans(),
    edge_ids=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**64 - 1),
    batch=st.integers(0, 2**64 - 1),
)
def test_hopwise_equals_the_laws_in_python(
    num_nodes, num_edges, rng, width, num_seeds, fanouts, replace, edge_ids, seed, epoch, batch
) -> None:
    graph = widen(messy_graph(num_nodes, num_edges, rng), width)
    seeds = pick_seeds(num_nodes, num_seeds, rng)
    sampler = HopwiseSampler(fanouts, replace=replace, edge_ids=edge_ids, seed=seed, num_threads=2)
    got = sampler.sample(graph, seeds, epoch=epoch, batch=batch)
    expected = reference_sampler.sample(
        graph, seeds.tolist(), fanouts, replace=replace, edge_ids=edge_ids, seed=seed, epoch=epoch, batch=batch
    )
    assert got.frontier_sizes == expected.frontier_sizes
    for ours, theirs in zip(got.tensors(), expected.tensors(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert got.digest() == expected.digest()


# Every way in which a pick can be computed: bit sets of 64, 256 and 1024 places, ranks of up to 16 and 32 draws,
# insertion by walking and by halving; and each one place beyond.
DEGREES = [2, 17, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 5000]
PICKS = [1, 2, 4, 15, 16, 17, 24, 25, 31, 32, 33, 62, 256, 1023, 1024]


@pytest.mark.parametrize("make", CORE)
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("degree", DEGREES)
def test_picks_of_every_size_equal_the_law(make, degree, replace) -> None:
    graph = Graph(torch.tensor([0, degree, degree, 2 * degree]), torch.arange(2 * degree) % 3)
    for fanout in (k for k in PICKS if k < degree or replace):
        sampler = make([fanout], replace=replace, edge_ids=True, seed=fanout, num_threads=1)
        for batch in range(3):
            picker = reference_sampler.Picker(fanout, 0, batch)
            expected = picker.positions(2, 1, degree, fanout, replace)
            (block,) = sampler.sample(graph, torch.tensor([2]), batch=batch).blocks
            assert (block.edge_ids - degree).tolist() == expected


@pytest.mark.parametrize("make", CORE)
@pytest.mark.parametrize("replace", [False, True])
def test_refused_words_are_drawn_again(make, replace) -> None:
    degree = 5_000_000  # of 2**32 words up to 4,967,296 are refused: about one of 1024
    graph = Graph(torch.tensor([0, degree, degree]), torch.arange(degree) % 2)
    redraws = 0
    for fanout, batches in ((1024, 4), (30, 160)):
        sampler = make([fanout], replace=replace, edge_ids=True, num_threads=1)
        for batch in range(batches):
            picker = reference_sampler.Picker(0, 0, batch)
            expected = picker.positions(0, 1, degree, fanout, replace)
            redraws += picker.redraws
            (block,) = sampler.sample(graph, torch.tensor([0]), batch=batch).blocks
            assert block.edge_ids.tolist() == expected
    assert redraws > 0


def test_reference_philox_equals_the_published_vectors() -> None:
    ones = 2**32 - 1
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    words = {
        ((0, 0, 0, 0), (0, 0)): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        ((ones,) * 4, (ones,) * 2): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        pi: (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    }
    for (counter, key), expected in words.items():
        assert reference_sampler.philox(counter, key) == expected


@pytest.mark.parametrize("make", CORE)
def test_a_mini_batch_depends_only_on_its_place(make) -> None:
    graph = messy_graph(300, 4000, 0)
    order = [(e, b) for e in range(3) for b in range(4)]

    def run(places: list[tuple[int, int]], threads: int) -> dict[tuple[int, int], str]:
        sampler = make([3, 3], edge_ids=True, seed=7, num_threads=threads)
        return {(e, b): sampler.sample(graph, pick_seeds(300, 20, b), epoch=e, batch=b).digest() for e, b in places}

    once = run(order, 1)
    assert len(set(once.values())) == len(order)
    assert run(order[::-1], 3) == once
    assert run(order[5:], 2) == dict(list(once.items())[5:])  # resumed


@pytest.mark.parametrize("make", CORE)
@pytest.mark.parametrize(("epoch", "batch", "seed"), [(1, 0, 0), (0, 1, 0), (0, 0, 1), (2**32, 0, 0), (0, 2**32, 0)])
def test_epoch_batch_and_seed_each_change_the_picks(make, epoch, batch, seed) -> None:
    graph = messy_graph(300, 4000, 0)
    seeds = torch.arange(300)

    def picks(**place: int) -> list[int]:
        sampler = make([2], edge_ids=True, seed=place.pop("seed"), num_threads=1)
        return sampler.sample(graph, seeds, **place).blocks[0].edge_ids.tolist()

    assert picks(seed=seed, epoch=epoch, batch=batch) != picks(seed=0, epoch=0, batch=0)


def test_one_sampler_serves_graphs_of_every_kind() -> None:
    fused, hopwise = FusedSampler([3, -1, 2], num_threads=3), HopwiseSampler([3, -1, 2], num_threads=1)
    for i, (num_nodes, width) in enumerate([(50, "int32"), (9000, "int32"), (50, "int64"), (1, "wide edges")] * 2):
        graph = widen(messy_graph(num_nodes, 5 * num_nodes, i), width)
        seeds = pick_seeds(num_nodes, 10, i)
        assert fused.sample(graph, seeds).digest() == hopwise.sample(graph, seeds).digest()


@pytest.mark.parametrize("make", CORE)
def test_threads_may_share_a_sampler(make) -> None:
    graphs = [messy_graph(200, 3000, 0), widen(messy_graph(400, 3000, 1), "int64")]
    sampler = make([4, 4], num_threads=2)
    jobs = [(graphs[i % 2], pick_seeds(200, 30, i), i) for i in range(40)]
    expected = [make([4, 4], num_threads=1).sample(g, s, batch=i).digest() for g, s, i in jobs]
    found: dict[int, str] = {}

    def work(part: int) -> None:
        for g, s, i in jobs[part::4]:
            found[i] = sampler.sample(g, s, batch=i).digest()

    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found.get(i) for i in range(40)] == expected


def test_full_takes_all_neighbors() -> None:
    graph = messy_graph(200, 1500, 0)
    seeds = pick_seeds(200, 5, 0)
    full = FullSampler(3, edge_ids=True, num_threads=2)
    batch = full.sample(graph, seeds, epoch=4, batch=2)
    assert full.fanouts == (-1, -1, -1)
    degrees = graph.in_degrees()
    for block in batch.blocks:
        torch.testing.assert_close(
            block.indptr[1:] - block.indptr[:-1], degrees[batch.nodes[: block.num_dst].long()], rtol=0, atol=0
        )
    wide = HopwiseSampler([1024] * 3, edge_ids=True).sample(graph, seeds, epoch=4, batch=2)
    assert int(degrees.max()) <= 1024
    assert batch.digest() == wide.digest()


def test_a_mini_batch_owns_its_arrays(random_graph) -> None:
    graph = random_graph()
    seeds = torch.arange(10)
    indptr, indices = graph.indptr.clone(), graph.indices.clone()
    batch = FusedSampler([5, 5]).sample(graph, seeds)
    batch.nodes.add_(1)
    for block in batch.blocks:
        block.indices.zero_()
    assert torch.equal(graph.indptr, indptr)
    assert torch.equal(graph.indices, indices)
    assert torch.equal(seeds, torch.arange(10))


@pytest.mark.parametrize("make", CORE)
def test_arrays_that_contradict_each_other_are_refused(make) -> None:
    graph = messy_graph(50, 300, 0)
    sampler = make([3])
    expected = sampler.sample(graph, torch.arange(5)).digest()
    broken = messy_graph(50, 300, 0)
    broken.indices = broken.indices[:-1]
    with pytest.raises(ValueError, match=r"indptr ends at \d+; it must end at len\(indices\)"):
        sampler.sample(broken, torch.arange(5))
    broken = messy_graph(50, 300, 0)
    broken.indices = broken.indices.long()
    with pytest.raises(TypeError, match=r"indptr has dtype torch\.int32; it must be torch\.int64"):
        sampler.sample(broken, torch.arange(5))
    assert sampler.sample(graph, torch.arange(5)).digest() == expected


@pytest.mark.parametrize("limit", [1, 10, 1000, 1 << 17, 1 << 40])
def test_parts_of_any_size_give_the_same(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_edges(*torch.randint(500, (2, 6000), generator=torch.Generator().manual_seed(3)), 500)
    seeds = torch.arange(0, 500, 7)
    expected = HopwiseSampler([5, 5, 5], num_threads=1).sample(graph, seeds).digest()
    monkeypatch.setattr(cpu, "PART_EDGES", limit)
    sampler = FusedSampler([5, 5, 5], num_threads=3)
    assert [sampler.sample(graph, seeds).digest() for _ in range(3)] == [expected] * 3

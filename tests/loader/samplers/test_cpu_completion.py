"""Law 3: no task is lost, on graphs where one worker has nothing to do while another makes all the work."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from graphs import chain, equal_degrees, messy_graph, star

from loader.graph import Graph
from loader.samplers import FusedSampler, HopwiseSampler

THREADS = [1, 2, 3, 8]


def assert_equals_hopwise(graph: Graph, seeds: torch.Tensor, fanouts: list[int], threads: int, calls: int) -> None:
    fused = FusedSampler(fanouts, edge_ids=True, num_threads=threads)
    hopwise = HopwiseSampler(fanouts, edge_ids=True, num_threads=1)
    for batch in range(calls):
        expected = hopwise.sample(graph, seeds, batch=batch)
        got = fused.sample(graph, seeds, batch=batch)
        assert got.frontier_sizes == expected.frontier_sizes
        assert got.digest() == expected.digest()


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("fanout", [1, 2, -1])
def test_a_chain_is_followed_to_the_last_hop(threads, fanout) -> None:
    graph = chain(5000)
    assert_equals_hopwise(graph, torch.tensor([7]), [fanout] * 8, threads, calls=100)
    batch = FusedSampler(fanout, 8, num_threads=threads).sample(graph, torch.tensor([7]))
    assert batch.nodes.tolist() == list(range(7, 16))
    assert batch.frontier_sizes == tuple(range(1, 10))


@pytest.mark.parametrize("threads", THREADS)
def test_a_chain_ends_at_the_graphs_end(threads) -> None:
    batch = FusedSampler(1, 8, num_threads=threads).sample(chain(5), torch.tensor([2]))
    assert batch.frontier_sizes == (1, 2, 3, 3, 3, 3, 3, 3, 3)
    assert [b.num_edges for b in reversed(batch.blocks)] == [1, 2, 2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("fanouts", [[1, 1, 1, 1, 1], [10, 10], [-1, 1, -1]])
@pytest.mark.parametrize("center", [True, False])
def test_a_star_equals_hopwise(threads, fanouts, center) -> None:
    seeds = torch.tensor([0]) if center else torch.arange(1, 60)
    assert_equals_hopwise(star(3000), seeds, fanouts, threads, calls=20)


@pytest.mark.parametrize("threads", [1, 4])
def test_degree_one_million_equals_hopwise(threads) -> None:
    leaves = 1_000_000
    graph = star(leaves)
    for fanouts in ([10, 10, 10], [1024], [-1, 1]):
        assert_equals_hopwise(graph, torch.tensor([0]), fanouts, threads, calls=1)
    batch = FusedSampler([-1, 1], num_threads=threads).sample(graph, torch.tensor([0]))
    assert batch.frontier_sizes == (1, leaves + 1, leaves + 1)
    assert [b.num_edges for b in batch.blocks] == [leaves + 1, leaves]


@pytest.mark.parametrize("threads", THREADS)
def test_isolated_nodes_equal_hopwise(threads) -> None:
    lonely = Graph(torch.zeros(1001, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
    batch = FusedSampler([3, 3, 3], num_threads=threads).sample(lonely, torch.arange(0, 1000, 3))
    assert batch.frontier_sizes == (334,) * 4
    assert batch.num_edges == 0
    some = messy_graph(1000, 800, 5)
    assert int((some.in_degrees() == 0).sum()) > 300
    assert_equals_hopwise(some, torch.arange(0, 1000, 3), [3, 3, 3], threads, calls=10)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("num_seeds", [1, 2, 5, 300])
def test_any_number_of_seeds_equals_hopwise(threads, num_seeds) -> None:
    graph = messy_graph(3000, 30000, 2)
    assert_equals_hopwise(graph, torch.arange(num_seeds) * 7, [5, 5, 5], threads, calls=30)


def test_more_threads_than_tasks_change_nothing() -> None:
    assert_equals_hopwise(equal_degrees(50, 3), torch.tensor([4]), [2, 2], threads=24, calls=50)


_TOO_MANY_THREADS = """
import resource, torch
from loader import FusedSampler, Graph, HopwiseSampler
from loader.samplers import Request

graph = Graph(torch.tensor([0, 1]), torch.tensor([0]))
sampler = {sampler}([1], num_threads=1000)
requests = [Request(torch.tensor([0]), 0, batch) for batch in range(1000)]
here = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (here + (1 << 30),) * 2)  # room for the stacks of some hundred threads
try:
    sampler.open(graph).begin(requests)
except (RuntimeError, MemoryError) as error:
    print("refused:", type(error).__name__)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the address space as Linux does")
@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer needs the whole address space")
@pytest.mark.parametrize("sampler", ["FusedSampler", "HopwiseSampler"])
def test_threads_that_cannot_start_are_an_error(sampler) -> None:
    script = _TOO_MANY_THREADS.format(sampler=sampler)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused:")

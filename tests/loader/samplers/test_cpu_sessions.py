"""Sessions of the CPU samplers: groups, callers at the same time, forked children, copies."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import WIDTHS, messy_graph, widen
from marks import needs_dgl

from loader import Graph
from loader.samplers import DGLSampler, FullSampler, FusedSampler, HopwiseSampler, Request, SubgraphSampler
from loader.samples import MiniBatch

CORE = [HopwiseSampler, FusedSampler]
ROOT = Path(__file__).parents[3]


def requests_of(count: int, size: int = 30, num_nodes: int = 400) -> list[Request]:
    def seeds(i: int) -> torch.Tensor:
        return torch.randperm(num_nodes, generator=torch.Generator().manual_seed(i))[:size]

    return [Request(seeds(i), i // 7, i) for i in range(count)]


@pytest.mark.parametrize("make", CORE)
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 2, 3, 16])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_group_equals_its_single_mini_batches(make, threads, count, width) -> None:
    graph = widen(messy_graph(400, 6000, 1), width)
    alone = HopwiseSampler([4, -1, 3], edge_ids=True, seed=5, num_threads=1)
    session = make([4, -1, 3], edge_ids=True, seed=5, num_threads=threads).open(graph)
    group = requests_of(count)
    for _ in range(2):  # the second group finds the workspaces of the first
        found = [finish().digest() for finish in session.begin(group)]
        assert found == [alone.sample(graph, r.seeds, epoch=r.epoch, batch=r.batch).digest() for r in group]


@pytest.mark.parametrize("threads", [1, 4])
def test_a_bad_request_spoils_no_other(threads) -> None:
    graph = messy_graph(400, 6000, 1)
    session = FusedSampler([4, 3], num_threads=threads).open(graph)
    good = requests_of(4)
    group = [good[0], Request(torch.tensor([3, 3], dtype=graph.indices.dtype), 0, 1), *good[1:]]
    finish = session.begin(group)
    expected = [f().digest() for f in session.begin(good)]
    with pytest.raises(ValueError, match="seeds holds node 3 more than once"):
        finish[1]()
    assert [f().digest() for f in (finish[0], *finish[2:])] == expected
    assert [f().digest() for f in session.begin(good)] == expected


def test_arrays_outlive_session_and_graph() -> None:
    graph = messy_graph(400, 6000, 1)
    session = FusedSampler([10, 10], edge_ids=True, num_threads=2).open(graph)
    (request,) = requests_of(1)
    digest = session.begin([request])[0]().digest()
    finish = session.begin([request, request])
    session.close()
    del session, graph
    batches = [f() for f in finish]
    assert [batch.digest() for batch in batches] == [digest, digest]
    batches[0].nodes.zero_()
    assert batches[1].digest() == digest


def test_a_closed_session_says_so() -> None:
    session = FusedSampler([2]).open(messy_graph(50, 300, 0))
    session.close()
    with pytest.raises(RuntimeError, match="was closed"):
        session.begin(requests_of(1, num_nodes=50))


@pytest.mark.parametrize("make", [*CORE, SubgraphSampler, pytest.param(DGLSampler, marks=needs_dgl)])
def test_opening_a_bipartite_graph_is_refused(make) -> None:
    graph = Graph(torch.tensor([0, 2, 3]), torch.tensor([0, 4, 2]), num_src=5)
    with pytest.raises(ValueError, match="wants a graph of one set of nodes"):
        make([4, 3]).open(graph)


def test_several_threads_may_mix_groups_and_calls() -> None:
    graph = messy_graph(400, 6000, 1)
    session = FusedSampler([4, 4], num_threads=3).open(graph)
    group = requests_of(40)
    alone = HopwiseSampler([4, 4], num_threads=1)
    expected = [alone.sample(graph, r.seeds, epoch=r.epoch, batch=r.batch).digest() for r in group]
    found: dict[tuple[int, int], str] = {}

    def work(caller: int) -> None:
        step = 1 if caller % 2 else 8
        for begin in range(0, len(group), step):
            for i, finish in enumerate(session.begin(group[begin : begin + step])):
                found[caller, begin + i] = finish().digest()

    threads = [threading.Thread(target=work, args=(caller,)) for caller in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {(caller, i): digest for caller in range(4) for i, digest in enumerate(expected)}


_FORKS = """
import os, sys, threading, torch
sys.path[:0] = [{support!r}]
from graphs import messy_graph
from loader import FusedSampler
from loader.samplers import Request

graph = messy_graph(20000, 200000, 1)
seeds = torch.arange(2000)
sampler = FusedSampler([5, 5], num_threads=4)
session = sampler.open(graph)
group = [Request(seeds, 0, batch) for batch in range(8)]

def digests():
    one = sampler.sample(graph, seeds).digest()
    return [one] + [finish().digest() for finish in session.begin(group)]

expected = digests()
stop = threading.Event()
def keep_busy():  # so that locks are held and threads are at work while the process forks
    while not stop.is_set():
        assert digests() == expected
callers = [threading.Thread(target=keep_busy) for _ in range(2)]
if {busy}:
    for caller in callers:
        caller.start()
children = []
for _ in range(6):
    child = os.fork()
    if child == 0:
        os._exit(0 if digests() == expected and digests() == expected else 1)
    children.append(child)
codes = [os.waitpid(child, 0)[1] for child in children]
stop.set()
if {busy}:
    for caller in callers:
        caller.join()
assert codes == [0] * len(codes), codes
assert digests() == expected
print("same")
"""

_DATA_LOADER = """
import torch
import sys
sys.path[:0] = [{support!r}]
from graphs import messy_graph
from loader import FusedSampler

graph = messy_graph(20000, 200000, 1)
sampler = FusedSampler([5, 5], num_threads=2)

class Batches(torch.utils.data.Dataset):
    def __len__(self): return 6
    def __getitem__(self, i): return sampler.sample(graph, torch.arange(500 * i, 500 * i + 500), batch=i).digest()

expected = [Batches()[i] for i in range(6)]
loader = torch.utils.data.DataLoader(Batches(), batch_size=None, num_workers=2, multiprocessing_context="fork")
for epoch in range(2):
    assert list(loader) == expected
    assert Batches()[0] == expected[0]
print("same")
"""


def run(script: str) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("same")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("busy", [False, True])
def test_a_forked_child_samples(busy) -> None:
    run(_FORKS.format(support=str(ROOT / "tests" / "support"), busy=busy))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_workers_of_a_torch_data_loader_sample() -> None:
    run(_DATA_LOADER.format(support=str(ROOT / "tests" / "support")))


@pytest.mark.parametrize("make", CORE)
def test_a_used_sampler_can_be_copied_and_pickled(make) -> None:
    graph = messy_graph(400, 6000, 1)
    sampler = make(np.array([4, 3]), num_threads=np.int64(2), seed=np.int64(3), edge_ids=True)

    def sample(of) -> MiniBatch:
        return of.sample(graph, torch.arange(20), epoch=1, batch=np.int64(2))

    expected = sample(sampler).digest()
    for copied in (copy.copy(sampler), copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert copied.spec() == sampler.spec()
        assert copied.num_threads == 2
        assert sample(copied).digest() == expected


def test_integers_of_numpy_are_integers() -> None:
    sampler = FusedSampler(np.int32(5), np.int64(2), seed=np.uint64(7), num_threads=np.int16(2))
    assert sampler.spec() == FusedSampler([5, 5], seed=7).spec()
    assert FullSampler(np.int64(2)).fanouts == (-1, -1)
    assert all(type(k) is int for k in (*sampler.fanouts, sampler.seed, sampler.num_threads))
    for bad in (np.float64(5), np.array([2.5, 2.0]), True, [np.bool_(True)]):
        with pytest.raises(TypeError, match="is not an integer"):
            FusedSampler(bad, 2)


@pytest.mark.parametrize("make", CORE)
@pytest.mark.parametrize("threads", [1025, 100_000, 2**31, 2**70])
def test_more_threads_than_any_machine_has_are_refused(make, threads) -> None:
    with pytest.raises(ValueError, match=rf"num_threads is {threads}; it must be at most 1024"):
        make([5], num_threads=threads)


@pytest.mark.parametrize("threads", ["2", 2.0, None.__class__])
def test_the_number_of_threads_is_an_integer(threads) -> None:
    with pytest.raises(TypeError, match=r"num_threads is .*; it must be an integer"):
        FusedSampler([5], num_threads=threads)


@pytest.mark.parametrize(("threads", "together"), [(1, 1), (2, 2), (16, 16), (31, 16), (32, 1), (64, 1)])
def test_the_number_of_threads_decides_the_group_size(threads, together) -> None:
    assert FusedSampler([5], num_threads=threads).open(messy_graph(50, 300, 0)).together == together

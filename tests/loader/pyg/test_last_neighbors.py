"""The last neighbors are those of torch_geometric's own class, mini-batch by mini-batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import relational
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import needs_gpu

pytest.importorskip("torch_geometric")
from torch_geometric.data import TemporalData
from torch_geometric.loader import TemporalDataLoader
from torch_geometric.nn.models.tgn import LastNeighborLoader as Theirs

from loader.pyg import LastNeighborLoader

COLLEGE = relational.FOLDER.parent / "temporal" / "collegemsg" / "CollegeMsg.txt"


def data_of(src: Any, dst: Any, t: Any = None) -> TemporalData:
    src, dst = torch.as_tensor(src), torch.as_tensor(dst)
    return TemporalData(src=src, dst=dst, t=torch.arange(len(src)) if t is None else torch.as_tensor(t))


def compare(data: TemporalData, size: int, batch_size: int, device: str = "cpu", every: int = 1) -> tuple[int, int]:
    """Numbers of edges that were compared with a list per node, and with torch_geometric's class.

    That class sorts the events of a mini-batch by node in no certain order, so it keeps any `size` of them if a node
    has more. Such nodes are left out there.
    """
    ours, theirs = LastNeighborLoader(data, size, device), Theirs(data.num_nodes, size)
    theirs.neighbors.zero_()  # it indexes what it never wrote
    last: list[list[tuple[int, int]]] = [[] for _ in range(data.num_nodes)]  # event, neighbor
    overfull, counts = torch.zeros(data.num_nodes, dtype=torch.bool), [0, 0]
    for number, batch in enumerate(TemporalDataLoader(data, batch_size=batch_size)):
        if number % every == 0:
            nodes, pairs, e_id = (found.cpu() for found in ours(batch.n_id))
            wanted = [(n, v, e) for n in batch.n_id.tolist() for e, v in last[n][-size:][::-1]]
            assert [*zip(nodes[pairs[1]].tolist(), nodes[pairs[0]].tolist(), e_id.tolist(), strict=True)] == wanted
            assert nodes.tolist() == sorted({*batch.n_id.tolist(), *(v for _, v, _ in wanted)})
            sure = batch.n_id[~overfull[batch.n_id]]
            of_sure = theirs(sure)
            for mine, other in zip(ours(sure), of_sure, strict=True):
                assert torch.equal(mine.cpu(), other)
            counts = [counts[0] + len(wanted), counts[1] + of_sure[2].numel()]
        ours.insert(batch.src, batch.dst)
        theirs.insert(batch.src, batch.dst)
        overfull |= torch.cat([batch.src, batch.dst]).bincount(minlength=data.num_nodes) > size
        first = number * batch_size
        for event, (src, dst) in enumerate(zip(batch.src.tolist(), batch.dst.tolist(), strict=True), first):
            last[src].append((event, dst))
            last[dst].append((event, src))
    assert ours.cur_e_id == len(data)
    return counts[0], counts[1]


@given(
    events=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=80),
    size=st.integers(1, 6),
    batch_size=st.integers(1, 20),
)
@settings(max_examples=100, deadline=None)
def test_neighbors_are_torch_geometrics(events: list[tuple[int, int]], size: int, batch_size: int) -> None:
    src, dst = (torch.tensor(ends) for ends in zip(*events, strict=True))
    compare(data_of(src, dst, torch.zeros(len(events), dtype=torch.int64)), size, batch_size)


def skewed(count: int) -> TemporalData:
    g = torch.Generator().manual_seed(0)
    ends = (300 * torch.rand(2, count, generator=g) ** 3).long()
    return data_of(*ends, torch.arange(count) // 5)


def test_hubs_have_their_last_neighbors() -> None:
    assert min(compare(skewed(5000), 10, 200, every=3)) > 1000


@pytest.mark.skipif(not COLLEGE.is_file(), reason=f"no {COLLEGE}")
def test_messages_of_a_college_are_the_same() -> None:
    src, dst, t = torch.from_numpy(np.loadtxt(COLLEGE, dtype=np.int64)).unbind(1)
    assert min(compare(data_of(src, dst, t), 10, 200, every=20)) > 3000


def test_a_run_goes_on_at_an_event() -> None:
    data = skewed(1000)
    whole, resumed, nodes = LastNeighborLoader(data, 5), LastNeighborLoader(data, 5), torch.tensor([0, 3, 0, 9])
    whole.insert(data.src[:600], data.dst[:600])
    resumed.cur_e_id = 600
    assert all(torch.equal(a, b) for a, b in zip(whole(nodes), resumed(nodes), strict=True))
    whole.reset_state()
    every, pairs, e_id = whole(nodes)
    assert (every.tolist(), pairs.shape, e_id.numel()) == ([0, 3, 9], (2, 0), 0)


def test_bad_arguments_are_refused() -> None:
    data = skewed(100)
    neighbors = LastNeighborLoader(data, 5)
    with pytest.raises(ValueError, match="the 3 events are not those of the data from event 0 on; insert"):
        neighbors.insert(data.src[3:6], data.dst[3:6])
    with pytest.raises(ValueError, match="seeds holds node 999"):
        neighbors(torch.tensor([999]))
    with pytest.raises(ValueError, match="size is 0; it must be at least 1"):
        LastNeighborLoader(data, 0)
    with pytest.raises(TypeError, match="data is an int; it must be a TemporalData with vectors src and dst"):
        LastNeighborLoader(data.num_nodes, 10)
    data.src = data.src / 2
    with pytest.raises(TypeError, match=r"data\.src has dtype torch\.float32; it must be an integer type"):
        LastNeighborLoader(data, 10)


class TestOnGpu:
    pytestmark = needs_gpu

    @pytest.mark.parametrize(("size", "batch_size"), [(1, 50), (10, 200), (40, 1000)])
    def test_neighbors_are_torch_geometrics(self, size: int, batch_size: int) -> None:
        assert min(compare(skewed(20_000), size, batch_size, "cuda")) > 100

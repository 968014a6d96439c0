"""Labels of the mini-batches that are sampled together are gathered together, and are those of their seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.samplers import HopwiseSampler
from loader.samplers.base import Session
from loader.stores import HostFeatures, TensorRows

NUM_NODES = 300
LABELS = torch.arange(NUM_NODES) * 3 % 17


class Together(HopwiseSampler):
    """Samples four mini-batches together, or says so."""

    def open(self, graph: Graph) -> Session:
        session = super().open(graph)
        session.together = 4
        return session


class Counting(torch.Tensor):
    """Labels that count how often they were gathered."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls += func is Tensor.index_select
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


@pytest.fixture
def graph(random_graph: Callable[..., Graph]) -> Graph:
    return random_graph(NUM_NODES, 1500)


def check(loader: NodeLoader, labels: Tensor = LABELS) -> int:
    """Looks at the rest of an epoch; returns how many mini-batches that were."""
    count = 0
    for batch in loader:
        assert batch.y is not None
        assert torch.equal(batch.y, labels[batch.output_nodes.long()])
        assert batch.y.is_contiguous()
        count += 1
    return count


@settings(deadline=None, max_examples=60)
@given(
    num_seeds=st.integers(1, 120),
    batch_size=st.integers(1, 30),
    ranks=st.integers(1, 3).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))),
    drop_last=st.booleans(),
    prefetch=st.integers(0, 3),
    classes=st.sampled_from([None, 5]),
    sampler=st.sampled_from([Together, HopwiseSampler]),
    data=st.data(),
)
def test_labels_are_those_of_the_seeds(
    num_seeds: int,
    batch_size: int,
    ranks: tuple[int, int],
    drop_last: bool,
    prefetch: int,
    classes: int | None,
    sampler: type[HopwiseSampler],
    data: st.DataObject,
) -> None:
    rank, world_size = ranks
    if drop_last and num_seeds < batch_size:
        return
    graph = Graph.from_edges(*torch.randint(NUM_NODES, (2, 900), generator=torch.Generator().manual_seed(0)), NUM_NODES)
    labels = LABELS if classes is None else LABELS[:, None] + torch.arange(classes)
    options: dict[str, Any] = {"shuffle": True, "drop_last": drop_last, "rank": rank, "world_size": world_size}
    seeds = torch.randperm(NUM_NODES, generator=torch.Generator().manual_seed(num_seeds))[:num_seeds]
    loader = NodeLoader(graph, None, labels, seeds, sampler([2]), batch_size, prefetch=prefetch, **options)
    assert check(loader, labels) == check(loader, labels) == len(loader)
    given_out = data.draw(st.integers(0, len(loader)))
    state = {**loader.state_dict(), "epoch": 5, "next": given_out * world_size}
    loader.load_state_dict(state)
    assert check(loader, labels) == len(loader) - given_out


@pytest.mark.parametrize(("prefetch", "calls"), [(0, 10), (2, 1 + 3)])
def test_seeds_sampled_together_need_one_gather(graph: Graph, prefetch: int, calls: int) -> None:
    # The first one alone, and nine by four; all alone on the consumer's own stream, which may change between them.
    labels = LABELS.as_subclass(Counting)
    loader = NodeLoader(graph, None, labels, torch.arange(100), Together([3]), 10, prefetch=prefetch)
    Counting.calls = 0
    assert sum(1 for _ in loader) == 10
    assert Counting.calls == calls


def test_a_change_touches_only_its_mini_batch(graph: Graph) -> None:
    labels = torch.rand(NUM_NODES, generator=torch.Generator().manual_seed(0))
    batches = list(NodeLoader(graph, None, labels, torch.arange(100), Together([3]), 10))
    weight = torch.ones(10, requires_grad=True)
    first, second = batches[2], batches[3]
    assert first.y is not None
    assert second.y is not None
    loss = (weight * first.y).sum()
    second.y.zero_()
    loss.backward()
    assert torch.equal(first.y, labels[first.output_nodes.long()])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_seeds_may_have_any_integer_type(graph: Graph, dtype: torch.dtype) -> None:
    seeds = torch.arange(20, 120).to(dtype)
    assert check(NodeLoader(graph, None, LABELS, seeds, Together([3]), 16, shuffle=True)) == 7


class OnGpu(TensorRows):
    """Rows that lie on a GPU, so they say."""

    asynchronous = True

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", 0)


def test_labels_on_the_host_delay_no_gather(graph: Graph) -> None:
    """They are gathered with the seeds; their store on the CPU is no concern of the gather."""
    loader = NodeLoader(graph, HostFeatures(torch.zeros(NUM_NODES, 2)), LABELS, torch.arange(100), Together([3]), 10)
    loader.stores["node"], loader.device = OnGpu(torch.zeros(NUM_NODES, 2)), torch.device("cuda", 0)
    sample, move, gather = loader._make_stages()
    assert (sample.name, move.name, gather.name) == ("sample", "move", "gather")
    assert gather.asynchronous


def test_stores_of_labels_are_checked_after_epochs(graph: Graph) -> None:
    class Late(TensorRows):
        def check(self) -> None:
            raise ValueError("id 7 is out of range")

    loader = NodeLoader(graph, None, LABELS, torch.arange(10), HopwiseSampler([3]), 10)
    loader.stores["seed"] = Late(LABELS)
    with pytest.raises(ValueError, match="id 7 is out of range"):
        list(loader)


def test_labels_may_lie_in_a_store(graph: Graph) -> None:
    store = TensorRows(LABELS.to(torch.uint8), torch.int64)
    loader = NodeLoader(graph, None, store, torch.arange(40), Together([3], num_threads=1), 10)
    assert check(loader) == 4
    assert loader.labels is store
    with pytest.raises(ValueError, match="labels has 5 rows, the graph 300 nodes; give a label per node"):
        NodeLoader(graph, None, TensorRows(LABELS[:5]), torch.arange(40), Together([3], num_threads=1), 10)

"""Everything on a GPU that is not the current one: the same bytes, and the current one stays what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from marks import needs_gpu, needs_two_gpus
from torch import Tensor
from torch.nn import functional as F

from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.samplers import HopwiseSampler
from loader.samplers.gpu.sampler import SCHEDULES, CudaSampler
from loader.samples import MiniBatch
from loader.stores import CachedFeatures, DeviceFeatures, FeatureStore, PinnedFeatures, StagedFeatures
from models.sage import GraphSAGE
from models.training.cuda_graphs import GraphedLoss

pytestmark = [*needs_gpu, needs_two_gpus]

NUM_NODES, FEATURES, CLASSES, FANOUTS = 10_000, 32, 5, [5, 4]
SECOND = torch.device("cuda:1")
STORES: dict[str, Callable[[Tensor, torch.device], FeatureStore]] = {
    "device": DeviceFeatures,
    "lazy": lambda x, device: DeviceFeatures(x, device, lazy=True),
    "cached": lambda x, device: CachedFeatures(x, device, fraction=0.3, hotness=torch.arange(NUM_NODES)),
    "pinned": PinnedFeatures,
    "staged": StagedFeatures,
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    ids = torch.randint(NUM_NODES, (2, 100_000), generator=torch.Generator().manual_seed(0))
    return Graph.from_edges(*ids, NUM_NODES)


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.randn(NUM_NODES, FEATURES, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def the_first_stays_current() -> Iterator[None]:
    assert torch.cuda.current_device() == 0
    yield
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("pinned", [False, True], ids=["device", "pinned"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_sampler_equals_the_oracle(graph: Graph, schedule: str, pinned: bool) -> None:
    there = graph.pin_memory() if pinned else graph.to(SECOND)
    sampler, oracle = CudaSampler(FANOUTS, schedule=schedule, device=SECOND), HopwiseSampler(FANOUTS)
    g = torch.Generator().manual_seed(2)
    for batch in range(20):
        seeds = torch.randperm(NUM_NODES, generator=g)[: 1 + 37 * batch]
        wanted = oracle.sample(graph, seeds, batch=batch).digest()
        assert sampler.sample(there, seeds, batch=batch).digest() == wanted
        got = sampler.sample(there, seeds.to("cuda:0"), batch=batch)  # seeds may lie anywhere
        assert got.nodes.device == SECOND
        assert got.digest() == wanted
    sampler.close()


def test_padded_mini_batches_trim_to_the_oracles(graph: Graph) -> None:
    sampler, oracle = CudaSampler(FANOUTS, pad_to_capacity=True, device=SECOND), HopwiseSampler(FANOUTS)
    there, seeds = graph.to(SECOND), torch.arange(0, 5000, 7)
    for batch in range(5):
        assert (
            sampler.sample(there, seeds, batch=batch).trim().digest()
            == oracle.sample(graph, seeds, batch=batch).digest()
        )
    sampler.close()


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("together", [1, 8])
def test_the_loader_gives_the_cpus_mini_batches(
    graph: Graph, x: Tensor, store: str, together: int, prefetch: int
) -> None:
    data = torch.arange(NUM_NODES) % CLASSES, torch.arange(0, NUM_NODES, 3)
    wanted = [batch.digest() for batch in NodeLoader(graph, x, *data, HopwiseSampler(FANOUTS), 100, shuffle=True)]
    sampler = CudaSampler(FANOUTS, batches_per_launch=together, device=SECOND)
    rows = STORES[store](x, SECOND)
    loader = NodeLoader(graph.to(SECOND), rows, *data, sampler, 100, shuffle=True, device=SECOND, prefetch=prefetch)
    found = []
    for batch in loader:
        assert all(t.device == SECOND for t in batch.tensors())
        found.append(batch.digest())
    assert found == wanted
    loader.close()
    rows.close()
    sampler.close()


def test_replayed_training_has_the_same_losses(graph: Graph, x: Tensor) -> None:
    losses = []
    for device in (torch.device("cuda:0"), SECOND):
        sampler = CudaSampler(FANOUTS, batches_per_launch=4, device=device)
        store = DeviceFeatures(x, device, lazy=True)
        labels, seeds = torch.arange(NUM_NODES) % CLASSES, torch.arange(0, NUM_NODES, 3)
        loader = NodeLoader(graph.to(device), store, labels, seeds, sampler, 100, drop_last=True, device=device)
        torch.manual_seed(0)
        net = GraphSAGE(FEATURES, 64, CLASSES, 2).to(device)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

        def loss_and_logits(batch: MiniBatch, net: GraphSAGE = net) -> tuple[Tensor, Tensor]:
            assert batch.features is not None
            assert batch.y is not None
            logits = net(batch.blocks, batch.features)
            return F.cross_entropy(logits, batch.y), logits

        graphed = GraphedLoss(loss_and_logits, net)
        found = []
        for _ in range(3):
            for batch in loader:
                optimizer.zero_grad()
                loss, _ = graphed(batch)
                loss.backward()
                optimizer.step()
                found.append(loss.detach().cpu())
        assert graphed.replayed > 60
        losses.append(torch.stack(found))
        loader.close()
        store.close()
        sampler.close()
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-2, atol=1e-3)

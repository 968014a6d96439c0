"""Two processes that train one embedding: the sparse gradients that they exchange are those of one process."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from two_processes import call_in_two

from loader import Graph
from loader.samplers import WalkSampler
from models.node2vec import Node2Vec
from models.training.embedder import NodeEmbedder

NUM_NODES, STEPS = 40, 3


def walks_of(step: int, rank: int) -> tuple[Tensor, Tensor]:
    """A mini-batch of the global sequence. Those of rank 1 begin in other parts, so its gradient has other rows."""
    ring = torch.arange(NUM_NODES)
    graph = Graph.from_edges(ring, (ring + 1) % NUM_NODES, NUM_NODES)
    starts = torch.arange(4) + 20 * rank
    walks = WalkSampler(5, num_negatives=2, seed=1, num_threads=1).sample(graph, starts, batch=2 * step + rank)
    assert walks.negatives is not None
    return walks.nodes, walks.negatives


class Loss(torch.nn.Module):
    """Makes the loss the model's `forward`, which is what `DistributedDataParallel` calls."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.net = Node2Vec(NUM_NODES, 8, 3)

    def forward(self, walks: Tensor, negatives: Tensor) -> Tensor:
        return self.net.loss(walks, negatives)


def train(model: torch.nn.Module, ranks: list[int]) -> None:
    """Steps on the mini-batches of these ranks, whose losses are averaged."""
    (weight,) = model.parameters()
    optimizer = torch.optim.SparseAdam([weight], lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        torch.stack([model(*walks_of(step, rank)) for rank in ranks]).mean().backward()
        assert weight.grad is not None
        assert weight.grad.is_sparse
        optimizer.step()


# Called by each of two processes.
def one_rank(root: str) -> None:
    rank = int(os.environ["LOCAL_RANK"])
    store = torch.distributed.FileStore(f"{root}/store", 2)
    limit = timedelta(seconds=600)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=limit)
    model = DistributedDataParallel(Loss())
    train(model, [rank])
    torch.save(model.module.net.embedding.weight.detach(), f"{root}/{rank}.pt")
    store.set(f"saved {rank}", "")
    store.wait(["saved 0", "saved 1"], limit)  # nobody leaves the other one in the middle of an exchange
    # Torch would wait, with Python's lock in hand, for gloo's thread, which needs that lock to let the last sparse
    # gradient go. A run of more than some milliseconds is past that.
    os._exit(0)


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this torch has no gloo")
def test_two_processes_learn_what_one_would(tmp_path: Path) -> None:
    call_in_two(__file__, "one_rank", str(tmp_path))
    of_ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    assert torch.equal(*of_ranks)
    alone = Loss()
    start = alone.net.embedding.weight.detach().clone()
    train(alone, [0, 1])
    torch.testing.assert_close(of_ranks[0], alone.net.embedding.weight.detach())
    assert not torch.equal(of_ranks[0], start)


def test_sparse_gradients_by_nccl_are_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    model = NodeEmbedder(NUM_NODES, 4, dim=8)
    for backend in ("gloo", "nccl"):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
        monkeypatch.setattr(torch.distributed, "get_backend", lambda backend=backend: backend)
        if backend == "gloo":
            model.setup("fit")
        else:
            with pytest.raises(ValueError, match=r"and NCCL cannot: train on one GPU \(trainer.devices=1\)"):
                model.setup("fit")
            model.setup("test")

"""Two processes that train rows: their gradients are those of one process, also where one of them reads no row."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from hetero_datasets import make_hetero
from torch import Tensor
from two_processes import call_in_two

from loader.samplers import FusedSampler
from loader.samples.hetero import HeteroMiniBatch
from models.training.exchange import GradientExchange
from models.training.rgcn_classifier import RGCNClassifier

STEPS, NUM_NODES = 4, {"author": 60, "paper": 40, "term": 10}
ROWS: tuple[int | str, ...] = (4, "one-hot")


def batch_of(step: int, rank: int) -> HeteroMiniBatch:
    """A mini-batch of the global sequence. In step 2, rank 1 has no neighbors, so it reads no paper."""
    data = make_hetero()
    seeds = torch.arange(5) + 10 * step + 5 * rank
    fanouts = dict.fromkeys(data.graph.edge_types, [0, 0] if (step, rank) == (2, 1) else [2, 2])
    batch = FusedSampler(fanouts, expand="new", seed=1, num_threads=1).sample(data.graph, {"author": seeds})
    x = {name: torch.as_tensor(data.features[name])[batch.n_id[name]] for name in data.features}
    return batch.replace(x=x, y=data.labels[seeds])


def model_of(trained_rows: int | str) -> RGCNClassifier:
    data = make_hetero()
    torch.manual_seed(3)
    in_dims = {name: data.num_features.get(name, 0) for name in NUM_NODES}
    options = {"hidden_channels": 8, "dropout": 0.0, "lr": 0.05, "weight_decay": 0.01, "num_nodes": NUM_NODES}
    return RGCNClassifier(in_dims, 2, data.graph.edge_types, "author", trained_rows=trained_rows, **options)


def train(model: RGCNClassifier, ranks: list[int], exchange: GradientExchange | None = None) -> list[Tensor]:
    """Steps on the mini-batches of these ranks, whose losses are averaged; returns all parameters."""
    optimizer = model.configure_optimizers()
    for step in range(STEPS):
        optimizer.zero_grad()
        torch.stack([model._loss(batch_of(step, rank))[0] for rank in ranks]).mean().backward()
        if exchange is not None:
            exchange.run()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


# Called by each of two processes.
def one_rank(root: str) -> None:
    rank = int(os.environ["LOCAL_RANK"])
    store = torch.distributed.FileStore(f"{root}/store", 2)
    limit = timedelta(seconds=600)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=limit)
    models = [model_of(rows) for rows in ROWS]
    found = [train(model, [rank], GradientExchange(model.named_parameters())) for model in models]
    torch.save(found, f"{root}/{rank}.pt")
    store.set(f"saved {rank}", "")
    store.wait(["saved 0", "saved 1"], limit)  # nobody leaves the other one in the middle of an exchange
    os._exit(0)  # see test_embedder_processes.py


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this torch has no gloo")
def test_two_processes_learn_what_one_would(tmp_path: Path) -> None:
    assert batch_of(2, 1).num_nodes_of("paper") == 0
    call_in_two(__file__, "one_rank", str(tmp_path))
    of_ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for i, rows in enumerate(ROWS):
        begin = [p.detach().clone() for p in model_of(rows).parameters()]
        alone = train(model_of(rows), [0, 1])
        for first, second, one in zip(of_ranks[0][i], of_ranks[1][i], alone, strict=True):
            assert torch.equal(first, second)
            torch.testing.assert_close(first, one, rtol=1e-4, atol=1e-6)
        assert not torch.equal(begin[0], alone[0])

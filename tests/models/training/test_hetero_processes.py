"""Two processes that train on typed mini-batches learn what one process does with the mini-batches of both."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from marks import needs_two_gpus
from torch import Tensor, nn
from torch.nn import functional as F
from two_processes import call_in_two

from loader.graph import HeteroGraph
from loader.loaders.nodes import NodeLoader
from loader.samplers import FusedSampler
from loader.stages.move import to_gpu
from loader.stores import HostFeatures
from models.rgat import RGAT
from models.rgcn import RGCN
from models.training.exchange import GradientExchange

PAPERS, AUTHORS, CLASSES = 40, 12, 3
NETS = {"rgcn": RGCN, "rgat": RGAT}
EDGE_TYPES = [("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "written_by", "author")]


def graph_of_halves() -> HeteroGraph:
    """Authors write the first half of the papers alone, and no half cites the other."""
    g = torch.Generator().manual_seed(0)
    author, first = torch.randint(AUTHORS, (60,), generator=g), torch.randint(PAPERS // 2, (60,), generator=g)
    half = PAPERS // 2 * torch.randint(2, (120,), generator=g)
    cites = torch.stack([torch.randint(PAPERS // 2, (120,), generator=g) + half for _ in range(2)])
    edges = dict(zip(EDGE_TYPES, (torch.stack([author, first]), cites, torch.stack([first, author])), strict=True))
    return HeteroGraph.from_edges(edges, {"author": AUTHORS, "paper": PAPERS})


def loader_of(rank: int) -> NodeLoader:
    """The papers of a half, so rank 1 meets no author."""
    g = torch.Generator().manual_seed(1)
    features = {
        name: HostFeatures(torch.randn(count, 5, generator=g)) for name, count in (("author", 12), ("paper", PAPERS))
    }
    labels = torch.randint(CLASSES, (PAPERS,), generator=g)
    seeds = "paper", torch.arange(PAPERS // 2) + rank * PAPERS // 2
    return NodeLoader(graph_of_halves(), features, labels, seeds, FusedSampler([3, 3], expand="new"), 8, shuffle=True)


def make(kind: str, device: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = NETS[kind]({"author": 5, "paper": 5}, EDGE_TYPES, "paper", 8, CLASSES, 2, dropout=0.0)
    net = net.to(device, torch.float64 if device == "cpu" else torch.float32)
    return net, torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 0.01)


def trained(kind: str, ranks: Sequence[int], device: str = "cpu") -> Tensor:
    """`[steps, ranks]` losses of these ranks, whose gradients are averaged here or by an exchange."""
    net, optimizer = make(kind, device)
    exchange = GradientExchange(net.named_parameters()) if dist.is_initialized() else None
    losses = []
    loaders = [loader_of(rank) for rank in ranks]
    for _ in range(4):
        for together in zip_longest(*loaders):
            batches = [to_gpu(batch, torch.device(device))[0] if device != "cpu" else batch for batch in together]
            of_ranks = [F.cross_entropy(net(batch), batch.y) for batch in batches]
            optimizer.zero_grad()
            torch.stack(of_ranks).mean().backward()
            if exchange is not None:
                exchange.run()
            optimizer.step()
            losses.append(torch.stack(of_ranks).detach().cpu())
    return torch.stack(losses)


# Called by each of two processes.
def main(root: str, backend: str) -> None:
    rank = int(os.environ["LOCAL_RANK"])
    device = "cpu" if backend == "gloo" else f"cuda:{rank}"
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, rank=rank, world_size=2)
    torch.save({kind: trained(kind, [rank], device) for kind in NETS}, Path(root) / f"{rank}.pt")
    dist.destroy_process_group()


def losses_of_processes(root: Path, backend: str) -> dict[str, Tensor]:
    """`[steps, 2]` losses of each net."""
    call_in_two(__file__, "main", str(root), backend)
    found: list[dict[str, Any]] = [torch.load(root / f"{rank}.pt") for rank in range(2)]
    return {kind: torch.cat([of[kind] for of in found], 1) for kind in NETS}


def test_one_rank_lacks_a_relation() -> None:
    edges = [{batch.to_pyg()[EDGE_TYPES[0]].edge_index.shape[1] > 0 for batch in loader_of(rank)} for rank in range(2)]
    assert edges == [{True}, {False}]


def test_two_processes_have_the_losses_of_one(tmp_path: Path) -> None:
    for kind, losses in losses_of_processes(tmp_path, "gloo").items():
        torch.testing.assert_close(losses, trained(kind, [0, 1]), rtol=1e-9, atol=1e-12)


@pytest.mark.gpu
@needs_two_gpus
def test_two_gpus_have_the_losses_of_one(tmp_path: Path) -> None:
    for kind, losses in losses_of_processes(tmp_path, "nccl").items():
        torch.testing.assert_close(losses, trained(kind, [0, 1], "cuda:0"), rtol=1e-3, atol=1e-4)

"""Replayed steps and the exchange of gradients: no copy on one GPU, no warning on two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from graphed_nets import Net, make_batches
from marks import needs_gpu, needs_two_gpus
from torch import Tensor
from train_runs import run

from models.training import exchange
from models.training.exchange import GradientExchange

pytestmark = needs_gpu


def test_replayed_gradients_are_exchanged_where_they_lie(random_graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanged: list[Tensor] = []
    monkeypatch.setattr(exchange.dist, "get_world_size", lambda group: 2)
    monkeypatch.setattr(exchange.dist, "get_backend", lambda group: "nccl")
    monkeypatch.setattr(exchange.dist, "all_reduce", lambda tensor, *_: exchanged.append(tensor))
    net = Net(graphed=True)
    averaging = GradientExchange(net.net.named_parameters())
    pieces, before = set(), 0
    for batch in make_batches(random_graph(), multilabel=False) * 2:
        net.optimizer.zero_grad()
        net.loss(batch)[0].backward()
        gradients = [p.grad for p in net.net.parameters() if p.grad is not None]
        places = [g.data_ptr() for g in gradients]
        averaging.run()
        if net.graphed.replayed > before:
            assert [p.grad.data_ptr() for p in net.net.parameters() if p.grad is not None] == places
            pieces.add(exchanged[-1].data_ptr())
        before = net.graphed.replayed
        net.optimizer.step()
    assert net.graphed.replayed > 60
    assert len(pieces) == net.graphed.captures
    assert len({tuple(t.shape) for t in exchanged}) == 1  # replayed or not, so that processes can mix them


@needs_two_gpus
def test_two_gpus_train_without_a_word_more(tmp_path: Path) -> None:
    done = run(
        tmp_path, "device=cuda", "features=device", "trainer.devices=2", "trainer.max_epochs=12",
        "datamodule.batch_size=32", "callbacks.early_stopping=null",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "train: cuda:0, 2 processes" in done.stdout
    words = done.stdout.split()
    at = words.index("graphs")  # steps by CUDA graphs N of M
    assert int(words[at + 1].replace(",", "")) > 0.7 * int(words[at + 3].replace(",", ""))

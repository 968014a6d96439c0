"""A DataLoader takes `worker_init_fn`, and calls it for each of its threads when an epoch begins."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from marks import needs_dgl
from torch.utils.data import get_worker_info

import loader.dgl as ours
from loader.machine.optional import import_dgl

pytestmark = needs_dgl
calls: list[tuple[Any, ...]] = []


def told(number: int) -> None:
    info = get_worker_info()
    assert info is not None
    calls.append((number, info.id, info.num_workers, info.dataset.tolist()))


class Own(ours.NeighborSampler):
    """Its method is called for each mini-batch."""

    def sample_blocks(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> Any:
        return super().sample_blocks(g, seed_nodes, exclude_eids)


@pytest.mark.parametrize("sampler", [ours.NeighborSampler([2]), Own([2])])
def test_each_epoch_begins_with_the_workers(sampler: Any) -> None:
    dgl = import_dgl("this test")
    g = dgl.graph((torch.tensor([0, 1, 2, 3]), torch.tensor([1, 2, 3, 0])))
    calls.clear()
    made = ours.DataLoader(g, torch.arange(3), sampler, batch_size=2, num_workers=2, worker_init_fn=told)
    assert calls == []
    assert len(list(made)) == 2
    assert calls == [(0, 0, 2, [0, 1, 2]), (1, 1, 2, [0, 1, 2])]
    list(made)
    assert len(calls) == 4
    list(pickle.loads(pickle.dumps(made)))
    assert len(calls) == 6
    list(ours.DataLoader(g, torch.arange(3), sampler, batch_size=2, worker_init_fn=told))  # no workers, as in DGL
    assert len(calls) == 6

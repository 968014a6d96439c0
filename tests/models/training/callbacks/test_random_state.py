"""The state of torch's generators goes through a checkpoint."""

from __future__ import annotations

import torch

from models.training.callbacks import RandomState


def test_random_numbers_go_on_after_a_checkpoint() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        torch.rand(3)
        state = RandomState().state_dict()
        expected = torch.rand(4)

        torch.manual_seed(6)
        resumed = RandomState()
        resumed.load_state_dict(state)
        torch.rand(7)  # what building the trainer may draw
        resumed.on_train_start(None, None)  # type: ignore[arg-type]
        assert torch.equal(torch.rand(4), expected)
        resumed.on_train_start(None, None)  # type: ignore[arg-type]
        assert not torch.equal(torch.rand(4), expected)  # restored once, not at every start

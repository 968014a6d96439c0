"""Optimizers and schedules by name: torch's classes, their options, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from omegaconf import OmegaConf

from models.training.optimizers import Optimization


class Module(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)


def configured(**options: Any) -> Any:
    return Optimization(**{"lr": 0.125, "weight_decay": 0.25, **options}).configure(Module())


def test_adam_is_the_default() -> None:
    found = configured()
    assert type(found) is torch.optim.Adam
    assert (found.defaults["lr"], found.defaults["weight_decay"]) == (0.125, 0.25)
    assert not found.defaults["fused"]


def test_options_reach_the_classes() -> None:
    schedule = {"name": "ReduceLROnPlateau", "monitor": "val/loss", "factor": 0.25}
    found = configured(optimizer=OmegaConf.create({"name": "SGD", "momentum": 0.5}), schedule=schedule)
    assert isinstance(found["optimizer"], torch.optim.SGD)
    assert found["optimizer"].defaults["momentum"] == 0.5
    assert found["lr_scheduler"]["monitor"] == "val/loss"
    assert found["lr_scheduler"]["scheduler"].factor == 0.25


def test_a_schedule_changes_the_rate_after_each_epoch() -> None:
    found = configured(schedule={"name": "CosineAnnealingLR", "T_max": 2})
    assert found["lr_scheduler"]["interval"] == "epoch"
    rates = []
    for _ in range(3):
        rates.append(found["optimizer"].param_groups[0]["lr"])
        found["optimizer"].step()
        found["lr_scheduler"]["scheduler"].step()
    assert rates == pytest.approx([0.125, 0.0625, 0.0])
    assert isinstance(configured(schedule={"name": None}), torch.optim.Adam)


def test_checkpoints_keep_plain_values() -> None:
    made = Optimization(0.1, 0.0, OmegaConf.create({"name": "Adam", "betas": [0.5, 0.9]}), {"name": None})
    assert made.hparams == {"optimizer": {"name": "Adam", "betas": [0.5, 0.9]}, "schedule": {"name": None}}
    assert type(made.hparams["optimizer"]["betas"]) is list


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "lr is 0.0"),
        (
            {"optimizer": {"name": "Adan"}},
            "optimizer.name is 'Adan'; it must be a class of torch.optim, e.g. SGD; did you mean",
        ),
        ({"optimizer": {"name": "Optimizer"}}, "optimizer.name is 'Optimizer'"),
        (
            {"schedule": {"name": "CosineAnnealingLR", "T_max": 0}},
            "CosineAnnealingLR with {'T_max': 0}: integer modulo by zero; correct or leave out that option",
        ),
        (
            {"schedule": {"name": "CosineAnnealingLR", "T_max": -1}},  # trainer.max_epochs of a run without a limit
            "schedule.T_max is -1; give a number of epochs, or trainer.max_epochs",
        ),
        ({"optimizer": {"name": "Adam", "beta": 1}}, "optimizer Adam with .*unexpected keyword argument 'beta'"),
        ({"optimizer": {"name": "SGD", "momentum": -1.0}}, "optimizer SGD with .*: Invalid momentum"),
        ({"optimizer": {"name": "SGD", "lr": 1.0}}, "optimizer.lr is 1.0; give model.lr in its place"),
        ({"optimizer": {"name": "SparseAdam"}, "weight_decay": 0.0}, "SparseAdam, and the gradients here are dense"),
        ({"optimizer": {"name": None}}, "optimizer.name is None"),
        ({"optimizer": {"momentum": 0.5}}, "optimizer.name is None; it must be a class of torch.optim"),
        ({"optimizer": {"name": "LBFGS"}}, "weight_decay is 0.25, but LBFGS has none"),
        ({"schedule": {"name": "Cosine"}}, "schedule.name is 'Cosine'; it must be a class of torch.optim.lr_scheduler"),
        (
            {"schedule": {"name": "CosineAnnealingLR", "T_max": 5, "monitor": "val/loss"}},
            "schedule.monitor is 'val/loss', but schedule.name is CosineAnnealingLR, and only ReduceLROnPlateau",
        ),
        ({"schedule": {"name": "StepLR"}}, "schedule StepLR with {}: .*step_size"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configured(**options)

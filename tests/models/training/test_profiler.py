"""The profiler that does nothing: Lightning's loop gets as far with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.profilers import PassThroughProfiler
from torch import Tensor

from models.training.profiler import NoProfiler


class Rows:
    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Tensor]:
        return iter(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))


class Line(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))

    def training_step(self, batch: Tensor, _: int) -> Tensor:
        return (batch @ self.weight - 1).square().sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)


def fitted(**options: Any) -> tuple[Trainer, Tensor]:
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=3,
        log_every_n_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    model = Line()
    trainer.fit(model, Rows())
    return trainer, model.weight.detach()


def test_training_equals_that_with_lightnings_profiler() -> None:
    own, expected = fitted()
    assert type(own.profiler) is PassThroughProfiler
    lean, found = fitted(profiler=NoProfiler())
    assert isinstance(lean.profiler, NoProfiler)
    assert expected.abs().sum() > 0
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_the_profilers_contexts_may_nest() -> None:
    profiler = NoProfiler()
    with profiler.profile("outer"), profiler.profile("inner"), profiler.profile("inner"):
        pass

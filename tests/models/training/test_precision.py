"""A run sets torch's precision of float32 products to its model's, and gives the old one back at its end."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn

from models.training import precision
from models.training.precision import MatmulPrecision


class Net(MatmulPrecision):
    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__()
        self.use_precision("medium")
        self.layer, self.error, self.seen = nn.Linear(2, 1), error, set[str]()

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.seen.add(torch.get_float32_matmul_precision())
        if self.error is not None:
            raise self.error
        loss: Tensor = self.layer(batch).sum()
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


def trainer() -> Trainer:
    quiet: dict[str, Any] = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
    return Trainer(accelerator="cpu", max_epochs=1, enable_model_summary=False, **quiet)


@pytest.mark.parametrize("error", [None, ValueError("mine"), RuntimeError("CUDA out of memory")])
def test_it_is_given_back_after_a_run(monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> None:
    monkeypatch.setattr(precision, "_is_on_gpu", lambda trainer: True)
    before, net, runs = torch.get_float32_matmul_precision(), Net(error), trainer()
    assert before != "medium"
    for _ in range(2):
        if error is None:
            runs.fit(net, torch.ones(4, 3, 2))
        else:
            with pytest.raises(type(error)):
                runs.fit(net, torch.ones(4, 3, 2))
        assert torch.get_float32_matmul_precision() == before
    assert net.seen == {"medium"}
    assert sum(isinstance(one, precision._AfterAnError) for one in runs.callbacks) == 1


def test_a_run_without_a_gpu_changes_nothing() -> None:
    net = Net()
    trainer().fit(net, torch.ones(4, 3, 2))
    assert net.seen == {torch.get_float32_matmul_precision()}

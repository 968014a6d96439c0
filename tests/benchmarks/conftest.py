"""Benchmarks are scripts: they import what lies beside them."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture
def job() -> Callable[..., dict[str, Any]]:
    """`job(sampler, seed, accuracy)`: a result as a training run writes it; `changes` go into its config."""

    def make(sampler: str, seed: int, accuracy: float, **changes: Any) -> dict[str, Any]:
        config: dict[str, Any] = {
            "task_name": "convergence",
            "seed": seed,
            "device": "cpu",
            "dataset": {"name": "graph"},
            "sampler": {"_target_": f"loader.samplers.{sampler}", "fanouts": 10, "seed": seed},
            "model": {"num_layers": 2, "hidden_channels": 8},
            "trainer": {"max_epochs": 2},
            "datamodule": {"batch_size": 4, "eval_batch_size": 4, "drop_last": False, "seed": seed},
        }
        for path, value in changes.items():
            *groups, key = path.split("__")
            part = config
            for group in groups:
                part = part[group]
            part[key] = value
        return copy.deepcopy(
            {
                "metric": accuracy,
                "metrics": {"test/test_acc": accuracy},
                "epochs": [
                    {"epoch": e, "seconds": e + 1.0, "val/acc": accuracy - 0.1 + 0.1 * e, "train/loss": 2 - accuracy}
                    for e in range(2)
                ],
                "date": f"2026-01-0{seed + 1}T00:00:00+00:00",
                "hardware": {"cpu": "some"},
                "system": "some",
                "versions": {"torch": "9"},
                "config": config,
            }
        )

    return make

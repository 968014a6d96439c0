"""Runs of train.py, in this process and as commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch  # noqa: F401 - what logs there is set up once, with the stderr of that moment
import torch
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

import train as train_module

ROOT = Path(train_module.__file__).parent
CONF = ROOT / "conf"
FAST = ("trainer.max_epochs=2", "num_threads=1", "device=cpu")

Composer = Callable[..., DictConfig]


@contextmanager
def composer(tmp_path: Path) -> Iterator[Composer]:
    """`composer(tmp_path)(*overrides)`: the configuration of a run whose folder is `tmp_path`."""
    with initialize_config_dir(str(CONF), version_base="1.3"):

        def make(*overrides: str) -> DictConfig:
            cfg = compose(
                "train",
                overrides=[f"hydra.runtime.output_dir={tmp_path}", f"data_dir={tmp_path / 'data'}", *overrides],
                return_hydra_config=True,
            )
            HydraConfig().set_config(cfg)
            with open_dict(cfg):
                del cfg["hydra"]
            return cfg

        try:
            yield make
        finally:
            HydraConfig.instance().cfg = None  # or tests in other files find the choices of this one


def in_process(composed: Composer, *overrides: str) -> float:
    threads = torch.get_num_threads()
    try:
        return train_module.train(composed(*FAST, *overrides))
    finally:
        torch.set_num_threads(threads)


def run(folder: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """`python train.py arguments`, started in `folder`."""
    return subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "HYDRA_FULL_ERROR"},
        **options,
    )

"""What jobs of `train.py` for links and for tasks on tables have in common: fit, test the best checkpoint, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hydra.utils import instantiate
from lightning.pytorch import seed_everything
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from models.training.console import announce, folders, tested_weights
from models.training.finished_jobs import JobResult
from models.training.trainer import best_checkpoint, fit, make_trainer, optimized_value
from models.training.trainer_callbacks import callbacks_of


def options_named(given: Sequence[str]) -> set[str]:
    """The names of the options that a command line overrides."""
    return {one.partition("=")[0].lstrip("+~") for one in given}


def draw_score(cfg: DictConfig, given: Sequence[str], score: str) -> None:
    """Makes the picture of a run show a score, where there is one and the command line names no other score.

    Not in conf/: with callbacks=quiet there is no picture, and its score alone would be no callback.
    """
    curves = OmegaConf.select(cfg, "callbacks.curves")
    if curves is not None and "callbacks.curves.score" not in options_named(given):
        curves.score = score


def train_and_test(
    cfg: DictConfig, why: str, job: JobResult, datamodule: Any, table: Callable[[Mapping[str, Any], Any, str], Table]
) -> float:
    """Fits, tests the best checkpoint, prints what it reaches.

    Args:
        cfg: of the job, its device chosen, whose options were checked.
        why: of that choice.
        job: where the result goes.
        datamodule: of the job; it is closed.
        table: what is printed, of the metrics, the data module, and in words which weights were tested.

    Returns:
        The best value of `cfg.optimized_metric` if checkpoints are chosen by it, else its last one; NaN if training
        ended before there was one.
    """
    trainer = make_trainer(cfg)
    announce(cfg, why, first=trainer.is_global_zero)
    datamodule.prepare_data()
    datamodule.trainer = trainer
    datamodule.setup("fit")
    seed_everything(cfg.seed, verbose=False)
    model = instantiate(cfg.model, **datamodule.sizes)
    metrics = fit(cfg, trainer, model, datamodule)
    best = best_checkpoint(trainer)
    trainer.test(model, datamodule=datamodule, ckpt_path=best, verbose=False)
    metrics.update(trainer.callback_metrics)
    if trainer.is_global_zero:
        Console().print(table(metrics, datamodule, tested_weights(best)))
        print(folders(cfg))
    datamodule.close()
    callbacks = callbacks_of(trainer)
    return job.write(optimized_value(cfg.optimized_metric, metrics, trainer), metrics, callbacks)

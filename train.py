"""Trains GraphSAGE as `conf/` says: `python train.py dataset=ogbn-arxiv sampler=fused model.num_layers=3`."""

from __future__ import annotations

import importlib.util
import logging
import math
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    if not any(core.suffix in (".so", ".pyd") for core in (Path(__file__).parent / "loader").glob("_core.*")):
        # No core was built in this checkout: an installed loader goes before its sources, which lie beside this file.
        sys.path.append(sys.path.pop(0))
    try:
        from loader.machine.optional import import_optional

        for package in ("hydra", "lightning"):
            if importlib.util.find_spec(package) is None:
                import_optional(package, "train.py", "train")
    except ImportError as error:
        sys.exit(f"error: {error}")

import hydra
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from models.training.checks import check_checkpoint, check_length, check_metrics
from models.training.command_line import composed, composing
from models.training.errors import INTERRUPTED, Interrupted, one_line_errors
from models.training.metrics import METRICS

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

CONF = Path(__file__).resolve().parent / "conf"


def train(cfg: DictConfig) -> float:
    """Runs one job: fit, test the best checkpoint, return the metric that a sweep optimises.

    Args:
        cfg: composed from `conf/train.yaml`.

    Returns:
        The best value of `cfg.optimized_metric` if checkpoints are chosen by it, else its last one; NaN if training
        ended before there was one.

    Raises:
        ValueError, FileNotFoundError, ImportError: something the user can mend, before work starts.
        Interrupted: Ctrl-C, while it trained; the message says how to go on.
    """
    if missing := OmegaConf.missing_keys(cfg):
        key = min(missing, key=len)
        raise ValueError(f"{key} is not set; add {key}=... to the command line")
    if cfg.optimized_metric not in METRICS:
        raise ValueError(f"optimized_metric is '{cfg.optimized_metric}'; it must be one of {', '.join(METRICS)}")
    check_length(cfg.trainer)
    if cfg.ckpt_path is not None:
        if not Path(cfg.ckpt_path).is_file():
            raise FileNotFoundError(f"ckpt_path is {cfg.ckpt_path}; there is no such file")
        cfg.checkpoint_dir = str(Path(cfg.ckpt_path).parent)  # where the best one so far lies

    # Lightning takes seconds to import: what needs none of it is refused before.
    with kept_levels("lightning.pytorch"):
        from lightning.pytorch import seed_everything

    from loader.machine.cpus import as_threads
    from models.training.console import save_config
    from models.training.device import check_features, device_of_run
    from models.training.job_result import JobResult
    from models.training.module import WholeGraph

    cfg.device, why = device_of_run(cfg.device)
    if cfg.num_threads is not None:
        torch.set_num_threads(as_threads(cfg.num_threads))

    job = JobResult(cfg)
    if job.metric is not None:
        return job.metric

    # Whatever can refuse its settings does so before the data are read; the model through a trial of one feature.
    check_features(cfg.features, cfg.device)
    instantiate(cfg.model, num_features=1, num_classes=2)
    datamodule = instantiate(cfg.datamodule)
    trainer = make_trainer(cfg)
    written = save_config(cfg, Path(cfg.run_dir))
    if trainer.is_global_zero:
        print(f"device: {cfg.device} ({why}); configuration: {written}")

    datamodule.prepare_data()
    datamodule.trainer = trainer  # says on which device this process trains
    datamodule.setup("fit")
    data = datamodule.data
    check_metrics(cfg, data.splits)
    if data.splits["val"].numel() == 0:
        trainer.limit_val_batches = 0  # or Lightning wonders
    seed_everything(cfg.seed, verbose=False)
    model = instantiate(
        cfg.model,
        num_features=datamodule.num_features,
        num_classes=datamodule.num_classes,
        multilabel=datamodule.multilabel,
    )
    if cfg.ckpt_path is not None:
        check_checkpoint(Path(cfg.ckpt_path), model, model.hparams)
    try:
        trainer.fit(model, datamodule=datamodule, ckpt_path=cfg.ckpt_path)
    except SystemExit:  # so Lightning ends on Ctrl-C
        if not trainer.interrupted:
            raise
    if trainer.interrupted:
        raise Interrupted(how_to_go_on(cfg, trainer)) if trainer.is_global_zero else SystemExit(INTERRUPTED)
    metrics = dict(trainer.callback_metrics)

    whole = WholeGraph(data.graph, data.features, data.labels, data.splits)
    best = getattr(trainer.checkpoint_callback, "best_model_path", "") or None
    trainer.test(model, dataloaders=whole, ckpt_path=best, verbose=False)
    metrics.update(trainer.callback_metrics)
    return job.write(_optimized(cfg.optimized_metric, metrics, trainer), metrics, trainer.callbacks)  # type: ignore[attr-defined]


def make_trainer(cfg: DictConfig) -> Trainer:
    """The trainer of a run, with its callbacks and loggers, and with none of Lightning's own in their place."""
    from lightning.pytorch.callbacks import Checkpoint, ProgressBar

    def each(group: str) -> list[Any]:
        # An entry that an experiment sets to null is left out.
        return [instantiate(entry) for entry in (cfg.get(group) or {}).values() if entry is not None]

    callbacks, loggers = each("callbacks"), each("logger")
    trainer: Trainer = instantiate(
        cfg.trainer,
        callbacks=callbacks,
        logger=loggers or False,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
        enable_progress_bar=any(isinstance(callback, ProgressBar) for callback in callbacks),
    )
    return trainer


def how_to_go_on(cfg: DictConfig, trainer: Trainer) -> str:
    """What is said of an interrupted training."""
    where = f"interrupted in epoch {trainer.current_epoch}, after step {trainer.global_step}"
    checkpoint = Path(cfg.checkpoint_dir) / "step.ckpt"
    if not checkpoint.is_file():
        return f"{where}; no checkpoint was written (callbacks.step writes them), so a new run begins from the start"
    path = str(checkpoint)
    if re.search(r"[^\w./-]", path):
        path = f'"{path}"'  # for Hydra, within the quotes of the shell
    argument = f"ckpt_path={path}"
    if '"' in argument:
        argument = f"'{argument}'"
    return f"{where}; to go on, give the same options again and {argument}"


@contextmanager
def kept_levels(name: str) -> Iterator[None]:
    """Keeps the level of a logger, as Hydra's configuration has it, where the package sets one at its import."""
    logger = logging.getLogger(name)
    level = logger.level
    try:
        yield
    finally:
        logger.setLevel(level)


def _optimized(name: str, metrics: dict[str, Any], trainer: Trainer) -> float:
    checkpoint = trainer.checkpoint_callback
    best = getattr(checkpoint, "best_model_score", None)
    if best is not None and getattr(checkpoint, "monitor", None) == name:
        return float(best)
    if name not in metrics:
        print(f"{name} is not known: training ended before it was computed")
        return math.nan
    return float(metrics[name])


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> float:
    composed()
    # Lightning's own, with torch 2.13; nothing here can avoid it.
    warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning)
    if cfg.ckpt_path is not None:  # a run that goes on writes where it wrote before
        warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
    with one_line_errors(cfg.debug):
        return train(cfg)


if __name__ == "__main__":
    with composing(CONF):
        main()

"""Trains a model as `conf/` says: `python train.py dataset=ogbn-arxiv sampler=fused model.num_layers=3`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra.utils import get_class, instantiate
from lightning.pytorch import Trainer, seed_everything
from omegaconf import DictConfig, OmegaConf

from loader.whole_graph import WholeGraph
from models.training.console import show_config
from models.training.device import check_features, device_of_run
from models.training.errors import one_line_errors
from models.training.job_result import JobResult
from models.training.link_job import train_links
from models.training.module import METRICS


def train(cfg: DictConfig) -> float:
    """Runs one job: fit, test the best checkpoint, return the metric that a sweep optimises.

    Args:
        cfg: composed from `conf/train.yaml`.

    Returns:
        The best value of `cfg.optimized_metric` where checkpoints are chosen by it, else its last one.

    Raises:
        ValueError, FileNotFoundError, ImportError: something the user can mend, before work starts.
    """
    if missing := OmegaConf.missing_keys(cfg):
        key = min(missing, key=len)
        raise ValueError(f"{key} is not set; add {key}=... to the command line")
    cfg.device, why = device_of_run(cfg.device)
    print(f"device: {cfg.device} ({why})")
    if cfg.ckpt_path is not None:
        if not Path(cfg.ckpt_path).is_file():
            raise FileNotFoundError(f"ckpt_path is {cfg.ckpt_path}; there is no such file")
        cfg.checkpoint_dir = str(Path(cfg.ckpt_path).parent)  # where the best one so far lies
    if cfg.num_threads is not None:
        if cfg.num_threads < 1:
            raise ValueError(f"num_threads is {cfg.num_threads}; it must be at least 1, or null for all cores")
        torch.set_num_threads(cfg.num_threads)
    if cfg.task == "link":
        return train_links(cfg)
    if cfg.optimized_metric not in METRICS:
        raise ValueError(f"optimized_metric is '{cfg.optimized_metric}'; it must be one of {', '.join(METRICS)}")

    job = JobResult(cfg)
    if job.metric is not None:
        return job.metric

    # Whatever can refuse its settings does so before the data are read; the model through a trial of its smallest size.
    check_features(cfg.features, cfg.device)
    datamodule_class: Any = get_class(cfg.datamodule["_target_"])
    instantiate(cfg.model, **datamodule_class.trial_sizes)
    datamodule = instantiate(cfg.datamodule)
    trainer: Trainer = instantiate(
        cfg.trainer, callbacks=_instantiate_each(cfg.callbacks), logger=_instantiate_each(cfg.logger)
    )
    show_config(cfg, Path(cfg.run_dir))

    datamodule.prepare_data()
    datamodule.trainer = trainer  # says on which device this process trains
    datamodule.setup("fit")
    seed_everything(cfg.seed, verbose=False)
    model = instantiate(cfg.model, **datamodule.sizes)
    trainer.fit(model, datamodule=datamodule, ckpt_path=cfg.ckpt_path)
    metrics = dict(trainer.callback_metrics)

    data = datamodule.data
    whole = WholeGraph(data.graph, data.features, data.labels, data.splits)
    best = getattr(trainer.checkpoint_callback, "best_model_path", "") or None
    trainer.test(model, dataloaders=whole, ckpt_path=best, verbose=False)
    metrics.update(trainer.callback_metrics)
    return job.write(_optimized(cfg.optimized_metric, metrics, trainer), metrics, trainer.callbacks)  # type: ignore[attr-defined]


def _instantiate_each(group: DictConfig) -> list[Any]:
    """The objects of a group; an entry that an experiment sets to null is left out."""
    return [instantiate(entry) for entry in group.values() if entry is not None]


def _optimized(name: str, metrics: dict[str, Any], trainer: Trainer) -> float:
    checkpoint = trainer.checkpoint_callback
    best = getattr(checkpoint, "best_model_score", None)
    if best is not None and getattr(checkpoint, "monitor", None) == name:
        return float(best)
    return float(metrics[name])


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> float:
    # Lightning's own, with torch 2.13; nothing here can avoid it.
    warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning)
    with one_line_errors(cfg.debug):
        return train(cfg)


if __name__ == "__main__":
    main()

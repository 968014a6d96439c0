"""A job of `train.py` on nodes, with or without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import seed_everything
from omegaconf import DictConfig

from loader.loaders.whole_graph import WholeGraph
from models.training.console import announce, folders, save_config
from models.training.finished_jobs import JobResult
from models.training.node_types import check_types, takes_types
from models.training.own_classes import datamodule_of, model_of
from models.training.trainer import best_checkpoint, fit, make_trainer, optimized_value, warn_of_sampling
from models.training.trainer_callbacks import callbacks_of
from models.training.watched_metrics import check_metrics, watch_loss


def train_nodes(cfg: DictConfig, why: str, job: JobResult) -> float:
    """Fits, tests the best checkpoint, prints what it reaches.

    Args:
        cfg: composed from `conf/train.yaml`, its device chosen.
        why: of that choice.
        job: where the result goes.

    Returns:
        The best value of `cfg.optimized_metric` if checkpoints are chosen by it, else its last one; NaN if training
        ended before there was one.

    Raises:
        ValueError: something the user can mend, before work starts.
    """
    datamodule = datamodule_of(cfg, hetero=takes_types(cfg))
    trainer = make_trainer(cfg)
    announce(cfg, why, first=trainer.is_global_zero)
    datamodule.prepare_data()
    data = datamodule.data
    check_types(cfg, data)
    check_read(datamodule)
    if watch_loss(cfg, datamodule):
        trainer = make_trainer(cfg)
        if trainer.is_global_zero:
            lacks = "split" if data.num_classes else "labels"
            print(f"dataset {data.name} has no {lacks}: train/loss is watched in place of val/acc")
            save_config(cfg, Path(cfg.run_dir))
    datamodule.trainer = trainer  # says on which device this process trains
    datamodule.setup("fit")
    data = datamodule.data
    check_metrics(cfg, data.splits)
    if data.splits["val"].numel() == 0:
        trainer.limit_val_batches = 0  # or Lightning wonders
    seed_everything(cfg.seed, verbose=False)
    model = model_of(cfg, datamodule)
    metrics = fit(cfg, trainer, model, datamodule)

    best = best_checkpoint(trainer)
    if cfg.exact_test:
        whole = WholeGraph(data.graph, data.features, data.labels, data.splits)
        trainer.test(model, dataloaders=whole, ckpt_path=best, verbose=False)
    elif data.splits["test"].numel():
        trainer.test(model, datamodule=datamodule, ckpt_path=best, verbose=False)
    metrics.update(trainer.callback_metrics)
    warn_of_sampling(metrics, trainer)
    if trainer.is_global_zero:
        print(folders(cfg))
    return job.write(optimized_value(cfg.optimized_metric, metrics, trainer), metrics, callbacks_of(trainer))


def check_read(datamodule: Any) -> None:
    """Raises ValueError if the model reads features, and the dataset has none."""
    if datamodule.sizes.get("num_features") == 0:
        made = "let dataset.transform={_target_: loader.datasets.DistanceFeatures} make some"
        way = f"add some, {made}, or train model=node2vec, which reads none"
        raise ValueError(f"dataset {datamodule.data.name} has no features, which the model reads; {way}")

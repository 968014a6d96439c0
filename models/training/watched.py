"""The metrics that a run watches: its callbacks, its schedule and a sweep. They have to be among those that it logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from loader.datasets.errors import nearest
from models.training.metrics import ERRORS, MERITS, METRICS
from models.training.options import entries
from models.training.targets import object_of


def watched_metrics(cfg: DictConfig) -> dict[str, Any]:
    """The metrics by the options that name them."""
    watched = {"optimized_metric": cfg.optimized_metric, "schedule.monitor": (cfg.get("schedule") or {}).get("monitor")}
    watched |= {f"callbacks.{name}.monitor": entry.get("monitor") for name, entry in entries(cfg, "callbacks")}
    return {key: metric for key, metric in watched.items() if key == "optimized_metric" or metric is not None}


def check_monitors(cfg: DictConfig) -> None:
    """Raises ValueError unless `optimized_metric` and what callbacks watch are among the metrics that the model logs.

    What a model of the user's own logs is not known, unless it has `METRICS`: there callbacks may watch anything.
    """
    from models.training.more_metrics import as_metrics, logged_metrics  # Lightning's torchmetrics takes a second

    known: tuple[str, ...] | None = getattr(object_of("model", cfg.model), "METRICS", None)
    metrics = (METRICS if known is None else known) + logged_metrics(as_metrics(cfg.model.get("metrics")))
    for key, metric in watched_metrics(cfg).items():
        if key != "optimized_metric" and known is None:
            continue
        if key != "optimized_metric" and metric in metrics and metric.startswith("test/"):
            raise ValueError(f"{key} is {metric}, which is computed after the training; watch one of train/ or val/")
        of_table = "task" in cfg.dataset and str(metric).startswith("val/")
        # Of nodes `check_metrics` says it.
        if (cfg.task == "link" or of_table) and (why := not_run(cfg, str(metric))) is not None:
            raise ValueError(f"{key} is {metric}, but {why}; change that, or give {key}=train/loss")
        if metric not in metrics:
            raise ValueError(
                f"{key} is '{metric}'; it must be one of {', '.join(metrics)}{nearest(str(metric), metrics)}"
            )
        _check_mode(cfg, key, metric)


def _check_mode(cfg: DictConfig, key: str, metric: str) -> None:
    """Raises ValueError if who watches a metric, by the option `key`, would take the worst value for the best."""
    name, place = metric.rpartition("/")[2], key.rpartition(".")[0]
    mode = OmegaConf.select(cfg, f"{place}.mode") if place else None
    for names, better, way in ((ERRORS, "lower", "min"), (MERITS, "higher", "max")):
        if name in names and mode in {"min", "max"} - {way}:  # what is neither, Lightning refuses
            raise ValueError(
                f"{key} is {metric}, which is better the {better} it is, and {place}.mode is {mode}; give "
                f"{place}.mode={way}"
            )


def check_metrics(cfg: DictConfig, splits: Mapping[str, Tensor]) -> None:
    """Raises ValueError if the run watches or reports a metric that it does not compute.

    Args:
        cfg: of the run.
        splits: "train", "val", "test" -> nodes.
    """
    computed = computed_metrics(cfg, splits)
    missing = {key: m for key, m in watched_metrics(cfg).items() if m in METRICS and m not in computed}
    if not missing:
        return
    key, metric = next(iter(missing.items()))
    split = "val" if metric.startswith("val/") else metric.removeprefix("test/").removesuffix("_acc")
    why = f"the {split} split of the dataset is empty" if not splits[split].numel() else not_run(cfg, metric)
    instead = "train/acc" if metric.startswith("val/") else "val/acc"
    ways = [f"{key}={instead}" for key in missing if "early_stopping" not in key]
    ways += ["callbacks.early_stopping=null" for key in missing if "early_stopping" in key]
    raise ValueError(f"{key} is {metric}, but {why}; change that, or give {' '.join(ways)}")


def computed_metrics(cfg: DictConfig, splits: Mapping[str, Tensor]) -> set[str]:
    """The metrics that a run of that configuration logs."""
    found = {"train/loss", "train/acc"}
    if splits["val"].numel() and not_run(cfg, "val/acc") is None:
        found |= {"val/loss", "val/acc"}
    if not_run(cfg, "test/test_acc") is None:
        found |= {f"test/{split}_acc" for split, nodes in splits.items() if nodes.numel()}
    return found


def not_run(cfg: DictConfig, metric: str) -> str | None:
    """Why no mini-batch of a metric's split is evaluated; None if some are."""
    trainer, part = cfg.trainer, metric.partition("/")[0]
    if part == "train":
        return None
    limit = trainer.get(f"limit_{part}_batches")
    if limit is not None and not isinstance(limit, bool) and limit == 0:
        return f"trainer.limit_{part}_batches is 0"
    if part == "test" and cfg.get("exact_test") in (False,):
        return "exact_test is false, which computes test/acc only"
    every, most = trainer.get("check_val_every_n_epoch"), trainer.get("max_epochs")
    if part == "val" and every is not None and most is not None and 0 < most < every:
        return f"trainer.check_val_every_n_epoch is {every} and trainer.max_epochs {most}"
    return None


def watch_loss(cfg: DictConfig, datamodule: Any) -> bool:
    """Sets the run to watch `train/loss` in place of `val/acc` if nothing can be validated: there are no labels, or no
    split.

    Args:
        cfg: of the run; its metrics are changed.
        datamodule: whose data are loaded.

    Returns:
        Whether it was so.
    """
    data = datamodule.data
    if data.num_classes > 0 and data.splits["train"].numel() > 0:
        return False
    if cfg.optimized_metric == "val/acc":
        cfg.optimized_metric = "train/loss"
    for _, callback in entries(cfg, "callbacks"):
        if callback.get("monitor") == "val/acc":
            callback.monitor, callback.mode = "train/loss", "min"
    return True

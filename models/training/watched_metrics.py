"""The metrics that a run watches: its callbacks, its schedule and a sweep. They have to be among those that it logs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torch.optim import lr_scheduler

from loader.machine.spelling import nearest
from models.training.metric_names import METRICS, is_error
from models.training.options import entries
from models.training.target_classes import object_of

_DRAWN = "acc"  # beside the loss, unless another score is given


def watched_metrics(cfg: DictConfig) -> dict[str, Any]:
    """The metrics by the options that name them."""
    watched = {"optimized_metric": cfg.optimized_metric, "schedule.monitor": (cfg.get("schedule") or {}).get("monitor")}
    watched |= {f"callbacks.{name}.monitor": entry.get("monitor") for name, entry in entries(cfg, "callbacks")}
    return {key: metric for key, metric in watched.items() if key == "optimized_metric" or metric is not None}


def check_monitors(cfg: DictConfig) -> None:
    """Raises ValueError unless `optimized_metric` and what callbacks watch are among the metrics that the model logs,
    and a `mode` takes the better one of two values for the better one.

    What a model of the user's own logs is not known, unless it has `METRICS`: there callbacks may watch anything.
    """
    from models.training.more_metrics import as_metrics, logged_metrics  # Lightning's torchmetrics takes a second

    known: tuple[str, ...] | None = getattr(object_of("model", cfg.model), "METRICS", None)
    metrics = (METRICS if known is None else known) + logged_metrics(as_metrics(cfg.model.get("metrics")))
    for key, metric in watched_metrics(cfg).items():
        if key != "optimized_metric" and known is None:
            if is_error(str(metric)):
                _check_mode(cfg, key, str(metric))
            continue
        if key != "optimized_metric" and metric in metrics and metric.startswith("test/"):
            raise ValueError(f"{key} is {metric}, which is computed after the training; watch one of train/ or val/")
        of_table = "task" in cfg.dataset and str(metric).startswith("val/")
        # Of nodes `check_metrics` says it.
        if (cfg.task == "link" or of_table) and (why := not_run(cfg, str(metric))) is not None:
            mode = _mode_of(key)
            also = "" if mode is None or OmegaConf.select(cfg, mode) is None else f" {mode}=min"
            raise ValueError(f"{key} is {metric}, but {why}; change that, or give {key}=train/loss{also}")
        if metric not in metrics:
            near = nearest(str(metric), metrics)
            raise ValueError(f"{key} is '{metric}'; it must be one of {', '.join(metrics)}{near}")
        _check_mode(cfg, key, str(metric))
    score = OmegaConf.select(cfg, "callbacks.curves.score", default=_DRAWN)
    drawn = {name.partition("/")[2]: None for name in metrics if not name.startswith("test/")}
    if known is not None and score not in (_DRAWN, *drawn):
        raise ValueError(f"callbacks.curves.score is '{score}'; it must be one of {', '.join(drawn)}")


def _mode_of(key: str) -> str | None:
    """The option that says whether a watched metric is to be large or small; None of `optimized_metric`."""
    return f"{key.removesuffix('monitor')}mode" if key.endswith(".monitor") else None


def _check_mode(cfg: DictConfig, key: str, metric: str) -> None:
    """Raises ValueError if a callback or the schedule would take the worst value of a metric for the best one."""
    mode = _mode_of(key)
    trains = cfg.get("mode", "train") == "train"  # a run that has ended is used as it is
    if not trains or mode is None:
        return
    given = OmegaConf.select(cfg, mode)
    counts = _default_mode(cfg, key) if given is None else given
    wanted = "min" if is_error(metric) else "max"
    if counts in ("min", "max") and counts != wanted:
        which = "largest" if counts == "max" else "smallest"
        said = f"is {counts}" if given is not None else f"is left out, which means {counts}"
        best = f"so the {which} {metric} would count as the best"
        raise ValueError(f"{key} is {metric} and {mode} {said}, {best}; give {mode}={wanted}")


def _default_mode(cfg: DictConfig, key: str) -> str | None:
    """The mode that the class of a callback or of the schedule takes if none is given."""
    part = OmegaConf.select(cfg, key.removesuffix(".monitor"))
    if key == "schedule.monitor":
        kind = getattr(lr_scheduler, str(part.get("name")), None)
    else:
        kind = object_of(key.removesuffix(".monitor"), part) if "_target_" in part else None
    mode = None if kind is None else inspect.signature(kind).parameters.get("mode")
    return None if mode is None else mode.default


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

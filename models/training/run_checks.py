"""What a run refuses before it starts: nothing to train, metrics that nobody computes, a foreign checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from loader.machine.whole_files import check_archive
from models.training.metrics import METRICS

_OF_OPTIMIZER = ("lr", "weight_decay", "optimizer", "schedule")  # a checkpoint brings them back
_NEEDED = ("state_dict", "optimizer_states", "loops", "hyper_parameters")  # of a checkpoint that training goes on from


def check_length(trainer: DictConfig) -> None:
    """Raises ValueError for options of the trainer with which no step would be trained."""
    for name in ("max_epochs", "max_steps", "limit_train_batches"):
        if trainer.get(name) == 0 and not isinstance(trainer[name], bool):
            unlimited = "null for all" if name.startswith("limit") else "-1 for no limit"
            raise ValueError(f"trainer.{name} is 0, so nothing would be trained; give at least 1, or {unlimited}")


def check_read(datamodule: Any) -> None:
    """Raises ValueError if the model reads features, and the dataset has none."""
    if datamodule.sizes.get("num_features") == 0:
        raise ValueError(
            f"dataset {datamodule.data.name} has no features, which the model reads; add some, let "
            "dataset.transform={_target_: loader.datasets.DistanceFeatures} make some, or train model=node2vec, which "
            "reads none"
        )


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
    for callback in (cfg.get("callbacks") or {}).values():
        if callback is not None and callback.get("monitor") == "val/acc":
            callback.monitor, callback.mode = "train/loss", "min"
    return True


def check_metrics(cfg: DictConfig, splits: Mapping[str, Tensor]) -> None:
    """Raises ValueError if the run watches or reports a metric that it does not compute.

    Args:
        cfg: of the run.
        splits: "train", "val", "test" -> nodes.
    """
    computed = computed_metrics(cfg, splits)
    watched = {"optimized_metric": cfg.optimized_metric}
    if (monitor := (cfg.get("schedule") or {}).get("monitor")) is not None:
        watched["schedule.monitor"] = monitor
    for name, callback in (cfg.get("callbacks") or {}).items():
        if callback is not None and callback.get("monitor") is not None:
            watched[f"callbacks.{name}.monitor"] = callback.monitor
    missing = {key: metric for key, metric in watched.items() if metric in METRICS and metric not in computed}
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


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The parts of a checkpoint; its arrays stay in the file until they are read.

    Raises:
        ValueError: training cannot go on from it, whatever the model is.
    """
    try:
        check_archive(path)
        saved = torch.load(str(path), map_location="cpu", weights_only=True, mmap=True)  # torch 2.1 maps no Path
    except Exception as error:  # an unpickler raises anything
        first = str(error).split(". ")[0].split("\n")[0][:120] or type(error).__name__
        raise ValueError(
            f"ckpt_path is {path}, which is no checkpoint of train.py or is damaged ({first}); give one "
            "that it wrote, e.g. outputs/train/<run>/checkpoints/step.ckpt"
        ) from error
    lacks = [name for name in _NEEDED if name not in saved] if isinstance(saved, dict) else list(_NEEDED)
    if not lacks and not all(isinstance(saved[name], Mapping) for name in ("state_dict", "hyper_parameters")):
        lacks = ["dict of the model's weights and options"]
    if lacks:
        raise ValueError(
            f"ckpt_path is {path}, which holds no {lacks[0]}, so training cannot go on from it; give a checkpoint that "
            "train.py wrote, e.g. outputs/train/<run>/checkpoints/step.ckpt"
        )
    found: dict[str, Any] = saved
    return found


def check_checkpoint(path: Path, model: nn.Module, hparams: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a checkpoint from which training of `model` can go on.

    Args:
        path: of the checkpoint.
        model: as the run would train it.
        hparams: the options that it was made with.

    Raises:
        ValueError: it cannot go on from the file.
    """
    saved = read_checkpoint(path)
    check_model(path, saved, model, hparams)
    return saved


def check_model(path: Path, saved: Mapping[str, Any], model: nn.Module, hparams: Mapping[str, Any]) -> None:
    """Raises ValueError unless a checkpoint is of this model; arguments as of `check_checkpoint`.

    Args:
        saved: the parts of the checkpoint.
    """
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    theirs = {name: list(value.shape) for name, value in saved["state_dict"].items() if isinstance(value, Tensor)}
    before = saved["hyper_parameters"]
    changed = [name for name in hparams if name in before and before[name] != hparams[name]]
    if shapes == theirs:
        changed_here = [name for name in _OF_OPTIMIZER if name in changed]
        if changed_here:
            raise ValueError(
                f"ckpt_path is {path}, whose optimizer goes on with the options that it had: "
                f"{_named(changed_here, before, hparams)}; give those"
            )
        return
    raise ValueError(
        f"ckpt_path is {path}, of another model: {_difference(changed, before, hparams, shapes, theirs)}; give the "
        "options (and the dataset) of the run that wrote it"
    )


def _difference(
    changed: Sequence[str],
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    shapes: Mapping[str, list[int]],
    theirs: Mapping[str, list[int]],
) -> str:
    if changed:
        return _named(changed, before, now)
    name = next(name for name in [*shapes, *theirs] if shapes.get(name) != theirs.get(name))
    return f"{name} has shape {theirs.get(name, 'none')} there and {shapes.get(name, 'none')} here"


def _named(names: Iterable[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} was {before[name]} and is {now[name]}" for name in names)


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

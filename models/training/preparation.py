"""A run before its data are read: its options are checked in one order, and its device is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf

from models.training.checkpoints import check_left, read_checkpoint
from models.training.device import check_features, device_of_run
from models.training.option_rules import check_rules, of_parts, of_values
from models.training.options import check_values
from models.training.ranks import check_hosts, check_launch
from models.training.target_classes import check_parts, class_name


class Prepared(NamedTuple):
    """What a run needs besides its options.

    Attributes:
        why: of the choice of its device, in words.
        saved: the parts of the checkpoint `cfg.ckpt_path`; empty without one.
    """

    why: str
    saved: Mapping[str, Any]


def prepare(cfg: DictConfig) -> Prepared:
    """Checks all options that need no class of the run, and chooses the device.

    Args:
        cfg: of the run; `device` becomes "cpu" or "cuda", and a run that goes on keeps its `checkpoint_dir`.

    Raises:
        ValueError, TypeError, FileNotFoundError: an option has a value that is none of its own, or does not go with
            another one.
    """
    check_parts(cfg)
    check_rules(cfg, of_parts)  # else the next line meets values that the chosen parts have not
    if missing := OmegaConf.missing_keys(cfg):
        key = min(missing, key=len)
        raise ValueError(f"{key} is not set; add {key}=... to the command line")
    if isinstance(cfg.ckpt_path, str) and cfg.mode == "train":
        cfg.checkpoint_dir = str(Path(cfg.ckpt_path).parent)  # where the best one so far lies
    check_values(cfg)
    check_launch(cfg.trainer)
    cfg.device, why = device_of_run(cfg.device)
    _set_threads(cfg.num_threads)
    _restore_algorithms(cfg.trainer)
    check_rules(cfg, of_values)
    check_features(cfg.features, cfg.device)
    if class_name(cfg.features) == "PartitionedFeatures":
        check_hosts(cfg.trainer)
    if cfg.ckpt_path is None:
        return Prepared(why, {})
    saved = read_checkpoint(Path(cfg.ckpt_path), goes_on=cfg.mode == "train")
    if cfg.mode == "train":
        check_left(Path(cfg.ckpt_path), saved, cfg.trainer)
    return Prepared(why, saved)


def check_classes(cfg: DictConfig, given: Sequence[str]) -> None:
    """Checks the classes of a run, and what they decide; it imports Lightning.

    Args:
        cfg: of a run whose options were checked. Options that an own class does not take are taken out, and what a task
            on tables watches is set.
        given: what the command line overrides.

    Raises:
        ValueError: a class cannot be imported, is of the wrong kind, or does not go with another one.
    """
    from models.training.link_job import refuse_split_of_nodes
    from models.training.node_types import check_types, takes_tables
    from models.training.own_classes import keep_options_of_own_classes
    from models.training.relational_job import watch_task
    from models.training.target_classes import check_targets
    from models.training.train_and_test import draw_score
    from models.training.watched_metrics import check_monitors

    keep_options_of_own_classes(cfg, given)
    check_targets(cfg)
    if takes_tables(cfg):
        watch_task(cfg, given)
    elif cfg.task == "link":
        draw_score(cfg, given, "auc")
        if cfg.mode == "train":
            refuse_split_of_nodes(cfg, given)
    check_types(cfg)
    check_monitors(cfg)


def run_job(cfg: DictConfig, prepared: Prepared) -> float:
    """Trains, or uses what a past run has trained; returns the metric that a sweep optimises.

    Args:
        cfg: of a run whose options and classes were checked.
        prepared: of that run.
    """
    from models.training.finished_jobs import JobResult
    from models.training.link_job import train_links
    from models.training.node_job import train_nodes
    from models.training.node_types import takes_tables
    from models.training.predict_job import use_past_run
    from models.training.relational_job import train_task

    if cfg.mode != "train":
        return use_past_run(cfg, prepared.why, prepared.saved)
    job = JobResult(cfg)
    if job.metric is not None:
        return job.metric
    if takes_tables(cfg):
        return train_task(cfg, prepared.why, job)
    if cfg.task == "link":
        return train_links(cfg, prepared.why, job)
    return train_nodes(cfg, prepared.why, job)


_threads_before: list[int] = []  # those of torch before a job of this process, say of a sweep, set others


def _set_threads(num_threads: int | None) -> None:
    """Sets torch's threads; None: as many as there were before any job set them."""
    if num_threads is not None:
        if not _threads_before:
            _threads_before.append(torch.get_num_threads())
        torch.set_num_threads(num_threads)
    elif _threads_before:
        torch.set_num_threads(_threads_before.pop())


_algorithms_before: list[tuple[bool, bool, bool]] = []  # those of torch before the job before this one set others


def _restore_algorithms(trainer: Mapping[str, Any]) -> None:
    """Takes back `trainer.deterministic` and `benchmark` of an earlier job: Lightning leaves them to one with null."""
    cudnn = torch.backends.cudnn
    if _algorithms_before:
        deterministic, warns, cudnn.benchmark = _algorithms_before.pop()
        torch.use_deterministic_algorithms(deterministic, warn_only=warns)
    if trainer.get("deterministic") is not None or trainer.get("benchmark") is not None:
        warns = torch.is_deterministic_algorithms_warn_only_enabled()
        _algorithms_before.append((torch.are_deterministic_algorithms_enabled(), warns, cudnn.benchmark))

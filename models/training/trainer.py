"""The trainer of a run: made of its configuration, and how a fit ends that was interrupted."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    Checkpoint,
    EarlyStopping,
    ModelCheckpoint,
    ModelPruning,
    ProgressBar,
    StochasticWeightAveraging,
)
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig

from loader.machine.lost_processes import LostProcessError, is_lost
from models.training.callbacks import StepCheckpoint
from models.training.checkpoints import check_checkpoint, read_checkpoint
from models.training.console import announce_resume
from models.training.earlier_metrics import keep_earlier_metrics
from models.training.errors import INTERRUPTED, Interrupted
from models.training.ranks import number_of_devices
from models.training.short_epoch_loop import ShortEpochLoop
from models.training.strategy import OneExchangeStrategy
from models.training.trainer_callbacks import callbacks_of

log = logging.getLogger(__name__)

_DIFFERENCE = 0.03  # of the score with all neighbors from that with sampled ones


def make_trainer(cfg: DictConfig) -> Trainer:
    """The trainer of a run, with its callbacks and loggers, and with none of Lightning's own in their place."""

    def each(group: str, kind: type) -> list[Any]:
        # An entry that an experiment sets to null is left out. Without the group (callbacks=none) a task or an
        # experiment still has options for some of its entries, which then are no objects.
        entries = {name: entry for name, entry in (cfg.get(group) or {}).items() if entry is not None}
        if not any("_target_" in entry for entry in entries.values()):
            return []
        made = {name: instantiate(entry) if "_target_" in entry else None for name, entry in entries.items()}
        for name, one in made.items():
            if not isinstance(one, kind):
                target = entries[name].get("_target_")
                raise ValueError(f"{group}.{name}._target_ is {target}; it must be a {kind.__name__} of Lightning")
        return list(made.values())

    callbacks, loggers = each("callbacks", Callback), each("logger", Logger)
    _check_weights(callbacks)
    _look_after_epochs(callbacks)
    if any(isinstance(callback, EarlyStopping) for callback in callbacks):
        callbacks.append(_GivenPatience())
    if any(isinstance(callback, ModelCheckpoint) for callback in callbacks):
        callbacks += [_SameBest(), _SameWeights()]
    if averaging := [callback for callback in callbacks if _averages([callback])]:
        for callback in averaging:
            callbacks.insert(callbacks.index(callback) + 1, _InTheirPlaces(callback))
        callbacks.insert(0, _WeightsBesideAverages())
    if cfg.trainer.get("min_steps") or cfg.trainer.get("check_val_every_n_epoch", 1) is None:
        callbacks.append(_Reached())
    several = {"strategy": OneExchangeStrategy()} if _has_others(cfg) else {}
    trainer: Trainer = instantiate(
        cfg.trainer,
        **several,
        callbacks=callbacks,
        logger=loggers or False,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
        enable_progress_bar=any(isinstance(callback, ProgressBar) for callback in callbacks),
    )
    if getattr(trainer, "_val_check_time_interval", None) is not None:
        for callback in callbacks:  # Lightning's reads `val_check_interval`, which its trainer then lacks
            if isinstance(callback, EarlyStopping) and callback._check_on_train_epoch_end is None:
                callback._check_on_train_epoch_end = False
    trainer.fit_loop.epoch_loop = ShortEpochLoop(trainer, trainer.fit_loop.epoch_loop)
    return trainer


def _averages(callbacks: list[Any]) -> bool:
    """Whether Lightning's WeightAveraging, of releases from 2.6 on, is among callbacks."""
    return any(hasattr(callback, "_average_model") for callback in callbacks)


def _check_weights(callbacks: list[Any]) -> None:
    """Raises ValueError if other weights are tested or kept than those that a score is of."""
    if any(isinstance(callback, ModelPruning) for callback in callbacks):
        raise ValueError(
            "callbacks have ModelPruning, which prunes after a validation, so checkpoints and the test would be of "
            "other weights than its score; leave it out, and prune the trained model (torch.nn.utils.prune)"
        )
    if any(isinstance(callback, StochasticWeightAveraging) for callback in callbacks):
        raise ValueError(
            "callbacks have StochasticWeightAveraging, whose average takes the place of the weights when training "
            "ends, so no score of a validation is of it, and no checkpoint has it; give Lightning's WeightAveraging or "
            "EMAWeightAveraging, which it has from 2.6 on"
        )
    alone = [one for one in callbacks if isinstance(one, ModelCheckpoint) and one.save_weights_only]
    if alone and _averages(callbacks):
        raise ValueError(
            "save_weights_only is true beside WeightAveraging, with which Lightning saves the weights of training, and "
            "the score is that of the averages; leave save_weights_only out"
        )


def _look_after_epochs(callbacks: list[Any]) -> None:
    """Has callbacks that watch the training look at the end of its epochs, unless they are told when to look.

    Lightning's look after a validation, if an epoch has several or none: there the scores are those of the epoch
    before, and the weights are not.
    """
    for callback in callbacks:
        if str(getattr(callback, "monitor", None)).startswith("train/"):
            for when in ("_save_on_train_epoch_end", "_check_on_train_epoch_end"):
                if getattr(callback, when, False) is None:
                    setattr(callback, when, True)


def _callbacks_by(model: LightningModule) -> Sequence[Callback]:
    """The callbacks that a model adds to those of its trainer."""
    given = model.configure_callbacks()
    return given if isinstance(given, Sequence) else [given]


class _GivenPatience(Callback):
    """Keeps the patience that a resumed run is given. Lightning would replace it by the checkpoint's."""

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        states = checkpoint["callbacks"]
        for callback in callbacks_of(trainer):
            if isinstance(callback, EarlyStopping) and callback.state_key in states:
                states[callback.state_key]["patience"] = callback.patience


class _Reached(Callback):
    """Refuses a `trainer.min_steps`, and a `val_check_interval` over the epochs, that `max_epochs` does not reach:
    Lightning ends after these without a word.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        least, epochs, batches = trainer.min_steps, trainer.max_epochs, trainer.num_training_batches
        tries: Any = trainer.fast_dev_run  # type: ignore[attr-defined]  # Lightning's class does not declare it
        if epochs is None or epochs == -1 or not math.isfinite(batches) or tries:
            return
        steps = math.ceil(batches / trainer.accumulate_grad_batches)
        ends, way = f"training ends after trainer.max_epochs, which is {epochs}", "or more epochs"
        if least is not None and least > epochs * steps:
            most = f"give at most {epochs * steps}, {way}"
            raise ValueError(f"trainer.min_steps is {least}, but {ends}, of {steps} steps each; {most}")
        every: Any = trainer.val_check_batch  # None: by time
        validates = trainer.enable_validation and trainer.check_val_every_n_epoch is None
        if validates and every is not None and (most_batches := epochs * batches) < every < math.inf:
            why = f"{ends}, of {batches} mini-batches each, so nothing is validated"
            raise ValueError(f"trainer.val_check_interval is {every}, but {why}; give at most {most_batches}, {way}")


class _SameBest(Callback):
    """Forgets the best score of a run that goes on if its file has other weights by now.

    A run that was killed may have written a better checkpoint after the one from which it goes on. Lightning would take
    that file for the weights of the score before it.
    """

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn != "fit":
            return
        states = checkpoint["callbacks"]
        for callback in callbacks_of(trainer):
            if not isinstance(callback, ModelCheckpoint) or callback.monitor is None:
                continue
            path = states.get(callback.state_key, {}).get("best_model_path")
            # The first process decides: others may have no such folder, and all have to save together.
            if why := trainer.strategy.broadcast(_changed_since(path, checkpoint["global_step"]) if path else None):
                del states[callback.state_key]
                if trainer.is_global_zero:
                    log.warning("%s, so the best one is chosen anew from the validations that follow", why)


class _SameWeights(Callback):
    """Refuses to keep the weights of the end of an epoch with the score of those amid it."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        every: Any = trainer.val_check_batch  # None: by time
        if every is not None and (every == math.inf or trainer.num_training_batches % every == 0):
            return  # the last validation of an epoch is at its end
        for callback in callbacks_of(trainer):
            watched = str(getattr(callback, "monitor", None))
            if watched.startswith("val/") and getattr(callback, "_save_on_train_epoch_end", None):
                why = f"of an epoch of {trainer.num_training_batches} mini-batches is amid it, of other weights"
                way = "leave it out, so that weights are kept after each validation"
                raise ValueError(f"save_on_train_epoch_end is true, but the last {watched} {why}; {way}")


class _InTheirPlaces(Callback):
    """Puts weights and averages back into their places if a validation fails, in which the two have changed places.

    Args:
        averaging: Lightning's WeightAveraging, right behind which this is called.
    """

    def __init__(self, averaging: Any) -> None:
        self._averaging = averaging
        self._changed = False

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._changed = True

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._changed = False

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self._changed:
            self._averaging.on_validation_epoch_end(trainer, pl_module)
        self._changed = False


class _WeightsBesideAverages(Callback):
    """Has the right weights saved and tested where Lightning's WeightAveraging averages them. It is called before that.

    When training ends, the averages take the place of the weights: the last step has to be saved before, or a run that
    goes on from it would train the averages. When a checkpoint is loaded to be tested,
    the weights that were averaged would take the place of the averages, for which it was chosen.
    """

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for callback in callbacks_of(trainer):
            if isinstance(callback, StepCheckpoint):
                callback.on_train_end(trainer, pl_module)  # again later, when nothing is left to do

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn != "fit" and "current_model_state" in checkpoint:
            checkpoint["current_model_state"] = checkpoint["state_dict"]


def _changed_since(path: str, step: int) -> str | None:
    """Why a file is not the best checkpoint that a run had at a step; None if it is."""
    try:
        there = read_checkpoint(Path(path), goes_on=False)["global_step"]
    except ValueError:
        return f"{path} is damaged"
    return f"{path} is of step {there}, and the run goes on from step {step}" if there > step else None


def _has_others(cfg: DictConfig) -> bool:
    """Whether several processes train, and nobody said by which strategy."""
    if cfg.trainer.get("strategy") != "auto":
        return False
    here = number_of_devices(cfg.trainer.get("devices"))
    if here is None:  # all GPUs of the machine; on the CPU it is one process
        here = torch.cuda.device_count() if cfg.device == "cuda" else 1
    return here * (cfg.trainer.get("num_nodes") or 1) > 1


def fit(cfg: DictConfig, trainer: Trainer, model: LightningModule, datamodule: LightningDataModule) -> dict[str, Any]:
    """Trains, from `cfg.ckpt_path` on if that is set, and returns the metrics.

    Raises:
        ValueError: the checkpoint is none, or of another model.
        Interrupted: by Ctrl-C; the message says how to go on.
        LostProcessError: another process of the run ended; likewise.
    """
    if cfg.ckpt_path is not None:
        saved = check_checkpoint(Path(cfg.ckpt_path), model, dict(model.hparams))
        if "current_model_state" in saved and not _averages([*callbacks_of(trainer), *_callbacks_by(model)]):
            raise ValueError(
                f"ckpt_path is {cfg.ckpt_path}, of a run with WeightAveraging, so without it training would go on from "
                "the averages; give the callback that the run had"
            )
        if trainer.is_global_zero:
            announce_resume(cfg, saved)
            if Path(cfg.ckpt_path).resolve().parent.parent == Path(cfg.run_dir).resolve():
                keep_earlier_metrics(trainer.loggers, saved)
    try:
        trainer.fit(model, datamodule=datamodule, ckpt_path=cfg.ckpt_path)
    except SystemExit:  # so Lightning ends on Ctrl-C
        if not trainer.interrupted:
            raise
    except Exception as error:
        if not is_lost(error):
            raise
        with suppress(Exception):  # the others learn it at once, and this process does not wait for them when it ends
            torch.distributed.destroy_process_group()
        if trainer._signal_connector.received_sigterm:  # who ends this process says why
            raise SystemExit(1) from error
        what = "another process of this run ended or no longer answers,"
        raise LostProcessError(_how_to_go_on(cfg, trainer, what)) from error
    if trainer.interrupted:
        raise (
            Interrupted(_how_to_go_on(cfg, trainer, "interrupted"))
            if trainer.is_global_zero
            else SystemExit(INTERRUPTED)
        )
    return dict(trainer.callback_metrics)


def best_checkpoint(trainer: Trainer) -> str | None:
    """The best checkpoint of a run; None if there is none, so the weights of the last step count.

    It lies where the run writes its checkpoints. Whatever else a checkpoint names that the run went on from is not
    opened.
    """
    callback = trainer.checkpoint_callback
    if isinstance(callback, ModelCheckpoint) and callback.monitor is None:
        return None  # what it saved last may be of an earlier step than the scores of the run
    path, folder = (getattr(callback, name, None) or "" for name in ("best_model_path", "dirpath"))
    beside = path and folder and os.path.realpath(os.path.dirname(path)) == os.path.realpath(folder)
    return path if beside and os.path.isfile(path) else None


def optimized_value(name: str, metrics: dict[str, Any], trainer: Trainer) -> float:
    """The best value of a metric if checkpoints are chosen by it, else its last one; NaN, and a line that says so, if
    training ended before there was one.
    """
    checkpoint = trainer.checkpoint_callback
    best = getattr(checkpoint, "best_model_score", None)
    if best is not None and getattr(checkpoint, "monitor", None) == name:
        return float(best)
    if name in metrics:
        return float(metrics[name])
    if trainer.is_global_zero:
        print(f"{name} is not known: training ended before it was computed")
    return math.nan


def warn_of_sampling(metrics: Mapping[str, Any], trainer: Trainer) -> None:
    """Warns if the best checkpoint has another score on the validation split with all neighbors than with sampled ones.

    Models that aggregate by a maximum or a sum read other rows if a node has more neighbors than in training.

    Args:
        metrics: of a test on the whole graph, and those before it.
        trainer: of the run.
    """
    checkpoint = trainer.checkpoint_callback
    name = str(getattr(checkpoint, "monitor", None))
    sampled, exact = getattr(checkpoint, "best_model_score", None), metrics.get(name.replace("val/", "test/val_"))
    if hasattr(trainer.lightning_module, "TESTED_BY"):  # not of neighbors
        return
    if name == "val/loss" or sampled is None or exact is None or not trainer.is_global_zero:
        return
    if abs(float(exact) - float(sampled)) > _DIFFERENCE:
        log.warning(
            "%s is %.4f with sampled neighbors and %.4f with all, which mode=predict reads; larger sampler.fanouts, "
            "and means in place of sums or maxima, bring the two closer. exact_test=false samples in both",
            name,
            float(sampled),
            float(exact),
        )


def _how_to_go_on(cfg: DictConfig, trainer: Trainer, what: str) -> str:
    where = f"{what} in epoch {trainer.current_epoch + 1}, after step {trainer.global_step}"
    checkpoint = Path(cfg.checkpoint_dir) / "step.ckpt"
    if not checkpoint.is_file():
        return f"{where}; no checkpoint was written (callbacks.step writes them), so a new run begins from the start"
    callbacks = callbacks_of(trainer)
    saved = next((callback.saved for callback in callbacks if isinstance(callback, StepCheckpoint)), 0)
    way = f"{where}; to go on{f' from step {saved}' if saved else ''}, give the same options again and"
    if re.search(r"[^\w./-]", str(checkpoint)):  # quotes for Hydra, within those of the shell
        return f"{way} 'ckpt_path=\"{checkpoint}\"'"
    return f"{way} ckpt_path={checkpoint}"

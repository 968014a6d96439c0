"""A checkpoint of a run: whether it is one, and whether it is of the model that is to go on from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from loader.machine.whole_files import check_archive
from models.training.renamed_options import with_new_hparams

_OF_OPTIMIZER = ("lr", "weight_decay", "optimizer", "schedule")  # a checkpoint brings them back
_OF_FUNCTION = ("act",)  # of the model, which no shape of a weight shows
_OTHER = "give one that train.py wrote, e.g. outputs/train/<run>/checkpoints/step.ckpt"
_OF_MODEL = ("state_dict", "hyper_parameters")
_NEEDED = ("state_dict", "optimizer_states", "loops", "hyper_parameters")  # of a checkpoint that training goes on from


def read_checkpoint(path: Path, *, goes_on: bool = True) -> dict[str, Any]:
    """The parts of a checkpoint; its arrays stay in the file until they are read.

    Args:
        path: of the checkpoint.
        goes_on: training is to go on from it. Else that of weights is enough (`save_weights_only` of a callback).

    Raises:
        ValueError: training cannot go on from it, or it has no weights, whatever the model is.
    """
    needed = _NEEDED if goes_on else _OF_MODEL
    try:
        check_archive(path)
        saved = torch.load(str(path), map_location="cpu", weights_only=True, mmap=True)  # torch 2.1 maps no Path
    except Exception as error:  # an unpickler raises anything
        first = str(error).split(". ")[0].split("\n")[0][:120] or type(error).__name__
        what = f"ckpt_path is {path}, which is no checkpoint of train.py or is damaged ({first})"
        raise ValueError(f"{what}; {_OTHER}") from error
    lacks = [name for name in needed if name not in saved] if isinstance(saved, dict) else list(needed)
    if not lacks and not all(isinstance(saved[name], Mapping) for name in _OF_MODEL):
        lacks = ["dict of the model's weights and options"]
    if lacks:
        why = "training cannot go on from it" if goes_on else "there is no model in it"
        raise ValueError(f"ckpt_path is {path}, which holds no {lacks[0]}, so {why}; {_OTHER}")
    found: dict[str, Any] = saved
    return found


def check_left(path: Path, saved: Mapping[str, Any], trainer: Mapping[str, Any]) -> None:
    """Raises ValueError if a run that goes on from a checkpoint could take no step; Lightning then says nothing.

    Args:
        path: of the checkpoint.
        saved: its parts.
        trainer: options, of which `max_steps`, `max_epochs` and `max_time` count; None and -1 are no limit.
    """
    progress = saved.get("loops", {}).get("fit_loop", {}).get("epoch_progress", {}).get("current", {})
    # As it stands, not as the checkpoint's "epoch", which is one more after the last epoch.
    for unit, reached, when in (
        ("steps", saved.get("global_step"), "after step"),
        ("epochs", progress.get("started"), "in epoch"),
    ):
        most = trainer.get(f"max_{unit}")
        if isinstance(reached, int) and isinstance(most, int) and 0 <= most < reached:
            written = f"ckpt_path is {path}, written {when} {reached}, but trainer.max_{unit} is {most}"
            raise ValueError(f"{written}, so nothing is left to train; give more {unit}")
    if (limit := trainer.get("max_time")) is None:
        return
    from lightning.pytorch.callbacks import Timer

    reached = saved.get("callbacks", {}).get("Timer", {}).get("time_elapsed", {}).get("train", 0.0)
    most = Timer(dict(limit) if isinstance(limit, Mapping) else limit).time_remaining() or 0.0
    if 0 < reached >= most:
        written = f"ckpt_path is {path}, written after {reached:.3g} s of training, but trainer.max_time is {limit}"
        raise ValueError(f"{written} from the beginning of the run, so nothing is left to train; give more time")


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
    before = with_new_hparams(saved["hyper_parameters"], hparams)
    changed = [name for name in hparams if name in before and before[name] != hparams[name]]
    if shapes != theirs or any(name in changed for name in _OF_FUNCTION):
        name = next((name for name in [*shapes, *theirs] if shapes.get(name) != theirs.get(name)), "")
        of_shape = f"{name} has shape {theirs.get(name, 'none')} there and {shapes.get(name, 'none')} here"
        what = f"ckpt_path is {path}, of another model: {_named(changed, before, hparams) or of_shape}"
        raise ValueError(f"{what}; give the options (and the dataset) of the run that wrote it")
    if of_optimizer := _named([name for name in _OF_OPTIMIZER if name in changed], before, hparams):
        why = "whose optimizer goes on with the options that it had"
        raise ValueError(f"ckpt_path is {path}, {why}: {of_optimizer}; give those")


def _named(names: Iterable[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} was {before[name]} and is {now[name]}" for name in names)

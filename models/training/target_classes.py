"""The parts of a run, and what their `_target_` names: it must be there, and be of the right class."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_object
from omegaconf import DictConfig

from loader.datasets.base import Dataset
from loader.machine.arguments import shown
from loader.samplers import Sampler
from models.training.options import entries

PARTS = ("dataset", "sampler", "features", "model", "datamodule", "trainer")
_CLASSES: dict[str, type] = {"dataset": Dataset, "sampler": Sampler}


def check_parts(cfg: DictConfig) -> None:
    """Raises ValueError unless all parts of a run have a class, and its other groups have options."""
    for name in PARTS:
        part = cfg.get(name)
        if not isinstance(part, DictConfig) or "_target_" not in part:
            raise ValueError(f"{name} is {shown(part)}; it must have a _target_, as the options of conf/ have")
    for name in ("optimizer", "schedule", "callbacks", "logger"):
        if (part := cfg.get(name)) and not isinstance(part, DictConfig):
            raise ValueError(f"{name} is {shown(part)}; it must be null, or have the options that conf/{name} has")


def class_name(part: DictConfig) -> str:
    """The last part of what `_target_` names."""
    return str(part["_target_"]).rpartition(".")[2]


def chosen(group: str, cfg: DictConfig) -> str:
    """What the command line or a default chose for a group, or the class if that is not known."""
    choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else {}
    return str(choices.get(group) or cfg[group]["_target_"])


def object_of(group: str, part: Mapping[Any, Any]) -> Any:
    """What `part._target_` names. Hydra's own look-up writes three lines to the log before it raises.

    Raises:
        ValueError: it cannot be imported.
    """
    log = logging.getLogger("hydra.utils")
    disabled, log.disabled = log.disabled, True
    try:
        return get_object(part["_target_"])
    except Exception as error:  # an import raises anything
        why = str(error.__cause__ or error).split("\n")[0] or type(error).__name__
        way = "give the full name of a class, as conf/ does, and let this folder or PYTHONPATH have its file"
        what = f"{shown(part['_target_'])}, which cannot be imported ({why[:120]})"
        raise ValueError(f"{group}._target_ is {what}; {way}") from error
    finally:
        log.disabled = disabled


def check_targets(cfg: DictConfig) -> None:
    """Raises ValueError unless each part, callback and logger names what can be imported."""
    for name in PARTS:
        made, wanted = object_of(name, cfg[name]), _CLASSES.get(name, object)
        if not isinstance(made, type) or issubclass(made, wanted):
            continue
        if name != "dataset" or not hasattr(made, "load") or made.__module__.startswith("torch_geometric."):
            kind = f"{wanted.__name__} of {wanted.__module__.rpartition('.')[0]}"
            way = f"give one, as the options of conf/{name} do"
            raise ValueError(f"{name}._target_ is {cfg[name]['_target_']}, which is no {kind}; {way}")
    for group in ("callbacks", "logger"):
        for name, entry in entries(cfg, group):
            if "_target_" in entry:
                object_of(f"{group}.{name}", entry)

"""Values of a configuration that nobody else looks at before work starts: parts, places, options of the trainer."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_object
from omegaconf import DictConfig, ListConfig

from loader.datasets.base import Dataset
from loader.datasets.errors import nearest
from loader.datasets.locations import check_folder, is_writable
from loader.machine.arguments import as_flag, as_number, as_size, shown
from loader.machine.optional import import_optional
from loader.samplers import Sampler
from models.training.metrics import METRICS
from models.training.ranks import MOST_PROCESSES, number_of_devices
from models.training.run_checks import not_run

_ACCELERATORS = ("auto", "cpu", "gpu", "cuda")
_PROFILERS = ("simple", "advanced", "pytorch", "xla")  # Lightning's, by name
_PARTS = ("dataset", "sampler", "features", "model", "datamodule", "trainer")
_CLASSES: dict[str, type] = {"dataset": Dataset, "sampler": Sampler}
# What the configuration gives to the trainer by itself, and by which group.
_OF_LOGGERS = {  # class -> packages, of which one will do; the first names the extra
    "TensorBoardLogger": ("tensorboard", "tensorboardX"),
    "WandbLogger": ("wandb",),
    "MLFlowLogger": ("mlflow",),
}
_GIVEN = {
    "callbacks": "callbacks",
    "logger": "logger",
    "enable_checkpointing": "callbacks",
    "enable_progress_bar": "callbacks",
}


def check_parts(cfg: DictConfig) -> None:
    """Raises ValueError unless all parts of the run are there, and go together."""
    for name in _PARTS:
        part = cfg.get(name)
        if not isinstance(part, DictConfig) or "_target_" not in part:
            raise ValueError(f"{name} is {shown(part)}; it must have a _target_, as the options of conf/ have")
    sampler, model = cfg.sampler, cfg.model
    walks = "walk_length" in sampler
    if "context_size" in model and cfg.task == "link":
        raise ValueError("model=node2vec does not go with task=link, which trains GraphSAGE; leave model out")
    if "context_size" in model and not walks:
        raise ValueError(
            f"model=node2vec learns from random walks, and {_name(sampler)} gives none; take sampler=walks"
        )
    sizes = sampler.get("walk_length"), model.get("context_size")
    if all(isinstance(size, int) for size in sizes) and sizes[0] + 1 < sizes[1]:
        raise ValueError(
            f"sampler.walk_length is {sampler.walk_length}, model.context_size {model.context_size}; a walk must have "
            "at least as many nodes as a window, so make walks longer, or windows smaller"
        )
    if "context_size" in model and cfg.trainer.get("gradient_clip_val"):
        raise ValueError(
            f"trainer.gradient_clip_val is {cfg.trainer.gradient_clip_val}, but the gradients of model=node2vec are "
            "sparse, and torch clips none of these; leave it out"
        )
    if "context_size" in model and _name(cfg.features) != "auto_features":
        raise ValueError(f"features is {_name(cfg.features)}, but model=node2vec reads none; leave features out")
    if "context_size" in model and sampler.get("num_negatives") == 0:
        raise ValueError("sampler.num_negatives is 0, but model=node2vec learns from negatives; give at least 1")
    if ("heads" in model or "unique_rows" in model) and cfg.task == "link":
        raise ValueError(
            f"model={chosen('model', cfg)} does not go with task=link, which trains GraphSAGE; leave model out"
        )
    if walks and cfg.task == "link":
        raise ValueError("sampler=walks does not go with task=link, which samples around links; take sampler=fused")
    if cfg.task == "link" and _name(sampler) == "FullSampler":
        raise ValueError("sampler=full has no fanouts, which task=link sets to -1, all neighbors; leave sampler out")


def chosen(group: str, cfg: DictConfig) -> str:
    """What the command line or a default chose for a group, or the class if that is not known."""
    choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else {}
    return str(choices.get(group) or cfg[group]["_target_"])


def object_of(group: str, part: DictConfig) -> Any:
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
        module = str(part["_target_"]).partition(".")[0]
        beside = ""
        if f"named '{module}'" in why:
            beside = f", and put {module}.py into this folder, or let PYTHONPATH have the folder of {module}.py"
        raise ValueError(
            f"{group}._target_ is {shown(part['_target_'])}, which cannot be imported ({why[:120]}); give the full "
            f"name of a class, as the options of conf/{group.split('.')[0]} have{beside}"
        ) from error
    finally:
        log.disabled = disabled


def check_targets(cfg: DictConfig) -> None:
    """Raises ValueError unless each part, callback and logger names what can be imported."""
    for name in _PARTS:
        made = object_of(name, cfg[name])
        if name not in _CLASSES or not isinstance(made, type) or issubclass(made, _CLASSES[name]):
            continue
        wanted = _CLASSES[name]
        if name != "dataset" or not hasattr(made, "load") or made.__module__.startswith("torch_geometric."):
            raise ValueError(
                f"{name}._target_ is {cfg[name]['_target_']}, which is no {wanted.__name__} of "
                f"{wanted.__module__.rpartition('.')[0]}; give one, as the options of conf/{name} do"
            )
    for group in ("callbacks", "logger"):
        for name, entry in _entries(cfg, group):
            if "_target_" not in entry:
                continue
            needs = _OF_LOGGERS.get(_name(entry), ())
            if needs and not any(map(find_spec, needs)):
                import_optional(needs[0], f"{group}.{name}", needs[0])  # says how to get it
            object_of(f"{group}.{name}", entry)


def check_sizes(model: DictConfig, sizes: Iterable[str]) -> None:
    """Raises ValueError for an option of the model that the data decide: it would be ignored."""
    for name in sizes:
        if name in model:
            raise ValueError(f"model.{name} is {shown(model[name])}, but the data decide it; leave it out")


def check_depth(model: Any, datamodule: Any) -> None:
    """Raises ValueError unless samples reach as far from their seeds as the network has layers.

    Args:
        model: of the run, or a trial of it.
        datamodule: with `sampler`, and maybe `eval_sampler`.
    """
    layers = getattr(model, "num_layers", getattr(getattr(model, "net", None), "num_layers", None))
    for name in ("sampler", "eval_sampler"):
        hops = getattr(getattr(datamodule, name, None), "num_hops", 0)
        if layers is not None and hops not in (0, layers):
            raise ValueError(
                f"{name} samples {hops} hops, the model has {layers} layers; give {name}.num_hops={layers}, or "
                f"model.num_layers={hops}"
            )


def check_places(cfg: DictConfig) -> None:
    """Raises TypeError or ValueError unless the run can write where it is told to."""
    places = {name: cfg[name] for name in ("run_dir", "checkpoint_dir")}
    if cfg.trainer.get("default_root_dir") is not None:
        places["trainer.default_root_dir"] = cfg.trainer.default_root_dir
    for group in ("callbacks", "logger"):
        for name, entry in _entries(cfg, group):
            places |= {f"{group}.{name}.{key}": entry[key] for key in ("dirpath", "save_dir") if entry.get(key)}
            if "path" in entry:
                places[f"{group}.{name}.path"] = _parent(f"{group}.{name}.path", entry["path"])
    if cfg.result_path is not None:
        places["result_path"] = _parent("result_path", cfg.result_path)
    for name, folder in places.items():
        check_folder(name, folder)
        if not is_writable(Path(folder).expanduser().absolute()):
            raise ValueError(f"{name} is {folder}; that is no folder that can be written to or made, give another one")


def check_trainer(cfg: DictConfig) -> None:
    """Raises TypeError or ValueError for an option of Lightning's that is out of range, or not for this device."""
    trainer = cfg.trainer
    for name, group in _GIVEN.items():
        if name in trainer:
            raise ValueError(f"trainer.{name} is set by the group {group}; leave it out, and give {group}=...")
    for name, check in _CHECKS.items():
        if trainer.get(name) is not None:
            check(f"trainer.{name}", trainer[name])
    if trainer.get("accelerator", "auto") not in _ACCELERATORS:
        raise ValueError(
            f"trainer.accelerator is {shown(trainer.accelerator)}; it must be one of {', '.join(_ACCELERATORS)}: leave "
            "it out, and give device"
        )
    if "devices" in trainer and cfg.device == "cpu":
        _check_processes(trainer.devices)
    if trainer.get("accelerator") in ("gpu", "cuda") and cfg.device == "cpu":
        raise ValueError(
            f"trainer.accelerator is {trainer.accelerator}, but this run has no GPU (device=cpu); leave it out, and "
            "give device"
        )
    if cfg.model.get("cuda_graph") in (True,) and cfg.device == "cpu":
        raise ValueError("model.cuda_graph is true, but this run has no GPU (device=cpu); leave it null, or false")
    for group in ("callbacks", "logger"):
        for name, entry in _entries(cfg, group):
            for key in ("filename", "name"):
                if not isinstance(entry.get(key, ""), str | None):
                    raise TypeError(f"{group}.{name}.{key} is {shown(entry[key])}; it must be text, without a folder")
    for name, callback in _entries(cfg, "callbacks"):
        if callback.get("patience") is not None:
            as_size(f"callbacks.{name}.patience", callback.patience, least=0)
        if callback.get("monitor") is not None and callback.get("mode", "min") not in ("min", "max"):
            raise ValueError(f"callbacks.{name}.mode is {shown(callback.mode)}; it must be min or max")
        if callback.get("min_delta") is not None:
            as_number(f"callbacks.{name}.min_delta", callback.min_delta)


def check_timeline(cfg: DictConfig) -> None:
    """Raises ValueError for `timeline=true` if nothing records one: it would be ignored."""
    if not as_flag("timeline", cfg.timeline):
        return
    if any(_name(entry) == "TimelineRecord" for _, entry in _entries(cfg, "callbacks") if "_target_" in entry):
        if "context_size" not in cfg.model:
            return
        why = "model=node2vec has no such stages"
    else:
        why = "no callback records one (callbacks=default has callbacks.timeline, task=link leaves it out)"
    raise ValueError(f"timeline is true, but {why}; leave timeline out")


def check_dtype(cfg: DictConfig) -> None:
    """Raises ValueError for rows of a narrow type that the model's layers, which have float32, cannot multiply."""
    rows = cfg.features.get("dtype") or cfg.features.get("storage_dtype")
    narrow = str(rows).removeprefix("torch.") in ("float16", "half", "bfloat16")
    ours = str(cfg.model["_target_"]).startswith("models.") and "context_size" not in cfg.model
    if not narrow or not ours or str(cfg.trainer.get("precision")) not in ("None", "32", "32-true"):
        return
    name = "dtype" if cfg.features.get("dtype") else "storage_dtype"
    raise ValueError(
        f"features.{name} is {rows}, but the model's layers have float32; give trainer.precision=bf16-mixed, or "
        + ("features.dtype=float32" if name == "storage_dtype" else "leave features.dtype out")
    )


def check_test(cfg: DictConfig) -> None:
    """Raises TypeError or ValueError for an `exact_test` that is no flag, or false if nothing else is possible."""
    if as_flag("exact_test", cfg.exact_test):
        return
    if cfg.task == "link" or "context_size" in cfg.model:
        tested = "task=link" if cfg.task == "link" else "model=node2vec"
        raise ValueError(f"exact_test is false, but {tested} is only tested on the whole graph; leave exact_test out")


def check_monitors(cfg: DictConfig) -> None:
    """Raises ValueError unless `optimized_metric` and what callbacks watch are among the metrics that the model logs.

    What a model of the user's own logs is not known, unless it has `METRICS`: there callbacks may watch anything.
    """
    from models.training.more_metrics import as_metrics, logged_metrics  # Lightning's torchmetrics takes a second

    known: tuple[str, ...] | None = getattr(object_of("model", cfg.model), "METRICS", None)
    metrics = METRICS if known is None else known
    metrics += logged_metrics(as_metrics(cfg.model.get("metrics")))
    watched = {"optimized_metric": cfg.optimized_metric}
    if known is not None and (monitor := (cfg.get("schedule") or {}).get("monitor")) is not None:
        watched["schedule.monitor"] = monitor
    for name, callback in _entries(cfg, "callbacks"):
        if known is not None and callback.get("monitor") is not None:
            watched[f"callbacks.{name}.monitor"] = callback.monitor
    for key, metric in watched.items():
        if key != "optimized_metric" and metric in metrics and metric.startswith("test/"):
            raise ValueError(f"{key} is {metric}, which is computed after the training; watch one of train/ or val/")
        if cfg.task == "link" and (why := not_run(cfg, metric)) is not None:  # of nodes `check_metrics` says it
            raise ValueError(f"{key} is {metric}, but {why}; change that, or give {key}=train/loss")
        if metric not in metrics:
            raise ValueError(
                f"{key} is '{metric}'; it must be one of {', '.join(metrics)}{nearest(str(metric), metrics)}"
            )


def _entries(cfg: DictConfig, group: str) -> list[tuple[str, DictConfig]]:
    """The callbacks or loggers of a run, by name; an entry that is null is left out."""
    found = []
    for name, entry in (cfg.get(group) or {}).items():
        if entry is None:
            continue
        if not isinstance(entry, DictConfig):
            raise ValueError(f"{group}.{name} is {shown(entry)}; it must be null, or have a _target_")
        found.append((str(name), entry))
    return found


def _parent(name: str, path: Any) -> str:
    """The folder of a file that is to be written."""
    if not isinstance(path, str) or not path.strip():
        raise TypeError(f"{name} is {shown(path)}; it must be the path of a file")
    if Path(path).is_dir():
        raise ValueError(f"{name} is {path}, which is a folder; it must be the path of a file")
    return os.path.dirname(path) or "."


def _name(part: DictConfig) -> str:
    return str(part["_target_"]).rpartition(".")[2]


def _integer(least: int) -> Callable[[str, Any], object]:
    return lambda name, value: as_size(name, value, least)


def _share_or_number(name: str, value: Any) -> None:
    """Of the mini-batches of an epoch, a share (a float of at most 1) or a number (an integer)."""
    number = as_number(name, value)
    if not 0 <= number < math.inf or (isinstance(value, float) and number > 1):
        raise ValueError(f"{name} is {value}; it must be a share from 0.0 to 1.0, or an integer of at least 0")


def _interval(name: str, value: Any) -> None:
    if isinstance(value, (str, Mapping)):
        return _time(name, value)
    _share_or_number(name, value)
    if value == 0:
        raise ValueError(f"{name} is {value}; it must be above 0, or null to validate after each epoch")


def _flag_or(*words: str) -> Callable[[str, Any], object]:
    return lambda name, value: None if value in words else as_flag(name, value)


def _fast_dev_run(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        as_size(name, value, least=0)


def _devices(name: str, value: Any) -> None:
    if (
        value == -1
        or isinstance(value, ListConfig)
        or (isinstance(value, str) and re.fullmatch(r"auto|[\d, -]+", value))
    ):
        return
    as_size(name, value)


def _check_processes(devices: Any) -> None:
    """Raises ValueError unless this many processes can train on a machine's processors: all would start at once."""
    most = MOST_PROCESSES * (os.cpu_count() or 1)
    count = None if isinstance(devices, ListConfig) else number_of_devices(devices)
    if devices == "auto" or (count is not None and 1 <= count <= most and "," not in str(devices)):
        return
    raise ValueError(
        f"trainer.devices is {shown(devices)}; without a GPU (device=cpu) it is the number of processes, 1 to {most} "
        "on this machine"
    )


def _profiler(name: str, value: Any) -> None:
    if isinstance(value, Mapping) and "_target_" in value:
        return
    if value not in _PROFILERS:
        raise ValueError(
            f"{name} is {shown(value)}; it must be null, one of {', '.join(_PROFILERS)}, or have a _target_"
        )


def _norm(name: str, value: Any) -> None:
    if not 0 <= as_number(name, value) < math.inf:
        raise ValueError(f"{name} is {value}; it must be at least 0 and finite, or null for no clipping")


def _time(name: str, value: Any) -> None:
    if not isinstance(value, (str, Mapping)) or (
        isinstance(value, str) and not re.fullmatch(r"\d+:\d+:\d+:\d+", value)
    ):
        raise ValueError(f"{name} is {shown(value)}; it must be days:hours:minutes:seconds, e.g. 00:12:00:00")


_CHECKS: dict[str, Callable[[str, Any], object]] = {
    **dict.fromkeys(("max_epochs", "max_steps", "num_sanity_val_steps"), _integer(-1)),
    **dict.fromkeys(("min_epochs", "min_steps", "log_every_n_steps"), _integer(0)),
    **dict.fromkeys(("num_nodes", "accumulate_grad_batches", "check_val_every_n_epoch"), _integer(1)),
    **{f"limit_{split}_batches": _share_or_number for split in ("train", "val", "test", "predict")},
    **dict.fromkeys(("sync_batchnorm", "detect_anomaly", "inference_mode", "enable_model_summary"), as_flag),
    "benchmark": as_flag,
    "deterministic": _flag_or("warn"),
    "fast_dev_run": _fast_dev_run,
    "overfit_batches": _share_or_number,
    "val_check_interval": _interval,
    "devices": _devices,
    "gradient_clip_val": _norm,
    "profiler": _profiler,
    "max_time": _time,
}

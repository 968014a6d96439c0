"""The options of a run that no class looks at before work starts: which values each may have.

`check_values` refuses other values, the pages of `docs/options/` and `--help` show these. What an option means stands
beside its default, in `conf/`. The options of a sampler, a model or a dataset are declared by its class, which checks
them.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, ListConfig

from loader import _core
from loader.datasets.locations import check_folder, is_writable
from loader.machine.arguments import as_finite, as_flag, as_number, as_seed, as_size, shown
from loader.machine.cpus import as_threads
from loader.stores.rows import as_dtype


class Kind(NamedTuple):
    """The values that an option may have.

    Attributes:
        words: what they are, for the page of the option.
        check: called with the name of the option and its value; raises TypeError or ValueError for others. By default
            the class that the option goes to does so.
        null: whether null is one of them.
    """

    words: str
    check: Callable[[str, Any], object] = lambda _name, _value: None
    null: bool = True


def among(words: str, fits: Callable[[Any], object]) -> Kind:
    """Values of any type that `fits` is true for."""

    def check(name: str, value: Any) -> None:
        if not fits(value):
            raise ValueError(f"{name} is {shown(value)}; it must be {words}")

    return Kind(words, check)


def one_of(*known: str, way: str = "") -> Kind:
    words = f"one of {', '.join(known)}"
    return among(f"{words}{way}", lambda value: value in known)._replace(words=words)


def number(words: str, fits: Callable[[Any], object]) -> Kind:
    kind = among(words, fits)
    return Kind(words, lambda name, value: (as_number(name, value), kind.check(name, value)))


def integer(least: int, most: int | None = None) -> Kind:
    words = f"integer of at least {least}" + ("" if most is None else f" and at most {most}")
    return Kind(words, lambda name, value: as_size(name, value, least, most))


def either(words: str, fits: Callable[[Any], object], other: Kind) -> Kind:
    """Values that `fits` is true for, and those of another kind, which says what is wrong."""
    return Kind(f"{words}, or {other.words}", lambda name, value: fits(value) or other.check(name, value), other.null)


def _trained(kind: Kind, unlimited: str) -> Kind:
    """Without 0, with which no step would be trained."""

    def check(name: str, value: Any) -> None:
        if value == 0 and not isinstance(value, bool):
            raise ValueError(f"{name} is 0, so nothing would be trained; give at least 1, or {unlimited}")
        kind.check(name, value)

    return Kind(f"{kind.words}, but not 0", check)


def _set_by(group: str) -> Kind:
    def check(name: str, value: Any) -> None:
        raise ValueError(f"{name} is set by the group {group}; leave it out, and give {group}=...")

    return Kind(f"set by the group {group}", check, null=False)


def _seed(name: str, value: Any) -> None:
    if as_seed(value) >= 2**32:
        raise ValueError(
            f"seed is {value}; it must be below 2**32, as numpy's has to be: sampler.seed and datamodule.seed take 64 "
            "bits"
        )


def _device(name: str, value: Any) -> None:
    gpu = str(value).removeprefix("cuda:")
    way = f": for that GPU, set CUDA_VISIBLE_DEVICES={gpu}" if gpu.isdecimal() else ""
    among(f"auto, cpu or cuda{way}", lambda wish: wish in ("auto", "cpu", "cuda")).check(name, value)


def _folder(name: str, value: Any) -> None:
    check_folder(name, value)
    if not is_writable(Path(value).expanduser().absolute()):
        raise ValueError(f"{name} is {value}; that is no folder that can be written to or made, give another one")


def _file(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"{name} is {shown(value)}; it must be the path of a file")
    if Path(value).is_dir():
        raise ValueError(f"{name} is {value}, which is a folder; it must be the path of a file")
    _folder(name, os.path.dirname(value) or ".")


def _checkpoint(name: str, value: Any) -> None:
    if not isinstance(value, str) or not Path(value).is_file():
        way = "give <folder of the run>/checkpoints/step.ckpt"
        raise FileNotFoundError(f"{name} is {value or repr(value)}; there is no such file: {way}")


def _is_share_or_size(value: Any) -> bool:
    return 0 <= value < math.inf and not (isinstance(value, float) and value > 1)


_FLAG = Kind("true or false", as_flag)
_DTYPE = Kind("name of a torch.dtype", as_dtype)
_WRITTEN_FOLDER, _WRITTEN_FILE = Kind("path of a folder", _folder, False), Kind("path of a file", _file, False)
_SHARE_OR_SIZE = number("a share from 0.0 to 1.0, or an integer of at least 0", _is_share_or_size)
_TEXT = among("text, without a folder", lambda value: isinstance(value, str))
_TIME = among(
    "days:hours:minutes:seconds, e.g. 00:12:00:00",
    lambda value: isinstance(value, Mapping) or (isinstance(value, str) and re.fullmatch(r"\d+(:\d+){3}", value)),
)
_INTERVAL = number("above 0, or null to validate after each epoch", lambda value: value != 0)


def _interval(name: str, value: Any) -> None:
    for kind in (_TIME,) if isinstance(value, str | Mapping) else (_SHARE_OR_SIZE, _INTERVAL):
        kind.check(name, value)


_DEVICES = either(
    "auto, -1 or indices of GPUs",
    lambda value: (
        value == -1
        or isinstance(value, ListConfig)
        or (isinstance(value, str) and re.fullmatch(r"auto|[\d, -]+", value))
    ),
    integer(1),
)

_PLACES = {  # of a callback or a logger
    **dict.fromkeys(("filename", "name"), _TEXT),
    **dict.fromkeys(
        ("dirpath", "save_dir"), either('""', lambda value: value == "", _WRITTEN_FOLDER._replace(null=True))
    ),
    "path": _WRITTEN_FILE,
}

# By the place of the options: "" is the top, * stands for each callback or logger.
OPTIONS: dict[str, dict[str, Kind]] = {
    "": {
        "task": Kind("node or link", null=False),
        "task_name": Kind("text", null=False),
        "mode": Kind("train, predict or evaluate", null=False),
        "memory": Kind("auto, or number of GiB"),
        "optimized_metric": Kind("name of a metric", null=False),
        "seed": Kind("integer of at least 0 and below 2**32", _seed, null=False),
        **dict.fromkeys(("debug", "timeline", "exact_test", "embeddings"), _FLAG._replace(null=False)),
        "new_links": integer(1)._replace(null=False),
        "ckpt_path": Kind("path of a checkpoint", _checkpoint),
        "device": Kind("auto, cpu or cuda", _device, null=False),
        "num_threads": Kind("integer of at least 1", lambda _, value: as_threads(value)),
        "data_dir": Kind("path of a folder", check_folder, null=False),
        "cache_dir": Kind("path of a folder", check_folder),
        **dict.fromkeys(("run_dir", "checkpoint_dir"), _WRITTEN_FOLDER),
        "result_path": _WRITTEN_FILE._replace(null=True),
    },
    "trainer": {
        **{name: _set_by("callbacks") for name in ("callbacks", "enable_checkpointing", "enable_progress_bar")},
        "logger": _set_by("logger"),
        **dict.fromkeys(("max_epochs", "max_steps"), _trained(integer(-1), "-1 for no limit")),
        "limit_train_batches": _trained(_SHARE_OR_SIZE, "null for all"),
        **{f"limit_{split}_batches": _SHARE_OR_SIZE for split in ("val", "test", "predict")},
        "overfit_batches": _SHARE_OR_SIZE,
        "num_sanity_val_steps": integer(-1),
        **dict.fromkeys(("min_epochs", "min_steps", "log_every_n_steps"), integer(0)),
        **dict.fromkeys(("num_nodes", "accumulate_grad_batches", "check_val_every_n_epoch"), integer(1)),
        **dict.fromkeys(("sync_batchnorm", "detect_anomaly", "inference_mode", "enable_model_summary"), _FLAG),
        "benchmark": _FLAG,
        "deterministic": either("warn", lambda value: value == "warn", _FLAG),
        "fast_dev_run": either("true or false", lambda value: isinstance(value, bool), integer(0)),
        "val_check_interval": Kind(f"{_SHARE_OR_SIZE.words} (but not 0), or {_TIME.words}", _interval),
        "devices": _DEVICES,
        "gradient_clip_val": number(
            "at least 0 and finite, or null for no clipping", lambda value: 0 <= value < math.inf
        ),
        "profiler": among(
            "null, one of simple, advanced, pytorch, xla, or have a _target_",
            lambda value: (
                value in ("simple", "advanced", "pytorch", "xla")
                or (isinstance(value, Mapping) and "_target_" in value)
            ),
        ),
        "max_time": _TIME,
        "accelerator": one_of("auto", "cpu", "gpu", "cuda", way=": leave it out, and give device")._replace(null=False),
        "strategy": Kind("auto, or name of a strategy of Lightning", null=False),
        "precision": Kind("name of a precision of Lightning, e.g. bf16-mixed"),
        "gradient_clip_algorithm": Kind("norm or value"),
        "default_root_dir": _WRITTEN_FOLDER._replace(null=True),
    },
    "callbacks.*": {
        "monitor": Kind("name of a metric"),
        "patience": integer(0),
        "mode": among("min or max", lambda value: value in ("min", "max"))._replace(null=False),
        "min_delta": Kind("number", as_number),
        **_PLACES,
    },
    "logger.*": _PLACES,
    "features": {  # of the stores of `loader.stores`, which are only made when the data were read
        **dict.fromkeys(("dtype", "storage_dtype"), _DTYPE),
        "fraction": number("in 0 to 1", lambda value: 0 <= value <= 1),
        "budget_gib": Kind("number of at least 0", as_finite),
        "hotness": one_of("degree", "pagerank", "visits"),
        "gpu_share": number("in (0, 1]", lambda value: 0 < value <= 1),
        "timeout": number("greater than 0 and at most 86400 seconds, a day", lambda value: 0 < value <= 86400),
        **dict.fromkeys(("batches_per_exchange", "buffer_mib"), integer(1)),
        "num_threads": Kind("integer of at least 1", lambda _, value: as_threads(value)),
        "host_threads": integer(0, _core.max_threads),
        "lookahead": integer(0, _core.most_together),
        **dict.fromkeys(("lazy", "copy"), _FLAG),
    },
}


def declared_values(name: str) -> str:
    """The values that an option may have, in words; "" if its class declares them.

    Args:
        name: of the option, e.g. "trainer.max_epochs" or "callbacks.best.mode".
    """
    group, *entry, option = name.split(".") if "." in name else ("", name)
    kind = OPTIONS.get(f"{group}.*" if entry else group, {}).get(option)
    return "" if kind is None else kind.words + (", or null" if kind.null and "null" not in kind.words else "")


def described() -> str:
    """All options that are declared here, one a line, with their values: a part of `train.py --help`."""
    names = [f"{place}.{name}".lstrip(".") for place, kinds in OPTIONS.items() for name in kinds]
    found = {name: declared_values(name) for name in names}
    return "\n".join(f"{name}: {words}" for name, words in found.items() if not words.startswith("set by"))


def check_values(cfg: DictConfig) -> None:
    """Raises TypeError, ValueError or FileNotFoundError for an option that has none of the values declared for it."""
    check_part("", cfg)
    check_part("trainer", cfg.trainer)
    for group in ("callbacks", "logger"):
        for name, entry in entries(cfg, group):
            # A mode without a monitor is that of a callback of the user's own.
            check_part(f"{group}.{name}", entry, () if entry.get("monitor") is not None else ("mode",))


def check_part(place: str, options: Mapping[Any, Any], left_out: tuple[str, ...] = ()) -> None:
    """Checks the options of one place, e.g. "trainer" or "callbacks.best"; see `check_values`."""
    group, _, entry = place.partition(".")
    for name, kind in OPTIONS[f"{group}.*" if entry else group].items():
        if name not in options or name in left_out or (options[name] is None and kind.null):
            continue
        kind.check(f"{place}.{name}" if place else name, options[name])


def entries(cfg: DictConfig, group: str) -> Iterator[tuple[str, DictConfig]]:
    """The callbacks or loggers of a run, by name; an entry that is null is left out.

    Raises:
        ValueError: an entry has no options.
    """
    for name, entry in (cfg.get(group) or {}).items():
        if entry is not None and not isinstance(entry, DictConfig):
            raise ValueError(f"{group}.{name} is {shown(entry)}; it must be null, or have a _target_")
        if entry is not None:
            yield str(name), entry

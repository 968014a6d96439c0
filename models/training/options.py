"""The options of a run that no class looks at before work starts: which values each may have.

`check_values` refuses other values, the pages of `docs/options/` and `--help` show these. What an option means stands
beside its default, in `conf/`. The options of a sampler, a model or a dataset are declared by its class, which checks
them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, ListConfig

from loader import _core
from loader.datasets.locations import check_folder, is_writable
from loader.machine.arguments import as_finite, as_flag, as_number, as_seed, as_size, shown
from loader.stores.rows import as_dtype

_ARTICLES = {"integer": "an integer", "number": "a number", "path": "the path", "name": "the name"}


class Kind(NamedTuple):
    """The values that an option may have.

    Attributes:
        words: what they are, for the page of the option and for the message on another one.
        fits: false for another value, or raises AttributeError, TypeError or ValueError. By default the class that the
            option goes to checks it.
        null: whether null is one of them.
        way: what only the message says, after the words.
    """

    words: str
    fits: Callable[[Any], object] = lambda _: True
    null: bool = True
    way: str = ""

    def check(self, name: str, value: Any) -> None:
        """Raises ValueError unless the option `name` may have that value."""
        with suppress(AttributeError, TypeError, ValueError):
            if (value is None and self.null) or self.fits(value):
                return
        given = repr(value) if isinstance(value, str) else shown(value)
        words = re.sub(r"(?:^|(?<=, or ))(integer|number|path|name)\b", lambda word: _ARTICLES[word[0]], self.words)
        raise ValueError(f"{name} is {given}; it must be {words}{self.way}")


def _taken(check: Callable[[str, Any], object]) -> Callable[[Any], bool]:
    """Whether a function of `loader.machine.arguments` takes a value; it raises for others."""
    return lambda value: check("", value) is not None


def one_of(*known: str, null: bool = True, way: str = "") -> Kind:
    return Kind(f"one of {', '.join(known)}", lambda value: value in known, null, way)


def number(words: str, fits: Callable[[float], object]) -> Kind:
    return Kind(words, lambda value: fits(as_number("", value)))


def integer(least: int, most: int | None = None, *, null: bool = True, way: str = "") -> Kind:
    words = f"integer of at least {least}" + ("" if most is None else f" and at most {most}")
    return Kind(words, _taken(lambda name, value: as_size(name, value, least, most)), null, way)


def either(words: str, fits: Callable[[Any], object], other: Kind) -> Kind:
    """Values that `fits` is true for, and those of another kind."""
    return other._replace(words=f"{words}, or {other.words}", fits=lambda value: fits(value) or other.fits(value))


def _trained(kind: Kind, unlimited: str) -> Kind:
    way = f", with which nothing would be trained: give {unlimited} for no limit"
    return Kind(f"{kind.words}, but not 0", lambda value: kind.fits(value) and value != 0, way=way)


def _set_by(group: str) -> Kind:
    return Kind(f"set by the group {group}", lambda _: False, False, f": leave it out, and give {group}=...")


def _is_path(value: Any) -> bool:
    check_folder("", value)
    return True


def _is_folder(value: Any) -> bool:
    return _is_path(value) and is_writable(Path(value).expanduser().absolute())


def _is_file(value: Any) -> bool:
    return value.strip() != "" and not Path(value).is_dir() and _is_folder(Path(value).parent)


def _is_share_or_size(value: Any) -> bool:
    return 0 <= as_number("", value) < math.inf and not (isinstance(value, float) and value > 1)


def _is_devices(value: Any) -> bool:
    several = isinstance(value, ListConfig) or (isinstance(value, str) and re.fullmatch(r"auto|[\d, -]+", value))
    return bool(several) or value == -1 or as_size("", value) > 0


def _is_time(value: Any) -> bool:
    return isinstance(value, Mapping) or re.fullmatch(r"\d+(:\d+){3}", value) is not None


_FLAG = Kind("true or false", _taken(as_flag))
_DTYPE = Kind("name of a torch.dtype", _taken(as_dtype), way=", e.g. float16")
_THREADS = integer(1, _core.max_threads)._replace(
    words="integer of at least 1", way=f" and at most {_core.max_threads}"
)
_FOLDER = Kind("path of a folder", _is_path, way=", e.g. '.' for this one")
_WRITTEN_FOLDER = Kind("path of a folder", _is_folder, False, " that can be written to or made")
_WRITTEN_FILE = Kind("path of a file", _is_file, False, ", in a folder that can be written to or made")
_SHARE_OR_SIZE = Kind("a share from 0.0 to 1.0, or an integer of at least 0", _is_share_or_size)
_TEXT = Kind("text, without a folder", lambda value: isinstance(value, str))
_TIME = Kind("days:hours:minutes:seconds, e.g. 00:12:00:00", _is_time)
_EMPTY_OR_FOLDER = either('""', lambda value: value == "", _WRITTEN_FOLDER._replace(null=True))
# Of a callback or a logger.
_PLACES = {
    "filename": _TEXT,
    "name": _TEXT,
    "dirpath": _EMPTY_OR_FOLDER,
    "save_dir": _EMPTY_OR_FOLDER,
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
        "seed": Kind(
            "integer of at least 0 and below 2**32",
            lambda value: as_seed(value) < 2**32,
            null=False,
            way=": sampler.seed and datamodule.seed take 64 bits",
        ),
        **dict.fromkeys(("debug", "timeline", "exact_test", "embeddings"), _FLAG._replace(null=False)),
        "new_links": integer(1, null=False),
        "ckpt_path": Kind(
            "path of a checkpoint",
            lambda value: Path(value).is_file(),
            way=", and there is no such file: give <folder of the run>/checkpoints/step.ckpt",
        ),
        "device": Kind(
            "auto, cpu or cuda",
            lambda value: value in ("auto", "cpu", "cuda"),
            null=False,
            way=": CUDA_VISIBLE_DEVICES=<number> says which GPU",
        ),
        "num_threads": _THREADS,
        "data_dir": _FOLDER._replace(null=False),
        "cache_dir": _FOLDER,
        **dict.fromkeys(("run_dir", "checkpoint_dir"), _WRITTEN_FOLDER),
        "result_path": _WRITTEN_FILE._replace(null=True),
    },
    "trainer": {
        **{name: _set_by("callbacks") for name in ("callbacks", "enable_checkpointing", "enable_progress_bar")},
        "logger": _set_by("logger"),
        **dict.fromkeys(("max_epochs", "max_steps"), _trained(integer(-1), "-1")),
        "limit_train_batches": _trained(_SHARE_OR_SIZE, "null"),
        **{f"limit_{split}_batches": _SHARE_OR_SIZE for split in ("val", "test", "predict")},
        "overfit_batches": _SHARE_OR_SIZE,
        "num_sanity_val_steps": integer(-1),
        **dict.fromkeys(("min_epochs", "min_steps", "log_every_n_steps"), integer(0)),
        **dict.fromkeys(("num_nodes", "accumulate_grad_batches", "check_val_every_n_epoch"), integer(1)),
        **dict.fromkeys(("sync_batchnorm", "detect_anomaly", "inference_mode", "enable_model_summary"), _FLAG),
        "benchmark": _FLAG._replace(fits=lambda value: isinstance(value, bool)),
        "deterministic": either("warn", lambda value: value == "warn", _FLAG),
        "fast_dev_run": either("true or false", lambda value: isinstance(value, bool), integer(0)),
        "val_check_interval": Kind(
            f"{_SHARE_OR_SIZE.words} (but not 0), or {_TIME.words}",
            lambda value: (
                _is_time(value) if isinstance(value, str | Mapping) else value != 0 and _is_share_or_size(value)
            ),
            way=", or null to validate after each epoch",
        ),
        "devices": Kind("auto, -1 or indices of GPUs, or integer of at least 1", _is_devices),
        "gradient_clip_val": number(
            "at least 0 and finite, or null for no clipping", lambda value: 0 <= value < math.inf
        ),
        "profiler": Kind(
            "null, one of simple, advanced, pytorch, xla, or have a _target_",
            lambda value: (
                value in ("simple", "advanced", "pytorch", "xla")
                or (isinstance(value, Mapping) and "_target_" in value)
            ),
        ),
        "max_time": _TIME,
        "accelerator": one_of("auto", "cpu", "gpu", "cuda", null=False, way=": leave it out, and give device"),
        "strategy": Kind("auto, or name of a strategy of Lightning", null=False),
        "precision": Kind("name of a precision of Lightning, e.g. bf16-mixed"),
        "gradient_clip_algorithm": Kind("norm or value", lambda value: value in ("norm", "value")),
        "default_root_dir": _WRITTEN_FOLDER._replace(null=True),
    },
    "callbacks.*": {
        "monitor": Kind("name of a metric"),
        "patience": integer(0),
        "mode": Kind("min or max", null=False),
        "min_delta": Kind("number", _taken(as_number)),
        **_PLACES,
    },
    "logger.*": _PLACES,
    "features": {  # of the stores of `loader.stores`, which are only made when the data were read
        **dict.fromkeys(("dtype", "storage_dtype"), _DTYPE),
        "fraction": number("in 0 to 1", lambda value: 0 <= value <= 1),
        "budget_gib": Kind("number of at least 0", _taken(as_finite)),
        "hotness": one_of("degree", "pagerank", "visits"),
        "gpu_share": number("in (0, 1]", lambda value: 0 < value <= 1),
        "timeout": number("greater than 0 and at most 86400 seconds, a day", lambda value: 0 < value <= 86400),
        **dict.fromkeys(("batches_per_exchange", "buffer_mib"), integer(1)),
        "num_threads": _THREADS,
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
    """Raises ValueError for an option that has none of the values declared for it."""
    check_part("", cfg)
    check_part("trainer", cfg.trainer)
    for group in ("callbacks", "logger"):
        for name, entry in entries(cfg, group):
            check_part(f"{group}.{name}", entry)


def check_part(place: str, options: Mapping[Any, Any]) -> None:
    """Checks the options of one place, e.g. "trainer" or "callbacks.best"; see `check_values`."""
    group, _, entry = place.partition(".")
    for name, kind in OPTIONS[f"{group}.*" if entry else group].items():
        if name in options:
            kind.check(f"{place}.{name}".lstrip("."), options[name])


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

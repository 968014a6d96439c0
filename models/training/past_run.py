"""The options of a run that has ended, for predictions and evaluations with its model."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict

from loader.machine.trusted_files import UntrustedError, open_trusted
from models.training.errors import fail
from models.training.renamed_options import rename_options, with_new_names

MODES = ("train", "predict", "evaluate")
# Options of a training, which have no effect here, and the values that say so. callbacks=NAME may leave out the bar.
_OF_TRAINING: dict[str, tuple[str | bool | None, ...]] = {
    "result_path": (None,),
    "timeline": (False,),
    "optimized_metric": (),
    "logger": (None, "none"),
    "callbacks": ("default", "quiet", "none"),
    "trainer.strategy": ("auto",),
}
_FIXED = ("task", "experiment", "hparams_search", "model")  # groups that make another model, or change several parts


def with_choices_of_past_run(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line, and the groups that the run of its `ckpt_path` chose.

    So an option that the chosen dataset has can be given, e.g. `dataset.path`. Without a `mode` that uses a past run,
    and where something is amiss, the arguments stay as they are: `options_of_past_run` says what.
    """
    given = dict(one.partition("=")[::2] for one in arguments)
    if given.get("mode") not in MODES[1:] or "ckpt_path" not in given:
        return list(arguments)
    saved = _folder(Path(given["ckpt_path"].strip("'\""))) / "hydra.yaml"
    for option in ("hydra.run.dir", "run_dir"):
        place = given.get(option, "").strip("'\"")
        if place and Path(place).absolute() == saved.parent.parent:
            # Hydra writes there before anything of ours runs.
            why = "the folder of the run that ckpt_path is of; its options would be written over"
            fail(f"{option} is {place}, {why}: leave it out, or give another folder")
    try:
        choices = _choices(saved)
    except ValueError:
        return list(arguments)
    return [*(f"{group}={choice}" for group, choice in choices.items() if group not in given), *arguments]


def options_of_past_run(cfg: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """The options of the run that wrote `cfg.ckpt_path`, with those of this command line in place of some.

    Args:
        cfg: of this command line, composed from `conf/train.yaml`.
        overrides: of this command line, e.g. `["mode=predict", "ckpt_path=..."]`.

    Raises:
        ValueError: there is no `ckpt_path`, it lies in no folder of a run, or an option cannot be changed afterwards.
        FileNotFoundError: there is no such checkpoint.
    """
    from loader.machine.arguments import shown  # imports torch, which takes seconds

    mode = cfg.mode
    if mode not in MODES:
        raise ValueError(f"mode is {shown(mode)}; it must be one of {', '.join(MODES)}")
    way = "ckpt_path=<folder of the run>/checkpoints/best.ckpt"
    if cfg.ckpt_path is None:
        raise ValueError(f"mode={mode} needs the checkpoint of a run; add {way}")
    path = Path(str(cfg.ckpt_path))
    if not path.is_file():
        raise FileNotFoundError(f"ckpt_path is {path}; there is no such file: give {way}")
    saved = _folder(path) / "config.yaml"
    if not saved.is_file():
        raise ValueError(
            f"ckpt_path is {path}, but {saved}, which has the options of its run, is not there; give {way}"
        )
    past = _load(saved)
    assert isinstance(past, DictConfig)
    choices = _choices(saved.with_name("hydra.yaml"))
    rename_options(past, cfg, (), warn=False)
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    with open_dict(past):
        for key in cfg:  # an option that this release has and that one had not
            if key not in past:
                past[key] = cfg[key]
        for override in parsed:
            key = override.key_or_group.replace("/", ".")
            if key in choices and override.value() == choices[key]:
                continue  # as it was
            given, kind, why = OmegaConf.select(cfg, key), _of_training(key), None
            if key in _FIXED or key in ("trainer.devices", "trainer.num_nodes"):
                why = "it is one process" if key.startswith("trainer") else f"{key} is that of {saved}"
            elif kind and override.value() not in _OF_TRAINING[kind] and given != OmegaConf.select(past, key):
                why = f"{kind} is of a training, and this run has none"
            if why:
                raise ValueError(f"{override.input_line} does not go with mode={mode}: {why}; leave it out")
            OmegaConf.update(past, key, given, merge=False)
        asked = any(override.key_or_group == "dataset.later_rows" for override in parsed)
        if mode == "predict" and not asked and OmegaConf.select(past, "dataset.later_rows") is False:
            past.dataset.later_rows = True  # items that are predicted see all rows up to their time
    return past


def _of_training(key: str) -> str | None:
    """The part of a training that an option says something of; None if it has an effect on a run that has ended."""
    if key.startswith("callbacks.progress"):
        return None
    return next((part for part in _OF_TRAINING if key == part or key.startswith(f"{part}.")), None)


def overrides_of_past_run(checkpoint: Path) -> list[str]:
    """The command line of the run that wrote a checkpoint, as Hydra keeps it; empty if it kept none."""
    saved = _folder(checkpoint) / "overrides.yaml"
    given = [str(one) for one in OmegaConf.load(saved)] if saved.is_file() else []
    return with_new_names(given, warn=False)


def _folder(checkpoint: Path) -> Path:
    """Where Hydra keeps the options of the run that wrote a checkpoint."""
    return checkpoint.absolute().parent.parent / ".hydra"


def _choices(saved: Path) -> dict[str, str]:
    """The groups that a run chose, by name, from the file in which Hydra keeps them."""
    choices = OmegaConf.select(_load(saved), "hydra.runtime.choices") if saved.is_file() else None
    return {str(group): str(choice) for group, choice in (choices or {}).items() if choice and "/" not in str(group)}


def _load(saved: Path) -> DictConfig | ListConfig:
    """What Hydra wrote into a file. It names the classes of which objects are made, so it is code.

    Raises:
        ValueError: others can have written it.
    """
    try:
        with io.TextIOWrapper(open_trusted(saved), encoding="utf-8") as file:
            return OmegaConf.load(file)
    except UntrustedError as error:
        raise ValueError(f"ckpt_path: {error}. Options of a run say what is called, so they are code") from error

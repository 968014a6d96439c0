"""Options of `train.py` that had another name in the release before.

Nothing here needs torch, as in `models.training.command_line`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from models.training.ranks import rank_here

# Old name -> new one. Where a configuration has no option of the new name, the old one is an own class's.
RENAMED = {
    "datamodule.amount": "datamodule.num_negatives",
    "datamodule.ranked": "datamodule.eval_negatives",
    "model.hidden": "model.hidden_channels",
    "sampler.vertex_set": "sampler.node_set",
}
# Classes that are elsewhere, by the names that `_target_` had.
_MOVED = {
    "loader.datasets.SyntheticDataset": "models.synthetic.SyntheticDataset",
    "loader.datasets.LargeSyntheticDataset": "models.synthetic.LargeSyntheticDataset",
    "models.synthetic.TypedSyntheticDataset": "models.synthetic.HeteroSyntheticDataset",
}


def with_new_names(arguments: Sequence[str], *, warn: bool, conf: Path | None = None) -> list[str]:
    """The arguments of a command line, with the new names of options.

    Args:
        arguments: `NAME=VALUE`, or others, which stay. `+NAME=VALUE` stays, too: it adds an option of an own class.
        warn: give a FutureWarning for each old name, in the first process of a run. Of an own class, which
            `model._target_=` gives, there is none: the old name may be its own.
        conf: the folder of the configuration. Options of a file that it does not have, as in `--config-dir=mine
            model=mine`, stay.

    Raises:
        ValueError: an option is given by both names.
    """
    given = dict(argument.partition("=")[::2] for argument in arguments)
    found = []
    for argument in arguments:
        plain = argument.partition("=")[0].removeprefix("++").removeprefix("~")
        group = plain.partition(".")[0]
        own = conf is not None and group in given and not (conf / group / f"{given[group]}.yaml").is_file()
        if plain not in RENAMED or own:
            found.append(argument)
            continue
        new = RENAMED[plain]
        if new in given:
            raise ValueError(f"{plain} is the old name of {new}, which is given, too; leave out {plain}")
        if warn and f"{group}._target_" not in given:
            _warn(plain, new)
        found.append(argument.replace(plain, new, 1))
    return found


def rename_options(cfg: DictConfig, known: DictConfig, overrides: Sequence[str], *, warn: bool) -> None:
    """Gives options of `cfg` that have an old name, as in a user's experiment or an earlier run, the new one.

    Args:
        cfg: of a run.
        known: composed from this release's `conf/`: what has an option of the new name.
        overrides: of the command line, which go before what a file has.
        warn: as `with_new_names`.
    """
    for part in cfg.values():
        if isinstance(part, DictConfig) and (moved := _MOVED.get(str(part.get("_target_")))) is not None:
            if warn:
                _warn(str(part["_target_"]), moved)
            part["_target_"] = moved
    given = {one.lstrip("+").partition("=")[0] for one in overrides}
    for old, new in RENAMED.items():
        (group, _, before), after = old.rpartition("."), new.rpartition(".")[2]
        options = OmegaConf.select(cfg, group)
        if not isinstance(options, DictConfig) or before not in list(options):
            continue
        if after not in list(OmegaConf.select(known, group) or ()):
            continue
        if warn:
            _warn(old, new)
        with open_dict(options):
            value = options.pop(before)
            if new not in given:
                options[after] = value


def with_new_hparams(saved: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a model in a checkpoint of the release before, with the names of this one.

    Args:
        saved: of the checkpoint.
        known: of the model as it is now.
    """
    found = dict(saved)
    for old, new in RENAMED.items():
        before, after = old.removeprefix("model."), new.removeprefix("model.")
        if before in found and before not in known and after in known:
            found[after] = found.pop(before)
    return found


def _warn(old: str, new: str) -> None:
    if rank_here() == 0:
        warnings.warn(f"{old} is now {new}; the old name goes with the next release", FutureWarning, stacklevel=3)

"""What the command line of a run may say, and what is said of the rest."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from loader.machine.command_line import called
from models.training.errors import fail, said
from models.training.renamed import RENAMED, with_new_names
from models.training.sweeps import LAUNCHERS, failed_job

_FULL = "HYDRA_FULL_ERROR"
_NO_WORD = re.compile(r"[-+]?\d[\d_.e]*|true|false", re.IGNORECASE)  # as Hydra reads numbers and truth values
_RUN = "<folder of the run>/checkpoints"
_THREADS = "num_threads says how many threads sample on the CPU, datamodule.prefetch how many mini-batches are ready"
_MEANT = {  # names that others have, and the way out
    **dict.fromkeys(("resume", "checkpoint", "resume_from_checkpoint"), f"ckpt_path={_RUN}/step.ckpt continues a run"),
    "predict": f"mode=predict ckpt_path={_RUN}/best.ckpt predicts",
    **dict.fromkeys(("evaluate", "eval", "test"), f"mode=evaluate ckpt_path={_RUN}/best.ckpt evaluates"),
    **dict.fromkeys(("gpu", "gpus"), "device=cuda takes a GPU, and trainer.devices=2 two of them"),
    **dict.fromkeys(("num_workers", "workers"), _THREADS),
    "pin_memory": "features=pinned keeps features in page-locked memory",
    "num_neighbors": "its name here is sampler.fanouts",
    "hidden": "its name here is model.hidden_channels",
    "shuffle": "the training split is always shuffled, as seed says",
}
_FILES = {".npz": "npz dataset.path", **dict.fromkeys((".csv", ".tsv", ".parquet", ".gz"), "edge_list dataset.edges")}
_DIRNAME = "hydra.job.config.override_dirname"
_OPTIONAL = ("experiment", "hparams_search")  # groups that are empty unless they are chosen


def choices(conf: Path, group: str) -> list[str]:
    """The options of a group, in the order of the alphabet."""
    return sorted(path.stem for path in (conf / group).glob("*.yaml"))


def parts(conf: Path) -> set[str]:
    """The names that a configuration has at its top."""
    return {*map(str, OmegaConf.load(conf / "train.yaml")), "hydra", *(p.name for p in conf.iterdir() if p.is_dir())}


def check_keys(cfg: DictConfig, conf: Path) -> None:
    """Raises ValueError for a name at the top of a configuration, of an experiment's file say, that nothing reads."""
    known, text = parts(conf), OmegaConf.to_yaml(cfg)
    if HydraConfig.initialized():  # folders of runs may be named after it
        text += OmegaConf.to_yaml(HydraConfig.instance().cfg)
    for key in map(str, cfg):
        if key not in known and not re.search(rf"\$\{{\.*{re.escape(key)}\b", text):
            raise ValueError(
                f"{key} is set, but no part of a run has that name and nothing refers to it, so nothing would read it: "
                f"leave it out{_nearest(key, known)}"
            )


def prepared(arguments: Sequence[str], conf: Path) -> list[str]:
    """The arguments as Hydra takes them: `group=null` is that group's option `none`, or left out where that is meant.
    Flags come first, since Hydra's parser takes no `seed=1,2` after `model.lr=0.1 -m`.

    Raises:
        ValueError: a group that has to have an option is null, or is a number or a truth value.
    """
    result, arguments = _divided(arguments, conf)
    known = parts(conf)
    for argument in arguments:
        added = re.match(r"\+{1,2}(\w+)", argument)
        if added is not None and added[1] not in known:
            raise ValueError(
                f"there is no option {added[1]}, so nothing would read it: leave it out{_nearest(added[1], known)}"
            )
        group, _, value = argument.partition("=")
        if group in ("hydra.run.dir", "hydra.sweep.dir") and not value.strip("'\""):
            raise ValueError(f"{group} is empty; give the folder of the run, or leave it out")
        if "@" in group:
            raise ValueError(f"cannot read the argument {argument}; a name has no @, it must be NAME=VALUE")
        if argument.startswith("="):
            raise ValueError(f"cannot read the argument {argument}; it must be NAME=VALUE, without spaces")
        if group == "dataset" and "=" not in value and (suffix := Path(value).suffix.lower()) in _FILES:
            raise ValueError(f"dataset is {value}, a file; give dataset={_FILES[suffix]}={value}")
        if group == "dataset" and "=" not in value and suffix[1:].isalpha():
            raise ValueError(
                f"dataset is {value}, a file that is not read; make a .npz, .csv, .tsv or .parquet file of it, "
                "docs/tutorials/own_tables.md shows how"
            )
        if group.isidentifier() and (conf / group).is_dir() and _NO_WORD.fullmatch(value):
            raise ValueError(f"{group} is {value}; it must be one of {', '.join(choices(conf, group))}")
        if value != "null" or not group.isidentifier() or not (conf / group).is_dir():
            result.append(argument)
        elif (conf / group / "none.yaml").is_file():
            result.append(f"{group}=none")
        elif group not in _OPTIONAL:
            raise ValueError(f"{group} is null; it must be one of {', '.join(choices(conf, group))}")
    return result


def _divided(arguments: Sequence[str], conf: Path) -> tuple[list[str], list[str]]:
    """Hydra's flags with their values, and the other arguments.

    Raises:
        ValueError: an argument with dashes is none of Hydra's: its parser would print ten lines. Or the folder of
            `--config-dir` is missing, which Hydra would not say.
    """
    known = get_args_parser()._option_string_actions
    flags: list[str] = []
    others: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        flag, equals, value = argument.partition("=")
        if not re.match(r"--?[a-zA-Z]", flag):
            others.append(argument)
            continue
        action = next((known[one] for one in known if one == flag or one.startswith(flag)), None)
        if action is None:
            name = flag.lstrip("-")
            if meant := _MEANT.get(name.replace("-", "_")):
                raise ValueError(f"there is no option {flag}; {meant}")
            way = _nearest(name, [one[2:] for one in known if one.startswith("--")]).replace("mean ", "mean --")
            if not way:
                if not (conf / name).is_dir():  # which is a group of options
                    name = next(iter(_elsewhere(name.replace("-", "_"), _keys((), conf))), name)
                way = f"; options have no dashes: {name}={value or 'VALUE'}"
            raise ValueError(f"there is no option {flag}{way}")
        if action.dest == "config_dir" and not Path(folder := value or next(iter(left), "")).is_dir():
            raise ValueError(f"{flag} is {folder!r}; there is no such folder: give one that holds configurations")
        if action.dest == "config_name" and (given := value or next(iter(left), "")) != "train":
            folders = [conf, *(Path(one.partition("=")[2]) for one in arguments if one.startswith("--config-dir="))]
            if not any((folder / f"{given.removesuffix('.yaml')}.yaml").is_file() for folder in folders):
                raise ValueError(
                    f"{flag} is {given!r}; no such file is in {conf}: leave it out, which takes train.yaml"
                )
        flags.append(argument)
        if equals or action.nargs == 0:
            continue
        if action.nargs is None or (left and left[0] in (action.choices or ())):
            flags += left[:1]
            left = left[1:]
        else:  # it would take the first option for its value
            flags[-1] = f"{action.option_strings[0]}={action.const}"
    return flags, others


@contextmanager
def composing(conf: Path) -> Iterator[None]:
    """While Hydra composes a configuration of the folder `conf`, what it refuses ends the process with one line.

    `composed()` ends this: what is raised afterwards is the job's.
    """
    OmegaConf.register_new_resolver("declared_values", _declared_values, replace=True)  # for --help
    if os.environ.get(_FULL) == "1":  # asked for
        sys.argv[1:] = with_new_names(sys.argv[1:], warn=True, conf=conf)
        yield
        return
    os.environ[_FULL] = "1"  # else Hydra prints its errors itself, and ends the process
    try:
        sys.argv[1:] = prepared(with_new_names(sys.argv[1:], warn=True, conf=conf), conf)
        yield
    except KeyboardInterrupt:
        fail("interrupted", 130, title="")
    except (HydraException, OmegaConfBaseException, ValueError, OSError) as error:
        if os.environ.get(_FULL) != "1":
            raise
        fail(explain(error, sys.argv[1:], conf))
    except Exception as error:
        if (line := failed_job(error)) is None or os.environ.get(_FULL) != "1":
            raise
        fail(line)
    finally:
        composed()


def _declared_values() -> str:
    from models.training.options import described  # imports torch

    return described()


def composed() -> None:
    """Says that the configuration is there."""
    os.environ.pop(_FULL, None)


def command_of_rank(program: Path) -> tuple[list[str], str]:
    """The command of a further process of the run that Hydra composed, and the folder in which that runs.

    Args:
        program: which runs. `sys.argv` may name another one: a launcher's, which calls a job of a sweep.
    """
    from hydra.types import RunMode

    here = HydraConfig.get()
    # A job of a sweep is a run of its own, whose arguments are those of the job.
    arguments = sys.argv[1:] if here.mode == RunMode.RUN else list(here.overrides.task)
    folder = here.runtime.cwd
    places = [f'hydra.run.dir="{here.runtime.output_dir}"', "hydra.output_subdir=null", "hydra.mode=RUN"]
    return [sys.executable, str(program), *arguments, *places, "hydra/job_logging=stdout"], folder


def explain(error: BaseException, arguments: Sequence[str], conf: Path) -> str:
    """One line about an error of Hydra's that says what was misspelt, and what may stand there."""
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, HydraException):  # of the folder of the run
        return _long_name(error, arguments, conf) if error.errno == errno.ENAMETOOLONG else said(error)
    if isinstance(error, MissingConfigException) and isinstance(error.missing_cfg_file, str):
        group, _, choice = error.missing_cfg_file.lstrip("/").rpartition("/")
        if ".." in group.split("/"):  # of `dataset=../cora`
            group, _, choice = error.missing_cfg_file.lstrip("/").partition("/")
        if group == "hydra/launcher" and choice in LAUNCHERS:
            return f"hydra/launcher={choice} is not installed; pip install 'gnn-loader[{LAUNCHERS[choice]}]'"
        known = choices(conf, group) if group else []
        if group == "hydra/launcher":
            known = ["basic", *LAUNCHERS]
        if known:
            return f"{group} is '{choice}'; it must be one of {', '.join(known)}{_nearest(choice, known)}"
    if found := re.search(r"Ambiguous value for argument '([^=]+)=(.*?)'\n", text):
        name, values = found.groups()
        return f"{name} has several values, {values}; a list is '{name}=[{values}]', and -m starts a run per value"
    if found := re.match(r"Multiple values for (\S+)\. To override|(\S+) appears more than once in the final", text):
        group = found[1] or found[2]
        given = next((one for one in arguments if one.startswith(f"+{group}=")), f"+{group}=NAME")
        return f"{given} would add a second {group}; leave out the +: {given[1:]}"
    if isinstance(error, OverrideParseException):
        return _unreadable(str(error.override))
    if found := re.search(r"Could not append to config\. An item is already at '([^']+)'", text):
        return f"there is an option {found[1]} already; leave out the +: {found[1]}=..."
    if found := re.search(r"Could not (?:override|append to config|delete[^']*) ?'([^']+)'", text):
        key = found[1].partition("@")[0]
        return _unknown(key, arguments, conf)
    if text.startswith("Error merging override") and error.__cause__ is not None:
        why = str(error.__cause__).split("\n")[0]
        argument = text.split("\n")[0].removeprefix("Error merging override ")
        return f"cannot take the argument {argument} ({why}); `{called('train')} --help` shows the form of each option"
    return said(error) if "nterpolation" in text else _line(text) or type(error).__name__


def _long_name(error: OSError, arguments: Sequence[str], conf: Path) -> str:
    """One line about a folder that is named after more options than a name has room for."""
    name = max(str(error.filename).split(os.sep), key=len)
    what = f"the folder of the run would have a name of {len(os.fsencode(name)):,} bytes, {name[:40]}..."
    left_out = list(OmegaConf.select(OmegaConf.load(conf / "train.yaml"), f"{_DIRNAME}.exclude_keys"))
    of_all = [
        one.get_key_element()
        for one in OverridesParser.create().parse_overrides([one for one in arguments if not one.startswith("-")])
        if not one.is_sweep_override() and not one.get_key_element().startswith("hydra")
    ]
    new = [key for key in of_all if key not in left_out and f"{key}=" in name]
    way = f"leave out what all jobs have in common: '{_DIRNAME}.exclude_keys=[{','.join([*left_out, *new])}]'"
    if not new:
        way = "name it by a number, as hydra.sweep.subdir and hydra.run.dir do by default"
    return f"{what}, and names have at most 255; {way}"


def _unreadable(argument: str) -> str:
    """One line about an argument that is against Hydra's grammar."""
    name, equals, value = argument.partition("=")
    start = f"cannot read the argument {argument}; "
    if not equals or not re.fullmatch(r"[~+]{0,2}[\w./@:-]+", name):
        return start + "it must be NAME=VALUE"
    if re.search(r",[\w./@]+=", value):
        return start + "a space stands between two options, not a comma"
    if any(value.count(left) != value.count(right) for left, right in ("[]", "{}")):
        return start + f"it ends within a list or a dict: with spaces it needs quotes, as in '{name}=[10, 5]'"
    if re.fullmatch(r"\(.*\)", value):
        return start + f"a list has brackets: '{name}=[{value[1:-1]}]'"
    return start + f"quote the value, and all again for the shell: '{name}=\"{value}\"'"


def _line(text: str) -> str:
    """The first paragraph in one line."""
    return " ".join(text.split("\n\n")[0].split())


def _unknown(key: str, arguments: Sequence[str], conf: Path) -> str:
    """One line about a key that the configuration does not have."""
    keys = _keys(arguments, conf)
    given = next((argument.partition("=")[2] for argument in arguments if argument.startswith(f"{key}=")), None)
    if having := sorted(path.name for path in conf.iterdir() if path.is_dir() and given in choices(conf, path.name)):
        return f"there is no option {key}{_nearest(key, having) or f'; did you mean {having[0]}={given}?'}"
    if key in RENAMED:  # in a sweeper's file
        return f"there is no option {key}; its name is {RENAMED[key]}"
    above, _, last = key.rpartition(".")
    if last in _MEANT and above in ("", "datamodule", "trainer", "sampler", "loader", "model"):
        return f"there is no option {key}; {_MEANT[last]}"
    if having := _choices_with(key, conf):
        group = key.partition(".")[0]
        whose = " and ".join(f"{group}={choice}" for choice in having)
        way = "have it: add one of them" if len(having) > 1 else "has it: add that"
        return f"there is no option {key} here; {whose} {way}"
    if elsewhere := _elsewhere(last, keys):
        return f"there is no option {key}; did you mean {elsewhere[0]}?"
    if not above and (found := _of_choices(key, conf)):
        return f"there is no option {key}; {found}"
    beside = sorted(k.rpartition(".")[2] for k in keys if k.rpartition(".")[0] == above)
    if not beside:
        return f"there is no option {key}{_nearest(key, keys) or ';'} `{called('train')} --help` lists all"
    if not above:  # it may lack the name of its group
        full = {one.rpartition(".")[2]: one for one in sorted(keys, reverse=True)} | {one: one for one in beside}
        if close := _nearest(last, full):
            meant = close.removeprefix("; did you mean ").removesuffix("?")
            return f"there is no option {key}; did you mean {full[meant]}?"
    if close := _nearest(last, beside):
        prefix = f"{above}." if above else ""
        return f"there is no option {key}{close.replace('mean ', f'mean {prefix}')}"
    place = f"{above} has" if above else "there are"
    return f"there is no option {key}; {place} {', '.join(beside)}"


def _elsewhere(name: str, keys: Iterable[str]) -> list[str]:
    """The keys that end with `name` or, as in `max_epochs`, with the most of it."""
    return sorted(key for key in keys if key.rpartition(".")[2] in (name, f"max_{name}"))


def _of_choices(name: str, conf: Path) -> str:
    """The options that end with `name` of choices that are not chosen, and what has them; "" if none has."""
    groups = sorted(path.name for path in conf.iterdir() if path.is_dir())
    found = {group: having for group in groups if (having := _choices_with(f"{group}.{name}", conf))}
    return "; ".join(
        f"{group}.{name} is an option of {', '.join(f'{group}={choice}' for choice in having)}"
        for group, having in found.items()
    )


def _choices_with(key: str, conf: Path) -> list[str]:
    """The options of a group that have `key`, which the chosen one does not have."""
    group, _, name = key.partition(".")
    if not name or not (conf / group).is_dir():
        return []
    # Not `in`, which says no of a value that is still to be given.
    files = {one: OmegaConf.load(conf / group / f"{one}.yaml") for one in choices(conf, group)}
    # Some files set options of other groups, too, and name their own.
    return [one for one, options in files.items() if name in list(OmegaConf.select(options, group) or options)]


def _nearest(word: str, known: Iterable[str]) -> str:
    from loader.datasets.errors import nearest  # imports torch, which nobody has to wait for who spells all right

    return nearest(word, known)


def _keys(arguments: Sequence[str], conf: Path) -> set[str]:
    """All keys of the configuration with the groups that the arguments choose, as far as they can be chosen."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    chosen = []
    for argument in arguments:
        group, _, value = argument.lstrip("+~").partition("=")
        if (conf / group).is_dir() and value in choices(conf, group):
            chosen.append(f"{group}={value}")
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf), version_base="1.3"):
        cfg = compose("train", chosen)
    groups = {path.name for path in conf.iterdir() if path.is_dir()}
    return groups | set(_flat(cfg))


def _flat(cfg: DictConfig, prefix: str = "") -> Iterator[str]:
    for key in cfg:
        if str(key).startswith("_"):
            continue
        name = f"{prefix}{key!s}"
        yield name
        if not OmegaConf.is_missing(cfg, str(key)) and not OmegaConf.is_interpolation(cfg, str(key)):
            value = cfg._get_node(str(key))
            if isinstance(value, DictConfig) and not value._is_none():
                yield from _flat(value, f"{name}.")

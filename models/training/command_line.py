"""What the command line of a run may say, and what is said of the rest."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from loader.machine.command_line import called
from models.training.errors import fail, said
from models.training.renamed_options import RENAMED, with_new_names
from models.training.sweeps import LAUNCHERS, failed_job

_FULL = "HYDRA_FULL_ERROR"
_NO_CHOICE = re.compile(r"null|[-+]?\d[\d_.e]*|true|false", re.IGNORECASE)  # as Hydra reads numbers and truth values
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
_OPTIONAL = ("experiment", "hparams_search")  # groups that are empty unless they are chosen
_OF_SEVERAL = (*_OPTIONAL, "task")  # groups whose files set options of other groups only


def choices(conf: Path, group: str) -> list[str]:
    """The options of a group, in the order of the alphabet."""
    return sorted(path.stem for path in (conf / group).glob("*.yaml"))


@cache
def parts(conf: Path) -> frozenset[str]:
    """The names that a configuration has at its top. The folder is read once in a process, not for each job."""
    folders = (path.name for path in conf.iterdir() if path.is_dir())
    return frozenset({*map(str, OmegaConf.load(conf / "train.yaml")), "hydra", *folders})


def check_keys(cfg: DictConfig, conf: Path) -> None:
    """Raises ValueError for a name at the top of a configuration, of an experiment's file say, that nothing reads."""
    known = parts(conf)
    if not (others := [key for key in map(str, cfg) if key not in known]):
        return
    text = OmegaConf.to_yaml(cfg)
    if HydraConfig.initialized():  # folders of runs may be named after it
        text += OmegaConf.to_yaml(HydraConfig.instance().cfg)
    for key in others:
        if not re.search(rf"\$\{{\.*{re.escape(key)}\b", text):
            raise ValueError(f"{key} is set, but nothing reads it or refers to it: leave it out{_nearest(key, known)}")


def prepared(arguments: Sequence[str], conf: Path) -> list[str]:
    """The arguments as Hydra takes them: `group=null` is that group's option `none`, or left out where that is meant.

    Raises:
        ValueError: a flag is none of Hydra's, or a group that has to have an option is null, a number or a truth value;
            or all jobs of a sweep would write one result.
    """
    flags, options = _divided(arguments, conf)
    sweeps = any(re.fullmatch(r"-m|--multirun|hparams_search=(?!null).*", one) for one in arguments)
    for argument in options:
        name, _, value = argument.partition("=")
        if name in ("hydra.run.dir", "hydra.sweep.dir") and not value.strip("'\""):
            raise ValueError(f"{name} is empty; give the folder of the run, or leave it out")
        if name == "result_path" and sweeps and value not in ("", "null") and not re.search(r"\$\{|,", value):
            way = "give 'result_path=${run_dir}/result.json', in single quotes for the shell"
            raise ValueError(f"result_path is {value}, one file for all jobs of the sweep; {way}")
        if not name or "@" in name:
            raise ValueError(f"cannot read the argument {argument}; give NAME=VALUE, without spaces, and no @ in NAME")
        if name == "dataset" and "=" not in value and (suffix := Path(value).suffix.lower())[1:].isalpha():
            way = "make a .npz, .csv, .tsv or .parquet file of it, docs/tutorials/own_tables.md shows how"
            way = f"give dataset={_FILES[suffix]}={value}" if suffix in _FILES else way
            raise ValueError(f"dataset is {value}, a file{'' if suffix in _FILES else ' that is not read'}; {way}")
        if name.isidentifier() and (conf / name).is_dir() and _NO_CHOICE.fullmatch(value):
            if value == "null" and name in _OPTIONAL:
                continue
            if value != "null" or not (conf / name / "none.yaml").is_file():
                raise ValueError(f"{name} is {value}; it must be one of {', '.join(choices(conf, name))}")
            argument = f"{name}=none"
        flags.append(argument)
    return flags


def _divided(arguments: Sequence[str], conf: Path) -> tuple[list[str], list[str]]:
    """Hydra's flags with their values, and the other arguments. Hydra's parser takes no `seed=1,2` after `lr=0.1 -m`.

    Raises:
        ValueError: an argument with dashes is none of Hydra's: its parser would print ten lines.
    """

    def refuse(message: str) -> NoReturn:
        raise ValueError(message)

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]  # Hydra makes the parser, of a class without this
    # --info without a value would take the first option for it.
    pairs = pairwise([*arguments, ""])
    given = ["--info=all" if one in ("-i", "--info") and "=" in after else one for one, after in pairs]
    # With one dash, it would take -path=x for -p with the value ath=x.
    flags = parser._option_string_actions
    short = [one for one in given if re.match(r"-\w", one) and one.partition("=")[0] not in flags]
    known, unknown = parser.parse_known_intermixed_args([one for one in given if one not in short])
    if not (wrong := [*short, *(one for one in unknown if one.startswith("-"))]):
        return [one for one in given if one not in known.overrides], known.overrides
    flag, _, value = wrong[0].partition("=")
    word = flag.lstrip("-")
    name = word.replace("-", "_")
    way = f"; {_MEANT[name]}" if name in _MEANT else _nearest(word, {one[2:]: one for one in flags if one[:2] == "--"})
    if not way:
        full = word if (conf / word).is_dir() else next(iter(_elsewhere(name, _names((), conf))), word)
        way = f"; options have no dashes: {full}={value or 'VALUE'}"
    raise ValueError(f"there is no option {flag}{way}")


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
    except Exception as error:
        if os.environ.get(_FULL) != "1":
            raise
        known = isinstance(error, (HydraException, OmegaConfBaseException, ValueError, OSError))
        if (line := explain(error, sys.argv[1:], conf) if known else failed_job(error)) is None:
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
        if error.errno != errno.ENAMETOOLONG:
            return said(error)
        name = max(str(error.filename).split(os.sep), key=len)
        size = f"{len(os.fsencode(name)):,} bytes, {name[:40]}..., and 255 is the most"
        way = (
            "leave options out of it by 'hydra.job.config.override_dirname.exclude_keys=[...]', or name it by a number"
        )
        return f"the folder of the run would have a name of {size}; {way}"
    file = error.missing_cfg_file if isinstance(error, MissingConfigException) else None
    if isinstance(file, str) and (found := re.fullmatch(r"/?((?:hydra/)?\w+)/(.*)", file)):
        group, choice = found.groups()
        if group == "hydra/launcher" and choice in LAUNCHERS:
            return f"hydra/launcher={choice} is not installed; pip install 'gnn-loader[{LAUNCHERS[choice]}]'"
        if known := ["basic", *LAUNCHERS] if group == "hydra/launcher" else choices(conf, group):
            return f"{group} is '{choice}'; it must be one of {', '.join(known)}{_nearest(choice, known)}"
    if found := re.match(
        r"(?:Multiple values for )?(\S+?)(?:\. To override| appears more than once in the final)", text
    ):
        given = next((one for one in arguments if one.startswith(f"+{found[1]}=")), f"+{found[1]}=NAME")
        return f"{given} would add a second {found[1]}; leave out the +: {given[1:]}"
    if isinstance(error, OverrideParseException):
        return _unreadable(str(error.override))
    if found := re.search(r"Could not (?:override|append to config|delete from config\.) ?'([^'@]+)", text):
        return _unknown(found[1], arguments, conf)
    if text.startswith("Error merging override"):
        argument, why = text.split("\n")[0].removeprefix("Error merging override "), str(error.__cause__).split("\n")[0]
        return f"cannot take the argument {argument} ({why}); `{called('train')} --help` shows the form of each option"
    return said(error) if "nterpolation" in text else " ".join(text.split("\n\n")[0].split()) or type(error).__name__


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


def _unknown(key: str, arguments: Sequence[str], conf: Path) -> str:
    """One line about a key that the configuration does not have."""
    start, (above, _, last) = f"there is no option {key}", key.rpartition(".")
    names, files = _names(arguments, conf), _names_of_files(conf)
    given = next((argument.partition("=")[2] for argument in arguments if argument.startswith(f"{key}=")), None)
    if having := sorted(path.name for path in conf.iterdir() if path.is_dir() and given in choices(conf, path.name)):
        return f"{start}{_nearest(key, having) or f'; did you mean {having[0]}={given}?'}"
    if key in names and given is not None and given.startswith("{"):  # Hydra names the whole, not what is new in it
        why = f"{key}={given} has an option that {key} has not"
        return f"{why}; +{key}.NAME=VALUE adds one, ++{key}={{...}} several"
    if key in RENAMED:  # in a sweeper's file
        return f"{start}; its name is {RENAMED[key]}"
    if last in _MEANT and above in ("", "datamodule", "trainer", "sampler", "loader", "model"):
        return f"{start}; {_MEANT[last]}"
    elsewhere, absent = _elsewhere(last, names), sorted(files.keys() - names)
    if key not in files and elsewhere:
        return f"{start}; did you mean {elsewhere[0]}?"
    if found := [one for one in absent if one == key or (not above and one.endswith(f".{key}"))]:
        return f"{start} here; " + "; ".join(f"{one} needs {' or '.join(files[one])}" for one in found)
    beside = {name.rpartition(".")[2]: name for name in sorted(names) if name.rpartition(".")[0] == above}
    # A name at the top may lack that of its group.
    close = {name.rpartition(".")[2]: name for name in sorted(names, reverse=True)} if not above else {}
    way = _nearest(last, close | beside) if beside else _nearest(key, names)
    listed = f"{above} has {', '.join(beside)}" if above and beside else f"`{called('train')} --help` lists all"
    return start + (way or f"; {listed}")


def _elsewhere(name: str, names: Iterable[str]) -> list[str]:
    """The names of options that end with `name` or, as in `max_epochs`, with the most of it."""
    return sorted(one for one in names if one.rpartition(".")[2] in (name, f"max_{name}"))


def _nearest(word: str, known: Iterable[str]) -> str:
    from loader.machine.spelling import nearest  # imports torch, which nobody has to wait for who spells all right

    return nearest(word, known, known if isinstance(known, dict) else None)


def _names(arguments: Sequence[str], conf: Path) -> set[str]:
    """All names of the configuration with the choices of the arguments, as far as they can be chosen."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    given = [argument.lstrip("+~").partition("=") for argument in arguments]
    chosen = [f"{group}={choice}" for group, _, choice in given if choice in choices(conf, group)]
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf), version_base="1.3"):
        cfg = compose("train", chosen)
    return {path.name for path in conf.iterdir() if path.is_dir()} | set(_flat(cfg))


def _names_of_files(conf: Path) -> dict[str, list[str]]:
    """The options of all choices, by name, and which choices have it."""
    found: dict[str, list[str]] = {}
    for path in sorted(conf.glob("*/*.yaml"), key=lambda path: path.stem):
        if (group := path.parent.name) not in _OF_SEVERAL:
            options = OmegaConf.load(path)
            # Some files set options of other groups, too, and name their own.
            for name in _flat(OmegaConf.select(options, group) or options):
                found.setdefault(f"{group}.{name}", []).append(f"{group}={path.stem}")
    return found


def _flat(cfg: Any) -> Iterator[str]:
    def names(options: Any, prefix: str) -> Iterator[str]:
        for key, value in options.items() if isinstance(options, dict) else ():
            if not str(key).startswith("_"):
                yield f"{prefix}{key}"
                yield from names(value, f"{prefix}{key}.")

    return names(OmegaConf.to_container(cfg), "")

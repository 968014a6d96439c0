"""Writes docs/options/ from conf/ and what declares the options: `PYTHONPATH=. python docs/options.py`.

A test fails if the pages differ from the files. What an option means is the comment in conf/. Its values are those of
`models.training.options`, or else the type that its class gives to its parameter.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hydra.utils import get_object

from models.training.options import declared_values
from models.training.own_classes import parameters

ROOT = Path(__file__).resolve().parents[1]
CONF, FOLDER = ROOT / "conf", ROOT / "docs" / "options"
WRITTEN = "<!-- `PYTHONPATH=. python docs/options.py` writes this page from `conf/`: do not edit it. -->\n"
# The pages: title, what it says first, and the groups of conf/ on it.
PAGES: dict[str, tuple[str, str, Sequence[str]]] = {
    "run": (
        "Options of a run",
        "Give an option as `NAME=VALUE`, in any order. A group of options is chosen by name, as in `sampler=labor`. "
        "An option of a group begins with the group's name, as in `sampler.fanouts=[10,5]`.",
        (".", "task", "trainer", "callbacks", "logger"),
    ),
    "samplers": (
        "Samplers",
        "A sampler picks neighbors. `sampler=NAME` chooses it, and `sampler.OPTION=VALUE` sets an option of it.",
        ("sampler",),
    ),
    "features": (
        "Places of the features",
        "A store keeps the features and gathers the rows of a mini-batch. `features=NAME` chooses it. "
        "[Which option for which size](../scale.md) helps to choose.",
        ("features",),
    ),
    "datasets": (
        "Datasets",
        "`dataset=NAME` chooses what to train on. Raw files are read from `data_dir`; most are downloaded to it. "
        "[Add a dataset](../extend/dataset.md) says how to add one.",
        ("dataset",),
    ),
    "models": (
        "Models",
        "`model=NAME` chooses the network, and `model.OPTION=VALUE` sets an option of it. With `task=link`, GraphSAGE "
        "predicts links. `gat`, `gatv2`, `gcn`, `gin`, `pna`, `to_hetero` and `hgt` have torch_geometric's layers, the "
        "others our own; `rsage` reads tables by pytorch-frame. "
        "[Your own model](../tutorials/own_model.md) says how to write one.",
        ("model", "optimizer", "schedule"),
    ),
    "experiments": (
        "Experiments",
        "`experiment=NAME` sets several options at once. Those for [sweeps](../sweeps.md) are started with `-m`.",
        ("experiment", "hparams_search"),
    ),
}
_WORDS = {  # of types
    **{"int": "integer", "float": "number", "bool": "true or false", "str": "text", "Path": "path", "None": "null"},
    **dict.fromkeys(("torch.device", "Tensor"), ""),  # which no configuration has
    **{"Sequence[int]": "list of integers", "Sequence[float]": "list of numbers", "Sequence[str]": "list of texts"},
    **dict.fromkeys(("Mapping[str, Any]", "Mapping[Any, Any]"), "dict"),
    **{"Callable[[Data], Data]": "object", "Sequence[Callable[[Data], Data]]": "list of objects"},
}
_HANDED_ON = {"loader.samplers.fused": "loader.samplers.CudaSampler"}  # function -> the class that takes its **options
_LINE = re.compile(r"^( *)([\w/ -]+):(?: +(.*?))??(?: +# (.*))?$")


_CHOSEN = re.compile(r"^  - (?:override )?/([\w/]+): (\S+)", re.MULTILINE)


class Option(NamedTuple):
    """An option: its name on the command line, its default, and what the comment at it says."""

    name: str
    default: str
    help: str


class File(NamedTuple):
    """A file of conf/: its comment, the class that it configures, its options, and the classes of all its parts."""

    help: str
    target: str
    options: list[Option]
    targets: dict[str, str]


def read(path: Path) -> File:
    """Reads a file of conf/ and its comments: before an option, behind it, or going on in the lines after it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    package = path.parent.name if path.parent != CONF and not lines[0].startswith("# @package _global_") else ""
    lines = [line for line in lines if not line.startswith("# @package")]
    head: list[str] = []
    while lines and lines[0].startswith("#"):
        said = lines.pop(0).removeprefix("#").strip()
        if said.startswith("--"):  # the command before goes on
            head[-1] = f"{head[-1].removesuffix('`')} {said}`"
        else:
            head.append(f"`{said}`" if said.startswith("python ") else said)
    if chosen := _CHOSEN.findall("\n".join(lines)):
        head.append("It chooses " + ", ".join(f"`{group}={name}`" for group, name in chosen) + ".")
    groups: list[tuple[int, str]] = []
    before: list[str] = []
    options: list[Option] = []
    targets: dict[str, str] = {}
    target, goes_on = "", False
    for line in lines:
        text = line.strip()
        if text.startswith("#"):
            comment = text.removeprefix("#").strip()
            if goes_on and comment[:1].islower():
                options[-1] = options[-1]._replace(help=f"{options[-1].help} {comment}")
            else:
                before.append(comment)
            continue
        match = _LINE.match(line)
        if match is None:  # empty, or an entry of a list
            if options and text.startswith("- ") and not options[-1].default.startswith("${"):
                options[-1] = options[-1]._replace(default=f"{options[-1].default} {text.removeprefix('- ')}".strip())
            before, goes_on = (before, goes_on) if text else ([], False)
            continue
        indent, key, value, comment = match.groups()
        groups = [(depth, name) for depth, name in groups if depth < len(indent)]
        name = ".".join([*([package] if package else []), *(group for _, group in groups), key])
        if key == "_target_":
            targets[name.rpartition(".")[0]] = value
            target = target if groups else value
        elif value is None:
            groups.append((len(indent), key))
            before = [comment] if comment else []
            continue
        elif not key.startswith("_") and not name.startswith(("defaults", "hydra")):
            options.append(Option(name, value, " ".join([*before, *([comment] if comment else [])])))
        before, goes_on = [], bool(comment)
    return File(" ".join(head), target, options, targets)


def values(name: str, targets: Mapping[str, str]) -> str:
    """The values of an option in words: as they are declared, else by its type; "" if that is any.

    Args:
        name: of the option.
        targets: the parts of the file that has it -> their classes.
    """
    place, _, key = name.rpartition(".")
    return declared_values(name) or _by_type(targets.get(place, ""), key) or _types_of_all().get(name, "")


def _by_type(target: str, key: str) -> str:
    known = [parameters(get_object(one)) for one in (target, _HANDED_ON.get(target)) if one]
    found = next((one[key] for one in known if key in one), None)
    if found is None or found.annotation is inspect.Parameter.empty:
        return ""
    words = [_WORDS.get(one) for one in str(found.annotation).replace("str | Path", "Path").split(" | ")]
    if None in words or words == ["null"]:
        return ""
    said = [word for word in words if word]
    return ", or ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)


@cache
def _types_of_all() -> dict[str, str]:
    """Option -> its values, by the first class that has it: for files that set options of other parts."""
    found: dict[str, str] = {}
    for path in sorted(CONF.glob("**/*.yaml")):
        file = read(path)
        for option in file.options:
            place, _, key = option.name.rpartition(".")
            if words := _by_type(file.targets.get(place, ""), key):
                found.setdefault(option.name, words)
    return found


def _table(options: Sequence[Option], targets: Mapping[str, str]) -> list[str]:
    def code(text: str) -> str:
        return f"`{text}`".replace("|", "\\|")

    def plain(text: str) -> str:
        return text.replace("|", "\\|")

    rows = [
        f"| {code(o.name)} | {code(o.default)} | {plain(values(o.name, targets))} | {plain(o.help)} |" for o in options
    ]
    return ["| option | default | values | meaning |", "|---|---|---|---|", *rows, ""] if rows else []


def _group(folder: str) -> list[str]:
    """The files of a group; options that all of them have alike come once."""
    files = {path.stem: read(path) for path in sorted((CONF / folder).glob("*.yaml"))}
    shared = [
        o for o in next(iter(files.values())).options if len(files) > 3 and all(o in f.options for f in files.values())
    ]
    page = []
    if shared:
        page += [f"Every `{folder}=` has these:", "", *_table(shared, next(iter(files.values())).targets)]
    for name, file in files.items():
        title = "All runs" if folder == "." else f"`{folder}={name}`"
        said = [file.help] if file.help else []
        if file.target:
            said.append(f"Class: `{file.target}`.")
        page += [f"## {title}", "", *([" ".join(said), ""] if said else [])]
        page += _table([o for o in file.options if o not in shared], file.targets)
    return page


def render() -> dict[str, str]:
    """The pages, by their names."""
    pages = {
        name: [f"# {title}", "", intro, "", *(line for group in groups for line in _group(group))]
        for name, (title, intro, groups) in PAGES.items()
    }
    pages["index"] = [
        "# Options of `train.py`",
        "",
        "`train.py` reads its options from the files of `conf/`. These pages are made from those files. "
        "`python train.py --help` shows the options of a run as they are set, and their values. "
        "{doc}`Without a checkout <../installed>`, the command is `gnn-loader train`.",
        "",
        "```{toctree}",
        *PAGES,
        "```",
    ]
    return {f"{name}.md": WRITTEN + "\n".join(lines).rstrip() + "\n" for name, lines in pages.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in render().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote docs/options/{name}\n")

"""Writes docs/options/ from conf/: `python docs/options.py`. A test fails if the pages differ from the files."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CONF, FOLDER = ROOT / "conf", ROOT / "docs" / "options"
WRITTEN = "<!-- `python docs/options.py` writes this page from `conf/`: do not edit it. -->\n"
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
        "predicts links. All but GraphSAGE and node2vec are torch_geometric's. "
        "[Your own model](../tutorials/own_model.md) says how to write one.",
        ("model", "optimizer", "schedule"),
    ),
    "experiments": (
        "Experiments",
        "`experiment=NAME` sets several options at once. Those for [sweeps](../sweeps.md) are started with `-m`.",
        ("experiment", "hparams_search"),
    ),
}
_LINE = re.compile(r"^( *)([\w/ -]+):(?: +(.*?))??(?: +# (.*))?$")


_CHOSEN = re.compile(r"^  - (?:override )?/([\w/]+): (\S+)", re.MULTILINE)


class Option(NamedTuple):
    """An option: its name on the command line, its default, and what the comment at it says."""

    name: str
    default: str
    help: str


class File(NamedTuple):
    """A file of conf/: its comment, the class that it configures, its options."""

    help: str
    target: str
    options: list[Option]


def read(path: Path) -> File:
    """Reads a file of conf/ and its comments: before an option, behind it, or going on in the lines after it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    package = path.parent.name if path.parent != CONF and not lines[0].startswith("# @package _global_") else ""
    lines = [line for line in lines if not line.startswith("# @package")]
    head: list[str] = []
    while lines and lines[0].startswith("#"):
        said = lines.pop(0).removeprefix("#").strip()
        head.append(f"`{said}`" if said.startswith("python ") else said)
    if chosen := _CHOSEN.findall("\n".join(lines)):
        head.append("It chooses " + ", ".join(f"`{group}={name}`" for group, name in chosen) + ".")
    groups: list[tuple[int, str]] = []
    before: list[str] = []
    options: list[Option] = []
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
        if key == "_target_" and not groups:
            target = value
        elif value is None:
            groups.append((len(indent), key))
            before = [comment] if comment else []
            continue
        elif not key.startswith("_") and not name.startswith(("defaults", "hydra")):
            options.append(Option(name, value, " ".join([*before, *([comment] if comment else [])])))
        before, goes_on = [], bool(comment)
    return File(" ".join(head), target, options)


def _table(options: Sequence[Option]) -> list[str]:
    def code(text: str) -> str:
        return f"`{text}`".replace("|", "\\|")

    rows = [f"| {code(o.name)} | {code(o.default)} | {o.help.replace('|', chr(92) + '|')} |" for o in options]
    return ["| option | default | meaning |", "|---|---|---|", *rows, ""] if rows else []


def _group(folder: str) -> list[str]:
    """The files of a group; options that all of them have alike come once."""
    files = {path.stem: read(path) for path in sorted((CONF / folder).glob("*.yaml"))}
    shared = [
        o for o in next(iter(files.values())).options if len(files) > 3 and all(o in f.options for f in files.values())
    ]
    page = []
    if shared:
        page += [f"Every `{folder}=` has these:", "", *_table(shared)]
    for name, file in files.items():
        title = "All runs" if folder == "." else f"`{folder}={name}`"
        said = [file.help] if file.help else []
        if file.target:
            said.append(f"Class: `{file.target}`.")
        page += [f"## {title}", "", *([" ".join(said), ""] if said else [])]
        page += _table([o for o in file.options if o not in shared])
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
        "`python train.py --help` shows the options of a run as they are set. "
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

"""The parser of a program's arguments."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from loader.machine.spelling import nearest_name

_PROGRAMS = {"train": "python train.py", "inspect": "python -m loader.inspect", "results": "python -m models.results"}


def called(program: str) -> str:
    """How the user calls train, inspect or results: `python train.py`, or `gnn-loader train` where that runs."""
    return f"gnn-loader {program}" if "GNN_LOADER_COMMAND" in os.environ else _PROGRAMS[program]


class OneLineParser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` that refuses an argument in one line: the usage before it has ten lines and more."""

    @property
    def options(self) -> list[str]:
        """The options, with their dashes."""
        return list(self._option_string_actions)

    def has(self, name: str) -> bool:
        """Whether there is an option of a name, which may be cut."""
        return any(option.startswith(name) for option in self.options)

    def parsed(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """As `parse_args`, which takes the -1,-1 of `--fanouts -1,-1` for another option."""
        joined: list[str] = []
        for argument in sys.argv[1:] if arguments is None else arguments:
            if joined and re.fullmatch(r"--[\w-]+", joined[-1]) and re.match(r"-\d", argument):
                joined[-1] += f"={argument}"
            else:
                joined.append(argument)
        # Before an argument that is missing, whose name may be misspelt. A command has options of its own.
        for argument in joined if self._subparsers is None else ():
            name = argument.partition("=")[0]
            if re.fullmatch(r"--\w[\w-]*", name) and not self.has(name):
                self.error(f"unrecognized arguments: {argument}")
        return self.parse_args(joined)

    def error(self, message: str) -> NoReturn:
        message = re.sub("invalid int value: (.*)", r"it is \1, and must be an integer", message)
        if found := re.match(r"unrecognized arguments: (--[\w-]+)", message):
            near = nearest_name(found[1].replace("_", "-"), self.options, cutoff=0.7)
            message += f"; did you mean {near}?" if near else ""
        end = "" if message.endswith("?") else ";"
        sys.stderr.write(f"error: {message}{end} `{self.prog} --help` lists all arguments\n")
        sys.exit(2)

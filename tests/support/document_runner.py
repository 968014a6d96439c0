"""Runs files of Python and of shell, as arguments, one after the other; those of Python share one namespace.

Commands such as `python train.py` run in processes forked from one that has imported torch and Lightning, which takes
each command seconds by itself. Whatever needs a shell for more than that runs in one.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Words and quoted ones, without any character that only a shell understands.
_PLAIN = re.compile(r"""(?:'[^']*'|"[^"$`\\]*"|\\\n|[^'"\\$`*?|&;<>(){}~#]|(?<=\s)#.*|^#.*)*""", re.MULTILINE)


def commands_of(text: str) -> list[list[str]] | None:
    """The arguments of each `python` that a shell would start, or None if there is more for a shell to do."""
    lines = [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines()]
    commands = [line for line in lines if line]
    plain = _PLAIN.fullmatch(text) and all(
        name == "python" and first and (first[0].endswith(".py") or (first[0] == "-m" and first[1:]))
        for name, *first in commands
    )
    return [arguments for _, *arguments in commands] if plain else None


def run_python(arguments: Sequence[str]) -> None:
    """What `python` does with these arguments."""
    importlib.invalidate_caches()  # modules may have been written since this process began
    sys.path[0] = os.getcwd()
    if arguments[0] == "-m":
        sys.argv = [*arguments[1:]]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [*arguments]
        runpy.run_path(arguments[0], run_name="__main__")


def main(files: Sequence[str]) -> None:
    sys.path[0] = os.getcwd()
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["lightning.pytorch"])
    shared: dict[str, Any] = {"__name__": "__main__"}
    for file in files:
        text = Path(file).read_text(encoding="utf-8")
        if file.endswith(".py"):
            exec(compile(text, file, "exec"), shared)
            sys.stdout.flush()
        elif (commands := commands_of(text)) is None:
            subprocess.run(["bash", "-euo", "pipefail", file], check=True)
        else:
            for command in commands:
                process = processes.Process(target=run_python, args=(command,))
                process.start()
                process.join()
                if process.exitcode:
                    sys.exit(f"{shlex.join(['python', *command])} ended with {process.exitcode}")


if __name__ == "__main__":
    main(sys.argv[1:])

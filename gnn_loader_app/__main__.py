"""The command `gnn-loader`: `gnn-loader train ...` is `python train.py ...` of a checkout, from any folder."""

from __future__ import annotations

import os
import runpy
import sys

from gnn_loader_app import HOME

_USAGE = "usage: gnn-loader train|inspect|results ARGUMENTS; `gnn-loader train --help` lists those of train"


def main() -> None:
    """Runs the command that `sys.argv` names."""
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command == "--version":
        from loader import __version__

        print(f"gnn-loader {__version__}")
    elif command in ("--help", "-h"):
        print(_USAGE)
    elif command not in ("train", "inspect", "results"):
        print(f"error: there is no command {command}; {_USAGE}" if command else _USAGE, file=sys.stderr)
        sys.exit(2)
    else:
        os.environ["GNN_LOADER_COMMAND"] = f"gnn-loader {command}"  # for messages, which name what was typed
        del sys.argv[1]
        _run(command)


def _run(command: str) -> None:
    if command == "train":
        # The folder of a script comes first, as Python has it, so no other package called `models` hides ours.
        sys.path.insert(0, str(HOME))
        runpy.run_path(str(HOME / "train.py"), run_name="__main__")
        return
    if command == "inspect":
        from loader.inspect.command import main as inspect

        return inspect()
    from loader.machine.optional import require

    try:
        require(("hydra", "matplotlib", "rich"), "gnn-loader results", "train")
    except ImportError as error:
        sys.exit(f"error: {error}")
    sys.path.insert(0, str(HOME))
    from models.results import main as results

    results()


if __name__ == "__main__":
    main()

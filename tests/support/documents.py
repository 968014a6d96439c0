"""The code of a document in Markdown, run from top to bottom in one folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import train
from loader import _core

ROOT = Path(train.__file__).resolve().parent

_BLOCK = re.compile(r"(?:<!-- ([^\n]*) -->\n)?```(python|sh)\n(.*?)```", re.DOTALL)


class Block(NamedTuple):
    """A block of code.

    Attributes:
        note: the comment in the line above it.
        language: "python" or "sh".
        code: its lines.
    """

    note: str
    language: str
    code: str


def blocks(document: Path) -> list[Block]:
    """The blocks of code of a document, in order, without those that are noted as not run."""
    found = [Block(*match) for match in _BLOCK.findall(document.read_text(encoding="utf-8"))]
    return [block for block in found if not block.note.startswith("not run")]


def run(code: list[Block], folder: Path, prelude: str = "") -> str:
    """Runs blocks in a folder that looks like the checkout, and returns what they print.

    Args:
        code: the blocks.
        folder: empty; what the code writes goes there.
        prelude: Python that runs before, for names that a document takes as given.
    """
    shutil.copy(ROOT / "train.py", folder)  # Python looks for modules beside the file that a link means
    for name in ("conf", "models", "examples"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "loader").mkdir()
    core = Path(_core.__file__)  # beside the sources, or where an editable installation has it
    for path in {entry.name: entry for entry in [core, *(ROOT / "loader").iterdir()]}.values():
        (folder / "loader" / path.name).symlink_to(path)
    files = []
    for number, block in enumerate([Block("", "python", prelude), *code]):
        files.append(f"block{number}.{'py' if block.language == 'python' else 'sh'}")
        (folder / files[-1]).write_text(block.code, encoding="utf-8")
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "python").symlink_to(sys.executable)
    # A link to the interpreter of a virtual environment does not find the environment: name its packages.
    packages = os.pathsep.join([str(folder), *(path for path in sys.path if path.endswith("-packages"))])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("document_runner.py")), *files],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        # One thread: several of them wait for each other where the machine is busy.
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "PYTHONPATH": packages,
            "PYTHONWARNINGS": "",
        },
    )
    assert done.returncode == 0, done.stdout
    return done.stdout

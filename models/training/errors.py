"""Errors of the user become one line; errors of the program keep their traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import HydraException
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.markup import escape

from loader.datasets.errors import DatasetError
from loader.machine.gpu import NoGpuError

USER_ERRORS = (
    ValueError,
    TypeError,
    ImportError,
    OSError,
    DatasetError,
    NoGpuError,
    OmegaConfBaseException,
    MisconfigurationException,
)


@contextmanager
def one_line_errors(debug: bool = False) -> Iterator[None]:
    """Ends the process with status 1 and one clear line for an error that its user can mend.

    These are the types that the project's own checks raise (value, type, missing file, package or GPU). Everything
    else, and everything when `debug` is set or the environment has `HYDRA_FULL_ERROR=1`, is raised as it is.
    """
    try:
        yield
    except Exception as error:
        mendable = _mendable(error)
        if mendable is None or debug or os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        line = " ".join(str(mendable).split()) or type(mendable).__name__
        Console(stderr=True).print(f"[bold red]error:[/] {escape(line)}", highlight=False, soft_wrap=True)
        sys.exit(1)


def _mendable(error: BaseException) -> BaseException | None:
    """The error to show, or None for one of the program. Hydra wraps what a constructor raises: look inside."""
    while isinstance(error, HydraException) and error.__cause__ is not None:
        error = error.__cause__
    return error if isinstance(error, (HydraException, *USER_ERRORS)) else None

"""Errors of the user become one line; errors of the program keep their traceback."""

from __future__ import annotations

import errno
import os
import re
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from loader.machine.command_line import called
from models.training.own_code import own_traceback
from models.training.ranks import GRACE, rank_here

_FULL = (errno.EFBIG, errno.ENOSPC, errno.EDQUOT)
_UNKNOWN = re.compile(r"^([\w.]+)\(\) got an unexpected keyword argument '(\w+)'")
_MISSING = re.compile(r"^([\w.]+)\(\) missing \d+ required [\w-]+ arguments?: (.+)$")
_REFERENCE = re.compile(r"^Interpolation key '([^']+)' not found\s+full_key: (\S+)")
_NO_TARGET = re.compile(r"^Error (?:loading|locating target) '([^']+)'")
_ABSTRACT = re.compile(r"^Can't instantiate abstract class (\w+) with.* abstract methods? (.+)$")
_NO_SHARE = re.compile(r"^You requested to check (\S+) of the `(\w+)_dataloader` but \S+ \* (\d+) < 1\.")  # Lightning's
_BEFORE_INIT = "before Module.__init__() call"  # torch's AttributeError
_OPTION, _NO_OPTION = re.compile(r"\w+ is "), re.compile(r"\w+ is no option of \w")

INTERRUPTED = 130  # the exit status of a process that Ctrl-C ended, as shells have it


class Interrupted(Exception):
    """Ctrl-C ended the training; the message says how to go on."""


@contextmanager
def one_line_errors(debug: bool = False) -> Iterator[None]:
    """Ends the process with status 1 and one clear line for an error that its user can mend.

    These are the types that the project's own checks raise (value, type, missing file, package or GPU). An error that
    arose in the user's own code ends it likewise, with the traceback from that code on above the line. Everything else,
    and everything when `debug` is set or the environment has `HYDRA_FULL_ERROR=1`, is raised as it is. Ctrl-C ends the
    process with status 130 and one line.
    """
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as error:
        fail(str(error) or "interrupted; what was under way is not kept", INTERRUPTED, title="")
    except Exception as error:
        if debug or os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        mendable = _mendable(error)
        cause = _cause(error)
        worded = mendable is not None  # there is a message for users
        own = None if _is_memory(cause) else own_traceback(cause, caught=cause is error, has_message=worded)
        if own is not None:
            what = " ".join(f"{type(cause).__name__}: {cause}".split())
            fail(f"{what}; it arose in your code, as shown above: debug=true shows the whole traceback", above=own)
        if mendable is None:
            raise
        line = " ".join(said(mendable, _key(error)).split()) or type(mendable).__name__
        fail(line, at_once=_is_loss(mendable))


def fail(line: str, status: int = 1, title: str = "error: ", *, at_once: bool = False, above: str = "") -> None:
    """Prints one line to stderr, its title in colour on a terminal, and ends the process.

    A process other than the first one of a run leaves the line to the first one, which mostly has the same to say and
    then ends all. If that does not happen, the first one of its host prints the line, too, and only then the others.

    Args:
        above: what is printed above the line.
        at_once: the others wait for this process to end, so Python does not clear up, which takes a second or more.
    """
    if rank_here() > 0:
        if status == INTERRUPTED:
            sys.exit(status)
        time.sleep(GRACE if int(os.environ.get("LOCAL_RANK", 0)) == 0 else 2 * GRACE)  # one of a host after the other
        line = f"{line} (process {rank_here()} of the run)"
    if title and sys.stderr.isatty():
        title = f"\033[1;31m{title}\033[0m"
    print(f"{above}{title}{line}", file=sys.stderr)
    if at_once:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def said(error: BaseException, key: str = "") -> str:
    """The message; what Python and the system say in few words gets the limit and the way out.

    Args:
        key: of the configuration, if it was made into an object when this happened.
    """
    if found := _UNKNOWN.search(str(error)):
        name = f"{key}.{found[2]}" if key else found[2]
        return f"{name} is no option of {found[1].removesuffix('.__init__')}; leave it out"
    if key and (found := _MISSING.search(str(error))):
        names = found[2].replace("'", "")
        first = re.split(",| and ", names)[0]
        return f"{key} gives no {names}, which {found[1].removesuffix('.__init__')} needs; add {key}.{first}=..."
    if found := _ABSTRACT.search(str(error)):
        names = found[2].replace("'", "")
        return f"{f'{key} is a ' if key else ''}{found[1]}, which has no {names}; add what it lacks"
    if found := _NO_SHARE.search(str(error)):
        share, split, count = found.groups()
        option = f"trainer.limit_{split}_batches{' or trainer.overfit_batches' if split in ('train', 'val') else ''}"
        how_many = f"{count} mini-batch{'' if count == '1' else 'es'}"
        return f"{option} is {share}, less than one of {how_many} of {split}; give a number of mini-batches, such as 1"
    if _BEFORE_INIT in str(error):
        return f"{key or 'the model'} sets a part before super().__init__() was called; call that first in __init__"
    if found := _REFERENCE.search(str(error)):
        return f"{found[2]} refers to ${{{found[1]}}}, but there is no option {found[1]}; name another, or give a value"
    if found := _NO_TARGET.search(str(error)):
        whose = f"{key}: " if key else ""
        return f"{whose}{found[1]} cannot be imported; give the full name of a class, and its folder in PYTHONPATH"
    if key.partition(".")[0] in ("trainer", "callbacks", "logger") and key not in str(error).lower():
        return f"{key}{'.' if _OPTION.match(str(error)) else ': '}{error}"  # Lightning names no option
    if key and _NO_OPTION.match(str(error)):
        return f"{key}.{error}"
    if _is_memory(error):
        first = str(error).split("\n")[0].strip() or type(error).__name__
        way = "lower datamodule.batch_size, sampler.fanouts or model.hidden_channels, or take a smaller dataset"
        return f"there is not enough memory ({first}); {way}"
    if isinstance(error, BrokenPipeError) and not error.filename:
        return f"the program that read the output has ended, so this one has; write to a file: {called('train')} > log"
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    if isinstance(error, FileNotFoundError) and not error.filename:
        return "the folder in which this was started is no longer there; change into another one"
    file = f" {error.filename}" if error.filename else ""
    if error.errno not in _FULL:
        return f"cannot use{file}: {error.strerror}; check that path and its permissions, or give another one"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if error.errno == errno.EFBIG and limit != resource.RLIM_INFINITY:
        return f"cannot write{file}: it would be larger than {limit} bytes; raise that by `ulimit -f unlimited`"
    way = "free some space, or set hydra.run.dir (outputs, checkpoints) or cache_dir (data) to another disk"
    return f"cannot write{file}: {error.strerror}; {way}"


def _user_errors() -> tuple[type[BaseException], ...]:
    """The types of errors that a user can mend. Those of Lightning only if it was imported: else none was raised."""
    from loader.datasets.errors import DatasetError
    from loader.machine.gpu import NoGpuError

    types: list[type[BaseException]] = [ValueError, TypeError, ImportError, OSError, OmegaConfBaseException]
    types += [DatasetError, NoGpuError]
    lightning = sys.modules.get("lightning.pytorch.utilities.exceptions")
    if lightning is not None:
        types.append(lightning.MisconfigurationException)
    return tuple(types)


def _cause(error: BaseException) -> BaseException:
    """Hydra wraps what a constructor raises: look inside."""
    while isinstance(error, HydraException) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _mendable(error: BaseException) -> BaseException | None:
    """The error to show, or None for one of the program."""
    error = _cause(error)
    own = isinstance(error, AttributeError) and _BEFORE_INIT in str(error)
    return error if own or isinstance(error, (HydraException, *_user_errors())) or _is_memory(error) else None


def _is_loss(error: BaseException) -> bool:
    from loader.machine.lost_processes import LostProcessError

    return isinstance(error, LostProcessError)


def _is_memory(error: BaseException) -> bool:
    """Whether memory was asked for that this machine has not; torch says so in words."""
    text = str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)
    )


def _key(error: BaseException) -> str:
    """The key of the configuration that Hydra was making an object of, "" if it was none."""
    found = re.search(r"^full_key: (\S+)$", str(error), re.MULTILINE) if isinstance(error, HydraException) else None
    # Parts of the run are made within the data module; its user gave them by their own names.
    return re.sub(r"^datamodule\.(?=dataset|sampler|features)", "", found[1]) if found else ""

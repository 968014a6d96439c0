"""What a forked child does, with a limit: one that waits for a thread that it does not have would wait for ever."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

_SECONDS = 20  # a sound child needs a part of one


def needs_fork(test: Callable[..., Any]) -> Callable[..., Any]:
    """Skips a test where the system has no fork, and lets it fork beside threads, of which Python warns."""
    warned = "ignore:This process .* is multi-threaded:DeprecationWarning"
    marked: Callable[..., Any] = pytest.mark.filterwarnings(warned)(test)
    return pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")(marked)


def in_forked_child(work: Callable[[], object]) -> None:
    """Fails unless `work` returns in a forked child; what it raises there is printed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            torch.set_num_threads(1)  # torch's own threads do not survive a fork, either
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail(f"the forked child had not ended after {_SECONDS} seconds")

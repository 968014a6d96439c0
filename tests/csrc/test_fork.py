"""What has threads of its own works in a forked child, whatever other threads were doing at the fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_GATHER = """
import torch
from loader.stores import HostFeatures

table = torch.arange(40_000_000, dtype=torch.int32).view(-1, 100)
ids = torch.arange(0, 400_000, 7)
features = HostFeatures(table, num_threads=4)
def work():
    return torch.equal(features.gather(ids), table[ids])
"""

_MEAN = """
import torch
from loader import _core

indptr, indices = torch.arange(0, 600_001, 30), torch.arange(600_000) % 20_000
x = torch.ones(20_000, 64)
def work():
    out = torch.empty(20_000, 64)
    _core.mean_forward(indptr, indices, x, out, 4)
    return bool((out == 1).all())
"""

_FORK = """
import os, threading

used = {used}
if used:
    assert work()
stop = threading.Event()
def keep_busy():
    while not stop.is_set():
        assert work()
callers = [threading.Thread(target=keep_busy) for _ in range(2 if used else 0)]
for caller in callers:
    caller.start()
children = []
for _ in range(6):
    child = os.fork()
    if child == 0:
        os._exit(0 if work() and work() else 1)
    children.append(child)
codes = [os.waitpid(child, 0)[1] for child in children]
stop.set()
for caller in callers:
    caller.join()
assert codes == [0] * 6, codes
print("worked")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("subject", [_GATHER, _MEAN], ids=["gather", "mean"])
def test_a_forked_child_has_threads_of_its_own(subject: str, used: bool) -> None:
    script = subject + "torch.set_num_threads(1)\n" + _FORK.format(used=used)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("worked")

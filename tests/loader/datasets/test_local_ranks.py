"""Which processes belong to one run: told from processes that this one starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loader.datasets.local_ranks import is_of_this_launch, this_process

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux' /proc")


def asked_in_a_child(process: dict[str, Any], **environment: str) -> bool:
    script = (
        "import importlib.util, json, sys\n"
        "spec = importlib.util.spec_from_file_location('launch', sys.argv[1])\n"
        "launch = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(launch)\n"
        "print(launch.is_of_this_launch(json.loads(sys.argv[2])))"
    )
    clean = {name: value for name, value in os.environ.items() if name not in ("LOCAL_RANK", "SLURM_LOCALID")}
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT / "loader/datasets/local_ranks.py"), json.dumps(process)],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout == "True\n"


def test_a_rank_knows_the_rank_that_started_it():
    me = this_process()
    assert asked_in_a_child(me, LOCAL_RANK="1")
    assert asked_in_a_child(me, SLURM_LOCALID="1")
    assert not asked_in_a_child(me)  # a process that is no rank
    assert not asked_in_a_child({**me, "host": "elsewhere"}, LOCAL_RANK="1")
    started = me["self"]
    assert not asked_in_a_child({**me, "self": [started[0], started[1] - 1]}, LOCAL_RANK="1")  # the number's last owner


def test_ranks_know_each_other_by_their_launcher():
    with subprocess.Popen(["sleep", "60"]) as other:
        start = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
        sibling = {**this_process(), "self": [other.pid, int(start)], "parent": this_process()["self"]}
        assert asked_in_a_child(sibling, LOCAL_RANK="0")
        assert not asked_in_a_child({**sibling, "parent": [1, 1]}, LOCAL_RANK="0")
        other.kill()
    assert not asked_in_a_child(sibling, LOCAL_RANK="0")  # it has ended: a run after it, from the same shell


def test_processes_without_marks_do_not_belong_together(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert not is_of_this_launch({**this_process(), "self": None})

"""Where a process stands in a run on several hosts, as the environment says it."""

from __future__ import annotations

import pytest
from host_ranks import LAUNCHED

from loader.machine.hosts import Hosts, hosts_of_run


def told(monkeypatch: pytest.MonkeyPatch, **variables: int | str) -> Hosts:
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    return hosts_of_run()


def test_a_process_of_its_own_is_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch) == Hosts(0, 1, 0, 1)


def test_torchrun_numbers_hosts_by_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = told(monkeypatch, WORLD_SIZE=6, LOCAL_WORLD_SIZE=2, RANK=5, LOCAL_RANK=1, GROUP_RANK=2)
    assert hosts == Hosts(2, 3, 1, 2)
    assert (hosts.rank, hosts.world_size) == (5, 6)


def test_train_py_numbers_hosts_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, WORLD_SIZE=4, LOCAL_WORLD_SIZE=2, NODE_RANK=1, LOCAL_RANK=0) == Hosts(1, 2, 0, 2)
    assert told(monkeypatch, WORLD_SIZE=2, LOCAL_WORLD_SIZE=2, NODE_RANK=0, LOCAL_RANK=1) == Hosts(0, 1, 1, 2)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": 4}, "the run has 4 processes, and nothing says how many of them are on this host; start by"),
        ({"WORLD_SIZE": 5, "LOCAL_WORLD_SIZE": 2}, "process 0 of 5 is number 0 of 2 on its host; each host must have"),
        ({"WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2, "RANK": 4}, "process 4 of 4 is number 0 of 2"),
        ({"WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2, "RANK": 2, "LOCAL_RANK": 1}, "process 2 of 4 is number 1 of 2"),
        (
            {"WORLD_SIZE": "two"},
            "the environment variable WORLD_SIZE is 'two'; it must be an integer from 0 on",
        ),
    ],
)
def test_contradictions_are_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, int | str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        told(monkeypatch, **variables)

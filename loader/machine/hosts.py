"""The hosts of a run: which machine this process is on, and how many there are."""

from __future__ import annotations

import os
from typing import NamedTuple

import torch.distributed as dist


class Hosts(NamedTuple):
    """Where a process stands in a run on several hosts, each with equally many processes.

    The processes of a host have consecutive ranks, as torchrun numbers them. So process `rank` of the run is process
    `rank % local_size` of host `rank // local_size`.

    Attributes:
        host: number of this host.
        num_hosts: number of hosts.
        local_rank: number of this process among those of its host.
        local_size: number of processes of each host.
    """

    host: int
    num_hosts: int
    local_rank: int
    local_size: int

    @property
    def rank(self) -> int:
        """Number of this process in the run."""
        return self.host * self.local_size + self.local_rank

    @property
    def world_size(self) -> int:
        """Number of processes of the run."""
        return self.num_hosts * self.local_size


def hosts_of_run() -> Hosts:
    """The hosts as torchrun and `train.py` tell them in the environment; a process of its own is the only host.

    The environment says it before `torch.distributed` begins. `WORLD_SIZE` and `LOCAL_WORLD_SIZE` are the numbers of
    processes of the run and of this host; `RANK`, or else `NODE_RANK` and `LOCAL_RANK`, say which one this is.

    Raises:
        ValueError: the numbers contradict each other, or there are several processes and nothing says how many of them
            a host has.
    """
    started = dist.is_available() and dist.is_initialized()
    world = dist.get_world_size() if started else _number("WORLD_SIZE", 1)
    if world == 1:
        return Hosts(0, 1, 0, 1)
    local = _number("LOCAL_WORLD_SIZE", 0)
    if local == 0:
        raise ValueError(
            f"the run has {world} processes, and nothing says how many of them are on this host; start by torchrun, or "
            "set LOCAL_WORLD_SIZE"
        )
    env_rank = _number("RANK", _number("NODE_RANK", 0) * local + _number("LOCAL_RANK", 0))
    rank = dist.get_rank() if started else env_rank
    local_rank = _number("LOCAL_RANK", rank % local)
    if world % local or rank >= world or rank % local != local_rank:
        raise ValueError(
            f"process {rank} of {world} is number {local_rank} of {local} on its host; each host must have equally "
            "many processes of consecutive ranks, so start each with the same --nproc-per-node"
        )
    return Hosts(rank // local, world // local, local_rank, local)


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise ValueError(
            f"the environment variable {name} is {text!r}; it must be an integer from 0 on; start by torchrun, or "
            "unset it"
        )
    return int(text)

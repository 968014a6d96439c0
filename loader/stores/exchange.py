"""The exchange of rows between the hosts of a run."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from loader.machine.hosts import Hosts
from loader.machine.lost_processes import LostProcessError, named_losses


class RowExchange:
    """Brings rows of other hosts to this process, and rows of this host to others: all processes do so at once.

    A row crosses to a host at most once in an exchange. The processes of a host first share out among themselves the
    ids that any of them wants (all-to-all within the host). Each asks the processes of its own number on the other
    hosts for its share (all-to-all across hosts: ids there, rows back). Then the rows go to those that want them
    (all-to-all within the host).

    The groups of processes belong to this object, so that an exchange never mixes with other work of
    `torch.distributed`, such as the all-reduce of gradients. Numbers of ids go through gloo, since the host needs them;
    ids and rows go through gloo on a CPU and through NCCL on a GPU.

    All processes make their exchanges in the same order, from the same thread as other groups.

    Args:
        hosts: of the run.
        device: where ids and rows lie.
        agreed: name -> number, or text, that must be equal in all processes.
        timeout: seconds that a process waits for the others.

    Attributes:
        received: rows that came from other hosts to this process, and ids with which it asked for them.
        sent: rows that went from this process to other hosts.
        count: exchanges.

    Raises:
        RuntimeError: `torch.distributed` has no process group, or one of other processes.
        ValueError: the processes differ in what must be agreed.
        LostProcessError: another process ended, or did not come in time.
    """

    def __init__(self, hosts: Hosts, device: torch.device, agreed: dict[str, int | str], timeout: float) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError(
                "features on several hosts are exchanged by torch.distributed, which has no process group; call "
                "torch.distributed.init_process_group first (a trainer does so)"
            )
        if (dist.get_rank(), dist.get_world_size()) != (hosts.rank, hosts.world_size):
            raise RuntimeError(
                f"the features are for process {hosts.rank} of {hosts.world_size}, but torch.distributed calls this "
                f"one {dist.get_rank()} of {dist.get_world_size()}; make them after the group, or start by torchrun"
            )
        self._hosts, self._device = hosts, device
        self.received = self.sent = self.count = 0
        self._broken: LostProcessError | None = None
        size, wait = hosts.local_size, timedelta(seconds=timeout)
        whole = torch.arange(hosts.world_size).view(hosts.num_hosts, size)
        self._peers: list[_Peers] = []
        try:
            with named_losses():
                self._here = self._join(whole.tolist(), hosts.host, wait)  # the processes of this host
                self._across = self._join(whole.t().tolist(), hosts.local_rank, wait)  # one of each host
                differs = self._here.difference(agreed)
                differs = self._across.difference(agreed, differs) or differs  # now all know of any difference
            if differs is not None:
                raise ValueError(
                    f"{differs} is {agreed[differs]} in process {hosts.rank} and differs in others; it must be equal "
                    "in all, so give all processes the same features and options"
                )
        except BaseException:
            self.close()
            raise

    def _join(self, groups: list[list[int]], mine: int, wait: timedelta) -> _Peers:
        self._peers.append(_Peers(groups, mine, self._device, wait))
        return self._peers[-1]

    def swap(self, wanted: Tensor, owners: Callable[[Tensor], Tensor], read: Callable[[Tensor], Tensor]) -> Tensor:
        """The rows of `wanted`, of which all other processes get theirs at the same time.

        Args:
            wanted: `[n]` distinct ids of rows of other hosts, int32 or int64, on the device.
            owners: ids -> numbers of their hosts, `[n]` int64.
            read: ids of this host -> their rows, `[n, bytes]` uint8 on the device.

        Returns:
            `[n, bytes]` uint8 on the device.

        Raises:
            LostProcessError: another process ended, or did not come in time. No later exchange is possible.
        """
        if self._broken is not None:
            raise self._broken
        try:
            with named_losses():
                return self._swap(wanted, owners, read)
        except LostProcessError as error:
            self._broken = error
            self.close()  # so that those that wait for this process learn it, too, however long it stays
            raise

    def _swap(self, wanted: Tensor, owners: Callable[[Tensor], Tensor], read: Callable[[Tensor], Tensor]) -> Tensor:
        here = self._here
        order, counts = _by_group(wanted % here.size, here.size)
        ids, theirs = here.scatter(wanted[order], counts)
        mine, places = torch.unique(ids, return_inverse=True) if here.size > 1 else (ids, None)

        across = self._across
        by_host, shares = _by_group(owners(mine), across.size)
        requests, others = across.scatter(mine[by_host], shares)
        found = across.give_back(read(requests), others, shares)
        rows = torch.empty_like(found).index_copy_(0, by_host, found)

        back = here.give_back(rows if places is None else rows[places], theirs, counts)
        self.count += 1
        self.received += mine.numel()
        self.sent += requests.numel()
        return torch.empty_like(back).index_copy_(0, order, back)

    def close(self) -> None:
        """Leaves the groups of processes."""
        if dist.is_initialized():
            for peers in self._peers:
                peers.close()


class _Peers:
    """Processes that give each other parts of their tensors: one of several equally large groups of the run.

    Args:
        groups: ranks of each group. All processes of the run make all groups.
        mine: number of the group of this process.
        device: of the tensors.
        timeout: of each operation.
    """

    def __init__(self, groups: list[list[int]], mine: int, device: torch.device, timeout: timedelta) -> None:
        self.size, self._device = len(groups[mine]), device
        self._numbers: Any = None
        self._data: Any = None
        if self.size == 1:
            return
        kinds = ["gloo"] if device.type == "cpu" else ["gloo", "nccl"]
        made = [[dist.new_group(ranks, timeout, kind) for ranks in groups] for kind in kinds]
        self._numbers, self._data = made[0][mine], made[-1][mine]

    def difference(self, values: dict[str, int | str], known: str | None = None) -> str | None:
        """The name of a value that the processes of the group do not share; if there is none, what one of them knows.

        Args:
            values: name -> number or text, with equal names in all processes.
            known: the name of a difference to another group.
        """
        if self.size == 1:
            return None
        names = list(values)
        numbers = [zlib.crc32(value.encode()) if isinstance(value, str) else value for value in values.values()]
        own = torch.tensor([*numbers, names.index(known) if known else -1])
        gathered = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(gathered, own, self._numbers)
        table = torch.stack(gathered)
        different = (table != table[0]).any(0)[:-1].nonzero().view(-1).tolist()
        known_elsewhere = int(table[:, -1].max())
        return names[different[0]] if different else names[known_elsewhere] if known_elsewhere >= 0 else None

    def scatter(self, data: Tensor, counts: list[int]) -> tuple[Tensor, list[int]]:
        """Gives the first `counts[0]` elements to the first process, and so on.

        Returns:
            What they gave to this one, in their order, and how many elements each gave.
        """
        if self.size == 1:
            return data, counts
        theirs = torch.empty(self.size, dtype=torch.int64)
        dist.all_to_all_single(theirs, torch.tensor(counts), group=self._numbers)
        got: list[int] = theirs.tolist()
        return self._all_to_all(data, counts, got), got

    def give_back(self, data: Tensor, theirs: Sequence[int], counts: Sequence[int]) -> Tensor:
        """Answers a `scatter`: an element of `data` for each that came. Returns one for each that went."""
        return data if self.size == 1 else self._all_to_all(data, theirs, counts)

    def _all_to_all(self, data: Tensor, gives: Sequence[int], gets: Sequence[int]) -> Tensor:
        out = torch.empty((sum(gets), *data.shape[1:]), dtype=data.dtype, device=self._device)
        dist.all_to_all_single(out, data.contiguous(), list(gets), list(gives), group=self._data)
        return out

    def close(self) -> None:
        for group in {self._numbers, self._data} - {None}:
            dist.destroy_process_group(group)
        self._numbers = self._data = None


def _by_group(numbers: Tensor, groups: int) -> tuple[Tensor, list[int]]:
    """An order by number that keeps the order within a number, and how many there are of each number."""
    return torch.argsort(numbers, stable=True), torch.bincount(numbers, minlength=groups).tolist()

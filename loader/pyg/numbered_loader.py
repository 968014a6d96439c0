"""Loaders of torch's whose mini-batches know their numbers, so that these decide what is random in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.utils.data
from torch import Tensor

from loader import _core
from loader.machine.arguments import as_seed, as_size
from loader.machine.mapped import whole
from loader.pyg.edges_read import EdgesRead
from loader.pyg.positions import sharing


class Numbered(list[Any]):
    """What a batch sampler gave for a mini-batch, and the numbers of its epoch and of the mini-batch."""

    epoch = 0
    number = 0

    @classmethod
    def of(cls, items: Sequence[Any], epoch: int, number: int) -> Numbered:
        made = cls(items)
        made.epoch, made.number = epoch, number
        return made


class Clock:
    """The seed of a loader, the epoch that began last and the next one."""

    def __init__(self, seed: int) -> None:
        self.seed, self.epoch, self.next = seed, 0, 0

    def begin(self) -> int:
        self.epoch = self.next
        self.next += 1
        return self.epoch


class _Shuffled(torch.utils.data.Sampler[int]):
    """An order of the items that follows from seed and epoch, in every process."""

    def __init__(self, count: int, clock: Clock) -> None:
        self._count, self._clock = count, clock

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        out = torch.empty(self._count, dtype=torch.int64)
        key = _core.order_key(self._clock.seed, self._clock.epoch)
        if self._count:
            _core.items_at(self._count, key, 0, self._count, self._count, out)
        yield from out.tolist()


class _Numbering:
    """A batch sampler whose mini-batches are `Numbered`."""

    def __init__(self, batches: Any, clock: Clock) -> None:
        self._batches, self._clock = batches, clock

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Numbered]:
        epoch, (ranks, rank) = self._clock.begin(), sharing(self._batches)
        for number, items in enumerate(self._batches):
            yield Numbered.of(items, epoch, number * ranks + rank)  # among those of all processes


class NumberedLoader(torch.utils.data.DataLoader):
    """Base of the loaders of subgraphs that torch's `DataLoader` drives, in this process or in its workers.

    What is random in a mini-batch is a pure function of (seed, epoch, number of the mini-batch), with any number of
    workers. `shuffle=True` gives an order that follows from seed and epoch, too. A `sampler`, `batch_sampler` or
    `generator` of the caller's decides the order itself. Each iterator is a new epoch.

    A class calls `_init_numbered` in the place of `DataLoader.__init__`, and its dataset gives what `__getitems__` is
    asked for together with its numbers.
    """

    data: Any
    _clock: Clock
    _read: EdgesRead  # of `data`

    def _init_numbered(self, dataset: Any, seed: int | None, **options: Any) -> None:
        if options.get("batch_size", 1) is None and options.get("batch_sampler") is None:
            raise ValueError(f"batch_size is None, but {type(self).__name__} makes mini-batches; give a number")
        generator = options.get("generator")
        if seed is None:
            seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator))
        self._clock = Clock(as_seed(seed))
        self.__dict__["seed"] = self._clock.seed  # where Lightning looks, which makes a loader anew for each process
        own = all(options.get(name) is None for name in ("sampler", "batch_sampler", "generator"))
        if options.get("shuffle") and own and len(dataset):
            options = {**options, "shuffle": None, "sampler": _Shuffled(len(dataset), self._clock)}
        torch.utils.data.DataLoader.__init__(self, dataset, **options)

    @property
    def seed(self) -> int:
        """What decides the order and what is sampled."""
        return self._clock.seed

    @property
    def _index_sampler(self) -> Any:
        """Torch asks it for the items of each mini-batch."""
        return _Numbering(super()._index_sampler, self._clock)

    def __iter__(self) -> Any:
        """An epoch; raises ValueError if the edges are others than when this was made."""
        self._read.check(self.data, type(self).__name__)
        return super().__iter__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy has edges of its own, which are those that the first one has read."""
        self.__dict__.update(state)
        self._read = self._read.again(self.data)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iterator that of epoch `epoch`, counted from 0."""
        self._clock.next = as_size("epoch", epoch, least=0)


def without_own(who: str, place: torch.device, options: dict[str, Any]) -> dict[str, Any]:
    """Options of torch's DataLoader without those that a loader of subgraphs sets itself.

    Raises:
        ValueError: a GPU samples, and there are workers.
    """
    if place.type != "cpu" and options.get("num_workers"):
        raise ValueError(
            f"num_workers is {options['num_workers']}, but {who} samples on {place}, which workers cannot share; leave "
            "it out, or give device='cpu'"
        )
    # Lightning makes a loader anew with what it finds there.
    return {name: value for name, value in options.items() if name not in ("dataset", "collate_fn")}


def rows_of(value: Tensor, ids: Tensor) -> Tensor:
    """Rows of an attribute, on the device of `ids`."""
    with whole(value):
        return value[ids.to(value.device)].to(ids.device)


def ends_of(edge_index: Tensor, ids: Tensor) -> Tensor:
    """`[2, n]` the ends of edges, on the device of `ids`."""
    with whole(edge_index):  # not a row of it, a new tensor each time: to look for its file takes milliseconds
        return edge_index[:, ids.to(edge_index.device)].to(ids.device)


def owner_of(name: str, value: Any, num_nodes: int, num_edges: int) -> str | None:
    """Whose rows an attribute of a `Data` has: "node", "edge", or None if it has neither.

    If there are as many edges as nodes, those with "edge" in the name are of edges, as `Data.is_edge_attr` says.
    """
    rows = value.size(0) if isinstance(value, Tensor) and value.dim() else -1
    if rows == num_edges and (rows != num_nodes or "edge" in name):
        return "edge"
    return "node" if rows == num_nodes else None

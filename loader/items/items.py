"""The items of an epoch."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Self

from loader.graph.checks import check_integers, check_length, signed
from loader.graph.times import seed_times
from loader.machine.arguments import check_dense, kind_of


class Seeds(NamedTuple):
    """The items of one mini-batch, for a sampler.

    Attributes:
        ids: `[n]` nodes or, for edges, `[n, 2]`; for nodes with times `[n, 2]` int64, nodes and times.
        numbers: `[n]` int64, their positions in the list of items; None for kinds of items whose samples do not need
            them.
    """

    ids: Tensor
    numbers: Tensor | None = None


class Items(ABC):
    """A list of items of one kind to sample around.

    Attributes:
        kind: of the items: "node", "edge", "walker", or a kind of your own. A sampler names the kind that it takes.
        device: where the items lie. The positions for `take` lie there, too.
        first: the label of an id is in row `id - first` of the labels, unless `by_number`.
        by_number: there is a label per item. That of an item is in the row that `Seeds.numbers` names.
    """

    kind: str
    device: torch.device
    first: int = 0
    by_number: bool = False

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def take(self, positions: Tensor | slice, sizes: Sequence[int]) -> list[Seeds]:
        """The items at some positions of the list, cut into mini-batches.

        Args:
            positions: `[n]` int64, in `[0, len(self))`, or a slice of them.
            sizes: of the mini-batches, in order; their sum is `n`.
        """

    @abstractmethod
    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """The same items on `device`, with ids of type `dtype`."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A digest of the list of items. Equal lists have equal digests on every device."""


def as_nodes(name: str, ids: Tensor) -> Tensor:
    """`ids`, of any integer type, as a vector that torch compares; `name` is what the messages call it.

    Raises:
        TypeError: it is not an integer tensor.
        ValueError: it is empty or does not have 1 dimension.
    """
    if not isinstance(ids, Tensor):
        raise TypeError(f"{name} is {kind_of(ids)}; give a tensor of node ids (torch.as_tensor)")
    check_dense(name, ids)
    if ids.dtype == torch.bool and ids.dim() > 1:  # of several splits, as torch_geometric's WikiCS has
        way = "take one column, as ids: mask[:, 0].nonzero().view(-1)"
        raise TypeError(f"{name} is a mask of shape {list(ids.shape)}; it must have 1 dimension: {way}")
    if ids.dtype == torch.bool:
        raise TypeError(f"{name} has dtype torch.bool; turn a mask into ids with mask.nonzero().view(-1)")
    if ids.numel() == 0:  # before the dtype: torch.tensor([]) has floats
        raise ValueError(f"{name} is empty; a loader needs at least one seed")
    check_integers(name, ids, f": {name}.long()")
    if ids.dim() != 1:
        way = f": {name}.view(-1)" if ids.numel() in ids.shape else ""
        raise ValueError(f"{name} has shape {list(ids.shape)}; it must have 1 dimension{way}")
    if ids.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{name} lies on {ids.device}; it must lie on the CPU or on a GPU")
    return signed(name, ids)


class NodeItems(Items):
    """Items that are nodes. With times, a node may come several times.

    Args:
        ids: `[n]`, integer, not empty; copied, as what was checked must stay.
        first: the id of the first node of their type, in a graph with several types.
        times: `[n]`, integers or whole floats, of the items, or None. Samples of items with times are in trees.
        numbered: give the samples the items' positions, see `Seeds`; those with times have them.

    Raises:
        TypeError: `ids` is not an integer tensor, or `times` no tensor of numbers.
        ValueError: `ids` is empty or does not have 1 dimension; a time is missing, or no whole number.
    """

    kind = "node"

    def __init__(self, ids: Tensor, *, first: int = 0, times: Tensor | None = None, numbered: bool = False) -> None:
        self.ids, self.first = as_nodes("seeds", ids).clone(), first
        self.device = self.ids.device
        self.by_number = times is not None
        self.numbered = numbered or self.by_number
        self.times = None if times is None else seed_times(times).to(self.device, copy=True)
        if self.times is not None:
            check_length("times", self.times, self.ids.numel(), f"seeds has {self.ids.numel()}")

    def __len__(self) -> int:
        return self.ids.numel()

    def take(self, positions: Tensor | slice, sizes: Sequence[int]) -> list[Seeds]:
        if self.numbered:
            if isinstance(positions, slice):
                positions = torch.arange(positions.start, positions.stop, device=self.device)
            ids = self.ids.index_select(0, positions)
            if self.times is not None:
                ids = torch.stack([ids.long(), self.times.index_select(0, positions)], 1)
            return [
                Seeds(*part)
                for part in zip(
                    ids.unsafe_split_with_sizes(list(sizes)),
                    positions.unsafe_split_with_sizes(list(sizes)),
                    strict=True,
                )
            ]
        ids = self.ids[positions] if isinstance(positions, slice) else self.ids.index_select(0, positions)
        if len(sizes) == 1:
            return [Seeds(ids)]
        # "Unsafe": what is done to one part in place is not taken for a change of the others.
        return [Seeds(part) for part in ids.unsafe_split_with_sizes(list(sizes))]

    def to(self, device: torch.device, dtype: torch.dtype) -> NodeItems:
        """Returns the items on `device`, see `Items.to`.

        Raises:
            ValueError: an id does not fit `dtype`.
        """
        low, high = (int(x) for x in torch.aminmax(self.ids))
        if low < 0 or high > torch.iinfo(dtype).max:
            raise ValueError(
                f"seeds holds node {low if low < 0 else high}; the graph's ids are 0 to {torch.iinfo(dtype).max}"
            )
        times = None if self.times is None else self.times.to(device)
        return NodeItems(self.ids.to(device, dtype), first=self.first, times=times, numbered=self.numbered)

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for array in (self.ids, self.times):
            if array is not None:
                digest.update(array.to("cpu", torch.int64).contiguous().numpy().data)
        return digest.hexdigest()[:16]


class HeteroNodeItems(NodeItems):
    """Nodes of several types, by ids of a `HeteroGraph`'s one range. Those of a mini-batch come type after type, as
    samplers take them, and within a type in the order of the epoch.

    Args:
        ids: `[n]`, integer, not empty.
        starts: the first id of each type, ascending.
    """

    def __init__(self, ids: Tensor, starts: Tensor) -> None:
        super().__init__(ids)
        self.starts = starts

    def take(self, positions: Tensor | slice, sizes: Sequence[int]) -> list[Seeds]:
        def ordered(ids: Tensor) -> Tensor:
            return ids[torch.bucketize(ids, self.starts, right=True).argsort(stable=True)]

        return [Seeds(ordered(part.ids)) for part in super().take(positions, sizes)]

    def to(self, device: torch.device, dtype: torch.dtype) -> HeteroNodeItems:
        return HeteroNodeItems(super().to(device, dtype).ids, self.starts.to(device, dtype))

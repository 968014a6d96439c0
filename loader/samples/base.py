"""The base class of all samples."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from loader.machine.devices import as_device
from loader.machine.gpu import NoGpuError
from loader.samples.lazy_rows import LazyRows

Rows = Tensor | LazyRows


class Sample(ABC):
    """The sample of one mini-batch. Immutable by convention: change a copy (`replace`).

    A sample names the kinds of rows that it wants in `wants`: "node", "seed", "edge" or, with types, "node/paper". If a
    loader has a store for a kind, it gathers the rows of `ids(kind)` there, and passes them to `with_rows`.

    Attributes:
        epoch, index: which mini-batch of which epoch this is.
        repeats: whether it repeats a sample of another rank, to fill up the last step of the ranks.
    """

    epoch: int = 0
    index: int = 0
    repeats: bool = False

    wants: tuple[str, ...] = ()

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """All tensors, in a fixed order."""

    @abstractmethod
    def map(self, f: Callable[[Tensor], Tensor]) -> Self:
        """A copy in which each tensor `t` is replaced by `f(t)`."""

    def ids(self, kind: str) -> Tensor:
        """`[n]` ids, int32 or int64, of the rows of this kind that the sample wants."""
        raise KeyError(f"{type(self).__name__} wants rows of {list(self.wants)}, not of {kind!r}")

    def ids_of(self, kinds: Sequence[str]) -> list[Tensor]:
        """`ids` of each of these kinds. Several kinds may be found together, which takes fewer launches."""
        return [self.ids(kind) for kind in kinds]

    def prepare(self, kinds: Collection[str]) -> None:  # noqa: B027  # most have their ids at hand
        """Does what `ids` of these kinds waits for. The stage that samples calls it, on the stream of the sampler."""

    def has(self, kind: str) -> bool:
        """Whether the sample has its rows of this kind already."""
        return False

    def with_rows(self, rows: Mapping[str, Rows]) -> Self:
        """A copy with these rows. `rows` is kind -> rows; row `i` belongs to `ids(kind)[i]`."""
        raise KeyError(f"{type(self).__name__} wants rows of {list(self.wants)}; it was given {list(rows)}")

    def memory(self) -> list[Tensor]:
        """One tensor per piece of memory of the sample. If several arrays are parts of one piece, it counts once."""
        return list({t.untyped_storage().data_ptr(): t for t in self.tensors()}.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(t.numel() * t.element_size() for t in self.tensors())

    @property
    def held_bytes(self) -> int:
        """Bytes of the memory that the sample keeps: that of `nbytes`, and the rest of the pieces that its arrays lie
        in.
        """
        return sum(t.untyped_storage().nbytes() for t in self.memory())

    def numbers(self) -> tuple[Any, ...]:
        """The values that count in the digest beside the tensors."""
        return int(self.epoch), int(self.index)  # an integer of numpy's prints another way

    def digest(self) -> str:
        """SHA-256 of shapes, types and bytes of all tensors: equal for equal samples on any device."""
        sha = hashlib.sha256(repr(self.numbers()).encode())
        for t in self.tensors():
            sha.update(repr((tuple(t.shape), str(t.dtype))).encode())
            if t.numel():  # one without entries may have strides that no other type can view
                own = t.detach().cpu().clone(memory_format=torch.contiguous_format)  # one entry may have any stride
                sha.update(own.view(-1).view(torch.uint8).numpy().tobytes())
        return sha.hexdigest()

    def replace(self, **changes: Any) -> Self:
        """A copy with some attributes exchanged; tensors are shared."""
        if unknown := changes.keys() - self.__dict__.keys() - Sample.__annotations__.keys():
            raise TypeError(f"{type(self).__name__} has no attribute '{min(unknown)}'")
        copy = object.__new__(type(self))  # `dataclasses.replace` takes ten times as long
        copy.__dict__.update(self.__dict__, **changes)
        return copy

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """The sample on `device`; `non_blocking` copies from pinned memory run asynchronously.

        Raises:
            ValueError: torch knows no such device.
            NoGpuError: it is a GPU, and torch finds none.
        """
        place = as_device(device)
        if place.type not in ("cpu", "cuda", "meta"):
            raise ValueError(f"device is '{device}'; it must be cpu, cuda or cuda:N")
        if place.type == "cuda" and not torch.cuda.is_available():
            raise NoGpuError(f"device is '{device}', but torch finds no NVIDIA GPU here; give 'cpu'")
        return self.map(lambda t: t.to(place, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """The sample in page-locked host memory.

        Raises:
            NoGpuError: torch finds no GPU.
        """
        if not torch.cuda.is_available():
            raise NoGpuError("pin_memory() is for copies to a GPU, and torch finds none here; leave it out")
        return self.map(lambda t: t.pin_memory())

    def record_stream(self, stream: Any) -> None:
        """Tells torch's allocator that `stream` (a `torch.cuda.Stream`) uses the tensors of the sample on a GPU."""
        for t in self.memory():
            if t.is_cuda:
                t.record_stream(stream)

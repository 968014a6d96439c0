"""Where an array of a graph lies: ordinary, page-locked or GPU memory, or a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from loader.machine.gpu import cuda_device, require_cuda
from loader.machine.mapped import save_and_map
from loader.machine.pages import file_behind, is_replaced, is_written
from loader.machine.pinning import PinnedTensor

_FORMS = "'cpu', 'pinned', 'cuda', 'cuda:N', 'disk' or 'disk:FILE.npy'"


@dataclass(frozen=True)
class Placement:
    """Where an array lies. As a string, as `parse` takes it: "cpu", "pinned", "cuda:0", "disk:/data/indices.npy".

    Attributes:
        kind: "cpu" (ordinary memory), "pinned" (page-locked memory, which GPUs read without a copy), "cuda", or
            "disk" (a file mapped into memory: read when it is touched).
        index: of the GPU.
        file: of the mapping.
    """

    kind: str
    index: int | None = None
    file: Path | None = None

    @classmethod
    def parse(cls, where: Placement | torch.device | str) -> Placement:
        """The placement of this name; "cuda" is the current GPU.

        Raises:
            TypeError, ValueError: it is none, or this machine has no such GPU.
            NoGpuError: "pinned" or "cuda", and build or machine have no GPU.
        """
        if isinstance(where, Placement):
            return where
        if not isinstance(where, (torch.device, str)):
            raise TypeError(f"a placement is {where!r}; it must be {_FORMS}")
        kind, _, rest = str(where).partition(":")
        if kind == "disk":
            return cls("disk", file=Path(rest).absolute() if rest else None)
        if kind in ("cpu", "pinned") and not rest:
            if kind == "pinned":
                require_cuda("a graph in pinned memory")
            return cls(kind)
        if kind == "cuda" and (not rest or rest.isdecimal()):
            if not torch.cuda.is_available():
                raise ValueError(f"a placement is '{where}'; torch finds no NVIDIA GPU here: use 'cpu'")
            return cls("cuda", index=cuda_device(str(where)).index)
        raise ValueError(f"a placement is '{where}'; it must be {_FORMS}")

    @classmethod
    def of(cls, array: Tensor) -> Placement:
        """Where `array` lies. Only on Linux it is known whether the memory is mapped from a file."""
        if array.device.type == "cuda":
            return cls("cuda", index=array.device.index)
        if array.device.type != "cpu":
            raise ValueError(f"an array of a graph lies on {array.device}; it must lie in CPU or NVIDIA GPU memory")
        if array.is_pinned():
            return cls("pinned")
        file = file_behind(array)
        return cls("cpu") if file is None else cls("disk", file=file)

    def take(self, name: str, array: Tensor) -> tuple[Tensor, PinnedTensor | None]:
        """`array` at this place, and the object that keeps it locked. An array that lies there already is returned
        itself. An empty array has no pages to lock or map.

        Memory is locked in place if the system allows it, else it is copied once. For "disk" the array is written as a
        .npy file.

        Raises:
            ValueError: "disk" names no file, and the array is not in a file yet.
            RuntimeError: the system does not lock that much memory.
            OSError: the file cannot be written, or its folder is not there.
        """
        if self.kind == "pinned":
            lock = PinnedTensor(array.cpu())  # also of memory that another keeps locked, and may release
            return lock.tensor, lock
        now = Placement.of(array)
        if now == self and not (self.kind == "disk" and (is_replaced(array) or is_written(array))):
            return array, None
        if self.kind == "cuda":
            return array.to(f"cuda:{self.index}"), None
        if self.kind == "cpu":
            return (array.cpu() if now.kind == "cuda" else array.clone()), None
        if self.file is None:
            if now.kind == "disk":
                return array, None
            raise ValueError(f"{name} lies in no file yet; name one: place({name}='disk:/folder/{name}.npy')")
        if not self.file.parent.is_dir():
            raise FileNotFoundError(
                f"{name} is to lie in {self.file}, but there is no folder {self.file.parent}; make it first"
            )
        return save_and_map(array, self.file), None

    def __str__(self) -> str:
        if self.kind == "cuda":
            return f"cuda:{self.index}"
        return self.kind if self.file is None else f"{self.kind}:{self.file}"

"""A tensor that only says that it lies on a GPU: for bindings that look at what they are given and launch nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch


class OnGPU:
    """`tensor`, which lies on the CPU, as one of GPU `index`."""

    is_cuda, is_cpu, is_meta = True, False, False

    def __init__(self, tensor: torch.Tensor, index: int = 0) -> None:
        self._tensor = tensor
        self.device = SimpleNamespace(type="cuda", index=index)

    def get_device(self) -> int:
        index: int = self.device.index
        return index

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)

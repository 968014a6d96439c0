"""Which dtype an aggregation works in, under torch's autocast and without."""

from __future__ import annotations

import torch
from torch import Tensor


def autocast_dtype(device_type: str) -> torch.dtype | None:
    """That of autocast on "cpu" or "cuda"; None without autocast there."""
    if hasattr(torch, "get_autocast_dtype"):  # since torch 2.4, where the others warn
        return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None
    if device_type == "cpu":
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


def working_dtype(x: Tensor) -> torch.dtype:
    """That of `x`; under autocast, for float32, that of autocast. `x` of a live block is a stand-in for a GPU's."""
    if x.dtype != torch.float32:
        return x.dtype
    return autocast_dtype("cpu" if x.device.type == "cpu" else "cuda") or x.dtype

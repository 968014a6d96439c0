"""The dtype of an aggregation, with and without torch's autocast."""

from __future__ import annotations

import torch
from torch import Tensor

from loader.samples import LazyRows


def autocast_dtype(device_type: str) -> torch.dtype | None:
    """The dtype of autocast on "cpu" or "cuda"; None if autocast is off there."""
    if hasattr(torch, "get_autocast_dtype"):  # since torch 2.4, where the others warn
        return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None
    if device_type == "cpu":
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


def working_dtype(x: Tensor | LazyRows) -> torch.dtype:
    """The dtype of `x`, or for float32 under autocast that of autocast. `x` of a captured block counts as on a GPU."""
    if x.dtype != torch.float32:
        return x.dtype
    return autocast_dtype("cpu" if x.device.type == "cpu" else "cuda") or x.dtype

"""What rows of 8 bits are, in plain NumPy: the reference of all stores and kernels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

CODES = ("int8", "float8")


def float8_values() -> np.ndarray:
    """`[256]` float32: the values of the codes of e4m3fn, from its definition."""
    values = np.empty(256, np.float32)
    for code in range(256):
        sign = -1.0 if code & 128 else 1.0
        exponent, mantissa = code >> 3 & 15, code & 7
        if exponent == 15 and mantissa == 7:
            values[code] = np.nan
        elif exponent:
            values[code] = sign * 2.0 ** (exponent - 7) * (1 + mantissa / 8)
        else:
            values[code] = sign * 2.0**-6 * (mantissa / 8)
    return values


def values_of(codes: np.ndarray, kind: str) -> np.ndarray:
    """float32 values of codes, which are uint8."""
    return codes.view(np.int8).astype(np.float32) if kind == "int8" else float8_values()[codes]


def decoded(codes: Tensor, scales: Tensor, kind: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Rows `[n, columns]` of codes `[n, columns]` uint8: one product of float32 for each element."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        rows = values_of(codes.numpy(), kind) * scales.numpy()
    return torch.from_numpy(rows.astype(np.float32)).to(dtype)


def encoded(rows: Tensor, kind: str, by_row: bool) -> tuple[Tensor, Tensor]:
    """Codes `[n, columns]` uint8 of rows, and their scales: the nearest code to each quotient, of two the even one."""
    x = rows.float().numpy()
    most = np.abs(x).max(1 if by_row else 0, keepdims=True).astype(np.float32)
    limit = np.float32(127 if kind == "int8" else 448)
    scales = np.where(most > 0, np.maximum(most / limit, np.float32(2.0**-126)), np.float32(1)).astype(np.float32)
    quotients = np.clip(x / scales, -limit, limit)
    if kind == "int8":
        return torch.from_numpy(np.rint(quotients).astype(np.int8).view(np.uint8)), torch.from_numpy(scales)
    positive = float8_values()[:127]  # ascending
    magnitudes = np.abs(quotients)
    above = np.searchsorted(positive, magnitudes).clip(0, 126)
    below = (above - 1).clip(0, 126)
    low, high = magnitudes - positive[below], positive[above] - magnitudes
    takes_below = (low < high) | ((low == high) & (below % 2 == 0))
    codes = np.where(takes_below, below, above).astype(np.uint8)
    codes |= np.signbit(quotients).astype(np.uint8) << 7
    return torch.from_numpy(codes), torch.from_numpy(scales)

"""The names of devices."""

from __future__ import annotations

import torch

from loader.machine.arguments import shown


def as_device(device: torch.device | str | int, name: str = "device") -> torch.device:
    """`device` as torch knows it.

    Args:
        device: "cpu", "cuda", "cuda:1" and so on; a number is that of a GPU.
        name: what the message calls it.

    Raises:
        ValueError: torch knows no such device.
    """
    try:
        if isinstance(device, bool):  # which torch takes as a number
            raise TypeError
        return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:  # ValueError: an integer of more than 64 bits
        raise ValueError(f"{name} is {shown(device)}; it must be cpu, cuda or cuda:N") from error

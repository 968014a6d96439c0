from __future__ import annotations

import pytest
import torch

from loader.machine.devices import as_device


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1", 1, torch.device("cuda:0")])
def test_names_and_numbers_are_devices(device: torch.device | str | int) -> None:
    assert as_device(device).type in ("cpu", "cuda")


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "", None, 1.5, True, 10**30, [0]])
def test_other_names_are_refused_with_the_known_ones(device: object) -> None:
    with pytest.raises(ValueError, match=r"place is .*; it must be cpu, cuda or cuda:N"):
        as_device(device, "place")  # type: ignore[arg-type]

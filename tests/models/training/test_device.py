"""Which device is taken, and what is said about it."""

from __future__ import annotations

import pytest
import torch

from loader.kernels import NoCompilerError
from models.training import device
from models.training.device import device_of_run


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """`machine(gpu=..., torch_cuda=..., compiler=...)` pretends to be such a machine and torch."""

    def pretend(*, gpu: bool, torch_cuda: bool, compiler: bool) -> None:
        def check(architecture: int) -> None:
            if not compiler:
                raise NoCompilerError("no NVRTC was found")

        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "H200")
        monkeypatch.setattr(torch.version, "cuda", "13.0" if torch_cuda else None)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
        monkeypatch.setattr(device, "check_kernels", check)

    return pretend


def test_auto_takes_a_usable_gpu(machine) -> None:  # type: ignore[no-untyped-def]
    machine(gpu=True, torch_cuda=True, compiler=True)
    assert device_of_run("auto") == ("cuda", "H200, found")
    assert device_of_run("cuda") == ("cuda", "H200, asked for")
    assert device_of_run("cpu") == ("cpu", "asked for")


@pytest.mark.parametrize(
    ("gpu", "torch_cuda", "compiler", "reason", "way_out"),
    [
        (False, False, False, "this torch was built without CUDA", "install a CUDA build"),
        (False, True, True, "torch finds no NVIDIA GPU", "nvidia-smi"),
        (True, True, False, "no NVRTC was found", "compiled at the first start"),
    ],
)
def test_missing_parts_are_named(  # type: ignore[no-untyped-def]
    machine, gpu: bool, torch_cuda: bool, compiler: bool, reason: str, way_out: str
) -> None:
    machine(gpu=gpu, torch_cuda=torch_cuda, compiler=compiler)
    taken, why = device_of_run("auto")
    assert taken == "cpu"
    assert reason in why
    with pytest.raises(ValueError, match="device=cuda is not possible") as error:
        device_of_run("cuda")
    assert reason in str(error.value)
    assert way_out in str(error.value)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ValueError, match="device is 'tpu'; it must be auto, cpu or cuda"):
        device_of_run("tpu")

"""Which device a run takes, and why."""

from __future__ import annotations

import torch

from loader import _core

_BUILD = "install a CUDA toolkit and reinstall with: pip install . -C cmake.define.LOADER_CUDA=ON"


def choose_device(wanted: str) -> tuple[str, str]:
    """The device ("cpu" or "cuda") for a wish, and the reason in words.

    Args:
        wanted: "auto" takes the GPU where both the machine and the build of `loader._core` have one.

    Raises:
        ValueError: an unknown wish, or "cuda" where the machine or the build has none.
    """
    if wanted not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device is '{wanted}'; it must be auto, cpu or cuda")
    if wanted == "cpu":
        return "cpu", "asked for"
    missing = _missing()
    if missing is None:
        return "cuda", torch.cuda.get_device_name() + (", asked for" if wanted == "cuda" else ", found")
    what, way_out = missing
    if wanted == "cuda":
        raise ValueError(f"device=cuda is not possible: {what}; {way_out}, or run with device=cpu")
    return "cpu", what


def _missing() -> tuple[str, str] | None:
    """What stands between this process and a GPU, and the way out; None when nothing does."""
    if not torch.cuda.is_available():
        if torch.version.cuda is None:
            return "this torch was built without CUDA", "install a CUDA build (https://pytorch.org/get-started)"
        return "torch finds no NVIDIA GPU on this machine", "check nvidia-smi and CUDA_VISIBLE_DEVICES"
    if not _core.with_cuda:
        return "loader._core was built without CUDA", _BUILD
    return None

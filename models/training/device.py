"""Which device a run takes, and why; and what cannot be had there."""

from __future__ import annotations

import torch
from omegaconf import DictConfig

from loader.kernels import NoCompilerError, check_kernels
from loader.machine.arguments import instead_of
from loader.stores import options_of
from models.training.options import OPTIONS, check_part
from models.training.target_classes import object_of


def device_of_run(wanted: str) -> tuple[str, str]:
    """The device ("cpu" or "cuda") for a wish, and the reason in words.

    Args:
        wanted: "auto" takes the GPU if torch finds one and kernels can be compiled for it.

    Raises:
        ValueError: an unknown wish, or "cuda" without a GPU that can be used.
    """
    OPTIONS[""]["device"].check("device", wanted)
    if wanted == "cpu":
        return "cpu", "asked for"
    missing = _missing()
    if missing is None:
        return "cuda", torch.cuda.get_device_name() + (", asked for" if wanted == "cuda" else ", found")
    what, way_out = missing
    if wanted == "cuda":
        raise ValueError(f"device=cuda is not possible: {what}; {way_out}, or run with device=cpu")
    return "cpu", what


def check_features(features: DictConfig, device: str) -> None:
    """Raises for a feature store that this run cannot have: it is only made when the data were read.

    Args:
        features: an option of `conf/features/`: `_target_` and its keywords.
        device: "cpu" or "cuda", where the run trains.

    Raises:
        TypeError: a keyword that the store does not know.
        ValueError: a value that it cannot have; the store puts its rows on a GPU, and the run has none; or it would be
            made at once.
    """
    if (partial := features.get("_partial_")) is not True:
        raise ValueError(f"features._partial_ is {partial}; it must be true: the store is made once there are data")
    store = object_of("features", features)
    options = {str(key): value for key, value in features.items() if not str(key).startswith("_")}
    try:
        known = options_of(store)
    except (TypeError, ValueError):  # of what is no function, or one of C
        raise ValueError(
            f"features._target_ is {features._target_}; it must be a store, e.g. loader.stores.HostFeatures"
        ) from None
    for name in options.keys() - set(known):
        raise TypeError(f"features.{name} is no option of {store.__name__}; {instead_of(name, known)}")
    if store.__module__.startswith("loader.stores."):
        check_part("features", features)
        fraction, budget = options.get("fraction"), options.get("budget_gib")
        if fraction is not None and budget is not None:
            raise ValueError(f"features.fraction is {fraction} and features.budget_gib is {budget}; set one to null")
    of_gpu, needs_gpu = str(options.get("device") or "cpu") != "cpu", getattr(store, "needs_gpu", False)
    if device == "cpu" and (of_gpu or needs_gpu):
        way = "take features=auto, host or memmap" if needs_gpu else f"leave out features.device={options['device']}"
        raise ValueError(f"{store.__name__} puts its rows on a GPU, but this run has none (device=cpu); {way}")


def _missing() -> tuple[str, str] | None:
    """What stands between this process and a GPU, and the way out; None when nothing does."""
    if not torch.cuda.is_available():
        if torch.version.cuda is None:
            return "this torch was built without CUDA", "install a CUDA build (https://pytorch.org/get-started)"
        return "torch finds no NVIDIA GPU on this machine", "check nvidia-smi and CUDA_VISIBLE_DEVICES"
    major, minor = torch.cuda.get_device_capability()
    try:
        check_kernels(10 * major + minor)
    except NoCompilerError as error:
        return str(error), "GPU kernels are compiled at the first start"
    return None

"""Which device is taken, and what is said about it."""

from __future__ import annotations

import pytest
import torch
from omegaconf import OmegaConf
from train_runs import FAST, Composer

from loader.kernels import NoCompilerError
from models.training import device, preparation
from models.training.device import check_features, device_of_run
from models.training.trainer import make_trainer


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


CACHED = {"_target_": "loader.stores.CachedFeatures"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float128"}, "features.dtype is 'float128'; it must be the name of a torch.dtype, e.g. float16"),
        ({"fraction": 2}, "features.fraction is 2; it must be in 0 to 1"),
        ({"fraction": "x"}, "features.fraction is 'x'; it must be in 0 to 1"),
        ({"fraction": None, "budget_gib": -1}, "features.budget_gib is -1; it must be a number of at least 0"),
        ({"fraction": 0.1, "budget_gib": 1}, "features.fraction is 0.1 and features.budget_gib is 1; set one to null"),
        ({"fractoin": 0.5}, "features.fractoin is no option of PartitionedFeatures; did you mean fraction?"),
        ({"wide": 3}, "features.wide is no option of PartitionedFeatures; it knows "),
        ({"hotness": "size"}, "features.hotness is 'size'; it must be one of degree, pagerank, visits"),
        ({"timeout": 0}, "features.timeout is 0; it must be greater than 0 and at most 86400 seconds"),
        ({"batches_per_exchange": 0}, "features.batches_per_exchange is 0; it must be an integer of at least 1"),
        ({"num_threads": 0}, "features.num_threads is 0; it must be an integer of at least 1 and at most 1024"),
        ({**CACHED, "host_threads": -3}, "features.host_threads is -3; it must be an integer of at least 0"),
        ({**CACHED, "lookahead": 99}, "features.lookahead is 99; it must be an integer of at least 0 and at most 16"),
    ],
)
def test_values_no_store_can_have_are_refused(options: dict[str, object], message: str) -> None:
    features = {"_target_": "loader.stores.PartitionedFeatures", "_partial_": True, **options}
    with pytest.raises((TypeError, ValueError), match=message):
        check_features(OmegaConf.create(features), "cpu")


def test_a_gpu_share_is_above_zero() -> None:
    features = {"_target_": "loader.stores.auto_features", "_partial_": True, "gpu_share": 0}
    with pytest.raises(ValueError, match=r"features.gpu_share is 0; it must be in \(0, 1\]"):
        check_features(OmegaConf.create(features), "cpu")


def test_a_job_sets_no_threads_of_the_next(composed: Composer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "_threads_before", [])
    before = torch.get_num_threads()
    try:
        for given, expected in (("2", 2), ("3", 3), ("null", before), ("null", before)):
            preparation.prepare(composed(*FAST, f"num_threads={given}"))
            assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)


def test_a_job_sets_no_algorithms_of_the_next(composed: Composer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "_algorithms_before", [])
    for option in ("deterministic=true", "benchmark=true", "deterministic=warn"):
        for given in (option, "deterministic=null"):
            cfg = composed(*FAST, f"trainer.{given}")
            preparation.prepare(cfg)
            make_trainer(cfg)
            found = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
            wanted = option.startswith("deterministic"), option.startswith("benchmark")
            assert found == (wanted if given == option else (False, False))
    assert not torch.is_deterministic_algorithms_warn_only_enabled()

"""What bindings of the GPU part are given is looked at before anything is launched: wrong tensors are one line.

The tensors lie on the CPU and say that they lay on a GPU, see `OnGPU`: a launch would fail for the lack of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from on_gpu import OnGPU

from loader import _core

Arguments = dict[str, Any]


@dataclass
class Binding:
    """A binding with arguments that it takes.

    Attributes:
        call: of the arguments, by name.
        arguments: tensors of the GPU, and others.
        lengths: what is said of each tensor that lacks an element, where it is not "has n elements; it must have m".
        any_length: tensors whose length says how long others are.
    """

    call: Callable[..., Any]
    arguments: Arguments
    lengths: dict[str, str]
    any_length: frozenset[str] = frozenset()


def on_gpu(*sizes: int, dtype: torch.dtype = torch.int64) -> Any:
    return OnGPU(torch.zeros(*sizes, dtype=dtype))


def gatherer() -> _core.CudaGatherer:
    """Of a table of 10 rows of 4 float32, returned as float16, 3 of which are cached."""
    return _core.CudaGatherer(
        torch.zeros(10, 4),
        0,
        "torch.float16",
        raised=on_gpu(1, dtype=torch.int32),
        notes=torch.zeros(_core.cuda_notes_bytes, dtype=torch.uint8),
        cache=OnGPU(torch.zeros(3, 4)),  # type: ignore[arg-type]
        slots=on_gpu(10, dtype=torch.int32),
        hits=on_gpu(1),
    )


def gather() -> Binding:
    core = gatherer()
    core.order_from = 70
    scratch = core.scratch_bytes(70)
    return Binding(
        lambda **given: core.gather(**given, stream=0),
        {
            "ids": on_gpu(70),
            "out": on_gpu(70, 4, dtype=torch.float16),
            "scratch": on_gpu(scratch, dtype=torch.uint8),
            "marks": on_gpu(3, dtype=torch.int32),
        },
        {
            "ids": "out has 70 rows of 8 bytes; it must have 69 of 8",
            "out": "out has 69 rows of 8 bytes; it must have 70",
        },
    )


def find_misses() -> Binding:
    core = gatherer()
    return Binding(
        lambda **given: core.find_misses(**given, from_id=0, stream=0),
        {"ids": on_gpu(7), "found": on_gpu(7), "positions": on_gpu(7), "counts": on_gpu(2 + _core.miss_ranges)},
        {"ids": "found has 7 elements; it must have 6"},
    )


def mark_misses() -> Binding:
    core = gatherer()
    return Binding(
        lambda **given: core.mark_misses(**given, stream=0),
        {"ids": on_gpu(65), "marks": on_gpu(3, dtype=torch.int32)},
        {"ids": "marks has 3 elements; it must have 2"},
    )


BINDINGS: dict[str, Callable[[], Binding]] = {
    "CudaGatherer.gather": gather,
    "CudaGatherer.find_misses": find_misses,
    "CudaGatherer.mark_misses": mark_misses,
}
TENSORS = [
    (name, tensor)
    for name, make in BINDINGS.items()
    for tensor, value in make().arguments.items()
    if isinstance(value, OnGPU)
]


def refusal(name: str, tensor: str, wrong: Any) -> BaseException:
    """The error of a call with `wrong` in the place of a tensor."""
    binding = BINDINGS[name]()
    with pytest.raises((TypeError, ValueError)) as raised:
        binding.call(**{**binding.arguments, tensor: wrong})
    assert "\n" not in str(raised.value)
    return raised.value


def held(name: str, tensor: str) -> torch.Tensor:
    value: OnGPU = BINDINGS[name]().arguments[tensor]
    return value._tensor


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it would be launched")
@pytest.mark.parametrize("name", BINDINGS)
def test_the_right_tensors_are_taken(name: str) -> None:
    binding = BINDINGS[name]()
    with pytest.raises(RuntimeError, match="there is no NVIDIA driver here"):
        binding.call(**binding.arguments)


@pytest.mark.parametrize(("name", "tensor"), TENSORS)
class TestWrongTensors:
    def test_another_type_is_refused(self, name: str, tensor: str) -> None:
        other = torch.bool
        error = refusal(name, tensor, OnGPU(held(name, tensor).to(other)))
        assert isinstance(error, TypeError)
        assert f"{tensor} has dtype torch.bool; " in str(error)

    def test_another_length_is_refused(self, name: str, tensor: str) -> None:
        given = held(name, tensor)
        wrong = given[: len(given) - 1].contiguous()
        binding = BINDINGS[name]()
        said = binding.lengths.get(tensor, f"{tensor} has {wrong.numel()} elements; it must have {given.numel()}")
        error = refusal(name, tensor, OnGPU(wrong))
        assert isinstance(error, ValueError)
        assert said in str(error)

    def test_another_device_is_refused(self, name: str, tensor: str) -> None:
        for device in ("cpu", "meta"):
            error = refusal(name, tensor, held(name, tensor).to(device))
            assert str(error) == f"{tensor} lies on {device}; it must lie on cuda"

    def test_another_gpu_is_refused(self, name: str, tensor: str) -> None:
        error = refusal(name, tensor, OnGPU(held(name, tensor), index=1))
        assert str(error) == f"{tensor} lies on cuda:1; it must lie on cuda:0"

    def test_gaps_between_elements_are_refused(self, name: str, tensor: str) -> None:
        given = held(name, tensor)
        apart = torch.zeros(*given.shape, 2, dtype=given.dtype)[..., 0]
        error = refusal(name, tensor, OnGPU(apart))
        assert str(error) == f"{tensor} is not contiguous; call .contiguous() first"

    def test_what_is_no_tensor_is_refused(self, name: str, tensor: str) -> None:
        assert str(refusal(name, tensor, 4096)) == f"{tensor} is int; it must be a tensor"

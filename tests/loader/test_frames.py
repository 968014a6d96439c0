"""How deep the package's calls lie, which costs the host time with every mini-batch, and how much code they lie in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_gpu_sampler
import pytest
import torch
from fake_cuda import FakeCuda
from fake_gpu_sampler import FakeGPU
from small_loader import digests, small_loader

import loader
from loader.graph import Graph
from loader.loaders.base import Loader
from loader.pipeline import Pipeline, StageStreams
from loader.samplers import CudaSampler

PACKAGE = Path(loader.__file__).parent


def frames() -> list[str]:
    """The functions of the package that lie on the stack, from the outside in."""
    found, frame = [], sys._getframe(1)
    while frame is not None:
        if PACKAGE in Path(frame.f_code.co_filename).parents:
            found.append(frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name)
        frame = frame.f_back
    return found[::-1]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The frames at each launch of a GPU sampler."""
    found: list[list[str]] = []
    FakeGPU(monkeypatch)
    launch = fake_gpu_sampler.FakeEngine.launch

    def noted(self: Any, *arguments: Any) -> Any:
        found.append(frames())
        return launch(self, *arguments)

    monkeypatch.setattr(fake_gpu_sampler.FakeEngine, "launch", noted)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    return found


def by_streams(made: Loader) -> Loader:
    """The loader as it is on a GPU: its stages have streams, of a virtual clock."""
    pipeline = made._open()
    streams = StageStreams(torch.device("cuda", 0), pipeline.stages, cuda=FakeCuda())
    made._pipeline = Pipeline(pipeline.stages, made.prefetch, made.stats, streams)
    return made


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_launches_lie_within_8_frames_of_next(
    random_graph: Callable[..., Graph], launches: list[list[str]], prefetch: int, together: int
) -> None:
    graph = random_graph(200, 1500)
    sampler = CudaSampler([3, 2], batches_per_launch=together)
    made = by_streams(small_loader(graph, features=None, labels=None, sampler=sampler, prefetch=prefetch))
    assert made.ahead == ("consumer" if prefetch else "none")
    assert len(digests(made)) == 7
    assert len(launches) == (7 if together == 1 or not prefetch else 3)
    for stack in launches:
        assert stack[0] == "Epoch.__next__" or sys.version_info < (3, 11), stack
        assert len(stack) <= 8, stack

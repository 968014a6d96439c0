"""When memory that a GPU reads is freed: after the GPU is done, and never amid the capture of a CUDA graph."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from marks import needs_gpu

from loader.machine.freeing import capturing, free_when_done
from loader.machine.pinning import PinnedTensor
from loader.samplers import Request
from loader.samplers.gpu.sampler import CudaSampler
from loader.stores import CachedFeatures, DeviceFeatures, PinnedFeatures


class Gpu:
    """Stands in for torch's: notes who waits for it."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.captures = False

    def free(self, what: str) -> None:
        free_when_done(3, partial(self.done.append, what))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    one = Gpu()
    monkeypatch.setattr(torch.cuda, "synchronize", one.done.append)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: one.captures)
    yield one
    with capturing():
        pass  # what waits


def in_a_thread(function: Callable[[], None]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def test_the_gpu_is_waited_for_first(gpu: Gpu) -> None:
    gpu.free("a")
    assert gpu.done == [3, "a"]


def test_nothing_is_freed_amid_a_capture(gpu: Gpu) -> None:
    with capturing():
        gpu.free("a")
        in_a_thread(partial(gpu.free, "b"))
        assert gpu.done == []
    assert gpu.done == [3, "a", 3, "b"]


def test_captures_of_others_are_seen(gpu: Gpu) -> None:
    gpu.captures = True
    gpu.free("a")
    assert gpu.done == []
    gpu.captures = False
    gpu.free("b")
    assert gpu.done == [3, "a", 3, "b"]


def test_what_is_freed_may_free_more(gpu: Gpu) -> None:
    free_when_done(1, partial(gpu.free, "inner"))
    assert gpu.done == [1, 3, "inner"]


def test_an_error_leaves_the_rest_for_later(gpu: Gpu) -> None:
    def fail() -> None:
        raise OSError("no memory to free")

    def capture() -> None:
        with capturing():
            free_when_done(1, fail)
            gpu.free("a")

    with pytest.raises(OSError, match="no memory to free"):
        capture()
    assert gpu.done == [1]
    gpu.free("b")
    assert gpu.done == [1, 3, "a", 3, "b"]


def test_a_capture_that_fails_frees_as_well(gpu: Gpu) -> None:
    def fail() -> None:
        with capturing():
            gpu.free("a")
            assert not gc.isenabled()
            raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            fail()
        assert gc.isenabled()
    assert gpu.done == [3, "a"] * 2


def test_captures_of_two_threads_take_turns(gpu: Gpu) -> None:
    begun, order = threading.Event(), []

    def other() -> None:
        begun.set()
        with capturing():
            order.append("other")

    with capturing():
        thread = threading.Thread(target=other)
        thread.start()
        assert begun.wait(30)
        thread.join(0.05)
        order.append("first")
    thread.join(30)
    assert order == ["first", "other"]


def pinned(_: Any) -> Any:
    return PinnedFeatures(torch.randn(5000, 16), "cuda")


def cached(_: Any) -> Any:
    return CachedFeatures(torch.randn(5000, 16), "cuda", fraction=0.3, hotness=torch.rand(5000))


def on_device(_: Any) -> Any:
    return DeviceFeatures(torch.randn(5000, 16), "cuda")


def locked(_: Any) -> Any:
    return PinnedTensor(torch.randn(5000, 16))


def session(graph: Any) -> Any:
    opened = CudaSampler([5, 5]).open(graph.to("cuda"))
    for finish in opened.begin([Request(torch.arange(20), 0, 0)]):
        finish()
    return opened


@pytest.mark.parametrize("make", [pinned, cached, on_device, locked, session])
class TestOnGPU:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("cycle", [False, True])
    def test_no_memory_is_freed_amid_a_capture(self, make: Any, random_graph: Any, cycle: bool) -> None:
        held = [make(random_graph())]
        if cycle:
            held.append(held)
        gc.collect()  # garbage of other tests may hold graphs, and torch ends a capture when it frees one
        x, graph = torch.zeros(1000, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            y = x + 1
            del held
            gc.collect()
            y = y + 1
        graph.replay()
        assert y.eq(2).all()

    def test_no_other_thread_ends_a_capture(self, make: Any, random_graph: Any) -> None:
        held = [make(random_graph())]
        x, graph = torch.zeros(1000, device="cuda"), torch.cuda.CUDAGraph()
        with capturing(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            y = x + 1
            in_a_thread(held.clear)
            y = y + 1
        graph.replay()
        assert y.eq(2).all()

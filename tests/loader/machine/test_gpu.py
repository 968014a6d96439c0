"""The current stream of a GPU, which is asked for several times a mini-batch, and its free memory."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from marks import needs_gpu

from loader.machine import gpu as cuda

MIB = 2**20


def test_each_id_and_device_has_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int, int]] = []
    current = {0: 0, 1: 0}

    def make(stream_id: int, device_index: int, device_type: int) -> SimpleNamespace:
        made.append((stream_id, device_index, device_type))
        # Torch's stream 7 of device 0, and an external stream that has its handle.
        return SimpleNamespace(stream_id=stream_id, device=device_index, cuda_stream=0x5000 if stream_id else 0)

    monkeypatch.setattr(cuda, "_streams", {})
    monkeypatch.setattr(torch._C, "_cuda_getCurrentStream", lambda device: (current[device], device, 1), raising=False)
    monkeypatch.setattr(torch.cuda, "Stream", make)
    for device, stream_id in ((0, 0), (1, 0), (0, 7), (1, 9), (0, 0x5000), (0, 0), (0, 7), (1, 9), (0, 0x5000)):
        current[device] = stream_id
        stream = cuda.current_stream(device)
        assert (stream.device, stream.stream_id) == (device, stream_id)
        assert cuda.current_stream(device) is stream
    assert made == [(0, 0, 1), (0, 1, 1), (7, 0, 1), (9, 1, 1), (0x5000, 0, 1)]


class TestOnGPU:
    pytestmark = needs_gpu

    def test_the_current_stream_is_torchs(self) -> None:
        streams = [torch.cuda.Stream() for _ in range(3)]
        found = []

        def in_a_thread() -> None:
            with torch.cuda.stream(streams[2]):
                found.append(cuda.current_stream(0))

        for stream in (*streams, *streams):
            with torch.cuda.stream(stream):
                thread = threading.Thread(target=in_a_thread)
                thread.start()
                thread.join()
                assert cuda.current_stream(0) == torch.cuda.current_stream() == stream
                assert cuda.current_stream(0) is cuda.current_stream(0)
        assert cuda.current_stream(0) == torch.cuda.default_stream()
        assert all(stream == streams[2] for stream in found)

    def test_memory_that_torch_holds_unused_is_free(self) -> None:
        taken = []
        for _ in range(3):  # other processes may take some at the same time
            before = cuda.free_bytes(torch.device("cuda", 0))
            held = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
            taken.append(before - cuda.free_bytes(torch.device("cuda", 0)))
            del held
        assert any(64 * MIB <= one < 80 * MIB for one in taken)
        assert before - cuda.free_bytes(torch.device("cuda", 0)) < 16 * MIB


@given(most=st.integers(0, 2**22), share=st.floats(0, 1))
def test_little_is_counted_beyond_a_size(most: int, share: float) -> None:
    nbytes = int(share * most)
    assert 0 <= cuda.counted_bytes(nbytes) - nbytes <= cuda.counted_beyond(most)
    assert cuda.counted_beyond(MIB) == 512

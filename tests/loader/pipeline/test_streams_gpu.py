"""What only torch's own streams can show: that the current one is told from others by its handle."""

from __future__ import annotations

import threading

import torch
from function_stage import FunctionStage
from marks import needs_gpu

from loader.pipeline import StageStreams

pytestmark = needs_gpu


def test_the_current_stream_is_the_callers_own() -> None:
    stages = [FunctionStage(name, abs) for name in ("a", "b")]
    streams = StageStreams(torch.device("cuda", torch.cuda.current_device()), stages)
    default, other = torch.cuda.current_stream(), torch.cuda.Stream()
    pooled = torch.cuda.Stream(priority=-1)
    foreign = torch.cuda.ExternalStream(pooled.cuda_stream)  # of one handle, and not equal to it
    seen = []

    def elsewhere() -> None:
        seen.append(streams.current() == torch.cuda.default_stream())
        streams.enter(1)
        seen.append(streams.current() == streams.streams[1])

    for stream in (default, other, other, pooled, foreign, pooled, default):
        with torch.cuda.stream(stream):
            assert streams.current().cuda_stream == stream.cuda_stream
            assert streams.current() == torch.cuda.current_stream()
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            assert streams.current() == torch.cuda.current_stream()
    assert seen == [True] * 14

"""A profiler for Lightning that takes no time."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lightning.pytorch.profilers import PassThroughProfiler


class NoProfiler(PassThroughProfiler):
    """Profiles nothing, as Lightning's default does, and without a generator for each of two dozen places in a step.

    Those take about a fifth of the host time that Lightning's loop adds to a step, and a step by CUDA graphs leaves the
    host a millisecond for all (benchmarks/pipeline_gpu.py compares the loop with a hand-written one).
    """

    _nothing = nullcontext()

    # Lightning declares the generator that it is rid of here, and uses only the context manager.
    def profile(self, action_name: str) -> AbstractContextManager[Any]:  # type: ignore[override]
        return self._nothing

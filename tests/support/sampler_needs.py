"""Whether a session of the GPU takes what was planned for it."""

from __future__ import annotations

from typing import Any

from loader.machine.gpu import counted_bytes
from loader.samplers.gpu.memory_needs import SamplerNeeds


def check_needs(session: Any, needs: SamplerNeeds, batch: Any) -> None:
    """After `batch`: its nodes, the workspace, and every buffer for a mini-batch are within the needs."""
    assert batch.nodes.numel() <= needs.nodes
    space = session._space
    assert space is not None
    assert sum(counted_bytes(array.nbytes) for array in space._arrays.values()) <= needs.workspace
    layouts = [plan.layout for plan in space._plans.values()]
    assert all(counted_bytes(of.length * of.dtype.itemsize) <= needs.batch for of in layouts)

"""The ways in which a GPU sampler reads lists in pinned memory."""

from __future__ import annotations

from loader.samplers.base import NeighborSampler

READS = {"naive": 0, "aligned": 1, "sectors": 2}
LINE_BYTES, SECTOR_BYTES = 128, 32  # of a request to pinned memory, at most and at least


def unit_bytes(reads: str) -> int:
    """Bytes of what is read together, and counted by a session."""
    return SECTOR_BYTES if reads == "sectors" else LINE_BYTES


def is_uniform(sampler: NeighborSampler) -> bool:
    """Whether all neighbors are equally likely. One launch reads lists by the line only for such picks."""
    return sampler.picking.weights is None and not sampler.picking.labor

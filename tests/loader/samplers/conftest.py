"""Fixtures of the samplers' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loader.samplers import cpu


@pytest.fixture(autouse=True, scope="package")
def share_out_small_batches() -> Iterator[None]:
    """The mini-batches of tests are small: without this one thread would sample them, and nothing be tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "PART_EDGES", 1)
        yield

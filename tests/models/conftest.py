"""Fixtures of the models' tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from graphed_nets import make_batches

from loader.samples import MiniBatch


@pytest.fixture
def batches(random_graph: Any) -> list[MiniBatch]:
    """Of very different sizes, some with fewer seeds."""
    return make_batches(random_graph(), multilabel=False)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own handler of SIGINT, which a shell that starts a command in the background leaves out."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)

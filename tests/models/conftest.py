"""Fixtures of the models' tests."""

from __future__ import annotations

from typing import Any

import pytest
from graphed_nets import make_batches

from loader.samples import MiniBatch


@pytest.fixture
def batches(random_graph: Any) -> list[MiniBatch]:
    """Of very different sizes, some with fewer seeds."""
    return make_batches(random_graph(), multilabel=False)

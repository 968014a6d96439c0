"""A job on nodes refuses data that its model cannot read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from models.training.node_job import check_read


def test_a_model_of_features_needs_some() -> None:
    data = SimpleNamespace(name="mine")
    with pytest.raises(ValueError, match="dataset mine has no features, which the model reads; add some, let dataset"):
        check_read(SimpleNamespace(sizes={"num_features": 0}, data=data))
    check_read(SimpleNamespace(sizes={"num_nodes": 3}, data=data))

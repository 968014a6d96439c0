"""The parts of a run are there, and have a class, and its other groups have options."""

from __future__ import annotations

from typing import Any

import pytest
from run_options import config

from models.training.target_classes import check_parts


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"datamodule": None}, "datamodule is None; it must have a _target_"),
        ({"model": 3}, "model is 3; it must have a _target_"),
        ({"schedule": "cosine"}, "schedule is 'cosine'; it must be null, or have the options that conf/schedule has"),
        ({"callbacks": 3}, "callbacks is 3; it must be null, or have the options that conf/callbacks has"),
        ({"logger": [1]}, r"logger is \[1\]; it must be null, or have the options that conf/logger has"),
    ],
)
def test_a_part_without_its_options_is_named(changes: dict[str, Any], message: str) -> None:
    check_parts(config())
    with pytest.raises(ValueError, match=f"^{message}"):
        check_parts(config(**changes))

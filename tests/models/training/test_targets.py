"""The parts of a run are there, and have a class."""

from __future__ import annotations

from typing import Any

import pytest
from run_options import config

from models.training.targets import check_parts


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"datamodule": None}, "datamodule is None; it must have a _target_"),
        ({"model": 3}, "model is 3; it must have a _target_"),
    ],
)
def test_a_part_without_a_class_is_named(changes: dict[str, Any], message: str) -> None:
    check_parts(config())
    with pytest.raises(ValueError, match=f"^{message}"):
        check_parts(config(**changes))

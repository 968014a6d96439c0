"""What a benchmark of several GPUs says of its ranks. It runs nothing."""

from __future__ import annotations

from typing import Any

import pytest
import scaling_gpu


def test_the_rank_that_waits_least_comes_last() -> None:
    def rank(*epochs: list[float]) -> dict[str, Any]:
        return {"bytes": 1000, "epochs": [[900.0] * 4, [900.0] * 4, *epochs]}  # the first two do not count

    found = scaling_gpu._exchanges([rank([10, 10, 70, 10], [10, 10, 10, 10]), rank([40, 50, 10, 60], [40, 50, 60, 70])])
    assert found["exchanged_bytes"] == 1000
    one, other = found["ranks"]
    assert (one["rank"], one["last"], one["exchange_us"]) == (0, 7 / 8, 10)
    assert (other["rank"], other["last"], other["exchange_us"]) == (1, 1 / 8, 50)
    assert one["waited_ms"] == pytest.approx(0.14 / 2)
    assert other["epoch_us"] == [40, 50, 60, 70]

"""What a stage declares, and its two halves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from loader.pipeline import Stage


class Double(Stage):
    name = "double"

    def run(self, item: int) -> int:
        return 2 * item


class Halves(Stage):
    name = "halves"

    def begin(self, group: Sequence[int]) -> Sequence[Callable[[], int]]:
        return [lambda item=item: item + len(group) for item in group]


def test_either_half_follows_from_the_other() -> None:
    assert [finish() for finish in Double().begin([1, 2, 3])] == [2, 4, 6]
    assert Halves().run(5) == 6
    assert [finish() for finish in Halves().begin([5, 6])] == [7, 8]


def test_a_stage_works_on_the_host_by_default() -> None:
    stage = Double()
    assert (stage.device, stage.priority, stage.asynchronous, stage.together) == (None, 0, False, 1)
    stage.check()
    stage.close()


def test_defining_a_stage_without_a_half_fails() -> None:
    with pytest.raises(TypeError, match="stage Nothing implements neither `run` nor `begin`; one of them is needed"):

        class Nothing(Stage):
            name = "nothing"

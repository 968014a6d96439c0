"""Sums of seconds and bytes, from many threads, and copies of them."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest

from loader.timing import PipelineStats


def test_sums_of_several_threads_are_complete() -> None:
    stats = PipelineStats(["sample", "gather"])

    def work() -> None:
        for _ in range(2000):
            stats.add_busy("sample", 1.0)
            stats.add_bytes("gather", 3)
            stats.add_item(0.5)
            stats.add_gpu_times((1.0, 2.0), 0.25, 4.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stats.as_dict() == {"sample": 8000.0, "gather": 0.0, "waiting": 4000.0, "items": 8000}
    assert stats.moved == {"gather": 24_000}
    assert stats.gpu_busy == {"sample": 8000.0, "gather": 16_000.0, "train": 32_000.0}
    assert (stats.gpu_items, stats.gpu_waiting) == (8000, 2000.0)


def test_times_of_other_stages_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        PipelineStats(["sample"]).add_gpu_times((1.0, 2.0), 0.0, 1.0)


def test_stages_may_be_named_later() -> None:
    stats = PipelineStats(())
    stats.name(["sample", "move"])
    stats.add_busy("move", 2.0)
    assert stats.as_dict() == {"sample": 0.0, "move": 2.0, "waiting": 0.0, "items": 0}


def test_the_largest_item_is_kept_until_the_reset() -> None:
    stats = PipelineStats(["sample"])
    for size in (3, 9, 4):
        stats.see_item(size)
    assert stats.largest_item == 9
    stats.reset()
    assert stats.largest_item == 0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda stats: pickle.loads(pickle.dumps(stats))])
def test_a_copy_counts_on_by_itself(copied) -> None:
    stats = PipelineStats(["sample"])
    stats.add_busy("sample", 1.0)
    other = copied(stats)
    other.add_busy("sample", 1.0)
    assert (stats.busy, other.busy) == ({"sample": 1.0}, {"sample": 2.0})


def test_repr_shows_the_times() -> None:
    stats = PipelineStats(["sample"])
    stats.add_busy("sample", 0.25)
    stats.add_item(0.5)
    assert repr(stats) == "PipelineStats(items=1, sample=0.250 s, waiting=0.500 s)"

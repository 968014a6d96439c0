from __future__ import annotations

import pytest

from loader.machine import cpus
from loader.machine.cpus import as_threads, available_cpus


def test_a_number_of_threads_is_one_to_1024() -> None:
    assert as_threads(1024) == 1024
    assert available_cpus() >= 1


def test_processes_of_a_run_share_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus, "processors", lambda: 16)
    for processes, each in ((1, 16), (3, 5), (4, 4), (40, 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
        assert available_cpus() == each


def test_more_processors_than_the_core_has_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus, "processors", lambda: 4096)
    assert available_cpus() == as_threads(1024)


@pytest.mark.parametrize(
    ("threads", "error", "message"),
    [
        (0, ValueError, "num_threads is 0; it must be at least 1"),
        (100_000, ValueError, "num_threads is 100000; it must be at most 1024"),
        (1.5, TypeError, "num_threads is 1.5; it must be an integer"),
        ("4", TypeError, "num_threads is '4'; it must be an integer"),
        (True, TypeError, "num_threads is True; it must be an integer"),
    ],
)
def test_other_numbers_of_threads_are_refused(threads: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        as_threads(threads)  # type: ignore[arg-type]

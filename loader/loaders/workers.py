"""`worker_init_fn` of torch's DataLoader, for loaders whose workers are threads of this process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.utils.data._utils.worker as theirs


class WorkerInit:
    """Calls a user's `worker_init_fn` for each worker when an epoch begins, as torch's DataLoader does in its workers.

    The calls are made one after another in the thread that iterates, with the number of each worker, 0 to
    `num_workers - 1`. Meanwhile `torch.utils.data.get_worker_info()` describes this worker, and the generators of
    torch, NumPy and `random` are seeded with `seed` plus its number. Afterwards they have the states of before: what
    is sampled follows from the seed of the loader. Without workers there are no calls, as in torch.

    Args:
        function: of the number of a worker, or None.
        num_workers: how many there are.
        once: call only when the first epoch begins, as with torch's `persistent_workers`.
        seed: of the loader.
    """

    def __init__(self, function: Callable[[int], Any] | None, num_workers: int, once: bool, seed: int) -> None:
        self._function, self._count, self._once, self._seed = function, num_workers, once, seed
        self._called = False

    def __call__(self, dataset: Any) -> None:
        """Makes the calls of an epoch.

        Args:
            dataset: of `get_worker_info()`.
        """
        if self._function is None or (self._once and self._called):
            return
        for number in range(self._count):
            with _as_worker(number, self._count, (self._seed + number) % 2**63, dataset):
                self._function(number)
        self._called = True

    def __getstate__(self) -> dict[str, Any]:
        """A copy has workers of its own, which have not begun."""
        return self.__dict__ | {"_called": False}


@contextmanager
def _as_worker(number: int, count: int, seed: int, dataset: Any) -> Iterator[None]:
    before, of_random = theirs._worker_info, random.getstate()
    # NumPy's global generator is what a user's function draws from, as in the workers of torch.
    of_numpy = np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng([]):
        try:
            theirs._worker_info = theirs.WorkerInfo(id=number, num_workers=count, seed=seed, dataset=dataset)
            torch.default_generator.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            yield
        finally:
            theirs._worker_info = before
            random.setstate(of_random)
            np.random.set_state(of_numpy)  # noqa: NPY002

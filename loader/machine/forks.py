"""Locks in a process that forks: only the thread that forked lives on in the child."""

from __future__ import annotations

import os
import threading
import weakref


class ForkSafeLock:
    """A lock for `with`, which a forked child finds free.

    The thread that held it at the fork is not there to release it, so the child gets a new one. What it guards may be
    half done there. A copy is a new lock. A thread does not fork while it holds one.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[ForkSafeLock], tuple[()]]:
        return ForkSafeLock, ()


_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _renew() -> None:
    for lock in _locks:
        lock._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)

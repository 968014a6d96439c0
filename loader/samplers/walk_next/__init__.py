"""Walks by a function of one's own: a few lines of Python, or of C++, say where a walker goes next."""

from loader.samplers.walk_next.faults import NextError
from loader.samplers.walk_next.next import Next

__all__ = ["Next", "NextError"]

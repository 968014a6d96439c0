"""What goes wrong with a dataset. Each message is one line: what, the value, the limit, the way out."""

from __future__ import annotations


class DatasetError(RuntimeError):
    """A dataset cannot be had: it is absent, incomplete, or contradicts itself."""


class CacheError(DatasetError):
    """A cached conversion cannot be written or read."""

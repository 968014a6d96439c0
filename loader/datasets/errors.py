"""Errors of datasets. Each message is one line with the value, the limit and the way out."""

from __future__ import annotations


class DatasetError(RuntimeError):
    """A dataset cannot be used: it is absent, incomplete, or contradicts itself."""


class CacheError(DatasetError):
    """A cached conversion cannot be written or read."""

"""Errors of datasets. Each message is one line with the value, the limit and the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


def nearest(word: str, known: Iterable[str], shown: Mapping[str, str] | None = None) -> str:
    """ "; did you mean X?" if one of the `known` words is spelt nearly like `word`, else nothing.

    Args:
        word: as it was given.
        known: words that it can be.
        shown: what X is in place of a known word.
    """
    by_letters, given = {one.lower(): (shown or {}).get(one, one) for one in known}, word.lower()
    found = difflib.get_close_matches(given, by_letters, n=5, cutoff=0.6)
    # Letters that changed places come first: gta is gat, though hgt has as many of them in order.
    found.sort(key=lambda one: sorted(one) != sorted(given))
    return f"; did you mean {by_letters[found[0]]}?" if found else ""


class DatasetError(RuntimeError):
    """A dataset cannot be used: it is absent, incomplete, or contradicts itself."""


class CacheError(DatasetError):
    """A cached conversion cannot be written or read."""

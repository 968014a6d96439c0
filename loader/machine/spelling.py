"""Words that are spelt nearly alike, for messages on a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


def nearest_name(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The one of the `known` words that is spelt nearly like `word`, or None.

    Args:
        cutoff: how alike they have to be, see `difflib.get_close_matches`.
    """
    by_letters, given = {one.lower(): one for one in known}, word.lower()
    found = difflib.get_close_matches(given, by_letters, n=5, cutoff=cutoff)
    # Letters that changed places come first: gta is gat, though hgt has as many of them in order.
    found.sort(key=lambda one: sorted(one) != sorted(given))
    return by_letters[found[0]] if found else None


def nearest(word: str, known: Iterable[str], shown: Mapping[str, str] | None = None) -> str:
    """ "; did you mean X?" if one of the `known` words is spelt nearly like `word`, else nothing.

    Args:
        word: as it was given.
        known: words that it can be.
        shown: what X is in place of a known word.
    """
    found = nearest_name(word, known)
    return f"; did you mean {(shown or {}).get(found, found)}?" if found is not None else ""

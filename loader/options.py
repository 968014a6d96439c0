"""The options that all loaders share, as they are misspelt."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from typing import Any

from loader.loader import Loader


def check_options(options: Mapping[str, Any], who: str) -> None:
    """Raises TypeError for an option that `Loader` does not know; the message names the nearest.

    Args:
        options: by name.
        who: whose options they are.
    """
    known = [name for name, p in inspect.signature(Loader).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for name in options.keys() - set(known):
        if name in ("num_workers", "persistent_workers", "prefetch_factor"):
            way = "threads of this process load ahead; prefetch says how many mini-batches are held ready"
        else:
            found = difflib.get_close_matches(name, known, n=1)
            way = f"did you mean {found[0]}?" if found else f"it knows {', '.join(known)}"
        raise TypeError(f"{name} is no option of {who}; {way}")

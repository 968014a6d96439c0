"""Optional packages: imported where they are used, with one line that says what to install."""

from __future__ import annotations

import sys
import warnings
from typing import Any


def import_dgl(wanted_by: str) -> Any:
    """The module `dgl`.

    Args:
        wanted_by: what the user asked for, e.g. `"sampler=dgl"`; it begins the message.

    Raises:
        ImportError: DGL is missing or does not import here; the message says what to install.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # DGL's own, about its dependencies
            import dgl
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        way_out = (
            "pip install dgl==1.1.3"
            if sys.version_info < (3, 12)
            else "use Python 3.11 or older with: pip install dgl==1.1.3"
        )
        raise ImportError(f"{wanted_by} needs DGL, which does not import here ({error}); {way_out}") from error
    return dgl

"""Says which parts of a source nobody reads: what a user wrote into a file must not vanish without a word."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

log = logging.getLogger(__name__)

_OF_DATA = ("x", "y", "edge_index", "edge_weight", "num_nodes", "train_mask", "val_mask", "test_mask")


def tell_unread(name: str, source: object, found: Iterable[str], read: Iterable[str]) -> None:
    """Logs one line if a source has parts that are not read.

    Args:
        name: of the dataset.
        source: in words, e.g. the path of the file.
        found: the names of its parts.
        read: of those that are read.
    """
    found, read = set(found), set(read)
    if left := sorted(found - read):
        log.warning(
            "%s: %s has %s, which nothing reads; what is read: %s",
            name,
            source,
            ", ".join(left),
            ", ".join(sorted(found & read)),
        )


def tell_data(name: str, data: Any) -> None:
    """`tell_unread` of a `torch_geometric.data.Data`."""
    tell_unread(name, "the Data of torch_geometric", data.keys(), _OF_DATA)

"""Processes of a run that were lost: how `torch.distributed` tells those that wait for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

_SIGNS = re.compile(r"/gloo/|Connection (closed|reset) by peer|Broken pipe|NCCL")
_WHERE = re.compile(r"^\[[^\]]*\]\s*")  # the place in the source with which gloo begins a message


class LostProcessError(ConnectionError):
    """Another process of the run ended, or did not answer in time."""


def is_lost(error: BaseException) -> bool:
    """Whether an error says that another process of the run is gone or silent."""
    if isinstance(error, LostProcessError):
        return True
    kinds = tuple(
        kind
        for name in ("DistBackendError", "DistNetworkError", "DistStoreError")
        if (kind := getattr(dist, name, None))
    )
    return isinstance(error, kinds) or (type(error) is RuntimeError and _SIGNS.search(str(error)) is not None)


@contextmanager
def named_losses() -> Iterator[None]:
    """A context in which an error of `torch.distributed` that means a lost process becomes a `LostProcessError`."""
    try:
        yield
    except RuntimeError as error:
        if not is_lost(error):
            raise
        what = _WHERE.sub("", str(error)).split(". ")[0].split("\n")[0].rstrip(".")
        raise LostProcessError(f"another process of this run ended or no longer answers ({what})") from error

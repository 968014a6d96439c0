"""Features of a graph of DGL that are prefetched."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from loader.machine.memo import Memo, Seen, version_of
from loader.stores import FeatureStore, HostFeatures, TensorRows, auto_features

_stores = Memo()  # loaders of one tensor share its rows on a GPU


class Rows(NamedTuple):
    """Features of a graph: kind, name, the tensor as it was read, and where its rows are."""

    kind: str
    name: str
    seen: Seen
    store: FeatureStore


def store_of(rows: Tensor, device: torch.device, uva: bool) -> FeatureStore:
    """A store of features whose rows arrive on `device`.

    Args:
        uva: leave them in page-locked host memory.
    """
    tensor = rows.detach().contiguous()
    if tensor.device == device and tensor.device.type != "cpu":
        return TensorRows(tensor)
    if device.type == "cpu":
        return HostFeatures(tensor.cpu())
    make = _pinned if uva else auto_features
    return _stores.get(rows, version_of(rows), (device, uva), lambda: make(tensor.cpu(), device))


def _pinned(tensor: Tensor, device: torch.device) -> FeatureStore:
    from loader.stores import PinnedFeatures

    return PinnedFeatures(tensor, device)

"""Feature stores: vertex ids in, rows of features out, behind one protocol."""

from loader.stores.auto import auto_features
from loader.stores.base import FeatureStore, StoreContext, open_store
from loader.stores.cached import CachedFeatures
from loader.stores.device import DeviceFeatures
from loader.stores.host import HostFeatures
from loader.stores.hotness import count_visits, degree_hotness, sampled_visits
from loader.stores.memmap import MemmapFeatures
from loader.stores.pinned import PinnedFeatures
from loader.stores.staged import StagedFeatures
from loader.stores.tensor import TensorRows

__all__ = [
    "CachedFeatures",
    "DeviceFeatures",
    "FeatureStore",
    "HostFeatures",
    "MemmapFeatures",
    "PinnedFeatures",
    "StagedFeatures",
    "StoreContext",
    "TensorRows",
    "auto_features",
    "count_visits",
    "degree_hotness",
    "open_store",
    "sampled_visits",
]

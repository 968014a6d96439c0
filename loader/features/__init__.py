"""Feature stores: vertex ids in, rows of features out, behind one protocol."""

from loader.features.auto import auto_features
from loader.features.base import FeatureStore, StoreContext, open_store
from loader.features.cached import CachedFeatures
from loader.features.device import DeviceFeatures
from loader.features.host import HostFeatures
from loader.features.hotness import count_visits, degree_hotness, sampled_visits
from loader.features.memmap import MemmapFeatures
from loader.features.pinned import PinnedFeatures
from loader.features.staged import StagedFeatures

__all__ = [
    "CachedFeatures",
    "DeviceFeatures",
    "FeatureStore",
    "HostFeatures",
    "MemmapFeatures",
    "PinnedFeatures",
    "StagedFeatures",
    "StoreContext",
    "auto_features",
    "count_visits",
    "degree_hotness",
    "open_store",
    "sampled_visits",
]

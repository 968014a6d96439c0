"""Feature stores: vertex ids in, rows of features out, behind one protocol."""

from loader.features.base import FeatureStore, StoreContext, open_store
from loader.features.host import HostFeatures

__all__ = ["FeatureStore", "HostFeatures", "StoreContext", "open_store"]

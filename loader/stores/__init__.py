"""Stores of rows, such as features. A `FeatureStore` takes ids and returns their rows."""

from loader.stores.abilities import Abilities, AbleStore, Exchange, abilities_of
from loader.stores.auto import auto_features
from loader.stores.base import FeatureStore, StoreContext, open_store, options_of
from loader.stores.cached import CachedFeatures
from loader.stores.device import DeviceFeatures
from loader.stores.exchange import RowExchange
from loader.stores.host import HostFeatures, as_store
from loader.stores.hotness import count_visits, degree_hotness, k_hop_hotness, pagerank_hotness
from loader.stores.memmap import MemmapFeatures
from loader.stores.partitioned import PartitionedFeatures, Traffic
from loader.stores.pinned import PinnedFeatures
from loader.stores.rows import RowOptions
from loader.stores.staged import StagedFeatures
from loader.stores.tensor import TensorRows

__all__ = [
    "Abilities",
    "AbleStore",
    "CachedFeatures",
    "DeviceFeatures",
    "Exchange",
    "FeatureStore",
    "HostFeatures",
    "MemmapFeatures",
    "PartitionedFeatures",
    "PinnedFeatures",
    "RowExchange",
    "RowOptions",
    "StagedFeatures",
    "StoreContext",
    "TensorRows",
    "Traffic",
    "abilities_of",
    "as_store",
    "auto_features",
    "count_visits",
    "degree_hotness",
    "k_hop_hotness",
    "open_store",
    "options_of",
    "pagerank_hotness",
]

"""The items of an epoch, their order, and how ranks (processes that train together) share the mini-batches."""

from loader.items.batches_of_ranks import BatchSequence, Turn, Turns
from loader.items.edges import EdgeItems
from loader.items.items import HeteroNodeItems, Items, NodeItems, Seeds
from loader.items.order import Order
from loader.items.walkers import Walkers
from loader.machine.arguments import as_seed, as_size

__all__ = [
    "BatchSequence",
    "EdgeItems",
    "HeteroNodeItems",
    "Items",
    "NodeItems",
    "Order",
    "Seeds",
    "Turn",
    "Turns",
    "Walkers",
    "as_seed",
    "as_size",
]

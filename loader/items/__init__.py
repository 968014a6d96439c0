"""The items of an epoch, their order, and how ranks (processes that train together) share the mini-batches."""

from loader.items.edges import EdgeItems
from loader.items.items import Items, NodeItems, Seeds, TypedNodeItems
from loader.items.order import Order
from loader.items.sequence import BatchSequence, Turn, Turns
from loader.items.walkers import Walkers
from loader.machine.arguments import as_seed, as_size

__all__ = [
    "BatchSequence",
    "EdgeItems",
    "Items",
    "NodeItems",
    "Order",
    "Seeds",
    "Turn",
    "Turns",
    "TypedNodeItems",
    "Walkers",
    "as_seed",
    "as_size",
]

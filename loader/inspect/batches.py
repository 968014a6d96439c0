"""The mini-batches that are looked at, and what the cards of all graphs have."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from loader.datasets import HeteroDataset, NodeDataset, RelationalData
from loader.items import BatchSequence, NodeItems, Order
from loader.loaders.base import MAX_PREFETCH
from loader.machine.arguments import as_seed, as_size
from loader.machine.cpus import as_threads
from loader.machine.optional import import_optional
from loader.memory.plan import readable

if TYPE_CHECKING:
    from rich.console import Console

MAX_BATCHES = 10**6  # the figures of each are kept


def items_of(data: NodeDataset | HeteroDataset) -> NodeItems:
    """What to sample around: the training split, or all nodes of a dataset without splits. Of a task on tables: the
    training items, rows at times. Ids are of the one range of all types.
    """
    first = data.graph.node_types[data.target].start if isinstance(data, HeteroDataset) else 0
    if isinstance(data, RelationalData):
        items = data.items["train"]
        return NodeItems(items.ids + first, times=items.times)
    train = data.splits["train"]
    return NodeItems((train if train.numel() else torch.arange(data.labels.shape[0])) + first)


def places_of(items: NodeItems, batch_size: int, batches: int, seed: int) -> list[tuple[int, int, Tensor]]:
    """Epoch, index and seeds of the first full mini-batches; with times, seeds are pairs."""
    if not 1 <= batch_size <= len(items):
        raise ValueError(f"batch_size is {batch_size}; it must be 1 to {len(items)}, the size of the train split")
    order, sequence = Order(len(items), shuffle=True, seed=seed), BatchSequence(len(items), batch_size, drop_last=True)
    places: list[tuple[int, int, Tensor]] = []
    for count in range(batches):
        epoch, index = divmod(count, sequence.num_batches)
        at = order.at(epoch, index * batch_size, batch_size, items.device, length=batch_size)
        (seeds,) = items.take(at, [batch_size])
        places.append((epoch, index, seeds.ids))
    return places


def spread(values: list[float]) -> dict[str, float]:
    return {"mean": statistics.mean(values), "min": min(values), "max": max(values)}


def show_memory_and_time(graph: dict[str, Any], card: dict[str, Any], console: Console) -> None:
    """The last table of `show`; `graph` has the bytes of the graph and of its features."""
    Table = import_optional("rich.table", "loader.inspect", "datasets").Table
    memory, times = card["memory"], card["milliseconds"]
    console.print("\nMemory and time")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right")
    for what, value in (
        ("graph", readable(graph["topology_bytes"])),
        ("features of the graph", readable(graph["feature_bytes"])),
        *((f"with storage_dtype={name}", readable(n)) for name, n in graph.get("narrower_bytes", {}).items()),
        ("topology of a mini-batch", readable(memory["topology_bytes_a_batch"]["mean"])),
        ("features of a mini-batch", readable(memory["feature_bytes_a_batch"]["mean"])),
        (f"in flight at most, prefetch={memory['prefetch']}", readable(memory["in_flight_bytes"])),
        ("share of the graph's nodes in a mini-batch", f"{card['input_share_of_graph']:.1%}"),
        ("sampling a mini-batch", f"{times['sample']:.2f} ms"),
        ("gathering its features", f"{times['gather']:.2f} ms"),
    ):
        table.add_row(what, value)
    console.print(table)


def check_numbers(
    batches: int, prefetch: int, num_threads: int | None, seed: int, eval_batch_size: int | None, *, planned: bool
) -> None:
    """Raises TypeError or ValueError for a number of `inspect` that is out of its range or has no effect, whatever the
    data are.

    Args:
        planned: whether a budget of memory is given.
    """
    if as_size("batches", batches, most=MAX_BATCHES) < 2:
        raise ValueError(f"batches is {batches}; it must be at least 2: one half fills the cache, the other judges it")
    as_size("prefetch", prefetch, least=0, most=MAX_PREFETCH)
    as_seed(seed)
    if num_threads is not None:
        as_threads(num_threads)
    if eval_batch_size is not None:
        as_size("eval_batch_size", eval_batch_size)
        if not planned:
            raise ValueError(
                f"eval_batch_size is {eval_batch_size}, but only a plan of memory counts mini-batches of validation; "
                "give memory_gib (--memory), too, or leave it out"
            )

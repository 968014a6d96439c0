"""Looks in mini-batches for what is later than the seeds that see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from loader.datasets import HeteroDataset, NodeDataset, RelationalData
from loader.datasets.node_dataset import SPLITS
from loader.graph import EdgeType, HeteroGraph, require_graph
from loader.graph.checks import MISSING_TIME, time_vector
from loader.graph.edge_ends import EdgeEnds
from loader.inspect.batches import items_of, places_of
from loader.items import NodeItems
from loader.machine.arguments import as_size, kind_of, shown
from loader.samplers import Sampler, TreeSampler, resolve_fanouts
from loader.samples import HeteroMiniBatch
from loader.samples.hetero_block import HeteroBlock, by_relation

if TYPE_CHECKING:
    from rich.console import Console


@dataclass
class Kind:
    """What was looked at of one kind.

    Attributes:
        what: "edges", "nodes" or "features".
        of: the relation, as "author writes paper", or the node type.
        seen: how many were in the mini-batches.
        later: how many of them are later than a seed that sees them.
        unknown: how many of them have no time.
        worst: by how much the latest one of them is later, in the unit of the times.
    """

    what: str
    of: str
    seen: int = 0
    later: int = 0
    unknown: int = 0
    worst: int = 0

    def add(self, times: Tensor, bounds: Tensor, at_once: Tensor | None = None) -> None:
        """Counts some more.

        Args:
            times: `[n]` int64.
            bounds: `[n]` int64, the times of the earliest seeds that see them.
            at_once: `[n]` bool: where a time that equals the bound is later, too.
        """
        late = times > bounds
        if at_once is not None:
            late |= at_once & (times == bounds)
        self.seen += times.numel()
        self.unknown += int((times == MISSING_TIME).sum())
        if count := int(late.sum()):
            self.later += count
            # A difference of int64 values may need 64 bits without a sign.
            by = (times[late] - bounds[late]).numpy().view(np.uint64)
            self.worst = max(self.worst, int(by.max()))


def find_leaks(
    graph: HeteroGraph,
    sampler: Sampler,
    seeds: Tensor,
    times: Tensor,
    *,
    batch_size: int = 1024,
    batches: int = 20,
    feature_times: Mapping[str, Tensor] | None = None,
    seed: int = 0,
) -> list[Kind]:
    """Samples mini-batches, and counts what is later than a seed that sees it.

    A seed sees an edge if it leads, over edges of the hops before, to the seed. It sees the nodes at both ends, and
    their features. Nothing that the sampler says of its trees or times is believed: times are looked up by the ids of
    nodes and edges, and compared with those of the seeds.

    Args:
        sampler: of the graph, with `edge_ids=True`. If its `rule` is "<", edges and nodes at the seed's time count as
            later, but for the seed itself.
        seeds: `[n]` ids of the graph's one range, of one type.
        times: `[n]` integers, the seeds' times.
        batch_size, batches: the first full mini-batches of shuffled epochs.
        feature_times: node type -> `[num_nodes]` or `[num_nodes, num_features]`, when features are known that are
            filled in after the time of their node.
        seed: of the order of the seeds.

    Returns:
        What was looked at: of each relation whose edges have times, of each node type whose nodes have, and of each
        type in `feature_times`.

    Raises:
        TypeError: `graph` is no `HeteroGraph`, or the sampler gives no `HeteroMiniBatch` objects.
        ValueError: nothing has a time; the sampler returns no edge ids; the arguments do not go together.
    """
    require_graph(graph)
    if not isinstance(graph, HeteroGraph):
        raise TypeError(f"graph is {kind_of(graph)}; it must be a HeteroGraph: HeteroGraph.of(graph)")
    own = _feature_times(graph, feature_times or {})
    if not graph.timed_types and not graph.timed_relations and not own:
        raise ValueError("nothing in the graph has a time, so nothing can be later than a seed")
    if graph.timed_relations and not sampler.edge_ids:
        raise ValueError("edges are looked up by their ids, and the sampler returns none; give it edge_ids=True")
    items, found = NodeItems(seeds.cpu(), times=times), _kinds(graph, own)
    known = graph.to("cpu")
    of_nodes, of_edges = known.lists.node_times, {key: EdgeEnds.of(known, key) for key in graph.timed_relations}
    strict = getattr(sampler, "rule", "<=") == "<"
    for epoch, index, pairs in places_of(items, as_size("batch_size", batch_size), batches, seed):
        given = pairs if sampler.timed else pairs[:, 0].contiguous()
        batch = sampler.sample(graph, given, epoch=epoch, batch=index)
        if not isinstance(batch, HeteroMiniBatch):
            raise TypeError(f"{type(sampler).__name__} gives {type(batch).__name__}; it must give a HeteroMiniBatch")
        batch = batch.to("cpu")
        bounds = _bounds(batch, pairs[:, 1])
        for key, at in of_edges.items():
            assert at.times is not None  # the relation has times
            ids, seen = _edges(batch, key, bounds)
            found["edges", key].add(at.times[at.rows(ids)], seen, torch.full(seen.shape, strict))
        is_seed = torch.arange(batch.nodes.numel()) < batch.batch_size
        for name in batch.node_types:
            t = batch.segments.type_of(name)
            mine = batch.segments.of_type(bounds[-1], t)
            if name in graph.timed_types and of_nodes is not None:
                ids = batch.segments.of_type(batch.nodes, t).long()
                at_once = ~batch.segments.of_type(is_seed, t) if strict else None
                found["nodes", name].add(of_nodes[ids], mine, at_once)
            if name in own:
                rows = own[name][batch.n_id[name].long()]
                found["features", name].add(rows.flatten(), mine.repeat_interleave(rows.shape[1]))
    return list(found.values())


def _kinds(graph: HeteroGraph, feature_times: Mapping[str, Tensor]) -> dict[tuple[str, Any], Kind]:
    found: dict[tuple[str, Any], Kind] = {("edges", key): Kind("edges", " ".join(key)) for key in graph.timed_relations}
    found |= {("nodes", name): Kind("nodes", name) for name in graph.timed_types}
    return found | {("features", name): Kind("features", name) for name in feature_times}


def _feature_times(graph: HeteroGraph, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Node type -> `[num_nodes, columns]` int64."""
    found = {}
    for name, times in given.items():
        if name not in graph.node_types:
            raise ValueError(f"feature_times names {shown(name)}, which is no node type of {list(graph.node_types)}")
        label, count = f"feature_times[{name!r}]", len(graph.node_types[name])
        if not isinstance(times, Tensor) or times.dim() not in (1, 2):
            raise TypeError(
                f"{label} is {kind_of(times)}; it must be a tensor [num_nodes] or [num_nodes, num_features]"
            )
        columns = times.shape[1] if times.dim() == 2 else 1
        if len(times) != count:
            raise ValueError(f"{label} has {len(times)} rows, the type {count} nodes; give a row each")
        found[name] = time_vector(label, times.reshape(-1), torch.device("cpu")).view(count, columns)
    return found


def _bounds(batch: HeteroMiniBatch, times: Tensor) -> list[Tensor]:
    """After each number of hops: `[num_nodes]` the time of the earliest seed that sees a node."""
    bound = torch.full((batch.nodes.numel(),), torch.iinfo(torch.int64).max)
    bound[: batch.batch_size] = times
    found = [bound]
    for block in reversed(batch.blocks):
        of_edge = _of_rows(batch, block, found[-1])
        found.append(found[-1].scatter_reduce(0, block.indices.long(), of_edge, "amin"))
    return found


def _of_rows(batch: HeteroMiniBatch, block: HeteroBlock, bound: Tensor) -> Tensor:
    """`[num_edges]` the bounds of the edges' destinations."""
    rows = [
        torch.arange(part.begin, part.begin + part.size).repeat_interleave(len(batch.segments.into[t]))
        for t, part, _ in batch.segments.rows(block.first_dst, block.num_dst)
    ]
    of_row = torch.cat([torch.empty(0, dtype=torch.int64), *rows])
    return bound[of_row.repeat_interleave(block.indptr.diff().long())]


def _edges(batch: HeteroMiniBatch, key: EdgeType, bounds: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Ids of the edges of a relation, and the times of the earliest seeds that see them."""
    hops = batch.blocks[::-1]
    places = by_relation(hops, batch.segments, [batch.segments.relation_of(key)]).places
    ids = torch.cat([block.edge_ids for block in hops if block.edge_ids is not None])
    seen = torch.cat([_of_rows(batch, block, bounds[hop]) for hop, block in enumerate(hops)])
    return ids[places].long(), seen[places]


def leaks_of(
    data: NodeDataset | HeteroDataset,
    fanouts: Sequence[int],
    batch_size: int,
    *,
    batches: int,
    times: str,
    seed: int,
    num_threads: int | None,
) -> dict[str, Any]:
    """What `find_leaks` finds in mini-batches of a dataset's training split, as a dict that can be written as JSON.

    Seeds have the times of their nodes; of a type without times, random ones of the graph's. Of a task on tables, all
    its items are seeds, with their own times.

    Args:
        times: whose times the sampler counts, see `TreeSampler`.
    """
    graph = data.graph if isinstance(data, HeteroDataset) else HeteroGraph.of(data.graph)
    lists, target = graph.lists, data.target if isinstance(data, HeteroDataset) else next(iter(graph.node_types))
    seeds, left_out = items_of(data).ids, 0
    every = [at for at in (lists.node_times, lists.edge_times) if at is not None]
    known = torch.cat([at[at != MISSING_TIME] for at in every]) if every else torch.empty(0, dtype=torch.int64)
    if known.numel() == 0:
        raise ValueError(f"{data.name} has no times, so nothing in it can be later than a seed")
    if isinstance(data, RelationalData):
        items = [data.items[split] for split in SPLITS]
        first = graph.node_types[target].start
        seeds, at = torch.cat([one.ids for one in items]) + first, torch.cat([one.times for one in items])
        whose = f"of the items of {data.task}"
    elif lists.node_times is not None and target in graph.timed_types:
        at = lists.node_times[seeds]
        seeds, at, left_out = seeds[at != MISSING_TIME], at[at != MISSING_TIME], int((at == MISSING_TIME).sum())
        if seeds.numel() == 0:
            raise ValueError(f"none of the {left_out:,} training nodes of {data.name} has a time to compare with")
        whose = "of their nodes"
    else:
        draw = torch.randint(known.numel(), seeds.shape, generator=torch.Generator().manual_seed(seed))
        at, whose = known[draw], f"drawn from those of the graph, as {target} has none"
    missing = "error" if times == "none" or all(bool((of != MISSING_TIME).all()) for of in every) else "always"
    sampler = TreeSampler(
        resolve_fanouts(fanouts),
        times=times,
        missing_times=missing,
        edge_ids=True,
        seed=seed,
        num_threads=num_threads,
    )
    of_features = data.feature_times if isinstance(data, HeteroDataset) else {}
    kinds = find_leaks(
        *(graph, sampler, seeds, at),
        batch_size=min(batch_size, seeds.numel()),
        batches=batches,
        feature_times=of_features,
        seed=seed,
    )
    timed = {*of_features, *(graph.timed_types if lists.node_times is not None else ())}
    return {
        "dataset": data.name,
        "fanouts": list(sampler.fanouts),
        "batch_size": min(batch_size, seeds.numel()),
        "batches": batches,
        "times": times,
        "times_of_seeds": whose,
        "seeds_without_time": left_out,
        "types_without_times": [name for name in graph.node_types if name not in timed],
        "kinds": [asdict(kind) for kind in kinds],
        "leaks": sum(kind.later for kind in kinds),
    }


def show_leaks(card: dict[str, Any], console: Console) -> None:
    """Prints what `leaks_of` returned: a line per kind."""
    console.print(
        f"[bold]{card['dataset']}[/]: {card['batches']} mini-batches of {card['batch_size']:,} seeds, fanouts "
        f"{card['fanouts']}, times={card['times']!r}; times of seeds are {card['times_of_seeds']}",
        soft_wrap=True,
    )
    if count := card["seeds_without_time"]:
        console.print(f"{count:,} seeds without a time are left out")
    if unchecked := card["types_without_times"]:
        console.print(
            f"not checked, since they have no times: nodes of {', '.join(unchecked)}; every seed sees them, so give "
            "those that came about at some time a time",
            soft_wrap=True,
        )
    for kind in card["kinds"]:
        later = f"{kind['later']:,} later than a seed that sees them"
        worst = f", by up to {kind['worst']:,}" if kind["later"] else ""
        unknown = f", {kind['unknown']:,} without a time" if kind["unknown"] else ""
        console.print(f"{kind['what']} of {kind['of']}: {kind['seen']:,} seen, {later}{worst}{unknown}", soft_wrap=True)
    console.print(f"[bold]{card['leaks']:,} leaks[/]" if card["leaks"] else "no leaks")

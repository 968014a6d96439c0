"""HGT's sampling: a hop draws nodes of each type, by their shares of the lists of sampled nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from loader import _core
from loader.graph import HeteroGraph, require_graph
from loader.graph.checks import check_range
from loader.machine.arguments import as_flag, as_seed, as_size, shown
from loader.machine.cpus import as_threads
from loader.machine.devices import as_device
from loader.machine.gpu import cuda_device, require_cuda
from loader.samplers.base import AnyGraph, Request, Sampler, Session, as_seeds, check_position, tell_ignored_times
from loader.samplers.races import arrivals, node_words
from loader.samplers.relations import require_type_order
from loader.samplers.subgraph import induced_by_type
from loader.samples import HeteroSubgraph
from loader.samples.subgraph import ranges

NumSamples = tuple[int, ...] | dict[str, tuple[int, ...]]

_UNIT_BITS = 40  # scores are integers, in units of 2^-40 or larger
_MOST = 2**63 - 1


class HGTSampler(Sampler):
    """Samples a `HeteroGraph` by the law of the heterogeneous graph transformer (Hu et al., "Heterogeneous Graph
    Transformer", WWW 2020, algorithms 1 and 2), and gives `HeteroSubgraph` objects with all edges among their nodes.

        sampler = HGTSampler({"author": [64, 64], "paper": [128, 128]})
        batch = sampler.sample(graph, {"paper": ids})

    A node has a list of neighbors per relation. When it is sampled, each entry of a list gets a share of 1 / length.
    The score of a node is the sum of its shares. A hop draws nodes of each type that have a score and are not sampled
    yet: without replacement, with probabilities in proportion to the squares of the scores. If there are fewer nodes
    than it draws, it takes all of them. So it prefers nodes with many edges to sampled ones. It draws from all types
    before their scores change, as torch_geometric does. Times and weights of edges do not count.

    Shares are rounded down to multiples of 2**-40, or of about 2**-62 times the number of lists if there are more than
    2**22. Draws are a pure function of (graph, seed, epoch, mini-batch, hop, node), with the same bytes on the CPU and
    on a GPU. The memory they take goes by the nodes that have a score, not by the graph.

    Args:
        num_samples: numbers of nodes that each hop draws, in hop order, from 0: one list for every node type, or a dict
            with a list per node type.
        edge_ids: whether samples hold the ids of their edges.
        seed: of the draws, `0 <= seed < 2**64`.
        device: "cpu" or a GPU, in whose memory the graph lies.
        num_threads: threads of the CPU that find the edges; None: one per processor.

    Attributes:
        num_samples: as given, as a tuple or a dict of tuples.

    Raises:
        TypeError, ValueError: an argument is out of range, or numbers of hops differ.
        NoGpuError: a GPU was asked for, and there is none.
    """

    def __init__(
        self,
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        *,
        edge_ids: bool = False,
        seed: int = 0,
        device: str | torch.device = "cpu",
        num_threads: int | None = None,
    ) -> None:
        super().__init__()
        self.num_samples = resolve_num_samples(num_samples)
        by_type = self.num_samples.values() if isinstance(self.num_samples, dict) else [self.num_samples]
        self.num_hops = len(next(iter(by_type)))
        self.edge_ids, self.seed = as_flag("edge_ids", edge_ids), as_seed(seed)
        self._device = as_device(device)
        if self._device.type != "cpu":
            require_cuda("HGTSampler on a GPU")
            self._device = cuda_device(self._device)
            if num_threads is not None:
                raise ValueError(f"num_threads is {num_threads}, but HGTSampler samples on {device}; leave it out")
        self.num_threads = None if num_threads is None else as_threads(num_threads)

    def spec(self) -> dict[str, Any]:
        given = self.num_samples
        counts: Any = {k: list(v) for k, v in given.items()} if isinstance(given, dict) else list(given)
        return {"picks": "hgt", "num_samples": counts, "edge_ids": self.edge_ids, "seed": self.seed}

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def asynchronous(self) -> bool:
        return self._device.type == "cuda"

    def _moved(self, device: torch.device) -> Self:
        return self._with(_device=cuda_device(device))

    def counts_of(self, graph: HeteroGraph) -> list[tuple[int, ...]]:
        """`[node types][hops]`, the nodes that each hop draws.

        Raises:
            ValueError: `num_samples` names a type that the graph does not have, or leaves one out.
        """
        given, types = self.num_samples, list(graph.node_types)
        if not isinstance(given, dict):
            return [given] * len(types)
        if unknown := [name for name in given if name not in graph.node_types]:
            raise ValueError(f"num_samples names the node type {unknown[0]!r}; the graph has {types}")
        if missing := [name for name in types if name not in given]:
            raise ValueError(f"num_samples has none for the node type {missing[0]!r}; give it, 0 where none are drawn")
        return [given[name] for name in types]

    def open(self, graph: AnyGraph) -> Session:
        """A session for `graph`.

        Raises:
            TypeError: it has one type.
            ValueError: it lies elsewhere, or `num_samples` is not for its types.
            RuntimeError: the sampler was closed.
        """
        self.require_open()
        require_graph(graph)
        if not isinstance(graph, HeteroGraph):
            raise TypeError("HGTSampler samples graphs with types, and this has one; make one by HeteroGraph.of(graph)")
        if graph.device != self._device:
            raise ValueError(
                f"HGTSampler samples on {self._device} but the graph lies on {graph.device}; use "
                f"graph.to('{self._device}'), or datamodule.graph=device"
            )
        tell_ignored_times(self, graph)
        return _HGTSession(self, graph)

    def __repr__(self) -> str:
        return f"HGTSampler(num_samples={self.spec()['num_samples']}, device='{self._device}')"


def resolve_num_samples(num_samples: Any) -> NumSamples:
    """Nodes that each hop draws of each type, of a list, or of a dict with one list per node type.

    Raises:
        TypeError: it is neither, or a number is no integer.
        ValueError: a number is negative, there are no hops, or types have different numbers of them.
    """
    if not isinstance(num_samples, Mapping):
        return _counts("num_samples", num_samples)
    if not num_samples:
        raise ValueError("num_samples is an empty dict; give a list per node type, or one list for all of them")
    given = {}
    for name, counts in num_samples.items():
        if not isinstance(name, str):
            raise TypeError(f"num_samples has the key {shown(name)}; give names of node types")
        given[name] = _counts(f"num_samples[{name!r}]", counts)
    if len(lengths := sorted({len(counts) for counts in given.values()})) > 1:
        raise ValueError(
            f"num_samples has {' and '.join(map(str, lengths))} hops; give each node type as many, 0 where none are "
            "drawn"
        )
    return given


def _counts(name: str, counts: Any) -> tuple[int, ...]:
    if isinstance(counts, (str, bytes, Mapping, Set)) or not isinstance(counts, Iterable):
        raise TypeError(f"{name} is {shown(counts)}; it must be a list of integers, one per hop, e.g. [512, 512]")
    found = tuple(as_size(f"{name}[{hop}]", count, least=0, most=_MOST) for hop, count in enumerate(counts))
    if not found:
        raise ValueError(f"{name} has no hops; give a number of nodes for each, e.g. [512, 512]")
    return found


class _HGTSession(Session):
    """Samples a `HeteroGraph` where it lies."""

    def __init__(self, sampler: HGTSampler, graph: HeteroGraph) -> None:
        def on_device(values: Iterable[Any]) -> Tensor:
            return torch.tensor(list(values), dtype=torch.int64, device=graph.device)

        self._sampler, self._graph, self._types = sampler, graph, list(graph.node_types)
        self._starts = on_device(ids.start for ids in graph.node_types.values())
        self._first_row = on_device(graph.first_row.values())
        self._slots = on_device(len(relations) for relations in graph.relations_into.values())
        self._most = list(zip(*sampler.counts_of(graph), strict=True))  # [hops][node types]
        # A list is read once, and its shares are 1 together, so no sum of them exceeds 62 bits.
        self._unit = 2 ** min(_UNIT_BITS, 62 - graph.lists.num_dst.bit_length())

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], HeteroSubgraph]]:
        if self._sampler.asynchronous:
            return [partial(self._sample, request) for request in group]
        return [partial(_itself, self._sample(request)) for request in group]

    def _sample(self, request: Request) -> HeteroSubgraph:
        graph, sampler = self._graph, self._sampler
        check_position(request.epoch, request.batch)
        seeds = self._as_seeds(request.seeds)
        key = _core.batch_key(sampler.seed, request.epoch, request.batch)
        hops, known = [seeds], seeds.sort().values
        nodes = scores = seeds.new_empty(0)  # nodes that have a score, ascending
        for hop in range(sampler.num_hops):
            sources, shares = self._shares(hops[-1])
            nodes, of = torch.unique(torch.cat([nodes, sources]), return_inverse=True)
            scores = torch.zeros_like(nodes).index_add_(0, of, torch.cat([scores, shares]))
            left = ~_are_in(nodes, known)
            nodes, scores = nodes[left], scores[left]
            hops.append(nodes[self._drawn(nodes, scores, hop, key)])
            known = torch.cat([known, hops[-1]]).sort().values
        found, num_nodes = self._by_type(hops)
        induced = induced_by_type(graph, found, sampler.edge_ids, sampler.num_threads)
        return HeteroSubgraph(found, num_nodes=num_nodes, epoch=request.epoch, index=request.batch, **induced)

    def _as_seeds(self, seeds: Tensor) -> Tensor:
        ids = as_seeds(self._graph, seeds).to(self._graph.device).long()
        check_range("seeds", ids, self._graph.num_nodes)
        require_type_order(self._starts, ids)
        ordered = ids.sort().values
        if (again := (ordered[1:] == ordered[:-1]).nonzero()).numel():
            twice = int(ordered[again[0, 0]])
            raise ValueError(f"seeds holds node {twice} more than once; seeds must be distinct (torch.unique)")
        return ids

    def _types_of(self, nodes: Tensor) -> Tensor:
        return torch.bucketize(nodes, self._starts, right=True) - 1

    def _shares(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """`[n]` neighbors of nodes in all their lists, and the share that each entry has of its list."""
        lists, types = self._graph.lists, self._types_of(nodes)
        slots = self._slots[types]
        rows = ranges(self._first_row[types] + (nodes - self._starts[types]) * slots, slots)
        begin = lists.indptr[rows].long()
        lengths = lists.indptr[rows + 1].long() - begin
        shares = (self._unit // lengths.clamp(min=1)).clamp(min=1)
        return lists.indices[ranges(begin, lengths)].long(), shares.repeat_interleave(lengths)

    def _drawn(self, nodes: Tensor, scores: Tensor, hop: int, key: int) -> Tensor:
        """Places of the nodes that a hop draws, ascending: of each type those that are first in a race.

        Args:
            nodes: `[n]`, ascending.
        """
        times = arrivals(*node_words(nodes, key, hop), scores.double().square())
        ends = [*torch.searchsorted(nodes, self._starts).tolist()[1:], nodes.numel()]
        begin, places = 0, [nodes.new_empty(0)]
        for end, most in zip(ends, self._most[hop], strict=True):
            if most >= end - begin:
                places.append(torch.arange(begin, end, device=nodes.device))
            elif most:
                places.append(begin + _first(times[begin:end], most))
            begin = end
        return torch.cat(places)

    def _by_type(self, hops: list[Tensor]) -> tuple[dict[str, Tensor], dict[str, tuple[int, ...]]]:
        """Node type -> ids within the type, hop by hop; and their numbers: of the seeds, then of each hop."""
        types = [self._types_of(ids) for ids in hops]
        counts = torch.stack([torch.bincount(of, minlength=len(self._types)) for of in types], 1).tolist()
        of_all = torch.cat(types)
        ids = (torch.cat(hops) - self._starts[of_all])[of_all.argsort(stable=True)]
        parts = ids.split([sum(of_type) for of_type in counts])
        return dict(zip(self._types, parts, strict=True)), dict(zip(self._types, map(tuple, counts), strict=True))


def _itself(sample: HeteroSubgraph) -> HeteroSubgraph:
    return sample


def _first(times: Tensor, count: int) -> Tensor:
    """The places of the `count` least times, ascending; of equal ones the first."""
    last = times.topk(count, largest=False, sorted=False).values.max()
    places = (times <= last).nonzero().view(-1)
    order = times[places].argsort(stable=True)[:count]
    return places[order].sort().values


def _are_in(ids: Tensor, known: Tensor) -> Tensor:
    """`[n]` bool: which ids are in `known`, which ascends."""
    if not known.numel():
        return torch.zeros_like(ids, dtype=torch.bool)
    at = torch.searchsorted(known, ids).clamp(max=known.numel() - 1)
    return known[at] == ids

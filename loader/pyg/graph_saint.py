"""torch_geometric's GraphSAINT samplers on our core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch_geometric.loader.graph_saint as theirs
from torch import Tensor

from loader.datasets.digests import digest_of
from loader.graph import Graph, induced_edges
from loader.loaders.own_batches import seeded
from loader.machine.arguments import as_flag, as_size, kind_of
from loader.machine.whole_files import check_folder, replaced
from loader.pyg.edges_read import EdgesRead
from loader.pyg.neighbor_loader import graph_of, place_of
from loader.pyg.numbered_loader import Clock, NumberedLoader, ends_of, owner_of, rows_of, without_own
from loader.samplers.drawn_numbers import drawn_below, drawn_by
from loader.samplers.walks import WalkSampler

if TYPE_CHECKING:
    from torch_geometric.data import Data

_MOST_EDGE_NORM = 1e4  # as in torch_geometric, as are the next two
_UNSEEN_EDGE = 0.1
_UNSEEN_NODE = 0.1
_COUNTING = 2**62  # the first epoch of those that are counted; training does not come there


class Sampled(NamedTuple):
    """Nodes `[n]`, edges `[2, E]` as places among them, and ids of the edges `[E]`, of one subgraph."""

    nodes: Tensor
    edge_index: Tensor
    edge_ids: Tensor


class GraphSAINTSampler(NumberedLoader, theirs.GraphSAINTSampler):
    """`torch_geometric.loader.GraphSAINTSampler`: base of the samplers of subgraphs that random nodes induce.

    A mini-batch is a `Data` of the distinct nodes that were drawn, ascending, with all edges among them, by source and
    target, and the rows of the attributes of `data`. With `sample_coverage` it has the coefficients `node_norm` `[N]`
    and `edge_norm` `[E]` (Zeng et al., "GraphSAINT", ICLR 2020), counted as in torch_geometric. The nodes are a pure
    function of (seed, epoch, number of the step), with any number of workers, on the CPU and on a GPU.

    A subclass has `_sample_nodes(batch_size)`, which returns nodes of any number and shape. If it is yours, torch's
    generator of the CPU has a seed that follows from these three while it runs.

    Args:
        data: the graph, of one type, with `edge_index`.
        batch_size: what is drawn for a mini-batch, see the subclasses.
        num_steps: mini-batches of an epoch.
        sample_coverage: if above 0, the constructor samples subgraphs until they have `sample_coverage * num_nodes`
            nodes in all. It counts how often each node and edge occurs, for `node_norm` and `edge_norm`. 0, the
            default: no coefficients.
        save_dir: where the coefficients are kept, and read if they are there.
        log: show the progress of counting.
        device: where mini-batches are made and arrive: "cpu" or a GPU. By default the device of `data.x`. For a GPU
            there must be no workers.
        seed: of what is drawn; by default drawn from `generator`, or from torch's.
        options: of torch's DataLoader: `num_workers` and so on.

    Raises:
        TypeError, ValueError: an argument is not as said above.
        NoGpuError: a GPU was asked for and build or machine have none.
    """

    def __init__(
        self,
        data: Data,
        batch_size: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: str | None = None,
        log: bool = True,
        *,
        device: torch.device | str | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        who = type(self).__name__
        place = place_of(data, device)
        if getattr(data, "edge_index", None) is None or isinstance(data, tuple):
            raise TypeError(f"data is {kind_of(data)}; {who} takes a torch_geometric.data.Data with edge_index")
        for name in ("node_norm", "edge_norm"):
            if name in data:
                raise ValueError(f"data has {name}, which the mini-batches of {who} get; remove it: del data.{name}")
        self.num_steps = as_size("num_steps", num_steps)
        self._batch_size = as_size("batch_size", batch_size)
        self.sample_coverage = as_size("sample_coverage", sample_coverage, least=0)
        self.save_dir, self.log, self.data, self.device = save_dir, as_flag("log", log), data, place
        self._graph = graph_of(data, [1], None, place, "device")
        self._read = EdgesRead(data, None, self._graph)
        self.N, self.E = self._graph.num_nodes, self._graph.num_edges
        if self.E == 0:
            raise ValueError(f"data has no edges; {who} samples along edges: add some")
        self._now = 0, 0  # epoch and step
        options = {**without_own(who, place, options), "batch_size": 1}
        self._threads = 1 if options.get("num_workers") else None  # a worker is one of many
        self._init_numbered(self, seed, collate_fn=self._collate, **options)
        self.__dict__["batch_size"] = self._batch_size  # not torch's: Lightning makes the loader anew by this
        self._prepare()
        if self.sample_coverage > 0:
            path = None if save_dir is None else Path(save_dir) / self._filename
            counted_by = self._counted_by()
            if path is not None and path.exists():
                self.node_norm, self.edge_norm, *known = torch.load(path, weights_only=True)
                sizes = self.node_norm.numel(), self.edge_norm.numel()
                if sizes != (self.N, self.E) or known not in ([], [counted_by]):  # torch_geometric's files end there
                    raise ValueError(
                        f"{path} has the coefficients of another graph or batch_size; remove it, or give another "
                        "save_dir"
                    )
            else:
                if path is not None:
                    check_folder("save_dir", path)
                self.node_norm, self.edge_norm = self._compute_norm()
                if path is not None:
                    with replaced(path) as file:  # of several ranks, none reads half of it
                        torch.save((self.node_norm, self.edge_norm, counted_by), file)

    def _prepare(self) -> None:
        """Makes what drawing needs; `_graph` and the seed are there."""

    def _counted_by(self) -> dict[str, Any]:
        """What coefficients depend on, beside chance and what the name of their file says."""
        graph = self._graph
        edges = digest_of(graph.indptr, graph.indices, graph.edge_ids)
        return {"edges": edges, "batch_size": self._batch_size}

    def _drawn(self, below: int, count: int) -> Tensor:
        """`[count]` numbers of this step below `below`."""
        epoch, step = self._now
        return drawn_below(below, count, seed=self.seed, epoch=epoch, batch=step).to(self.device)

    def __getitem__(self, idx: int) -> Any:
        """The subgraph of a step of the epoch that began last."""
        return self._subgraph(self._clock.epoch, int(idx))

    def __getitems__(self, steps: Any) -> list[Any]:
        epoch = getattr(steps, "epoch", self._clock.epoch)
        return [self._subgraph(epoch, int(step)) for step in steps]

    def _subgraph(self, epoch: int, step: int) -> Sampled:
        self._now = epoch, step
        with self._drawing(epoch, step):
            nodes = self._sample_nodes(self._batch_size)
        nodes = torch.unique(nodes.to(self.device))
        threads = self._threads if self.device.type == "cpu" else None
        found = induced_edges(self._graph, nodes, num_threads=threads)
        order = torch.argsort(found.sources, stable=True)  # within a source by target, as they come
        assert self._graph.edge_ids is not None
        ids = self._graph.edge_ids[found.places[order]].long()
        return Sampled(nodes, torch.stack([found.sources, found.targets])[:, order], ids)

    @contextmanager
    def _drawing(self, epoch: int, step: int) -> Iterator[None]:
        if type(self)._sample_nodes in _OURS:  # which do not ask torch's generator
            yield
            return
        with seeded(self.seed, epoch, step):
            yield

    def _collate(self, data_list: Any) -> Data:
        self._read.check(self.data, type(self).__name__, counted=True)  # for each mini-batch
        ((nodes, pairs, ids),) = data_list
        made = self.data.__class__()
        made.num_nodes = nodes.size(0)
        made.edge_index = pairs
        for name, item in self.data:
            if name in ("edge_index", "num_nodes"):
                continue
            owner = owner_of(name, item, self.N, self.E)
            made[name] = item if owner is None else rows_of(item, nodes if owner == "node" else ids)
        if self.sample_coverage > 0:
            made.node_norm, made.edge_norm = rows_of(self.node_norm, nodes), rows_of(self.edge_norm, ids)
        return made

    def _compute_norm(self) -> tuple[Tensor, Tensor]:
        """How often nodes and edges are drawn, in epochs of their own, as the coefficients of the loss."""
        node_count = torch.zeros(self.N, dtype=torch.float32, device=self.device)
        edge_count = torch.zeros(self.E, dtype=torch.float32, device=self.device)
        wanted, total, num_samples, clock = self.N * self.sample_coverage, 0, 0, self._clock
        self._clock = Clock(clock.seed)
        self._clock.next = _COUNTING
        try:
            with _progress(wanted, self.log) as tell:
                while total < wanted:
                    epoch, before = self._clock.begin(), total
                    for step in range(self.num_steps):
                        nodes, _, ids = self._subgraph(epoch, step)
                        node_count[nodes] += 1
                        edge_count[ids] += 1
                        total += nodes.numel()
                        tell(nodes.numel())
                    if total == before:
                        raise ValueError(
                            f"sample_coverage is {self.sample_coverage}, but {self.num_steps} steps drew no node; give "
                            "more, or 0"
                        )
                    num_samples += self.num_steps
        finally:
            self._clock = clock
        # A GPU divides by a number as it multiplies by its inverse, which gives other last bits than a CPU's division.
        node_count, edge_count = node_count.cpu(), edge_count.cpu()
        edge_norm = (node_count[self.data.edge_index[0].cpu()] / edge_count).clamp_(0, _MOST_EDGE_NORM)
        edge_norm[torch.isnan(edge_norm)] = _UNSEEN_EDGE
        node_count[node_count == 0] = _UNSEEN_NODE
        return (num_samples / node_count / self.N).to(self.device), edge_norm.to(self.device)


class GraphSAINTNodeSampler(GraphSAINTSampler, theirs.GraphSAINTNodeSampler):
    """`torch_geometric.loader.GraphSAINTNodeSampler`: draws the sources of `batch_size` edges.

    The edges are independent and equally likely. So a node is drawn in proportion to its out-degree.

    Args:
        args, options: see `GraphSAINTSampler`.
    """

    def _sample_nodes(self, batch_size: int) -> Tensor:
        return ends_of(self.data.edge_index, self._drawn(self.E, batch_size))[0]


class GraphSAINTEdgeSampler(GraphSAINTSampler, theirs.GraphSAINTEdgeSampler):
    """`torch_geometric.loader.GraphSAINTEdgeSampler`: draws both ends of `batch_size` independent edges.

    An edge is drawn in proportion to the in-degree of its source plus the out-degree of its target. This is
    torch_geometric's law; the paper's has the reciprocals of these degrees.

    Args:
        args, options: see `GraphSAINTSampler`.
    """

    def _prepare(self) -> None:
        source, target = self.data.edge_index.to(self.device)
        in_degrees = torch.bincount(target, minlength=self.N)
        out_degrees = torch.bincount(source, minlength=self.N)
        self._sums = (in_degrees[source] + out_degrees[target]).cumsum(0)

    def _sample_nodes(self, batch_size: int) -> Tensor:
        epoch, step = self._now
        edges = drawn_by(self._sums, batch_size, seed=self.seed, epoch=epoch, batch=step)
        return torch.cat(list(ends_of(self.data.edge_index, edges)))


class GraphSAINTRandomWalkSampler(GraphSAINTSampler, theirs.GraphSAINTRandomWalkSampler):
    """`torch_geometric.loader.GraphSAINTRandomWalkSampler`: draws the nodes of `batch_size` random walks.

    The starts are independent and equally likely. A walk goes along the direction of the edges, and ends at a node
    without outgoing edges.

    Args:
        data, batch_size, num_steps, sample_coverage, save_dir, log, device, seed, options: see `GraphSAINTSampler`.
        walk_length: steps of a walk.
    """

    def __init__(
        self,
        data: Data,
        batch_size: int,
        walk_length: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: str | None = None,
        log: bool = True,
        *,
        device: torch.device | str | None = None,  # by name, as Lightning looks for them
        seed: int | None = None,
        **options: Any,
    ) -> None:
        self.walk_length = as_size("walk_length", walk_length, least=0)
        options = {"device": device, "seed": seed, **options}
        GraphSAINTSampler.__init__(self, data, batch_size, num_steps, sample_coverage, save_dir, log, **options)

    def _prepare(self) -> None:
        onward: Graph = self._graph.reverse()
        self._onward = onward
        self._walks = WalkSampler(self.walk_length, seed=self.seed, device=self.device, num_threads=self._threads)

    def _sample_nodes(self, batch_size: int) -> Tensor:
        epoch, step = self._now
        start = self._drawn(self.N, batch_size).to(self._onward.indices.dtype)
        nodes = self._walks.sample(self._onward, start, epoch=epoch, batch=step).nodes.flatten()
        return nodes[nodes >= 0]


_OURS: tuple[Any, ...] = (
    GraphSAINTNodeSampler._sample_nodes,
    GraphSAINTEdgeSampler._sample_nodes,
    GraphSAINTRandomWalkSampler._sample_nodes,
)


@contextmanager
def _progress(total: int, shown: bool) -> Iterator[Callable[[int], Any]]:
    """A bar that is told what is done; nothing unless it is to be shown."""
    if not shown:
        yield lambda done: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc="Compute GraphSAINT normalization") as bar:
        yield bar.update

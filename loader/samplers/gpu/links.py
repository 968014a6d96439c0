"""Links on a GPU: their ends, and the edges that are left out because a model has to predict them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.machine.gpu import current_stream_handle, made_current
from loader.samples import Block, MiniBatch, Subgraph
from loader.samples.links import without_links as plain


class GpuLinks:
    """Finds the ends of links, positive and negative, among the nodes of one graph.

    Args:
        device: the GPU.
        sources, targets: ids that the ends may have; links are given by numbers from the first of these ids on.
        num_nodes: of the graph.
        dtype: of the seeds that it gives, int32 or int64.
        check: raises ValueError for links whose ends are no nodes.
        known: `indptr` and `indices` of the edges that strict negatives must not be, each list ascending, on the GPU or
            in pinned memory; or None.

    Raises:
        ValueError: `known` lies elsewhere, or an end may be one of more than 2**32 - 1 nodes, or of none.
    """

    def __init__(
        self,
        device: torch.device,
        sources: range,
        targets: range,
        num_nodes: int,
        dtype: torch.dtype,
        check: Callable[[Tensor], None],
        known: tuple[Tensor, Tensor] | None,
    ) -> None:
        self._device, self._num_nodes, self._dtype = device, num_nodes, dtype
        self._one_type, self._check, self._known = sources == targets, check, known
        indptr, indices = known or (None, None)
        ends = (sources.start, sources.stop), (targets.start, targets.stop)
        self._engine = _core.CudaLinkEngine(*ends, num_nodes, indptr, indices, device.index)

    def ends(self, pairs: Tensor, negatives: int, each: int, key: int) -> tuple[Tensor, list[Tensor]]:
        """The distinct ends of links, ascending, and each end's place among them.

        Args:
            pairs: `[P, 2]` int32 or int64, the positive links, on the GPU.
            negatives: number of negative links.
            each: negatives of each positive link, which have its source; 0: both ends are drawn.
            key: of the negatives of this mini-batch.

        Returns:
            `[S]` seeds, ids of the graph's nodes; and places, int64: of the sources and targets of the positive links,
            of the sources of the negative links if they are drawn, and of their targets.

        Raises:
            ValueError: an end is no node, or a strict negative was not found.
        """
        pairs = pairs.contiguous()
        links, device = pairs.shape[0], self._device
        lengths = [links, links, *([] if each else [negatives]), negatives]
        count = sum(lengths)
        sorted_here = 0 < count <= _core.most_sorted_ends
        with made_current(device):
            ends = torch.empty(count, dtype=torch.int64, device=device)
            local = outcome = seeds = None
            if sorted_here:
                local, outcome = torch.empty_like(ends), torch.empty(2, dtype=torch.int64, device=device)
                seeds = torch.empty(count, dtype=self._dtype, device=device)
            strict, stream = self._known is not None, current_stream_handle(device.index)
            self._engine.ends(pairs, negatives, each, key, strict, ends, seeds, local, outcome, stream)
            if seeds is not None and local is not None and outcome is not None:
                distinct, bad = outcome.tolist()
                if bad >= 0:
                    self._refuse(pairs, bad, each)
                seeds = seeds[:distinct]
            else:
                found, local = torch.unique(ends, return_inverse=True)
                if count and int(found[0]) < 0:
                    self._refuse(pairs, int((ends < 0).nonzero()[0]), each)
                seeds = found.to(self._dtype)
        return seeds, list(local.split(lengths))

    def _refuse(self, pairs: Tensor, place: int, each: int) -> None:
        """Raises the error of an end that is no node; places behind those of the pairs are those of negatives."""
        given = pairs.numel()
        if place < given:
            self._check(pairs)
        raise ValueError(
            no_target(int(pairs[(place - given) // each, 0]), self._one_type)
            if each
            else "no negative link was found in 4096 tries: nearly all pairs of nodes are edges; draw them with "
            "strict=False"
        )


def no_target(source: int, one_type: bool) -> str:
    """The error of a node that has no negative link."""
    every = "other node" if one_type else "node of their type"
    return (
        f"node {source} has an edge to every {every}, so it has no negative link; draw them with strict=False, or "
        "leave its links out"
    )


def without_links(sample: Any, sources: Tensor, targets: Tensor, *, reverse: bool) -> Any:
    """`loader.samples.links.without_links` on a GPU, of a sample without rows."""
    if not isinstance(sample, Subgraph) and type(sample) is not MiniBatch:
        return plain(sample, sources, targets, reverse=reverse)
    hops = [_Hop(block) for block in sample.blocks] if isinstance(sample, MiniBatch) else [_Hop(sample)]
    links, device = sources.shape[0], sources.device
    capacity = 1 << (4 * (2 if reverse else 1) * links).bit_length()
    with made_current(device):
        slots = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        found = torch.zeros(len(hops), dtype=torch.int64, device=device)
        stream = current_stream_handle(device.index)
        asked = [hop.asked() for hop in hops]
        _core.cuda_find_links(slots, sample.batch_size, sources, targets, reverse, asked, found, device.index, stream)
        made = [hop.without(count, stream) for hop, count in zip(hops, found.tolist(), strict=True)]
    return sample.replace(blocks=tuple(made)) if isinstance(sample, MiniBatch) else made[0]


class _Hop:
    """The edges of a block, or of a subgraph, to the seeds and to others."""

    def __init__(self, edges: Block | Subgraph) -> None:
        self._edges = edges
        self._indptr: Tensor | None = None
        self._arrays: list[Tensor] = []
        if isinstance(edges, Block):
            self._indptr, self._arrays = edges.indptr, [edges.indices]
            self._first = edges.indices.numel()
        else:
            self._arrays = list(edges.edge_index)
            self._first = edges.num_edges[0] if edges.num_edges else 0
        if edges.edge_ids is not None:
            self._arrays.append(edges.edge_ids)
        like = self._arrays[0] if self._indptr is None else self._indptr
        self._gone = torch.empty(self._first, dtype=like.dtype, device=like.device)

    def asked(self) -> tuple[Tensor | None, Tensor, Tensor | None, Tensor]:
        """What `cuda_find_links` wants."""
        return self._indptr, self._arrays[0], self._arrays[1] if self._indptr is None else None, self._gone

    def without(self, count: int, stream: int) -> Block | Subgraph:
        """Without the `count` edges that were found."""
        edges, indptr = self._edges, self._indptr
        if count == 0:
            return edges
        gone = self._gone[:count].sort().values
        total = self._arrays[0].numel()
        rest = [torch.empty(total - count, dtype=a.dtype, device=a.device) for a in self._arrays]
        lists = None if indptr is None else torch.empty_like(indptr)
        corrected = None if indptr is None or lists is None else (indptr, lists)
        _core.cuda_drop(list(zip(self._arrays, rest, strict=True)), corrected, gone, gone.device.index, stream)
        if isinstance(edges, Block):
            assert lists is not None
            ids = rest[1] if len(rest) > 1 else None
            return Block(lists, rest[0], num_src=edges.num_src, num_dst=edges.num_dst, edge_ids=ids)
        return edges.replace(
            edge_index=torch.stack(rest[:2]),
            edge_ids=rest[2] if len(rest) > 2 else None,
            num_edges=(edges.num_edges[0] - count, *edges.num_edges[1:]),
        )

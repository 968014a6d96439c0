"""`dgl.sampling.global_uniform_negative_sampling` on our negatives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.dgl.hetero import edge_type
from loader.dgl.original_dgl import drawn
from loader.dgl.sampling.frontier import refusing_as_dgl, require_graph
from loader.dgl.sampling.lists import lists_of
from loader.graph import Graph
from loader.machine.arguments import as_flag, as_number, as_size
from loader.machine.memo import Memo

# If at least this share of all pairs are no edges, tries find one (csrc/links/negatives.h); else they are listed.
_LEAST_FREE = 1 / 64

_memo = Memo()  # calls for one graph count its pairs once


@refusing_as_dgl
def global_uniform_negative_sampling(
    g: Any,
    num_samples: int,
    exclude_self_loops: bool = True,
    replace: bool = False,
    etype: Any = None,
    redundancy: float | None = None,
) -> tuple[Tensor, Tensor]:
    """`dgl.sampling.global_uniform_negative_sampling`: pairs of nodes that no edge joins, all equally likely.

    Args:
        num_samples: pairs. Without replacement there are fewer if the graph has fewer.
        exclude_self_loops: draw no loops, if the edge type joins nodes of one type.
        replace: pairs are drawn independently, so a pair may come twice.
        etype: the edge type; None: the only one.
        redundancy: an option of DGL without effect, as in DGL.

    Returns:
        Sources and destinations, `[num_samples]` each.

    Raises:
        TypeError, ValueError: an argument is not as said above. The latter is a `dgl.DGLError`, too.
    """
    require_graph(g)
    if etype is None and len(g.canonical_etypes) > 1:
        raise ValueError(f"etype is None, but the graph has the edge types {g.canonical_etypes}; give one")
    key = g.canonical_etypes[0] if etype is None else edge_type("etype", g, etype)
    count, again = as_size("num_samples", num_samples, least=0), as_flag("replace", replace)
    if redundancy is not None:
        as_number("redundancy", redundancy)
    loops = not (as_flag("exclude_self_loops", exclude_self_loops) and key[0] == key[2])
    lists, sizes = lists_of(g, key), (g.num_nodes(key[0]), g.num_nodes(key[2]))
    among = _memo.get(lists, None, loops, lambda: Pairs(lists.on_cpu, *sizes, loops))
    source, target = among.drawn(count, drawn(), again)
    return source.to(g.device, g.idtype), target.to(g.device, g.idtype)


class Pairs:
    """The pairs of nodes that are no edges of a graph.

    Args:
        graph: of the edges, on the CPU, whose lists ascend.
        num_sources, num_targets: nodes at either end.
        loops: whether a pair may be a loop.
    """

    def __init__(self, graph: Graph, num_sources: int, num_targets: int, loops: bool) -> None:
        self._indptr, self._indices = graph.indptr[: num_targets + 1], graph.indices
        self._sizes, self._loops = (num_sources, num_targets), loops
        self.count = num_sources * num_targets - len(self._others())

    def _others(self) -> Tensor:
        """The pairs that may not be drawn, `target * num_sources + source`, ascending."""
        targets = torch.arange(self._sizes[1])
        edges = targets.repeat_interleave(self._indptr.diff().long()) * self._sizes[0] + self._indices
        if not self._loops:
            edges = torch.cat([edges, targets * self._sizes[0] + targets])
        return torch.unique(edges)

    def drawn(self, count: int, seed: int, replace: bool) -> tuple[Tensor, Tensor]:
        """Sources and targets of `count` pairs, or of fewer if there are fewer."""
        if not replace:
            count = min(count, self.count)
        if count == 0 or self.count == 0:
            none = torch.empty(0, dtype=torch.int64)
            return none, none
        wide = self._sizes[0] * self._sizes[1]
        if self.count < wide * _LEAST_FREE or (not replace and 2 * count > self.count):
            generator = torch.Generator().manual_seed(seed)
            free = self._listed()
            if replace:
                chosen = free[torch.randint(len(free), (count,), generator=generator)]
            else:
                chosen = free[torch.randperm(len(free), generator=generator)[:count]]
        elif replace:
            chosen = self._tried(count, seed, 0)
        else:
            chosen, batch = self._tried(count, seed, 0), 0
            while len(chosen := _first_of_each(chosen)) < count:
                batch += 1
                chosen = torch.cat([chosen, self._tried(count, seed, batch)])
            chosen = chosen[:count]
        return chosen % self._sizes[0], chosen // self._sizes[0]

    def _tried(self, count: int, seed: int, batch: int) -> Tensor:
        """`[count]` independent pairs, by our core."""
        source, target = torch.empty(count, dtype=torch.int64), torch.empty(count, dtype=torch.int64)
        lists = self._indptr, self._indices
        _core.negatives(*self._sizes, not self._loops, seed, 0, batch, None, source, target, *lists, True)
        return target * self._sizes[0] + source

    def _listed(self) -> Tensor:
        """All of them."""
        free = torch.ones(self._sizes[0] * self._sizes[1], dtype=torch.bool)
        free[self._others()] = False
        return free.nonzero().view(-1)


def _first_of_each(numbers: Tensor) -> Tensor:
    """The distinct numbers, in the order in which they came first."""
    distinct, of = torch.unique(numbers, return_inverse=True)
    first = torch.full((len(distinct),), len(numbers)).scatter_reduce_(0, of, torch.arange(len(numbers)), "amin")
    return numbers[first.sort().values]

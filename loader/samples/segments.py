"""Where the nodes and rows of each type lie in a mini-batch of several types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

EdgeType = tuple[str, str, str]


class Part(NamedTuple):
    """Nodes of one type that one hop found: `nodes[begin:begin + size]`."""

    begin: int
    size: int


class Segments:
    """The parts of a mini-batch's nodes, by hop and type. It holds no tensors, so copies share it.

    Args:
        node_types: node type -> `range` of ids.
        edge_types: the relations.
        sizes: numbers of new nodes, `[hops + 1][node types]`.

    Attributes:
        names: the node types.
        parts: `[hops + 1][node types]`.
    """

    def __init__(
        self, node_types: Mapping[str, range], edge_types: tuple[EdgeType, ...], sizes: Sequence[Sequence[int]]
    ) -> None:
        self.node_types, self.edge_types, self.sizes = node_types, edge_types, sizes
        self.names = tuple(node_types)

    def __deepcopy__(self, memo: Any) -> Segments:
        return self

    @cached_property
    def parts(self) -> tuple[tuple[Part, ...], ...]:
        found, end = [], 0
        for of_hop in self.sizes:
            parts = []
            for size in of_hop:
                parts.append(Part(end, size))
                end += size
            found.append(tuple(parts))
        return tuple(found)

    @property
    def into(self) -> tuple[tuple[int, ...], ...]:
        """For each node type the numbers of the relations into it, by slot."""
        return _relations_into(self.names, self.edge_types)

    def type_of(self, name: str) -> int:
        """The number of a node type; raises KeyError if there is no such type."""
        if name not in self.names:
            raise KeyError(f"{name!r} is no node type of the graph; its node types are {list(self.names)}")
        return self.names.index(name)

    def relation_of(self, edge_type: EdgeType | str) -> int:
        """The number of a relation, which may be given as `author__writes__paper`; raises KeyError if there is none."""
        for r, known in enumerate(self.edge_types):
            if edge_type == known or edge_type == "__".join(known):
                return r
        raise KeyError(f"{edge_type!r} is no edge type of the graph; its edge types are {list(self.edge_types)}")

    def ends_of(self, relation: int) -> tuple[int, int]:
        """The types of the sources and of the destinations."""
        source, _, target = self.edge_types[relation]
        return self.names.index(source), self.names.index(target)

    def count(self, node_type: int, places: int | None = None) -> int:
        """Nodes of a type among the first `places` nodes, which are those of whole hops; by default among all."""
        return sum(of_hop[node_type].size for of_hop in self.parts if places is None or of_hop[0].begin < places)

    def rows(self, first: int, count: int) -> list[tuple[int, Part, int]]:
        """Lists the parts of the nodes `first` to `first + count`, which are those of whole hops: of each part its
        type, the part, and its first row.
        """
        found, row = [], 0
        for of_hop in self.parts:
            for t, part in enumerate(of_hop):
                if part.size and first <= part.begin < first + count:
                    found.append((t, part, row))
                    row += part.size * len(self.into[t])
        return found

    def spread(self, of_part: Sequence[Sequence[int]], device: torch.device) -> Tensor:
        """`[num_nodes]` int64: for each node the number of its part."""
        flat, sizes = (
            torch.tensor([n for of_hop in of for n in of_hop], dtype=torch.int64, device=device)
            for of in (of_part, self.sizes)
        )
        return flat.repeat_interleave(sizes, output_size=sum(map(sum, self.sizes)))

    def within(self, device: torch.device) -> Tensor:
        """`[num_nodes]` int64: the place of each node among those of its type."""
        shifts, before = [], [0] * len(self.names)
        for of_hop in self.parts:
            shifts.append([part.begin - n for part, n in zip(of_hop, before, strict=True)])
            before = [n + part.size for part, n in zip(of_hop, before, strict=True)]
        shift = self.spread(shifts, device)
        return torch.arange(shift.numel(), device=device) - shift

    def of_type(self, rows: Tensor, node_type: int) -> Tensor:
        """Takes the rows of the nodes of one type from `rows`, which has one for each node."""
        parts = [of_hop[node_type] for of_hop in self.parts if of_hop[node_type].size]
        if len(parts) == 1 or not parts:
            begin, size = parts[0] if parts else (0, 0)
            return rows[begin : begin + size]
        return torch.cat([rows[part.begin : part.begin + part.size] for part in parts])

    def of_types(self, rows: Tensor, node_types: Sequence[int]) -> list[Tensor]:
        """Copies the rows of the nodes of each of these types, all by one launch; see `of_type`."""
        sizes = [size for of_hop in self.sizes for size in of_hop]
        pieces, types = rows.unsafe_split_with_sizes(sizes), len(self.names)
        wanted = [pieces[i] for t in node_types for i in range(t, len(sizes), types) if sizes[i]]
        if not wanted:
            return [rows[:0] for _ in node_types]
        counts = [sum(sizes[t::types]) for t in node_types]
        return list(torch.cat(wanted).unsafe_split_with_sizes(counts))

    def within_types(self, ids: Sequence[Tensor], node_types: Sequence[int]) -> None:
        """Numbers ids of these types within their type, in place, all by one launch."""
        starts = [self.node_types[self.names[t]].start for t in node_types]
        moved = [(of, start) for of, start in zip(ids, starts, strict=True) if start and of.numel()]
        if moved:
            torch._foreach_sub_([of for of, _ in moved], [start for _, start in moved])


@lru_cache(maxsize=32)
def _relations_into(names: tuple[str, ...], edge_types: tuple[EdgeType, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(r for r, (_, _, target) in enumerate(edge_types) if target == name) for name in names)


def seed_type_of(num_seeds: Mapping[str, int]) -> str:
    """The type of the seeds of a mini-batch, of node type -> number of seeds.

    Raises:
        ValueError: they have several types, or there are none.
    """
    names = [name for name, size in num_seeds.items() if size]
    if len(names) != 1:
        raise ValueError(f"the seeds of the mini-batch have {len(names)} types {names}; one is needed here")
    return names[0]

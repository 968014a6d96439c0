"""Tables of learned rows for node types without features: in place of features, or weights of one-hot features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from loader.machine.arguments import as_size, shown
from loader.ops import aggregate_row_mean
from loader.ops.hop_layout import HopLayout
from loader.samples.segments import EdgeType

ONE_HOT = "one-hot"


class TrainedRows(nn.Module):
    """A learned row for each node of a type, as `torch.nn.Embedding` and one-hot features have.

    Its gradient has the rows that were read, for `torch.optim.SparseAdam`: neither a step nor its memory depends on the
    number of nodes. The sum of a row's gradient over the edges that read it is that of features, see
    `loader.ops.aggregate_mean`; each row is there once.

    Args:
        num_nodes: of the type.
        width: of a row.

    Attributes:
        weight: `[num_nodes, width]`. It begins with Glorot's uniform numbers (2010, as in torch_geometric and DGL for
            such rows): with larger ones, a model on a small graph knows nodes by their random rows and learns no
            others.

    Raises:
        TypeError, ValueError: a size is none, or too small.
    """

    def __init__(self, num_nodes: int, width: int) -> None:
        super().__init__()
        num_nodes, width = as_size("num_nodes", num_nodes, most=2**40), as_size("width", width)
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(num_nodes, width)))

    def forward(self, ids: Tensor) -> Tensor:
        """Rows `[n, width]` of the nodes `ids` `[n]`, numbered within their type."""
        return F.embedding(ids, self.weight, sparse=True)


class OneHotLayer(nn.Module):
    """The part of a first layer of R-GCN that reads one-hot features: its weights are rows of nodes.

    With one-hot features (section 5.1 of Schlichtkrull et al. 2018, https://arxiv.org/abs/1703.06103;
    `torch_geometric.nn.RGCNConv` with `x=None`), the product of a node's features and a relation's weights is a row of
    these, of a basis or of the relation. The products of all distinct nodes of a mini-batch with all relations are made
    before means are taken: `[relations, nodes, out]`, so it is for small graphs with few columns.

    Args:
        num_nodes: node type -> number of nodes, of types with one-hot features.
        names: all node types.
        edge_types: the relations, in the order of the graph's.
        bases: so many rows of each node, whose sums are those of relations; None: one row for each relation.
        out: columns of the output.
        dropout: probability in [0, 1) that a node counts as 0.
    """

    def __init__(
        self,
        num_nodes: Mapping[str, int],
        names: Sequence[str],
        edge_types: Sequence[EdgeType],
        bases: int | None,
        out: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.names, self.out, self.dropout = tuple(names), out, dropout
        self._from = {name: [r for r, key in enumerate(edge_types) if key[0] == name] for name in num_nodes}
        self._into = [[r for r, key in enumerate(edge_types) if key[2] == name] for name in names]
        self._source = [self.names.index(key[0]) for key in edge_types]
        self._table_of = {name: i for i, name in enumerate(num_nodes)}
        # The last row of a node is that of its own weights.
        self.tables = nn.ModuleList(
            TrainedRows(count, out * (1 + (len(self._from[name]) if bases is None else bases)))
            for name, count in num_nodes.items()
        )

    def forward(self, layout: HopLayout, hops: int, shares: Tensor | None) -> Tensor:
        """`[nodes of the first hops, out]`: means over relations, and nodes' own rows, without a bias.

        Args:
            layout: of the mini-batch.
            hops: number of hops.
            shares: `[relations, bases]` of the bases; None where each relation has rows of its own.
        """
        own, products, begins, size = self._products(layout, shares)
        firsts = [sum(layout.unique[:t]) for t in range(len(self.names))]
        indptr, device = layout.rows_of(hops), layout.row.device
        parts = list(layout.parts(hops))
        none = torch.zeros(0, dtype=torch.int64, device=device)
        relation = torch.cat([none, *(none.new_tensor(self._into[p.node_type]).repeat(p.size) for p in parts)])
        shift = none.new_tensor([begin - firsts[self._source[r]] for r, begin in enumerate(begins)])
        entries = layout.row.index_select(0, layout.entries_of(hops)[: int(indptr[-1])].long())
        of_entry = relation.repeat_interleave(indptr.diff().long(), output_size=len(entries))
        read = none.new_tensor([r for of in self._from.values() for r in of])
        # Sources with features count as the row of zeros at the end.
        at = torch.where(torch.isin(of_entry, read), entries + shift.index_select(0, of_entry), size)
        means = aggregate_row_mean(products, indptr, at.to(indptr.dtype))
        found = [products[:0]]
        for part in parts:
            rows = means[part.row : part.row + part.size * part.slots].view(part.size, part.slots, self.out).sum(1)
            if (mine := own.get(part.node_type)) is not None:
                places = layout.row[part.begin : part.begin + part.size] - firsts[part.node_type]
                rows = rows + mine.index_select(0, places)
            found.append(rows)
        return torch.cat(found)

    def _products(self, layout: HopLayout, shares: Tensor | None) -> tuple[dict[int, Tensor], Tensor, list[int], int]:
        """Own rows by node type, and `[n + 1, out]` those of relations with a row of zeros at the end; where each
        relation begins there, 0 where it has none; and n.
        """
        own, begins, size = {}, [0] * len(self._source), 0
        products: list[Tensor] = []
        for name, at in self._table_of.items():
            rows = self.tables[at](layout.ids_of(name))
            present = nn.functional.dropout(rows.new_ones(len(rows), 1), self.dropout, self.training)
            rows = (rows * present).view(len(rows), rows.shape[1] // self.out, self.out)
            own[self.names.index(name)] = rows[:, -1]
            relations = self._from[name]
            of_each = rows[:, :-1].transpose(0, 1)
            if shares is not None:
                of_each = torch.einsum("rb,bno->rno", shares[relations], of_each)
            products.append(of_each.reshape(-1, self.out))
            for r in relations:
                begins[r], size = size, size + len(rows)
        return own, torch.cat([*products, products[0].new_zeros(1, self.out)]), begins, size


def check_trained_rows(value: int | str | None) -> int | str | None:
    """The option `trained_rows`.

    Raises:
        TypeError, ValueError: it is neither a width, nor "one-hot", nor None.
    """
    if isinstance(value, str) and value != ONE_HOT:
        raise ValueError(f"trained_rows is {shown(value)}; it must be a number of columns, {ONE_HOT} or None")
    return value if value is None or isinstance(value, str) else as_size("trained_rows", value)


def nodes_without_features(
    in_dims: Mapping[str, int], num_nodes: Mapping[str, int] | None, option: int | str
) -> dict[str, int]:
    """Node type -> number of nodes, of each type without features.

    Args:
        in_dims: node type -> width of its features, 0 if it has none.
        num_nodes: node type -> number of nodes.
        option: the value of `trained_rows`, for messages.

    Raises:
        ValueError: a number of nodes is missing, or all types have features.
    """
    without = [name for name, width in in_dims.items() if not width]
    if not without and num_nodes is not None:
        raise ValueError(
            f"trained_rows is {option}, but all node types ({', '.join(in_dims)}) have features; leave it out"
        )
    if lacks := [name for name in without if name not in (num_nodes or {})]:
        raise ValueError(
            f"trained_rows is {option}, and num_nodes has no number of nodes of type {lacks[0]}, which has no "
            "features; give num_nodes for each type"
        )
    return {name: (num_nodes or {})[name] for name in without}


def rows_in(module: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters in a module whose gradients are sparse."""
    for part in module.modules():
        if isinstance(part, TrainedRows):
            yield part.weight

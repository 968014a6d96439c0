"""The network of tasks on tables: rows are encoded by their columns, and messages pass along the keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from loader.machine.arguments import as_flag, as_fraction, as_size
from loader.machine.optional import import_optional
from loader.machine.renamed_arguments import renamed_arguments
from loader.ops import aggregate_sum
from loader.ops.autocast import working_dtype
from loader.ops.captured_trees import CapturedTrees
from loader.ops.first_layers import halves
from loader.ops.gpu import Entries, entries_of, sum_of_entries
from loader.ops.grouped import Grouped, activated, by_type, sum_of_rows
from loader.ops.mapped_rows import MappedRows
from loader.ops.side_streams import Beside, are_open, beside
from loader.ops.tiles import Spread
from loader.ops.times_since import encode_since
from loader.ops.tree_layout import TreeLayout
from loader.ops.weight_gradients import with_dense_gradient
from loader.samples.base import Rows
from loader.samples.lazy_rows import LazyFeatures, LazyRows, gathered
from loader.samples.segments import EdgeType, Segments
from loader.samples.trees import TreeMiniBatch
from models.row_encoder import RowEncoder

# Branches of encoders. With those of the layout, of times, and of both sets of weights a step begins with eight: a CUDA
# graph runs that many at once, and begins a ninth only when one of them has come to its end.
_LANES = 4


@renamed_arguments({"hidden": "hidden_channels"})
class RelationalSAGE(nn.Module):
    """GraphSAGE on rows of tables, with weights of its own per relation: RelBench's baseline (Robinson et al. 2024,
    https://arxiv.org/abs/2407.20060).

    A row is encoded by its columns, see `RowEncoder`; to a row with a time the encoded difference of the seed's time
    and its own is added. Each layer adds up the sums of a row's neighbors over all relations, with a layer norm per
    table and a ReLU. A linear map gives the output of the seeds. The weights lie in modules of torch_geometric and
    pytorch-frame, by which state dicts name them. They are applied to all tables and relations together, so these
    modules are not called, and hooks on them see nothing.

    Args:
        columns: table -> its columns, see `RowEncoder`.
        edge_types: the relations.
        target: the table of the seeds.
        hidden_channels, out_dim: widths of rows and of the output.
        num_layers: depth; the sampler needs as many hops.
        encoder_layers, encoder_norm, dropout: see `RowEncoder`.
        unique_rows: encode each distinct row of a mini-batch once, whose copies then share its dropout. False encodes
            every copy.

    Raises:
        ImportError: pytorch-frame or torch_geometric is missing.
        ValueError: a value out of its range.
    """

    def __init__(
        self,
        columns: Mapping[str, Sequence[Mapping[str, Any]]],
        edge_types: Sequence[EdgeType],
        target: str,
        out_dim: int,
        *,
        hidden_channels: int = 128,
        num_layers: int = 2,
        encoder_layers: int = 4,
        encoder_norm: str = "layer",
        dropout: float = 0.2,
        unique_rows: bool = True,
    ) -> None:
        super().__init__()
        self.num_layers, self.target = as_size("num_layers", num_layers), target
        self.unique_rows, self.dropout = as_flag("unique_rows", unique_rows), float(dropout)
        if as_size("hidden_channels", hidden_channels) % 2:
            raise ValueError(f"hidden_channels is {hidden_channels}; times are encoded by pairs, so it must be even")
        as_fraction("dropout", dropout)
        if encoder_norm not in ("layer", "none"):
            way = ": copies of a row would count once or often" if encoder_norm == "batch" else ""
            raise ValueError(f"encoder_norm is {encoder_norm!r}; it must be layer or none{way}")
        self.encoder_layers, self.normed = as_size("encoder_layers", encoder_layers), encoder_norm == "layer"
        gnn = import_optional("torch_geometric.nn", "a model of tables", "relational")
        # Unlike torch's, it takes tables that are called as one of its methods, such as items or type.
        table_dict = import_optional("torch_geometric.nn.module_dict", "a model of tables", "relational").ModuleDict
        self.edge_types = [(str(s), str(name), str(d)) for s, name, d in edge_types]
        if all(key[2] != target for key in self.edge_types):
            raise ValueError(f"no relation leads to rows of {target}, so there is nothing to learn from; add its keys")
        written = [{target}]  # tables whose rows each layer has to write, the first one last
        for _ in range(num_layers):
            written.append(written[-1] | {s for s, _, d in self.edge_types if d in written[-1]})
        *layers, read = written
        self.edge_types = [key for key in self.edge_types if key[2] in layers[-1]]  # no layer reads the others
        shape = (hidden_channels, encoder_layers, float(dropout), encoder_norm)
        self.encoders = table_dict({name: RowEncoder(of, *shape) for name, of in columns.items() if name in read})
        self.timed = [name for name, of in columns.items() if name in read and of and of[-1]["kind"] == "known"]
        self.since = table_dict({name: nn.Linear(hidden_channels, hidden_channels) for name in self.timed})
        self.encode_time = gnn.PositionalEncoding(hidden_channels)
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for names in reversed(layers):
            into = [key for key in self.edge_types if key[2] in names]
            sums = {
                "__".join(key): gnn.SAGEConv((hidden_channels, hidden_channels), hidden_channels, aggr="sum")
                for key in into
            }
            self.convs.append(nn.ModuleDict(sums))
            self.norms.append(table_dict({key[2]: nn.LayerNorm(hidden_channels) for key in into}))
        self.head = nn.Linear(hidden_channels, as_size("out_dim", out_dim))
        self._ends: dict[Any, Any] = {}  # types of the ends of relations, by graph and device

    def forward(self, batch: TreeMiniBatch | CapturedTrees) -> Tensor:
        """Outputs of the seeds, `[batch_size, out_dim]`.

        Raises:
            ValueError: the mini-batch has another number of hops than the model has layers, or no times.
        """
        if len(batch.sizes) - 1 != self.num_layers:
            raise ValueError(
                f"the mini-batch has {len(batch.sizes) - 1} hops, the model {self.num_layers} layers; "
                "give the sampler as many fanouts as the model has layers"
            )
        self._check_dtype()
        segments, last = batch.segments, self.num_layers
        # Neither where rows lie nor their times depend on the rows, and weights depend on none of these.
        laid = beside("layout", lambda: batch.layout if isinstance(batch, CapturedTrees) else TreeLayout.of(batch))
        mapped = self._mapped(laid.made, segments)
        weights = [beside("layers", partial(self._weights, i, segments, None if i else mapped)) for i in range(last)]
        entries = beside("layout", partial(self._entries, laid.made, mapped))
        from_times = beside("times", lambda: self._from_times(laid(), segments, weights[0]))
        x = self._encoded(laid.made if self.unique_rows else laid(), segments)
        trees = laid()
        for i, (ready, (indptr, indices), both) in enumerate(zip(weights, *entries(), strict=True)):
            of = ready()
            if of.mapped is not None and mapped is not None:
                x = mapped.products(x.to(of.mapped[0].dtype), of.mapped)
            # The sums of a node's neighbors by relation, and its own row, have one gradient.
            rows = aggregate_sum(x, indptr, indices) if both is None else sum_of_entries(x, both())
            found = None if i else from_times()
            if of.mapped is None:
                rows, parts = rows.to(of.own[0].dtype), trees.parts(last - i)
                found = sum_of_rows(parts, rows, of.relations, own=of.own, base=found)
            else:
                found = rows if found is None else rows + found
            x = trees.group(last - i).norm(found, of.scale, of.shift, bias=of.bias, relu=True)
        # A slice, even of all rows, would be two launches more on the way back.
        seeds = x if len(x) == batch.batch_size else x[: batch.batch_size]
        # Autocast's bfloat16 would round numbers of a regression to three digits, and make logits equal.
        with torch.autocast(seeds.device.type, enabled=False):
            out: Tensor = self.head(seeds.to(self.head.weight.dtype))
        return out

    def rows(self, batch: TreeMiniBatch) -> dict[str, Tensor]:
        """Table -> encoded rows `[n, hidden_channels]` of the nodes of the mini-batch, with the time since each.

        Raises:
            ValueError: the seeds have no times, or there are no rows of a table.
        """
        self._check_dtype()
        trees, segments = TreeLayout.of(batch), batch.segments
        encoded, every = self._encoded(trees, segments), trees.group(len(trees.segments))
        x = encoded.index_select(0, trees.row) if self.unique_rows else encoded
        x = _with_times(x, self._since(trees), every, self._of_times(segments.names))
        return {name: segments.of_type(x, segments.type_of(name)) for name in self.encoders}

    def _check_dtype(self) -> None:
        dtype = self.head.weight.dtype
        if dtype in (torch.float16, torch.bfloat16):
            raise ValueError(
                f"the weights have dtype {dtype}, in which codes and days of rows are not exact; give "
                "trainer.precision=bf16-mixed in place of bf16-true"
            )

    def _encoded(self, trees: TreeLayout, segments: Segments) -> Tensor:
        """Encoded rows, without the times: of the distinct nodes, or of all nodes without `unique_rows`."""
        names = segments.names
        x = {
            t: _rows_of(trees, name)
            for t, name in enumerate(names)
            if name in self.encoders and self.encoders[name].net is not None
        }
        if self.unique_rows:
            runs = list(enumerate(trees.unique))
            parts = [x.get(t) for t, _ in runs]
        else:
            before = [sum(trees.unique[:t]) for t in range(len(names))]
            every = [segment for of_hop in trees.segments for segment in of_hop]
            runs = [(segment.node_type, segment.size) for segment in every]
            parts = [
                None if t not in x else _some(x[t], trees.row[begin : begin + size] - before[t])
                for t, begin, size, *_ in every
            ]
        group = trees.group_of(runs)
        weights = beside("encoders", lambda: self._encoder_weights(group, names))
        firsts = self._first_layers([names[t] for t, _ in runs], [size for _, size in runs], parts)
        return self._rest_of_encoders(firsts, group, weights())

    def _first_layers(self, names: Sequence[str], sizes: Sequence[int], parts: Sequence[Rows | None]) -> list[Tensor]:
        """The halves of what `RowEncoder.write_first` gives of all parts, zeros of tables without columns."""
        width = self.head.in_features
        memory = self.head.weight.new_empty(sum(sizes), 2 * width)
        places, of_tables = memory.split(list(sizes)), dict[str, list[int]]()
        for i, name in enumerate(names):
            if parts[i] is None:
                places[i].zero_()
            else:
                of_tables.setdefault(name, []).append(i)

        def of_table(name: str, at: list[int]) -> list[tuple[Tensor, Tensor]]:
            given = [gathered(of).to(memory.dtype) for of in (parts[i] for i in at) if of is not None]
            # At once, as an encoder prepares its weights each time.
            x = given[0] if len(given) == 1 else torch.cat(given)
            found: list[tuple[Tensor, Tensor]] = self.encoders[name].write_first(x, [places[i] for i in at])
            return found

        # Launches of a table take longer than the work; those of several tables lie side by side. The table with most
        # launches comes first, each where the fewest are.
        branches, load = [], [0] * _LANES
        for name, at in sorted(of_tables.items(), key=lambda of: self.encoders[of[0]].launches, reverse=True):
            lane = load.index(min(load))
            load[lane] += self.encoders[name].launches
            work = partial(of_table, name, at)
            read = [of.nodes if isinstance(of, LazyRows) else of for of in (parts[i] for i in at)]
            branches.append((at, beside(("table", lane), work, memory, read)))
        nothing = [memory.new_empty(1).expand(size, width) for size in sizes]
        both = list(zip(nothing, nothing, strict=True))
        for at, found in branches:
            for i, one in zip(at, found(), strict=True):
                both[i] = one
        return halves(memory, sizes, *zip(*both, strict=True))

    def _encoder_weights(self, group: Grouped, names: Sequence[str]) -> _EncoderWeights:
        """Those of what follows on the first layers of all encoders: one stack for all vectors, and one for all
        matrices, as launches take longer than the work.
        """
        encoders = _held(self.encoders, names)
        nets = [None if encoder is None else encoder.net for encoder in encoders]
        some = next((net for net in nets if net is not None), None)
        lone = [None if encoder is None else encoder.row for encoder in encoders]
        rows = (
            None
            if all(row is None for row in lone)
            else _stack(lone, self.head.weight.new_zeros(self.head.in_features))
        )
        if some is None:
            return _EncoderWeights({}, {}, {}, rows)
        count = len(some.backbone)
        blocks = [*[f"backbone.{number}.lin{half}." for number in range(count) for half in (1, 2)][1:], "decoder.2."]
        norms = [f"backbone.{n}.norm{half}." for n in range(count) for half in (1, 2)] if self.normed else []
        norms.append("decoder.0.")
        paths = [f"{at}bias" for at in blocks] + [f"{at}{kind}" for at in norms for kind in ("weight", "bias")]
        vectors = dict(zip(paths, _table(nets, paths, some).unbind(1), strict=True))
        paths = [f"{at}weight" for at in blocks]
        matrices = dict(zip(paths, _table(nets, paths, some).unbind(1), strict=True))
        biases = {"decoder.2.weight": vectors["decoder.2.bias"]}  # the others are added by what follows
        spread = {at: group.spread(of, biases.get(at)) for at, of in matrices.items()}
        return _EncoderWeights(vectors, matrices, spread, rows)

    def _rest_of_encoders(self, first: Sequence[Tensor], group: Grouped, weights: _EncoderWeights) -> Tensor:
        """What the residual networks make of their first layers: those of all tables together."""
        vectors, matrices, spread, rows = weights
        if not matrices:
            assert rows is not None
            return group.rows(rows)
        dropout = self.dropout if self.training else 0.0
        count = self.encoder_layers
        keys = iter(group.keys(2 * count) if dropout else [None] * (2 * count))

        def linear(x: Tensor, at: str, bias: Tensor | None = None) -> Tensor:
            return group.linear(x, matrices[f"{at}weight"], bias, spread[f"{at}weight"])

        def end(x: Tensor, norm: str, bias: Tensor | None = None, residual: Tensor | None = None) -> Tensor:
            key = next(keys)
            if self.normed:
                scale, shift = vectors[f"{norm}weight"], vectors[f"{norm}bias"]
                drop: dict[str, Any] = {"dropout": dropout, "key": key, "residual": residual}
                return group.norm(x, scale, shift, bias=bias, relu=True, **drop)
            x = x if bias is None else group.plus(x, bias)
            return activated(x, relu=True, dropout=dropout, residual=residual)

        x, shortcut = first
        for number in range(count):
            at = f"backbone.{number}."
            bias = vectors[f"{at}lin1.bias"] if number else None  # `RowEncoder.write_first` adds the first block's
            if number:
                shortcut, x = x, linear(x, f"{at}lin1.")
            x = end(x, f"{at}norm1.", bias)
            x = end(linear(x, f"{at}lin2."), f"{at}norm2.", vectors[f"{at}lin2.bias"], shortcut)
        x = group.norm(x, vectors["decoder.0.weight"], vectors["decoder.0.bias"], relu=True)
        x = linear(x, "decoder.2.", vectors["decoder.2.bias"])
        # A table without columns has zeros for weights, and its one row.
        return x if rows is None else group.plus(x, rows)

    def _since(self, trees: TreeLayout) -> Tensor | None:
        """`[nodes, hidden_channels]` encoded differences of seeds' times and the rows'; of tables with times only."""
        if not self.timed:
            return None
        if trees.seed_times is None:
            raise ValueError("the mini-batch has no times of its seeds; sample with times='both'")
        dtype, known = self.head.weight.dtype, []
        for name, count in zip(trees.names, trees.unique, strict=True):
            # The day and the second, which are exact.
            timed = name in self.timed
            known.append(_last_two(_rows_of(trees, name)).to(dtype) if timed else self.head.weight.new_zeros(count, 2))
        return encode_since(trees.seed_times, trees.tree, trees.row, torch.cat(known), self.encode_time.frequency)

    def _of_times(self, names: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Weights and biases of the times by table, zeros of tables without."""
        layers = _held(self.since, names)
        width, zeros = self.head.in_features, self.head.weight.new_zeros
        weight = _stack([None if layer is None else layer.weight for layer in layers], zeros(width, width))
        return weight, _stack([None if layer is None else layer.bias for layer in layers], zeros(width))

    def _mapped(self, trees: TreeLayout, segments: Segments) -> MappedRows | None:
        """Products that the first layer sums, where they are fewer than its sums would be; None where they are not, and
        without `unique_rows` or fixed segments.
        """
        if not self.unique_rows or trees.fixed is None:
            return None
        hops, relations = self.num_layers, [r for of_type in segments.into for r in of_type]
        sources = [segments.names.index(segments.edge_types[r][0]) for r in relations]
        made: MappedRows = trees.once(("mapped", hops, *sources), lambda: MappedRows(trees, hops, sources))
        return made if made.size <= sum(part.size * (part.slots + 1) for part in trees.parts(hops)) else None

    def _entries(
        self, trees: TreeLayout, mapped: MappedRows | None
    ) -> tuple[list[tuple[Tensor, Tensor]], Sequence[Beside[Entries] | None]]:
        """`indptr` and `indices` of each layer, see `HopLayout.with_own`; and, in a captured step, by source as well.

        With `unique_rows` the entries of the first layer name distinct rows, which were encoded once.
        """
        found = [trees.with_own(self.num_layers - i) for i in range(self.num_layers)]
        if mapped is not None:
            found[0] = mapped.entries(trees, self.num_layers)
        elif self.unique_rows:
            indptr, indices = found[0]
            found[0] = indptr, trees.row.to(indices.dtype).index_select(0, indices)
        if not are_open():
            return found, [None] * len(found)
        sizes = [trees.nodes_of(self.num_layers - i + 1) for i in range(self.num_layers)]
        if self.unique_rows:
            sizes[0] = sum(trees.unique) if mapped is None else mapped.size
        every = zip(found, sizes, strict=True)
        return found, [beside("sources", partial(entries_of, *of, size), of) for of, size in every]

    def _from_times(self, trees: TreeLayout, segments: Segments, weights: Beside[_Weights]) -> Tensor | None:
        """What the times add to the first layer, of the neighbors and of the nodes themselves; None without times.

        A sum of linear maps is the map of the sum.
        """
        since, hops = self._since(trees), self.num_layers
        if since is None:
            return None
        rows = aggregate_sum(since, *trees.with_own(hops))
        of = weights().of_times
        assert of is not None
        found = sum_of_rows(trees.parts(hops), rows.to(of.own[0].dtype), of.relations, own=of.own)
        counts = trees.rows_of(hops).diff().to(found.dtype).unsqueeze(1)
        return sum_of_rows(trees.parts(hops), counts, of.biases, base=found)

    def _ends_of(self, edge_types: Any, names: Any, relations: Sequence[int]) -> tuple[Tensor, Tensor]:
        """`[relations]` types of the sources and of the destinations. They stay, as a CUDA graph needs them."""
        key = edge_types, names, self.head.weight.device
        if key not in self._ends:
            with torch.inference_mode(False):
                self._ends[key] = tuple(
                    torch.tensor([names.index(edge_types[r][end]) for r in relations], device=key[-1]) for end in (0, 2)
                )
        return self._ends[key]

    def _weights(self, i: int, segments: Segments, mapped: MappedRows | None) -> _Weights:
        """Those of layer `i`, those of tables beside each other, in the order of the types and of their relations."""
        relations = [r for of_type in segments.into for r in of_type]
        keys = ["__".join(segments.edge_types[r]) for r in relations]
        convs = _held(self.convs[i], keys)
        width, zeros = self.head.in_features, self.head.weight.new_zeros
        square, vector = zeros(width, width), zeros(width)
        sources, into = self._ends_of(segments.edge_types, segments.names, relations)
        lefts, rights = (
            with_dense_gradient(
                _stack([None if conv is None else getattr(conv, side).weight for conv in convs], square)
            )
            for side in ("lin_l", "lin_r")
        )
        lefts = lefts.transpose(1, 2)
        bias = _stack([None if conv is None else conv.lin_l.bias for conv in convs], vector)
        known = _held(self.norms[i], segments.names)
        own = zeros(len(known), width, width).index_add(0, into, rights).transpose(1, 2)
        bias = zeros(len(known), width).index_add(0, into, bias)
        of_times, dtype, slots = None, working_dtype(square), [len(of_type) for of_type in segments.into]
        if not i and self.timed:
            # Times go through a linear map of their table and then through those of the layer: through their product.
            weight, shift = self._of_times(segments.names)
            maps = torch.cat([weight.transpose(1, 2), shift.unsqueeze(1)], 1)
            of_own, of_lefts = torch.bmm(maps, own), torch.bmm(maps.index_select(0, sources), lefts)
            bias = bias + of_own[:, -1].to(bias.dtype)
            by_relation = [by_type(of.to(dtype), slots) for of in of_lefts.split([width, 1], 1)]
            of_times = _OfTimes(of_own[:, :-1].to(dtype).unbind(), *by_relation)
        return _Weights(
            own.to(dtype).unbind(),
            by_type(lefts.to(dtype), slots),
            bias,
            _stack([None if norm is None else norm.weight for norm in known], vector),
            _stack([None if norm is None else norm.bias for norm in known], vector),
            of_times,
            None if mapped is None else mapped.weights(own.to(dtype), lefts.to(dtype)),
        )


def _rows_of(trees: TreeLayout, name: str) -> Rows:
    """Of the distinct nodes of a table. What is in the table stays there: each branch of a step gathers for itself."""
    if name not in trees.unique_x:
        raise ValueError(f"the mini-batch has no rows of {name}; a loader gathers them (features={{...}})")
    lazy = trees.unique_x.lazy if isinstance(trees.unique_x, LazyFeatures) else {}
    return lazy[name] if name in lazy else trees.unique_x[name]


def _some(rows: Rows, places: Tensor) -> Rows:
    if isinstance(rows, LazyRows):
        return rows.of(rows.nodes.index_select(0, places))
    return rows.index_select(0, places)


def _last_two(rows: Rows) -> Tensor:
    """The last two columns."""
    if isinstance(rows, LazyRows) and rows.scales is None:
        return rows.table[:, -2:].index_select(0, rows.nodes)
    return gathered(rows)[:, -2:]


def _with_times(x: Tensor, since: Tensor | None, group: Grouped, of_times: tuple[Tensor, Tensor]) -> Tensor:
    if since is None:
        return x
    return x + group.linear(since[: len(x)], *of_times)


class _EncoderWeights(NamedTuple):
    """Of encoders behind their first layers.

    Vectors and matrices are by table, `spread` as `Grouped.spread` returns them, each by its path in a net, and `rows`
    those of tables without columns, if there are any.
    """

    vectors: dict[str, Tensor]
    matrices: dict[str, Tensor]
    spread: dict[str, Spread | None]
    rows: Tensor | None


class _OfTimes(NamedTuple):
    """Of the times in the first layer, by type: what sums are multiplied by, and what each neighbor adds."""

    own: Sequence[Tensor]
    relations: Sequence[Tensor]
    biases: Sequence[Tensor]


class _Weights(NamedTuple):
    """Of a layer, by type: `[in, out]` of the row itself, `[relations * in, out]` of the sums, the bias, the norm's."""

    own: Sequence[Tensor]
    relations: Sequence[Tensor]
    bias: Tensor
    scale: Tensor
    shift: Tensor
    of_times: _OfTimes | None
    mapped: Sequence[Tensor] | None  # see `MappedRows.weights`


def _held(modules: Any, names: Iterable[str]) -> list[Any]:
    """Those of some names, None for a name that is not there."""
    return [modules[name] if name in modules else None for name in names]  # noqa: SIM401  # not all have `get`


def _stack(tensors: Sequence[Tensor | None], like: Tensor) -> Tensor:
    """Beside each other, zeros of the shape of `like` for those that are missing."""
    zeros = torch.zeros_like(like) if any(t is None for t in tensors) else like
    return torch.stack([zeros if t is None else t for t in tensors])


def _table(nets: Sequence[Any], paths: Sequence[str], like: Any) -> Tensor:
    """`[nets, paths, ...]` parameters of networks by their paths, zeros for a network that is None."""

    def of(net: Any, path: str) -> Tensor:
        # Not by `get_parameter`: under `torch.func.functional_call` there are other tensors in their place.
        found: Tensor = reduce(getattr, path.split("."), net)
        return found

    first = of(like, paths[0])
    every = [None if net is None else of(net, path) for net in nets for path in paths]
    return _stack(every, first).view(len(nets), len(paths), *first.shape)

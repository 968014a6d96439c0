"""The network of tasks on tables: rows are encoded by their columns, and messages pass along the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from loader.machine.arguments import as_flag, as_number, as_size
from loader.machine.optional import import_optional
from loader.samples.segments import EdgeType
from loader.samples.trees import TreeMiniBatch

_DAY = 86_400


class RowEncoder(nn.Module):
    """Encodes the rows of a table by a residual network of pytorch-frame, as RelBench's baseline does.

    Numbers go through a linear map per column, categories through an embedding, times through encodings of their parts.
    What a row is known at is left out: see `RelationalSAGE`.

    Args:
        columns: of the table, as `loader.datasets.relational.RowColumn.layout` gives them. A table without any has one
            learned row.
        hidden: width of an encoded row.
        num_layers: residual blocks.
        dropout: probability in [0, 1) that an element is dropped inside a block in training.
        norm: "layer" or "none".

    Raises:
        ImportError: pytorch-frame is missing.
    """

    def __init__(
        self, columns: Sequence[Mapping[str, Any]], hidden: int, num_layers: int, dropout: float, norm: str
    ) -> None:
        super().__init__()
        frame = import_optional("torch_frame", "a model of tables", "relational")
        encoders = import_optional("torch_frame.nn", "a model of tables", "relational")
        stats = import_optional("torch_frame.data.stats", "a model of tables", "relational").StatType
        self.hidden = hidden
        self._frame = frame.TensorFrame
        places: dict[str, list[int]] = {"number": [], "category": [], "time": []}
        names: dict[str, list[str]] = {kind: [] for kind in places}
        of: dict[str, dict[Any, Any]] = {}
        begin = 0
        for column in columns:
            kind, width = column["kind"], column["width"]
            if kind == "number":
                for at in range(width):  # the number, and whether it is missing
                    name = column["name"] if at == 0 else f"{column['name']} is missing"
                    names[kind].append(name)
                    of[name] = {stats.MEAN: 0.0, stats.STD: 1.0}  # it is standardised
            elif kind in names:
                names[kind].append(column["name"])
                codes = list(range(column["categories"]))
                of[column["name"]] = {stats.COUNT: (codes, codes), stats.YEAR_RANGE: [column["first_year"], 0]}
            if kind in places:
                places[kind] += range(begin, begin + width)
            begin += width
        kinds = {"number": frame.numerical, "category": frame.categorical, "time": frame.timestamp}
        self.places = {kind: at for kind, at in places.items() if at}
        self.names = {kinds[kind]: names[kind] for kind in self.places}
        self._kinds = {kind: kinds[kind] for kind in self.places}
        made = {
            "number": encoders.LinearEncoder,
            "category": encoders.EmbeddingEncoder,
            # Missing times were filled when the rows were made.
            "time": lambda: encoders.TimestampEncoder(na_strategy=None),
        }
        self.net = self.row = None
        if self.places:
            self.net = encoders.ResNet(
                hidden,
                hidden,
                num_layers,
                col_stats=of,
                col_names_dict=self.names,
                stype_encoder_dict={kinds[kind]: made[kind]() for kind in self.places},
                normalization={"layer": "layer_norm", "none": None}[norm],
                dropout_prob=dropout,
            )
        else:
            self.row = nn.Parameter(torch.empty(hidden).normal_(std=0.01))

    def forward(self, x: Tensor | None, count: int) -> Tensor:
        """Encoded rows `[count, hidden]` of rows of numbers `[count, places]`, None of a table without any."""
        if self.net is None:
            assert self.row is not None
            return self.row.expand(count, -1)
        assert x is not None
        parts: dict[Any, Tensor] = {}
        for kind, at in self.places.items():
            part = x[:, at[0] : at[-1] + 1] if at == list(range(at[0], at[-1] + 1)) else x[:, at]
            if kind != "number":
                part = part.long()
            parts[self._kinds[kind]] = part.view(count, -1, 7) if kind == "time" else part
        out: Tensor = self.net(self._frame(parts, self.names))
        return out


class RelationalSAGE(nn.Module):
    """GraphSAGE on rows of tables, with weights of its own per relation: RelBench's baseline (Robinson et al. 2024,
    https://arxiv.org/abs/2407.20060).

    A row is encoded by its columns, see `RowEncoder`; to a row with a time the encoded difference of the seed's time
    and its own is added. Each layer adds up the sums of a row's neighbors over all relations, with a layer norm per
    table and a ReLU. A linear map gives the output of the seeds.

    Args:
        columns: table -> its columns, see `RowEncoder`.
        edge_types: the relations.
        target: the table of the seeds.
        hidden, out_dim: widths of rows and of the output.
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
        hidden: int = 128,
        num_layers: int = 2,
        encoder_layers: int = 4,
        encoder_norm: str = "layer",
        dropout: float = 0.2,
        unique_rows: bool = True,
    ) -> None:
        super().__init__()
        self.num_layers, self.target = as_size("num_layers", num_layers), target
        self.unique_rows = as_flag("unique_rows", unique_rows)
        if as_size("hidden", hidden) % 2:
            raise ValueError(f"hidden is {hidden}; times are encoded by pairs, so it must be even")
        if not 0 <= as_number("dropout", dropout) < 1:
            raise ValueError(f"dropout is {dropout}; it must be in [0, 1)")
        if encoder_norm not in ("layer", "none"):
            way = ": copies of a row would count once or often" if encoder_norm == "batch" else ""
            raise ValueError(f"encoder_norm is {encoder_norm!r}; it must be layer or none{way}")
        as_size("encoder_layers", encoder_layers)
        gnn = import_optional("torch_geometric.nn", "a model of tables", "relational")
        # Unlike torch's, it takes tables that are called as one of its methods, such as items or type.
        table_dict = import_optional("torch_geometric.nn.module_dict", "a model of tables", "relational").ModuleDict
        self._trim = import_optional("torch_geometric.utils", "a model of tables", "relational").trim_to_layer
        self.edge_types = [(str(s), str(name), str(d)) for s, name, d in edge_types]
        if all(key[2] != target for key in self.edge_types):
            raise ValueError(f"no relation leads to rows of {target}, so there is nothing to learn from; add its keys")
        written = [{target}]  # tables whose rows each layer has to write, the first one last
        for _ in range(num_layers):
            written.append(written[-1] | {s for s, _, d in self.edge_types if d in written[-1]})
        *layers, read = written
        self.edge_types = [key for key in self.edge_types if key[2] in layers[-1]]  # no layer reads the others
        shape = (hidden, encoder_layers, float(dropout), encoder_norm)
        self.encoders = table_dict({name: RowEncoder(of, *shape) for name, of in columns.items() if name in read})
        self.timed = [name for name, of in columns.items() if name in read and of and of[-1]["kind"] == "known"]
        self.since = table_dict({name: nn.Linear(hidden, hidden) for name in self.timed})
        self.encode_time = gnn.PositionalEncoding(hidden)
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for names in reversed(layers):
            into = [key for key in self.edge_types if key[2] in names]
            sums = {"__".join(key): gnn.SAGEConv((hidden, hidden), hidden, aggr="sum") for key in into}
            self.convs.append(nn.ModuleDict(sums))
            self.norms.append(table_dict({key[2]: nn.LayerNorm(hidden) for key in into}))
        self.head = nn.Linear(hidden, as_size("out_dim", out_dim))

    def forward(self, batch: TreeMiniBatch) -> Tensor:
        """Outputs of the seeds, `[batch_size, out_dim]`.

        Raises:
            ValueError: the mini-batch has another number of hops than the model has layers, or no times.
        """
        if len(batch.blocks) != self.num_layers:
            raise ValueError(
                f"the mini-batch has {len(batch.blocks)} hops, the model {self.num_layers} layers; "
                "give the sampler as many fanouts as the model has layers"
            )
        x = self.rows(batch)
        sampled: Any = batch.replace(x=None).to_pyg()
        edges = {edge_type: sampled[edge_type].edge_index for edge_type in self.edge_types}
        num_nodes = {name: sampled[name].num_sampled_nodes for name in x}
        num_edges = {edge_type: sampled[edge_type].num_sampled_edges for edge_type in self.edge_types}
        for i, (convs, norms) in enumerate(zip(self.convs, self.norms, strict=True)):
            assert isinstance(convs, nn.ModuleDict)
            assert isinstance(norms, nn.ModuleDict)
            if i:
                x, edges, _ = self._trim(i, num_nodes, num_edges, x, edges)
            sums: dict[str, Tensor] = {}
            for key in self.edge_types:
                if (name := "__".join(key)) in convs:
                    out = convs[name]((x[key[0]], x[key[2]]), edges[key])
                    sums[key[2]] = sums[key[2]] + out if key[2] in sums else out
            x = {name: norms[name](rows).relu() for name, rows in sums.items()}
        found: Tensor = self.head(x[self.target][: batch.batch_size])
        return found

    def rows(self, batch: TreeMiniBatch) -> dict[str, Tensor]:
        """Table -> encoded rows `[n, hidden]` of the nodes of the mini-batch, with the time since each.

        Raises:
            ValueError: the seeds have no times, or there are no rows of a table.
        """
        if self.timed and batch.seed_times is None:
            raise ValueError("the mini-batch has no times of its seeds; sample with times='both'")
        found: dict[str, Tensor] = {}
        for name, encoder in self.encoders.items():
            places, count = batch.row[name].long(), len(batch.n_id[name])
            once = batch.unique_x.get(name)
            if encoder.net is not None and once is None:
                raise ValueError(f"the mini-batch has no rows of {name}; a loader gathers them (features={{...}})")
            dtype = next(self.parameters()).dtype
            if dtype in (torch.float16, torch.bfloat16):
                raise ValueError(
                    f"the weights have dtype {dtype}, in which codes and days of rows are not exact; give "
                    "trainer.precision=bf16-mixed in place of bf16-true"
                )
            once = None if once is None else once.to(dtype)
            if self.unique_rows:
                encoded = encoder(once, len(batch.unique[name])).index_select(0, places)
            else:
                encoded = encoder(None if once is None else once.index_select(0, places), count)
            if name in self.timed:
                assert once is not None
                assert batch.seed_times is not None
                seeds = batch.seed_times.index_select(0, batch.tree_of(name).long())
                known = once[:, -2:].index_select(0, places)  # the day and the second, which are exact
                days = seeds.div(_DAY, rounding_mode="floor").to(dtype) - known[:, 0]
                days = days + (seeds.remainder(_DAY).to(dtype) - known[:, 1]) / _DAY
                encoded = encoded + self.since[name](self.encode_time(days))
            found[name] = encoded
        return found

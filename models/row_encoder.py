"""Rows of tables as vectors: the encoder of pytorch-frame that RelBench's baseline has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from loader.machine.optional import import_optional
from loader.ops.first_layers import FirstLayer, write_to
from loader.ops.weight_gradients import with_dense_gradient


class RowEncoder(nn.Module):
    """Encodes the rows of a table by a residual network of pytorch-frame, as RelBench's baseline does.

    Numbers go through a linear map per column, categories through an embedding, times through encodings of their parts.
    What a row is known at is left out: see `RelationalSAGE`.

    Args:
        columns: of the table, as `loader.datasets.relational.RowColumn.layout` gives them. A table without any has one
            learned row.
        hidden_channels: width of an encoded row.
        num_layers: residual blocks.
        dropout: probability in [0, 1) that an element is dropped inside a block in training.
        norm: "layer" or "none".

    Raises:
        ImportError: pytorch-frame is missing.
    """

    _firsts: Tensor

    def __init__(
        self, columns: Sequence[Mapping[str, Any]], hidden_channels: int, num_layers: int, dropout: float, norm: str
    ) -> None:
        super().__init__()
        frame = import_optional("torch_frame", "a model of tables", "relational")
        encoders = import_optional("torch_frame.nn", "a model of tables", "relational")
        stats = import_optional("torch_frame.data.stats", "a model of tables", "relational").StatType
        self.hidden_channels = hidden_channels
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
        # About how many launches the first layer takes on a GPU; each column of categories has a product of its own.
        launches = {"number": 6, "time": 14, "category": 9 + len(names["category"])}
        self.launches = sum(launches[kind] for kind in self.places)
        # Of `_table_of_codes`: a column has a row for each category, after one for codes that are missing.
        self._categories = [column["categories"] for column in columns if column["kind"] == "category"]
        firsts = [sum(self._categories[:c]) + c + 1 for c in range(len(self._categories))]
        self.register_buffer("_firsts", torch.tensor(firsts), persistent=False)
        for kind, found in self.places.items():  # where a slice does not do
            self.register_buffer(f"_at_{kind}", torch.tensor(found), persistent=False)
        made = {
            "number": encoders.LinearEncoder,
            "category": encoders.EmbeddingEncoder,
            # Missing times were filled when the rows were made.
            "time": lambda: encoders.TimestampEncoder(na_strategy=None),
        }
        self.net = self.row = None
        if self.places:
            self.net = encoders.ResNet(
                hidden_channels,
                hidden_channels,
                num_layers,
                col_stats=of,
                col_names_dict=self.names,
                stype_encoder_dict={kinds[kind]: made[kind]() for kind in self.places},
                normalization={"layer": "layer_norm", "none": None}[norm],
                dropout_prob=dropout,
            )
            for module in self.net.modules():
                if isinstance(module, encoders.TimestampEncoder):  # what it is given was checked when it was made
                    module.positional_encoding = _Angles(module.positional_encoding, 1, 1)
                    module.cyclic_encoding = _Angles(module.cyclic_encoding, math.pi, 2 * math.pi)
        else:
            self.row = nn.Parameter(torch.empty(hidden_channels).normal_(std=0.01))

    def forward(self, x: Tensor | None, count: int) -> Tensor:
        """Encoded rows `[count, hidden_channels]` of rows of numbers `[count, places]`, None of a table without any."""
        if self.net is None:
            assert self.row is not None
            return self.row.expand(count, -1)
        assert x is not None
        out: Tensor = self.net(self._frame_of(x))
        return out

    def write_first(self, x: Tensor, at: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Writes what the first product of the first block and its shortcut give, see `loader.ops.first_layers`.

        Encoders of columns are linear maps of what they look at, so they are multiplied by that product once, and rows
        of all columns times `hidden_channels` are never made.
        """
        assert self.net is not None
        block, width = self.net.backbone[0], self.hidden_channels
        if not len(x):  # its weights need no launches
            parts = [of for of in (self.net.encoder, block.lin1, block.shortcut) if of is not None]
            nothing = _NoRows.apply(width, *(one for part in parts for one in part.parameters()))
            return [nothing] * len(at)
        weight, bias = block.lin1.weight, block.lin1.bias
        if block.shortcut is None:  # of a single column
            weight = torch.cat([weight, torch.eye(width, dtype=weight.dtype, device=weight.device)])
            bias = torch.cat([bias, bias.new_zeros(width)])
        else:
            weight = torch.cat([weight, block.shortcut.weight])
            bias = torch.cat([bias, block.shortcut.bias])
        # [columns, hidden_channels, 2 * hidden_channels], in the order of the kinds
        weight, begin = with_dense_gradient(weight), 0
        every = weight.view(2 * width, -1, width).permute(1, 2, 0)
        looked_at, maps, categories = [], [], None
        for kind, of_kind in self._kinds.items():
            encoder, values = self.net.encoder.encoder_dict[of_kind.value], self._values_of(kind, x)
            end = begin + len(self.names[of_kind])
            of_columns, of_biases = every[begin:end], weight[:, begin * width : end * width]
            begin = end
            if kind == "category":
                categories = values + self._firsts, encoder.emb.weight, of_columns
                continue
            # Missing numbers and times were filled when the rows were made.
            if kind == "number":
                looked_at.append((values - encoder.mean) / encoder.std)
                maps.append((encoder.weight.unsqueeze(1) @ of_columns).flatten(0, 1))
            else:
                looked_at.append(_angles_of(encoder, values.float()))  # as torch_frame does
                maps.append((encoder.weight.flatten(1, 2) @ of_columns).flatten(0, 1))
            bias.addmv_(of_biases, encoder.bias.flatten())
        numbers, matrix = (_together(of, dim) for of, dim in ((looked_at, 1), (maps, 0)))
        codes = table = None
        if categories is not None:
            codes, embeddings, of_codes = categories
            table = self._table_of_codes(embeddings, of_codes, bias)
        return write_to(FirstLayer(bias, numbers, matrix, codes, table), at)

    def _table_of_codes(self, weight: Tensor, of_columns: Tensor, bias: Tensor) -> Tensor:
        """`[codes, out]`: the embedding of each code of each column times the map of the column; of the first column
        with the bias.

        A code that is missing, -1, has the embedding that gets no gradient, as in torch_frame.
        """
        none, sizes = weight[:1].detach(), [n + 1 for n in self._categories]
        rows = torch.cat([of for one in weight[1:].split(self._categories) for of in (none, one)]).split(sizes)
        first = torch.addmm(bias.detach(), rows[0], of_columns[0])
        return torch.cat([first, *(of @ to for of, to in zip(rows[1:], of_columns[1:], strict=True))])

    def _values_of(self, kind: str, x: Tensor) -> Tensor:
        """Columns of a kind: codes as int64, and of times the seven parts, `[count, columns, 7]`."""
        at = self.places[kind]
        together = at == list(range(at[0], at[-1] + 1))
        part = x[:, at[0] : at[-1] + 1] if together else x.index_select(1, getattr(self, f"_at_{kind}"))
        if kind == "category":
            return part.long()
        return part.reshape(len(x), len(at) // 7, 7) if kind == "time" else part

    def _frame_of(self, x: Tensor) -> Any:
        parts = {self._kinds[kind]: self._values_of(kind, x) for kind in self.places}
        times = self._kinds.get("time")
        if times is not None:
            parts[times] = parts[times].long()
        return self._frame(parts, self.names)


class _NoRows(torch.autograd.Function):
    """`[0, width]` twice, of some weights, whose gradients are zeros."""

    @staticmethod
    def forward(ctx: Any, width: int, *weights: Tensor) -> tuple[Tensor, Tensor]:
        ctx.shapes = [of.shape for of in weights]
        return weights[0].new_empty(0, width), weights[0].new_empty(0, width)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, left: Tensor, right: Tensor) -> tuple[Tensor | None, ...]:
        sizes = [shape.numel() for shape in ctx.shapes]
        each = left.new_zeros(sum(sizes)).split(sizes)
        return None, *(of.view(shape) for of, shape in zip(each, ctx.shapes, strict=True))


class _Angles(nn.Module):
    """torch_frame's encoding of years (`PositionalEncoding`) or of parts of a time (`CyclicEncoding`).

    Unlike torch_frame's it does not wait for the GPU to say that all values are in their range.

    Args:
        like: torch_frame's.
        sine, cosine: what it multiplies the angles of its sines and cosines by.
    """

    mult_term: Tensor

    def __init__(self, like: Any, sine: float, cosine: float) -> None:
        super().__init__()
        self.register_buffer("mult_term", like.mult_term)
        self._sine, self._cosine = sine, cosine

    def forward(self, x: Tensor) -> Tensor:
        angle = x.unsqueeze(-1) * self.mult_term
        return torch.cat([(angle * self._sine).sin(), (angle * self._cosine).cos()], -1)

    def write(self, x: Tensor, to: Tensor) -> None:
        """Writes what `forward` returns, without autograd."""
        angle = x.unsqueeze(-1) * self.mult_term
        half = angle.shape[-1]
        torch.sin(angle if self._sine == 1 else angle * self._sine, out=to[..., :half])
        torch.cos(angle if self._cosine == 1 else angle * self._cosine, out=to[..., half:])


def _together(parts: Sequence[Tensor], dim: int) -> Tensor | None:
    """`torch.cat`, without a copy of a single part; None of none."""
    return (parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)) if parts else None


def _angles_of(encoder: Any, values: Tensor) -> Tensor:
    """`[n, columns * 7 * out]` what torch_frame's encoder of times looks at, of the seven parts of each."""
    values, dtype = values.detach(), torch.result_type(values, encoder.positional_encoding.mult_term)
    found = values.new_empty(*values.shape, encoder.out_size, dtype=dtype)
    encoder.positional_encoding.write(values[..., :1] - encoder.min_year.view(1, -1, 1), found[:, :, :1])
    encoder.cyclic_encoding.write(values[..., 1:] / encoder.max_values, found[:, :, 1:])
    return found.flatten(1)

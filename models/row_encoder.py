"""Rows of tables as vectors: the encoder of pytorch-frame that RelBench's baseline has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from loader.machine.optional import import_optional


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

    def first(self, x: Tensor) -> Tensor:
        """`[count, 2 * hidden_channels]`: what the first product of the first block and its shortcut give."""
        assert self.net is not None
        columns, _ = self.net.encoder(self._frame_of(x))
        flat, block = columns.flatten(1), self.net.backbone[0]
        if block.shortcut is None:
            return torch.cat([block.lin1(flat), flat], 1)
        weight = torch.cat([block.lin1.weight, block.shortcut.weight])
        return nn.functional.linear(flat, weight, torch.cat([block.lin1.bias, block.shortcut.bias]))

    def _frame_of(self, x: Tensor) -> Any:
        parts: dict[Any, Tensor] = {}
        for kind, at in self.places.items():
            together = at == list(range(at[0], at[-1] + 1))
            part = x[:, at[0] : at[-1] + 1] if together else x.index_select(1, getattr(self, f"_at_{kind}"))
            if kind != "number":
                part = part.long()
            parts[self._kinds[kind]] = part.view(len(x), len(at) // 7, 7) if kind == "time" else part
        return self._frame(parts, self.names)


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

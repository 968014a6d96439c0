"""Predictions as a Parquet file, written in parts and complete or not there at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from loader.datasets import HeteroDataset, NodeDataset
from loader.datasets.node_dataset import SPLITS
from loader.graph import Graph
from loader.machine.optional import import_optional
from loader.machine.whole_files import replaced


class PredictionFile:
    """Writes a Parquet file part by part; the file gets its name once it is complete.

    Use it as a context manager. If the block raises, or the process is killed, there is no file of that name, and an
    earlier one is unchanged.

    Args:
        path: of the file; its folder is made.

    Raises:
        ImportError: pyarrow is missing.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._arrow = import_optional("pyarrow", f"the file {self.path.name}", "tables")
        self._parquet = import_optional("pyarrow.parquet", f"the file {self.path.name}", "tables")
        self._open = ExitStack()
        self._file: Any = None
        self._writer: Any = None
        self.rows = 0

    def __enter__(self) -> PredictionFile:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._open.enter_context(replaced(self.path))
        return self

    def write(self, columns: Mapping[str, Any]) -> None:
        """Adds rows.

        Args:
            columns: name -> a tensor `[rows]`, or a list of Python objects; each call has the same names and types.
        """
        arrays = {
            name: column.cpu().numpy() if isinstance(column, Tensor) else column for name, column in columns.items()
        }
        table = self._arrow.table(arrays)
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._file, table.schema)
            self._open.callback(self._writer.close)  # before the file gets its name, which it does not if this fails
        self._writer.write_table(table)
        self.rows += table.num_rows

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)


def names_of_classes(data: NodeDataset | HeteroDataset) -> Sequence[Any]:
    """What the user calls the classes: the values of a column of labels, else numbers."""
    return range(data.num_classes) if data.tables is None else data.tables.classes


def class_columns(logits: Tensor, classes: Sequence[Any], multilabel: bool) -> dict[str, Any]:
    """The columns `prediction` and `p_<class>` of rows of logits.

    Args:
        logits: `[rows, num_classes]`.
        classes: name of each class: text or integers.
        multilabel: a row may have several labels. Then `p_<class>` are independent probabilities, and `prediction` is
            the list of the classes whose probability is above one half, as scores count them.
    """
    logits = logits.float()
    shares = logits.sigmoid() if multilabel else logits.softmax(-1)
    prediction: Any
    if multilabel:
        lists = [[name for name, yes in zip(classes, row, strict=True) if yes] for row in (logits > 0).tolist()]
        arrow = import_optional("pyarrow", "predictions", "tables")
        texts = any(isinstance(name, str) for name in classes)
        # With its type: that of a part in which all lists are empty would be none.
        prediction = arrow.array(lists, arrow.list_(arrow.string() if texts else arrow.int64()))
    else:
        prediction = [classes[i] for i in logits.argmax(-1).tolist()]
    return {"prediction": prediction} | {f"p_{name}": shares[:, i] for i, name in enumerate(classes)}


def split_places(data: NodeDataset | HeteroDataset) -> Tensor:
    """What `split_column` takes, for each node that has a class to predict: `[nodes]` int8."""
    places = torch.full((data.labels.shape[0],), len(SPLITS), dtype=torch.int8)
    if not data.multilabel:
        places[data.labels < 0] = -1
    for place, split in enumerate(SPLITS):
        places[data.splits[split]] = place
    return places


def split_column(places: Tensor) -> dict[str, Any]:
    """The column `split` of some nodes: train, val or test; none, if a node has a label and is in no split; null if it
    has no label.
    """
    arrow = import_optional("pyarrow", "predictions", "tables")
    names = [*SPLITS, "none", None]
    return {"split": arrow.array([names[place] for place in places.tolist()], arrow.string())}


def embedding_columns(rows: Tensor) -> dict[str, Tensor]:
    """The columns `emb_0`, `emb_1`, … of embeddings `[rows, width]`."""
    return {f"emb_{i}": rows[:, i].float() for i in range(rows.shape[1])}


def best_new_targets(
    embedded: Tensor, onward: Graph, first: int, last: int, count: int, of_targets: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The targets with the highest scores of each source, without those that it has a link to.

    The score of two nodes is the inner product of their embeddings.

    Args:
        embedded: `[num_nodes, width]`.
        onward: the links, with the lists of a node's targets (`Graph.reverse`), on the CPU.
        first, last: the sources, a range of nodes.
        count: of targets per source, at least 1. A source with fewer targets that are new has fewer.
        of_targets: `[num_targets, width]`, of targets that have a type of their own; by default they are nodes as the
            sources are, and no node has a link to itself.

    Returns:
        Sources, targets (int64) and scores (float32), `[rows]` each, by source, then by descending score.
    """
    among = embedded if of_targets is None else of_targets
    with torch.autocast(embedded.device.type, enabled=False):  # whatever made the embeddings, scores are float32
        scores = embedded[first:last].float() @ among.float().t()  # [sources, targets]
    ends = onward.indptr[first : last + 1].long()
    source = torch.arange(last - first).repeat_interleave(ends.diff())
    target = onward.indices[ends[0] : ends[-1]].long()
    scores[source.to(scores.device), target.to(scores.device)] = -torch.inf
    if of_targets is None:
        scores[torch.arange(last - first), torch.arange(first, last)] = -torch.inf  # no link to itself
    best, targets = scores.topk(min(count, scores.shape[1]), dim=1)
    sources = torch.arange(first, last, device=scores.device)[:, None].expand_as(targets)
    new = best > -torch.inf
    return sources[new], targets[new], best[new]

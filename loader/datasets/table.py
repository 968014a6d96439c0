"""The user's own tables: an edge list, and if there is one a table of nodes, as CSV, TSV or Parquet files."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loader.datasets.cache import CachedArrays, digest
from loader.datasets.cache_writer import CacheWriter
from loader.datasets.column_values import (
    as_integers,
    as_numbers,
    as_text,
    as_weights,
    is_text,
    pyarrow,
    refuse_spaces,
    whole_bits,
)
from loader.datasets.digests import digest_of
from loader.datasets.edge_list_base import EdgeList, EdgeListDataset
from loader.datasets.edge_sorter import cut
from loader.datasets.errors import DatasetError
from loader.datasets.integer_columns import plain_integers
from loader.datasets.locations import fingerprint, given_file, require_file
from loader.datasets.node_dataset import SPLITS, NodeDataset
from loader.datasets.node_ids import IdNumbers, read_ids, write_ids
from loader.datasets.non_numeric_cells import odd_cells, way_to_numbers
from loader.datasets.splits import as_split_seed, check_fractions, stratified_split
from loader.datasets.table_columns import Column, TableFile
from loader.datasets.table_record import TableRecord
from loader.datasets.trained_tables import TrainedTables, digest_of_ends, trained_labels
from loader.machine.arguments import shown
from loader.machine.spelling import nearest

log = logging.getLogger(__name__)

_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val", "test": "test"}
_FEW_CLASSES = 1000  # up to this many, however few nodes each has


class TableDataset(EdgeListDataset):
    """A graph in one or two tables: CSV (with commas), TSV or Parquet files. pyarrow reads them.

    The edges have a row each, the ids of a source and of a target. An id is a text or a whole number, and may be any:
    ids are compared as texts. With a table of nodes, a node's number is its row there. Else nodes are numbered in the
    order in which their ids occur in the column of sources, then in that of targets. `NodeDataset.tables` keeps the
    ids, the names of classes, and what was done to each column.

    Edges are read in pieces; of the nodes whole columns are in memory. See `loader.datasets.table_columns.Column` for
    how columns become features. Means, deviations and frequencies are those of all nodes, whatever their split is: a
    model reads features of neighbors of every split anyway, and no label takes part.

    Each of these cases has one rule:

    =============================== =============================================================================
    case                            rule
    =============================== =============================================================================
    a missing source, target or id  an error (an id is missing if its cell is empty; "NA" is an id)
    spaces around an id or a label  an error
    an edge of an unknown id        an error, if there is a table of nodes
    a node twice in its table       an error
    a node without an edge          is kept; the report counts such nodes
    repeated edges, self loops      as `parallel_edges` and `self_loops` say; the report counts them
    a weight that is missing        an error, as is a negative or infinite one
    a time that is missing          an error
    times                           whole numbers, or dates, which become whole seconds since 1970 (UTC)
    a feature that is missing       a number or time is filled with the mean, and a further feature of zeros and
                                    ones flags it; cells are missing if they are empty, or NA, N/A, NaN, null or None
    a column of equal values        gives no feature; the report says so
    texts as features               a feature for each of the 100 most frequent values, and one for the others
    no label                        the node is one to predict, and in no split
    labels                          texts, whole numbers or truth values; classes are in their order
    a column of splits              train, val (valid, validation, dev) or test; empty: in no split
    other columns of edges          are not read; the report names them
    =============================== =============================================================================

    Args:
        edges: path of the table of edges. A relative path is also looked for in `data_dir`.
        nodes: path of the table of nodes; None: nodes are the ends of edges, without features and labels.
        name: of the dataset; None takes the name of the file of edges.
        source, target: columns of edges; by default the first and the second one.
        weight, time: columns of edges, for `Graph.edge_weights` and `Graph.edge_times`.
        id: column of nodes; by default the first one.
        label: column of nodes with the classes to learn.
        split: column of nodes, or fractions of train, val and test to draw from the labelled nodes, with equal
            fractions in every class.
        split_seed: seed of that draw.
        features: columns of nodes; None takes all that are not `id`, `label` or `split`.
        options: see `EdgeListDataset`. By default, the reverse of every edge is added.

    Raises:
        TypeError, ValueError: an option is not as said above.
    """

    def __init__(
        self,
        edges: str | Path,
        *,
        nodes: str | Path | None = None,
        name: str | None = None,
        source: str | None = None,
        target: str | None = None,
        weight: str | None = None,
        time: str | None = None,
        id: str | None = None,
        label: str | None = None,
        split: str | Sequence[float] = (0.6, 0.2, 0.2),
        split_seed: int = 0,
        features: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        for option, path in (("edges", edges), ("nodes", nodes)):
            if not isinstance(path, (str, Path)) and (path is not None or option == "edges"):
                raise TypeError(f"{option} is {shown(path)}; it must be the path of a .csv, .tsv or .parquet file")
        if options.get("largest_component"):
            raise ValueError("largest_component is true, which tables have not; leave it out, and rows out of the file")
        super().__init__(name if name is not None else Path(edges).absolute().name.partition(".")[0], **options)
        named = {"source": source, "target": target, "weight": weight, "time": time, "id": id, "label": label}
        for option, value in named.items():
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{option} is {shown(value)}; it must be the name of a column")
        drawn = not isinstance(split, str)
        listed = isinstance(features, Sequence) and not isinstance(features, str)
        if features is not None and not (listed and all(isinstance(one, str) for one in features)):
            raise TypeError(f"features is {shown(features)}; it must be a list of names of columns")
        of_nodes = {"id": id, "label": label, "features": features, "split": None if drawn else split}
        if nodes is None and (given := [option for option, value in of_nodes.items() if value is not None]):
            raise ValueError(
                f"{given[0]} is {shown(of_nodes[given[0]])}, a column of nodes, but there is no table of nodes; give "
                "its path (dataset.nodes)"
            )
        if not drawn and label is None:
            raise ValueError(f"split is '{split}', but there is no label; give its column (dataset.label)")
        self.paths = [path for path in (edges, nodes) if path is not None]
        self.files = [given_file(path, self.data_dir) for path in self.paths]
        self.given = {option: value for option, value in named.items() if value is not None}
        self.features = None if features is None else list(features)
        self.split: str | tuple[float, float, float] = check_fractions(split) if not isinstance(split, str) else split
        way = "give the column of labels (dataset.label)" if drawn else "give fractions as split"
        self.split_seed = as_split_seed(split_seed, drawn=drawn and label is not None, way=way)
        self._trained: TrainedTables | None = None

    def extend(self, trained: Mapping[str, Any]) -> bool:
        """Takes the tables as those of a training, to which rows of nodes and edges may have been appended since.

        Features are then made with the means, deviations and categories of that training, and classes have its
        numbers. Drawn splits are its splits, and an appended node is in none of them. The first rows of both tables
        must be those of the training, in their order; `load` refuses others. Features of a known node may change.

        Args:
            trained: `TableRecord.rows.to_json()` of that training, which a checkpoint has: `checkpoint[name]["tables"]`
                with the name of the datamodule's class.

        Returns:
            Whether it is so. False, and nothing changes: the files are still those of the training, or its model can
            read no further nodes, since the tables gave it no features, or `transform` made some of the whole graph.
        """
        rows = TrainedTables.from_json(trained)
        readable = len(self.files) > 1 and any(column.width for column in rows.columns) and not self.transforms
        if not readable or rows.source == self.source():
            return False
        self._trained = rows
        return True

    def source(self) -> list[Any]:
        for option, given, path in zip(("edges", "nodes"), self.paths, self.files, strict=False):
            require_file(given, path, f"{self.name}: ", f"dataset.{option}", "CSV, TSV or Parquet file")
        return [[str(path.resolve()), *fingerprint(path.parent, [path.name])[0]] for path in self.files]

    def options(self) -> dict[str, Any]:
        split = self.split if isinstance(self.split, str) else None
        options = {
            **super().options(),
            **self.given,
            "features": self.features,
            "split": split,
            "rows": "as written, None is missing",
        }
        return options if self._trained is None else {**options, "trained": digest(self._trained.to_json())}

    def read(self, writer: CacheWriter) -> EdgeList:
        edges = TableFile(self.files[0])
        columns: list[str] = []
        for option, place in (("source", 0), ("target", 1), ("weight", None), ("time", None)):
            if place is not None or option in self.given:
                columns.append(edges.column(option, self.given.get(option), place or 0))
        if len(set(columns)) < len(columns):
            raise DatasetError(
                f"{edges.path}: source, target, weight and time are the columns {', '.join(columns)}; each needs one "
                "of its own (dataset.source, dataset.target, dataset.weight, dataset.time)"
            )
        _check_header(edges, columns[:2])
        report = [
            f"{edges.path.name}: {columns[0]} is the source, {columns[1]} the target (dataset.source, dataset.target)"
        ]
        rest = [name for name in edges.names if name not in columns]
        if rest:
            report.append(f"{edges.path.name}: not read {', '.join(rest)} (dataset.weight, dataset.time)")
        known, found = None, None
        if len(self.files) > 1:
            known, found = self._read_nodes(TableFile(self.files[1]), writer, report)
        (src, dst), ids, values = self._read_edges(edges, columns, known)
        _check_names(edges, columns[:2], ids)
        if self._trained is not None:
            self._trained.check_ends(src, dst, edges.path)
        if found is None:
            found = EdgeList(src, dst, np.empty((len(ids), 0), dtype=np.float32), None)
        connected = np.zeros(len(ids), dtype=bool)
        proper = src != dst if self.self_loops == "remove" else slice(None)
        connected[src[proper]] = connected[dst[proper]] = True
        alone = len(ids) - int(np.count_nonzero(connected))
        report.insert(0, f"{len(ids):,} nodes" + (f", {alone:,} of them without an edge" if alone else ""))
        writer.properties.update(
            {"classes": [], "columns": [], **writer.properties},
            report=report,
            digest=write_ids(writer, ids),
            source=self.source(),
            num_rows=src.size,
            ends=digest_of_ends(src, dst),
        )
        pyarrow().default_memory_pool().release_unused()
        return replace(found, src=src, dst=dst, edge_weights=values.get("weight"), edge_times=values.get("time"))

    def _read_edges(
        self, file: TableFile, columns: Sequence[str], known: Any
    ) -> tuple[list[NDArray[np.int32]], Any, dict[str, NDArray[np.generic]]]:
        """The numbers of sources and targets, the ids by number, and weights and times if there are."""
        arrow = pyarrow()
        numbers = IdNumbers(columns[:2], file.path)
        kinds: dict[str, Any] = dict.fromkeys(columns[:2], arrow.string())
        others: dict[str, str] = {name: self.given[name] for name in ("weight", "time") if name in self.given}
        kinds.update((name, arrow.float64() if option == "weight" else None) for option, name in others.items())
        parts: dict[str, list[Any]] = {option: [] for option in others}
        plain = None if others else plain_integers(file, columns[:2])
        if plain is not None:
            for pair in plain:
                numbers.take(*pair)
        else:
            for piece in file.pieces(kinds):
                numbers.take(*(piece.column(name) for name in columns[:2]))
                for option, name in others.items():
                    parts[option].append(piece.column(name))
        ends, ids = numbers.numbers(known)
        if known is not None and len(ids) > len(known):
            stray = len(ids) - len(known)
            column = next(i for i, end in enumerate(ends) if (end >= len(known)).any())
            row = int((ends[column] >= len(known)).argmax())
            raise DatasetError(
                f"{file.path}: {columns[column]} {shown(ids[int(ends[column][row])].as_py())} in row {row + 1} is no "
                f"id of {self.files[1].name}, like {stray - 1} more; add a row for each there, or leave these edges out"
            )
        convert: dict[str, Any] = {"weight": as_weights, "time": as_integers}
        values: dict[str, NDArray[np.generic]] = {
            option: convert[option](option, others[option], arrow.chunked_array(chunks), file.path)
            for option, chunks in parts.items()
        }
        return ends, ids, values

    def _read_nodes(self, file: TableFile, writer: CacheWriter, report: list[str]) -> tuple[Any, EdgeList]:
        """The ids, and features, labels and splits. Adds classes and columns to the properties."""
        arrow = pyarrow()
        id_column = file.column("id", self.given.get("id"), 0)
        numbers = IdNumbers([id_column], file.path)
        for piece in file.pieces({id_column: arrow.string()}):
            numbers.take(piece.column(id_column))
        (rows,), ids = numbers.numbers()
        if len(ids) < rows.size:
            row = int((rows != np.arange(rows.size)).argmax())
            raise DatasetError(
                f"{file.path}: {id_column} {shown(ids[int(rows[row])].as_py())} in row {row + 1} is there twice; each "
                f"node has one row ({rows.size - len(ids)} too many)"
            )
        if self._trained is not None:
            self._trained.check_ids(ids, file.path)
        special = {
            option: file.column(option, value, 0)
            for option, value in (("label", self.given.get("label")), ("split", self.split))
            if isinstance(value, str)
        }
        taken = [id_column, *special.values()]
        if twice := [name for name in taken if taken.count(name) > 1]:
            raise DatasetError(
                f"{file.path}: column {twice[0]} is two of id, label and split; name different columns (dataset.id, "
                "dataset.label, dataset.split)"
            )
        names = self._feature_names(file, taken)
        table = file.read([*special.values(), *names])
        if self._trained is None:
            columns = [Column.of(name, table.column(name), file.path) for name in names]
            report += [column.report() for column in columns]
            warnings = [
                f"{file.path}: column {name} is read as texts, since {odd}; "
                f"{way_to_numbers(file, 'correct such cells or leave them empty')}, or write codes as texts, such as "
                "z8001"
                for name in names
                if (odd := odd_cells(table.column(name)))
            ]
        else:
            columns, warnings = list(self._trained.columns), []
            report += self._trained.report_of(table, file)
        features = np.lib.format.open_memmap(
            writer.scratch / "features.npy", "w+", np.float32, (rows.size, sum(column.width for column in columns))
        )
        for begin, end in cut(rows.size, self.rows_at_once(features.shape[1])):
            at = 0
            for column in columns:
                values = table.column(column.name).slice(begin, end - begin).combine_chunks()
                features[begin:end, at : at + column.width] = column.features(values)
                at += column.width
        labels, splits = None, None
        classes: list[str] = []
        if "label" in special:
            known = None if self._trained is None else self._trained.classes
            labels, classes = _classes(special["label"], table.column(special["label"]), file, known)
            report.append(
                f"{special['label']}: {len(classes)} classes, {', '.join(classes[:10])}"
                f"{', ...' if len(classes) > 10 else ''}; {int((labels < 0).sum()):,} nodes have none: those to predict"
            )
        if "split" in special:
            assert labels is not None
            splits = _splits(special["split"], table.column(special["split"]), labels, ids, file.path)
        if self._trained is not None:
            self._trained.check_labels(np.full(rows.size, -1) if labels is None else labels, file.path)
        saved = [column.to_json() for column in columns]
        writer.properties.update(classes=classes, columns=saved, warnings=warnings)
        none = np.empty(0, dtype=np.int32)
        return ids, EdgeList(none, none, features, labels, len(classes) if classes else None, splits)

    def _feature_names(self, file: TableFile, taken: Sequence[str]) -> list[str]:
        if self._trained is not None:
            return self._trained.names(file, taken, self.features)
        if self.features is None:
            rest = [name for name in file.names if name not in taken]
            for name in rest:
                file.refuse_index(name, "dataset.features")
            return rest
        for number, name in enumerate(self.features):
            if name not in file.names or name in taken or name in self.features[:number]:
                free = [one for one in file.names if one not in taken]
                raise DatasetError(
                    f"{file.path}: features names the column {shown(name)}; it must name different ones of "
                    f"{', '.join(free) or '(none)'} (dataset.features)"
                    f"{'' if name in free else nearest(name, free)}"
                )
        return self.features

    def finish(self, writer: CacheWriter, found: EdgeList, num_nodes: int, num_edges: int) -> None:
        loops = int(np.count_nonzero(found.src == found.dst))
        entries = found.src.size if self.self_loops == "keep" else found.src.size - loops
        added = (found.src.size - loops) if self.undirected else 0
        notes = [f"{num_edges:,} edges of {found.src.size:,} rows"]
        if added:
            notes.append(f"{added:,} reverse edges added (dataset.undirected)")
        if loops and self.self_loops != "keep":
            notes.append(f"{loops:,} self loops removed (dataset.self_loops)")
        if self.self_loops == "add":
            entries += num_nodes
        if repeated := entries + added - num_edges:
            notes.append(f"{repeated:,} repeated ones removed (dataset.parallel_edges)")
        writer.properties["report"].insert(1, ", ".join(notes))
        for line in writer.properties["report"]:
            log.info("%s: %s", self.name, line)

    def draw_splits(self, labels: Tensor) -> dict[str, Tensor] | None:
        if "label" not in self.given or isinstance(self.split, str):
            return None
        known = labels if self._trained is None else labels[: self._trained.num_nodes]
        return stratified_split(known, self.split, self.split_seed)

    def _assemble(self, cached: CachedArrays) -> NodeDataset:
        saved, data = cached.properties, super()._assemble(cached)
        warnings = saved.get("warnings", ())  # edges alone have none, nor has a conversion of an earlier version
        for line in warnings:
            log.warning("%s: %s", self.name, line)
        ids = read_ids(cached.arrays, saved["digest"])
        of_tables = {name: saved[name] for name in ("source", "num_rows", "ends", "classes", "columns")}
        rows = TrainedTables.from_json(
            {"num_nodes": len(ids), "ids": ids.digest, "labels": digest_of(data.labels), **of_tables}
        )
        return replace(data, tables=TableRecord(ids, rows.classes, rows.columns, (*warnings, *saved["report"]), rows))


def _check_header(file: TableFile, columns: Sequence[str]) -> None:
    """Refuses a first line that is an edge: it would be lost as names of columns."""
    if file.kind != ".parquet" and all(name.strip().lstrip("-").isdigit() for name in columns):
        raise DatasetError(
            f"{file.path} begins with the line {','.join(file.names[:3])}, which looks like an edge; the first line "
            "must name the columns: add one, e.g. source,target"
        )


def _check_names(file: TableFile, columns: Sequence[str], ids: Any) -> None:
    """Refuses a first line of two ids, which is an edge without names of columns."""
    names = pyarrow().array(columns, pyarrow().large_string())
    if file.kind == ".parquet" or not is_text(ids.type):
        return
    if pyarrow("pyarrow.compute").all(pyarrow("pyarrow.compute").is_in(names, value_set=ids)).as_py():
        raise DatasetError(
            f"{file.path} begins with the line {','.join(file.names[:3])}, whose words are ids of nodes further down, "
            "so it looks like an edge; the first line must name the columns: add one, e.g. source,target"
        )


def _classes(
    name: str, values: Any, file: TableFile, trained: Sequence[str] | None = None
) -> tuple[NDArray[np.int64], list[str]]:
    """Labels `[rows]`, -1 where there is none, and the values that the classes stand for.

    Args:
        trained: the classes, if they are those of a training.
    """
    arrow, compute = pyarrow(), pyarrow("pyarrow.compute")
    types, path = arrow.types, file.path
    values = file.as_written(name, values)
    kind = values.type
    refuse_spaces(values, f"{path}: label {name}", "class")
    if types.is_floating(kind):
        numbers = as_numbers(values)
        wrong = ~np.isnan(numbers) & ((numbers != np.trunc(numbers)) | (np.abs(numbers) >= 2.0 ** whole_bits(kind)))
        if wrong.any():
            raise DatasetError(
                f"{path}: label {name} is {numbers[wrong][0]} in row {int(wrong.argmax()) + 1}; a class is a text, a "
                "whole number or a truth value: name another column (dataset.label), or make classes of the numbers"
            )
        values = arrow.chunked_array([arrow.array(numbers, from_pandas=True).cast(arrow.int64())])
    elif not (is_text(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind)):
        raise DatasetError(
            f"{path}: label {name} has type {kind}; a class is a text, a whole number or a truth value: name another "
            "column (dataset.label)"
        )
    found = values.drop_null().unique().sort()
    if trained is not None:
        return trained_labels(values, found, trained, name, path), list(trained)
    known = len(values) - values.null_count
    if len(found) < 2 or (len(found) > _FEW_CLASSES and len(found) > known / 2):
        raise DatasetError(
            f"{path}: label {name} has {len(found)} different values in {known} nodes; classes are 2 or more, with "
            "several nodes each: name another column (dataset.label)"
        )
    places = compute.index_in(values, value_set=found, skip_nulls=True).fill_null(-1)
    return places.to_numpy().astype(np.int64), [str(one) for one in found.to_pylist()]


def _splits(name: str, values: Any, labels: NDArray[np.int64], ids: Any, path: Path) -> dict[str, Tensor]:
    """The nodes of each split."""
    if pyarrow().types.is_nested(values.type):
        raise DatasetError(
            f"{path}: split {name} has type {values.type}; it must be train, val or test, or empty: name another "
            "column (dataset.split)"
        )
    texts = as_text(values).to_pylist()
    words = [None if text is None else _WORDS.get(text.strip().lower(), "") for text in texts]
    if "" in words:
        row = words.index("")
        raise DatasetError(
            f"{path}: split {name} is {shown(texts[row])} in row {row + 1}; it must be train, val or test, or empty"
        )
    found = {split: torch.from_numpy(np.flatnonzero(np.array([word == split for word in words]))) for split in SPLITS}
    for split, nodes in found.items():
        bare = nodes[torch.from_numpy(labels)[nodes] < 0]
        if bare.numel():
            row = int(bare[0])
            raise DatasetError(
                f"{path}: node {shown(ids[row].as_py())} in row {row + 1} is in the split {split}, but has no label, "
                f"like {bare.numel() - 1} more; a node without a label is one to predict: leave its {name} empty"
            )
    return found

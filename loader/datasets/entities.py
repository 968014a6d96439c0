"""Entities of RDF graphs that are to be classified: aifb and mutag, with torch_geometric's relations."""

from __future__ import annotations

import csv
import gzip
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from loader.datasets.cache import CachedArrays
from loader.datasets.errors import DatasetError
from loader.datasets.hetero import HeteroDataset
from loader.datasets.hetero_edges import HeteroEdges, HeteroEdgesDataset
from loader.datasets.library_reader import ReaderFiles
from loader.datasets.splits import as_split_seed, stratified_split
from loader.graph import EdgeType
from loader.machine.arguments import as_fraction
from loader.machine.optional import import_optional

NODE_TYPE = "v"  # of all nodes, as torch_geometric names it


class _Names(NamedTuple):
    """Columns of the tables of labels."""

    node: str
    label: str


_DATASETS = {"aifb": _Names("person", "label_affiliation"), "mutag": _Names("bond", "label_mutagenic")}


class EntitiesDataset(ReaderFiles, HeteroEdgesDataset):
    """aifb or mutag (Ristoski et al. 2016, Schlichtkrull et al. 2018, https://arxiv.org/abs/1703.06103), at
    `data_dir/aifb` and `data_dir/mutag`, in the files of torch_geometric's `Entities`.

    All nodes have one type, "v", and no features. A predicate of the RDF graph is a relation, called by the end of its
    name, and its reverse by `rev_` before that; the most frequent come first, as in torch_geometric. Nodes are numbered
    in the order of the file, classes by name. torch_geometric numbers both in the order of a Python set, which differs
    from process to process: the rows of a checkpoint would be of other nodes then.

    Args:
        name: "aifb" (8,285 nodes, 90 relations, 4 classes) or "mutag" (23,644 nodes, 46 relations, 2 classes).
        val_fraction: share of each class of the train split that becomes the validation split, which these data lack. 0
            leaves the train split as it is, as torch_geometric does.
        split_seed: seed of that draw.
        options: see `CachedDataset`.
    """

    origin = "https://data.dgl.ai/dataset"

    def __init__(self, name: str, *, val_fraction: float = 0.2, split_seed: int = 0, **options: Any) -> None:
        if name not in _DATASETS:
            raise ValueError(f"name is {name!r}; it must be one of {', '.join(_DATASETS)}")
        as_fraction("val_fraction", val_fraction)
        super().__init__(name, **options)
        self.val_fraction = val_fraction
        self.split_seed = as_split_seed(split_seed, drawn=bool(val_fraction), way="give val_fraction")
        self.folder = name
        tables = ("completeDataset.tsv", "trainingSet.tsv", "testSet.tsv")
        self.files = tuple(f"raw/{file}" for file in (f"{name}_stripped.nt.gz", *tables))

    def open_reader(self, root: Path) -> Any:
        wanted_by = f"dataset {self.name}"
        import_optional("rdflib", wanted_by, "hetero")
        entities: Any = import_optional("torch_geometric.datasets", wanted_by, "hetero").Entities
        # It gets the files. What it makes of them is left out.
        done = {"process": lambda _: None, "load": lambda *_, **__: None}
        return type("EntitiesFiles", (entities,), done)(str(root), self.name)

    def extract(self, reader: Any) -> HeteroEdges:
        triples, _, *tables = map(Path, reader.raw_paths)
        number, num_nodes, edges = _graph_of(_triples_of(triples))
        names = _DATASETS[self.name]
        labelled = [_labels_of(table, names, number) for table in tables]
        classes = {label: i for i, label in enumerate(sorted({label for _, of in labelled for label in of}))}
        labels = np.full(num_nodes, -1)
        for nodes, of in labelled:
            labels[nodes] = [classes[label] for label in of]
        train, test = (torch.tensor(sorted(nodes)) for nodes, _ in labelled)
        return HeteroEdges(
            edges=edges,
            num_nodes={NODE_TYPE: num_nodes},
            target=NODE_TYPE,
            labels=labels,
            num_classes=len(classes),
            splits={"train": train, "val": train[:0], "test": test},
        )

    def _assemble(self, cached: CachedArrays) -> HeteroDataset:
        data = super()._assemble(cached)
        if not self.val_fraction:
            return data
        labels, train = torch.full_like(data.labels, -1), data.splits["train"]
        labels[train] = data.labels[train]
        drawn = stratified_split(labels, (1 - self.val_fraction, self.val_fraction, 0), self.split_seed)
        return replace(data, splits={**drawn, "test": data.splits["test"]})


def _triples_of(path: Path) -> list[tuple[Any, Any, Any]]:
    """Subject, predicate and object of each statement, once, in the order of the file."""
    found: dict[tuple[Any, Any, Any], None] = {}

    class Sink:
        def triple(self, *of: Any) -> None:
            found[of] = None

    parser: Any = import_optional("rdflib.plugins.parsers.ntriples", "reading RDF", "hetero").W3CNTriplesParser
    with gzip.open(path, "rb") as file:
        parser(Sink()).parse(file)
    return list(found)


def _graph_of(
    triples: Sequence[tuple[Any, Any, Any]],
) -> tuple[dict[str, int], int, dict[EdgeType, NDArray[np.generic]]]:
    """The number of each text, the number of nodes, and the edges of each relation and of its reverse.

    As in torch_geometric, nodes of equal text (a word in two languages) get the edges of one of them.
    """
    nodes = dict.fromkeys(node for subject, _, value in triples for node in (subject, value))
    number: dict[str, int] = {}
    for i, node in enumerate(nodes):
        number.setdefault(str(node), i)
    ends: dict[str, list[tuple[int, int]]] = {}
    for subject, predicate, value in triples:
        ends.setdefault(str(predicate), []).append((number[str(subject)], number[str(value)]))
    predicates = sorted(ends, key=lambda one: (-len(ends[one]), one))
    edges: dict[EdgeType, NDArray[np.generic]] = {}
    for predicate, name in zip(predicates, _short(predicates), strict=True):
        pairs = np.array(ends[predicate], dtype=np.int64).T
        edges[NODE_TYPE, name, NODE_TYPE] = pairs
        edges[NODE_TYPE, f"rev_{name}", NODE_TYPE] = pairs[::-1].copy()
    return number, len(nodes), edges


def _short(predicates: Iterable[str]) -> list[str]:
    """The ends of their names, or whole names where two end alike."""
    ends = {one: re.split(r"[#/]", one.rstrip("#/"))[-1] for one in predicates}
    count = Counter(ends.values())
    return [end if count[end] == 1 else whole for whole, end in ends.items()]


def _labels_of(path: Path, names: _Names, number: dict[str, int]) -> tuple[list[int], list[str]]:
    """Nodes of a table and their labels.

    Raises:
        DatasetError: a node is not in the graph.
    """
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(row[names.node], row[names.label]) for row in csv.DictReader(file, delimiter="\t")]
    if strange := [node for node, _ in rows if node not in number]:
        raise DatasetError(
            f"{path}: {strange[0]} is no node of the graph ({len(strange)} of {len(rows)} are none); copy all files of "
            "one release"
        )
    return [number[node] for node, _ in rows], [label for _, label in rows]
